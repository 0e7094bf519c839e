"""What asyncio users get for a client, producer or subscription, which has to be opened first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, Protocol, TypeVar


class Closeable(Protocol):
    async def __aexit__(self, *_error: Any) -> None: ...


T = TypeVar("T", bound=Closeable)


class Opening(Generic[T]):
    """`await` it for the thing itself, or `async with` it, which closes the thing at the end.

    Nothing is opened before that, so an Opening that is dropped leaves nothing behind.
    """

    def __init__(self, open: Callable[[], Awaitable[T]]) -> None:  # noqa: A002
        self._open = open
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *error: Any) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(*error)
