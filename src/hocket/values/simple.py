"""The shapes of types without parts: numbers, text, times, UUIDs, decimals, bytes, enums."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum, Flag
from typing import Any
from uuid import UUID

from hocket.values.misfit import Misfit, must_be
from hocket.values.plain import base64_of, finite, plain, text_of

Convert = Callable[[Any], Any]


@dataclass(slots=True)
class Shape:
    """What values of one type look like in JSON."""

    name: str
    encode: Convert  # a value as plain JSON; raises Misfit
    decode: Convert  # and back; raises Misfit


def _exactly(kind: type, name: str) -> Shape:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise must_be(name, value)
        return value

    return Shape(name, check, check)


def _encode_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise must_be("int", value)
    return int(value)


def _decode_int(found: Any) -> int:
    if type(found) is not int:
        raise must_be("int", found)
    return found


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise must_be("float", value)
    try:
        return finite(value)
    except OverflowError:
        raise Misfit("is too large for a float") from None


def _encode_str(value: Any) -> str:
    if not isinstance(value, str):
        raise must_be("str", value)
    return text_of(value)


def _by_text(
    kind: type,
    encode: Convert,
    decode: Convert,
    *,
    but_not: type | tuple[type, ...] = (),
    also: type | tuple[type, ...] = (),
) -> Shape:
    name = kind.__name__

    def encoded(value: Any) -> Any:
        if not isinstance(value, kind) or isinstance(value, but_not):
            raise must_be(name, value)
        return encode(value)

    def decoded(found: Any) -> Any:
        if isinstance(found, bool) or not isinstance(found, (str, also) if also else str):
            raise must_be(f"{name}, as text", found)
        try:
            return decode(found)
        except (ValueError, InvalidOperation):
            raise Misfit(f"{found!r:.40} is no {name}") from None

    return Shape(name, encoded, decoded)


def _isoformat(value: Any) -> str:
    found: str = value.isoformat()
    return found


def enum(kind: type[Enum]) -> Shape:
    if issubclass(kind, Flag):
        return Shape(kind.__name__, _member_of(kind), lambda found: _member(kind, found))
    members = [(plain(each.value), each) for each in kind]

    def decode(found: Any) -> Any:
        for value, member in members:
            if value == found and type(value) is type(found):
                return member
        return _member(kind, found)

    return Shape(kind.__name__, _member_of(kind), decode)


def _member_of(kind: type[Enum]) -> Convert:
    def encode(value: Any) -> Any:
        if not isinstance(value, kind):
            raise must_be(kind.__name__, value)
        return plain(value.value)

    return encode


def _member(kind: type[Enum], found: Any) -> Any:
    with suppress(ValueError, TypeError):
        member = kind(found)
        if type(plain(member.value)) is type(found):  # True and 1.0 would do for 1
            return member
    raise Misfit(f"{found!r:.40} is no {kind.__name__}")


def literal(allowed: tuple[Any, ...]) -> Shape:
    pairs = [(plain(each), each) for each in allowed]
    name = " | ".join([repr(each) for each in allowed])

    def encode(value: Any) -> Any:
        for form, each in pairs:
            if each == value and type(each) is type(value):
                return form
        raise Misfit(f"must be {name}, not {value!r:.40}")

    def decode(found: Any) -> Any:
        for form, each in pairs:
            if form == found and type(form) is type(found):
                return each
        raise Misfit(f"must be {name}, not {found!r:.40}")

    return Shape(name, encode, decode)


def as_it_is(value: Any) -> Any:
    return value


SIMPLE: dict[Any, Shape] = {
    type(None): _exactly(type(None), "null"),
    bool: _exactly(bool, "bool"),
    int: Shape("int", _encode_int, _decode_int),
    float: Shape("float", _float, _float),
    str: Shape("str", _encode_str, _exactly(str, "str").decode),
    bytes: _by_text(bytes, base64_of, lambda text: b64decode(text, validate=True)),
    bytearray: _by_text(
        bytearray, base64_of, lambda text: bytearray(b64decode(text, validate=True))
    ),
    datetime: _by_text(datetime, _isoformat, datetime.fromisoformat),
    date: _by_text(date, _isoformat, date.fromisoformat, but_not=datetime),
    time: _by_text(time, _isoformat, time.fromisoformat),
    UUID: _by_text(UUID, str, UUID),
    Decimal: _by_text(Decimal, str, Decimal, also=int),
}
