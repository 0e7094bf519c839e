"""Circles of garbage are collected on the endpoint's own thread, and on no other, while it runs.

pycapnp's objects must be freed on the thread of their event loop: a connection that is freed
anywhere else aborts the process, and nothing else of it is made for threads either. Python's
collector runs on whichever thread happens to allocate. Nothing of ours leaves such an object in a
circle (a test looks for one); this is for what nobody has thought of. It is for a process that is
ours as a whole, as that of `hocket serve` is.
"""

from __future__ import annotations

import asyncio
import gc

PAUSE_SECONDS = 0.1


async def collect_here() -> None:
    """Until it is cancelled."""
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
    """What the collector would have done by itself by now."""
    due = [
        generation
        for generation, (count, threshold) in enumerate(
            zip(gc.get_count(), gc.get_threshold(), strict=True)
        )
        if 0 < threshold < count
    ]
    if due:
        gc.collect(max(due))
