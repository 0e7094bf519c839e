"""Ends at the worst moment: interrupted, out of threads, with memory gone, under a busy sender."""

import asyncio
import contextlib
import threading
import weakref

import pytest

from hocket.errors import Aborted, BusyResource, Closed, PortNotBound, Timeout, UnknownBroker
from hocket.local import mixed_queue_broker
from tests.support.queues.listeners import Accepts, Connects, History
from tests.support.queues.worlds import PORT, numbered, wait_until_all_sleep
from tests.support.threads import Running, until


def test_a_pump_stops_although_the_other_side_keeps_sending(two_pumps):
    mine, theirs = two_pumps.pair()
    history = History()
    theirs.set_listener(history)

    def send_until_closed():
        sent = 0
        with contextlib.suppress(Closed):
            while True:
                mine.send_wait(b"%d" % sent, timeout=10)
                sent += 1
        return sent

    my_history = History()
    mine.set_listener(my_history)
    sender = two_pumps.thread(send_until_closed)
    until(lambda: len(history.messages) > 100)
    with Running(two_pumps.server_pump.stop) as stopping:
        stopping.wait()
    until(lambda: my_history.reasons)
    undelivered = my_history.reason.undelivered
    assert history.messages + undelivered == numbered(sender.result())
    assert history.events[-1][0] == "closed"


def test_a_large_message_whose_memory_was_released_harms_nobody(full_event):
    mine, theirs = full_event.pair(messages_max=8, bytes_max=800)
    with memoryview(bytes(300)) as released:
        assert mine.send(released)
    assert mine.send(bytes(99))
    assert mine.send(bytes(300))
    assert not mine.send(bytes(300))  # the bytes that were released still count
    assert theirs.receive() is released
    assert theirs.receive() == bytes(99)
    assert mine.send(bytes(300))
    assert [theirs.receive(), theirs.receive()] == [bytes(300)] * 2


def test_a_small_message_whose_memory_was_released_harms_nobody(full_event):
    mine, theirs = full_event.pair(messages_max=8, bytes_max=800)
    with memoryview(bytes(50)) as released:
        assert mine.send(released)
    for _ in range(2):
        assert mine.send(bytes(390))
    assert not mine.send(bytes(390))
    assert theirs.receive() is released


def test_a_mixed_queue_whose_message_was_released_is_aborted_and_says_so(mixed):
    mine, _theirs, my_history, their_history = mixed.heard_pair(messages_max=1000)
    released = memoryview(bytes(100))
    lane = mine._outbound
    wait_until_all_sleep()  # the ferry, too
    ferry_waits, lane.takers = lane.takers, type(lane.takers)()
    assert mine.send(released)  # nobody is woken,
    released.release()
    lane.takers = ferry_waits
    lane.takers.wake_all()  # until it is too late
    until(lambda: my_history.reasons and their_history.reasons)
    assert isinstance(my_history.reason, Aborted)
    assert my_history.reason.undelivered == [released]
    (error,) = mixed.take_errors(1)
    assert "released" in str(error)


def test_what_was_to_be_told_is_told_even_by_a_pump_that_drops_its_events(two_pumps):
    client, _server = two_pumps.brokers()
    mine, _theirs = two_pumps.connected(*two_pumps._brokers)
    history, connects = History(), Connects()
    mine.set_listener(history)
    two_pumps.settle()
    hold = threading.Event()
    dropped = []
    two_pumps.client_pump.post(lambda: hold.wait(10))
    two_pumps.client_pump.post(lambda: dropped.append("an ordinary event"))
    mine.abort()
    client.connect("nobody", PORT, connects)
    with Running(two_pumps.client_pump.stop, False):
        until(lambda: not two_pumps.client_pump._queue.events, what="they are dropped")
        hold.set()
    assert isinstance(history.reason, Aborted)
    (refused,) = connects.reasons
    assert isinstance(refused, UnknownBroker | Closed)  # Closed: nobody elsewhere had answered yet
    assert dropped == []


def test_an_abort_that_is_interrupted_still_ends_the_queue(two_pumps, monkeypatch):
    mine, _theirs, my_history, their_history = two_pumps.heard_pair()
    if two_pumps.mixed:

        def interrupted(self):
            real(self)
            raise KeyboardInterrupt

        real = mixed_queue_broker.Ferry.stop
        monkeypatch.setattr(mixed_queue_broker.Ferry, "stop", interrupted)
        with pytest.raises(KeyboardInterrupt):
            mine.abort()
    else:
        mine.abort()
    until(lambda: my_history.reasons and their_history.reasons)
    with pytest.raises(Closed):
        mine.receive_wait(timeout=10)


