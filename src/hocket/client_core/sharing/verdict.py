"""What can be said about a message of a shared index, checked."""

from __future__ import annotations

from typing import NamedTuple

from hocket.core.session.checks import LEASE_US_MAX, LEASE_US_MIN
from hocket.errors import OutOfRange, WrongType
from hocket.model import Settlement, duration_us, format_duration

Duration = float | str  # seconds, or "5s"

REASON_MAX = 500  # characters; a whole traceback is for a log


class Verdict(NamedTuple):
    """What is said about a message. The same verdict on many messages is told together."""

    action: Settlement
    duration_us: int = 0
    reason: str = ""


ACK = Verdict("ack")
NACK = Verdict("nack")
RELEASE = Verdict("release")
RENEWAL = Verdict("extend")  # for the length of a usual lease


class Note(NamedTuple):
    """A verdict on messages that stand side by side and were delivered equally often."""

    verdict: Verdict
    start: int
    end: int
    deliveries: int
    hashes: tuple[int, ...]  # the hash of each message's key; 0 for no key


def refusal(delay: Duration) -> Verdict:
    return Verdict("nack", duration_us(delay, "delay"))


def extension(seconds: Duration | None) -> Verdict:
    return RENEWAL if seconds is None else Verdict("extend", lease_us(seconds, "an extension"))


def rejection(reason: str) -> Verdict:
    if not isinstance(reason, str):
        raise WrongType(f"reason must be a str, not {reason!r:.80}")
    if len(reason) > REASON_MAX:
        reason = reason[: REASON_MAX - 3] + "..."
    return Verdict("reject", 0, reason)


def lease_us(duration: Duration, what: str) -> int:
    found = duration_us(duration, what)
    if not LEASE_US_MIN <= found <= LEASE_US_MAX:
        raise OutOfRange(
            f"{what} must lie between {format_duration(LEASE_US_MIN)} and "
            f"{format_duration(LEASE_US_MAX)}, not {format_duration(found)}"
        )
    return found
