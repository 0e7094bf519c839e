"""Timeouts and other lengths of time, as users write them: in seconds."""

from __future__ import annotations

import math

from hocket.deadline import check_seconds
from hocket.model import DAY_US, SECOND_US

DEFAULT_TIMEOUT = 30.0
_FOREVER_US = 100 * 366 * DAY_US


def check_timeout(timeout: object, what: str = "timeout") -> float | None:
    """The timeout in seconds; None, for None and for infinity, stands for as long as it takes."""
    if timeout is None:
        return None
    seconds = check_seconds(timeout, what)
    return None if math.isinf(seconds) else seconds


def seconds_us(seconds: object, what: str) -> int:
    """The same length in microseconds; a hundred years for None and for infinity."""
    if seconds is None:
        return _FOREVER_US
    return round(min(check_seconds(seconds, what) * SECOND_US, _FOREVER_US))
