"""Messages that a shared index has given up are delivered again, to this index alone.

The dead letter of a message is used up by that, durably and together with the message's coming
back: so a request that is repeated, after a crash say, changes nothing. The message itself is read
from the topic, as it was the first time; so it must still be kept there.

The dead letters may be on another node, which is asked then how many there are.

A message is among the dead letters a little before its index has it settled. Requests that come in
between wait, and are tried again at the end of each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from hocket import frames
from hocket.core.metadata.catalogue import Topic
from hocket.core.session.session import DEAD_LETTERS, Demand, Session, failure
from hocket.errors import Busy, HocketError, OutOfRange, UnknownIndex, UnknownTopic, WrongKind
from hocket.frames import packed, unpacked
from hocket.model import PartitionDescription
from hocket.node.running.partitions import Hosted
from hocket.node.wiring import Servant, Wiring

LETTERS_MAX = 1_000  # in one request
WAITING_MAX = 1_000  # requests


@dataclass(slots=True, eq=False)
class Request:
    connection: int
    frame: frames.Revive
    hosted: Hosted
    letters: list[tuple[int, int]]  # (offset, offset of its dead letter)
    dead_log: int


Told = Callable[[dict[int, PartitionDescription]], None]


class Reviving:
    def __init__(
        self, wiring: Wiring, ask_others: Callable[[Topic, Iterable[int], Told], None]
    ) -> None:
        """`ask_others` has other nodes say what they hold of partitions of a topic."""
        self._wiring = wiring
        self._ask_others = ask_others
        self.waiting: list[Request] = []

    def servants(self) -> dict[type, Servant]:
        return {frames.Revive: self._revive}

    def _revive(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.Revive)
        assert topic is not None
        hosted = self._wiring.partitions[topic.groups[frame.partition]]
        if len(self.waiting) >= WAITING_MAX:
            raise Busy(f"{WAITING_MAX} requests wait for dead letters; try again a little later")
        dead = self._wiring.catalogue.topic(topic.name + DEAD_LETTERS)
        if not 0 <= frame.dead_partition < len(dead.groups):
            raise OutOfRange(f"topic {dead.name!r} has no partition {frame.dead_partition}")
        group = dead.groups[frame.dead_partition]
        request = Request(connection, frame, hosted, _letters(frame), group)
        letters_here = self._wiring.partitions.get(group)
        if letters_here is not None:
            self._begin(request, letters_here.core.high_watermark)
        else:
            told = partial(self._told_end, request, dead)
            self._ask_others(dead, (frame.dead_partition,), told)

    def _told_end(
        self, request: Request, dead: Topic, found: dict[int, PartitionDescription]
    ) -> None:
        number = request.frame.dead_partition
        try:
            if number not in found:
                away = self._wiring.catalogue.unknown_here(dead.homes[number])
                raise Busy(f"partition {number} of topic {dead.name!r}: {away}; try again")
            self._begin(request, found[number].end)
        except HocketError as error:
            self._answer(request, error)

    def _begin(self, request: Request, end: int) -> None:
        last = request.letters[-1][1]
        if last >= end:
            raise OutOfRange(f"the dead letters end at {end}, and there is no {last}")
        if not self._is_done(request):
            self.waiting.append(request)

    def work(self) -> None:
        """Try again what waits. Called each turn and tick."""
        waiting, self.waiting = self.waiting, []
        for request in waiting:
            try:
                if request.connection in self._wiring.sessions and not self._is_done(request):
                    self.waiting.append(request)
            except HocketError as error:
                self._answer(request, error)

    def _is_done(self, request: Request) -> bool:
        """Begin with the request; False: it has to wait. Raises what is wrong with it."""
        frame, hosted = request.frame, request.hosted
        if not self._wiring.partitions.holds(hosted):
            topic = self._wiring.catalogue.topics.get(frame.topic)
            if topic is not None and topic.groups[frame.partition] == hosted.group:
                raise self._wiring.catalogue.no_leader(topic)
            raise UnknownTopic(f"topic {frame.topic!r} was deleted meanwhile")
        cursor = hosted.core.cursors.leading.get(frame.index)
        if cursor is None:
            raise UnknownIndex(f"topic {frame.topic!r} has no index {frame.index!r}")
        if cursor.mode == "own":
            raise WrongKind(
                f"index {frame.index!r} of topic {frame.topic!r} is not shared, and gives nothing "
                "up; to consume messages again put it back with a seek"
            )
        first = min(offset for offset, _ in request.letters)
        last = max(offset for offset, _ in request.letters)
        if first < hosted.core.start or last >= hosted.core.high_watermark:
            raise OutOfRange(
                f"offset {first if first < hosted.core.start else last} of topic {frame.topic!r}, "
                f"partition {frame.partition}, is not kept (any more): there are offsets "
                f"{hosted.core.start} to {hosted.core.high_watermark - 1}. Its dead letter can be "
                "published to the topic again"
            )
        self._wiring.partitions.admit_progress(hosted.group)
        done = partial(self._answer, request)
        return self._wiring.shares.revive(
            hosted, frame.index, request.letters, request.dead_log, done
        )

    def _answer(self, request: Request, outcome: list[tuple[int, int]] | HocketError) -> None:
        number = request.frame.request
        if isinstance(outcome, HocketError):
            answer: frames.Frame = failure(number, outcome)
        else:
            offsets = (offset for start, end in outcome for offset in range(start, end))
            answer = frames.Offsets(number, packed(offsets))
        self._wiring.network.send(request.connection, answer)


def _letters(frame: frames.Revive) -> list[tuple[int, int]]:
    if len(frame.offsets) != len(frame.letters) or len(frame.offsets) % 8:
        raise OutOfRange("as many offsets as dead letters must be named, 8 bytes each")
    offsets, letters = unpacked(frame.offsets), unpacked(frame.letters)
    if not 1 <= len(letters) <= LETTERS_MAX:
        raise OutOfRange(f"1 to {LETTERS_MAX} dead letters can be named, not {len(letters)}")
    if any(later <= earlier for earlier, later in pairwise(letters)):
        raise OutOfRange("the dead letters must be named in their order")
    return list(zip(offsets, letters, strict=True))
