"""What a subscription hands out: messages one by one, or the batches they came in."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol

from hocket.errors import CorruptData, Undecodable, WrongKind, unreadable
from hocket.wire.arrow import to_arrow
from hocket.wire.batch import Batch, PlainRecords

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import pyarrow  # type: ignore[import-untyped]
    from typing_extensions import TypeVar

    V = TypeVar("V", default=bytes)  # the type of values: bytes, unless `value=` says otherwise
else:
    from typing import TypeVar  # of which a default is known since Python 3.13 only

    V = TypeVar("V")

# Of a message: what stands where in the tuple.
offset_of = itemgetter(5)
count_of = itemgetter(7)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AnyProgress(Protocol):
    """The progress, on an own or a shared index, in the partition that a message is from.

    It is told what became of the message.
    """

    partition: int
    index: str  # the name of an own index, if there is one

    def ack(self, what: Any, /) -> None: ...


class OfOwnIndex:
    """What a message of an own index cannot be told: these calls are for shared indexes."""

    __slots__ = ()

    def nack(self, delay: float | str = 0) -> Any:
        """Raises WrongKind, like `extend` and `reject`: they are for shared indexes."""
        raise _not_shared(f"nack(delay={delay!r})")

    def extend(self, seconds: float | str | None = None) -> Any:
        raise _not_shared(f"extend({seconds!r})")

    def reject(self, reason: str = "") -> Any:
        raise _not_shared(f"reject({reason!r})")


class Message(OfOwnIndex, tuple[Any, ...], Generic[V]):
    """One record: `value`, `key`, `headers`, its position, and when it was made.

    `value` is bytes, or of the type that the subscription was opened with (see `typed`); `raw` is
    always the bytes. `timestamp` is microseconds since the epoch, `time` the same as a datetime.
    `headers` may be shared: do not change it.

    A tuple underneath, because a million of them are made each second.
    """

    __slots__ = ()

    value: V = property(itemgetter(0))  # type: ignore[assignment]
    raw: bytes = property(itemgetter(0))  # type: ignore[assignment]
    key: bytes | None = property(itemgetter(1))  # type: ignore[assignment]
    headers: dict[str, bytes | None] = property(itemgetter(2))  # type: ignore[assignment]
    topic: str = property(itemgetter(3))  # type: ignore[assignment]
    partition: int = property(itemgetter(4))  # type: ignore[assignment]
    offset: int = property(itemgetter(5))  # type: ignore[assignment]
    timestamp: int = property(itemgetter(6))  # type: ignore[assignment]
    delivery_count: int = property(itemgetter(7))  # type: ignore[assignment]

    @property
    def time(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self[6])

    def ack(self) -> Any:
        """This message, and those before it in its partition, need not be delivered again.

        It does not wait: acks are sent together, a little later. `commit` of the subscription
        waits until they are durable, and so does closing it.
        """
        self[8].ack(self[5])

    def __repr__(self) -> str:
        value = self.raw if len(self.raw) <= 40 else self.raw[:40] + b"..."
        key = f" key={self.key!r}" if self.key is not None else ""
        return f"<Message {self.topic}[{self.partition}]@{self.offset}{key} value={value!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self[:8] == other[:8]

    def __hash__(self) -> int:
        return hash((self[3], self[4], self[5]))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Message belongs to its subscription; pickle what you need of it")


def _not_shared(call: str) -> WrongKind:
    return WrongKind(
        f"{call} is for messages of a shared index (mode='shared'). Those of an own index are "
        "delivered again by seeking back to them, and skipped by acknowledging them"
    )


def messages_of(
    kind: type[Message],
    batch: Batch,
    start: int,
    end: int,
    topic: str,
    progress: AnyProgress,
    deliveries: Iterable[int],
) -> list[Message]:
    """The records from `start` to `end` of a batch as messages, made by loops in C alone."""
    columns = batch.columns()
    first = batch.base_offset
    fields = zip(
        batch.values(start, end),
        repeat(None) if columns.keys is None else batch.keys(start, end),
        repeat({}) if columns.headers is None else batch.headers(start, end),
        repeat(topic),
        repeat(progress.partition),
        range(first + start, first + end),
        batch.timestamps(start, end),
        deliveries,
        repeat(progress),
    )
    return list(map(tuple.__new__, repeat(kind), fields))


def plain_messages(
    kind: type[Message],
    records: PlainRecords,
    first: int,
    topic: str,
    progress: AnyProgress,
    deliveries: Iterable[int],
) -> list[Message]:
    """`messages_of` for all records of a small and simple batch, the first of this offset."""
    values, timestamps = records
    fields = zip(
        values,
        repeat(None),
        repeat({}),
        repeat(topic),
        repeat(progress.partition),
        range(first, first + len(values)),
        timestamps,
        deliveries,
        repeat(progress),
    )
    return list(map(tuple.__new__, repeat(kind), fields))


class MessageBatch(OfOwnIndex, Generic[V]):
    """Messages of one partition that were stored together; they are decoded only when asked for.

    `offset` is the first message's, `end` the one behind the last.
    """

    __slots__ = (
        "_batch",
        "_first",
        "_kind",
        "_last",
        "_progress",
        "delivery_count",
        "end",
        "offset",
        "topic",
    )  # fmt: skip

    def __init__(
        self,
        kind: type[Message],
        batch: Batch,
        offset: int,
        end: int,
        topic: str,
        progress: AnyProgress,
        deliveries: int = 1,
    ) -> None:
        self._kind = kind
        self._batch = batch
        self._progress = progress
        self._first = offset - batch.base_offset
        self._last = end - batch.base_offset
        self.topic = topic
        self.offset = offset
        self.end = end
        self.delivery_count = deliveries

    @property
    def partition(self) -> int:
        return self._progress.partition

    @property
    def count(self) -> int:
        return self.end - self.offset

    @property
    def entry(self) -> memoryview:
        """The whole batch as it is stored; it may hold messages before and behind these."""
        return self._batch.entry

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<MessageBatch {self.topic}[{self.partition}]@{self.offset} to {self.end}>"

    def messages(self) -> list[Message[V]]:
        with self._named():
            return messages_of(  # type: ignore[return-value]
                self._kind,
                self._batch,
                self._first,
                self._last,
                self.topic,
                self._progress,
                repeat(self.delivery_count),
            )

    def values(self) -> list[V]:
        """All values. Raises Undecodable for the first that is not of the subscription's type."""
        return self.raw_values()  # type: ignore[return-value]

    def raw_values(self) -> list[bytes]:
        with self._named():
            return self._batch.values(self._first, self._last)

    def sift(self) -> tuple[list[Message[V]], list[Undecodable]]:
        """The messages whose value can be read, and the errors of the others.

        `error.message` is such a message, to be acknowledged or rejected on its own.
        """
        return self.messages(), []

    def keys(self) -> list[bytes | None]:
        with self._named():
            return self._batch.keys(self._first, self._last)

    def headers(self) -> list[dict[str, bytes | None]]:
        with self._named():
            return self._batch.headers(self._first, self._last)

    def timestamps(self) -> list[int]:
        with self._named():
            return self._batch.timestamps(self._first, self._last)

    def _named(self) -> _Named:
        return _Named(self)

    def to_arrow(
        self, headers: bool = False, columns: Iterable[str] | None = None
    ) -> pyarrow.RecordBatch:
        """A record batch with the columns of Spark's Kafka source; values are not copied.

        `columns` names those that are wanted, in this order: of key, value, topic, partition,
        offset, timestamp and headers. The others are not made.
        """
        with self._named():
            found = to_arrow(
                self._batch,
                self.topic,
                self._progress.partition,
                skip=self._first,
                headers=headers,
                columns=columns,
            )
        return found.slice(0, self.count) if found.num_rows != self.count else found

    def to_pandas(
        self, headers: bool = False, columns: Iterable[str] | None = None
    ) -> pandas.DataFrame:
        # For one batch a pool of threads is not worth its start.
        return self.to_arrow(headers, columns).to_pandas(use_threads=False)

    def ack(self) -> Any:
        """Acknowledge all of these messages, and those before them in their partition."""
        self._progress.ack(self.end - 1)


