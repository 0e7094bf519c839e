"""Numbers and circumstances at the edge of what a machine can do."""

from __future__ import annotations

import pytest

from hocket.errors import OutOfRange
from hocket.local import Channel, EventPump, EventQueue, circular_buffer
from hocket.local.circular_buffer import MAPPED_FROM_BYTES
from hocket.local.waiting import refuse_without_gil


def test_a_timeout_that_no_clock_can_count_is_out_of_range():
    with pytest.raises(OutOfRange):
        EventQueue().get(timeout=10**400)
    with EventPump() as pump, pytest.raises(OutOfRange):
        pump.call_later(10**400, print)


def test_a_count_that_no_memory_can_hold_is_out_of_range():
    ours, theirs = Channel.pair()
    with ours, theirs, pytest.raises(OutOfRange):
        theirs.read_exactly(1 << 70)


def test_a_ring_that_cannot_be_mapped_lives_in_ordinary_memory(monkeypatch: pytest.MonkeyPatch):
    refusals = []

    def no_more_mappings(_fd: int, size: int) -> None:
        refusals.append(size)
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(circular_buffer, "mmap", no_more_mappings)
    ours, theirs = Channel.pair(buffer_bytes=MAPPED_FROM_BYTES)
    with ours, theirs:
        ours.write_all(b"all the same")
        assert theirs.read_exactly(12) == b"all the same"
    assert refusals == [MAPPED_FROM_BYTES]


def test_without_the_gil_the_package_refuses_to_load_and_says_what_to_do():
    refuse_without_gil(gil_enabled=True)
    with pytest.raises(ImportError, match="PYTHON_GIL=1"):
        refuse_without_gil(gil_enabled=False)


def test_a_pump_whose_queues_have_closed_has_nothing_to_do():
    """A closed queue leaves no event behind that posts itself again."""
    from hocket.local import BrokerManager, QueueBroker
    from tests.support.threads import until

    queues: list = []

    class Listener:
        def accepted(self, queue):
            queues.append(queue)
            queue.set_listener(self)

        connected = accepted

    manager = BrokerManager()
    with EventPump() as pump:
        QueueBroker("server", pump, manager).bind(1, Listener())
        QueueBroker("client", pump, manager).connect("server", 1, Listener())
        until(lambda: len(queues) == 2)
        queues[0].close()
        until(lambda: not pump._residents or all(not broker.queues for broker in pump._residents))
        until(lambda: not pump._queue.events and pump._queue.takers, what="the pump sleeps")
        counted = []
        run_events = pump._run_events
        pump._run_events = lambda events: (counted.append(len(events)), run_events(events))
        pump.post(lambda: None)
        until(lambda: not pump._queue.events and pump._queue.takers, what="the pump sleeps again")
        assert sum(counted) == 1
