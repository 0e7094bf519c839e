from __future__ import annotations

import pytest

from hocket.client.connection.timers import Timers
from tests.support.client.scripted import ManualClock


class Woken:
    count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def clock():
    return ManualClock()


def test_timers_run_in_the_order_they_are_due(clock):
    timers, done = Timers(clock, Woken()), []
    for delay in (30, 10, 20, 10):
        timers.after(delay, lambda delay=delay: done.append(delay))
    assert timers.delay_us() == 10
    clock.ticks += 20
    timers.run_due()
    assert done == [10, 10, 20]
    assert timers.delay_us() == 10
    clock.ticks += 100
    timers.run_due()
    assert done == [10, 10, 20, 30]
    assert timers.delay_us() is None


def test_the_driver_is_woken_only_for_an_earlier_timer(clock):
    woken = Woken()
    timers = Timers(clock, woken)
    timers.after(10, lambda: None)
    timers.after(20, lambda: None)
    timers.after(10, lambda: None)
    assert woken.count == 1
    timers.after(5, lambda: None)
    assert woken.count == 2


def test_a_cancelled_timer_does_nothing_and_delays_nobody(clock):
    timers, done = Timers(clock, Woken()), []
    timers.after(5, lambda: done.append("cancelled")).cancel()
    timers.after(10, lambda: done.append("kept"))
    assert timers.delay_us() == 10
    clock.ticks += 10
    timers.run_due()
    assert done == ["kept"]


def test_a_timer_may_set_another(clock):
    timers, done = Timers(clock, Woken()), []
    timers.after(1, lambda: timers.after(0, lambda: done.append("second")))
    clock.ticks += 1
    timers.run_due()
    assert done == ["second"]
