"""`abort` is the forced end: `closed(Aborted)` on both sides, and every message accounted for."""

import random
import threading
import time

import pytest

from hocket.errors import Aborted, Closed
from tests.support.queues.listeners import History
from tests.support.queues.worlds import drain, fill, numbered
from tests.support.threads import until


def reasons_of(*histories):
    until(lambda: all(history.reasons for history in histories))
    reasons = [history.reason for history in histories]
    assert [type(reason) for reason in reasons] == [Aborted] * len(reasons)
    return reasons


def check_mirrored(mine, theirs):
    assert mine.undelivered == theirs.unread
    assert mine.unread == theirs.undelivered


@pytest.mark.parametrize("side", ["mine", "theirs"])
def test_an_abort_ends_both_sides_with_aborted(world, side):
    mine, theirs, my_history, their_history = world.heard_pair()
    (mine if side == "mine" else theirs).abort()
    for reason in reasons_of(my_history, their_history):
        assert reason.undelivered == reason.unread == []
    world.settle()
    assert len(my_history.events) == len(their_history.events) == 1
    assert mine.closed
    assert theirs.closed
    assert mine.send(b"x") is False
    assert theirs.send(b"x") is False


@pytest.mark.parametrize("side", ["mine", "theirs"])
def test_an_abort_tells_each_side_exactly_what_was_not_taken(world, side):
    mine, theirs = world.pair()
    there, back = numbered(10), numbered(7, start=100)
    for message in there:
        assert mine.send(message) is True
    for message in back:
        assert theirs.send(message) is True
    assert drain(theirs, 4) == there[:4]
    assert drain(mine, 2) == back[:2]
    (mine if side == "mine" else theirs).abort()
    my_history, their_history = History(), History()
    mine.set_listener(my_history)
    theirs.set_listener(their_history)
    at_mine, at_theirs = reasons_of(my_history, their_history)
    assert at_mine.undelivered == there[4:]
    assert at_mine.unread == back[2:]
    check_mirrored(at_mine, at_theirs)
    world.settle()
    assert my_history.messages == their_history.messages == []


def test_nothing_is_lost_wherever_it_stood_when_the_abort_came(world):
    """Messages larger than the channel stand in every stage of a mixed queue, one of them torn."""
    mine, theirs = world.pair(messages_max=4)

    def make(number):
        return b"%08d" % number + bytes(700_000)

    there = fill(mine, make, most=40)
    taken = drain(theirs, 1)
    mine.abort()
    my_history, their_history = History(), History()
    mine.set_listener(my_history)
    theirs.set_listener(their_history)
    at_mine, at_theirs = reasons_of(my_history, their_history)
    assert taken + at_mine.undelivered == there
    check_mirrored(at_mine, at_theirs)


def test_the_undelivered_messages_are_the_very_same_objects(full_event):
    mine, theirs = full_event.pair()
    messages = [bytearray(b"same"), memoryview(b"view"), bytearray(b"same")]
    for message in messages:
        mine.send(message)
    history = History()
    mine.set_listener(history)
    theirs.abort()
    (reason,) = reasons_of(history)
    assert [id(message) for message in reason.undelivered] == [id(m) for m in messages]
    assert history.handed_over == []


def test_after_an_abort_receive_raises_closed_because_of_the_abort(world):
    mine, theirs = world.pair()
    mine.send(b"unread")
    theirs.abort()
    until(lambda: mine.closed and theirs.closed)
    for queue in (mine, theirs):
        for call in (queue.receive, queue.receive_wait):
            with pytest.raises(Closed) as caught:
                call()
            assert type(caught.value.__cause__) is Aborted
        with pytest.raises(Closed):
            queue.send_wait(b"x", timeout=10)
    assert theirs_unread(theirs) == [b"unread"]


def theirs_unread(queue):
    with pytest.raises(Closed) as caught:
        queue.receive()
    return caught.value.__cause__.unread


def test_an_abort_reaches_a_paused_listener(world):
    mine, theirs, my_history, their_history = world.heard_pair()
    theirs.pause()
    world.settle()
    mine.send(b"unread")
    theirs.abort()
    at_mine, at_theirs = reasons_of(my_history, their_history)
    assert at_mine.undelivered == at_theirs.unread == [b"unread"]
    assert their_history.messages == []


def test_aborting_twice_or_closing_after_an_abort_tells_nothing_new(world):
    mine, theirs, my_history, their_history = world.heard_pair()
    mine.abort()
    for queue in (mine, theirs, mine):
        queue.abort()
        queue.close()
    reasons_of(my_history, their_history)
    world.settle()
    assert len(my_history.events) == len(their_history.events) == 1


def test_both_sides_aborting_at_once_end_once_with_one_account(two_pumps):
    world = two_pumps
    client, server = world.brokers()
    for count in range(30):
        mine, theirs = world.connected(client, server)
        my_history, their_history = History(), History()
        messages = numbered(count)
        for message in messages:
            mine.send(message)
        theirs.set_listener(their_history)
        mine.set_listener(my_history)
        start = threading.Barrier(2)

        def abort(queue, start=start):
            start.wait(10)
            queue.abort()

        for worker in [world.thread(abort, mine), world.thread(abort, theirs)]:
            worker.result()
        at_mine, at_theirs = reasons_of(my_history, their_history)
        check_mirrored(at_mine, at_theirs)
        assert their_history.messages + at_mine.undelivered == messages
    until(lambda: client.queues == server.queues == [])


