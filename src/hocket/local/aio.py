"""The asyncio face of waiting: the same rules and the same lists as `waiting`, for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from hocket.errors import Closed
from hocket.local.waiting import Deadline, Waiters

if TYPE_CHECKING:
    from typing import Self

    from hocket.local.lane import Message
    from hocket.local.message_queue import MessageQueue

T = TypeVar("T")

# Messages that `async for` takes from a busy queue before it lets its loop turn to others.
MESSAGES_PER_TURN = 256


class SleepingCoroutine:
    """A place for one coroutine to sleep in, once, until `wake` is called from any thread."""

    __slots__ = ("_future", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future = self._loop.create_future()

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._resume)
        except RuntimeError:  # the loop was closed and its coroutine left behind
            return False
        return True

    def _resume(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def sleep(self) -> None:
        await self._future


async def wait_async(
    attempt: Callable[[], T | None], waiters: Waiters, deadline: Deadline, what: str
) -> T:
    """Call `attempt` until it gives something other than None, suspended in between."""
    try:
        async with asyncio.timeout(deadline.remaining()):
            while True:
                sleeper = SleepingCoroutine()
                waiters.append(sleeper.wake)
                used = False
                try:
                    result = attempt()
                    if result is not None:
                        return result
                    await sleeper.sleep()
                    used = True
                finally:
                    waiters.done(sleeper.wake, used=used)
    except TimeoutError as exc:
        result = attempt()
        if result is not None:
            return result
        raise deadline.missed(what) from exc


class AsyncMessages:
    """`async for` over a queue: ends with a graceful close, raises Closed after an abort."""

    __slots__ = ("_queue", "_since_pause")

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue
        self._since_pause = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        self._since_pause += 1
        if self._since_pause >= MESSAGES_PER_TURN:  # a busy queue must not starve its loop
            self._since_pause = 0
            await asyncio.sleep(0)
        queue = self._queue
        try:
            message = queue._take()
            if message is None:
                message = await queue.receive_async()
        except Closed:
            if queue._reason is not None:
                raise
            raise StopAsyncIteration from None
        return message
