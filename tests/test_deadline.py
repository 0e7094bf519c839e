from __future__ import annotations

import math

import pytest

from hocket.deadline import NEVER, Deadline, check_seconds
from hocket.errors import OutOfRange, Timeout, WrongType


@pytest.mark.parametrize("seconds", [0, 0.0, 2.5, 10**30, math.inf])
def test_seconds_are_a_number_from_0_on(seconds):
    assert check_seconds(seconds, "delay") == float(seconds)


@pytest.mark.parametrize(
    ("seconds", "error", "words"),
    [
        ("1", WrongType, "delay must be a number of seconds, not str"),
        (None, WrongType, "not NoneType"),
        (True, WrongType, "not bool"),
        (-1, OutOfRange, "delay must be 0 seconds or more, and fit a float, not -1"),
        (-math.inf, OutOfRange, "not -inf"),
        (math.nan, OutOfRange, "not nan"),
        (10**400, OutOfRange, "fit a float"),
    ],
)
def test_other_seconds_are_refused(seconds, error, words):
    with pytest.raises(error) as caught:
        check_seconds(seconds, "delay")
    assert words in str(caught.value)


def test_a_deadline_comes_and_stays():
    deadline = Deadline(0)
    assert deadline.remaining() == 0
    missed = deadline.missed("read")
    assert isinstance(missed, Timeout)
    assert str(missed) == "read: nothing within 0 s"
    assert 0 < Deadline(60).remaining() <= 60
    assert Deadline(math.inf).remaining() == math.inf


def test_no_timeout_is_no_deadline():
    assert NEVER.remaining() is None
    assert Deadline(None).remaining() is None
