"""One contract for executors: threads, and virtual time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from hocket.adapters.clock import SystemClock
from hocket.adapters.executor import ThreadExecutor
from hocket.ports import Executor
from hocket.sim.clock import SimClock
from hocket.sim.disk import PowerLoss
from hocket.sim.executor import SimExecutor
from hocket.sim.scheduler import Scheduler
from tests.support.threads import PATIENCE


class Owner:
    """The thread that jobs report to: this one, whenever it looks."""

    def __init__(self, kind: str) -> None:
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.scheduler = Scheduler(1)
        self.executor: Executor
        if kind == "threads":
            self.executor = self.threads = ThreadExecutor(self.posted.put)
        else:
            self.executor = SimExecutor(self.scheduler)

    def run_until(self, condition: Callable[[], Any]) -> None:
        while not condition():
            if not self.scheduler.advance():
                self.posted.get(timeout=PATIENCE)()


@pytest.fixture(params=["threads", "virtual time"])
def owner(request: pytest.FixtureRequest) -> Iterator[Owner]:
    made = Owner(request.param)
    yield made
    if request.param == "threads":
        made.threads.close()


def test_results_and_errors_come_to_the_owner(owner: Owner) -> None:
    results: list[Any] = []
    threads: set[threading.Thread] = set()

    def done(result: Any) -> None:
        threads.add(threading.current_thread())
        results.append(result)

    def fail() -> None:
        raise ZeroDivisionError("as planned")

    owner.executor.submit("a", lambda: 42, done)
    owner.executor.submit("a", fail, done)
    assert results == []
    owner.run_until(lambda: len(results) == 2)
    assert results[0] == 42
    assert isinstance(results[1], ZeroDivisionError)
    assert threads == {threading.current_thread()}


def test_a_worker_keeps_its_order(owner: Owner) -> None:
    ran: list[int] = []
    told: list[int] = []
    for number in range(100):
        owner.executor.submit("a", lambda n=number: ran.append(n) or n, told.append)
    owner.run_until(lambda: len(told) == 100)
    assert ran == told == list(range(100))


def test_workers_do_not_wait_for_each_other(owner: Owner) -> None:
    """Job a2 of worker a and job b of worker b; in threads b runs while a is stuck."""
    told: list[str] = []
    go = threading.Event()
    if not hasattr(owner, "threads"):
        go.set()
    owner.executor.submit("a", lambda: go.wait(PATIENCE), lambda _: told.append("a"))
    owner.executor.submit("b", lambda: None, lambda _: told.append("b"))
    owner.run_until(lambda: "b" in told)
    go.set()
    owner.run_until(lambda: len(told) == 2)


def test_drain_runs_everything_and_what_follows_from_it(owner: Owner) -> None:
    told: list[str] = []

    def more(_: Any) -> None:
        told.append("first")
        owner.executor.submit("b", lambda: None, lambda _: told.append("second"))

    owner.executor.submit("a", lambda: None, more)
    owner.executor.submit("a", lambda: None, lambda _: told.append("other"))
    owner.executor.drain()
    assert sorted(told) == ["first", "other", "second"]
    owner.executor.drain()
    while True:  # what was posted meanwhile finds nothing left to do
        try:
            owner.posted.get_nowait()()
        except Empty:
            break
    assert len(told) == 3


def test_a_crash_drops_what_has_not_happened() -> None:
    scheduler = Scheduler(3)
    executor = SimExecutor(scheduler)
    ran: list[int] = []
    told: list[Any] = []
    for number in range(5):
        executor.submit("a", lambda n=number: ran.append(n), told.append)
    while len(ran) < 2:
        scheduler.advance()
    executor.crash()
    executor.submit("a", lambda: ran.append(99), told.append)
    scheduler.run_for(10**9)
    assert ran == [0, 1]
    assert len(told) == 1
    assert executor.idle


def test_the_simulations_own_errors_end_the_run() -> None:
    scheduler = Scheduler(3)
    executor = SimExecutor(scheduler)

    def lose() -> None:
        raise PowerLoss

    executor.submit("a", lose, lambda _: pytest.fail("nobody is left to be told"))
    with pytest.raises(PowerLoss):
        scheduler.run_for(10**9)


def test_clocks() -> None:
    first = SystemClock().now_us()
    assert SystemClock().now_us() >= first > 1_600_000_000_000_000
    scheduler = Scheduler(1)
    clock = SimClock(scheduler, skew_us=-5)
    scheduler.run_for(100)
    assert clock.now_us() == scheduler.now_us() - 5


# --- the scheduler -------------------------------------------------------------------------------


def test_events_happen_in_order_of_time_then_of_arrival() -> None:
    scheduler = Scheduler(1, start_us=0)
    seen: list[tuple[str, int]] = []

    def note(name: str) -> Callable[[], None]:
        return lambda: seen.append((name, scheduler.now_us()))

    scheduler.at(20, note("late"))
    scheduler.at(10, note("first"))
    scheduler.at(10, note("second"))
    scheduler.after(5, lambda: scheduler.at(0, note("now")))
    cancelled = scheduler.at(12, note("never"))
    cancelled.cancel()
    scheduler.run_until(10)
    assert seen == [("now", 5), ("first", 10), ("second", 10)]
    assert scheduler.now_us() == 10
    scheduler.run_until(15)
    assert scheduler.now_us() == 15
    assert scheduler.advance()
    assert not scheduler.advance()
    assert seen[-1] == ("late", 20)
    assert scheduler.events == 5


def test_run_until_true_gives_up_in_time() -> None:
    scheduler = Scheduler(1, start_us=0)
    hits: list[int] = []
    scheduler.at(50, lambda: hits.append(1))
    assert not scheduler.run_until_true(lambda: hits, within_us=49)
    assert scheduler.run_until_true(lambda: hits, within_us=50)
    assert not scheduler.run_until_true(lambda: len(hits) > 1, within_us=50)


def test_streams_of_chance_are_apart() -> None:
    one, two = Scheduler(5), Scheduler(5)
    two.random("other").random()
    assert one.random("disk").random() == two.random("disk").random()
    assert one.random("disk") is one.random("disk")
    assert Scheduler(6).random("disk").random() != Scheduler(5).random("disk").random()


def test_where_no_thread_can_be_started_jobs_are_done_at_once(monkeypatch):
    """As it is in Python 3.12 and later when the process ends, and a broker works to the last."""

    def refuse(_thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    posted, done = [], []
    executor = ThreadExecutor(posted.append)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    executor.submit("writer", lambda: "written", done.append)
    executor.submit("writer", lambda: 1 / 0, done.append)
    executor.drain()
    assert done[0] == "written"
    assert isinstance(done[1], ZeroDivisionError)
    executor.close()


def test_abandoned_threads_end_by_themselves_and_nobody_waits_for_them():
    may_end, began, done = threading.Event(), threading.Event(), []
    executor = ThreadExecutor(lambda _task: None, name="abandoned")

    def job() -> None:
        began.set()
        assert may_end.wait(PATIENCE)

    executor.submit("worker", job, done.append)
    executor.submit("worker", lambda: done.append("behind"), done.append)
    assert began.wait(PATIENCE)
    (thread,) = [each for each in threading.enumerate() if each.name.startswith("abandoned")]
    executor.abandon()
    assert thread.is_alive()
    may_end.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert done == []
