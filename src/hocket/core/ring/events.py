"""What the ring core is told, and what it wants done."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.core.ring.contact import Contact
from hocket.core.ring.messages import Message

Timer = tuple[str, int]  # what it is for, and which (a request's number, or 0)

# --- events --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Begin:
    """Be a member of exactly this ring, which all its members begin with. Alone: found a ring."""

    members: tuple[Contact, ...]  # by position, with ourselves among them
    root: str  # the address of the root, which may be ours


@dataclass(slots=True)
class Join:
    """Enter the ring that one of these belongs to, when the time has come."""

    seeds: tuple[Contact, ...]
    wait_us: int = 0  # a node that keeps coming back waits before it does


@dataclass(slots=True)
class Leave:
    pass


@dataclass(slots=True)
class Heard:
    sender: Contact
    to_incarnation: int
    message: Message


@dataclass(slots=True)
class Due:
    """A timer that was armed has run out."""

    timer: Timer


@dataclass(slots=True)
class LinkLost:
    """The connection to this node broke. A reason to look, not a proof."""

    contact: Contact


@dataclass(slots=True)
class Stalled:
    """We ourselves stood still: that others did not answer in time means nothing."""


@dataclass(slots=True)
class Find:
    """Who owns this key?"""

    token: int
    key: int


@dataclass(slots=True)
class RegistryChanged:
    """At the root only: this stands in the registry, durably."""

    version: int
    members: tuple[Contact, ...]  # all, by position
    sender: Contact | None = None  # whose request it was,
    request: int = 0  # and which


Event = Begin | Join | Leave | Heard | Due | LinkLost | Stalled | Find | RegistryChanged

# --- effects -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Send:
    to: Contact
    message: Message


@dataclass(slots=True)
class Arm:
    """Say `Due(timer)` after this time and up to `jitter_us` more; chance is the driver's.

    A timer that runs already begins anew.
    """

    timer: Timer
    after_us: int
    jitter_us: int = 0


@dataclass(slots=True)
class Disarm:
    timer: Timer


@dataclass(slots=True)
class Located:
    token: int
    key: int
    owners: tuple[Contact, ...]  # the key's successor first
    route: tuple[Contact, ...]  # the nodes asked, nearest to the key last; its length: the hops


@dataclass(slots=True)
class NotLocated:
    token: int
    key: int


@dataclass(slots=True)
class Enrol:
    """At the root only: enter this node, durably; then `RegistryChanged` with the same request."""

    who: Contact
    sender: Contact | None
    request: int


@dataclass(slots=True)
class Strike:
    """At the root only: take this node out of the registry, as above."""

    who: Contact
    sender: Contact | None
    request: int


@dataclass(slots=True)
class Joined:
    """We are on the ring."""


@dataclass(slots=True)
class Left:
    """Nobody counts on us any more; this life is over."""


@dataclass(slots=True)
class BeginAgain:
    """We were cut off: forget this life, and join as a new incarnation by way of these."""

    seeds: tuple[Contact, ...]


@dataclass(slots=True)
class NeighboursChanged:
    """The predecessor or the successors are others now."""


@dataclass(slots=True)
class Died:
    """We have given this life up: it said that it is over, or it was silent for too long."""

    contact: Contact


Effect = (
    Send | Arm | Disarm | Located | NotLocated | Enrol | Strike | Joined | Left | BeginAgain
    | NeighboursChanged | Died
)  # fmt: skip
