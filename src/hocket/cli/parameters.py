"""The types of options and arguments: sizes, durations, and where to start.

Each type checks at once what can be checked without a broker, so that a slip is a usage error
before anything has happened.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import CompletionItem

from hocket import model
from hocket.errors import HocketError, OutOfRange

FOREVER = "forever"
UNLIMITED = "unlimited"
OFFSET_MAX = (1 << 63) - 1


class Checked(click.ParamType):  # type: ignore[type-arg]
    """A value that a function checks and converts; its error becomes a usage error."""

    def __init__(self, name: str, check: Callable[[Any], Any], words: Sequence[str] = ()) -> None:
        self.name = name
        self._check = check
        self._words = words  # that a shell completes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._check(value)
        except HocketError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        return [CompletionItem(word) for word in self._words if word.startswith(incomplete)]


def _duration_us(value: str | int | float) -> int:
    """Microseconds; a bare number is in seconds, as everywhere in the package."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    return model.duration_us(value)


def _seconds(value: str | int | float) -> float:
    return _duration_us(value) / model.SECOND_US


def _duration(value: str | int | float) -> str:
    return model.format_duration(_duration_us(value))


def _kept_for(value: str | int | float) -> str:
    """A duration with its unit: whoever writes 7 may mean days, and would lose them."""
    try:
        bare = float(value)
    except ValueError:
        return _duration(value)
    raise OutOfRange(
        f"how long messages are kept needs a unit, as in {bare:g}d for days, {bare:g}h, {bare:g}m "
        f"or {bare:g}s; not {value!r}"
    )


def _retention(value: str | int | float) -> str:
    return FOREVER if value == FOREVER else _kept_for(value)


def _limit(value: str | int) -> str | int:
    return UNLIMITED if value == UNLIMITED else model.size_bytes(value)


_UNITS = ("d", "h", "m", "s", "ms", "us")
_PIECE = re.compile(r"\d+(?:\.\d+)?(us|ms|s|m|h|d)")


def _ago_us(text: str) -> int | None:
    """The microseconds of how long ago, "10m" or "2h30m"; None: it is something else."""
    pieces = list(_PIECE.finditer(text))
    if not pieces or "".join(piece[0] for piece in pieces) != text:
        return None
    ranks = [_UNITS.index(piece[1]) for piece in pieces]
    if ranks != sorted(set(ranks)):
        raise OutOfRange(f"name each unit once, the largest first, as in 2h30m; not {text[:80]!r}")
    return sum(model.duration_us(piece[0], "how long ago") for piece in pieces)


def _ago(value: str | model.Start) -> model.Start:
    """That long ago."""
    if isinstance(value, model.Start):
        return value
    ago_us = _ago_us(value)
    if ago_us is None:
        raise OutOfRange(f"it must look like 10m, 2h30m or 30d, not {value[:80]!r}")
    return model.Start("time", max(0, time.time_ns() // 1000 - ago_us))


def _place(value: str | model.Start) -> model.Start:
    """Where to start or to end; how long ago counts from now."""
    ago_us = _ago_us(value) if isinstance(value, str) else None
    if ago_us is not None:
        return model.Start("time", max(0, time.time_ns() // 1000 - ago_us))
    try:
        found = model.Start.of(value)
    except OutOfRange:
        raise OutOfRange(
            "it is 'earliest', 'latest', an offset, an ISO time, or how long ago, as in 10m or "
            f"2h30m; not {str(value)[:80]!r}"
        ) from None
    if found.value > OFFSET_MAX:
        raise OutOfRange(f"an offset is 2**63 - 1 at most, not {str(value)[:80]}")
    return found


def _end(value: str | model.Start) -> model.Start:
    if value == "earliest":
        raise OutOfRange("nothing comes before 'earliest': name a later end")
    return _place(value)


DURATION = Checked("duration", _duration)
KEPT_FOR = Checked("duration", _kept_for)
DURATION_US = Checked("duration", _duration_us)
SECONDS = Checked("duration", _seconds)
RETENTION = Checked("duration", _retention, [FOREVER])
SIZE = Checked("size", model.size_bytes)
LIMIT = Checked("size", _limit, [UNLIMITED])
AGO = Checked("duration", _ago)
START = Checked("start", _place, ["earliest", "latest"])
END = Checked("end", _end, ["latest"])
