"""Task: a thread that belongs to a `with` block and hands its failure to its owner."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hocket.errors import BusyResource, OutOfRange, Timeout, WrongType
from hocket.local import Broker, BrokerManager, Channel, Task
from tests.support.threads import Running, until


class Failure(Exception):
    pass


def fail(*_: object) -> None:
    raise Failure("from the task")


def test_a_task_starts_with_the_block_and_has_ended_after_it():
    history: list[str] = []
    inside = threading.Event()

    def work() -> None:
        history.append("work begins")
        assert inside.wait(10)
        history.append("work ends")

    with Task(work):
        until(lambda: history == ["work begins"])
        history.append("body ends")
        inside.set()
    history.append("after the block")
    assert history == ["work begins", "body ends", "work ends", "after the block"]


def test_a_task_does_not_start_before_its_block():
    ran: list[int] = []
    task = Task(ran.append, 1)
    assert ran == []
    with task:
        pass
    assert ran == [1]


def test_a_task_gets_its_arguments_and_keeps_what_it_returned():
    with Task(lambda *args: args, 1, "two", [3]) as task:
        pass
    assert task.result == (1, "two", [3])
    with Task(lambda: None) as task:
        pass
    assert task.result is None


def test_a_task_runs_on_a_thread_of_its_own_under_its_name():
    def who() -> tuple[int, str]:
        return threading.get_ident(), threading.current_thread().name

    with Task(who, name="the worker") as task:
        pass
    ident, name = task.result
    assert ident != threading.get_ident()
    assert name == "the worker"
    assert "the worker" in repr(task)


def test_the_block_gives_the_task_itself():
    task = Task(lambda: None)
    with task as same:
        assert same is task


# --- failure reaches the owner -------------------------------------------------------------------


def test_a_failure_is_raised_at_the_end_of_the_block():
    history: list[str] = []

    def block() -> None:
        with Task(fail):
            history.append("the body runs to its end")

    with pytest.raises(Failure, match="from the task"):
        block()
    assert history == ["the body runs to its end"]


def test_when_both_fail_the_tasks_failure_has_the_bodys_as_its_context():
    def block() -> None:
        with Task(fail):
            raise ZeroDivisionError("from the body")

    with pytest.raises(Failure) as caught:
        block()
    assert isinstance(caught.value.__context__, ZeroDivisionError)
    assert str(caught.value.__context__) == "from the body"


def test_when_only_the_body_fails_its_failure_comes_out_after_the_task_has_ended():
    ended: list[bool] = []
    go = threading.Event()

    def work() -> None:
        assert go.wait(10)
        ended.append(True)

    def block() -> None:
        with Task(work):
            go.set()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert ended == [True]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_even_an_error_that_is_no_exception_reaches_the_owner(error: type[BaseException]):
    def work() -> None:
        raise error

    def block() -> None:
        with Task(work):
            pass

    with pytest.raises(error):
        block()


def test_failures_of_several_tasks_all_come_out():
    def block() -> None:
        with Task(fail), Task(lambda: 1 // 0):
            pass

    with pytest.raises(Failure) as caught:
        block()
    assert isinstance(caught.value.__context__, ZeroDivisionError)


# --- without a block -----------------------------------------------------------------------------


def test_start_returns_the_task_and_join_waits_for_it():
    go = threading.Event()
    task = Task(go.wait, 10)
    assert task.start() is task
    go.set()
    task.join()
    assert task.result is True


def test_join_raises_the_failure():
    task = Task(fail).start()
    with pytest.raises(Failure, match="from the task"):
        task.join(timeout=10)


def test_join_times_out_while_the_task_runs_and_may_be_called_again():
    go = threading.Event()
    task = Task(go.wait, 10).start()
    for timeout in (0, 0.01):
        with pytest.raises(Timeout):
            task.join(timeout=timeout)
    go.set()
    task.join(timeout=10)
    task.join()
    assert task.result is True


@pytest.mark.parametrize("timeout", [10, 1e12, float("inf")])
def test_join_with_a_long_timeout_waits(timeout: float):
    task = Task(lambda: "done").start()
    task.join(timeout=timeout)
    assert task.result == "done"


def test_a_second_start_is_refused_and_the_task_unharmed():
    ran: list[int] = []
    go = threading.Event()

    def work() -> None:
        ran.append(1)
        assert go.wait(10)

    task = Task(work).start()
    with pytest.raises(BusyResource):
        task.start()
    go.set()
    task.join(10)
    with pytest.raises(BusyResource):
        task.start()
    assert ran == [1]


def test_entering_a_block_again_is_a_second_start():
    ran: list[int] = []
    with Task(ran.append, 1) as task:
        pass
    with pytest.raises(BusyResource), task:
        pass
    assert ran == [1]


# --- who am I ------------------------------------------------------------------------------------


def test_current_is_the_task_running_on_this_thread():
    assert Task.current() is None
    with Task(Task.current) as outer:
        assert Task.current() is None
    assert outer.result is outer


def test_a_task_inside_a_task_is_itself_and_the_outer_one_stays():
    def nested() -> tuple[Task | None, Task, Task | None]:
        with Task(Task.current) as inner:
            pass
        assert inner.result is inner
        return Task.current(), inner, Task.current()

    with Task(nested) as outer:
        pass
    before, inner, after = outer.result
    assert before is outer
    assert after is outer
    assert inner is not outer


def test_a_plain_thread_runs_no_task():
    with Running(Task.current) as plain:
        assert plain.result() is None


def test_a_task_knows_its_broker():
    with Broker("b", BrokerManager()) as broker:
        with Task(lambda: Task.current().broker, broker=broker) as task:  # type: ignore[union-attr]
            assert task.broker is broker
        assert task.result is broker
    with Task(lambda: Task.current().broker) as task:  # type: ignore[union-attr]
        pass
    assert task.result is None


def test_tasks_talk_through_the_broker_they_carry():
    def serve() -> bytes:
        with Task.current().broker.accept(80, timeout=10) as channel:  # type: ignore[union-attr]
            question = channel.read_exactly(4, timeout=10)
            channel.write_all(question.upper(), timeout=10)
            return question

    def ask(question: bytes) -> bytes:
        broker = Task.current().broker  # type: ignore[union-attr]
        channel: Channel = broker.connect("server", 80, timeout=10)
        with channel:
            channel.write_all(question, timeout=10)
            return channel.read_exactly(4, timeout=10)

    manager = BrokerManager()
    with (
        Broker("server", manager) as server,
        Broker("client", manager) as client,
        Task(serve, broker=server) as serving,
        Task(ask, b"ping", broker=client) as asking,
    ):
        pass
    assert (serving.result, asking.result) == (b"ping", b"PING")


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [None, 5, "work"])
def test_a_target_must_be_callable(target: Any):
    with pytest.raises(WrongType):
        Task(target)


@pytest.mark.parametrize(
    ("timeout", "error"), [(-1, OutOfRange), (float("nan"), OutOfRange), ("1", WrongType)]
)
def test_join_wants_a_timeout_that_is_a_number_and_not_negative(
    timeout: Any, error: type[Exception]
):
    with Task(lambda: "done") as task, pytest.raises(error):
        task.join(timeout=timeout)
    assert task.result == "done"
