"""When a delayed message is due, from what users write."""

from __future__ import annotations

from datetime import datetime, timedelta

from hocket.errors import OutOfRange, WrongType
from hocket.model import (
    PUBLISH_DELAY_US_MAX,
    SECOND_US,
    duration_us,
    format_duration,
    timestamp_us,
)

Delay = str | int | float | timedelta  # "5m", seconds, or a timedelta


def checked_due_us(
    delay: object, deliver_at: object, *, now_us: int, timestamp: object = None
) -> int:
    """The time at which a message is due that has a `delay` or a `deliver_at`.

    A time that has passed is as good as now. Raises OutOfRange and WrongType.
    """
    if delay is not None and deliver_at is not None:
        raise OutOfRange("a message has a delay or a deliver_at, not both; leave one of them out")
    if timestamp is not None:
        raise OutOfRange(
            "the timestamp of a delayed message is the time at which it is due: leave timestamp out"
        )
    if deliver_at is None:
        due_us, given = now_us + _delay_us(delay), delay
    else:
        due_us, given = _moment_us(deliver_at), deliver_at
    if due_us - now_us > PUBLISH_DELAY_US_MAX:
        raise OutOfRange(
            f"a message is delayed by {format_duration(PUBLISH_DELAY_US_MAX)} at most, and by "
            f"{given} it would be more"
        )
    return max(0, due_us)


def _delay_us(delay: object) -> int:
    if isinstance(delay, timedelta):
        microseconds = (delay.days * 86_400 + delay.seconds) * SECOND_US + delay.microseconds
        if microseconds < 0:
            raise OutOfRange(f"a delay must be 0 or more, not {delay!r}")
        return microseconds
    if isinstance(delay, int | float) and not delay >= 0:  # it may be NaN
        raise OutOfRange(f"a delay must be 0 or more, not {delay!r}")
    if isinstance(delay, str | int | float):
        return duration_us(delay, "a delay")
    raise WrongType(
        f"a delay must be a str like '5m', seconds or a timedelta, not {type(delay).__name__}"
    )


def _moment_us(deliver_at: object) -> int:
    if not isinstance(deliver_at, datetime):
        raise WrongType(f"deliver_at must be a datetime, not {type(deliver_at).__name__}")
    if deliver_at.tzinfo is None or deliver_at.utcoffset() is None:
        raise OutOfRange(
            f"deliver_at must say its time zone, and {deliver_at} does not: write "
            "datetime(..., tzinfo=UTC), or add .astimezone() if it is local time"
        )
    return timestamp_us(deliver_at)
