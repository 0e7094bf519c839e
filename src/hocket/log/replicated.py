"""What a log needs beside entries of its own if several nodes keep it: `LogStore.replicated`.

A follower takes the leader's entries as they are. It checks that each follows the one before it,
by index, offset, term and CRC, so the logs of all replicas are the same bytes. What was never
applied may be cut off again, if another leader has other entries there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from crc32c import crc32c

from hocket.errors import CorruptData, OutOfRange
from hocket.log.checkpoint import GroupRecord
from hocket.log.checkpointer import Checkpointer
from hocket.log.group import UNKNOWN, GroupLog, Truncated
from hocket.log.model import (
    VOTE_BYTES_MAX,
    DoesNotFollow,
    Fault,
    HardState,
    LogEnd,
    RawDone,
    RawEntries,
    Snapshot,
    Truncation,
)
from hocket.log.reader import Reader
from hocket.log.wal import Wal
from hocket.model import EntryKind
from hocket.wire.entry import HEADER_BYTES, Header, unpack_header

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BATCH = int(EntryKind.BATCH)


RawEntry = tuple[Header, memoryview, memoryview]  # header, its bytes, body


class ReplicatedLogs:
    """Operations on groups of a store. A group is known after `LogStore.configure`."""

    def __init__(
        self,
        groups: dict[int, GroupLog],
        wal: Wal,
        checkpointer: Checkpointer,
        reader: Reader,
        *,
        snapshot: Callable[[int], tuple[int, bytes]],
        admit: Callable[[int, int], None],
        stage: Callable[[GroupLog, list[RawEntry], int], None],
        cut: Callable[[Truncated], None],
    ) -> None:
        self._groups = groups
        self._wal = wal
        self._checkpointer = checkpointer
        self._reader = reader
        self._snapshot = snapshot
        self._admit = admit
        self._stage = stage
        self._tell_cut = cut

    def truncate(self, group: int, after: int) -> None:
        """Cut off the entries behind the index `after`; the next one to append is the one behind.

        None of them may have been applied: no checkpoint was told of them by `snapshot`. What of
        them is on its way to the disk is never told durable. A crash brings them back unless it
        comes after the next commit, or after the entries that take their place.

        What is lost to damage behind `after` is not part of the log any more; it is a fault until
        the log is durable through as many entries again. Raises CorruptData if `after` is lost.
        """
        log = self._groups[group]
        assert after < log.end.next_index, f"cut behind {after}, the log ends at {log.end}"
        end = log.end_at(after)
        if end is None:
            raise CorruptData(f"group {group} cannot be cut behind entry {after}, which is damaged")
        cut = log.truncate(end)
        self._wal.cut(log, cut)
        self._tell_cut(cut)
        self._checkpointer.changed = True

    def persist(self, group: int, state: HardState, done: Callable[[], None]) -> None:
        """Keep the group's term and vote; `done` is called when they are durable, after `flush`.

        Nothing may be said or done before that which a vote or a term allows. The term never falls,
        and in one term there is one vote. On a full disk that takes until there is room.
        """
        log = self._groups[group]
        if len(state.vote.encode()) > VOTE_BYTES_MAX:
            raise OutOfRange(
                f"group {group}: a vote for {state.vote!r}, longer than {VOTE_BYTES_MAX} bytes"
            )
        assert log.state.may_become(state), f"group {group}: {state} after {log.state}"
        log.state = state
        self._wal.note(log, done)
        self._checkpointer.changed = True

    def is_persisting(self, group: int) -> bool:
        """Whether the group's term and vote are on their way to the disk."""
        return self._wal.awaits(self._groups[group])

    def append_raw(self, group: int, data: Buffer, *, admitted: bool = False) -> list[Header]:
        """Stage entries of another node's log, back to back, as they are: all of them, or none.

        Raises CorruptData if one does not match its checksums, DoesNotFollow if they do not follow
        the end of the log (index, offset, term, previous CRC), and what `admit` does.
        """
        log = self._groups[group]
        entries = _checked(log, data)
        size = sum(header.size for header, _, _ in entries)
        if entries and not admitted:
            self._admit(group, size)
        if entries:
            self._stage(log, entries, size)
        return [header for header, _, _ in entries]

    def read_raw(
        self, group: int, first_index: int, *, end_index: int, bytes_max: int, done: RawDone
    ) -> RawEntries | None:
        """Entries of all kinds from `first_index` on and below `end_index`, for another node.

        At least one; no more than `bytes_max` if there are more. Memory answers at once, with what
        is not durable yet, too. Otherwise None, and `done` is called later, with the entries or
        with CorruptData or OutOfRange. Raises OutOfRange for entries that the log does not have
        (any more), and CorruptData for those that are damaged.
        """
        return self._reader.read_raw(
            self._groups[group], first_index, end_index=end_index, bytes_max=bytes_max, done=done
        )

    def bounds(self, group: int) -> tuple[int, LogEnd, LogEnd]:
        """(The first index that can be read, how the log ends as far as it is durable, its end)."""
        log = self._groups[group]
        return log.first_index, log.durable, log.end

    def end_at(self, group: int, index: int) -> LogEnd | None:
        """How the log ended with this entry, its term and CRC included; None: not in memory."""
        return self._groups[group].end_at(index)

    def faults(self, group: int) -> list[Fault]:
        """What is wrong with the group's log; what its replica must not do then, `Fault` says."""
        return self._groups[group].faults()

    def owe(self, group: int, last_index: int) -> None:
        """The log has lost what it had up to this entry: that is a fault until it is there again,
        also if the operator has accepted the loss."""
        log = self._groups[group]
        log.owed = max(log.owed, last_index)
        self._checkpointer.changed = True

    def mended(self, group: int) -> None:
        """What was cut off as lost counts as made good, also if nobody knew how much it was.

        The caller knows that the log has all that was committed, and that the replica votes under
        a name that has never voted: a vote that was lost is not given again.
        """
        self._groups[group].owed = 0
        self._checkpointer.changed = True

    def take_snapshot(self, group: int) -> Snapshot:
        """The group's state of now, as `LogObserver.snapshot` tells it, to be sent to others."""
        index, state = self._snapshot(group)
        log = self._groups[group]
        end = log.end_at(index)
        assert end is not None, f"group {group} has applied {index}, which is not in its log"
        return Snapshot(end, log.log_start, state)


