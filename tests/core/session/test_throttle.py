"""The wait after wrong tokens, by plain calls."""

from __future__ import annotations

from hypothesis import given, strategies as st

from hocket.core.session import throttle as module
from hocket.core.session.throttle import (
    ADDRESSES_MAX,
    FORGOTTEN_AFTER_US,
    FREE,
    WAIT_US_MAX,
    Throttle,
)
from hocket.model import SECOND_US

HERE, THERE = "10.0.0.1", "10.0.0.2"


def after_wrong(count: int, address: str = HERE) -> Throttle:
    throttle = Throttle()
    for _ in range(count):
        throttle.was_wrong(address, 0)
    return throttle


def test_the_first_few_are_free():
    assert Throttle().wait_us(HERE, 0) == 0
    assert after_wrong(FREE - 1).wait_us(HERE, 0) == 0


def test_then_each_doubles_the_wait_up_to_a_minute():
    waits = [after_wrong(FREE + more).wait_us(HERE, 0) // SECOND_US for more in range(9)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert after_wrong(1000).wait_us(HERE, 0) == WAIT_US_MAX


def test_the_wait_passes_and_one_more_may_be_tried():
    throttle = after_wrong(FREE)
    assert throttle.wait_us(HERE, SECOND_US - 1) == 1
    assert throttle.wait_us(HERE, SECOND_US) == 0
    throttle.was_wrong(HERE, SECOND_US)
    assert throttle.wait_us(HERE, SECOND_US) == 2 * SECOND_US


def test_a_right_one_clears_it():
    throttle = after_wrong(FREE + 3)
    throttle.was_right(HERE)
    throttle.was_right(THERE)
    assert throttle.wait_us(HERE, 0) == 0
    throttle.was_wrong(HERE, 0)
    assert throttle.wait_us(HERE, 0) == 0
    assert len(throttle) == 1


def test_addresses_do_not_wait_for_each_other():
    assert after_wrong(FREE).wait_us(THERE, 0) == 0


def test_a_long_silence_clears_it():
    throttle = after_wrong(FREE)
    throttle.was_wrong(HERE, SECOND_US + FORGOTTEN_AFTER_US)
    assert throttle.wait_us(HERE, SECOND_US + FORGOTTEN_AFTER_US) > 0
    throttle = after_wrong(FREE)
    throttle.was_wrong(HERE, SECOND_US + FORGOTTEN_AFTER_US + 1)
    assert throttle.wait_us(HERE, SECOND_US + FORGOTTEN_AFTER_US + 1) == 0


def test_a_clock_put_back_makes_nobody_wait_for_hours():
    throttle = Throttle()
    for _ in range(FREE):
        throttle.was_wrong(HERE, 10**15)
    assert throttle.wait_us(HERE, 0) == WAIT_US_MAX


def test_the_one_that_was_wrong_longest_ago_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(module, "ADDRESSES_MAX", 2)
    throttle = Throttle()
    for address in ("a", "b"):
        for _ in range(FREE):
            throttle.was_wrong(address, 0)
    throttle.was_wrong("a", 0)
    throttle.was_wrong("c", 0)
    assert len(throttle) == 2
    assert throttle.wait_us("b", 0) == 0
    assert throttle.wait_us("a", 0) > 0
    assert ADDRESSES_MAX == 10_000


def test_a_network_of_64_bits_is_one_address_and_a_mapped_one_the_mapped():
    throttle = after_wrong(FREE, "2001:db8:1:2::1")
    assert throttle.wait_us("2001:db8:1:2:ffff::9%eth0", 0) > 0
    assert throttle.wait_us("2001:db8:1:3::1", 0) == 0
    assert after_wrong(FREE, HERE).wait_us(f"::ffff:{HERE}", 0) > 0
    assert after_wrong(FREE, "odd:name").wait_us("odd:name", 0) > 0


@given(st.lists(st.tuples(st.sampled_from(["wrong", "right", "pass"]), st.integers(0, 70))))
def test_it_is_what_counting_by_hand_gives(steps: list[tuple[str, int]]):
    throttle, now, wrong, until = Throttle(), 0, 0, 0
    for step, seconds in steps:
        if step == "pass":
            now += seconds * SECOND_US
        elif step == "right":
            throttle.was_right(HERE)
            wrong, until = 0, 0
        else:
            throttle.was_wrong(HERE, now)
            wrong = 1 if wrong and now - until > FORGOTTEN_AFTER_US else wrong + 1
            until = now + (min(2 ** (wrong - FREE), 60) * SECOND_US if wrong >= FREE else 0)
        assert throttle.wait_us(HERE, now) == max(until - now, 0)
