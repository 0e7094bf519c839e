"""Work in the background: closing what clients have dropped, carrying messages to sinks.

Nobody waits for such work, except the endpoint when it goes down. So a failure is logged here.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from hocket.errors import HocketError
from hocket.rpc.failure import forget_trace

log = logging.getLogger("hocket.rpc")


class Background:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def do(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None] | None:
        """Begin `work` now and return its task, where that can be done.

        None is returned if another thread asks (the work begins later), and if the endpoint is
        down (the work is not done, since everything it could concern is gone).
        """
        if self._closed:
            return None
        if threading.get_ident() != self._thread:
            # The garbage collector dropped something, and it runs on any thread.
            self._loop.call_soon_threadsafe(self.do, work)
            return None
        task = self._loop.create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, seconds: float) -> None:
        """Return when all work is done, or when the time is up.

        Work that other work begins in the meantime is waited for too.
        """
        deadline = self._loop.time() + seconds
        while self._tasks and (left := deadline - self._loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _logged(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await work()
    except HocketError as error:
        log.info("%s", error)
        forget_trace(error)
    except Exception as error:
        log.exception("background work of the RPC endpoint failed")
        forget_trace(error)
