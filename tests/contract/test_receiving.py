"""Messages go to the listener, or wait for `receive`; pausing is the back-pressure."""

import asyncio
from array import array

import pytest

from hocket.errors import BusyResource, Closed, OutOfRange, ReadOnlyBuffer, Timeout, WrongType
from hocket.local import MessageListener
from tests.support.queues.listeners import History
from tests.support.queues.worlds import drain, numbered
from tests.support.threads import Running, until


def test_without_a_listener_messages_wait_for_receive(world):
    mine, theirs = world.pair()
    assert theirs.receive() is None
    for message in numbered(3):
        mine.send(message)
    got = []
    until(lambda: (message := theirs.receive()) is not None and got.append(message) is None)
    until(lambda: (message := theirs.receive()) is not None and got.append(message) is None)
    assert theirs.receive_wait(timeout=10) == b"2"
    assert got == numbered(2)
    assert theirs.receive() is None


def test_an_empty_message_is_not_none(world):
    mine, theirs = world.pair()
    mine.send(b"")
    got = []
    until(lambda: (message := theirs.receive()) is not None and got.append(message) is None)
    assert got == [b""]
    mine.send(b"")
    assert theirs.receive_wait(timeout=10) == b""


def test_messages_that_waited_go_to_the_listener_when_it_is_set(world):
    mine, theirs = world.pair()
    for message in numbered(5):
        mine.send(message)
    assert theirs.receive_wait(timeout=10) == b"0"
    history = History()
    theirs.set_listener(history)
    for message in numbered(5, start=5):
        mine.send(message)
    until(lambda: len(history.messages) == 9)
    assert history.events == [("received", message) for message in numbered(9, start=1)]


def test_with_a_listener_set_receive_returns_none_and_waiting_is_refused(world):
    mine, theirs = world.pair()
    history = History()
    theirs.set_listener(history)
    mine.send(b"x")
    assert theirs.receive() is None
    with pytest.raises(BusyResource):
        theirs.receive_wait(timeout=10)
    with pytest.raises(BusyResource):
        next(iter(theirs))
    until(lambda: history.messages == [b"x"])


def test_setting_no_listener_pauses_delivery_and_gives_receive_back(world):
    mine, theirs = world.pair()
    first, second = History(), History()
    theirs.set_listener(first)
    mine.send(b"to the first")
    until(lambda: first.messages)
    theirs.set_listener(None)
    world.settle()
    for message in (b"waits", b"waits too"):
        mine.send(message)
    world.settle()
    assert theirs.receive_wait(timeout=10) == b"waits"
    theirs.set_listener(second)
    mine.send(b"to the second")
    until(lambda: len(second.messages) == 2)
    assert first.messages == [b"to the first"]
    assert second.messages == [b"waits too", b"to the second"]


def test_no_listener_means_back_pressure_on_the_sender(world):
    mine, theirs = world.pair(messages_max=4)
    theirs.set_listener(History())
    theirs.set_listener(None)
    sent = []
    while mine.send(message := b"%08d" % len(sent) + bytes(1 << 20)):
        sent.append(message)
        assert len(sent) < 20
    history = History()
    theirs.set_listener(history)
    until(lambda: len(history.messages) == len(sent))
    assert history.messages == sent


def test_a_paused_listener_receives_nothing_until_it_is_resumed(world):
    mine, theirs, _, history = world.heard_pair()
    mine.send(b"before")
    until(lambda: history.messages == [b"before"])
    theirs.pause()
    theirs.pause()
    world.settle()
    for message in numbered(4):
        mine.send(message)
    world.settle()
    assert history.messages == [b"before"]
    assert theirs.receive() is None  # there is a listener: the messages are its
    theirs.resume()
    theirs.resume()
    until(lambda: len(history.messages) == 5)
    assert history.messages == [b"before", *numbered(4)]


def test_a_paused_listener_still_hears_of_what_it_sent(world):
    mine, _theirs, history, _ = world.heard_pair()
    mine.pause()
    for message in numbered(3):
        mine.send(message)
    until(lambda: len(history.handed_over) == 3)
    assert history.events == [("sent", message) for message in numbered(3)]


