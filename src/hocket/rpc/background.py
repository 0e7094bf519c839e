"""What is done in the background: closing what was dropped, carrying messages to sinks.

Nobody waits for a chore but the endpoint when it goes down, so a chore's failure is logged here.
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


class Chores:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def do(self, chore: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None] | None:
        """None: later, or not at all, since the endpoint is down and everything it had with it."""
        if self._closed:
            return None
        if threading.get_ident() != self._thread:
            # Something was dropped by the garbage collector, which runs wherever it likes.
            self._loop.call_soon_threadsafe(self.do, chore)
            return None
        task = self._loop.create_task(_logged(chore))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, seconds: float) -> None:
        """Return when all are done, those too that come of them, or when the time is up."""
        deadline = self._loop.time() + seconds
        while self._tasks and (left := deadline - self._loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _logged(chore: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await chore()
    except HocketError as error:
        log.info("%s", error)
        forget_trace(error)
    except Exception as error:
        log.exception("a chore of the RPC endpoint failed")
        forget_trace(error)
