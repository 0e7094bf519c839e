"""The memory tier against a plain list."""

from __future__ import annotations

from hypothesis import given, strategies as st

from hocket.log.group import GroupLog
from hocket.log.model import NewEntry
from hocket.log.settings import GroupSettings, LogSettings
from hocket.model import EntryKind
from hocket.wire.entry import padded, unpack_header

LIMITS = LogSettings(slab_bytes=512, slab_bytes_min=128, index_interval_bytes=100)
shapes = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 300)),  # records (0: not a batch), bytes
    min_size=1,
    max_size=30,
)


def group_of(shape: list[tuple[int, int]]) -> GroupLog:
    log = GroupLog(1, LIMITS)
    log.settings = GroupSettings(segment_bytes_max=1000)
    for number, (count, size) in enumerate(shape):
        kind = EntryKind.BATCH if count else EntryKind.CURSOR
        log.append(
            NewEntry(
                kind, 0, 0, count, 1, log.end.next_index, log.end.next_offset, 0, number,
                bytes(size),
            ),
            now_us=number,
        )  # fmt: skip
    return log


def write_everything(log: GroupLog) -> None:
    log.durable = log.end
    writes, end = log.slab_writes(1 << 60)
    log.were_written(writes, end)


@given(shapes, st.integers(-1, 900), st.integers(0, 90))
def test_reading(shape: list[tuple[int, int]], bytes_max: int, end_offset: int) -> None:
    log = group_of(shape)
    expected = []  # (base, end, bytes) of the batches
    base = 0
    for count, size in shape:
        if count:
            expected.append((base, base + count, 56 + padded(size)))
        base += count
    for offset in range(min(log.end.next_offset, end_offset)):
        wanted = [e for e in expected if e[1] > offset and e[0] < end_offset]
        taken = wanted[:1]
        for each in wanted[1:]:
            if sum(e[2] for e in taken) + each[2] > bytes_max:
                break
            taken.append(each)
        result = log.memory.read(offset, bytes_max=bytes_max, end_offset=end_offset)
        assert result.bytes == sum(e[2] for e in taken) == sum(map(len, result.slices))
        assert (result.start_offset, result.end_offset) == (taken[0][0], taken[-1][1])
        assert unpack_header(result.slices[0]).base_offset == taken[0][0]


@given(shapes, st.integers(0, 40), st.integers(0, 4000))
def test_letting_go(shape: list[tuple[int, int]], until_us: int, bytes_max: int) -> None:
    log = group_of(shape)
    sizes = [56 + padded(size) for _, size in shape]
    assert log.memory.bytes == sum(sizes) == log.unwritten_bytes
    kept = sum(sizes)
    due = 0  # how many entries have to go
    while due < len(sizes) and (due <= until_us or kept > bytes_max):
        kept -= sizes[due]
        due += 1
    assert log.memory.evict(appended_until_us=until_us, bytes_max=bytes_max) == (due > 0)
    assert log.memory.bytes == sum(sizes), "nothing is written yet"
    write_everything(log)
    assert log.unwritten_bytes == 0
    assert not log.memory.evict(appended_until_us=until_us, bytes_max=bytes_max)
    assert log.memory.bytes == kept
    expected_start = sum(count for count, _ in shape[:due]) if due < len(shape) else None
    assert log.memory.start_offset == expected_start
    if expected_start is None:
        assert log.memory.slabs == []
    else:
        oldest = log.memory.slabs[0]
        assert oldest.times[oldest.live] == due


@given(shapes, st.integers(16, 700))
def test_commits_take_everything_in_order(shape: list[tuple[int, int]], bytes_max: int) -> None:
    log = group_of(shape)
    indexes: list[int] = []
    while log.unsent:
        taken = log.take(max(bytes_max, 16 + log.first_unsent_bytes))
        assert taken.views, "an entry that fits is taken"
        assert taken.content_bytes <= max(bytes_max, 16 + 56 + 304)
        for view in taken.views:
            position = 0
            while position < len(view):
                header = unpack_header(view, position)
                indexes.append(header.index)
                position += header.size
        assert taken.end is not None
        assert taken.end.next_index == indexes[-1] + 1
    assert indexes == list(range(1, len(shape) + 1))
    assert log.take(1 << 20).views == []


@given(shapes)
def test_segments_hold_the_log_and_their_indexes_point_into_it(
    shape: list[tuple[int, int]],
) -> None:
    log = group_of(shape)
    write_everything(log)
    assert log.segments[0].first_index == 1
    for segment, following in zip(log.segments, log.segments[1:], strict=False):
        assert (segment.end_index, segment.end_offset) == (
            following.first_index, following.base_offset,
        )  # fmt: skip
        assert segment.full
    assert log.segments[-1].end_index == len(shape) + 1
    for segment in log.segments:
        assert segment.size == segment.written
        assert segment.points is not None
        assert segment.points.positions[0] == 0
        assert all(b - a >= 100 for a, b in zip(
            segment.points.positions, list(segment.points.positions)[1:], strict=False
        ))  # fmt: skip
