"""EventQueue: FIFO, from any thread, not bounded."""

import contextlib
import threading
from collections import deque

import pytest

from hocket.errors import Closed, OutOfRange, Timeout, WouldBlock, WrongType
from hocket.local import EventQueue
from tests.support.threads import Running


def test_events_come_out_in_the_order_they_went_in():
    queue = EventQueue()
    for number in range(1000):
        queue.put(number)
    assert len(queue) == 1000
    assert [queue.get(timeout=1) for _ in range(500)] == list(range(500))
    assert [queue.get_nowait() for _ in range(500)] == list(range(500, 1000))
    assert len(queue) == 0


def test_get_nowait_raises_would_block_when_it_is_empty():
    queue = EventQueue()
    with pytest.raises(WouldBlock):
        queue.get_nowait()
    queue.put("x")
    assert queue.get_nowait() == "x"
    with pytest.raises(WouldBlock):
        queue.get_nowait()


def test_none_and_false_are_events_like_any_other():
    queue = EventQueue()
    for event in (None, False, 0):
        queue.put(event)
    assert [queue.get(timeout=1), queue.get_nowait(), queue.get(timeout=1)] == [None, False, 0]


def test_get_waits_for_an_event():
    queue = EventQueue()
    with Running(queue.get, 10) as waiting:
        waiting.parked()
        queue.put("late")
        assert waiting.result() == "late"


def test_get_without_a_timeout_waits_as_long_as_it_takes():
    queue = EventQueue()
    with Running(queue.get) as waiting:
        waiting.parked()
        queue.put("late")
        assert waiting.result() == "late"


def test_get_times_out_and_the_next_event_is_not_lost():
    queue = EventQueue()
    for timeout in (0, 0.01):
        with pytest.raises(Timeout):
            queue.get(timeout=timeout)
    queue.put("x")
    assert queue.get(timeout=0) == "x"


@pytest.mark.parametrize("wrong", [-1, -0.001, float("nan")])
def test_a_negative_timeout_is_out_of_range(wrong):
    queue = EventQueue()
    queue.put("x")
    with pytest.raises(OutOfRange):
        queue.get(timeout=wrong)
    assert len(queue) == 1


def test_a_timeout_that_is_not_a_number_is_a_wrong_type():
    queue = EventQueue()
    queue.put("x")
    with pytest.raises(WrongType):
        queue.get(timeout="1")
    assert len(queue) == 1


def test_after_close_what_is_in_it_can_be_taken_and_then_it_is_closed():
    queue = EventQueue()
    queue.put(1)
    queue.put(2)
    assert queue.closed is False
    queue.close()
    queue.close()
    assert queue.closed is True
    with pytest.raises(Closed):
        queue.put(3)
    assert queue.get(timeout=1) == 1
    assert queue.get_nowait() == 2
    with pytest.raises(Closed):
        queue.get(timeout=1)
    with pytest.raises(Closed):
        queue.get()
    with pytest.raises(Closed):
        queue.get_nowait()
    assert len(queue) == 0


def test_close_wakes_everyone_who_waits():
    queue = EventQueue()
    with Running(queue.get, 10) as first, Running(queue.get) as second:
        first.parked()
        second.parked()
        queue.close()
        first.failure(Closed)
        second.failure(Closed)


def test_many_producers_and_consumers_lose_and_double_nothing():
    queue = EventQueue()
    each = 2000

    def produce(name):
        for number in range(each):
            queue.put((name, number))

    def consume():
        got = []
        while True:
            try:
                got.append(queue.get(timeout=10))
            except Closed:
                return got

    consumers = [Running(consume).__enter__() for _ in range(3)]
    producers = [Running(produce, name).__enter__() for name in range(4)]
    for producer in producers:
        producer.result()
    queue.close()
    shares = [consumer.result() for consumer in consumers]
    everything = sorted(event for share in shares for event in share)
    assert everything == [(name, number) for name in range(4) for number in range(each)]
    for share in shares:  # each consumer sees each producer's events in order
        for name in range(4):
            numbers = [number for who, number in share if who == name]
            assert numbers == sorted(numbers)


def test_a_put_that_races_with_close_is_either_taken_or_refused():
    for _ in range(50):
        queue = EventQueue()
        start = threading.Barrier(2)

        def produce(queue=queue, start=start):
            accepted = []
            start.wait(10)
            try:
                for number in range(1000):
                    queue.put(number)
                    accepted.append(number)
            except Closed:
                pass
            return accepted

        with Running(produce) as producer:
            start.wait(10)
            queue.close()
            accepted = producer.result()
        taken = []
        while len(queue):
            taken.append(queue.get_nowait())
        assert taken == accepted


def test_a_put_overtaken_by_the_end_raises_closed_only_if_nobody_took_its_event():
    """The narrow place of that race, made wide: the queue ends while `put` is at work."""
    queue, taken = EventQueue(), []

    class Overtaken(deque):
        def append(self, event):
            queue.close()
            with pytest.raises(Closed):
                queue.get_nowait()  # somebody has seen the end
            super().append(event)
            with contextlib.suppress(Closed):
                taken.append(queue.get_nowait())  # and looks once more

    queue.events = Overtaken()
    refused = False
    try:
        queue.put("x")
    except Closed:
        refused = True
    while len(queue):
        taken.append(queue.get_nowait())
    assert taken == ([] if refused else ["x"])


def test_a_getter_passes_on_a_wake_up_it_did_not_need():
    """One finds an event by itself while the wake-up for the next event is spent on it."""
    queue, woken = EventQueue(), []

    class TwoAtOnce(deque):
        def popleft(self):
            if not queue.takers:  # not waiting yet
                raise IndexError
            queue.takers.append(lambda: woken.append("the second getter") is None)
            queue.put("second")  # its wake-up goes to the first getter
            return "first"

    queue.events = TwoAtOnce()
    assert queue.get(timeout=10) == "first"
    assert woken == ["the second getter"]
