"""Which coder a type has."""

from __future__ import annotations

from dataclasses import is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from hocket.errors import WrongType
from hocket.values import Coder
from hocket.values.foreign import foreign_coder
from hocket.values.misfit import Misfit
from hocket.values.shapes import Maker
from hocket.values.simple import Shape
from hocket.values.text import text


class JsonCoder:
    """Values of a type as JSON."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._text = text()

    def encode(self, value: Any, /) -> bytes:
        return self._text.dumps(self._shape.encode(value))

    def decode(self, data: bytes, /) -> Any:
        return self._shape.decode(self._text.loads(data))


class FreeCoder(JsonCoder):
    """Any JSON (`object`), or any JSON object (`dict`) or array (`list`)."""

    def __init__(self, shape: Shape, kind: type) -> None:
        super().__init__(shape)
        self._kind = kind

    def encode(self, value: Any, /) -> bytes:
        if isinstance(value, self._kind):
            data = self._text.dumps_freely(value)
            if data is not None:
                return data
        return super().encode(value)


class TextCoder:
    """`str`: the text itself, in UTF-8, as every other program writes it."""

    def encode(self, value: str, /) -> bytes:
        if not isinstance(value, str):
            raise Misfit(f"must be str, not {type(value).__name__}")
        return value.encode()

    def decode(self, data: bytes, /) -> str:
        return data.decode()


def coder_of(kind: Any) -> Coder[Any]:
    if isinstance(kind, type):
        return _of_class(kind)
    if isinstance(kind, str | bytes | bytearray | int | float | dict | list | tuple | set):
        raise WrongType(f"value= takes a type or a coder, not {kind!r:.80}")
    if callable(getattr(kind, "encode", None)) and callable(getattr(kind, "decode", None)):
        found: Coder[Any] = kind
        return found
    if is_dataclass(kind) or isinstance(kind, Enum) or foreign_coder(type(kind)) is not None:
        name = type(kind).__name__
        raise WrongType(f"value= takes the type itself, value={name}, and not one of its values")
    return _made(kind)


@lru_cache(maxsize=1000)
def _of_class(kind: type) -> Coder[Any]:
    """Classes alone are remembered: `int | str` and `str | int` are equal, and differ in order."""
    return _made(kind)


def _made(kind: Any) -> Coder[Any]:
    if kind is str:
        return TextCoder()
    if kind in (bytes, bytearray, memoryview):
        raise WrongType("bytes are what messages carry anyway: leave value= out")
    foreign = foreign_coder(kind)
    if foreign is not None:
        return foreign
    try:
        shape = Maker(_foreign_shape).shape(kind)
    except WrongType as error:
        raise WrongType(f"value={getattr(kind, '__name__', kind)!s:.80}: {error}") from error
    if kind in (object, dict, list):
        return FreeCoder(shape, kind)
    return JsonCoder(shape)


def _foreign_shape(kind: Any) -> Shape | None:
    """A model within other values: its own library writes and reads that part."""
    coder = foreign_coder(kind)
    if coder is None:
        return None
    loads, dumps = text().loads, text().dumps
    return Shape(
        getattr(kind, "__name__", str(kind)),
        lambda value: loads(coder.encode(value)),
        lambda found: coder.decode(dumps(found)),
    )
