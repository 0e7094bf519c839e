"""Messages of a topic are deleted on request: all that lie before an offset of each partition.

It is what retention does, but at once, up to any offset, and whatever indexes still need. Files are
removed as soon as nothing in them is left.
"""

from __future__ import annotations

from functools import partial

from hocket import frames
from hocket.core.origin import Origin
from hocket.core.partition import events
from hocket.core.session.session import Demand, Session
from hocket.errors import OutOfRange
from hocket.frames import unpacked
from hocket.node.requests.operations import Operations
from hocket.node.running.partitions import Hosted
from hocket.node.wiring import Servant, Wiring


class Trimming:
    def __init__(self, wiring: Wiring, operations: Operations) -> None:
        self._wiring = wiring
        self._operations = operations
        # group -> the log starts that are waited for, and the operations that wait
        self._waiting: dict[int, list[tuple[int, Origin]]] = {}

    def servants(self) -> dict[type, Servant]:
        return {frames.DeleteMessages: self._delete_messages}

    def _delete_messages(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.DeleteMessages)
        assert topic is not None
        if len(frame.offsets) != 8 * len(demand.partitions):
            whose = "these are" if frame.partitions else f"topic {topic.name!r} has"
            raise OutOfRange(
                f"{whose} {len(demand.partitions)} partitions: name an offset for each"
            )
        groups = [topic.groups[number] for number in demand.partitions]
        starts = list(zip(groups, unpacked(frame.offsets), strict=True))
        for group, offset in starts:
            core = self._wiring.partitions[group].core
            if offset > core.high_watermark:
                raise OutOfRange(
                    f"partition {core.number} of topic {topic.name!r} ends at "
                    f"{core.high_watermark}, before {offset}"
                )
        later = [
            (group, offset)
            for group, offset in starts
            if offset > self._wiring.partitions[group].core.start
        ]
        for group, _ in later:
            self._wiring.partitions.admit_tidying(group)
        self._forget_deleted()
        finish = partial(self._operations.answer_done, frame.request)
        number = self._operations.begin(connection, topic.name, len(later), finish)
        for group, offset in later:
            origin = Origin(connection, 0, number)
            self._waiting.setdefault(group, []).append((offset, origin))
            hosted = self._wiring.partitions[group]
            self._wiring.partitions.step(hosted, events.MoveLogStart(offset))

    def _forget_deleted(self) -> None:
        """Those who wait for a topic that was deleted were told by that (`Operations`)."""
        held = self._wiring.partitions
        self._waiting = {
            group: waiting
            for group, waiting in self._waiting.items()
            if held.get(group) is not None
        }

    def moved(self, hosted: Hosted) -> None:
        """The log start of this partition has moved, durably."""
        waiting = self._waiting.pop(hosted.group, None)
        if waiting is None:
            return
        left = [each for each in waiting if each[0] > hosted.core.start]
        if left:
            self._waiting[hosted.group] = left
        for offset, origin in waiting:
            if offset <= hosted.core.start:
                self._operations.part_done(origin, hosted.core.number, None)
