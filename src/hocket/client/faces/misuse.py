"""What a face says to somebody who takes it for the other one: which word, or import, to use.

Python's own words are that an object has no such attribute, or does not support a protocol. They do
not say that an `await` is missing, or that there is `hocket.aio`. A type checker must go on to
refuse these uses, so it does not see the methods.

An asyncio face has the methods of `with` and `for` only to refuse them, a blocking one those of
`async with`, `async for` and `await`. Whoever asks `inspect.isawaitable` is told yes for a blocking
face: that is the price of a message for `await`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from hocket.errors import NotAwaited, WrongType


class AsyncFace:
    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise NotAwaited(
                f"{_name(self)} is for asyncio: write `async with` instead of `with`. (Without "
                "asyncio it is `with hocket.connect(...)`.)"
            )

        def __exit__(self, *_error: object) -> None:
            """`with` looks for it before it enters."""


class AsyncIterated(AsyncFace):
    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            raise NotAwaited(f"{_name(self)} is for asyncio: write `async for` instead of `for`")


class Face:
    if not TYPE_CHECKING:

        def __aenter__(self) -> NoReturn:
            raise WrongType(
                f"{_name(self)} is blocking: write `with` instead of `async with`, or for asyncio "
                "`async with hocket.aio.connect(...)` and what that client gives"
            )

        async def __aexit__(self, *_error: object) -> None:
            """`async with` looks for it before it enters."""

        def __await__(self) -> NoReturn:
            raise WrongType(
                f"{_name(self)} is blocking, and there is nothing to await: leave out `await`, or "
                "for asyncio use `await hocket.aio.connect(...)` and what that client gives"
            )


class Iterated(Face):
    if not TYPE_CHECKING:

        def __aiter__(self) -> NoReturn:
            raise WrongType(
                f"{_name(self)} is blocking: write `for` instead of `async for`, or for asyncio "
                "subscribe with a client of `hocket.aio.connect(...)`"
            )


def _name(face: object) -> str:
    return f"this {type(face).__name__}"
