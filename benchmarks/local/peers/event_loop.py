"""`call_soon_threadsafe` of uvloop and of asyncio: the loop runs in a thread, this one posts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from time import perf_counter

import uvloop

from benchmarks.workers import Countdown, Worker, wait_for


def posts(count: int, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> float:
    """Seconds until `count` callables posted from this thread have all run."""
    loop = new_loop()
    done = threading.Event()
    tick = Countdown(count, done.set).tick
    try:
        with Worker(loop.run_forever):
            post = loop.call_soon_threadsafe
            start = perf_counter()
            for _ in range(count):
                post(tick)
            wait_for(done)
            seconds = perf_counter() - start
            loop.call_soon_threadsafe(loop.stop)
        return seconds
    finally:
        loop.close()


def uvloop_posts(count: int) -> float:
    return posts(count, uvloop.new_event_loop)


def asyncio_posts(count: int) -> float:
    return posts(count, asyncio.SelectorEventLoop)
