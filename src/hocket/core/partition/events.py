"""What a partition (`core.partition.partition`) is told, and what it wants done.

Events are facts, one for each batch or request and never one for each record. Effects are
imperatives for the driver, which carries them out in their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from hocket.core.origin import Origin
from hocket.core.partition.cursors import Cursor
from hocket.core.sharing.state import ShareChange, ShareSettings
from hocket.model import DAY_US

PRODUCER_IDLE_US = 7 * DAY_US  # after this long without a batch a producer may be forgotten

BATCH, CURSOR, CONTROL, STAGE = 1, 2, 4, 5  # entry kinds, as in wire.entry

Name = tuple[str, int]  # of a transaction: its id and number
Producers = tuple[tuple[bytes, int], ...]  # that a decision names, and how many batches of each


class StageKey(NamedTuple):
    transaction: str
    number: int
    producer_id: bytes

    @property
    def name(self) -> Name:
        return self.transaction, self.number


class Staged(NamedTuple):
    """A staged batch: where its entry stands, and what it is."""

    entry: int  # its index in the log
    base_offset: int  # of the record that came next; helps to find it
    size: int  # that it will take in the log, once it is published
    records: int
    crc: int  # of its body


@dataclass(slots=True)
class Batch:
    """What the partition needs to know of a batch; the bytes are the driver's business."""

    producer_id: bytes
    epoch: int
    sequence: int
    count: int
    max_timestamp: int
    body: Any  # the driver's own handle on the bytes, passed through to Append


# --- events --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Produce:
    origin: Origin
    batch: Batch
    now_us: int


@dataclass(slots=True)
class LogDurable:
    """Everything up to this entry is durable."""

    index: int


@dataclass(slots=True)
class AttachIndex:
    origin: Origin
    name: str
    start: int
    hold_retention: bool
    mode: str = "own"
    settings: ShareSettings | None = None  # of a shared index; None: as they are


@dataclass(slots=True)
class ChangeShare:
    """What has become of messages of a shared index; who asked hears of it when it is durable."""

    origin: Origin | None
    name: str
    change: ShareChange


@dataclass(slots=True)
class CommitIndex:
    origin: Origin
    name: str
    epoch: int
    position: int


@dataclass(slots=True)
class SeekIndex:
    origin: Origin
    name: str
    position: int


@dataclass(slots=True)
class DeleteIndex:
    origin: Origin
    name: str


@dataclass(slots=True)
class MoveLogStart:
    offset: int


@dataclass(slots=True)
class ExpireProducers:
    """Forget producers that were not heard of since then."""

    before_us: int


@dataclass(slots=True)
class TurnEnded:
    """The driver has no more events for now: what was gathered is to be appended."""


@dataclass(slots=True)
class Replayed:
    """A committed entry, read back when the log is opened."""

    kind: int
    index: int
    end_offset: int
    batch: Batch | None
    body: bytes
    base_offset: int
    now_us: int = 0  # the time of opening: a producer of ours was heard of no longer ago than that
    staged: tuple[StageKey, Staged] | None = None  # of an entry of kind STAGE


@dataclass(slots=True)
class StageBatch:
    origin: Origin
    key: StageKey
    batch: Batch
    size: int
    crc: int
    now_us: int


@dataclass(slots=True)
class ApplyStaged:
    """The transaction is committed. `batches` are the next ones of `Stages.next_of`, with bytes."""

    name: Name
    decision: int
    producers: Producers
    batches: list[Batch]


@dataclass(slots=True)
class DropStages:
    """What these producers have staged for it is aborted, or it is decided without them."""

    name: Name
    producers: tuple[bytes, ...]


@dataclass(slots=True)
class ForgetApplied:
    """The decider has nothing more to say of its decisions up to this one."""

    through: int


Event = (
    Produce | LogDurable | AttachIndex | CommitIndex | SeekIndex | DeleteIndex | ChangeShare
    | MoveLogStart | ExpireProducers | TurnEnded | Replayed
    | StageBatch | ApplyStaged | DropStages | ForgetApplied
)  # fmt: skip


# --- effects -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Append:
    """Put an entry behind the log. The driver persists it before it sends what depends on it."""

    kind: int
    index: int
    base_offset: int
    batch: Batch | None = None
    body: bytes = b""
    stage: StageKey | None = None  # what the batch is staged for


@dataclass(slots=True)
class Acked:
    """These batches of one origin are committed; `offsets` are their base offsets in order."""

    origin: Origin
    sequence: int  # of the last of them
    offsets: list[int]


@dataclass(slots=True)
class Refused:
    origin: Origin
    sequence: int
    code: str
    message: str


@dataclass(slots=True)
class IndexMoved:
    """An index is, durably, where this cursor says; None: it is gone."""

    origin: Origin
    name: str
    cursor: Cursor | None
    by: str  # "attach", "commit", "seek" or "delete"


@dataclass(slots=True)
class IndexFenced:
    origin: Origin
    name: str


@dataclass(slots=True)
class ShareChanged:
    """All this has durably become of messages of a shared index, as these had asked."""

    name: str
    change: ShareChange
    origins: list[Origin]


@dataclass(slots=True)
class EndMoved:
    """There is more for consumers to read."""

    end: int


@dataclass(slots=True)
class LogStartMoved:
    offset: int


@dataclass(slots=True)
class StageAcked:
    """This batch, and all before it of the same origin, are staged durably."""

    origin: Origin
    sequence: int


@dataclass(slots=True)
class TransactionApplied:
    """All that was staged here for it is, durably, in the log."""

    name: Name
    decision: int


@dataclass(slots=True)
class StagesMoved:
    """The log must keep its entries from `first_index` on (None: none), and room for `bytes`."""

    first_index: int | None
    bytes: int


Effect = (
    Append | Acked | Refused | IndexMoved | IndexFenced | ShareChanged | EndMoved | LogStartMoved
    | StageAcked | TransactionApplied | StagesMoved
)  # fmt: skip
