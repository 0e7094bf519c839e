"""What the dispatcher of a shared index is told, and what it wants done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hocket.core.sharing.leases import Leases
from hocket.core.sharing.state import ShareChange, ShareSettings

Held = tuple[int, int, int]  # partition, start, end

# --- events --------------------------------------------------------------------------------------


@dataclass(slots=True)
class PartitionAdded:
    partition: int
    leases: Leases


@dataclass(slots=True)
class PartitionRemoved:
    """Another node leads the partition from now on. What was asked of it here is void."""

    partition: int


@dataclass(slots=True)
class Reserved:
    """Messages below this offset may be leased: that is committed.

    With `high` 0 nothing can be logged at the moment; it is asked for again after the next Tick.
    """

    partition: int
    high: int


@dataclass(slots=True)
class Recorded:
    """The log has the changes of this partition up to the Record that was `awaited` by a number."""

    partition: int
    change: int


@dataclass(slots=True)
class SettingsChanged:
    """The settings are logged already; leases from now on last as long as they say."""

    partition: int
    settings: ShareSettings


@dataclass(slots=True)
class Joined:
    consumer: int  # a number above 0 that is never used again
    identity: bytes  # stays the same when the consumer comes back
    partitions: tuple[int, ...]
    credit_bytes: int
    credit_messages: int
    held: list[Held]  # what the consumer says it has from before, and has not settled
    now_us: int
    tells: bool = False  # it is going to tell how far it has handed messages out


@dataclass(slots=True)
class Widened:
    """The topic has grown, and the consumer wants this partition too."""

    consumer: int
    partition: int


@dataclass(slots=True)
class Left:
    consumer: int
    graceful: bool  # False: the link broke, and the consumer may come back
    now_us: int


@dataclass(slots=True)
class CreditGiven:
    """Credit, and how far the consumer has handed messages out; of either there may be none.

    `handed` names for some partitions the first message that waits in the consumer: (partition,
    which Send for this consumer it came with, counted from 1, its offset). Those before it were
    handed out, or dropped. The first one named is the next that is handed out.
    """

    consumer: int
    bytes: int
    messages: int
    now_us: int
    handed: Sequence[tuple[int, int, int]] = ()


@dataclass(slots=True)
class Advanced:
    """The partition's readable range is now this."""

    partition: int
    start: int
    end: int


@dataclass(slots=True)
class Fetched:
    """All messages from `start` (or where the fetch began, if that is later) to `end` were read.

    If `start` is behind the beginning of the fetch, the messages between are lost for good.
    """

    fetch: int
    end: int
    bytes: int  # 0: nothing was read
    now_us: int
    start: int = 0


@dataclass(slots=True)
class Refunded:
    """A part of what was read did not have to be sent; its bytes are credit again."""

    consumer: int
    bytes: int


@dataclass(slots=True)
class FetchFailed:
    """A read failed. The partition is not read again before the next Tick."""

    fetch: int


@dataclass(slots=True)
class FetchDamaged:
    """A read failed, for messages from `start` to `end` are damaged where they are stored.

    The fetch began with one of them. They go to the dead letters, and nobody gets them.
    """

    fetch: int
    start: int
    end: int
    reason: str


@dataclass(slots=True)
class Scanned:
    """The hashes of the keys from `start` on.

    0 for a message that has no key, or is lost or damaged.
    """

    partition: int
    start: int
    key_hashes: Sequence[int]


@dataclass(slots=True)
class ScanFailed:
    partition: int


@dataclass(slots=True)
class Settle:
    consumer: int
    token: int  # not 0
    action: str  # see model.Settlement
    ranges: list[Held]
    duration_us: int
    reason: str
    now_us: int
    again: bool = False  # it was said before, and nobody knows whether that was heard


@dataclass(slots=True)
class DeadLettered:
    """These messages are in the dead letters, durably."""

    partition: int
    start: int
    end: int


@dataclass(slots=True)
class Revive:
    """Deliver these messages again: (offset, offset of its dead letter), in the latters' order.

    `log` is the number of the log that has the dead letters. The answer is Revived.
    """

    partition: int
    letters: Sequence[tuple[int, int]]
    log: int
    token: int  # of the Record that logs it


@dataclass(slots=True)
class Reset:
    """The index was put to this offset."""

    partition: int
    offset: int
    token: int = 0  # of the Record that logs it


@dataclass(slots=True)
class Tick:
    now_us: int


@dataclass(slots=True)
class Closing:
    """The broker goes down in good order: nothing more is leased."""


Event = (
    PartitionAdded | PartitionRemoved | Reserved | Recorded | SettingsChanged | Joined | Widened
    | Left | CreditGiven | Advanced | Fetched | Refunded | FetchFailed | FetchDamaged | Scanned
    | ScanFailed | Settle
    | DeadLettered | Revive | Reset | Tick | Closing
)  # fmt: skip

# --- effects -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Fetch:
    """Read these messages for this consumer.

    The answer is Fetched, FetchFailed or FetchDamaged.
    """

    fetch: int
    consumer: int
    partition: int
    start: int
    end: int
    bytes_max: int


@dataclass(slots=True)
class Send:
    """Send what this fetch has read. The consumer has `ranges`: (start, end, deliveries).

    With `alone`, it gets nothing more before this is settled.
    """

    fetch: int
    consumer: int
    partition: int
    ranges: list[tuple[int, int, int]]
    alone: bool = False


@dataclass(slots=True)
class Scan:
    """Find the hashes of the keys of these messages; the answer is Scanned or ScanFailed."""

    partition: int
    start: int
    end: int
    bytes_max: int


@dataclass(slots=True)
class Reserve:
    """Log that messages below this offset may be leased; the answer is Reserved.

    If the index is put elsewhere meanwhile there is no answer.
    """

    partition: int
    high: int


@dataclass(slots=True)
class Record:
    """Log this change. If there is a token, somebody waits until the change is durable.

    If it is `awaited`, `Recorded` is to say when this change, by that number, is committed.
    """

    partition: int
    change: ShareChange
    token: int
    awaited: int = 0


@dataclass(slots=True)
class Answer:
    """Answer a Settle as soon as `waits_for` Records with its token are durable."""

    consumer: int
    token: int
    refused: list[Held]
    waits_for: int


@dataclass(slots=True)
class Revived:
    """These messages are delivered again, as soon as the Record with this token is durable."""

    token: int
    ranges: list[tuple[int, int]]


@dataclass(slots=True)
class EndConsumer:
    """The consumer was replaced, and its number means nothing any more."""

    consumer: int
    why: str


Effect = Fetch | Send | Scan | Reserve | Record | Answer | Revived | EndConsumer
