"""`send_wait` waits for room, keeps the order, is woken by the end, and never runs on the pump."""

import pytest

from hocket.errors import Closed, OutOfRange, Timeout, WrongThread
from tests.support.queues.worlds import capacity, drain, fill, mebibyte


def test_send_wait_waits_for_room_and_keeps_the_order(world):
    mine, theirs = world.pair(messages_max=4)
    messages = [mebibyte(number) for number in range(40)]
    progress = []

    def work():
        for message in messages:
            mine.send_wait(message, timeout=20)
            progress.append(message)

    worker = world.thread(work).parked()
    assert 4 <= len(progress) <= capacity(world, 4)
    got = []
    for _ in messages:
        assert len(progress) - len(got) <= capacity(world, 4)
        got.append(theirs.receive_wait(timeout=10))
    worker.result()
    assert got == messages


def test_send_wait_that_times_out_has_not_sent_anything(world):
    mine, theirs = world.pair(messages_max=4)
    taken = fill(mine, mebibyte, most=capacity(world, 4))
    with pytest.raises(Timeout):
        mine.send_wait(b"late", timeout=0.01)
    with pytest.raises(Timeout):
        mine.send_wait(b"later", timeout=0)
    assert drain(theirs, len(taken)) == taken
    mine.send_wait(b"in time", timeout=10)
    assert theirs.receive_wait(timeout=10) == b"in time"


def test_many_threads_in_send_wait_all_get_through(world):
    mine, theirs = world.pair(messages_max=4)
    senders = 8

    def work(sender):
        for number in range(25):
            mine.send_wait(b"%d:%d" % (sender, number) + bytes(100_000), timeout=20)

    workers = [world.thread(work, sender) for sender in range(senders)]
    got = [message[:-100_000] for message in drain(theirs, senders * 25)]
    for worker in workers:
        worker.result()
    for sender in range(senders):
        prefix = b"%d:" % sender
        mine_only = [message for message in got if message.startswith(prefix)]
        assert mine_only == [prefix + b"%d" % number for number in range(25)]


@pytest.mark.parametrize("end", ["close", "abort", "their abort"])
def test_send_wait_is_woken_by_the_end_of_the_queue(world, end):
    mine, theirs = world.pair(messages_max=4)
    taken = fill(mine, mebibyte, most=capacity(world, 4))
    blocked = [world.thread(mine.send_wait, b"never", 20).parked() for _ in range(3)]
    {"close": mine.close, "abort": mine.abort, "their abort": theirs.abort}[end]()
    for sender in blocked:
        sender.failure(Closed)
    if end == "close":
        assert drain(theirs, len(taken)) == taken
        with pytest.raises(Closed):
            theirs.receive_wait(timeout=10)


def test_send_wait_on_a_closed_queue_raises_closed(world):
    mine, _ = world.pair()
    mine.close()
    with pytest.raises(Closed):
        mine.send_wait(b"x", timeout=10)


def test_waiting_on_the_queues_own_pump_is_refused(world):
    mine, theirs = world.pair()
    theirs.send(b"there is something to receive")

    def wrong():
        with pytest.raises(WrongThread):
            mine.send_wait(b"there is room", timeout=1)
        with pytest.raises(WrongThread):
            mine.receive_wait(timeout=1)
        with pytest.raises(WrongThread):
            next(iter(mine))

    world.on_pump(world.client_pump, wrong)
    assert mine.receive_wait(timeout=10) == b"there is something to receive"
    assert theirs.receive() is None


def test_waiting_for_room_on_the_pump_that_has_to_make_it_is_refused(two_pumps):
    mine, theirs = two_pumps.pair(messages_max=4)
    taken = fill(mine, mebibyte, most=capacity(two_pumps, 4))

    def wrong():
        with pytest.raises(WrongThread):
            mine.send_wait(b"x", timeout=1)

    two_pumps.on_pump(two_pumps.server_pump, wrong)
    assert drain(theirs, len(taken)) == taken
    assert theirs.receive() is None


def test_negative_timeouts_are_refused_and_change_nothing(world):
    mine, theirs = world.pair()
    with pytest.raises(OutOfRange):
        mine.send_wait(b"x", timeout=-1)
    with pytest.raises(OutOfRange):
        mine.receive_wait(timeout=-0.5)
    mine.send(b"after")
    assert theirs.receive_wait(timeout=10) == b"after"
