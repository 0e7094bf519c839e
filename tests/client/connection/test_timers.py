from __future__ import annotations

from random import Random

import pytest

from hocket.client.connection.backoff import FIRST_US, MOST_US, Backoff
from hocket.client.connection.timers import SystemClock, Timers
from hocket.client.connection.waiters import Deadline, Reply, Waiters, check_timeout, seconds_us
from hocket.errors import OutOfRange, WrongType
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


def test_the_systems_clock_is_in_microseconds():
    clock = SystemClock()
    assert 1.7e15 < clock.now_us() < 1e16
    first = clock.ticks_us()
    assert 0 <= clock.ticks_us() - first < 1e6


def test_back_off_doubles_up_to_a_limit_and_is_never_exact():
    backoff = Backoff(Random(1))
    delays = [backoff.next_us() for _ in range(12)]
    for attempt, delay in enumerate(delays):
        most = min(FIRST_US * 2**attempt, MOST_US)
        assert most / 2 <= delay <= most
    assert delays[-1] >= MOST_US / 2
    assert len(set(delays)) == len(delays)
    backoff.reset()
    assert backoff.next_us() <= FIRST_US


def test_waiters_are_called_once_in_order():
    waiters, called = Waiters(), []
    wakes = [lambda n=n: called.append(n) for n in range(4)]
    for wake in wakes:
        waiters.add(wake)
    waiters.discard(wakes[1])
    waiters.discard(wakes[1])
    assert waiters
    waiters.wake_all()
    waiters.wake_all()
    assert called == [0, 2, 3]
    assert not waiters


def test_one_that_waits_again_while_it_is_woken_waits_for_the_next_time():
    waiters, called = Waiters(), []

    def wake():
        called.append(len(called))
        waiters.add(wake)

    waiters.add(wake)
    waiters.wake_all()
    assert called == [0]
    waiters.wake_all()
    assert called == [0, 1]


def test_a_reply_wakes_its_waiter():
    reply, woken = Reply(), Woken()
    reply.waiters.add(woken)
    assert reply.get() is None
    reply.put("here")
    assert (reply.get(), woken.count) == ("here", 1)


@pytest.mark.parametrize(("given", "taken"), [(None, None), (0, 0.0), (2.5, 2.5), (10**30, 1e30)])
def test_timeouts(given, taken):
    assert check_timeout(given) == taken


def test_no_end_is_no_timeout():
    assert check_timeout(float("inf")) is None
    assert Deadline(None).left() is None
    assert Deadline(0).left() == 0
    assert 0 < Deadline(60).left() <= 60


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
