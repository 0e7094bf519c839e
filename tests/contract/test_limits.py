"""A queue is bounded: `send` never blocks, and `writable` says when to go on."""

from array import array

import pytest

from hocket.errors import OutOfRange
from tests.support.queues.listeners import History, Source
from tests.support.queues.worlds import MEBIBYTE, capacity, drain, fill, mebibyte, numbered
from tests.support.threads import until


def test_send_returns_false_when_the_queue_is_full_and_the_refused_message_never_arrives(world):
    mine, theirs = world.pair(messages_max=4)
    taken = []
    while mine.send(message := mebibyte(len(taken))):
        taken.append(message)
        assert len(taken) <= capacity(world, 4)
    assert len(taken) >= 4
    assert not mine.closed
    assert drain(theirs, len(taken)) == taken
    world.settle()
    assert theirs.receive() is None


def test_a_full_event_queue_is_full_at_its_limit_of_messages(full_event):
    mine, theirs = full_event.pair(messages_max=4)
    accepted = [mine.send(message) for message in numbered(10)]
    assert accepted[:4] == [True] * 4
    assert accepted[5:] == [False] * 5  # the fifth is the one that may slip in
    count = sum(accepted)
    assert drain(theirs, count) == numbered(count)
    assert theirs.receive() is None


def test_by_default_a_queue_holds_1024_messages(full_event):
    mine, _ = full_event.pair()
    accepted = [mine.send(b"x") for _ in range(1100)]
    assert accepted[:1024] == [True] * 1024
    assert accepted[1025:] == [False] * 75


def test_by_default_a_queue_holds_64_mebibytes(full_event):
    mine, _ = full_event.pair()
    message = bytes(4 * MEBIBYTE)
    accepted = [mine.send(message) for _ in range(20)]
    assert accepted[:16] == [True] * 16
    assert accepted[17:] == [False] * 3


def test_each_direction_has_its_own_room(full_event):
    mine, theirs = full_event.pair(messages_max=2)
    while mine.send(b"there"):
        pass
    assert [theirs.send(b"back"), theirs.send(b"back")] == [True, True]


def test_room_comes_back_as_messages_are_taken(full_event):
    mine, theirs = full_event.pair(messages_max=3)
    sent = []
    while mine.send(message := b"%d" % len(sent)):
        sent.append(message)
    taken = []
    for _ in range(50):
        taken.append(theirs.receive_wait(timeout=10))
        full_event.settle()
        message = b"%d" % len(sent)
        assert mine.send(message) is True
        sent.append(message)
        assert mine.send(b"too many") is False
    assert taken + drain(theirs, len(sent) - len(taken)) == sent


def test_a_queue_is_full_at_its_limit_of_bytes(full_event):
    mine, theirs = full_event.pair(bytes_max=1000)
    accepted = [mine.send(bytes(300)) for _ in range(8)]
    assert accepted[:3] == [True] * 3
    assert accepted[4:] == [False] * 4
    drain(theirs, sum(accepted))
    full_event.settle()
    assert mine.send(bytes(1000)) is True


def test_the_limit_counts_bytes_and_not_items(full_event):
    mine, _ = full_event.pair(bytes_max=1000)
    eight_hundred_bytes = array("Q", [0] * 100)
    assert [mine.send(eight_hundred_bytes) for _ in range(5)][2:] == [False] * 3
    other, _ = full_event.connected(*(full_event.broker(n, bytes_max=1000) for n in "ab"))
    view = memoryview(eight_hundred_bytes)
    assert [other.send(view) for _ in range(5)][2:] == [False] * 3


def test_empty_messages_fill_a_queue_too(full_event):
    mine, _ = full_event.pair(messages_max=3, bytes_max=10)
    assert [mine.send(b"") for _ in range(8)][4:] == [False] * 4


def test_the_byte_limit_holds_in_both_worlds(world):
    mine, theirs = world.pair(bytes_max=2 * MEBIBYTE)
    taken = fill(mine, mebibyte, most=capacity(world, 2))
    assert len(taken) >= 2
    assert drain(theirs, len(taken)) == taken


def test_a_message_over_the_byte_limit_passes_when_the_queue_is_empty(world):
    mine, theirs = world.pair(bytes_max=100)
    for number in range(5):
        big = b"%d" % number * 5000
        assert mine.send_wait(big, timeout=10) is not False
        assert theirs.receive_wait(timeout=10) == big


def test_a_message_over_the_byte_limit_waits_for_a_queue_that_is_not_empty(full_event):
    mine, theirs = full_event.pair(bytes_max=100)
    assert mine.send(b"small") is True
    mine.send(bytes(60))
    assert mine.send(bytes(5000)) is False
    drain(theirs, 2)
    full_event.settle()
    assert mine.send(bytes(5000)) is True
    assert mine.send(b"small") is False


