from __future__ import annotations

import pytest

from hocket.client_core.timeout import check_timeout, seconds_us
from hocket.deadline import Deadline
from hocket.errors import OutOfRange, WrongType


@pytest.mark.parametrize(("given", "taken"), [(None, None), (0, 0.0), (2.5, 2.5), (10**30, 1e30)])
def test_timeouts(given, taken):
    assert check_timeout(given) == taken


def test_no_end_is_no_timeout():
    assert check_timeout(float("inf")) is None
    assert Deadline(None).remaining() is None
    assert Deadline(0).remaining() == 0
    assert 0 < Deadline(60).remaining() <= 60


@pytest.mark.parametrize("check", [check_timeout, lambda t: seconds_us(t, "linger")])
@pytest.mark.parametrize(
    ("given", "error"),
    [("1", WrongType), (True, WrongType), (-1, OutOfRange), (float("nan"), OutOfRange)],
)
def test_bad_timeouts(check, given, error):
    with pytest.raises(error):
        check(given)


def test_seconds_become_microseconds():
    assert seconds_us(0.002, "linger") == 2000
    assert seconds_us(None, "timeout") == seconds_us(float("inf"), "timeout") > 3e15