def _checked(log: GroupLog, data: Buffer) -> list[RawEntry]:
    """The entries in `data`, which follow the end of the log, all of them."""
    view = memoryview(data).cast("B")
    found: list[RawEntry] = []
    end = log.end
    position = 0
    while position < len(view):
        header = unpack_header(view, position)
        start = position + HEADER_BYTES
        body = view[start : start + header.length]
        padding = view[start + header.length : position + header.size]
        if len(body) + len(padding) != header.size - HEADER_BYTES:
            raise CorruptData(f"group {log.id}: entry {header.index} is cut short")
        if crc32c(body) != header.body_crc or any(padding):
            raise CorruptData(f"group {log.id}: entry {header.index} does not match its checksum")
        if (header.kind == _BATCH) != (header.count > 0):
            raise CorruptData(f"group {log.id}: entry {header.index} has {header.count} records")
        follows = (header.index, header.base_offset, header.previous_crc) == end[:3]
        if not follows or header.term < end.term:
            raise DoesNotFollow(
                f"group {log.id}: entry {header.index} of term {header.term} at offset "
                f"{header.base_offset}, behind crc {header.previous_crc}, does not follow {end}"
            )
        found.append((header, view[position:start], body))
        end = LogEnd(header.index + 1, header.end_offset, header.crc, header.term)
        position += header.size
    return found


def install_record(
    log: GroupLog, wal: Wal, snapshot: Snapshot, begin: LogEnd | None
) -> GroupRecord:
    """What the group is to become. From now on nothing of its present log is written."""
    end = begin or snapshot.end
    assert end.next_index >= log.written.next_index, f"{end} goes back behind {log.written}"
    assert end.next_index <= snapshot.end.next_index, f"{end} is behind the snapshot"
    wal.unstage(log)
    log.leaves = True  # a table that told where this log ends would be wrong about the other one
    truncations = tuple(log.truncations)
    if truncations or log.end.next_index > end.next_index:  # the WAL has what is behind the new end
        truncations = (Truncation(end, wal.next_lsn, wal.next_lsn),)
    lost = [fault for fault in log.faults() if not fault.accepted]
    owed = max((fault.end_index - 1 for fault in lost), default=0)
    if any(fault.loses_vote for fault in lost):
        owed = UNKNOWN
    elif owed < end.next_index:
        owed = 0  # what was lost is not part of the new log, or the state knows it
    return GroupRecord(
        log.id, end, snapshot.index, snapshot.state,
        end.next_offset if begin is None else max(snapshot.log_start, begin.next_offset),
        truncations=truncations, owed=owed,
    )  # fmt: skip
