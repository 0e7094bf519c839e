"""What the relay core of one partition is told, and what it wants done."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.core.relay.messages import Piece, RelayMessage
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Arm, Disarm

Timer = tuple[str, int]

# --- events --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Consume:
    """A consumer at this node wants everything from this offset on."""

    consumer: int
    offset: int
    credit_bytes: int


@dataclass(slots=True)
class Credit:
    """The consumer has taken what it got, and may get so many bytes more."""

    consumer: int
    bytes: int


@dataclass(slots=True)
class StopConsuming:
    consumer: int


@dataclass(slots=True)
class Heard:
    sender: Contact
    message: RelayMessage


@dataclass(slots=True)
class Due:
    timer: Timer


@dataclass(slots=True)
class RouteIs:
    """The ring's answer to FindRoute: our way to the owner, nearest to us first."""

    route: tuple[Contact, ...]  # without ourselves; the owner is last
    token: int


@dataclass(slots=True)
class NoRoute:
    token: int


@dataclass(slots=True)
class Owning:
    """This node holds the partition: it is the root of the tree, and serves from its log."""

    start: int
    end: int  # committed


@dataclass(slots=True)
class Advanced:
    """At the owner: what is committed and readable is now this."""

    start: int
    end: int


@dataclass(slots=True)
class Disowned:
    """This node does not hold the partition any more."""


@dataclass(slots=True)
class Renewed:
    """This node has begun a new life on the ring, and is the same otherwise."""

    me: Contact


@dataclass(slots=True)
class LogRead:
    """At the owner: what ReadLog asked for. No pieces: it cannot be read just now."""

    token: int
    pieces: tuple[Piece, ...]


@dataclass(slots=True)
class Died:
    """The ring has given this node up, or it has said goodbye."""

    contact: Contact


@dataclass(slots=True)
class Stalled:
    """We ourselves stood still: that the parent was silent means nothing."""


Event = (
    Consume | Credit | StopConsuming | Heard | Due | RouteIs | NoRoute | Owning | Advanced | LogRead
    | Disowned | Renewed | Died | Stalled
)  # fmt: skip

# --- effects: also Arm and Disarm, which are the ring's -------------------------------------------


@dataclass(slots=True)
class Send:
    to: Contact
    message: RelayMessage


@dataclass(slots=True)
class Deliver:
    """To a consumer at this node; in order, without a gap, within its credit."""

    consumer: int
    pieces: tuple[Piece, ...]  # the first one may begin before the offset it wants
    end: int  # committed, as far as we know


@dataclass(slots=True)
class Lost:
    """What this consumer wants next is gone for good: retention has passed it."""

    consumer: int
    first: int  # what there still is begins here


@dataclass(slots=True)
class FindRoute:
    token: int


@dataclass(slots=True)
class ReadLog:
    """At the owner: batches from `offset` on, up to `end`, one at least, then by `bytes_max`."""

    token: int
    offset: int
    end: int
    bytes_max: int


@dataclass(slots=True)
class Idle:
    """Nobody at this node or below it wants the partition: forget this core."""


Effect = Send | Arm | Disarm | Deliver | Lost | FindRoute | ReadLog | Idle
