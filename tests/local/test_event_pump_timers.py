"""EventPump: timers and conditions, which post what is due."""

import threading
from time import monotonic

import pytest

from hocket.errors import OutOfRange, WrongType
from hocket.local import EventPump
from tests.support.threads import Running, until


def run_on(pump, work):
    """What `work` returned on the pump."""
    outcome, done = [], threading.Event()
    pump.post(lambda: (outcome.append(work()), done.set()))
    assert done.wait(10)
    return outcome[0]


def test_timers_run_in_the_order_they_are_due_on_the_pumps_thread():
    order, threads = [], set()
    with EventPump() as pump:

        def note(name):
            order.append(name)
            threads.add(threading.current_thread())

        def set_up():
            pump.call_later(0.03, lambda: note("third"))
            pump.call_later(0.01, lambda: note("first"))
            pump.call_later(0.02, lambda: note("second"))
            pump.call_later(0.02, lambda: note("second again"))

        run_on(pump, set_up)
        until(lambda: len(order) == 4)
        assert order == ["first", "second", "second again", "third"]
        assert threads == {run_on(pump, threading.current_thread)}


def test_a_timer_never_runs_early():
    ran = []
    with EventPump() as pump:
        begun = monotonic()
        for delay in (0.05, 0.02, 0):
            pump.call_later(delay, lambda delay=delay: ran.append((delay, monotonic() - begun)))
        until(lambda: len(ran) == 3)
    assert [delay for delay, _ in ran] == [0, 0.02, 0.05]
    assert all(elapsed >= delay for delay, elapsed in ran)


def test_a_nearer_timer_set_from_another_thread_wakes_a_pump_that_waits_for_a_later_one():
    order = []
    with EventPump() as pump:
        pump.call_later(60, lambda: order.append("in a minute"))
        run_on(pump, lambda: None)
        pump.call_later(0.01, lambda: order.append("soon"))
        until(lambda: order == ["soon"])


def test_a_timer_comes_even_if_the_pump_is_never_idle():
    ran = []
    with EventPump() as pump:

        def again():
            if not ran:
                pump.post(again)

        pump.post(again)
        pump.call_later(0.01, lambda: ran.append(1))
        until(lambda: ran)


def test_posts_run_while_a_timer_is_pending():
    order = []
    with EventPump() as pump:
        pump.call_later(60, lambda: order.append("timer"))
        pump.post(lambda: order.append("post"))
        until(lambda: order == ["post"])


def test_a_cancelled_timer_does_not_run():
    order = []
    with EventPump() as pump:
        timer = pump.call_later(0.01, lambda: order.append("cancelled"))
        timer.cancel()
        timer.cancel()
        pump.call_later(0.02, lambda: order.append("kept"))
        until(lambda: order)
    assert order == ["kept"]
    timer.cancel()


def test_cancelling_a_timer_that_has_run_changes_nothing():
    order = []
    with EventPump() as pump:
        timer = pump.call_later(0, lambda: order.append(1))
        until(lambda: order)
        timer.cancel()
    assert order == [1]


def test_stop_drops_pending_timers_and_does_not_wait_for_them():
    ran = []
    pump = EventPump().start()
    pump.call_later(60, lambda: ran.append("timer"))
    pump.post(lambda: ran.append("task"))
    with Running(pump.stop) as stopping:
        stopping.result()
    assert ran == ["task"]


def test_a_timer_set_before_start_runs_after_it():
    ran = []
    pump = EventPump()
    pump.call_later(0, lambda: ran.append(1))
    pump.start()
    until(lambda: ran == [1])
    pump.stop()


def test_a_timer_that_raises_is_reported():
    errors, ran = [], []
    with EventPump() as pump:
        pump.on_error = errors.append
        pump.call_later(0, lambda: {}["missing"])
        pump.call_later(0.01, lambda: ran.append(1))
        until(lambda: ran)
    assert [type(error) for error in errors] == [KeyError]


def test_a_wrong_delay_is_refused():
    with EventPump() as pump:
        for wrong in (-1, float("nan")):
            with pytest.raises(OutOfRange):
                pump.call_later(wrong, lambda: None)
        for wrong in (None, "1", True):
            with pytest.raises(WrongType):
                pump.call_later(wrong, lambda: None)


# --- conditions ----------------------------------------------------------------------------------


def test_notify_posts_the_oldest_waiting_task():
    order = []
    with EventPump() as pump:
        condition = pump.condition()
        for name in ("a", "b", "c"):
            condition.wait(lambda name=name: order.append(name))
        run_on(pump, lambda: None)
        assert order == []
        condition.notify()
        until(lambda: order == ["a"])
        condition.notify()
        until(lambda: order == ["a", "b"])
        run_on(pump, lambda: None)
        assert order == ["a", "b"]


def test_notify_all_posts_every_waiting_task_in_order_and_once():
    order = []
    with EventPump() as pump:
        condition = pump.condition()
        for number in range(10):
            condition.wait(lambda number=number: order.append(number))
        condition.notify_all()
        condition.notify_all()
        run_on(pump, lambda: None)
        assert order == list(range(10))


def test_a_notify_with_nobody_waiting_is_not_kept():
    order = []
    with EventPump() as pump:
        condition = pump.condition()
        condition.notify()
        condition.notify_all()
        condition.wait(lambda: order.append(1))
        run_on(pump, lambda: None)
        assert order == []
        condition.notify()
        run_on(pump, lambda: None)
        assert order == [1]


def test_a_task_that_waits_again_from_inside_is_not_woken_by_the_same_notify_all():
    rounds = []
    with EventPump() as pump:
        condition = pump.condition()

        def again():
            rounds.append(threading.current_thread())
            condition.wait(again)

        condition.wait(again)
        for count in range(1, 6):
            condition.notify_all()
            until(lambda count=count: len(rounds) == count)
            run_on(pump, lambda: None)
            assert len(rounds) == count
        assert set(rounds) == {run_on(pump, threading.current_thread)}


def test_a_woken_task_runs_on_the_pump_and_never_inside_notify():
    order = []
    with EventPump() as pump:
        condition = pump.condition()

        def notify():
            condition.wait(lambda: order.append("woken"))
            condition.notify()
            order.append("notified")

        run_on(pump, notify)
        until(lambda: len(order) == 2)
    assert order == ["notified", "woken"]


def test_conditions_of_one_pump_are_apart():
    order = []
    with EventPump() as pump:
        first, second = pump.condition(), pump.condition()
        first.wait(lambda: order.append("first"))
        second.wait(lambda: order.append("second"))
        second.notify_all()
        run_on(pump, lambda: None)
        assert order == ["second"]


def test_notify_from_many_threads_wakes_each_waiter_once():
    woken = []
    with EventPump() as pump:
        condition = pump.condition()
        for number in range(400):
            condition.wait(lambda number=number: woken.append(number))

        def notify():
            for _ in range(100):
                condition.notify()

        notifiers = [Running(notify).__enter__() for _ in range(4)]
        for notifier in notifiers:
            notifier.result()
        until(lambda: len(woken) == 400)
    assert sorted(woken) == list(range(400))
