"""What nodes say to each other about the ring.

Each goes in an envelope with the sender's Contact and the incarnation it is meant for (0: whoever
is there). Requests carry a number that the answer repeats; one that is 0 was not asked for.
Any of them may be lost, repeated, late or out of order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hocket.core.ring.contact import Contact


class Beacon(NamedTuple):
    """A sign of life of the root, which numbers them. The newest one a ring has seen tells it from
    a ring that was cut off. Compared as a tuple: epoch first, then number."""

    epoch: int = 0
    number: int = 0
    registry: int = 0  # the version of the registry at that time
    root: str = ""  # the root's address


@dataclass(slots=True)
class GetState:
    """Asked by stabilization; refused (`Busy`) while the asked node has such a question out."""

    request: int


@dataclass(slots=True)
class StateIs:
    request: int
    predecessor: Contact | None
    successors: tuple[Contact, ...]
    beacon: Beacon


@dataclass(slots=True)
class Busy:
    """My pointers count as undefined just now: drop your step, and try again a little later."""

    request: int


@dataclass(slots=True)
class Gone:
    """You speak to a life of mine that is over, or I am not on the ring (any more)."""

    request: int
    was: Contact  # the life that is over
    beacon: Beacon


@dataclass(slots=True)
class JoinAt:
    """To the node that should become my predecessor."""

    request: int
    who: Contact


@dataclass(slots=True)
class Welcome:
    request: int
    successors: tuple[Contact, ...]  # those of the node that welcomes
    beacon: Beacon


@dataclass(slots=True)
class NotMine:
    """You do not lie between me and my successor; this one is nearer."""

    request: int
    nearer: Contact


@dataclass(slots=True)
class Notify:
    """I think that I am your predecessor."""

    who: Contact


@dataclass(slots=True)
class Ping:
    request: int
    about: Contact | None = None  # somebody else: an indirect probe


@dataclass(slots=True)
class Pong:
    request: int
    alive: bool  # the one it was about, as far as we could find out
    beacon: Beacon


@dataclass(slots=True)
class GetCloser:
    """A step of a lookup."""

    request: int
    key: int
    count: int


@dataclass(slots=True)
class CloserAre:
    """With `owners` (the key's successor and those behind it) the lookup has arrived."""

    request: int
    preceding: tuple[Contact, ...]  # strictly between the asked node and the key, nearest first
    owners: tuple[Contact, ...]
    beyond: tuple[Contact, ...] = ()  # the owners, should all those preceding be dead


@dataclass(slots=True)
class Leaving:
    """I go, on purpose. Others need not find out by silence."""

    who: Contact
    predecessor: Contact | None
    successors: tuple[Contact, ...]


@dataclass(slots=True)
class BeaconIs:
    """Broadcast: whoever gets it hands it on to all nodes between itself and `limit`."""

    beacon: Beacon
    limit: int


@dataclass(slots=True)
class Register:
    """Enter me in the registry of nodes."""

    request: int
    who: Contact


@dataclass(slots=True)
class Deregister:
    """I leave for good."""

    request: int
    who: Contact


@dataclass(slots=True)
class AskRoot:
    """I am not the root; the beacon says where it is. `small`: this ring lives by the registry."""

    request: int
    beacon: Beacon
    small: bool


@dataclass(slots=True)
class GetRegistry:
    request: int


@dataclass(slots=True)
class RegistryIs:
    """The nodes that belong to the ring, by position: all if they are few, else some of them."""

    request: int
    beacon: Beacon
    count: int  # how many there are
    members: tuple[Contact, ...]
    founders: tuple[Contact, ...] = ()  # the last small ring: what the large one began with


Message = (
    GetState | StateIs | Busy | Gone | JoinAt | Welcome | NotMine | Notify | Ping | Pong
    | GetCloser | CloserAre | Leaving | BeaconIs | Register | Deregister | AskRoot | GetRegistry
    | RegistryIs
)  # fmt: skip
