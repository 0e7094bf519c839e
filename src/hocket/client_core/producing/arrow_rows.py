"""The rows of Arrow batches on their way to partitions, with no Python work per row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from hocket.client_core.producing.core import ProducerCore
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.outgoing import Stamp
from hocket.errors import MessageTooLarge, WrongType
from hocket.wire.from_arrow import checked_rows, encode_from_arrow

if TYPE_CHECKING:
    import numpy as np
    import pyarrow  # type: ignore[import-untyped]
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

# A row grows by at most this when it is encoded: by a timestamp and a key's hash, if they are made
# here, and by the offsets of a key and a value that were of fixed size.
ROW_BYTES = 26


class ArrowPortion:
    """Rows for one partition, to be encoded when it is their turn.

    Without a gathering they are for the partition whose turn it is then.
    """

    __slots__ = ("_gathering", "_hashes", "_rows", "count")

    def __init__(
        self, gathering: Gathering | None, rows: pyarrow.RecordBatch, hashes: Hashes | None = None
    ) -> None:
        self._gathering = gathering
        self._rows = rows
        self._hashes = hashes  # the keys' hashes, if they are known already
        self.count: int = rows.num_rows

    def offer(self, core: ProducerCore, _start: int) -> int | None:
        def encoded(stamp: Stamp) -> bytes:
            return encode_from_arrow(
                self._rows,
                timestamp=core.outbox.wall_us,
                key_hashes=self._hashes,
                codec=core.options.codec,
                producer_id=stamp.producer_id,
                epoch=stamp.epoch,
                sequence=stamp.sequence,
            )

        return self.count if core.offer_entry(self._gathering, encoded, self.count) else None

    def spread(self, core: ProducerCore) -> list[ArrowPortion]:
        """The same rows in as many portions as there are turns for them, if they are anybody's."""
        if self._gathering is not None:
            return [self]
        pieces = min(self.count, core.pieces(self._rows.nbytes))
        ends = [self.count * number // pieces for number in range(pieces + 1)]
        return [self.part(start, end) for start, end in pairwise(ends)]

    def small_enough(self, entry_bytes_max: int) -> list[ArrowPortion]:
        """The same rows in portions that each fit into an entry: halved until they do."""
        if _fits(self._rows, entry_bytes_max):
            return [self]
        if self.count == 1:
            raise MessageTooLarge(
                f"a row of {self._rows.nbytes} bytes is more than the {entry_bytes_max // 2} that "
                "this broker takes"
            )
        middle = self.count // 2
        return [
            *self.part(0, middle).small_enough(entry_bytes_max),
            *self.part(middle, self.count).small_enough(entry_bytes_max),
        ]

    def part(self, start: int, end: int, gathering: Gathering | None = None) -> ArrowPortion:
        return ArrowPortion(
            self._gathering if gathering is None else gathering,
            self._rows.slice(start, end - start),
            None if self._hashes is None else self._hashes[start:end],
        )


def with_headers(
    rows: pyarrow.RecordBatch, pairs: Sequence[tuple[str, bytes]] | None
) -> pyarrow.RecordBatch:
    """The same rows, all with these headers, unless the rows have headers of their own."""
    if not pairs or not hasattr(rows, "schema") or "headers" in rows.schema.names:
        return rows
    import numpy as np
    import pyarrow as pa

    names, values = zip(*pairs, strict=True)
    count, each = rows.num_rows, len(pairs)
    order = np.tile(np.arange(each), count)
    structs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()).take(order), pa.array(values, pa.binary()).take(order)],
        names=["key", "value"],
    )
    offsets = pa.array(np.arange(0, (count + 1) * each, each), pa.int32())
    headers = pa.ListArray.from_arrays(offsets, structs)
    return pa.RecordBatch.from_arrays(
        [*rows.columns, headers], names=[*rows.schema.names, "headers"]
    )


def arrow_portions(
    core: ProducerCore, rows: pyarrow.RecordBatch, partition: int | None = None
) -> list[ArrowPortion]:
    """The rows by partition. Raises if a row or the partition is wrong, before any is sent."""
    core.check_usable()
    gathering = core.gathering_of(None, partition)
    if not hasattr(rows, "num_rows") or not hasattr(rows, "schema"):
        raise WrongType(f"send_arrow takes a pyarrow.RecordBatch, not {type(rows).__name__}")
    if not rows.num_rows:
        return []
    spread = gathering is None and len(core.gatherings) > 1
    keyed = spread and "key" in rows.schema.names
    pieces = core.pieces(rows.nbytes) if spread else 1
    if not keyed and pieces == 1 and _fits(rows, core.entry_bytes_max):
        return [ArrowPortion(gathering, rows)]  # encoding it checks it
    checked, hashes = checked_rows(rows)
    portions = [ArrowPortion(gathering, checked, hashes)]
    if keyed and hashes is not None:
        portions = _by_partition(core.gatherings, checked, hashes)
    if spread:
        portions = [piece for each in portions for piece in each.spread(core)]
    return [small for each in portions for small in each.small_enough(core.entry_bytes_max)]


def _fits(rows: pyarrow.RecordBatch, entry_bytes_max: int) -> bool:
    size: int = rows.nbytes
    return size <= entry_bytes_max // 2 and size + ROW_BYTES * len(rows) <= entry_bytes_max


def _by_partition(
    gatherings: list[Gathering], rows: pyarrow.RecordBatch, hashes: Hashes
) -> list[ArrowPortion]:
    """Rows by the hashes of their keys, rows without a key together; their order is kept."""
    import numpy as np

    sticky = len(gatherings)
    numbers = (hashes % np.uint64(len(gatherings))).astype(np.uint16)
    keys = rows.column(rows.schema.get_field_index("key"))
    if keys.null_count:
        numbers[keys.is_null().to_numpy(zero_copy_only=False)] = sticky
    ends = np.cumsum(np.bincount(numbers)).tolist()
    if int(numbers.min()) != int(numbers.max()):  # else all are for one
        order = np.argsort(numbers, kind="stable")
        rows, hashes = rows.take(order), hashes[order]
    sorted_rows = ArrowPortion(None, rows, hashes)
    portions = []
    start = 0
    for number, end in enumerate(ends):
        if start < end:
            gathering = None if number == sticky else gatherings[number]
            portions.append(sorted_rows.part(start, end, gathering))
        start = end
    return portions
