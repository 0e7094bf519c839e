"""What strikes from outside: interrupts in the middle of a wait, finalizers inside a lock."""

from __future__ import annotations

import pytest

from hocket.deadline import NEVER
from hocket.local import Channel, EventPump, circular_buffer, event_queue, lane, message_queue
from hocket.local.waiting import Waiters, wait
from tests.support.threads import Running, until


def test_a_waiter_interrupted_after_it_was_woken_passes_the_wake_up_on():
    waiters, items = Waiters(), []

    def be_interrupted():
        if items:
            raise KeyboardInterrupt

    def take():
        return items.pop() if items else None

    with Running(wait, be_interrupted, waiters, NEVER, "an item") as first:
        first.parked()
        with Running(wait, take, waiters, NEVER, "an item") as second:
            second.parked()
            items.append("item")
            waiters.wake_one()
            assert second.result() == "item"
        with pytest.raises(KeyboardInterrupt):
            first.result()


@pytest.mark.parametrize(
    "lock", [circular_buffer.endings, event_queue._endings, lane._rare, message_queue._changes]
)
def test_a_finalizer_that_ends_something_inside_the_lock_does_not_hang(lock):
    def end_inside():
        with lock:
            ours, theirs = Channel.pair()
            ours.disconnect()
            return theirs.disconnected

    with Running(end_inside) as ending:
        assert ending.result() is True


def test_cancelled_timers_do_not_pile_up():
    with EventPump() as pump:
        kept = [pump.call_later(3600, print) for _ in range(10)]
        for _ in range(10_000):
            pump.call_later(3600, print).cancel()
        until(lambda: not pump._queue.events)
        assert len(pump._timers) < 1000
        assert {timer for _, _, timer in pump._timers} >= set(kept)
