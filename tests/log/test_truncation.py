"""A log that is cut back: what follows takes the place of what was cut, in memory and on disk."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from hocket.log.checkpoint import Checkpoint
from hocket.log.model import LogEnd
from hocket.log.replay import Replay
from hocket.log.wal_scan import WalEntry
from hocket.model import EntryKind
from hocket.wire.entry import HEADER_BYTES, Header, pack_header, unpack_header
from tests.support.log.world import TINY, World


def entry_after(end: LogEnd, term: int, body: bytes) -> tuple[WalEntry, LogEnd]:
    """A batch of one record, as it stands in the WAL, and how the log ends with it."""
    packed = pack_header(
        length=len(body), kind=EntryKind.BATCH, count=1, term=term, index=end.next_index,
        base_offset=end.next_offset, previous_crc=end.last_crc, body_crc=crc32c(body),
    )  # fmt: skip
    header: Header = unpack_header(packed)
    assert len(packed) == HEADER_BYTES
    entry = WalEntry(7, header, memoryview(packed), memoryview(body))
    return entry, LogEnd(header.index + 1, header.end_offset, header.crc, term)


@pytest.mark.xfail(strict=True, reason="replay keeps the first entry of an index")
def test_of_two_entries_of_one_index_the_later_one_counts_and_all_before_it_that_it_follows():
    replay = Replay(Checkpoint(), TINY, 0, {})
    ends = [LogEnd()]
    for index in range(1, 6):
        entry, end = entry_after(ends[-1], 1, b"old %d" % index)
        replay.entry(entry, lsn=index)
        ends.append(end)
    at = ends[3]
    for index in range(4, 7):
        entry, at = entry_after(at, 2, b"new %d" % index)
        replay.entry(entry, lsn=index + 2)
    replay.finish()
    found = replay.recovered[7]
    bodies = [bytes(body) for _, body in found.entries]
    assert bodies == [b"old 1", b"old 2", b"old 3", b"new 4", b"new 5", b"new 6"]
    assert (found.next_index, found.last_crc, found.term) == (7, at.last_crc, 2)
    assert not found.damage


@pytest.mark.xfail(strict=True, reason="a commit in flight makes durable what was cut meanwhile")
def test_a_commit_in_flight_does_not_make_durable_what_was_cut_meanwhile():
    world = World("in flight")
    number = world.add_group()
    world.append(number, size=10)
    world.settle()
    log = world.store._groups[number]
    world.append(number, size=10)
    world.store.flush()
    log.end = log.durable
    world.scheduler.run_for(10_000)
    assert log.durable.next_index <= log.end.next_index
