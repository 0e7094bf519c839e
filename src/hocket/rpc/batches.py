"""Batches on their way in and out: records one by one, or entries exactly as the log has them.

A batch that comes in is copied out of its Cap'n Proto message, and all of it is checked, before
anything is done with it: the message is gone as soon as its call is given up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from hocket.client_core.consuming.message import Message, MessageBatch
from hocket.client_core.producing.bulk import ListPortion, record_portions
from hocket.client_core.producing.core import ProducerCore
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.outgoing import Stamp, restamped
from hocket.client_core.producing.records import Record, checked
from hocket.errors import OutOfRange
from hocket.wire.batch import BatchInfo, check_content, encode, first_key_hash, whole_batches

RECORDS_PER_DELIVERY = 512
BYTES_PER_DELIVERY = 256 << 10  # a delivery may be larger by one record


class Records(NamedTuple):
    """Records one by one, each with its size."""

    records: list[Record]
    sizes: list[int]
    partition: int | None

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def portions(self, core: ProducerCore) -> list[ListPortion]:
        core.check_usable()
        if not self.records:
            return []
        if self.partition is None:
            return record_portions(core, self.records, self.sizes)
        return [ListPortion(core.gathering_of(None, self.partition), self.records, self.sizes)]

    def gathering(self, core: ProducerCore) -> Gathering | None:
        """The gathering of the partition that all records go to; None: any partition will do."""
        if self.partition is not None:
            return core.gathering_of(None, self.partition)
        keyed = {core.gathering_of(record[1], None) for record in self.records} - {None}
        if len(keyed) > 1:
            numbers = sorted(gathering.partition for gathering in keyed if gathering is not None)
            raise OutOfRange(
                f"the records of one publish go to one partition, and these keys belong to "
                f"{numbers}: publish them apart, or push them through a producer"
            )
        return keyed.pop() if keyed else None

    def encoded(self, now_us: int, stamp: Stamp) -> bytes:
        values, keys, headers, timestamps, _ = zip(*self.records, strict=True)
        return encode(
            values,
            timestamps=[now_us if each is None else each for each in timestamps],
            keys=keys,
            headers=headers,
            producer_id=stamp.producer_id,
            epoch=stamp.epoch,
            sequence=stamp.sequence,
        )


class Encoded(NamedTuple):
    """Entries of the log whose checksums are right, and whose content was looked at."""

    data: memoryview
    entries: list[BatchInfo]
    partition: int | None

    @property
    def size(self) -> int:
        return len(self.data)

    def portions(self, core: ProducerCore) -> list[EntryPortion]:
        core.check_usable()
        return [
            EntryPortion(self.gathering(core, info), self.entry(info), info.header.count)
            for info in self.entries
        ]

    def gathering(self, core: ProducerCore, info: BatchInfo) -> Gathering | None:
        """By the partition or the first key of the batch, as the broker chooses; None: any."""
        if self.partition is not None:
            return core.gathering_of(None, self.partition)
        hashed = first_key_hash(self.data, info)
        return None if hashed is None else core.gatherings[hashed % len(core.gatherings)]

    def entry(self, info: BatchInfo) -> memoryview:
        return self.data[info.position : info.position + info.size]


class EntryPortion:
    """One encoded batch on its way to a producer."""

    __slots__ = ("_entry", "_gathering", "count")

    def __init__(self, gathering: Gathering | None, entry: memoryview, count: int) -> None:
        self._gathering = gathering
        self._entry = entry
        self.count = count

    def offer(self, core: ProducerCore, _start: int) -> int | None:
        def encoded(stamp: Stamp) -> bytes:
            return restamped(self._entry, stamp)

        return self.count if core.offer_entry(self._gathering, encoded, self.count) else None


def read_batch(batch: Any) -> Records | Encoded:
    """Read a Batch of the schema. Raises what `checked` raises, and CorruptData."""
    number = batch.partition
    partition = None if number == -1 else number
    if batch._which_str() == "encoded":
        data = memoryview(batch.encoded)
        infos = whole_batches(data)
        for info in infos:  # the broker does the same, but its answer comes later
            check_content(data, info)
        return Encoded(data, infos, partition)
    records, sizes = [], []
    for each in batch.records:
        get, has = each._get, each._has
        record, size = checked(
            get("value"),
            get("key") if has("key") else None,
            [_read_header(header) for header in get("headers")] if has("headers") else None,
            get("timestamp") or None,
        )
        records.append(record)
        sizes.append(size)
    return Records(records, sizes, partition)


def _read_header(header: Any) -> tuple[str, bytes | None]:
    return header.name, header.value if header._has("value") else None


# --- out -----------------------------------------------------------------------------------------


def write_encoded(builder: Any, batch: MessageBatch) -> int:
    """Write the batch exactly as it is stored, and return its size."""
    entry = batch.entry
    _write_range(builder, batch.partition, batch.offset, batch.end)
    builder.deliveryCount = batch.delivery_count
    builder.encoded = bytes(entry)
    return len(entry)


def portions_out(batch: MessageBatch) -> Iterator[tuple[list[Message], int]]:
    """The batch's messages in runs that fit into one delivery; each run with its size."""
    run: list[Message] = []
    size = 0
    for message in batch.messages():
        run.append(message)
        size += _size_out(message)
        if len(run) == RECORDS_PER_DELIVERY or size >= BYTES_PER_DELIVERY:
            yield run, size
            run, size = [], 0
    if run:
        yield run, size


def _size_out(message: Message) -> int:
    """About how many bytes the message takes within a Cap'n Proto message."""
    headers = sum(len(name) + len(data or b"") + 32 for name, data in message.headers.items())
    return 80 + len(message.value) + len(message.key or b"") + headers


def write_records(builder: Any, run: list[Message]) -> None:
    first, last = run[0], run[-1]
    _write_range(builder, first.partition, first.offset, last.offset + 1)
    builder.deliveryCount = first.delivery_count
    records = builder.init("records", len(run))
    for at, message in enumerate(run):
        put = records[at]._set
        if message.key is not None:
            put("key", message.key)
        put("value", message.value)
        put("timestamp", message.timestamp)
        put("offset", message.offset)
        put("partition", message.partition)
        put("deliveryCount", message.delivery_count)
        if message.headers:
            _write_headers(records[at].init("headers", len(message.headers)), message.headers)


def _write_headers(builder: Any, headers: dict[str, bytes | None]) -> None:
    for at, (name, data) in enumerate(headers.items()):
        builder[at].name = name
        if data is not None:
            builder[at].value = data


def _write_range(builder: Any, partition: int, start: int, end: int) -> None:
    builder.partition = partition
    builder.start = start
    builder.end = end
