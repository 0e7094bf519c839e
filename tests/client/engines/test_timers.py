from __future__ import annotations

import pytest

from hocket.client.engines.timers import Timers
from hocket.timers import Timer
from tests.support.client.scripted import ManualClock


class Woken:
    count = 0

    def __call__(self) -> None:
        self.count += 1


def after(timers: Timers, delay_us: int, action) -> Timer:
    timer = Timer(action)
    timers.put(timers.clock.ticks_us() + delay_us, timer)
    return timer


def run_due(timers: Timers) -> None:
    for timer in timers.due():
        timer()


@pytest.fixture
def clock():
    return ManualClock()


def test_timers_run_in_the_order_they_are_due(clock):
    timers, done = Timers(clock, Woken()), []
    for delay in (30, 10, 20, 10):
        after(timers, delay, lambda delay=delay: done.append(delay))
    assert timers.delay_us() == 10
    clock.ticks += 20
    run_due(timers)
    assert done == [10, 10, 20]
    assert timers.delay_us() == 10
    clock.ticks += 100
    run_due(timers)
    assert done == [10, 10, 20, 30]
    assert timers.delay_us() is None


def test_the_driver_is_woken_only_for_an_earlier_timer(clock):
    woken = Woken()
    timers = Timers(clock, woken)
    after(timers, 10, lambda: None)
    after(timers, 20, lambda: None)
    after(timers, 10, lambda: None)
    assert woken.count == 1
    after(timers, 5, lambda: None)
    assert woken.count == 2


def test_a_cancelled_timer_does_nothing_and_delays_nobody(clock):
    timers, done = Timers(clock, Woken()), []
    after(timers, 5, lambda: done.append("cancelled")).cancel()
    after(timers, 10, lambda: done.append("kept"))
    assert timers.delay_us() == 10
    clock.ticks += 10
    run_due(timers)
    assert done == ["kept"]


def test_a_timer_may_set_another(clock):
    timers, done = Timers(clock, Woken()), []
    after(timers, 1, lambda: after(timers, 0, lambda: done.append("second")))
    clock.ticks += 1
    run_due(timers)
    assert done == ["second"]
