"""Those who wait for one condition of a core, and how long a caller is willing to.

Each waiter is a function that is called once and then forgotten: a hint to look again, which hands
nothing over. So one that gives up loses nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from hocket.errors import OutOfRange, WrongType
from hocket.model import DAY_US, SECOND_US

T = TypeVar("T")
Wake = Callable[[], None]
DEFAULT_TIMEOUT = 30.0
_FOREVER_US = 100 * 366 * DAY_US


class Waiters:
    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Wake, None] = {}  # in the order they came

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, wake: Wake) -> None:
        self._waiting[wake] = None

    def discard(self, wake: Wake) -> None:
        self._waiting.pop(wake, None)

    def wake_all(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting:
                wake()


class Reply(Generic[T]):
    """Something that one waiter waits for."""

    __slots__ = ("_content", "waiters")

    def __init__(self) -> None:
        self._content: T | None = None
        self.waiters = Waiters()

    def put(self, content: T) -> None:
        self._content = content
        self.waiters.wake_all()

    def get(self) -> T | None:
        return self._content


def check_timeout(timeout: object, what: str = "timeout") -> float | None:
    """Seconds; None stands for as long as it takes."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise WrongType(f"{what} must be a number of seconds or None, not {timeout!r}")
    if not timeout >= 0:  # so that a NaN is refused too
        raise OutOfRange(f"{what} must be 0 seconds or more, not {timeout!r}")
    return None if math.isinf(timeout) else float(timeout)


def seconds_us(seconds: object, what: str) -> int:
    """None, and infinity, stand for longer than anybody waits."""
    if seconds is None:
        return _FOREVER_US
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise WrongType(f"{what} must be a number of seconds, not {seconds!r}")
    if not seconds >= 0:
        raise OutOfRange(f"{what} must be 0 seconds or more, not {seconds!r}")
    return round(min(seconds * SECOND_US, _FOREVER_US))


class Deadline:
    """The time that is left of a timeout when it is shared by several steps."""

    __slots__ = ("_end",)

    def __init__(self, timeout: float | None) -> None:
        self._end = None if timeout is None else time.monotonic() + timeout

    def left(self) -> float | None:
        return None if self._end is None else max(0.0, self._end - time.monotonic())
