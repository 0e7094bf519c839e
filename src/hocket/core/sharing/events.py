"""What the dispatcher of a shared index is told, and what it wants done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hocket.core.sharing.share import Share
from hocket.core.sharing.state import ShareChange, ShareSettings

Held = tuple[int, int, int]  # partition, start, end

# --- events --------------------------------------------------------------------------------------


@dataclass(slots=True)
class PartitionAdded:
    partition: int
    share: Share


@dataclass(slots=True)
class SettingsChanged:
    """They are logged already; leases from now on last as long as these say."""

    partition: int
    settings: ShareSettings


@dataclass(slots=True)
class Joined:
    consumer: int  # a number above 0 that is never used again
    identity: bytes  # the same again when it comes back
    partitions: tuple[int, ...]
    credit_bytes: int
    credit_messages: int
    held: list[Held]  # what it says it has from before, and has not settled
    now_us: int


@dataclass(slots=True)
class Widened:
    """The topic has grown, and the consumer wants this partition too."""

    consumer: int
    partition: int
    now_us: int


@dataclass(slots=True)
class Left:
    consumer: int
    graceful: bool  # else its link broke, and it may come back
    now_us: int


@dataclass(slots=True)
class CreditGiven:
    consumer: int
    bytes: int
    messages: int
    now_us: int


@dataclass(slots=True)
class Advanced:
    """The partition's readable range is now this."""

    partition: int
    start: int
    end: int
    now_us: int


@dataclass(slots=True)
class Fetched:
    """All from `start` (or where the fetch began, if that is later) to `end` was read.

    With a `start` behind the beginning of the fetch, what lies between is lost for good.
    """

    fetch: int
    end: int
    bytes: int  # 0: nothing was there
    now_us: int
    start: int = 0


@dataclass(slots=True)
class Refunded:
    """Not all that was read had to be sent."""

    consumer: int
    bytes: int


@dataclass(slots=True)
class FetchFailed:
    """Not again before the next Tick."""

    fetch: int


@dataclass(slots=True)
class Scanned:
    """The hashes of the keys from `start` on; 0 for a message without one, or that is lost."""

    partition: int
    start: int
    key_hashes: Sequence[int]
    now_us: int


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


@dataclass(slots=True)
class DeadLettered:
    """These are in the dead letters, durably."""

    partition: int
    start: int
    end: int


@dataclass(slots=True)
class Reset:
    """The index was put there."""

    partition: int
    offset: int
    now_us: int
    token: int = 0  # of the Record that says so


@dataclass(slots=True)
class Tick:
    now_us: int


@dataclass(slots=True)
class Closing:
    """The broker goes down in good order: nothing more is leased."""

    now_us: int


Event = (
    PartitionAdded | SettingsChanged | Joined | Widened | Left | CreditGiven | Advanced
    | Fetched | Refunded | FetchFailed | Scanned | ScanFailed | Settle | DeadLettered | Reset
    | Tick | Closing
)  # fmt: skip

# --- effects -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Fetch:
    """Read these, for this consumer; answered by Fetched or FetchFailed."""

    fetch: int
    consumer: int
    partition: int
    start: int
    end: int
    bytes_max: int


@dataclass(slots=True)
class Send:
    """What this fetch has read goes to its consumer, who has these: (start, end, deliveries)."""

    fetch: int
    consumer: int
    partition: int
    ranges: list[tuple[int, int, int]]


@dataclass(slots=True)
class Scan:
    """Find the hashes of the keys of these; answered by Scanned or ScanFailed."""

    partition: int
    start: int
    end: int
    bytes_max: int


@dataclass(slots=True)
class Record:
    """Log this. With a token, somebody waits until it is durable."""

    partition: int
    change: ShareChange
    token: int


@dataclass(slots=True)
class Answer:
    """To a Settle, when so many Records with its token are durable."""

    consumer: int
    token: int
    refused: list[Held]
    waits_for: int


@dataclass(slots=True)
class EndConsumer:
    """It has been replaced, and its number means nothing any more."""

    consumer: int
    why: str


Effect = Fetch | Send | Scan | Record | Answer | EndConsumer