def test_a_listener_that_uses_queues_while_it_is_asked_for_its_methods_locks_nothing(world):
    mine, theirs = world.pair()

    class Curious:
        def writable(self):
            raise AssertionError("nothing was refused")

        def __getattr__(self, name):
            theirs.pause()
            theirs.resume()
            raise AttributeError(name)

    with Running(mine.set_listener, Curious()) as setting:
        setting.wait()
    mine.set_listener(None)


def test_the_threads_of_an_ended_queue_and_its_channels_are_let_go(mixed):
    mine, theirs, my_history, _ = mixed.heard_pair()
    rings = [weakref.ref(ferry._departs) for ferry in mine._carrier._ferries.values()]
    assert len(rings) == 2
    mine.send(b"used")
    theirs.close()
    until(lambda: my_history.reasons)
    until(lambda: all(ring() is None for ring in rings))


@pytest.mark.parametrize("failing", ["writes", "is read", "connects"])
def test_a_connect_for_which_there_is_no_thread_is_refused_and_the_next_one_works(
    mixed, monkeypatch, failing
):
    client, server = mixed.brokers()
    accepts = Accepts()
    server.bind(PORT, accepts)
    start, failures = threading.Thread.start, []

    def limited(thread):
        if failing in thread.name and not failures:
            failures.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    for expected in ([BusyResource], []):
        connects = Connects()
        client.connect("server", PORT, connects)
        until(lambda connects=connects: connects.answers)
        assert [type(reason) for reason in connects.reasons] == expected
    assert len(failures) == 1
    assert len(client.queues) == len(server.queues) == 1


def test_a_port_for_which_there_is_no_thread_is_not_bound(mixed, monkeypatch):
    _client, server = mixed.brokers()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _no_thread)
        with pytest.raises(BusyResource):
            server.bind(PORT, Accepts())
    assert server.unbind(PORT) is False
    assert server.bind(PORT, Accepts()) is True


def test_a_port_that_is_unbound_when_both_threads_have_met_refuses(mixed, monkeypatch):
    client, server = mixed.brokers()
    server.bind(PORT, Accepts())
    admit = mixed_queue_broker.MixedQueueBroker._admit

    def unbind_first(broker, channel):
        assert broker.unbind(PORT)
        admit(broker, channel)

    monkeypatch.setattr(mixed_queue_broker.MixedQueueBroker, "_admit", unbind_first)
    connects = Connects()
    client.connect("server", PORT, connects)
    until(lambda: connects.answers)
    assert [type(reason) for reason in connects.reasons] == [PortNotBound]
    assert not client.queues
    assert not server.queues


def _no_thread(_thread):
    raise RuntimeError("can't start new thread")


def test_a_sender_that_waits_goes_on_as_soon_as_there_is_room_for_it(full_event):
    mine, theirs = full_event.pair(messages_max=100)
    for message in numbered(100):
        assert mine.send(message)
    with Running(mine.send_wait, b"one more") as sender:
        sender.parked()
        assert theirs.receive() == b"0"
        sender.wait()


def test_room_for_several_waiting_senders_reaches_them_all(full_event):
    mine, theirs = full_event.pair(messages_max=100, bytes_max=1000)
    assert mine.send(bytes(2000))
    senders = [full_event.thread(mine.send_wait, bytes(20)) for _ in range(5)]
    for sender in senders:
        sender.parked()
    assert theirs.receive() == bytes(2000)
    for sender in senders:
        sender.wait()


def test_a_coroutine_looks_once_more_before_its_time_is_up(full_event):
    mine, theirs = full_event.pair(messages_max=2)
    assert mine.send(b"0")
    assert mine.send(b"1")

    async def send_late():
        with pytest.raises(Timeout):
            await mine.send_async(b"no room", timeout=0)
        theirs._inbound.messages.popleft()  # as a taker would, but telling nobody
        await mine.send_async(b"room", timeout=0)

        room = type(mine._outbound.room)
        waiting = asyncio.ensure_future(mine.send_async(b"late", timeout=0.05))
        await asyncio.sleep(0)
        assert isinstance(mine._outbound.room, room)
        theirs._inbound.messages.popleft()
        await waiting

    asyncio.run(send_late())
    assert list(theirs._inbound.messages) == [b"room", b"late"]


def test_the_number_of_a_thread_that_ended_is_not_taken_for_the_pump(full_event):
    mine, _theirs = full_event.pair()
    full_event.client_pump.stop()
    assert full_event.client_pump.thread_id is None
    with pytest.raises(Closed):
        mine.send_wait(b"late")
