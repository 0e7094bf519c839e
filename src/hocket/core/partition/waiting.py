"""The log in which the delayed messages of a partition wait until they are due.

Rule 1: which messages are released, and in which order, is decided by an entry of this log. The
        leader's clock proposes the entry; whoever applies it looks at no clock. An entry says how
        late it is and how many may go: those due by then, the earliest first, and of those due at
        the same time the one that was published first.
Rule 2: what is released stays in this log, and is not forgotten, until an entry says that it is
        stored in the partition itself. Nothing more is released before that.
Rule 3: the batches that carry released messages to the partition are those of one producer, whose
        id follows from the `life` of this log, numbered without gaps by `sequence`. So after a
        crash the same messages make the same batches, and those stored already are recognised.
Rule 4: a new life begins where that is not so any more, since entries were lost to damage, here or
        there. Only then may a message be stored twice.

Apart from that it is a partition like any other: it gives offsets, which are its own and nobody
else's, and it recognises what producers send again.
"""

from __future__ import annotations

import json
from array import array
from collections import deque
from typing import Any, ClassVar

from hocket.core.partition.due_times import DueTimes
from hocket.core.partition.events import (
    BATCH,
    Append,
    BeginLife,
    Effect,
    Lost,
    MovedOn,
    Release,
    Released,
    Replayed,
)
from hocket.core.partition.partition import Partition, _Pending


class WaitingPartition(Partition):
    def __init__(self, topic: str, number: int, *, durability: str = "quorum") -> None:
        super().__init__(topic, number, durability=durability)
        self.due = DueTimes()  # of committed messages that are not released
        self.released: list[int] = []  # offsets, in the order in which they go
        self.life = 0
        self.sequence = 0  # of the next batch with released messages
        # Appended and not yet committed: entry, base offset, times.
        self._coming: deque[tuple[int, int, array[int]]] = deque()

    @property
    def count(self) -> int:
        """How many messages wait, those included that are on their way."""
        return len(self.due) + len(self.released)

    @property
    def needed_from(self) -> int:
        """No message below this offset waits."""
        firsts = [self.high_watermark, *self.released]
        if self.due.first_offset is not None:
            firsts.append(self.due.first_offset)
        return min(firsts)

    # --- what is asked ---------------------------------------------------------------------------

    def _release(self, event: Release) -> list[Effect]:
        return self._control({"release": [event.through_us, event.count]}, on_disk=True)

    def _moved_on(self, event: MovedOn) -> list[Effect]:
        control: dict[str, Any] = {"moved": event.sequence}
        if event.count:
            control["release"] = [event.through_us, event.count]
        return self._control(control, on_disk=True)

    def _begin_life(self, event: BeginLife) -> list[Effect]:
        return self._control({"life": event.life}, on_disk=True)

    # --- the log -----------------------------------------------------------------------------

    def _appended(self, pending: _Pending, append: Append) -> list[Effect]:
        if append.kind == BATCH:
            assert append.batch is not None
            assert append.batch.dues is not None
            self._coming.append((append.index, append.base_offset, append.batch.dues))
        return super()._appended(pending, append)

    def _advance(self, index: int) -> list[Effect]:
        effects = super()._advance(index)
        self._take_in(self.applied_index)
        return effects

    def _take_in(self, index: int) -> None:
        """Every batch up to this entry is committed: its messages wait from now on."""
        while self._coming and self._coming[0][0] <= index:
            _, base_offset, dues = self._coming.popleft()
            self.due.add(base_offset, dues)

    def _apply_control(self, index: int, control: dict[str, Any]) -> list[Effect]:
        self._take_in(index)
        effects = super()._apply_control(index, control)
        if control.get("life", 0) > self.life:
            self.life, self.sequence = control["life"], 0
            effects.append(Released(list(self.released)))
        if "moved" in control:
            self.released, self.sequence = [], control["moved"]
        if "release" in control and not self.released:
            self.released = self.due.pop(*control["release"])
        if "release" in control or "moved" in control:
            effects.append(Released(list(self.released)))
        return effects

    # --- recovery ----------------------------------------------------------------------------

    def _replayed(self, event: Replayed) -> list[Effect]:
        super()._replayed(event)
        if event.kind == BATCH:
            assert event.batch is not None
            assert event.batch.dues is not None
            self.due.add(event.base_offset, event.batch.dues)
        return []

    def _lost(self, event: Lost) -> list[Effect]:
        super()._lost(event)
        # Higher than any life that the lost entries may have begun: each takes an entry.
        self.life, self.sequence = max(self.life, self.last_index) + 1, 0
        return []

    def snapshot(self) -> tuple[int, bytes]:
        """Behind the state as JSON, and a line's end, stand the times, as `DueTimes` has them."""
        index, state = super().snapshot()
        more = json.dumps(
            {"life": self.life, "sequence": self.sequence, "released": self.released}
        ).encode()
        return index, b"".join((state[:-1], b', "delays": ', more, b"}\n", *self.due.snapshot()))

    def restore(self, index: int, snapshot: bytes) -> None:
        super().restore(index, snapshot)
        state, _, times = snapshot.partition(b"\n")
        kept = json.loads(state).get("delays") if state else None
        if kept is not None:
            self.life, self.sequence = kept["life"], kept["sequence"]
            self.released = kept["released"]
            self.due.restore(times)

    _handlers: ClassVar = {
        **Partition._handlers,
        Release: _release,
        MovedOn: _moved_on,
        BeginLife: _begin_life,
        Replayed: _replayed,
        Lost: _lost,
    }
