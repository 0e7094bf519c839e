"""What a partition (`core.partition.partition`) is told, and what it wants done.

Events are facts, one for each batch or request and never one for each record. Effects are
imperatives for the driver, which carries them out in their order.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, NamedTuple

from hocket.core.origin import Origin
from hocket.core.partition.cursors import Cursor
from hocket.core.sharing.state import ShareChange, ShareSettings
from hocket.model import DAY_US, DECISIONS, EntryKind

PRODUCER_IDLE_US = 7 * DAY_US  # after this long without a batch a producer may be forgotten

# As plain ints, which compare faster than an IntEnum.
BATCH, CURSOR, CONTROL, STAGE = map(
    int, (EntryKind.BATCH, EntryKind.CURSOR, EntryKind.CONTROL, EntryKind.STAGE)
)

Name = tuple[str, int]  # of a transaction: its id and number
Producers = tuple[tuple[bytes, int], ...]  # those that a decision names, each with its batches
OWN_DECIDER = DECISIONS  # deciders are known by the groups of their logs; this is the node's own


class StageKey(NamedTuple):
    """What a batch is staged for, and by which producer."""

    transaction: str
    number: int
    producer_id: bytes

    @property
    def name(self) -> Name:
        return self.transaction, self.number


class Staged(NamedTuple):
    """A staged batch: where its entry is in the log, and what it holds."""

    entry: int  # the index of its entry
    base_offset: int  # the end of the log when it was staged; helps to find the entry
    size: int  # the bytes that it will take in the log once it is published
    records: int
    crc: int  # of its body


@dataclass(slots=True)
class Batch:
    """What the partition needs to know of a batch. The driver keeps the bytes."""

    producer_id: bytes
    epoch: int
    sequence: int
    count: int
    max_timestamp: int
    body: Any  # the driver's own handle on the bytes, passed through to Append
    # Of the body, to tell a repetition from another batch. None: the sequence alone decides.
    crc: int | None = None
    dues: array[int] | None = None  # of a batch that waits: when each of its records is due
    changeable: bool = False  # plug-ins may change batches: what is sent is not what is stored


# --- events --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Produce:
    origin: Origin
    batch: Batch
    now_us: int
    user: str = ""  # whose producer it is; empty while everybody is the same
    # A batch of the same origin that was refused, and has not come again. What comes behind it is
    # refused too, even if somebody else has stored one with its sequence meanwhile.
    refused: int | None = None


@dataclass(slots=True)
class LogDurable:
    """Every entry up to this one is durable."""

    index: int


@dataclass(slots=True)
class AttachIndex:
    """A consumer wants to go on at this index, or to begin it at `start`."""

    origin: Origin
    name: str
    start: int
    hold_retention: bool
    mode: str = "own"
    settings: ShareSettings | None = None  # of a shared index; None: they stay as they are


@dataclass(slots=True)
class ChangeShare:
    """Messages of a shared index have changed. Who asked for it hears when that is durable."""

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
class SkipIndex:
    """The consumer of an own index goes on at `position`: `lost` records before that are gone."""

    origin: Origin
    name: str
    position: int
    lost: int


@dataclass(slots=True)
class DeleteIndex:
    origin: Origin
    name: str


@dataclass(slots=True)
class MoveLogStart:
    offset: int


@dataclass(slots=True)
class ExpireProducers:
    """Producers that were not heard of since `before_us` may be forgotten."""

    before_us: int


@dataclass(slots=True)
class TurnEnded:
    """The driver has no more events for now: the changes of the turn become one entry."""


@dataclass(slots=True)
class Replayed:
    """A committed entry, read back when the log is opened."""

    kind: int
    index: int
    end_offset: int
    batch: Batch | None
    body: bytes
    base_offset: int
    now_us: int = 0  # the time of opening: its producer counts as heard of then
    staged: tuple[StageKey, Staged] | None = None  # of an entry of kind STAGE


@dataclass(slots=True)
class Lost:
    """Entries were lost to damage, between those that are replayed or behind the last of them.

    The log goes on behind them, at this index and offset. If these are where the log ended anyway,
    it is not known whether anything is lost.
    """

    next_index: int
    next_offset: int
    log_start: int = 0  # as the log knows it: the entry that moved it may be among those lost


@dataclass(slots=True)
class StageBatch:
    """A producer stages a batch for a transaction."""

    origin: Origin
    key: StageKey
    batch: Batch
    size: int
    crc: int
    now_us: int


@dataclass(slots=True)
class ApplyStaged:
    """The transaction is committed. `batches` are those that `Stages.next_of` named, with bytes."""

    name: Name
    decision: int
    producers: Producers
    batches: list[Batch]
    decider: int = OWN_DECIDER


@dataclass(slots=True)
class DropStages:
    """What these producers have staged for the transaction is aborted, or no part of the commit."""

    name: Name
    producers: tuple[bytes, ...]


@dataclass(slots=True)
class ForgetApplied:
    """The decider has nothing more to say about its decisions up to this one."""

    through: int
    decider: int = OWN_DECIDER


@dataclass(slots=True)
class Release:
    """It is `through_us` now: up to `count` of the messages that wait, and are due, may go."""

    through_us: int
    count: int


@dataclass(slots=True)
class MovedOn:
    """What was released is, durably, where it belongs, in batches up to before `sequence`.

    The next messages may go, as with Release; none if `count` is 0.
    """

    sequence: int
    through_us: int
    count: int


@dataclass(slots=True)
class BeginLife:
    """What was released cannot go on under the producer id of this life: begin another one."""

    life: int


Event = (
    Produce | LogDurable | AttachIndex | CommitIndex | SeekIndex | SkipIndex | DeleteIndex
    | ChangeShare | MoveLogStart | ExpireProducers | TurnEnded | Replayed | Lost
    | StageBatch | ApplyStaged | DropStages | ForgetApplied
    | Release | MovedOn | BeginLife
)  # fmt: skip


# --- effects -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Append:
    """Append an entry to the log: the driver makes it durable, then sends what depends on it."""

    kind: int
    index: int
    base_offset: int
    batch: Batch | None = None
    body: bytes = b""
    stage: StageKey | None = None  # of an entry of kind STAGE


@dataclass(slots=True)
class Acked:
    """These batches of one origin are committed; `offsets` are their base offsets, in order."""

    origin: Origin
    sequence: int  # of the last batch
    offsets: list[int]


@dataclass(slots=True)
class Refused:
    """A request is refused. `sequence` is that of the batch, or 0."""

    origin: Origin
    sequence: int
    code: str
    message: str


@dataclass(slots=True)
class IndexMoved:
    """An index is, durably, where this cursor says; None: the index is deleted."""

    origin: Origin
    name: str
    cursor: Cursor | None
    by: str  # "attach", "commit", "seek", "skip" or "delete"


@dataclass(slots=True)
class IndexFenced:
    """A commit came with an epoch that is fenced; it changes nothing."""

    origin: Origin
    name: str


@dataclass(slots=True)
class ShareChanged:
    """Messages of a shared index have, durably, changed like this; these origins had asked."""

    name: str
    change: ShareChange
    origins: list[Origin]


@dataclass(slots=True)
class EndMoved:
    """Consumers may read up to `end` now."""

    end: int


@dataclass(slots=True)
class LogStartMoved:
    """Records below this offset are gone, durably."""

    offset: int


@dataclass(slots=True)
class StageAcked:
    """This batch, and all before it of the same origin, are, durably, staged."""

    origin: Origin
    sequence: int


@dataclass(slots=True)
class TransactionApplied:
    """All that was staged here for the transaction is, durably, in the log."""

    name: Name
    decision: int
    decider: int = OWN_DECIDER


@dataclass(slots=True)
class StagesMoved:
    """The log must keep its entries from `first_index` on, if any, and room for `bytes`."""

    first_index: int | None
    bytes: int


@dataclass(slots=True)
class Released:
    """These messages are, durably, released: move them, in this order. There may be none."""

    offsets: list[int]


Effect = (
    Append | Acked | Refused | IndexMoved | IndexFenced | ShareChanged | EndMoved | LogStartMoved
    | StageAcked | TransactionApplied | StagesMoved | Released
)  # fmt: skip
