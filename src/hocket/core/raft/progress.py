"""How far one peer has come, as its leader knows it, and what may be sent to it.

There are three paces. PROBING: where its log and ours part is not known; one message at a time,
until it answers. STREAMING: messages follow one another without waiting, as many as may be in
flight. INSTALLING: it lacks entries that are gone here, and was sent a snapshot.

Answers may be old, and come in any order. So only an answer that brings something new makes it
stream, and only the answer to what was asked makes it probe elsewhere: else one answer out of order
has everything in flight sent again, whose answers come out of order, too.
"""

from __future__ import annotations

from collections import deque
from enum import Enum


class Pace(Enum):
    PROBING = "probing"
    STREAMING = "streaming"
    INSTALLING = "installing"


NEVER = -1


class Progress:
    """Invariant: matched < next, and nothing at or below `matched` is ever sent again."""

    __slots__ = (
        "agreed_us",
        "answered",
        "confirmed",
        "heard_us",
        "in_flight",
        "matched",
        "next",
        "pace",
        "peer",
        "probed",
        "sent_us",
        "waits",
    )

    def __init__(self, peer: str, following: int) -> None:
        self.peer = peer
        self.matched = 0  # durable there, and the same as here
        self.next = following  # the next entry to send
        self.pace = Pace.PROBING
        self.waits = False  # while probing: for the answer
        self.probed = following - 1  # while probing: the last entry of the message
        self.in_flight: deque[int] = deque()  # while streaming: the last entry of each message
        self.sent_us = 0  # when the snapshot was sent
        self.heard_us = NEVER  # when it last answered, in this term
        self.answered = NEVER  # what had matched when it last answered a heartbeat
        self.confirmed = 0  # the last round of reads that it has confirmed
        self.agreed_us = NEVER  # it agreed that there was nothing to do since then

    def accepted(self, stored: int, flushed: int) -> bool:
        """It has our entries up to there; whether more of them are durable than was known."""
        if self.pace is Pace.PROBING:
            if stored >= min(self.next, self.probed):
                self._stream(stored)
        elif self.pace is Pace.INSTALLING and stored >= self.next - 1:
            self._stream(stored)
        if stored >= self.next:
            self.next = stored + 1
        in_flight = self.in_flight
        while in_flight and in_flight[0] <= stored:
            in_flight.popleft()
        if flushed <= self.matched:
            return False
        self.matched = flushed
        return True

    def _stream(self, stored: int) -> None:
        self.pace = Pace.STREAMING
        self.waits = False
        self.in_flight.clear()
        self.next = max(stored, self.matched) + 1

    def rejected(self, previous: int, following: int) -> bool:
        """It lacks `previous`; go on at `following`. False: that answer is out of date.

        If it is what was asked, and `previous` was durable there, the peer has lost entries to
        damage since. It must not be counted for what it lost, and gets it again.
        """
        if self.pace is Pace.PROBING:
            if previous != self.next - 1 or (previous == self.matched and not self.waits):
                return False
            self.matched = min(self.matched, following - 1)
        elif previous <= self.matched:
            return False
        self.probe(following)
        return True

    def probe(self, following: int) -> None:
        self.pace = Pace.PROBING
        self.waits = False
        self.in_flight.clear()
        self.next = max(following, self.matched + 1)
        self.probed = self.next - 1

    def install(self, index: int, now_us: int) -> None:
        self.pace = Pace.INSTALLING
        self.next = index + 1
        self.sent_us = now_us
        self.in_flight.clear()

    def sent(self, last: int) -> None:
        """Entries up to `last` were sent, from `next` on."""
        if self.pace is Pace.PROBING:
            self.waits = True
            self.probed = last
        else:
            self.in_flight.append(last)
            self.next = last + 1
