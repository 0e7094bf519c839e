"""Types of pydantic and msgspec: these libraries write and read their own types themselves.

Neither is loaded here unless it is loaded already: who passes a model has imported its library.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from hocket.values.misfit import Misfit, must_be

REASONS_MAX = 3  # of a value that is wrong in many places, so many are told


def foreign_coder(kind: Any) -> PydanticCoder | MsgspecCoder | None:
    """The coder of a pydantic model or dataclass, or of a msgspec.Struct; None: it is neither."""
    origin = getattr(kind, "__origin__", kind)
    pydantic, msgspec = sys.modules.get("pydantic"), sys.modules.get("msgspec")
    if not isinstance(origin, type):
        return None
    if pydantic is not None and (
        issubclass(origin, pydantic.BaseModel) or hasattr(origin, "__is_pydantic_dataclass__")
    ):
        return PydanticCoder(pydantic, kind, origin)
    if msgspec is not None and issubclass(origin, msgspec.Struct):
        return MsgspecCoder(msgspec, kind, origin)
    return None


class PydanticCoder:
    """By aliases, so that what was written can be read, and without computed fields."""

    def __init__(self, pydantic: Any, kind: Any, origin: type) -> None:
        self._kind = origin
        adapter = pydantic.TypeAdapter(kind)
        self._dump = partial(adapter.dump_json, by_alias=True, round_trip=True, warnings="error")
        self._load = adapter.validate_json
        self._invalid = pydantic.ValidationError
        self._unwritable = sys.modules["pydantic_core"].PydanticSerializationError

    def encode(self, value: Any, /) -> bytes:
        if not isinstance(value, self._kind):
            raise must_be(self._kind.__name__, value)
        try:
            data: bytes = self._dump(value)
        except self._unwritable as error:
            raise Misfit(" ".join(str(error).split())) from error
        return data

    def decode(self, data: bytes, /) -> Any:
        try:
            return self._load(data)
        except self._invalid as error:
            raise Misfit(_reasons(error)) from error


def _reasons(error: Any) -> str:
    """What is wrong where; not with which values, which may be long, and secret."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = [
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}" if each["loc"] else each["msg"]
        for each in found[:REASONS_MAX]
    ]
    more = len(found) - len(told)
    return "; ".join(told) + (f"; and {more} more" if more else "")


class MsgspecCoder:
    """What it writes it also reads, since a Struct does not check what is put into its fields."""

    def __init__(self, msgspec: Any, kind: Any, origin: type) -> None:
        self._kind = origin
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(kind).decode
        self._wrong = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

    def encode(self, value: Any, /) -> bytes:
        if not isinstance(value, self._kind):
            raise must_be(self._kind.__name__, value)
        data: bytes = self._encode(value)
        self.decode(data)
        return data

    def decode(self, data: bytes, /) -> Any:
        try:
            return self._decode(data)
        except self._wrong as error:
            raise Misfit(str(error)) from error
