"""Lane: the narrow places of its races, made wide, and the count of bytes.

Rule 1: a message whose `offer` returned True is taken or seized. Rule 2: one whose `offer`
returned False or None is neither.
"""

import contextlib
import sys
import threading
from collections import deque

from hocket.local.lane import Lane
from tests.support.threads import Running


class Overtaken(deque):
    """Something happens just before, or just after, a message is appended."""

    def __init__(self, before=None, after=None):
        super().__init__()
        self.before = before
        self.after = after

    def append(self, message):
        before, self.before = self.before, None
        after, self.after = self.after, None
        if before:
            before()
        super().append(message)
        if after:
            after()


def test_an_offer_overtaken_by_the_end_is_refused_and_leaves_nothing():
    lane = Lane()

    def end():
        lane.close()
        assert lane.finish() is True

    lane.messages = Overtaken(before=end)
    assert lane.offer(b"late") is False
    assert list(lane.messages) == []


def test_an_offer_overtaken_by_a_seizure_is_refused_and_leaves_nothing():
    lane = Lane()
    lane.messages = Overtaken(before=lambda: seized.extend(lane.seize()))
    seized = []
    assert lane.offer(b"late") is False
    assert seized == list(lane.messages) == []


def test_an_offer_seized_before_it_returns_was_taken():
    lane = Lane()
    seized = []
    lane.messages = Overtaken(after=lambda: seized.extend(lane.seize()))
    assert lane.offer(b"just in time") is True
    assert seized == [b"just in time"]


def test_an_offer_that_a_close_overtakes_is_taken_while_the_lane_is_not_finished():
    lane = Lane()
    lane.messages = Overtaken(before=lane.close)
    assert lane.offer(b"just in time") is True
    assert lane.finish() is False
    assert lane.messages.popleft() == b"just in time"
    assert lane.finish() is True


def test_only_the_very_object_is_withdrawn():
    lane = Lane()
    twin = bytes(bytearray(b"equal"))
    mine = bytes(bytearray(b"equal"))

    def end():
        lane.seize()
        deque.append(lane.messages, twin)  # another thread stands at the same place

    lane.messages = Overtaken(before=end)
    assert lane.offer(mine) is False
    assert [id(message) for message in lane.messages] == [id(twin)]


def test_after_close_nothing_is_offered_and_after_seizing_nothing_is_left():
    lane = Lane(messages_max=2)
    assert [lane.offer(b"1"), lane.offer(b"2"), lane.offer(b"3")] == [True, True, None]
    lane.close()
    assert lane.offer(b"4") is False
    assert lane.seize() == [b"1", b"2"]
    assert lane.seize() == []
    assert lane.offer(b"5") is False


def test_a_taker_that_races_with_a_seizure_has_the_oldest_messages():
    """Else it would get a message before ones that are reported as undelivered."""
    messages = [b"%d" % number for number in range(20_000)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(40):
            lane = Lane(messages_max=len(messages))
            for message in messages:
                lane.offer(message)
            taken, begun = [], threading.Event()

            def take(lane=lane, taken=taken, begun=begun):
                begun.set()
                with contextlib.suppress(IndexError):
                    while True:
                        taken.append(lane.messages.popleft())

            with Running(take) as taking:
                begun.wait(10)
                seized = lane.seize()
                taking.result()
            assert taken + seized == messages
    finally:
        sys.setswitchinterval(before)


def test_small_and_large_messages_together_keep_to_the_limit_of_bytes():
    lane = Lane(messages_max=10, bytes_max=1000)  # an equal share is 100 bytes
    large, small = bytes(600), bytes(90)
    assert lane.offer(large) is True
    assert [lane.offer(small) for _ in range(5)] == [True, True, True, True, None]
    assert lane.offer(large) is None
    assert lane.messages.popleft() is large
    lane.taken(large)
    assert [lane.offer(small) for _ in range(6)] == [True] * 6
    assert lane.offer(small) is None  # ten messages
    for _ in range(10):
        lane.taken(lane.messages.popleft())
    assert lane.offer(bytes(5000)) is True  # alone, any size
    assert lane.offer(b"") is None
