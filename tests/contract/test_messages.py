"""What goes in comes out: order, sizes, types, ownership, and what `sent` tells."""

import random
from array import array

import pytest

from hocket.errors import WrongType
from tests.support.queues.listeners import History, Source
from tests.support.queues.worlds import drain, numbered
from tests.support.threads import until


def test_messages_arrive_in_order_in_both_directions_on_the_receivers_pump(world):
    mine, theirs, my_history, their_history = world.heard_pair()
    there, back = numbered(500), numbered(500, start=1000)
    for forth, reply in zip(there, back, strict=True):
        assert mine.send(forth) is True
        assert theirs.send(reply) is True
    until(lambda: len(their_history.messages) == 500 and len(my_history.messages) == 500)
    until(lambda: len(their_history.handed_over) == 500 and len(my_history.handed_over) == 500)
    assert their_history.messages == there
    assert my_history.messages == back
    assert my_history.handed_over == there
    assert their_history.handed_over == back
    assert my_history.threads <= world.listening_threads(world.client_pump)
    assert their_history.threads <= world.listening_threads(world.server_pump)


def test_the_two_directions_do_not_wait_for_each_other(world):
    mine, theirs = world.pair(messages_max=4)
    while theirs.send(b"nobody reads this"):
        pass
    mine.send(b"but this")
    assert theirs.receive_wait(timeout=10) == b"but this"


def test_a_thousand_more_messages_than_fit_arrive_in_order(world):
    mine, theirs = world.pair(messages_max=16)
    messages = numbered(1500)
    history = History()
    theirs.set_listener(history)
    source = Source(mine, messages)
    source.start(world.client_pump)
    until(lambda: len(history.messages) == len(messages))
    assert history.messages == messages
    until(lambda: len(source.handed_over) == len(messages))
    assert source.handed_over == messages


SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 255, 256, 4095, 4096, 65535, 65536, 65537]
SIZES += [(1 << 20) - 9, (1 << 20) - 8, (1 << 20) - 4, (1 << 20) - 1, 1 << 20, (1 << 20) + 1]
SIZES += [3 << 20, 0, 0, 1]


