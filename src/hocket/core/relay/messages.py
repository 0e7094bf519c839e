"""What nodes say to each other about the relay tree of one partition.

The envelope is that of `core.ring.messages`. Any message may be lost, repeated, late or out of
order: what a child takes in depends on offsets alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hocket.core.ring.contact import Contact


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Piece(NamedTuple):
    """One stored batch, whole, as it lies in the log."""

    start: int  # the offset of its first record
    end: int
    data: bytes


@dataclass(slots=True)
class Attach:
    """Let me be your child; I go on at this offset."""

    request: int
    place: Place
    next_offset: int
    consumers: int  # below and at the child
    redirects: int = 0  # how often it was sent on; one that was is not sent to the owner again
    avoid: tuple[Contact, ...] = ()  # do not name these: they do not answer, or lead nowhere


@dataclass(slots=True)
class Attached:
    request: int
    place: Place
    ancestors: tuple[Contact, ...]  # the parent first, the owner last


@dataclass(slots=True)
class Redirect:
    """Ask this one: I have as many children as I may have, or you are above me."""

    request: int
    place: Place
    to: Contact


@dataclass(slots=True)
class NotRelaying:
    """I have nothing to do with this partition."""

    request: int
    place: Place


@dataclass(slots=True)
class Detach:
    place: Place


@dataclass(slots=True)
class Fetch:
    """Send me what comes from this offset on, at most so many bytes, and wait so long for it.

    One batch may be larger than the credit; then it comes alone. With `catching_up` it is asked of
    the owner, by one that need not be its child, and answered from the log.
    """

    request: int
    place: Place
    offset: int
    credit_bytes: int
    wait_us: int
    consumers: int  # below and at the child
    catching_up: bool = False


@dataclass(slots=True)
class Fetched:
    request: int
    place: Place
    pieces: tuple[Piece, ...]  # the first one holds the offset that was asked for; may be none
    end: int  # committed, as far as the sender knows
    ancestors: tuple[Contact, ...]  # as in Attached
    room: int  # more children that the sender could take
    total: int = 0  # consumers of the whole tree, as the owner has told
    is_rooted: bool = True  # False: one of the ancestors looks for a parent itself


@dataclass(slots=True)
class Behind:
    """I have only what begins here: take what is before it from the owner."""

    request: int
    place: Place
    first: int


@dataclass(slots=True)
class NotAttached:
    """You are not my child (any more): attach again."""

    request: int
    place: Place


@dataclass(slots=True)
class MoveUp:
    """I am not worth a step of the way: attach there instead."""

    place: Place
    to: Contact


RelayMessage = (
    Attach | Attached | Redirect | NotRelaying | Detach | Fetch | Fetched | Behind | NotAttached
    | MoveUp
)  # fmt: skip
