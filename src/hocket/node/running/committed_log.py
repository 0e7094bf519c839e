"""The committed batches of a node's partitions, as the relay tree reads them: whole batches.

Of a partition that another node leads, a copy can be read, too, up to what this node knows to be
committed (`node.replication.copies`). What is committed stays so, whoever leads: a copy may be
behind, but it holds nothing that will be taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from hocket.core.relay.messages import Piece
from hocket.errors import CorruptData, HocketError
from hocket.log.model import ReadResult, is_damage
from hocket.log.store import LogStore
from hocket.model import PartitionId
from hocket.node.running.partitions import Hosted
from hocket.wire.batch import iterate_entries

Done = Callable[[tuple[Piece, ...]], None]


class Held(NamedTuple):
    """A copy of a partition that another node leads, which can be read from `start` to `end`."""

    start: int
    end: int  # committed, as far as this node knows


class CommittedLog:
    """Reads below the high watermark only, whatever it is asked for."""

    def __init__(self, log: LogStore, copy: Callable[[int], Hosted | None]) -> None:
        """`copy` gives the copy of a group that another node leads, if that can be read."""
        self._log = log
        self._copy = copy
        self._unreadable: set[int] = set()  # groups whose copy is damaged
        self._hosted: dict[PartitionId, Hosted] = {}
        self.on_damage: Callable[[int], None] = lambda _group: None  # told the group

    def add(self, partition_id: PartitionId, hosted: Hosted) -> None:
        self._hosted[partition_id] = hosted
        self._unreadable.discard(hosted.group)

    def remove(self, partition_id: PartitionId) -> None:
        self._hosted.pop(partition_id, None)

    def partition_ids(self) -> list[PartitionId]:
        return list(self._hosted)

    def end(self, partition_id: PartitionId) -> int:
        hosted = self._hosted.get(partition_id)
        return 0 if hosted is None else hosted.core.high_watermark

    def copy_of(self, partition_id: PartitionId) -> Held | None:
        """This node's copy of a partition that another node leads, if that is up to date."""
        hosted = None
        if partition_id.group not in self._unreadable:
            hosted = self._copy(partition_id.group)
        return None if hosted is None else Held(hosted.core.start, hosted.core.high_watermark)

    def read(
        self, partition_id: PartitionId, offset: int, end: int, bytes_max: int, done: Done
    ) -> None:
        """Call `done` with the batches, first the one that holds `offset`.

        That is at once if they are in memory, else when the disk has answered. `done` gets no
        batches if `offset` cannot be read.
        """
        hosted = self._hosted.get(partition_id) or self._copy(partition_id.group)
        if hosted is None or offset < hosted.core.start:
            done(())
            return
        end = min(end, hosted.core.high_watermark)
        if offset >= end:
            done(())
            return
        try:
            read = self._log.read(
                hosted.group,
                offset,
                bytes_max=bytes_max,
                end_offset=end,
                done=partial(self._read, hosted, done),
            )
        except HocketError as error:  # deleted or damaged: there is nothing to hand on
            self._read(hosted, done, error)
            return
        if read is not None:
            done(pieces_of(read))

    def _read(self, hosted: Hosted, done: Done, read: ReadResult | HocketError) -> None:
        if is_damage(read) and hosted.copy is not None:
            assert isinstance(read, CorruptData)
            self._unreadable.add(hosted.group)  # others have it, and are asked
            hosted.copy.cannot_read(read)
        elif isinstance(read, CorruptData):
            self.on_damage(hosted.group)
        done(() if isinstance(read, HocketError) else pieces_of(read))


def pieces_of(read: ReadResult) -> tuple[Piece, ...]:
    # Copies: the log uses its memory again, while a piece lives for as long as a node needs it.
    return tuple(
        Piece(
            header.base_offset,
            header.end_offset,
            bytes(entries[position : position + header.size]),
        )
        for entries in read.slices
        for position, header in iterate_entries(entries)
    )
