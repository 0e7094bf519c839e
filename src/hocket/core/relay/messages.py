"""What nodes say to each other about the relay tree of one partition.

The envelope is that of `core.ring.messages`. Any message may be lost, repeated, late or out of
order, so what a child takes in depends on offsets alone. An answer repeats the `request` of its
question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hocket.core.ring.contact import Contact
from hocket.model import PartitionId


class Piece(NamedTuple):
    """One stored batch, whole, as it lies in the log."""

    start: int  # the offset of its first record
    end: int  # the offset behind its last record
    data: bytes


@dataclass(slots=True)
class Attach:
    """Let me be your child; I go on at `next_offset`."""

    request: int
    partition_id: PartitionId
    next_offset: int
    consumers: int  # at the child and below
    redirects: int = 0  # how often the child was redirected; if at all, not to the owner again
    avoid: tuple[Contact, ...] = ()  # do not name these: they do not answer, or lead nowhere


@dataclass(slots=True)
class Attached:
    request: int
    partition_id: PartitionId
    ancestors: tuple[Contact, ...]  # the parent first, the owner last


@dataclass(slots=True)
class Redirect:
    """Ask `to` instead: I have as many children as I may have, or you are above me."""

    request: int
    partition_id: PartitionId
    to: Contact


@dataclass(slots=True)
class NotRelaying:
    """I do not take part in the tree of this partition, or I am not its owner."""

    request: int
    partition_id: PartitionId


@dataclass(slots=True)
class Detach:
    partition_id: PartitionId


@dataclass(slots=True)
class Fetch:
    """Send me what comes from `offset` on, within the credit; wait for it if it is not there yet.

    A batch that is larger than the credit comes alone. With `catching_up` the question is for the
    owner, which answers from its log; the sender need not be its child.
    """

    request: int
    partition_id: PartitionId
    offset: int
    credit_bytes: int
    wait_us: int
    consumers: int  # at the child and below
    catching_up: bool = False


@dataclass(slots=True)
class Fetched:
    request: int
    partition_id: PartitionId
    pieces: tuple[Piece, ...]  # the first one holds the offset asked for; there may be none
    end: int  # committed, as far as the sender knows
    ancestors: tuple[Contact, ...]  # as in Attached
    room: int  # how many more children the sender could take
    total: int = 0  # consumers of the whole tree, as the owner has told
    is_rooted: bool = True  # False: one of the ancestors looks for a parent itself


@dataclass(slots=True)
class Behind:
    """I have only what begins at `first`: take what is before it from the owner."""

    request: int
    partition_id: PartitionId
    first: int


@dataclass(slots=True)
class NotAttached:
    """You are not my child (any more): attach again."""

    request: int
    partition_id: PartitionId


@dataclass(slots=True)
class MoveUp:
    """I save my parent too little: attach to `to` instead."""

    partition_id: PartitionId
    to: Contact


RelayMessage = (
    Attach | Attached | Redirect | NotRelaying | Detach | Fetch | Fetched | Behind | NotAttached
    | MoveUp
)  # fmt: skip
