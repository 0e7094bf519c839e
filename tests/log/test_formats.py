"""What is written can be read back, and nothing else is taken for it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from hocket.errors import CorruptData
from hocket.log import checkpoint, envelope
from hocket.log.checkpoint import Checkpoint, GroupRecord
from hocket.log.envelope import Draft
from hocket.log.model import Damage, LogEnd
from hocket.log.segment import Points, SegmentRecord
from hocket.log.wal_scan import entries, envelopes, salvaged
from hocket.wire.entry import pack_header, padded

u64 = st.integers(0, (1 << 64) - 1)
u32 = st.integers(0, (1 << 32) - 1)
ends = st.builds(LogEnd, u64, u64, u32, u64)
damages = st.builds(Damage, u64, st.none() | st.integers(0, (1 << 64) - 2), st.text(max_size=50))
records = st.builds(
    GroupRecord, u64, ends, u64, st.binary(max_size=200), u64,
    st.lists(st.builds(SegmentRecord, u64, u64, u64, u64, u64, u64), max_size=4).map(tuple),
    st.lists(damages, max_size=3).map(tuple),
)  # fmt: skip
checkpoints = st.builds(
    Checkpoint, u64, u64, u64,
    st.lists(records, max_size=5).map(lambda found: {each.group: each for each in found}),
    st.dictionaries(u64, u64, max_size=3),
)  # fmt: skip


@given(checkpoints)
def test_a_checkpoint_comes_back(made: Checkpoint) -> None:
    assert checkpoint.decode(checkpoint.encode(made)) == made


@given(checkpoints, st.data())
def test_a_damaged_checkpoint_is_right_or_refused(made: Checkpoint, data: st.DataObject) -> None:
    image = bytearray(checkpoint.encode(made))
    for _ in range(data.draw(st.integers(1, 3))):
        image[data.draw(st.integers(0, len(image) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        assert checkpoint.decode(bytes(image)) == made
    except CorruptData:
        half = len(image) // 2
        pristine = checkpoint.encode(made)
        assert image[:half] != pristine[:half]
        assert image[half:] != pristine[half:]


def test_a_checkpoint_cut_short_is_refused() -> None:
    image = checkpoint.encode(Checkpoint(groups={7: GroupRecord(7, snapshot=b"s" * 600)}))
    half = len(image) // 2
    whole = len(image[:half].rstrip(b"\0"))  # the padding may go
    for length in range(0, whole, 7):
        with pytest.raises(CorruptData):
            checkpoint.decode(image[:length])
    assert checkpoint.decode(image[:half]).groups[7].snapshot == b"s" * 600


@given(st.lists(st.tuples(u64, u64, u64), max_size=20))
def test_a_sparse_index_comes_back(rows: list[tuple[int, int, int]]) -> None:
    points = Points()
    for row in rows:
        points.add(*row)
    data = points.encode()
    found = Points.decode(data)
    assert found is not None
    assert (found.offsets, found.positions, found.stamps) == (
        points.offsets, points.positions, points.stamps,
    )  # fmt: skip
    for position in range(len(data)):
        bad = bytearray(data)
        bad[position] ^= 0x10
        assert Points.decode(bytes(bad)) is None
    assert Points.decode(data[:-1]) is None
    assert Points.decode(b"") is None


# --- envelopes -----------------------------------------------------------------------------------


def entry(index: int, body: bytes) -> bytes:
    header = pack_header(length=len(body), kind=1, count=1, index=index, body_crc=0)
    return header + body + bytes(padded(len(body)) - len(body))


sections = st.lists(
    st.tuples(
        u64,
        st.lists(st.binary(max_size=80), min_size=1, max_size=4).map(
            lambda bodies: b"".join(entry(n, body) for n, body in enumerate(bodies))
        ),
    ),
    max_size=5,
)


def file_of(drafts: list[Draft], *, salt: int = 5) -> bytes:
    return b"".join(
        b"".join(bytes(part) for part in envelope.encode(draft, salt)) for draft in drafts
    )


@given(st.lists(sections, min_size=1, max_size=4), st.lists(st.tuples(u64, ends), max_size=3))
def test_envelopes_come_back(
    contents: list[list[tuple[int, bytes]]], rows: list[tuple[int, LogEnd]]
) -> None:
    drafts = [
        Draft(9, lsn, lsn - 1, rows, lsn % 2 == 0, [(g, memoryview(data)) for g, data in content])
        for lsn, content in enumerate(contents, start=1)
    ]
    file = file_of(drafts)
    assert len(file) == sum(draft.size for draft in drafts)
    found = list(envelopes(file + bytes(2048), 9, 5))
    assert [each.lsn for each in found] == list(range(1, len(contents) + 1))
    for each, content in zip(found, contents, strict=True):
        assert each.header.durable_through == each.lsn - 1
        assert each.header.table_is_complete == (each.lsn % 2 == 0)
        assert envelope.decode_table(each.data, each.header) == (rows, [])
        assert each.content is not None
        rebuilt = [(e.group, bytes(e.packed) + bytes(e.body)) for e in entries(each.content)]
        salvage = [(e.group, bytes(e.packed) + bytes(e.body)) for e in salvaged(each.content)]
        assert rebuilt == salvage
        assert len(rebuilt) == sum(_count(data) for _, data in content)


def _count(data: bytes) -> int:
    count = position = 0
    while position < len(data):
        position += 56 + padded(int.from_bytes(data[position + 4 : position + 8], "little"))
        count += 1
    return count


def test_other_files_and_other_stores_are_not_ours() -> None:
    file = file_of([Draft(9, 1, 0, [], False, [(1, memoryview(entry(1, b"x")))])])
    assert len(list(envelopes(file, 9, 5))) == 1
    assert list(envelopes(file, 8, 5)) == []
    assert list(envelopes(file, 9, 6)) == []
    assert list(envelopes(b"", 9, 5)) == []


def test_envelopes_behind_a_bad_spot_are_found_wherever_it_is() -> None:
    drafts = [
        Draft(9, lsn, lsn - 1, [], False, [(1, memoryview(entry(lsn, bytes(600))))])
        for lsn in (1, 2, 3)
    ]
    file = file_of(drafts)
    size = drafts[0].size
    for start in range(0, size, 64):
        wiped = file[:size] + file[size : 2 * size][:start] + bytes(size - start) + file[2 * size :]
        whole = [each.lsn for each in envelopes(wiped, 9, 5) if each.content is not None]
        assert whole in ([1, 3], [1, 2, 3])
    both_headers = bytearray(file)
    both_headers[size : size + 128] = random.Random(1).randbytes(128)
    assert [each.lsn for each in envelopes(bytes(both_headers), 9, 5)] == [1, 3]


def test_small_buffers_are_joined_and_large_ones_are_not_copied() -> None:
    large = memoryview(bytes(10_000))
    draft = Draft(9, 1, 0, [], False, [(1, memoryview(b"x" * 64))] * 500 + [(2, large)])
    buffers = envelope.encode(draft, 5)
    assert len(buffers) == 4
    assert any(buffer is large for buffer in buffers)
