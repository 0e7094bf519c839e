"""Who keeps coming back waits longer each time."""

from __future__ import annotations

from hocket.core.ring.flapping import WAIT_US_MAX, WINDOW_US, wait_us
from hocket.core.ring.settings import SECOND

NOW = 10_000 * SECOND


def test_the_first_join_waits_not_at_all():
    assert wait_us([], NOW) == 0


def test_each_further_one_waits_twice_as_long_up_to_a_bound():
    joins: list[int] = []
    waits = []
    for _ in range(12):
        joins.append(NOW)
        waits.append(wait_us(joins, NOW) // SECOND)
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]
    assert wait_us([NOW] * 10_000, NOW) == WAIT_US_MAX


def test_what_is_long_ago_does_not_count():
    assert wait_us([NOW - WINDOW_US, NOW - WINDOW_US + 1], NOW) == 2 * SECOND


def test_a_clock_that_was_set_back_does_not_hold_a_node_off_for_ever():
    assert wait_us([NOW + WINDOW_US] * 9, NOW) == 0
    assert wait_us([NOW + 1], NOW) == 2 * SECOND
