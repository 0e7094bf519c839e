"""How a coroutine waits: by the rules of `waiting`, in the same lists as threads and pumps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from hocket.deadline import Deadline
from hocket.errors import Closed
from hocket.local.waiting import Waiters

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")

# How many messages `async for` takes from a busy queue before other coroutines get a turn.
MESSAGES_PER_TURN = 256


class SleepingCoroutine:
    """One sleep of one coroutine, until `wake` is called, from any thread."""

    __slots__ = ("_future", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future = self._loop.create_future()

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._resume)
        except RuntimeError:  # the loop was closed, and the coroutine will never run
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


class AsyncMessages(Generic[T]):
    """`async for` over a message queue: ends with a graceful close, raises Closed after an abort.

    `take` gives the next message or None, `receive` waits for it, and `was_cut` tells an abort from
    a close once either of them has raised Closed.
    """

    __slots__ = ("_receive", "_since_pause", "_take", "_was_cut")

    def __init__(
        self,
        take: Callable[[], T | None],
        receive: Callable[[], Awaitable[T]],
        was_cut: Callable[[], bool],
    ) -> None:
        self._take = take
        self._receive = receive
        self._was_cut = was_cut
        self._since_pause = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        self._since_pause += 1
        if self._since_pause >= MESSAGES_PER_TURN:  # a busy queue must not starve its loop
            self._since_pause = 0
            await asyncio.sleep(0)
        try:
            message = self._take()
            if message is None:
                message = await self._receive()
        except Closed:
            if self._was_cut():
                raise
            raise StopAsyncIteration from None
        return message
