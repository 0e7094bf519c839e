"""How long a caller is willing to wait: a number of seconds, checked, and the moment it ends."""

from __future__ import annotations

from time import monotonic

from hocket.errors import OutOfRange, Timeout, WrongType


def check_seconds(seconds: object, what: str) -> float:
    """`seconds` as a float. Raises unless it is a number from 0 up to infinity."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise WrongType(f"{what} must be a number of seconds, not {type(seconds).__name__}")
    try:
        found = float(seconds)
    except OverflowError:
        found = -1.0
    if not found >= 0:  # so that a NaN is refused too
        raise OutOfRange(
            f"{what} must be 0 seconds or more, and fit a float, not {in_digits(seconds)}"
        )
    return found


def in_seconds(seconds: float | None) -> str:
    """A length of time for people, with its unit: three digits are enough to know which it was.

    What is left of a timeout is a number like 9.999873219000008.
    """
    if seconds is None:
        return "any time"
    if 0 < seconds < 0.001:
        return "less than 1 ms"
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


def in_digits(number: object) -> str:
    """A number that somebody gave, as they would write it; any other object by its `repr`."""
    return f"{number:.6g}" if isinstance(number, float) else f"{number!r:.80}"


class Deadline:
    """The moment at which a call gives up, however many waits it consists of."""

    __slots__ = ("_at", "_timeout")

    def __init__(self, timeout: float | None) -> None:
        """`timeout` in seconds from now; None: the call never gives up."""
        if timeout is not None:
            check_seconds(timeout, "timeout")
        self._timeout = timeout
        self._at = None if timeout is None else monotonic() + timeout

    def remaining(self) -> float | None:
        """Seconds that are left, 0 if none are; None: the call never gives up."""
        return None if self._at is None else max(0.0, self._at - monotonic())

    def missed(self, what: str) -> Timeout:
        """The error of a call that gives up now; `what` says what it waited for."""
        return Timeout(f"{what}: nothing within {in_seconds(self._timeout)}")


NEVER = Deadline(None)
