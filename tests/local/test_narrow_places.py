"""What happens once in a million runs, made to happen every time.

Each test looks inside, and puts itself between two steps that are usually one after the other.
"""

from __future__ import annotations

from collections import deque

import pytest

from hocket.errors import Aborted, Closed, Timeout, UnknownBroker
from hocket.local import (
    AcceptListener,
    Broker,
    BrokerManager,
    EventPump,
    EventQueue,
    MixedQueueBroker,
    QueueBroker,
)
from hocket.local.lane import Lane
from hocket.local.queue_broker import Attempt
from tests.support.queues.listeners import History
from tests.support.queues.worlds import World
from tests.support.threads import until


class Interrupted(deque):
    """A deque in which something happens just before an append, after it, or after a failed pop."""

    before_append = after_append = after_failed_pop = None

    def append(self, item):
        if self.before_append:
            self.before_append()
        super().append(item)
        if self.after_append:
            self.after_append()

    def popleft(self):
        try:
            return super().popleft()
        except IndexError:
            if self.after_failed_pop:
                self.after_failed_pop()
            raise


def test_an_event_put_behind_the_end_is_taken_back_and_refused():
    queue = EventQueue()
    events = queue.events = Interrupted()
    events.before_append = lambda: (queue.close(), queue.finish())
    events.after_append = lambda: deque.append(events, "another's")
    with pytest.raises(Closed):
        queue.put("late")
    assert list(events) == ["another's"]


def test_a_getter_that_finds_a_closed_queue_empty_looks_again_before_it_gives_up():
    queue = EventQueue()
    events = queue.events = Interrupted()
    queue.close()

    def arrive_late():
        events.after_failed_pop = None
        deque.append(events, "late")

    events.after_failed_pop = arrive_late
    assert queue.get_nowait() == "late"
    with pytest.raises(Closed):
        queue.get_nowait()


def test_an_event_that_slips_in_behind_a_stop_without_draining_is_dropped():
    ran = []
    pump = EventPump()
    pump._drain = False
    pump._queue.close()
    pump._queue.events.append(lambda: ran.append("slipped in"))
    pump.stop()
    assert ran == []
    assert not pump._queue.events


def test_a_resident_that_fails_when_its_pump_stops_is_reported_and_the_next_is_told():
    told, errors = [], []

    class Failing:
        def pump_stopped(self):
            told.append("failing")
            raise ZeroDivisionError

    class Sound:
        def pump_stopped(self):
            told.append("sound")

    with EventPump() as pump:
        pump.on_error = errors.append
        pump.attach(Failing())
        pump.attach(Sound())
    assert told == ["failing", "sound"]
    assert [type(error) for error in errors] == [ZeroDivisionError]


def test_a_large_message_taken_just_before_a_seizure_is_not_counted_twice():
    lane = Lane(messages_max=4, bytes_max=40)
    lane.offer(b"more than a fourth of it")
    message = lane.messages.popleft()
    assert lane.seize() == []
    lane._discount(message)  # `taken` had seen a large message before the seizure
    assert (lane.large_count, lane.large_bytes) == (0, 0)


def test_a_connect_that_was_answered_already_is_not_answered_again_by_its_thread():
    manager = BrokerManager()
    with EventPump() as pump:
        errors = []
        pump.on_error = errors.append
        server, client = (MixedQueueBroker(name, pump, manager) for name in ("server", "client"))
        answered = Attempt(client, 1, History())
        server._visit(answered)
        assert answered.listener.events == []
    assert errors == []


def test_nothing_is_told_after_the_end_and_iterating_twice_is_one_iteration():
    history = History()
    ours = []

    class Hears:
        def connected(self, queue):
            ours.append(queue)

    manager = BrokerManager()
    with EventPump() as pump:
        QueueBroker("server", pump, manager).bind(1, AcceptListener())
        QueueBroker("client", pump, manager).connect("server", 1, Hears())
        until(lambda: ours)
        (queue,) = ours
        queue.set_listener(history)
        queue.close()
        until(lambda: history.reasons)
        queue._handed_over.append(b"taken while the end was told")
        queue._tell_sent()
        assert history.events[-1][0] == "closed"
        assert not queue._handed_over
    messages = aiter(queue)
    assert aiter(messages) is messages


def test_a_large_object_sent_twice_is_counted_twice_and_discounted_twice():
    lane = Lane(messages_max=4, bytes_max=40)
    message = bytes(15)
    assert lane.offer(message)
    assert lane.offer(message)
    counts = [(lane.large_count, lane.large_bytes)]
    for _ in range(2):
        lane.taken(lane.messages.popleft())
        counts.append((lane.large_count, lane.large_bytes))
    assert counts == [(2, 30), (1, 15), (0, 0)]


def test_a_broker_that_closes_between_the_look_and_the_meeting_is_unknown():
    manager = BrokerManager()
    server, client = Broker("server", manager), Broker("client", manager)
    server.close()
    with pytest.raises(UnknownBroker):
        client._arrive("connect", server, 1)
    client.close()


def test_a_partner_that_comes_in_the_very_moment_of_a_timeout_is_met():
    manager = BrokerManager()
    with Broker("server", manager) as server, Broker("client", manager) as client:
        rendezvous = server._arrive("accept", server, 1)
        theirs = client.connect("server", 1)
        ours = rendezvous._met_after_all(Timeout("a moment too late"))
        ours.write_all(b"met")
        assert theirs.read_exactly(3) == b"met"


def test_a_message_that_another_took_first_is_not_received_into_the_buffer(monkeypatch):
    take_if_first = Lane.take_if_first

    def too_late(lane, message):
        monkeypatch.setattr(Lane, "take_if_first", take_if_first)
        assert lane.messages.popleft() is message  # by another thread that receives
        return lane.take_if_first(message)

    with World("full-event") as world:
        mine, theirs = world.pair()
        for message in (b"first", b"second"):
            mine.send(message)
        buffer = bytearray(8)
        monkeypatch.setattr(Lane, "take_if_first", too_late)
        assert theirs.receive(buffer) == 6
        assert buffer[:6] == b"second"
        mine.send(b"third")
        monkeypatch.setattr(Lane, "take_if_first", too_late)
        assert theirs.receive(buffer) is None


def test_while_a_queue_is_being_cut_nothing_is_received_into_a_buffer_and_nothing_raised():
    with World("full-event") as world:
        _mine, theirs = world.pair()
        theirs._inbound.seize()
        theirs._reason = Aborted("not complete yet")
        assert theirs.receive(bytearray(8)) is None
