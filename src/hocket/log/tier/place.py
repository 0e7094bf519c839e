"""What a storage tier is: a place that keeps whole segments by a key.

Its methods are called on threads of their own, several at once, and may wait. What they raise is
taken as a failure that may pass: nothing is lost by it, since a segment leaves the disk only when
the place has handed it out again, whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing import BinaryIO

DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class TierRules:
    """What goes to the tier, and how long is waited for it."""

    after: float | None = 7 * DAY_SECONDS  # seconds since the latest message of a segment
    local_bytes: int | None = None  # of a partition on disk: the oldest segments beyond this go
    cache_bytes: int = 1 << 30  # of segments that were fetched; one is kept, however large it is
    deadline: float = 30.0  # seconds that a read waits for a segment
    sweep_every: float = DAY_SECONDS  # seconds between two looks at what the place keeps


class StorageTier(Protocol):
    """A key is text of letters, digits, '-', '.' and '/'; it begins with the id of the store."""

    rules: TierRules

    def store(self, key: str, source: BinaryIO) -> None:
        """Keep all that can be read from `source`, in place of what has the key, if anything has.

        On return it is as durable as the place can make it.
        """

    def fetch(self, key: str, target: BinaryIO) -> None:
        """Write all that was stored by this key. Nothing has it: raise FileNotFoundError."""

    def remove(self, key: str) -> None:
        """Nothing has the key afterwards; it is no error if nothing had it before."""

    def keys(self, prefix: str) -> Iterable[str]:
        """All keys that begin with `prefix`, which ends with '/'."""


def problem_of(rules: object) -> str:
    """What is wrong with the rules of a tier, in words; empty: nothing."""
    if not isinstance(rules, TierRules):
        return f"its rules are a {type(rules).__name__}, not TierRules"
    if rules.after is None and rules.local_bytes is None:
        return "its rules have neither `after` nor `local_bytes`, so that nothing would ever go"
    for name in ("after", "local_bytes", "cache_bytes"):
        value = getattr(rules, name)
        if value is not None and not value >= 0:
            return f"`{name}` of its rules must be 0 or more, not {value!r}"
    for name in ("deadline", "sweep_every"):
        if not 0 < getattr(rules, name) < math.inf:
            return (
                f"`{name}` of its rules must be a number of seconds, more than 0, not "
                f"{getattr(rules, name)!r}"
            )
    return ""


class AwayError(OSError):
    """A segment that is away could not be had."""
