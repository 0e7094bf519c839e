"""What asyncio users get for a client, producer or subscription, which has to be opened first."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

from hocket.errors import NotAwaited


class Closeable(Protocol):
    async def __aexit__(self, *_error: Any) -> None: ...


T = TypeVar("T", bound=Closeable)


class Opening(Generic[T]):
    """`await` it for the thing itself, or `async with` it, which closes the thing at the end.

    Nothing is opened before that, so an Opening that is dropped leaves nothing behind; like a
    coroutine that nobody awaits, it gives a RuntimeWarning. Whoever uses it as if it were the thing
    is told to await it.
    """

    _begun = True  # until it is made: see `__del__`

    def __init__(self, open: Callable[[], Awaitable[T]], call: str) -> None:  # noqa: A002
        """`call` is what the user wrote to get it, as in "client.producer(...)"."""
        self._open = open
        self._call = call
        self._opened: T | None = None
        self._begun = False

    def __repr__(self) -> str:
        return f"<{self._call}, {'awaited' if self._begun else 'not awaited yet'}>"

    def __await__(self) -> Generator[Any, None, T]:
        self._begun = True
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._begun = True
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *error: Any) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(*error)

    def __del__(self) -> None:
        if not self._begun:
            warnings.warn(
                f"{self._call} was never awaited, so nothing was opened",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )

    # --- used as if it were what it opens; see `misuse` ------------------------------------------

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("__"):  # asked by Python itself, of any object
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise self._not_awaited(f" ({name!r} was asked for)")

        def __iter__(self) -> NoReturn:
            raise self._not_awaited(", and then it is `async for`")

        def __aiter__(self) -> NoReturn:
            raise self._not_awaited("")

        def __enter__(self) -> NoReturn:
            raise NotAwaited(f"write `async with {self._call}` instead of `with`: it is of asyncio")

        def __exit__(self, *_error: object) -> None:
            """`with` looks for it before it enters."""

        def _not_awaited(self, use: str) -> NotAwaited:
            return NotAwaited(
                f"{self._call} must be awaited before it is used{use}: "
                f"write `await {self._call}`, or `async with {self._call} as ...`"
            )
