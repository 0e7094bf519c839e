"""Many messages in one call: checked, split by partition in one pass, their sizes added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from hocket.client_core.producing.arrow_rows import ArrowPortion
from hocket.client_core.producing.core import ProducerCore
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.records import (
    RECORD_BYTES,
    Pairs,
    Record,
    checked_header_list,
    checked_keys,
    checked_values,
    headers_size,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from hocket.client_core.producing.records import Headers


class ListPortion:
    """Records for one partition; without a gathering, for those whose turn it is then."""

    __slots__ = ("_ends", "_extra", "_gathering", "_records", "count")

    def __init__(
        self,
        gathering: Gathering | None,
        records: Sequence[bytes | Record],
        sizes: Iterable[int],
        extra: int = 0,
    ) -> None:
        """Each record has `extra` bytes beside its size."""
        self._gathering = gathering
        self._records = records
        self._ends = list(accumulate(sizes))
        self._extra = extra
        self.count = len(records)

    def offer(self, core: ProducerCore, start: int) -> int | None:
        """Hand over records from `start` on. Returns the first not taken; None: no room yet."""
        end = core.offer_many(self._gathering, self._records, self._ends, start, self._extra)
        return end if end > start else None


Portion = ListPortion | ArrowPortion


def list_portions(
    core: ProducerCore,
    values: Sequence[object],
    keys: Sequence[Buffer | None] | None,
    headers: Sequence[Headers | None] | None,
    due_us: int | None = None,
) -> list[ListPortion]:
    core.check_usable()
    plain = checked_values(values)
    if not plain:
        return []
    if keys is None and headers is None and due_us is None:
        lengths = list(map(len, plain))
        core.check_size(max(lengths) + RECORD_BYTES)
        return [ListPortion(None, plain, lengths, RECORD_BYTES)]
    all_keys = [None] * len(plain) if keys is None else checked_keys(keys, len(plain))
    all_headers: Sequence[Pairs | None] = (
        [None] * len(plain) if headers is None else checked_header_list(headers, len(plain))
    )
    records: list[Record] = list(zip(plain, all_keys, all_headers, repeat(due_us), repeat(None)))
    return record_portions(core, records, list(map(_size, records)))


def record_portions(
    core: ProducerCore, records: list[Record], sizes: list[int]
) -> list[ListPortion]:
    """The records by partition. They were checked, and there is at least one."""
    core.check_size(max(sizes))
    if len(core.gatherings) == 1:
        return [ListPortion(None, records, sizes)]
    return _split(core, records, sizes)


def _split(core: ProducerCore, records: list[Record], sizes: list[int]) -> list[ListPortion]:
    gatherings = core.gatherings
    found: dict[Gathering | None, tuple[list[Record], list[int]]] = {}
    for record, size in zip(records, sizes, strict=True):
        key = record[1]
        gathering = None if key is None else gatherings[xxh3_64_intdigest(key) % len(gatherings)]
        if gathering not in found:
            found[gathering] = ([], [])
        taken, taken_sizes = found[gathering]
        taken.append(record)
        taken_sizes.append(size)
    return [ListPortion(gathering, taken, many) for gathering, (taken, many) in found.items()]


def _size(record: Record) -> int:
    value, key, headers, _, _ = record
    size = len(value) + RECORD_BYTES
    if key is not None:
        size += len(key) + RECORD_BYTES
    if headers is not None:
        size += headers_size(headers)
    return size