def test_pausing_from_inside_received_stops_with_that_message(world):
    mine, theirs = world.pair()
    history = History(on_received=lambda message: theirs.pause())
    theirs.set_listener(history)
    for message in numbered(5):
        mine.send(message)
    for count in range(1, 6):
        until(lambda count=count: len(history.messages) == count)
        world.settle()
        assert history.messages == numbered(count)
        theirs.resume()


def test_pausing_holds_back_the_end_too_while_messages_wait(world):
    mine, theirs, my_history, their_history = world.heard_pair()
    theirs.pause()
    world.settle()
    for message in numbered(3):
        mine.send(message)
    mine.close()
    world.settle()
    assert their_history.events == []
    assert my_history.reasons == []
    theirs.resume()
    until(lambda: their_history.reasons and my_history.reasons)
    expected = [("received", message) for message in numbered(3)]
    assert their_history.events == [*expected, ("closed", None)]


def test_a_listener_replaced_from_inside_received_gets_no_more(world):
    mine, theirs = world.pair()
    second = History()
    first = History(on_received=lambda m: m == b"2" and theirs.set_listener(second))
    theirs.set_listener(first)
    for message in numbered(6):
        mine.send(message)
    until(lambda: len(first.messages) + len(second.messages) == 6)
    assert first.messages == numbered(3)
    assert second.messages == numbered(3, start=3)


def test_listeners_replaced_midstream_get_every_message_once_and_in_order(world):
    mine, theirs = world.pair()
    messages = numbered(400)
    sender = world.thread(lambda: [mine.send_wait(message, timeout=10) for message in messages])
    order = []
    histories = [History(on_received=order.append) for _ in range(20)]
    for turn, history in enumerate(histories):
        theirs.set_listener(history)
        until(lambda turn=turn: len(order) >= turn * 20)
    sender.result()
    until(lambda: len(order) == 400)
    assert order == messages
    assert sorted(int(m) for history in histories for m in history.messages) == list(range(400))


def test_the_listener_set_last_hears_of_the_end(world):
    mine, theirs = world.pair()
    first, second = History(), History()
    theirs.set_listener(first)
    theirs.set_listener(second)
    mine.send(b"x")
    mine.close()
    until(lambda: second.reasons)
    world.settle()
    assert second.events == [("received", b"x"), ("closed", None)]
    assert first.events == []


def test_the_end_waits_for_the_next_listener(world):
    mine, theirs = world.pair()
    mine.close()
    until(lambda: theirs.closed)
    world.settle()
    history = History()
    theirs.set_listener(history)
    until(lambda: history.events)
    world.settle()
    assert history.events == [("closed", None)]
    late = History()
    theirs.set_listener(late)  # once: it has been told
    world.settle()
    assert late.events == []


@pytest.mark.parametrize("missing", ["sent", "writable", "closed"])
def test_an_event_whose_method_is_missing_is_not_told(world, missing):
    mine, theirs = world.pair(messages_max=2)

    class Partial:
        def __init__(self, history):
            self.history = history

        def __getattr__(self, name):
            if missing == name:
                raise AttributeError(name)
            return getattr(self.history, name)

    at_mine, at_theirs = History(), History()
    mine.set_listener(Partial(at_mine))
    theirs.set_listener(Partial(at_theirs))
    for message in numbered(20):
        world.thread(mine.send_wait, message, 10).result()
    mine.close()
    until(lambda: mine.closed and theirs.closed)
    until(lambda: mine_ended(world, mine, theirs))
    world.settle()
    assert at_theirs.messages == numbered(20)
    expected = [] if missing == "closed" else [None]
    assert at_theirs.reasons == at_mine.reasons == expected


class HearsTheEnd:
    """Has no `received`."""

    def __init__(self):
        self.reasons = []

    def closed(self, reason):
        self.reasons.append(reason)


class InheritsReceived(HearsTheEnd, MessageListener):
    """Has the `received` that does nothing."""


@pytest.mark.parametrize("listener", [HearsTheEnd, InheritsReceived])
def test_messages_wait_for_receive_if_the_listener_does_nothing_with_them(world, listener):
    mine, theirs = world.pair()
    for message in numbered(2):
        mine.send(message)
    ending = listener()
    theirs.set_listener(ending)
    for message in numbered(3, start=2):
        mine.send(message)
    mine.close()
    world.settle()
    assert ending.reasons == []  # held back until the messages were taken
    assert drain(theirs, 3) == numbered(3)
    got = []
    until(lambda: (message := theirs.receive()) is not None and got.append(message) is None)
    assert got == [b"3"]
    theirs.pause()  # there is nothing to hold back
    theirs.resume()
    assert asyncio.run(theirs.receive_async(timeout=10)) == b"4"
    until(lambda: ending.reasons == [None])
    with pytest.raises(Closed):
        theirs.receive()


