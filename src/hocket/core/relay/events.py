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
    """A consumer at this node wants everything from `offset` on."""

    consumer: int
    offset: int
    credit_bytes: int


@dataclass(slots=True)
class Credit:
    """The consumer has taken `bytes` of what it got, and may get as many more."""

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
    """The answer to FindRoute: the way to the owner, the node nearest to this one first."""

    route: tuple[Contact, ...]  # without this node; the owner is last
    token: int


@dataclass(slots=True)
class NoRoute:
    """The answer to FindRoute: nobody knows the way just now."""

    token: int


@dataclass(slots=True)
class Owning:
    """This node holds the partition: it is the root of a tree, and serves from its log."""

    start: int
    end: int  # committed, as far as this node knows
    leads: bool = True  # False: it keeps one of several copies, and roots a tree if it is needed


@dataclass(slots=True)
class Advanced:
    """At the owner: batches from `start` up to `end` are now committed and readable."""

    start: int
    end: int


@dataclass(slots=True)
class Disowned:
    """This node does not hold the partition any more, or its copy may not be up to date."""


@dataclass(slots=True)
class Renewed:
    """This node has begun a new life on the ring; its consumers and children stay."""

    me: Contact


@dataclass(slots=True)
class Shrink:
    """This node has too many batches in memory: keep so many bytes of this partition's."""

    bytes: int


@dataclass(slots=True)
class LogRead:
    """At the owner: the answer to ReadLog. Without pieces: the log cannot be read just now."""

    token: int
    pieces: tuple[Piece, ...]


@dataclass(slots=True)
class Died:
    """The ring has given another node up as dead, it has said goodbye, or its process is gone."""

    contact: Contact


@dataclass(slots=True)
class Stalled:
    """This node itself stood still: that others were silent means nothing."""


Event = (
    Consume | Credit | StopConsuming | Heard | Due | RouteIs | NoRoute | Owning | Advanced | LogRead
    | Disowned | Renewed | Died | Stalled | Shrink
)  # fmt: skip

# --- effects; Arm and Disarm are those of the ring ----------------------------------------------


@dataclass(slots=True)
class Send:
    to: Contact
    message: RelayMessage


@dataclass(slots=True)
class Deliver:
    """Give these to a consumer at this node; in order, without a gap, within its credit."""

    consumer: int
    pieces: tuple[Piece, ...]  # the first one may begin before the offset that is wanted
    end: int  # committed, as far as this node knows


@dataclass(slots=True)
class Lost:
    """What this consumer wants next is gone for good: retention has passed it."""

    consumer: int
    first: int  # the oldest offset that there still is


@dataclass(slots=True)
class FindRoute:
    """Ask the ring for the way to the owner; RouteIs or NoRoute will carry the token."""

    token: int


@dataclass(slots=True)
class ReadLog:
    """At the owner: read batches from `offset` up to `end`: one, and more within `bytes_max`."""

    token: int
    offset: int
    end: int
    bytes_max: int


@dataclass(slots=True)
class Idle:
    """Nobody at this node or below it wants the partition: forget this core."""


Effect = Send | Arm | Disarm | Deliver | Lost | FindRoute | ReadLog | Idle
