"""Events, which the ring core is told, and effects, which it wants done."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.core.ring.contact import Contact
from hocket.core.ring.messages import Message

Timer = tuple[str, int]  # its purpose, and the number of the request that it is for, or 0

# --- events --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Begin:
    """Be a member of exactly this ring; all its members begin with the same event.

    A node that is the only member founds a ring.
    """

    members: tuple[Contact, ...]  # sorted by position; this node is among them
    root: str  # the address of the root, which may be this node


@dataclass(slots=True)
class Join:
    """Enter the ring that one of the seeds belongs to, after `wait_us`."""

    seeds: tuple[Contact, ...]
    wait_us: int = 0  # longer for a node that keeps coming back (`joining.wait_us`)


@dataclass(slots=True)
class Leave:
    """Leave the ring on purpose, and for good."""


@dataclass(slots=True)
class Heard:
    """A message has arrived."""

    sender: Contact
    to_incarnation: int  # the life of this node that the message is meant for; 0: any
    message: Message


@dataclass(slots=True)
class Due:
    """A timer that the core armed has run out."""

    timer: Timer


@dataclass(slots=True)
class LinkLost:
    """The connection to another node broke. A reason to ping that node, not a proof of death."""

    contact: Contact


@dataclass(slots=True)
class Stalled:
    """This node itself stood still, so the silence of other nodes means nothing."""


@dataclass(slots=True)
class Find:
    """Look up the owners of this key. The answer is `Located` or `NotLocated`."""

    token: int  # repeated in the answer
    key: int
    by_fingers: bool = False  # pass over the routes that were learnt: step from finger to finger


@dataclass(slots=True)
class RegistryChanged:
    """At the root only: the registry has these members now, durably."""

    version: int
    members: tuple[Contact, ...]  # all of them, sorted by position
    sender: Contact | None = None  # the node that asked for the change; None: the root itself
    request: int = 0  # the number of that node's request


@dataclass(slots=True)
class Lead:
    """This node is the root from now on; the registry has these members."""

    epoch: int  # greater than that of every root before
    version: int
    members: tuple[Contact, ...]  # all of them, sorted by position


@dataclass(slots=True)
class Cease:
    """This node is the root no more."""


@dataclass(slots=True)
class RootIs:
    """Another node is the root, as those know who elect it. Its beacons say so later."""

    epoch: int
    address: str


Event = (
    Begin | Join | Leave | Heard | Due | LinkLost | Stalled | Find | RegistryChanged | Lead
    | Cease | RootIs
)  # fmt: skip

# --- effects -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Send:
    """Send this message. It may be lost."""

    to: Contact
    message: Message


@dataclass(slots=True)
class Arm:
    """Give `Due(timer)` after `after_us` and up to `jitter_us` more, which the driver draws.

    A timer that runs already starts again.
    """

    timer: Timer
    after_us: int
    jitter_us: int = 0


@dataclass(slots=True)
class Disarm:
    """Stop this timer, if it runs."""

    timer: Timer


@dataclass(slots=True)
class Located:
    """The answer to `Find`."""

    token: int
    key: int
    owners: tuple[Contact, ...]  # the key's successor first
    route: tuple[Contact, ...]  # the nodes asked, the nearest to the key last; one per hop


@dataclass(slots=True)
class NotLocated:
    """The answer to `Find` when nobody could name the owners in time."""

    token: int
    key: int


@dataclass(slots=True)
class Enrol:
    """At the root only: enter this node in the registry, durably.

    Afterwards the driver gives `RegistryChanged` with the same sender and request.
    """

    who: Contact
    sender: Contact | None
    request: int


@dataclass(slots=True)
class Strike:
    """At the root only: strike this node from the registry; otherwise like `Enrol`."""

    who: Contact
    sender: Contact | None
    request: int


@dataclass(slots=True)
class Joined:
    """This node is on the ring now."""


@dataclass(slots=True)
class Left:
    """This node has left the ring, and this life is over."""


@dataclass(slots=True)
class BeginAgain:
    """This node was cut off: drop this core, and join by these seeds as a new incarnation."""

    seeds: tuple[Contact, ...]


@dataclass(slots=True)
class NeighboursChanged:
    """The predecessor, the successors or the standing changed."""


@dataclass(slots=True)
class Died:
    """This node gave another one up: that life said it is over, or was silent for too long."""

    contact: Contact


Effect = (
    Send | Arm | Disarm | Located | NotLocated | Enrol | Strike | Joined | Left | BeginAgain
    | NeighboursChanged | Died
)  # fmt: skip
