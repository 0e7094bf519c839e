"""Many messages at once: checked, split by partition in one pass, with their sizes added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from hocket.client.lane import Lane, Stamp
from hocket.client.producer_core import ProducerCore
from hocket.client.records import (
    RECORD_BYTES,
    Pairs,
    Record,
    checked_header_list,
    checked_keys,
    checked_values,
    headers_size,
)
from hocket.errors import MessageTooLarge, WrongType
from hocket.wire.arrow import encode_from_arrow

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]
    from typing_extensions import Buffer

    from hocket.client.records import Headers


class ListPortion:
    """Records for one partition; no lane: for whichever is sticky."""

    __slots__ = ("_ends", "_lane", "_records", "count")

    def __init__(
        self, lane: Lane | None, records: Sequence[bytes | Record], sizes: Iterable[int]
    ) -> None:
        self._lane = lane
        self._records = records
        self._ends = list(accumulate(sizes))
        self.count = len(records)

    def offer(self, core: ProducerCore, start: int) -> int | None:
        """Hand over records from `start` on; where that ended, or None while there is no room."""
        end = core.offer_many(self._lane, self._records, self._ends, start)
        return end if end > start else None


class ArrowPortion:
    """Rows for one partition, to be encoded when it is their turn."""

    __slots__ = ("_lane", "_rows", "count")

    def __init__(self, lane: Lane | None, rows: pyarrow.RecordBatch) -> None:
        self._lane = lane
        self._rows = rows
        self.count: int = rows.num_rows

    def offer(self, core: ProducerCore, _start: int) -> int | None:
        def encoded(stamp: Stamp) -> bytes:
            return encode_from_arrow(
                self._rows,
                timestamp=core.session.clock.now_us(),
                codec=core.options.codec,
                producer_id=stamp.producer_id,
                epoch=stamp.epoch,
                sequence=stamp.sequence,
            )

        return self.count if core.offer_entry(self._lane, encoded, self.count) else None


Portion = ListPortion | ArrowPortion


def list_portions(
    core: ProducerCore,
    values: Sequence[Buffer],
    keys: Sequence[Buffer | None] | None,
    headers: Sequence[Headers | None] | None,
) -> list[ListPortion]:
    core.check_usable()
    plain = checked_values(values)
    if not plain:
        return []
    if keys is None and headers is None:
        core.check_size(max(map(len, plain)) + RECORD_BYTES)
        return [ListPortion(None, plain, [len(value) + RECORD_BYTES for value in plain])]
    all_keys = [None] * len(plain) if keys is None else checked_keys(keys, len(plain))
    all_headers: Sequence[Pairs | None] = (
        [None] * len(plain) if headers is None else checked_header_list(headers, len(plain))
    )
    records: list[Record] = list(zip(plain, all_keys, all_headers, repeat(None), repeat(None)))
    return record_portions(core, records, list(map(_size, records)))


def record_portions(
    core: ProducerCore, records: list[Record], sizes: list[int]
) -> list[ListPortion]:
    """Of records that were checked; there is one at least."""
    core.check_size(max(sizes))
    if len(core.lanes) == 1:
        return [ListPortion(None, records, sizes)]
    return _split(core, records, sizes)


def _split(core: ProducerCore, records: list[Record], sizes: list[int]) -> list[ListPortion]:
    lanes = core.lanes
    found: dict[Lane | None, tuple[list[Record], list[int]]] = {}
    for record, size in zip(records, sizes, strict=True):
        key = record[1]
        lane = None if key is None else lanes[xxh3_64_intdigest(key) % len(lanes)]
        if lane not in found:
            found[lane] = ([], [])
        taken, taken_sizes = found[lane]
        taken.append(record)
        taken_sizes.append(size)
    return [ListPortion(lane, taken, many) for lane, (taken, many) in found.items()]


def _size(record: Record) -> int:
    value, key, headers, _, _ = record
    size = len(value) + RECORD_BYTES
    if key is not None:
        size += len(key) + RECORD_BYTES
    if headers is not None:
        size += headers_size(headers)
    return size


def arrow_portions(core: ProducerCore, rows: pyarrow.RecordBatch) -> list[ArrowPortion]:
    core.check_usable()
    if not hasattr(rows, "num_rows") or not hasattr(rows, "schema"):
        raise WrongType(f"send_arrow takes a pyarrow.RecordBatch, not {type(rows).__name__}")
    if not rows.num_rows:
        return []
    keys = rows.schema.get_field_index("key")
    if keys < 0 or len(core.lanes) == 1:
        return _small_enough(core, None, rows)
    if any(rows.column(at).null_count for at in range(rows.num_columns) if at != keys):
        encode_from_arrow(rows, timestamp=0)  # says which null is wrong, before any row is taken
    partitions: dict[Lane | None, list[int]] = {}
    lanes = core.lanes
    for row, key in enumerate(rows.column(keys).to_pylist()):
        data = key.encode() if isinstance(key, str) else key
        lane = None if data is None else lanes[xxh3_64_intdigest(data) % len(lanes)]
        partitions.setdefault(lane, []).append(row)
    return [
        portion
        for lane, numbers in partitions.items()
        for portion in _small_enough(core, lane, rows.take(numbers))
    ]


def _small_enough(
    core: ProducerCore, lane: Lane | None, rows: pyarrow.RecordBatch
) -> list[ArrowPortion]:
    if rows.nbytes <= core.entry_bytes_max // 2:  # with room for hashes and offsets
        return [ArrowPortion(lane, rows)]
    if rows.num_rows == 1:
        raise MessageTooLarge(
            f"a row of {rows.nbytes} bytes is more than the {core.entry_bytes_max // 2} that this "
            "broker takes"
        )
    middle = rows.num_rows // 2
    return [
        *_small_enough(core, lane, rows.slice(0, middle)),
        *_small_enough(core, lane, rows.slice(middle)),
    ]