def test_abort_from_inside_received_counts_that_message_as_delivered(world):
    mine, theirs = world.pair()
    messages = numbered(10)
    for message in messages:
        mine.send(message)
    my_history = History()
    mine.set_listener(my_history)
    their_history = History(on_received=lambda m: m == b"3" and theirs.abort())
    theirs.set_listener(their_history)
    at_mine, at_theirs = reasons_of(my_history, their_history)
    world.settle()
    assert their_history.messages == numbered(4)
    assert at_mine.undelivered == numbered(6, start=4)
    check_mirrored(at_mine, at_theirs)
    assert their_history.events[-1][0] == my_history.events[-1][0] == "closed"


def test_abort_from_inside_sent_and_writable(world):
    mine, theirs = world.pair(messages_max=4)
    history = History(on_writable=mine.abort)
    mine.set_listener(history)
    sent = []
    while mine.send(message := b"%08d" % len(sent) + bytes(1 << 20)):
        sent.append(message)
    got = []
    until(lambda: take(theirs, got) or history.reasons)
    (reason,) = reasons_of(history)
    assert history.writables == 1
    assert got + reason.undelivered == sent


def take(queue, into):
    try:
        message = queue.receive()
    except Closed:
        return
    if message is not None:
        into.append(message)


def test_nothing_is_told_after_closed(world):
    mine, theirs, my_history, their_history = world.heard_pair()
    for message in numbered(200):
        mine.send(message)
        theirs.send(message)
    until(lambda: their_history.messages)
    mine.abort()
    reasons_of(my_history, their_history)
    lengths = len(my_history.events), len(their_history.events)
    world.settle()
    assert (len(my_history.events), len(their_history.events)) == lengths
    assert my_history.events[-1][0] == their_history.events[-1][0] == "closed"
    at_mine, at_theirs = my_history.reason, their_history.reason
    assert their_history.messages + at_mine.undelivered == numbered(200)
    assert my_history.messages + at_theirs.undelivered == numbered(200)
    check_mirrored(at_mine, at_theirs)


def test_sent_is_told_for_what_was_taken_and_for_nothing_else(full_event):
    mine, theirs = full_event.pair()
    history = History()
    mine.set_listener(history)
    for message in numbered(6):
        mine.send(message)
    assert drain(theirs, 2) == numbered(2)
    theirs.abort()
    (reason,) = reasons_of(history)
    full_event.settle()
    assert history.handed_over == numbered(2)
    assert reason.undelivered == numbered(4, start=2)
    assert history.events[-1] == ("closed", reason)


@pytest.mark.parametrize("seed", range(6))
def test_under_concurrent_sends_every_message_is_received_or_reported(two_pumps, seed):
    """Both ways, from many threads: True means received or `undelivered`, False means neither."""
    world = two_pumps
    rng = random.Random(f"abort/{seed}")
    mine, theirs, my_history, their_history = world.heard_pair(messages_max=rng.choice([4, 1024]))
    senders = 4
    begun = threading.Barrier(2 * senders + 1)

    def work(queue, sender):
        begun.wait(10)
        results = []
        while not queue.closed:
            message = b"%d:%d" % (sender, len(results))
            results.append((message, queue.send(message)))
            if not results[-1][1]:
                # Eight refused threads that spin, or merely yield, pass the GIL among themselves
                # and starve the pumps that would make room; and every refusal is an event for a
                # pump, `writable`, which they must not make faster than it can be told.
                time.sleep(0.005)
        return results

    at_mine = [world.thread(work, mine, sender) for sender in range(senders)]
    at_theirs = [world.thread(work, theirs, sender) for sender in range(senders)]
    begun.wait(10)
    enough = rng.choice([0, 1, 50, 300])
    until(lambda: len(their_history.messages) >= enough)
    rng.choice([mine, theirs]).abort()

    for workers, receiver, sender_side in (
        (at_mine, their_history, my_history),
        (at_theirs, my_history, their_history),
    ):
        outcomes = [worker.result() for worker in workers]
        reason, other = reasons_of(sender_side, receiver)
        check_mirrored(reason, other)
        for sender, outcome in enumerate(outcomes):
            prefix = b"%d:" % sender
            accepted = [message for message, taken in outcome if taken]
            seen = [m for m in receiver.messages + reason.undelivered if m.startswith(prefix)]
            assert seen == accepted
    world.settle()
    assert my_history.events[-1][0] == their_history.events[-1][0] == "closed"


@pytest.mark.parametrize("seed", range(4))
def test_under_concurrent_reads_every_message_is_read_or_reported(two_pumps, seed):
    world = two_pumps
    mine, theirs = world.pair()
    messages = numbered(800)
    for message in messages:
        mine.send_wait(message, timeout=10)

    def read(got):
        while True:
            got.append(theirs.receive_wait(timeout=20))

    shares = [[], [], []]
    readers = [world.thread(read, share) for share in shares]
    until(lambda: sum(map(len, shares)) >= 50 * seed)
    mine.abort()
    for reader in readers:
        reader.failure(Closed)
    history = History()
    mine.set_listener(history)
    (reason,) = reasons_of(history)
    taken = sorted((m for share in shares for m in share), key=int)
    assert taken + reason.undelivered == messages
