"""The rules of waiting that no race in a test run shows for certain."""

from __future__ import annotations

import pytest

from hocket.local import waiting
from hocket.local.waiting import SPINS, SleepingThread, Waiters, refuse_without_gil, spin
from tests.support.threads import Running


def test_without_the_gil_the_package_refuses_to_load():
    with pytest.raises(ImportError, match="PYTHON_GIL=1"):
        refuse_without_gil(gil_enabled=False)
    refuse_without_gil(gil_enabled=True)


def test_wake_one_wakes_the_oldest_that_is_still_there():
    history: list[str] = []

    def waiter(name: str, there: bool) -> bool:
        history.append(name)
        return there

    waiters = Waiters()
    waiters.append(lambda: waiter("gone", False))
    waiters.append(lambda: waiter("oldest", True))
    waiters.append(lambda: waiter("youngest", True))
    waiters.wake_one()
    assert history == ["gone", "oldest"]
    waiters.wake_one()
    waiters.wake_one()
    assert history == ["gone", "oldest", "youngest"]
    assert not waiters


def test_wake_all_wakes_everyone_who_was_there():
    history: list[int] = []
    waiters = Waiters()
    for number in range(3):
        waiters.append(lambda number=number: history.append(number) or True)
    waiters.wake_all()
    assert history == [0, 1, 2]
    waiters.wake_all()
    assert history == [0, 1, 2]


def test_wake_one_copes_with_a_list_emptied_under_its_hands():
    class Emptied(Waiters):
        def __bool__(self) -> bool:
            return True  # as it was when we looked; another thread has taken the last one since

    Emptied().wake_one()


def test_withdrawing_tells_whether_the_wake_up_had_been_sent():
    waiters = Waiters()
    waiters.append(wake := SleepingThread().wake)
    assert waiters.withdraw(wake) is True
    assert waiters.withdraw(wake) is False


def test_a_sleeping_thread_is_woken_once():
    sleeper = SleepingThread()
    assert sleeper.sleep(0) is False
    with Running(sleeper.sleep, None) as sleeping:
        sleeping.parked()
        assert sleeper.wake() is True
        assert sleeping.result() is True
    assert sleeper.wake() is True  # for a sleep to come
    assert sleeper.wake() is False
    assert sleeper.sleep(0) is True


def spins(monkeypatch: pytest.MonkeyPatch, *, yield_seconds: float, seconds: float | None) -> int:
    """How often a thread looks in vain before it sleeps, if others run so long in each turn."""
    now, looks = 100.0, 0

    def others_run() -> None:
        nonlocal now
        now += yield_seconds

    def look() -> None:
        nonlocal looks
        looks += 1

    with monkeypatch.context() as patch:
        patch.setattr(waiting, "monotonic", lambda: now)
        patch.setattr(waiting, "sched_yield", others_run)
        assert spin(look, seconds) is None
    return looks


def test_a_thread_looks_some_times_before_it_sleeps_unless_busy_neighbours_take_its_turns(
    monkeypatch: pytest.MonkeyPatch,
):
    assert spins(monkeypatch, yield_seconds=2e-6, seconds=None) == SPINS
    assert spins(monkeypatch, yield_seconds=2e-6, seconds=10) == SPINS
    assert spins(monkeypatch, yield_seconds=0.004, seconds=None) == 1
    assert spins(monkeypatch, yield_seconds=2e-4, seconds=10) == 5


def test_a_thread_does_not_look_beyond_its_deadline(monkeypatch: pytest.MonkeyPatch):
    assert spins(monkeypatch, yield_seconds=1e-5, seconds=3e-5) == 3
    assert spins(monkeypatch, yield_seconds=1e-5, seconds=0) == 1
