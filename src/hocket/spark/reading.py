"""One span of a partition as Arrow batches of Spark's types, or the exact offsets that are gone.

Offsets of a partition have no holes, so it is known exactly which records a span should hold. What
does not come was lost, by retention or with its topic, and is reported (see `missing`).

Records come in the batches in which they were stored, which may hold one record each; small ones
are merged as they come. They are gathered, so that Spark gets larger batches. Only columns that are
stored are taken from the wire; the others (topic, partition, offset) are made for a whole batch at
once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hocket.client.faces.blocking.client import Client
from hocket.client.faces.blocking.subscription import Subscription
from hocket.client_core.consuming.message import MessageBatch
from hocket.deadline import in_seconds
from hocket.errors import (
    HocketError,
    NoConnection,
    OutOfRange,
    ReplyLost,
    Timeout,
    UnknownPartition,
    UnknownTopic,
)
from hocket.spark import missing
from hocket.spark.columns import CREATE_TIME, STORED, arrow_schema
from hocket.spark.connections import client_of

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from hocket.spark.options import ReadOptions
    from hocket.spark.planning import Span

ROWS_ENOUGH = 10_000  # a batch of as many rows, or of BYTES_ENOUGH, goes to Spark
BYTES_ENOUGH = 1 << 20
FEW_ROWS = 64
ROWS_MAX = 65_536
BYTES_MAX = 4 << 20
CREDIT_BYTES = 16 << 20  # sent ahead while Spark works on what it has
CREDIT_BYTES_MIN = 256 << 10
ROW_BYTES_GUESSED = 256  # so that for a short span little is sent beyond its end
CLOSE_SECONDS = 5.0
LOOK_SECONDS = 0.5  # of silence, after which the broker is asked what is still there
ASK_SECONDS = 5.0

Watch = Callable[[MessageBatch], None]  # is shown each batch as it comes from the broker
Mask = Callable[[Any], Any]  # a record batch -> which rows are wanted, or None for all


def read(
    span: Span, options: ReadOptions, *, mask: Mask | None = None, watch: Watch | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """The records of the span, in order. Raises DataLoss, unless `fail_on_data_loss` is off."""
    if span.lake:
        from hocket.spark.lake import Lake, Range
        from hocket.spark.lake_files import read_range

        wanted = Range(span.topic, span.partition, span.start, span.end)
        for found in read_range(Lake(Path(span.lake)), wanted, options.columns):
            yield from _wanted([found], mask)
        return
    client = client_of(
        options.connection,
        first=span.leader,
        patience=options.poll_timeout,
        cluster=span.cluster,
    )
    gathering = _Gathering(span, options.columns)
    for batch in _Stretch(client, span, options).batches():
        if watch is not None:
            watch(batch)
        gathering.add(batch, min(batch.end, span.end))
        if gathering.is_enough:
            yield from _wanted(gathering.take(), mask)
    yield from _wanted(gathering.take(), mask)


def _wanted(batches: list[pyarrow.RecordBatch], mask: Mask | None) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        rows = None if mask is None else mask(batch)
        chosen = batch if rows is None else batch.filter(rows)
        if chosen.num_rows:
            yield chosen


# --- from the broker -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Stretch:
    """Reads one span. Offsets before `position` were read, or reported as missing."""

    client: Client
    span: Span
    options: ReadOptions
    position: int = field(init=False)

    def __post_init__(self) -> None:
        self.position = self.span.start

    def batches(self) -> Iterator[MessageBatch]:
        """The stored batches of the span; the last one may go on beyond its end."""
        while self.position < self.span.end:
            try:
                subscription = self._subscribe()
            except (OutOfRange, UnknownTopic, UnknownPartition):
                if not self._look():
                    raise  # no record is missing, so the error has another reason
                continue
            try:
                yield from self._received(subscription)
            except (UnknownTopic, UnknownPartition):
                self._look()
            finally:
                with suppress(HocketError):  # what was read is right, even if closing fails
                    subscription.close(CLOSE_SECONDS)

    def _subscribe(self) -> Subscription:
        span = self.span
        guess = (span.end - self.position) * ROW_BYTES_GUESSED
        return self.client.subscribe(
            span.topic,
            partitions=[span.partition],
            positions={span.partition: self.position},
            credit_bytes=min(CREDIT_BYTES, max(CREDIT_BYTES_MIN, guess)),
            timeout=self.options.poll_timeout,
        )

    def _received(self, subscription: Subscription) -> Iterator[MessageBatch]:
        deadline = time.monotonic() + self.options.poll_timeout
        while self.position < self.span.end:
            left = deadline - time.monotonic()
            try:
                batch = subscription.receive_batch(max(0.0, min(LOOK_SECONDS, left)), merge=True)
            except Timeout as error:
                if self._look():
                    return
                if left <= 0:
                    raise self._too_slow() from error
                continue
            self._gone_up_to(min(batch.offset, self.span.end), "retention has removed them")
            if batch.offset < self.span.end:
                self.position = min(batch.end, self.span.end)
                yield batch
            deadline = time.monotonic() + self.options.poll_timeout

    def _gone_up_to(self, offset: int, why: str) -> None:
        if offset > self.position:
            start, self.position = self.position, offset
            missing.report(
                self.span.topic, self.span.partition, start, offset, why,
                fail=self.options.fail_on_data_loss,
            )  # fmt: skip

    def _look(self) -> bool:
        """Ask the broker what is there, and report what is missing; False: nothing is missing."""
        span, before = self.span, self.position
        try:
            found = self.client.describe(span.topic, timeout=ASK_SECONDS).partitions
        except UnknownTopic:
            self._gone_up_to(span.end, "the topic was deleted")
            return True
        except (NoConnection, ReplyLost, Timeout):
            return False  # the client goes on looking for the broker: wait on
        by_number = {each.partition: each for each in found}
        partition = by_number.get(span.partition)
        if partition is None:
            self._gone_up_to(
                span.end, f"the topic has {len(found)} partitions now: it was created anew"
            )
            return True
        if not partition.known:
            return False  # the node that holds it does not answer: wait on
        self._gone_up_to(
            min(partition.start, span.end),
            f"retention has removed what was before {partition.start}",
        )
        if partition.end < span.end and self.position >= partition.end:
            self._gone_up_to(
                span.end, f"the partition ends at {partition.end} now: its topic was created anew"
            )
        return self.position != before

    def _too_slow(self) -> HocketError:
        span = self.span
        return Timeout(
            f"offset {self.position} of topic {span.topic!r}, partition {span.partition}, is there "
            f"but did not come within {in_seconds(self.options.poll_timeout)}. Is the broker "
            "reachable, and not overloaded? The option pollTimeoutMs says how long to wait"
        )


# --- to Spark ------------------------------------------------------------------------------------


class _Gathering:
    """Gathers records with consecutive offsets until there are enough for a batch."""

    def __init__(self, span: Span, columns: tuple[str, ...]) -> None:
        self._span = span
        self._columns = columns
        self._stored = [name for name in columns if name in STORED]
        self._schema = arrow_schema(columns)
        self._pieces: list[pyarrow.RecordBatch] = []
        self._start = self._end = span.start
        self._bytes = 0
        self._full: list[pyarrow.RecordBatch] = []  # complete, since a gap follows
        self._constants: dict[str, Any] = {}  # columns with the same value in all rows of the span

    @property
    def is_enough(self) -> bool:
        rows = self._end - self._start
        return bool(self._full) or rows >= ROWS_ENOUGH or self._bytes >= BYTES_ENOUGH

    def add(self, batch: MessageBatch, end: int) -> None:
        """Add those records of the batch that lie before `end`."""
        if batch.offset != self._end:  # records are missing; offsets are counted on within a batch
            self._full += self._complete()
            self._start = self._end = batch.offset
        if self._stored:
            piece = batch.to_arrow(columns=self._stored)
            if end < batch.end:
                piece = piece.slice(0, end - batch.offset)
            self._pieces.append(piece)
            # For a few records the stored size is good enough, and quicker to get.
            self._bytes += len(batch.entry) if batch.count < FEW_ROWS else piece.nbytes
        self._end = end

    def take(self) -> list[pyarrow.RecordBatch]:
        found = self._full + self._complete()
        self._full = []
        return found

    def _complete(self) -> list[pyarrow.RecordBatch]:
        import pyarrow as pa

        start, rows = self._start, self._end - self._start
        if not rows:
            return []
        stored = {}
        if self._stored:
            piece = self._pieces[0] if len(self._pieces) == 1 else pa.concat_batches(self._pieces)
            stored = dict(zip(self._stored, piece.columns, strict=True))
        columns = [
            stored[name] if name in stored else self._made(name, start, rows)
            for name in self._columns
        ]
        found = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        portion = min(ROWS_MAX, max(1, rows * BYTES_MAX // max(1, self._bytes)))
        self._pieces, self._bytes, self._start = [], 0, self._end
        return [found.slice(at, portion) for at in range(0, rows, portion)]

    def _made(self, name: str, start: int, rows: int) -> Any:
        import numpy as np
        import pyarrow as pa

        if name == "offset":
            return pa.array(np.arange(start, start + rows, dtype=np.int64))
        found = self._constants.get(name)
        if found is None or len(found) < rows:
            found = self._constants[name] = pa.repeat(self._constant(name), max(rows, ROWS_ENOUGH))
        return found.slice(0, rows)

    def _constant(self, name: str) -> Any:
        import pyarrow as pa

        if name == "topic":
            return pa.scalar(self._span.topic, pa.string())
        return pa.scalar(self._span.partition if name == "partition" else CREATE_TIME, pa.int32())
