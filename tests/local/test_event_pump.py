"""EventPump: one thread, strict FIFO, posts from anywhere, errors survived."""

import logging
import threading

import pytest

from hocket.errors import Closed, WrongType
from hocket.local import EventPump
from tests.support.threads import Running, until


def run_on(pump, work):
    """What `work` returned on the pump."""
    outcome, done = [], threading.Event()
    pump.post(lambda: (outcome.append(work()), done.set()))
    assert done.wait(10)
    return outcome[0]


def test_tasks_run_one_at_a_time_in_the_order_posted_on_one_thread():
    order, threads = [], set()

    def task(number):
        threads.add(threading.current_thread())
        order.append(number)

    with EventPump("mine") as pump:
        assert pump.name == "mine"
        for number in range(1000):
            pump.post(lambda number=number: task(number))
        until(lambda: len(order) == 1000)
    assert order == list(range(1000))
    (thread,) = threads
    assert thread is not threading.current_thread()
    assert "mine" in thread.name


def test_what_is_posted_while_the_pump_lies_down_keeps_it_awake(monkeypatch):
    pump, done = EventPump(), threading.Event()

    def post_instead_of_spinning(_look):
        if not done.is_set():
            pump.post(done.set)

    monkeypatch.setattr("hocket.local.event_pump.spin", post_instead_of_spinning)
    with pump:
        assert done.wait(10)
        until(lambda: len(pump._queue.takers) == 1, what="the pump sleeps, and stands there once")


def test_the_name_has_a_default():
    assert EventPump().name == "pump"


def test_posts_from_many_threads_keep_the_order_of_each():
    order = []
    busy = []

    def task(event):
        busy.append(1)
        assert len(busy) == 1  # never two at once
        order.append(event)
        busy.pop()

    errors = []
    with EventPump() as pump:
        pump.on_error = errors.append

        def post(name):
            for number in range(1000):
                pump.post(lambda number=number: task((name, number)))

        posters = [Running(post, name).__enter__() for name in range(5)]
        for poster in posters:
            poster.result()
    assert errors == []
    for name in range(5):
        assert [number for who, number in order if who == name] == list(range(1000))
    assert len(order) == 5000


def test_a_task_may_post_more_and_they_come_after_what_was_already_posted():
    order = []
    with EventPump() as pump:
        started = threading.Event()
        go_on = threading.Event()

        def first():
            started.set()
            go_on.wait(10)
            pump.post(lambda: order.append("posted by the first"))
            order.append("first")

        pump.post(first)
        started.wait(10)
        pump.post(lambda: order.append("second"))
        go_on.set()
        until(lambda: len(order) == 3)
    assert order == ["first", "second", "posted by the first"]


def test_a_task_that_raises_is_reported_and_the_next_one_runs():
    seen, errors = [], []
    with EventPump() as pump:
        pump.on_error = errors.append
        pump.post(lambda: [].pop())
        pump.post(lambda: seen.append(1))
        pump.post(lambda: {}["missing"])
        pump.post(lambda: seen.append(2))
        until(lambda: seen == [1, 2])
    assert [type(error) for error in errors] == [IndexError, KeyError]


def test_a_task_that_raises_system_exit_does_not_kill_the_pump():
    seen, errors = [], []

    def leave():
        raise SystemExit(3)

    with EventPump() as pump:
        pump.on_error = errors.append
        pump.post(leave)
        pump.post(lambda: seen.append(1))
        until(lambda: seen == [1])
    assert [type(error) for error in errors] == [SystemExit]


def test_without_an_error_handler_errors_are_logged(caplog):
    seen = []
    with caplog.at_level(logging.ERROR, logger="hocket"), EventPump("named") as pump:
        pump.post(lambda: {}["missing"])
        pump.post(lambda: seen.append(1))
        until(lambda: seen)
    (record,) = [record for record in caplog.records if record.name == "hocket"]
    assert record.exc_info
    assert record.exc_info[0] is KeyError


def test_an_error_handler_that_raises_is_survived(caplog):
    seen = []

    def handler(error):
        seen.append(type(error))
        raise ValueError("the handler itself")

    with EventPump() as pump:
        pump.on_error = handler
        pump.post(lambda: {}["missing"])
        pump.post(lambda: {}["missing"])
        pump.post(lambda: seen.append("alive"))
        until(lambda: "alive" in seen)
    assert seen == [KeyError, KeyError, "alive"]


def test_posts_before_start_are_queued():
    order = []
    pump = EventPump()
    assert pump.running is False
    pump.post(lambda: order.append(1))
    pump.post(lambda: order.append(2))
    assert order == []
    assert pump.start() is pump
    assert pump.running is True
    until(lambda: order == [1, 2])
    pump.stop()
    assert pump.running is False


def test_start_is_idempotent_while_it_runs():
    threads = set()
    with EventPump() as pump:
        assert pump.start() is pump
        assert pump.start() is pump
        for _ in range(20):
            pump.post(lambda: threads.add(threading.current_thread()))
        run_on(pump, lambda: None)
    assert len(threads) == 1


