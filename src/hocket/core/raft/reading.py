"""Reads that see everything committed before they were asked (ReadIndex, dissertation 6.4).

A leader answers with its commit index, once a majority has confirmed, after the question, that it
still follows. Rule: reads and confirmations are told apart by numbers of our own, never by what the
caller gives: a caller may repeat itself, and an old answer must not stand for a new question.
"""

from __future__ import annotations

from dataclasses import dataclass

from hocket.core.raft.events import ReadAsked


@dataclass(slots=True)
class Read:
    """Asked here (`token`), or by a follower (`asker` and `number`)."""

    asker: str  # "": this node
    token: object
    number: int = 0
    index: int = 0  # the commit index when it was taken on


class Reads:
    """The reads that a leader has not answered yet.

    One round of confirmations is under way at a time. Reads that come meanwhile share the next one,
    so that a round costs the same for one read and for a thousand.
    """

    __slots__ = ("_early", "_next", "_waiting", "round")

    def __init__(self) -> None:
        self.round = 0  # the round that is under way, or was the last one
        self._early: list[Read] = []  # before the leader has committed an entry of its term
        self._waiting: list[Read] = []  # for that round to be confirmed
        self._next: list[Read] = []  # for the next one

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def postpone(self, read: Read) -> None:
        self._early.append(read)

    def take_early(self) -> list[Read]:
        early, self._early = self._early, []
        return early

    def take(self, read: Read, commit: int) -> None:
        read.index = commit
        self._next.append(read)

    def begin(self) -> bool:
        """Whether a round begins with this: it is to be confirmed by all voters."""
        if self._waiting or not self._next:
            return False
        self.round += 1
        self._waiting, self._next = self._next, []
        return True

    def confirmed(self) -> list[Read]:
        """A majority has confirmed the round: the reads that can be answered."""
        ready, self._waiting = self._waiting, []
        return ready

    def drop(self) -> list[Read]:
        return [*self._early, *self._waiting, *self._next]


class Forwarded:
    """The reads that a follower has handed on to its leader."""

    __slots__ = ("_asked", "_next")

    def __init__(self, life: int) -> None:
        self._next = life << 32  # an answer to a former life of this node is for none of our reads
        self._asked: dict[int, ReadAsked] = {}

    def add(self, asked: ReadAsked) -> int:
        self._next += 1
        self._asked[self._next] = asked
        return self._next

    def take(self, number: int) -> ReadAsked | None:
        return self._asked.pop(number, None)

    def open(self) -> list[int]:
        """The numbers of those that are not answered."""
        return list(self._asked)

    def drop(self) -> list[ReadAsked]:
        asked = list(self._asked.values())
        self._asked.clear()
        return asked
