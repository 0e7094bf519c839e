"""The one heap of timers, whoever drives it."""

from __future__ import annotations

from hypothesis import given, strategies as st

from hocket.timers import UNSWEPT_MAX, Timer, TimerHeap


def run_all(heap: TimerHeap[int]) -> list[int]:
    """Run what is in the heap, and return the times at which each was due."""
    found = []
    while (due := heap.next_due()) is not None:
        heap.pop()()
        found.append(due)
    return found


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans())))
def test_timers_come_in_the_order_they_are_due_and_the_cancelled_never(asked):
    heap: TimerHeap[int] = TimerHeap()
    called = []
    for number, (due, cancelled) in enumerate(asked):
        timer = Timer(lambda due=due, number=number: called.append((due, number)))
        heap.put(due, timer)
        if cancelled:
            timer.cancel()
    wanted = sorted((due, n) for n, (due, cancelled) in enumerate(asked) if not cancelled)
    assert run_all(heap) == [due for due, _ in wanted]
    assert called == wanted
    assert not heap


def test_a_timer_runs_once():
    called = []
    timer = Timer(lambda: called.append(1))
    timer()
    timer()
    assert called == [1]


def test_cancelled_timers_are_swept_and_the_others_stay():
    heap: TimerHeap[int] = TimerHeap()
    called = []
    for number in range(10 * UNSWEPT_MAX):
        timer = Timer(lambda number=number: called.append(number))
        heap.put(-number, timer)
        if number % 100:
            timer.cancel()
    assert len(heap) <= UNSWEPT_MAX
    run_all(heap)
    assert called == [n for n in reversed(range(10 * UNSWEPT_MAX)) if not n % 100]


def test_a_timer_says_whether_it_will_still_run():
    waiting, cancelled, ran = Timer(int), Timer(int), Timer(int)
    cancelled.cancel()
    ran()
    assert [timer.cancelled for timer in (waiting, cancelled, ran)] == [False, True, True]
