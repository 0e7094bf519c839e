"""Values of no particular type as plain JSON values, with a form for what JSON has no word for.

The forms are the usual ones: ISO 8601 for dates and times, text for UUIDs and decimals, the value
of an enum's member, base64 for bytes. Whoever reads them without a type gets the text.
"""

from __future__ import annotations

import dataclasses
from base64 import b64encode
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any
from uuid import UUID

from hocket.values.misfit import Misfit

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})


def plain(value: Any) -> Any:
    """Raises Misfit, with the place, for what has no form in JSON."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is dict:
        return _plain_dict(value)
    if kind is list or kind is tuple:
        return _plain_list(value)
    if kind is float:
        return finite(value)
    return _other(value)


def _plain_dict(value: dict[Any, Any]) -> dict[str, Any]:
    found = {}
    for key, each in value.items():
        if not isinstance(key, str):
            raise Misfit(f"{key!r:.40} is a key, and the keys of a JSON object are text")
        try:
            found[key] = plain(each)
        except Misfit as misfit:
            raise misfit.within(f".{key}") from None
    return found


def _plain_list(value: Any) -> list[Any]:
    found = []
    for at, each in enumerate(value):
        try:
            found.append(plain(each))
        except Misfit as misfit:
            raise misfit.within(f"[{at}]") from None
    return found


def _other(value: Any) -> Any:
    if isinstance(value, Enum):
        return plain(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain_dict({each.name: getattr(value, each.name) for each in _fields(value)})
    for kind, form in _FORMS:
        if isinstance(value, kind):
            return form(value)
    raise Misfit(f"{type(value).__name__} has no form in JSON")


def _fields(value: Any) -> list[Any]:
    return [each for each in dataclasses.fields(value) if each.init]


def finite(value: float) -> float:
    if not isfinite(value):
        raise Misfit(f"{value} is no number that JSON has")
    return float(value)


def base64_of(value: Any) -> str:
    return b64encode(value).decode("ascii")


def text_of(value: str) -> str:
    """The text alone of a str or of a subclass of it, such as the member of a StrEnum."""
    return str.__str__(value)


# In this order: a datetime is a date, and so are subclasses of built-in types what these are.
_FORMS: list[tuple[Any, Any]] = [
    (datetime | date | time, lambda value: value.isoformat()),
    (UUID | Decimal, str),
    (bytes | bytearray | memoryview, base64_of),
    (str, text_of),
    (int, int),
    (float, finite),
    (dict, _plain_dict),
    (list | tuple | set | frozenset, _plain_list),
]
