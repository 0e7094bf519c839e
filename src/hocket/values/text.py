"""Plain JSON values (dict, list, str, int, float, bool, None) as text in UTF-8, and back.

Rule 1: every library here gives the same value for the same text, and refuses the same.
Rule 2: what a library would change in silence is found first: NaN, which orjson and msgspec write
as null, and integers beyond 64 bits, which orjson reads as floats.

orjson writes fastest, and msgspec reads large integers right; so they are preferred in this order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from math import isfinite
from typing import Any, NamedTuple

from hocket.values.misfit import Misfit

_LARGE = re.compile(rb"\d{19}")  # an integer that may not fit into 64 bits
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
WRITERS, READERS = ("orjson", "msgspec"), ("msgspec", "orjson")


class Text(NamedTuple):
    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]
    dumps_freely: Callable[[Any], bytes | None]  # None: `plain` must have a look at it first


@cache
def text() -> Text:
    """The quickest that is installed."""
    return text_by(WRITERS, READERS)


def text_by(writers: Iterable[str], readers: Iterable[str]) -> Text:
    """The first of these libraries that is installed, for either way; else json itself."""
    writer = next(filter(None, map(_module, writers)), None)
    reader = next(filter(None, map(_module, readers)), None)
    freely: Callable[[Any], bytes | None] = _look_first
    dumps: Callable[[Any], bytes] = _dumps
    loads: Callable[[bytes], Any] = _loads
    if writer is not None and writer.__name__ == "orjson":
        dumps, freely = _orjson_dumps(writer), _orjson_dumps_freely(writer)
    elif writer is not None:
        dumps = writer.json.encode
    if reader is not None:
        loads = _orjson_loads(reader) if reader.__name__ == "orjson" else _msgspec_loads(reader)
    return Text(dumps, loads, freely)


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


# --- the standard library ------------------------------------------------------------------------


def _dumps(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def _loads(data: bytes) -> Any:
    try:
        found = json.loads(data.decode(), parse_constant=_no_number, parse_float=_finite)
        if _SURROGATE.search(data):
            _dumps(found).decode()  # half a pair is no text
    except (ValueError, RecursionError) as error:
        raise Misfit(f"is not JSON: {error}") from error
    return found


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"{digits:.40} is too large for a float")
    return number


def _look_first(_value: Any) -> None:
    return None


# --- the others ----------------------------------------------------------------------------------


def _orjson_dumps(orjson: Any) -> Callable[[Any], bytes]:
    def dumps(value: Any) -> bytes:
        try:
            return orjson.dumps(value)  # type: ignore[no-any-return]
        except TypeError:  # an integer beyond 64 bits, or nested deeper than it goes
            return _dumps(value)

    return dumps


def _orjson_dumps_freely(orjson: Any) -> Callable[[Any], bytes | None]:
    options = (
        orjson.OPT_PASSTHROUGH_DATACLASS
        | orjson.OPT_PASSTHROUGH_DATETIME
        | orjson.OPT_PASSTHROUGH_SUBCLASS
    )

    def dumps_freely(value: Any) -> bytes | None:
        try:
            data: bytes = orjson.dumps(value, None, options)
        except TypeError:
            return None
        return None if b"null" in data else data  # it may be None, or NaN

    return dumps_freely


def _orjson_loads(orjson: Any) -> Callable[[bytes], Any]:
    def loads(data: bytes) -> Any:
        if _LARGE.search(data):
            return _loads(data)
        try:
            return orjson.loads(data)
        except ValueError as error:
            raise Misfit(f"is not JSON: {error}") from error

    return loads


def _msgspec_loads(msgspec: Any) -> Callable[[bytes], Any]:
    def loads(data: bytes) -> Any:
        try:
            return msgspec.json.decode(data)
        except (ValueError, RecursionError) as error:
            raise Misfit(f"is not JSON: {error}") from error

    return loads
