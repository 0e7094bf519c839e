"""The values of options. Spark hands all of them over as text; here they are read and checked.

Every error names the option as it is documented. Options that may hold a secret are read only with
`text`, which repeats no value in its errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from hocket.errors import OutOfRange, WrongType
from hocket.model import DAY_US, HOUR_US, MINUTE_US, SECOND_US, timestamp_us

LONG_MAX = 2**63 - 1
SHOWN = 80  # characters of a wrong value that an error repeats

_DIGITS = re.compile(r"[0-9]{1,19}\Z")
_DURATION = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)\Z")
_UNITS_US = {
    unit: microseconds
    for units, microseconds in (
        ("us microsecond microseconds", 1),
        ("ms millisecond milliseconds", 1000),
        ("s sec secs second seconds", SECOND_US),
        ("m min mins minute minutes", MINUTE_US),
        ("h hour hours", HOUR_US),
        ("d day days", DAY_US),
    )
    for unit in units.split()
}
_DURATION_US_MAX = 100 * 366 * DAY_US


def plain(name: str) -> str:
    """The one spelling of an option's name: tokenFile, tokenfile and token_file are one option."""
    return name.lower().replace("_", "")


class Given:
    """The options that were given, by their documented names."""

    def __init__(self, options: Mapping[str, str | None]) -> None:
        self._values: dict[str, str] = {}
        for spelling, value in options.items():
            if value is None:  # `option(name, None)` means that it is not given
                continue
            if not isinstance(spelling, str) or not isinstance(value, str):
                raise WrongType(f"the option {spelling!r:.80} must be text, as Spark passes it")
            name = plain(spelling)
            if self._values.setdefault(name, value) != value:
                raise OutOfRange(f"{spelling} is given twice, in two spellings, and differs")

    def names(self) -> Iterable[str]:
        return self._values.keys()

    def has(self, name: str) -> bool:
        return plain(name) in self._values

    def text(self, name: str) -> str | None:
        """The value without the space around it; None if the option is not given."""
        value = self._values.get(plain(name))
        if value is None:
            return None
        if not value.strip():
            raise OutOfRange(f"{name} is empty; leave it out or give it a value")
        return value.strip()

    def integer(self, name: str, *, least: int, default: int, most: int = LONG_MAX) -> int:
        found = self.optional_integer(name, least=least, most=most)
        return default if found is None else found

    def optional_integer(self, name: str, *, least: int, most: int = LONG_MAX) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not _DIGITS.match(text) or not least <= int(text) <= most:
            limit = f"of {least} or more" if most == LONG_MAX else f"from {least} to {most}"
            raise OutOfRange(f"{name} must be a whole number {limit}, not {shown(text)}")
        return int(text)

    def boolean(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OutOfRange(f"{name} must be true or false, not {shown(text)}")
        return text.lower() == "true"

    def seconds_of_ms(self, name: str, *, default: float) -> float:
        most = _DURATION_US_MAX // 1000
        milliseconds = self.optional_integer(name, least=0, most=most)
        return default if milliseconds is None else milliseconds / 1000


def shown(text: object) -> str:
    """A wrong value in the form in which errors repeat it."""
    words = repr(text)
    return words if len(words) <= SHOWN else f"{words[:SHOWN]}..."


def interval_us(text: str, name: str, *, bare_us: int) -> int:
    """Microseconds of "15m", "15 minutes" or "500ms"; a bare number counts `bare_us` each.

    This is not `model.duration_us`: Spark's users write units as words, in any case, and what a
    bare number means depends on the option.
    """
    match = _DURATION.match(text)
    unit = match[2].lower() if match else ""
    if not match or (unit and unit not in _UNITS_US):
        raise OutOfRange(f"{name} must look like 500ms, 30s, 15m or 2 hours, not {shown(text)}")
    microseconds = Decimal(match[1]) * (_UNITS_US[unit] if unit else bare_us)
    if microseconds > _DURATION_US_MAX:
        raise OutOfRange(f"{name} must be 100 years at most, not {shown(text)}")
    return round(microseconds)


def unit_us(word: str) -> int | None:
    """Microseconds of a unit of time; None if the word is no unit."""
    return _UNITS_US.get(word.lower())


def time_us(given: object, name: str) -> int:
    """Microseconds of a time, which is given in milliseconds since the epoch or in ISO's form."""
    if isinstance(given, str) and not _DIGITS.match(given):
        try:
            found = timestamp_us(datetime.fromisoformat(given))
        except (ValueError, OverflowError):
            found = -1
    elif isinstance(given, str | int) and not isinstance(given, bool):
        found = int(given) * 1000
    else:
        found = -1
    if not 0 <= found <= LONG_MAX:
        raise OutOfRange(
            f"{name} must be milliseconds since 1970, or a time like 2026-01-31T12:00:00+00:00, "
            f"not {shown(given)}"
        )
    return found


def json_object(text: str, name: str, example: str) -> dict[str, Any]:
    """A JSON object without repeated keys; errors show `example` as what it should look like."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise OutOfRange(f"{name} has {shown(twice)} twice")
        return found

    try:
        found = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise OutOfRange(
            f"{name} is not JSON: {error.msg} at character {error.pos} of {shown(text)}; it looks "
            f"like {example}"
        ) from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, OutOfRange):
            raise
        raise OutOfRange(f"{name} is no JSON that can be read; it looks like {example}") from None
    if not isinstance(found, dict):
        raise OutOfRange(f"{name} must look like {example}, not {shown(text)}")
    return found