def test_messages_of_every_size_arrive_whole(world):
    mine, theirs = world.pair()
    rng = random.Random("sizes")
    block = rng.randbytes(1 << 20)
    messages = [(block * (size // len(block) + 1))[:size] for size in SIZES]
    assert [len(message) for message in messages] == SIZES
    sender = world.thread(lambda: [mine.send_wait(message, timeout=10) for message in messages])
    assert drain(theirs, len(messages)) == messages
    sender.result()


def test_messages_of_random_sizes_both_ways_at_once(two_pumps):
    world = two_pumps
    rng = random.Random("both ways")
    mine, theirs, my_history, their_history = world.heard_pair()
    there = [rng.randbytes(rng.choice([0, 1, 100, 70_000, 400_000])) for _ in range(60)]
    back = [rng.randbytes(rng.choice([0, 1, 100, 70_000, 400_000])) for _ in range(60)]
    forth = world.thread(lambda: [mine.send_wait(message, timeout=10) for message in there])
    reply = world.thread(lambda: [theirs.send_wait(message, timeout=10) for message in back])
    forth.result()
    reply.result()
    until(lambda: len(their_history.messages) == 60 and len(my_history.messages) == 60)
    assert their_history.messages == there
    assert my_history.messages == back


def test_a_message_of_200_mb_passes_through_a_full_event_queue_as_it_is(full_event):
    mine, theirs = full_event.pair()
    huge = bytearray(200 << 20)
    assert mine.send(huge) is True
    assert theirs.receive_wait(timeout=10) is huge
    assert len(huge) == 200 << 20


def test_a_message_larger_than_every_buffer_arrives_whole(two_pumps):
    mine, theirs = two_pumps.pair(bytes_max=1 << 20)
    huge = random.Random("huge").randbytes(1 << 16) * (32 << 4)  # 32 MiB
    after = b"the next one"
    assert mine.send(huge) is True
    sender = two_pumps.thread(lambda: mine.send_wait(after, timeout=20))
    assert theirs.receive_wait(timeout=20) == huge
    assert theirs.receive_wait(timeout=20) == after
    sender.result()


def bytes_like():
    backing = bytearray(b"0123456789")
    return [
        b"bytes",
        bytearray(b"bytearray"),
        memoryview(b"memoryview"),
        memoryview(backing)[2:7],
        memoryview(backing),
        array("B", b"array of bytes"),
        array("Q", [1, 2, 1 << 60]),
        memoryview(array("I", [7, 8, 9])),
        array("d"),
        bytearray(),
    ]


def content(message):
    return memoryview(message).tobytes()


def test_any_bytes_like_object_is_a_message(world):
    mine, _theirs, my_history, their_history = world.heard_pair()
    messages = bytes_like()
    for message in messages:
        assert mine.send(message) is True
    until(lambda: len(their_history.messages) == len(messages))
    assert [content(got) for got in their_history.messages] == [content(m) for m in messages]
    until(lambda: len(my_history.handed_over) == len(messages))
    assert [content(got) for got in my_history.handed_over] == [content(m) for m in messages]


def test_full_event_queues_hand_over_the_very_same_object(full_event):
    mine, _theirs, my_history, their_history = full_event.heard_pair()
    messages = bytes_like()
    for message in messages:
        mine.send(message)
    until(lambda: len(my_history.handed_over) == len(messages))
    assert [id(got) for got in their_history.messages] == [id(message) for message in messages]
    assert [id(got) for got in my_history.handed_over] == [id(message) for message in messages]


def test_mixed_queues_deliver_bytes(mixed):
    mine, theirs = mixed.pair()
    messages = bytes_like()
    for message in messages:
        mine.send(message)
    got = drain(theirs, len(messages))
    assert [type(message) for message in got] == [bytes] * len(messages)
    assert got == [content(message) for message in messages]


def test_an_object_may_be_sent_twice_and_back(full_event):
    mine, theirs = full_event.pair()
    message = bytearray(b"ball")
    for _ in range(3):
        mine.send(message)
        theirs.send(message)
    assert all(got is message for got in drain(theirs, 3) + drain(mine, 3))


def test_sent_comes_once_the_receiver_has_taken_the_message(full_event):
    mine, theirs = full_event.pair()
    history = History()
    mine.set_listener(history)
    messages = numbered(3)
    for message in messages:
        mine.send(message)
    full_event.settle()
    assert history.events == []
    for taken, message in enumerate(messages, start=1):
        assert theirs.receive_wait(timeout=10) == message
        until(lambda taken=taken: len(history.events) == taken)
    assert history.events == [("sent", message) for message in messages]


def test_sent_comes_for_a_mixed_message_that_nobody_has_taken_yet(mixed):
    mine, theirs = mixed.pair()
    history = History()
    mine.set_listener(history)
    messages = numbered(3)
    for message in messages:
        mine.send(message)
    until(lambda: len(history.events) == 3)
    assert history.events == [("sent", message) for message in messages]
    assert drain(theirs, 3) == messages


NOT_MESSAGES = [None, "text", 5, 1.5, [1, 2], (b"x",), object(), True]


@pytest.mark.parametrize("wrong", NOT_MESSAGES, ids=lambda wrong: type(wrong).__name__)
def test_what_is_not_bytes_like_is_refused_and_nothing_is_changed(world, wrong):
    mine, theirs = world.pair()
    with pytest.raises(WrongType):
        mine.send(wrong)
    with pytest.raises(WrongType):
        mine.send_wait(wrong, timeout=10)
    mine.send(b"after")
    assert theirs.receive_wait(timeout=10) == b"after"
    assert theirs.receive() is None


def test_a_wrong_message_is_a_wrong_type_even_when_the_queue_is_closed(world):
    mine, _ = world.pair()
    mine.close()
    with pytest.raises(WrongType):
        mine.send(None)
    assert mine.send(b"x") is False