def test_a_reader_that_waits_goes_on_waiting_beside_a_listener_without_received(world):
    mine, theirs = world.pair()
    theirs.set_listener(HearsTheEnd())
    with Running(theirs.receive_wait, 20) as reader:
        reader.parked()
        theirs.set_listener(HearsTheEnd())
        mine.send(b"x")
        assert reader.result() == b"x"
    history = History()
    theirs.set_listener(history)
    mine.send(b"y")
    until(lambda: history.messages == [b"y"])


def test_a_listener_that_lost_its_method_loses_no_message(world):
    mine, theirs = world.pair()

    class Forgetful(HearsTheEnd):
        def __init__(self):
            super().__init__()
            self.received = lambda message: None

    listener = Forgetful()
    theirs.pause()
    theirs.set_listener(listener)
    del listener.received
    mine.send(b"x")
    theirs.resume()
    until(lambda: world.errors)
    theirs.set_listener(None)
    assert drain(theirs, 1) == [b"x"]
    world.settle()
    assert {type(error) for error in world.errors} == {AttributeError}  # one for each look
    world.errors.clear()


def mine_ended(world, *queues):
    live = [q for name in ("client", "server") for q in world.find(name).queues]
    return not any(queue in live for queue in queues)


def test_receive_wait_waits_for_a_message(world):
    mine, theirs = world.pair()
    worker = world.thread(theirs.receive_wait, 10).parked()
    mine.send(b"x")
    assert worker.result() == b"x"


def test_receive_wait_times_out_and_the_message_after_that_is_not_lost(world):
    mine, theirs = world.pair()
    for timeout in (0, 0.01):
        with pytest.raises(Timeout):
            theirs.receive_wait(timeout=timeout)
    mine.send(b"x")
    assert theirs.receive_wait(timeout=10) == b"x"


def test_many_threads_in_receive_wait_share_the_messages(world):
    mine, theirs = world.pair()
    readers = [world.thread(drain, theirs, 20) for _ in range(8)]
    for message in numbered(160):
        mine.send_wait(message, timeout=10)
    shares = [reader.result() for reader in readers]
    assert sorted(int(m) for share in shares for m in share) == list(range(160))
    for share in shares:
        assert sorted(share, key=int) == share


def test_a_loop_over_a_queue_ends_quietly_after_a_graceful_close(world):
    mine, theirs = world.pair()
    reader = world.thread(list, theirs)
    for message in numbered(10):
        mine.send(message)
    mine.close()
    assert reader.result() == numbered(10)


def test_a_loop_over_a_queue_raises_closed_after_an_abort(world):
    mine, theirs = world.pair()
    got = []

    def read():
        for message in theirs:
            got.append(message)

    reader = world.thread(read)
    mine.send(b"x")
    until(lambda: got == [b"x"])
    mine.abort()
    with pytest.raises(Closed):
        reader.result()


@pytest.mark.parametrize("end", ["close", "abort", "their close", "their abort"])
def test_receive_wait_is_woken_by_the_end(world, end):
    mine, theirs = world.pair()
    blocked = [world.thread(mine.receive_wait, 20).parked() for _ in range(3)]
    queue = theirs if end.startswith("their") else mine
    getattr(queue, end.removeprefix("their "))()
    for reader in blocked:
        reader.failure(Closed)


# --- into a buffer -------------------------------------------------------------------------------


def receive_into(queue, buffer):
    """`receive(buffer)` of a message that is on its way."""
    return until(lambda: (length := queue.receive(buffer)) is not None and (length,))[0]


def receive_wait_into(queue, buffer):
    return queue.receive_wait(10, buffer=buffer)


def receive_async_into(queue, buffer):
    return asyncio.run(queue.receive_async(10, buffer=buffer))


FORMS = [receive_into, receive_wait_into, receive_async_into]


