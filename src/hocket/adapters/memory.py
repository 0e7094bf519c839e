"""How the C library and the garbage collector treat the memory of a process that is a broker and
nothing else.

A broker takes memory for each batch that comes in, about a megabyte, and lets go of it soon. The C
library of most Linux systems (glibc) gives that back to the system at once, and the system clears
each page again when it is touched next: a third of what a broker spent on taking large batches. So
a broker keeps some free memory for what comes next.

What a broker has loaded when it begins to serve, modules and classes above all, stays for as long
as it runs. Python's collector looks at all of it again and again, and every message waits for that.

Not for an embedded broker: how its process treats memory is for others to decide.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

# From malloc.h of glibc.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3

FREE_BYTES_MAX = 128 << 20  # more than this at the end of the heap goes back to the system ...
FREE_BYTES_KEPT = 64 << 20  # ... and this much of it stays
APART_BYTES = 32 << 20  # pieces from this size on are taken from the system, and given back, singly


def keep_free_memory() -> None:
    """Have this process keep up to FREE_BYTES_MAX that it does not use; elsewhere than with glibc,
    nothing changes."""
    with suppress(AttributeError, OSError):  # there is no such function, or no such library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, APART_BYTES)
        mallopt(_TRIM_THRESHOLD, FREE_BYTES_MAX)
        mallopt(_TOP_PAD, FREE_BYTES_KEPT)


def set_aside_what_stays() -> None:
    """Have the collector look no more at what there is now."""
    gc.collect()  # what is garbage now would stay, too
    gc.freeze()