def test_stop_runs_what_is_queued_and_joins():
    order = []
    pump = EventPump("drained").start()
    started, go_on = threading.Event(), threading.Event()
    pump.post(lambda: (started.set(), go_on.wait(10)))
    started.wait(10)
    for number in range(100):
        pump.post(lambda number=number: order.append(number))
    with Running(pump.stop) as stopping:
        stopping.parked()
        go_on.set()
        stopping.result()
        assert order == list(range(100))
        assert "drained" not in " ".join(t.name for t in threading.enumerate())


def test_stop_without_draining_drops_what_is_queued():
    order = []
    pump = EventPump()
    started, go_on = threading.Event(), threading.Event()
    pump.post(lambda: (started.set(), go_on.wait(10)))
    pump.post(lambda: order.append("dropped too"))
    pump.start()
    started.wait(10)
    pump.post(lambda: order.append("dropped"))
    with Running(pump.stop, False) as stopping:
        stopping.parked()
        go_on.set()
        stopping.result()
    assert order == []


def test_after_stop_everything_raises_closed():
    pump = EventPump().start()
    pump.stop()
    pump.stop()
    pump.stop(drain=False)
    for call in (
        lambda: pump.post(lambda: None),
        lambda: pump.call_later(0, lambda: None),
        pump.start,
    ):
        with pytest.raises(Closed):
            call()


def test_a_post_from_a_task_being_drained_raises_closed():
    outcomes = []
    pump = EventPump().start()
    started, go_on = threading.Event(), threading.Event()
    pump.post(lambda: (started.set(), go_on.wait(10)))
    started.wait(10)

    def task():
        try:
            pump.post(lambda: outcomes.append("ran"))
        except Closed:
            outcomes.append("closed")

    pump.post(task)
    pump.post(task)
    with Running(pump.stop) as stopping:
        stopping.parked()
        go_on.set()
        stopping.result()
    assert outcomes == ["closed", "closed"]


def test_nobody_moves_in_after_stop():
    class Late:
        def pump_stopped(self) -> None:
            raise AssertionError("it was never there")

    pump = EventPump("pump")
    pump.start()
    pump.stop()
    late = Late()
    with pytest.raises(Closed, match="'pump' was stopped"):
        pump.attach(late)
    assert late not in pump._residents


def test_stop_from_the_pumps_own_thread_does_not_join_itself():
    order = []
    pump = EventPump().start()

    def task():
        pump.stop()
        order.append("stopped")

    pump.post(task)
    until(lambda: order)
    pump.stop()  # from outside it joins
    assert order == ["stopped"]
    assert pump.running is False


def test_stop_on_its_own_thread_still_drains():
    order = []
    pump = EventPump()
    pump.post(pump.stop)
    pump.post(lambda: order.append("after the stop"))
    pump.start()
    until(lambda: order)
    pump.stop()
    assert order == ["after the stop"]


def test_stopping_a_pump_that_never_started_runs_what_was_queued_on_a_thread_of_its_own():
    threads = []
    pump = EventPump()
    pump.post(lambda: threads.append(threading.current_thread()))
    pump.stop()
    (thread,) = threads
    assert thread is not threading.current_thread()
    with pytest.raises(Closed):
        pump.start()


def test_stopping_a_pump_that_never_started_without_draining_runs_nothing():
    ran = []
    pump = EventPump()
    pump.post(lambda: ran.append(1))
    pump.stop(drain=False)
    assert ran == []


def test_stop_from_many_threads_at_once_is_fine():
    ran = []
    pump = EventPump().start()
    for number in range(100):
        pump.post(lambda number=number: ran.append(number))
    stops = [Running(pump.stop).__enter__() for _ in range(5)]
    for stop in stops:
        stop.result()
    assert ran == list(range(100))


def test_a_post_racing_with_stop_either_runs_or_raises():
    for _ in range(30):
        pump = EventPump().start()
        ran, start = [], threading.Barrier(2)

        def post(pump=pump, ran=ran, start=start):
            accepted = []
            start.wait(10)
            try:
                for number in range(100_000):
                    pump.post(lambda number=number: ran.append(number))
                    accepted.append(number)
            except Closed:
                pass
            return accepted

        with Running(post) as poster:
            start.wait(10)
            pump.stop(drain=True)
            accepted = poster.result()
        assert ran == accepted


def test_the_with_block_starts_and_stops_the_pump():
    order = []
    with EventPump() as pump:
        assert pump.running
        pump.post(lambda: order.append(1))
    assert order == [1]
    assert not pump.running


def test_the_repr_tells_the_name_and_the_state():
    pump = EventPump("mine")
    assert "mine" in repr(pump)
    before = repr(pump)
    pump.start()
    during = repr(pump)
    pump.stop()
    assert len({before, during, repr(pump)}) == 3


@pytest.mark.parametrize("wrong", [None, 5, "task"])
def test_what_cannot_be_called_is_refused(wrong):
    with EventPump() as pump:
        for call in (pump.post, lambda f: pump.call_later(0, f), pump.condition().wait):
            with pytest.raises(WrongType):
                call(wrong)
        assert run_on(pump, lambda: "alive") == "alive"