@pytest.mark.parametrize("form", FORMS)
def test_a_message_is_received_into_a_buffer_and_its_length_returned(world, form):
    mine, theirs = world.pair()
    for message in (b"four", b"", b"12345678", array("H", [1, 2])):
        mine.send(message)
    buffer = bytearray(b"........")
    lengths = [form(theirs, buffer)]
    assert buffer == b"four...."
    lengths.append(form(theirs, buffer))
    assert buffer == b"four...."
    lengths.append(form(theirs, memoryview(buffer)))
    assert buffer == b"12345678"
    lengths.append(form(theirs, buffer))
    assert buffer[:4] == array("H", [1, 2]).tobytes()
    assert lengths == [4, 0, 8, 4]
    assert theirs.receive(buffer) is None
    with pytest.raises(Timeout):
        theirs.receive_wait(0, buffer=buffer)


@pytest.mark.parametrize("form", FORMS)
def test_a_message_that_does_not_fit_the_buffer_stays(world, form):
    mine, theirs = world.pair()
    mine.send(b"five.")
    mine.send(b"two")
    buffer = bytearray(4)
    for _ in range(2):
        with pytest.raises(OutOfRange, match="5 bytes"):
            form(theirs, buffer)
    assert buffer == bytes(4)
    larger = bytearray(5)
    assert form(theirs, larger) == 5
    assert larger == b"five."
    assert form(theirs, buffer) == 3


def test_receiving_into_a_buffer_waits_reports_and_ends_as_without_one(world):
    mine, theirs = world.pair(messages_max=2)
    history = History()
    mine.set_listener(history)
    buffer = bytearray(10)
    with Running(theirs.receive_wait, 20, buffer=buffer) as reader:
        reader.parked()
        mine.send(b"woken")
        assert reader.result() == 5
    until(lambda: history.handed_over == [b"woken"])
    sender = world.thread(lambda: [mine.send_wait(message, 10) for message in numbered(40)])
    got = []
    for _ in range(40):
        length = theirs.receive_wait(10, buffer=buffer)
        got.append(bytes(buffer[:length]))
    sender.result()
    assert got == numbered(40)
    mine.send_wait(b"the last", 10)
    mine.close()
    assert theirs.receive_wait(10, buffer=buffer) == 8
    until(lambda: history.reasons == [None])
    for form in FORMS:
        with pytest.raises(Closed):
            form(theirs, buffer)


@pytest.mark.parametrize("form", FORMS)
def test_what_cannot_be_filled_is_refused_and_the_message_stays(world, form):
    mine, theirs = world.pair()
    mine.send(b"x")
    for wrong, error in ((bytes(4), ReadOnlyBuffer), ("text", WrongType), (5, WrongType)):
        with pytest.raises(error):
            form(theirs, wrong)
    assert drain(theirs, 1) == [b"x"]


def test_with_a_listener_set_a_buffer_gets_nothing(world):
    mine, theirs, _, history = world.heard_pair()
    mine.send(b"x")
    buffer = bytearray(4)
    assert theirs.receive(buffer) is None
    with pytest.raises(BusyResource):
        theirs.receive_wait(10, buffer=buffer)
    until(lambda: history.messages == [b"x"])
    assert buffer == bytes(4)


def test_threads_with_and_without_buffers_share_the_messages(world):
    mine, theirs = world.pair()

    def fill(count):
        buffer, got = bytearray(8), []
        for _ in range(count):
            length = theirs.receive_wait(10, buffer=buffer)
            got.append(bytes(buffer[:length]))
        return got

    readers = [world.thread(work, 20) for work in [fill] * 4 + [lambda n: drain(theirs, n)] * 4]
    for message in numbered(160):
        mine.send_wait(message, timeout=10)
    shares = [reader.result() for reader in readers]
    assert sorted(int(m) for share in shares for m in share) == list(range(160))
    for share in shares:
        assert sorted(share, key=int) == share


def test_a_message_received_into_a_buffer_makes_room(full_event):
    mine, theirs = full_event.pair(messages_max=2)
    history = History()
    mine.set_listener(history)
    taken = 0
    while mine.send(b"x"):
        taken += 1
    buffer = bytearray(1)
    for _ in range(taken):
        receive_into(theirs, buffer)
    until(lambda: history.writables == 1)
    assert mine.send(b"y") is True
