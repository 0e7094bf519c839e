"""The messages on their way to another process count once, whoever moves them meanwhile."""

from collections import deque

import pytest

from hocket.remote.outbound_lane import OutboundLane


class Uncorked:
    corked = False

    def push(self) -> None:
        """Nobody writes here: the lanes' messages are moved by hand."""


class MovedAtALook(deque):  # type: ignore[type-arg]
    """Messages of which another thread moves all, right after or before a look at their number."""

    lane: OutboundLane

    def __len__(self) -> int:
        seen = super().__len__()
        while super().__len__():
            self.lane.in_flight.append(self.popleft())
        return seen


class MovedBeforeALook(MovedAtALook):
    def __len__(self) -> int:
        super().__len__()
        return super().__len__()


def lane_with(messages: deque[bytes], messages_max: int) -> OutboundLane:
    lane = OutboundLane(messages_max, 1 << 20)
    lane.connection = Uncorked()  # type: ignore[assignment]
    lane.messages = messages
    if isinstance(messages, MovedAtALook):
        messages.lane = lane
    return lane


@pytest.mark.parametrize("kind", [deque, MovedAtALook, MovedBeforeALook])
def test_there_is_room_up_to_the_limit_and_not_beyond_it(kind):
    held = kind([b"x"] * 6)
    lane = lane_with(held, 10)
    accepted = []
    for _ in range(8):
        accepted.append(lane.offer(b"y"))
    assert accepted == [True] * 4 + [None] * 4
    assert deque.__len__(held) + len(lane.in_flight) == 10


@pytest.mark.parametrize("kind", [deque, MovedAtALook, MovedBeforeALook])
def test_a_message_fits_as_long_as_there_is_room(kind):
    lane = lane_with(kind([b"x"] * 9), 10)
    assert lane.fits(b"y")
    lane.offer(b"y")
    assert not lane.fits(b"y")


@pytest.mark.parametrize("kind", [deque, MovedAtALook, MovedBeforeALook])
def test_half_a_lane_is_room_to_speak_of(kind):
    assert lane_with(kind([b"x"] * 5), 10).has_room()
    assert not lane_with(kind([b"x"] * 6), 10).has_room()
