"""The asyncio client behind the blocking names, so that a test is written once for both.

`LoopThread` is an event loop on a thread of its own. `Blocking` stands for one object that lives on
that loop: whatever is asked of it is done there, awaited there, and handed back here.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from hocket.client.faces.aio.client import AsyncClient
from hocket.client.faces.aio.producer import AsyncProducer
from hocket.client.faces.aio.subscription import AsyncSubscription
from hocket.client.faces.aio.transaction import AsyncTransaction
from hocket.client.faces.opening import Opening
from hocket.client_core.consuming.message import AsyncMessage, AsyncMessageBatch, Message
from tests.support.threads import PATIENCE

HANG_SECONDS = 2 * PATIENCE  # more than any timeout a test gives, so that the client's comes first
_END = object()


class LoopThread:
    """An event loop that runs until the end of the `with` block; nothing of it is left then."""

    def __init__(self) -> None:
        self.complaints: list[str] = []  # tasks that failed unseen, callbacks that raised
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(
            lambda _loop, context: self.complaints.append(repr(context))
        )
        # One worker, started now: a worker that starts within a test would look like a leak.
        self._workers = ThreadPoolExecutor(1)
        self._workers.submit(lambda: None).result()
        self._loop.set_default_executor(self._workers)
        self._thread = threading.Thread(target=self._loop.run_forever, name="test: asyncio loop")

    def __enter__(self) -> LoopThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._loop.shutdown_asyncgens)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the event loop did not stop"
        self._workers.shutdown()
        self._loop.close()

    def begin(self, call: Callable[[], Any]) -> Future[Any]:
        """Have `call` done on the loop, and what it returns awaited if that is what it is for."""

        async def perform() -> Any:
            result = call()
            if inspect.isawaitable(result) and not isinstance(result, asyncio.Future):
                result = await result
            return self.blocking(result)

        return asyncio.run_coroutine_threadsafe(perform(), self._loop)

    def run(self, call: Callable[[], Any]) -> Any:
        future = self.begin(call)
        try:
            return future.result(HANG_SECONDS)
        except TimeoutError:
            if future.done():  # it is the client's own Timeout
                raise
            future.cancel()
            raise AssertionError(f"hangs: nothing came back within {HANG_SECONDS} s") from None

    def gather(self, calls: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
        """All of them at the same time; their results in order."""

        async def together() -> list[Any]:
            return await asyncio.gather(*(call() for call in calls))

        return self.run(together)

    def blocking(self, result: Any) -> Any:
        """Things that live on the loop are wrapped; plain values are what they are."""
        if isinstance(result, AsyncMessage):
            return BlockingMessage(result, self)
        if isinstance(result, AsyncMessageBatch):
            return BlockingBatch(result, self)
        if isinstance(result, AsyncSubscription):
            return BlockingSubscription(result, self)
        if isinstance(result, AsyncClient | AsyncProducer | AsyncTransaction):
            return Blocking(result, self)
        if isinstance(result, asyncio.Future):
            return BlockingFuture(result, self)
        return result


class Blocking:
    """A client, a producer or a transaction."""

    def __init__(self, inner: Any, loop: LoopThread) -> None:
        self.inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = self._loop.run(lambda: getattr(self.inner, name))
        if not callable(found):
            return found
        return lambda *args, **kwargs: self._loop.run(lambda: found(*args, **kwargs))

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        self._loop.run(lambda: self.inner.__aexit__(*error))


class BlockingSubscription(Blocking):
    def __iter__(self) -> Iterator[Any]:
        return self._drawn(self.inner.__aiter__)

    def batches(self) -> Iterator[Any]:
        return self._drawn(self.inner.batches)

    def _drawn(self, begin: Callable[[], Any]) -> Iterator[Any]:
        items = begin()
        try:
            while (item := self._loop.run(lambda: anext(items, _END))) is not _END:
                yield item
        finally:
            self._loop.run(items.aclose)


class BlockingMessage(Message):
    """Read here, settled on the loop."""

    __slots__ = ()

    def __new__(cls, inner: AsyncMessage, loop: LoopThread) -> BlockingMessage:
        return tuple.__new__(cls, (*inner, inner, loop))

    @property
    def value(self) -> Any:
        return self[9].value

    def ack(self) -> None:
        self._settle("ack")

    def nack(self, *args: Any, **kwargs: Any) -> None:
        self._settle("nack", *args, **kwargs)

    def extend(self, *args: Any, **kwargs: Any) -> None:
        self._settle("extend", *args, **kwargs)

    def reject(self, *args: Any, **kwargs: Any) -> None:
        self._settle("reject", *args, **kwargs)

    def _settle(self, action: str, *args: Any, **kwargs: Any) -> None:
        inner, loop = self[9], self[10]
        loop.run(lambda: getattr(inner, action)(*args, **kwargs))


class BlockingBatch:
    def __init__(self, inner: AsyncMessageBatch, loop: LoopThread) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **kwargs: self._loop.run(lambda: found(*args, **kwargs))

    def __len__(self) -> int:
        return len(self._inner)

    def messages(self) -> list[BlockingMessage]:
        return [BlockingMessage(each, self._loop) for each in self._inner.messages()]

    def sift(self) -> tuple[list[BlockingMessage], list[Any]]:
        good, bad = self._inner.sift()
        for error in bad:
            error.message = BlockingMessage(error.message, self._loop)
        return [BlockingMessage(each, self._loop) for each in good], bad


class BlockingFuture:
    def __init__(self, inner: asyncio.Future[Any], loop: LoopThread) -> None:
        self._inner = inner
        self._loop = loop

    def done(self) -> bool:
        return self._inner.done()

    def result(self, timeout: float | None = None) -> Any:
        return self._loop.run(lambda: asyncio.wait_for(asyncio.shield(self._inner), timeout))


def opened(loop: LoopThread, opening: Callable[[], Opening[AsyncClient]]) -> Any:
    """The client that `hocket.aio.connect` or `embedded` opens, behind the blocking names."""
    return loop.run(opening)
