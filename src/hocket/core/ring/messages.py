"""The messages that nodes of the ring send each other.

A message goes in an envelope with the sender's `Contact` and the incarnation that the message is
meant for (0: whichever is there). A request carries a number, which the answer repeats; an answer
with the number 0 was not asked for. A message may be lost, repeated, late or out of order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hocket.core.ring.contact import Contact


class RequestNumbers:
    """Numbers the requests of one node, whichever part of the core makes them."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0  # 0 is the number of an answer that was not asked for

    def take(self) -> int:
        self.last += 1
        return self.last


class Beacon(NamedTuple):
    """A numbered sign of life of the root.

    By the newest beacon it has seen, a ring is told from one that was cut off. Beacons are compared
    as tuples: epoch first, then number.
    """

    epoch: int = 0  # grows whenever another node becomes the root, or the same one again
    number: int = 0
    registry: int = 0  # the version of the registry when the beacon was sent
    root: str = ""  # the root's address


@dataclass(slots=True)
class GetState:
    """Tell me your pointers. Refused (`Busy`) by a node that has such a question out itself."""

    request: int


@dataclass(slots=True)
class StateIs:
    """The answer to `GetState`: the pointers of the sender."""

    request: int
    predecessor: Contact | None
    successors: tuple[Contact, ...]
    beacon: Beacon


@dataclass(slots=True)
class Busy:
    """My pointers count as undefined now: drop your step, and try again a little later."""

    request: int


@dataclass(slots=True)
class Gone:
    """You asked a life of mine that is over, or I am no longer on the ring."""

    request: int
    was: Contact  # the life that is over
    beacon: Beacon


@dataclass(slots=True)
class JoinAt:
    """Let me in between you and your successor: you should become my predecessor."""

    request: int
    who: Contact


@dataclass(slots=True)
class Welcome:
    """The answer to `JoinAt`: you are let in."""

    request: int
    successors: tuple[Contact, ...]  # those of the sender
    beacon: Beacon


@dataclass(slots=True)
class NotMine:
    """You do not lie between me and my successor; `nearer` is nearer to you than I am."""

    request: int
    nearer: Contact


@dataclass(slots=True)
class Notify:
    """I think that I am your predecessor."""

    who: Contact


@dataclass(slots=True)
class Ping:
    """Are you there? With `about`: ping that node for me, and report (an indirect probe)."""

    request: int
    about: Contact | None = None


@dataclass(slots=True)
class Pong:
    """The answer to `Ping`."""

    request: int
    alive: bool  # whether the node that the ping was about answered
    beacon: Beacon


@dataclass(slots=True)
class GetCloser:
    """A step of a lookup: name the owners of the key, or nodes that are nearer to it."""

    request: int
    key: int
    count: int  # how many nearer nodes to name at most
    by_fingers: bool = False  # name fingers and successors only, no other node that you know


@dataclass(slots=True)
class CloserAre:
    """The answer to `GetCloser`. With `owners` the lookup is done.

    The owners of a key are its successor and the nodes behind that one.
    """

    request: int
    preceding: tuple[Contact, ...]  # strictly between the asked node and the key, nearest first
    owners: tuple[Contact, ...]
    beyond: tuple[Contact, ...] = ()  # the owners, in case all of `preceding` are dead


@dataclass(slots=True)
class Leaving:
    """I leave on purpose, so nobody need find it out by my silence."""

    who: Contact
    predecessor: Contact | None
    successors: tuple[Contact, ...]


@dataclass(slots=True)
class BeaconIs:
    """A broadcast: the receiver hands it on to all nodes between itself and `limit`."""

    beacon: Beacon
    limit: int


@dataclass(slots=True)
class Register:
    """To the root: enter me in the registry of nodes."""

    request: int
    who: Contact


@dataclass(slots=True)
class Deregister:
    """To the root: strike me from the registry; I leave for good."""

    request: int
    who: Contact


@dataclass(slots=True)
class AskRoot:
    """I am not the root; the beacon says where the root is."""

    request: int
    beacon: Beacon
    small: bool  # the sender is no member of a large ring


@dataclass(slots=True)
class GetRegistry:
    """To the root: tell me the registry."""

    request: int


@dataclass(slots=True)
class RegistryIs:
    """The registry, as the root tells it: all members if they are few, else some of them."""

    request: int
    beacon: Beacon
    count: int  # how many members the registry has
    members: tuple[Contact, ...]  # sorted by position
    founders: tuple[Contact, ...] = ()  # the last small ring, from which the large one grew


Message = (
    GetState | StateIs | Busy | Gone | JoinAt | Welcome | NotMine | Notify | Ping | Pong
    | GetCloser | CloserAre | Leaving | BeaconIs | Register | Deregister | AskRoot | GetRegistry
    | RegistryIs
)  # fmt: skip