def test_writable_comes_once_for_a_refusal_and_only_then(world):
    mine, theirs = world.pair(messages_max=4)
    history = History()
    mine.set_listener(history)
    taken = fill_until_refused(mine)
    received = []
    for _ in taken:
        received.append(theirs.receive_wait(timeout=10))
    until(lambda: history.writables == 1)
    world.settle()
    assert received == taken
    assert history.writables == 1

    for message in numbered(4):  # there is room now: no refusal, so no writable
        assert mine.send(message) is True
    assert drain(theirs, 4) == numbered(4)
    until(lambda: len(history.handed_over) == len(taken) + 4)
    world.settle()
    assert history.writables == 1


def fill_until_refused(queue):
    taken = []
    while queue.send(message := mebibyte(len(taken))):
        taken.append(message)
    return taken


def test_writable_comes_again_for_the_next_refusal(full_event):
    mine, theirs = full_event.pair(messages_max=2)
    history = History()
    mine.set_listener(history)
    for round_number in range(1, 20):
        while mine.send(b"x"):
            pass
        full_event.settle()
        assert history.writables == round_number - 1  # nothing was taken yet
        while theirs.receive() is not None:
            pass
        # The sender hears of each take by itself, perhaps from another process: it may be told that
        # there is room before it knows of the last one, and then be refused once more for it.
        full_event.settle()
        assert history.writables == round_number


def test_a_refusal_is_answered_even_if_a_later_send_gets_through(full_event):
    mine, theirs = full_event.pair(messages_max=4)
    history = History()
    mine.set_listener(history)

    def insist():
        while not mine.send(b"y"):
            pass

    for _ in range(20):
        before = history.writables
        taken = 0
        while mine.send(b"x"):
            taken += 1
        full_event.settle()
        insisting = full_event.thread(insist)
        theirs.receive_wait(timeout=10)
        insisting.result()
        drain(theirs, taken)
        until(lambda before=before: history.writables > before)


def test_several_refusals_in_a_row_never_give_more_writables_than_refusals(full_event):
    mine, theirs = full_event.pair(messages_max=2)
    history = History()
    mine.set_listener(history)
    accepted = [mine.send(b"x") for _ in range(7)]
    drain(theirs, sum(accepted))
    until(lambda: history.writables)
    full_event.settle()
    assert 1 <= history.writables <= accepted.count(False)


def test_there_is_room_when_writable_is_called(full_event):
    mine, theirs = full_event.pair(messages_max=8)
    results = []
    history = History(on_writable=lambda: results.append(mine.send(b"in writable")))
    mine.set_listener(history)
    while mine.send(b"x"):
        pass
    theirs.set_listener(History())
    until(lambda: results)
    full_event.settle()
    assert results == [True]


def test_a_refusal_without_a_listener_is_told_to_the_next_listener(world):
    mine, theirs = world.pair(messages_max=4)
    taken = fill_until_refused(mine)
    assert drain(theirs, len(taken)) == taken
    world.settle()
    history = History()
    mine.set_listener(history)
    until(lambda: history.writables == 1)
    world.settle()
    assert history.what("writable", "closed") == [("writable",)]


def test_a_remembered_writable_is_told_once_however_many_listeners_follow(world):
    mine, theirs = world.pair(messages_max=4)
    taken = fill_until_refused(mine)
    assert drain(theirs, len(taken)) == taken
    world.settle()
    histories = [History() for _ in range(4)]

    def set_them_all():
        for history in histories:
            mine.set_listener(history)

    world.on_pump(world.client_pump, set_them_all)
    until(lambda: histories[-1].writables)
    world.settle()
    assert [history.writables for history in histories] == [0, 0, 0, 1]


def test_writable_reaches_a_paused_listener(world):
    mine, theirs = world.pair(messages_max=4)
    history = History()
    mine.set_listener(history)
    mine.pause()
    taken = fill_until_refused(mine)
    assert drain(theirs, len(taken)) == taken
    until(lambda: history.writables == 1)


def test_a_source_that_goes_on_at_each_writable_keeps_the_queue_bounded(world):
    mine, theirs = world.pair(messages_max=4)
    messages = [mebibyte(number) for number in range(60)]
    source = Source(mine, messages)
    source.start(world.client_pump)
    until(lambda: source.refusals)
    got = []
    for _ in messages:
        got.append(theirs.receive_wait(timeout=10))
        in_transit = len(messages) - len(source.waiting) - len(got)
        assert in_transit <= capacity(world, 4)
    assert got == messages
    until(lambda: source.writables == source.refusals)


def test_send_on_the_pump_returns_false_and_does_not_wait(world):
    mine, theirs = world.pair(messages_max=4)
    taken = world.on_pump(world.client_pump, lambda: fill_until_refused(mine))
    assert drain(theirs, len(taken)) == taken


@pytest.mark.parametrize("limit", ["messages_max", "bytes_max"])
def test_a_limit_below_one_is_out_of_range(world, limit):
    for wrong in (0, -1):
        with pytest.raises(OutOfRange):
            world.broker("bad", **{limit: wrong})
    assert world.find("bad") is None
