"""Checks of what callers pass in: each raises an error of ours before anything is changed."""

from __future__ import annotations

import sys
from operator import index
from typing import TYPE_CHECKING

from hocket.errors import BadName, OutOfRange, ReadOnlyBuffer, WrongType

if TYPE_CHECKING:
    from typing_extensions import Buffer

NOTHING = memoryview(bytearray())


def whole_number(value: object, what: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise WrongType(f"{what} must be an int, not {type(value).__name__}")
    return index(value)


def check_at_least(value: object, least: int, what: str) -> int:
    number = whole_number(value, what)
    if not least <= number <= sys.maxsize:
        raise OutOfRange(f"{what} must be between {least} and {sys.maxsize}, not {value}")
    return number


def check_port(port: object) -> None:
    if whole_number(port, "a port") < 0:
        raise OutOfRange(f"a port must be 0 or more, not {port}")


def check_name(name: object) -> None:
    if not isinstance(name, str):
        raise WrongType(f"a broker's name must be a str, not {type(name).__name__}")
    if not name:
        raise BadName("a broker's name must not be empty")


def check_callable(value: object, what: str) -> None:
    if not callable(value):
        raise WrongType(f"{what} must be callable, not {type(value).__name__}")


def as_bytes_view(buffer: Buffer) -> memoryview:
    """The memory of any bytes-like object as one view of bytes, not copied."""
    try:
        view = memoryview(buffer)
    except (TypeError, ValueError) as error:  # ValueError: a memoryview that was released
        raise WrongType(
            f"expected a bytes-like object, got {type(buffer).__name__}: {error}"
        ) from None
    if not view.c_contiguous:
        raise WrongType("the buffer's memory is not contiguous; pass a copy of it")
    if view.format == "B" and view.ndim == 1:
        return view
    return view.cast("B") if view.nbytes else NOTHING


def readable_span(buffer: Buffer, offset: int = 0, length: int | None = None) -> memoryview:
    """`length` bytes of `buffer` from `offset` on, both counted in bytes; by default the rest."""
    view = as_bytes_view(buffer)
    size = len(view)
    if length is None and offset == 0 and type(offset) is int:
        return view
    offset = whole_number(offset, "offset")
    if not 0 <= offset <= size:
        raise OutOfRange(f"offset {offset} is outside the buffer of {size} bytes")
    if length is None:
        return view[offset:]
    length = whole_number(length, "length")
    if not 0 <= length <= size - offset:
        raise OutOfRange(f"length {length} from offset {offset} exceeds the buffer's {size} bytes")
    return view[offset : offset + length]


def writable_span(buffer: Buffer, offset: int = 0, length: int | None = None) -> memoryview:
    view = readable_span(buffer, offset, length)
    if view.readonly:
        raise ReadOnlyBuffer(
            f"cannot read into a read-only {type(buffer).__name__}; pass a bytearray, say"
        )
    return view
