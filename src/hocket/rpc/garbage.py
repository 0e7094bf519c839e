"""Reference cycles are collected on the endpoint's own thread, and on no other, while it runs.

pycapnp's objects must be freed on the thread of their event loop: a connection that is freed on
another thread aborts the process, and no other object of pycapnp is made for threads either.
Python's collector runs on whichever thread happens to allocate. Our code leaves no such object in a
cycle (a test looks for one); this module is for cycles that nobody has thought of. It is only for a
process that is wholly ours, as that of `hocket serve` is.
"""

from __future__ import annotations

import asyncio
import gc

PAUSE_SECONDS = 0.1


async def collect_here() -> None:
    """Collect here until cancelled."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            collect_due()
    finally:
        if was_on:
            gc.enable()


def collect_due() -> None:
    """Collect what Python's own collector would have collected by now."""
    due = [
        generation
        for generation, (count, threshold) in enumerate(
            zip(gc.get_count(), gc.get_threshold(), strict=True)
        )
        if 0 < threshold < count
    ]
    if due:
        gc.collect(max(due))
