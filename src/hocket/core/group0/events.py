"""What the two sides of following group 0 are told, and what they want done."""

from __future__ import annotations

from dataclasses import dataclass, field

from hocket.core.group0.messages import (
    Entries,
    Entry,
    Follow,
    FollowAgain,
    Followed,
    Group0Message,
    NotFollowed,
    SnapshotPiece,
)
from hocket.core.ring.contact import Contact

# --- events ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Heard:
    sender: Contact
    message: Group0Message


@dataclass(slots=True)
class Tick:
    """A tick has passed. `chance`, from 0 up to 1, spreads those who would ask at the same time."""

    chance: float = 0.0


@dataclass(slots=True)
class Committed:
    """For the root: these entries are committed, the next ones in order."""

    entries: tuple[Entry, ...]


@dataclass(slots=True)
class SnapshotIs:
    """For the root: the answer to TakeSnapshot, the state behind the last committed entry."""

    data: bytes = field(repr=False)


@dataclass(slots=True)
class RootIs:
    """For a learner: the ring says where the root is, and in which of its lives."""

    address: str
    epoch: int


@dataclass(slots=True)
class RootSpoke:
    """For a learner: the root said something to this node, about the ring say. So it is there."""


@dataclass(slots=True)
class RootLost:
    """For a learner: the link to the root is lost, or this node is on the ring as a new life."""


@dataclass(slots=True)
class Stored:
    """For a learner: everything up to this entry is durable in its own log, and applied."""

    index: int


@dataclass(slots=True)
class Installed:
    """For a learner: the snapshot that was to be installed is durable, and is the state now."""


# --- effects --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Send:
    to: Contact
    message: Group0Message


@dataclass(slots=True)
class TakeSnapshot:
    """Tell the state behind the last committed entry, at once (`SnapshotIs`)."""


@dataclass(slots=True)
class Store:
    """Append these entries to the own log, with the indexes and terms they have."""

    entries: tuple[Entry, ...]


@dataclass(slots=True)
class Install:
    """Replace log and state by this snapshot, durably, before anything else is stored."""

    index: int
    term: int
    data: bytes = field(repr=False)


@dataclass(slots=True)
class CaughtUp:
    """For the first time in this life everything is here that the root had when it answered."""


@dataclass(slots=True)
class Refused:
    """The root cannot be followed; said once for each reason."""

    reason: str


FOR_THE_ROOT = (Follow, Followed)
FOR_LEARNERS = (Entries, SnapshotPiece, FollowAgain, NotFollowed)

Event = Heard | Tick | Committed | SnapshotIs | RootIs | RootLost | RootSpoke | Stored | Installed
Effect = Send | TakeSnapshot | Store | Install | CaughtUp | Refused