class _Named:
    """While a batch is read: CorruptData says which messages of which topic it is about."""

    __slots__ = ("_of",)

    def __init__(self, of: MessageBatch[Any]) -> None:
        self._of = of

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, CorruptData):
            of = self._of
            base = of._batch.base_offset
            bad = of._batch.unreadable(of._first, of._last) or [of._first]
            raise unreadable(
                str(error),
                topic=of.topic,
                index=of._progress.index,
                partition=of.partition,
                start=base + bad[0],
                end=min(of.end, base + max(bad[0] + 1, of._batch.unreadable_run(bad[0]))),
            ) from error


class AsyncOfOwnIndex(OfOwnIndex):
    """`OfOwnIndex` for messages of an asyncio subscription."""

    __slots__ = ()

    async def nack(self, delay: float | str = 0) -> None:
        super().nack(delay)

    async def extend(self, seconds: float | str | None = None) -> None:
        super().extend(seconds)

    async def reject(self, reason: str = "") -> None:
        super().reject(reason)


class AsyncMessage(AsyncOfOwnIndex, Message[V]):
    """A message of an asyncio subscription: `await message.ack()`."""

    __slots__ = ()

    async def ack(self) -> None:
        self[8].ack(self[5])


class AsyncMessageBatch(AsyncOfOwnIndex, MessageBatch[V]):
    """A batch of an asyncio subscription: `await batch.ack()`."""

    __slots__ = ()

    async def ack(self) -> None:
        self._progress.ack(self.end - 1)
