"""What plug-ins see of records: a batch that is published, and batches that were delivered.

Both by columns. A column is decoded when it is first looked at; a plug-in that looks at the topic
alone costs nothing for the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hocket.errors import OutOfRange
from hocket.wire.batch import Batch, encode, iterate_entries, parse

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from hocket.node.running.hooks import Passing

Headers = Mapping[str, bytes | None]
Columns = Mapping[str, tuple[Any, ...]]
_NONE: Columns = {}


class Publish:
    """A batch of a client that is about to be stored.

    Columns are tuples with one item for each record, in order. To change one, assign a sequence of
    the same length. The partition is chosen already, by the keys as the client sent them. A batch
    of a transaction cannot be changed, only rejected.
    """

    __slots__ = ("_batch", "_columns", "_passing", "changes")
    _batch: Batch

    def __init__(self, passing: Passing) -> None:
        self._passing = passing
        # As they were read, and as they are to be. Replaced, not changed: most need neither. Nor
        # is `_batch` there before it is looked at: one of these is made for each batch.
        self._columns = self.changes = _NONE

    @property
    def topic(self) -> str:
        return self._passing.topic

    @property
    def partition(self) -> int:
        return self._passing.partition

    @property
    def user(self) -> str:
        """Who publishes; empty while there are no users, or from within the broker's process."""
        return self._passing.user

    @property
    def delayed(self) -> bool:
        """The messages are delayed; their timestamps say until when."""
        return self._passing.delayed

    @property
    def transaction(self) -> bool:
        return self._passing.transaction

    def __len__(self) -> int:
        return self._passing.info.header.count

    @property
    def values(self) -> tuple[bytes, ...]:
        return self._read("values")

    @values.setter
    def values(self, column: Sequence[Buffer]) -> None:
        self._change("values", column)

    @property
    def keys(self) -> tuple[bytes | None, ...]:
        return self._read("keys")

    @keys.setter
    def keys(self, column: Sequence[Buffer | None]) -> None:
        self._change("keys", column)

    @property
    def timestamps(self) -> tuple[int, ...]:
        """Microseconds since the epoch."""
        return self._read("timestamps")

    @timestamps.setter
    def timestamps(self, column: Sequence[int]) -> None:
        self._change("timestamps", column)

    @property
    def headers(self) -> tuple[Headers, ...]:
        """Of a name that a record has twice, the last counts."""
        found = self._read("headers")
        return tuple(MappingProxyType(each) for each in found)

    @headers.setter
    def headers(self, column: Sequence[Headers]) -> None:
        self._change("headers", [dict(each) for each in column])

    def add_header(self, name: str, value: bytes) -> None:
        """Give all records this header."""
        self.headers = [{**each, name: value} for each in self._read("headers")]

    def encoded(self) -> bytes | None:
        """The batch with its changes; None: there are none. Raises what `encode` does."""
        if not self.changes:
            return None
        info = self._passing.info
        return encode(
            self._read("values"),
            timestamps=self._read("timestamps"),
            keys=self._read("keys"),
            headers=self._read("headers"),
            codec=self._opened().codec,
            producer_id=info.producer_id,
            epoch=info.epoch,
            sequence=info.sequence,
        )

    def _read(self, name: str) -> tuple[Any, ...]:
        if name in self.changes:
            return self.changes[name]
        if name not in self._columns:
            self._columns = {**self._columns, name: tuple(getattr(self._opened(), name)())}
        return self._columns[name]

    def _opened(self) -> Batch:
        try:
            return self._batch
        except AttributeError:
            passing = self._passing
            self._batch = parse(passing.payload, passing.info.position, verify=False)
            return self._batch

    def _change(self, name: str, column: Sequence[Any]) -> None:
        if len(column) != len(self):
            raise OutOfRange(
                f"a batch of {len(self)} records has as many {name}, not {len(column)}; records "
                "cannot be added or left out, for their sender counts them"
            )
        self.changes = {**self.changes, name: tuple(column)}


@dataclass(frozen=True, slots=True)
class Delivery:
    """Batches that were sent to a consumer."""

    topic: str
    partition: int
    index: str  # empty: the consumer keeps its positions itself
    user: str
    start: int  # the first offset that it was sent for
    end: int  # behind the last one
    records: int
    payload: Sequence[Buffer]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(memoryview(each).nbytes for each in self.payload)

    def batches(self) -> list[Batch]:
        """The batches, to be read by their columns. They may reach beyond `start` and `end`."""
        return [
            parse(each, position, header=header, verify=False)
            for each in self.payload
            for position, header in iterate_entries(each)
        ]
