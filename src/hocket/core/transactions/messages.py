"""What deciders and participants say to each other if they are on different nodes.

Messages may be lost, late or double. Whatever is not answered is sent again by whoever needs the
answer: the decider repeats what it has asked and decided, a participant asks again about what it
holds. Deciders and participants are known by the groups of their logs.

A node that does not hold what it is asked about says so (`notMine`), and says that it is *gone*
only if the deletion of its topic is committed: that a log is not here is no proof.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from hocket.frames import packed, unpacked
from hocket.model import Participant, partition_of

PRODUCER_ID_BYTES = 16

Outcome = Literal["verified", "refused", "applied", "not_mine", "gone"]


@dataclass(slots=True)
class AskStages:
    """A decider asks whether exactly this is, durably, staged in a partition."""

    decider: int
    group: int
    topic: str
    partition: int
    transaction: str
    number: int
    round: int  # of verifying: an answer from an earlier one counts for nothing
    producers: bytes = field(repr=False)  # 16 bytes each
    counts: bytes = field(repr=False)  # packed: batches, records and CRC of each producer


@dataclass(slots=True)
class ApplyStages:
    """A decider says that a transaction is committed: what is staged for it is to be appended."""

    decider: int
    group: int
    transaction: str
    number: int
    decision: int
    producers: bytes = field(repr=False)  # 16 bytes each
    counts: bytes = field(repr=False)  # packed: the batches of each producer


@dataclass(slots=True)
class StagesAre:
    """A participant answers AskStages or ApplyStages."""

    decider: int
    group: int
    transaction: str
    number: int
    round: int  # that of AskStages; 0: this answers ApplyStages
    outcome: Outcome
    code: str = ""  # of the error, if the outcome is "refused"
    text: str = ""  # of the error, for people


@dataclass(slots=True)
class DiscardStages:
    """A decider says that what these producers have staged for a transaction is to be dropped."""

    group: int  # 0: in all partitions of the receiver
    transaction: str
    number: int
    producers: bytes = field(repr=False)  # 16 bytes each


@dataclass(slots=True)
class ForgetDecisions:
    """A decider says that its decisions up to this one are applied everywhere."""

    decider: int
    group: int
    through: int


@dataclass(slots=True)
class WhatOfStages:
    """A participant asks what becomes of the stages of these producers."""

    decider: int
    group: int
    transaction: str
    number: int
    producers: bytes = field(repr=False)  # 16 bytes each
    idle: bool = False  # nobody has touched them for long


@dataclass(slots=True)
class WhatToForget:
    """A participant remembers what it has applied, and asks whether it still must."""

    decider: int
    group: int


class Part(NamedTuple):
    """One part of what a decider hands over: its number, the next number, and its bytes."""

    start: int
    end: int
    data: bytes


@dataclass(slots=True)
class HandOver:
    """The founder's own decider tells one of those that follow it what it knows of their ids."""

    decider: int  # who is told
    term: int  # of the founder's decider: after a restart it counts its parts anew
    count: int  # of the parts that are there from the beginning; others may follow
    parts: tuple[Part, ...] = field(repr=False)


@dataclass(slots=True)
class HandedOver:
    """A part is, durably, with the decider that follows."""

    decider: int
    term: int
    part: int
    whole: bool  # it has everything, and needs to be told nothing more


TransactionMessage = (
    AskStages | ApplyStages | StagesAre | DiscardStages | ForgetDecisions | WhatOfStages
    | WhatToForget | HandOver | HandedOver
)  # fmt: skip


def decider_of(transaction: str, deciders: int) -> int:
    """Which of so many deciders decides on the id, as its client sends it: without the user."""
    return partition_of(transaction.rpartition("/")[2].encode(), deciders)


def joined(producers: tuple[bytes, ...]) -> bytes:
    return b"".join(producers)


def parted(producers: bytes) -> tuple[bytes, ...]:
    size = PRODUCER_ID_BYTES
    return tuple(producers[at : at + size] for at in range(0, len(producers), size))


def counts_of(participants: tuple[Participant, ...]) -> bytes:
    return packed(
        number for each in participants for number in (each.batches, each.records, each.crc)
    )


def participants_of(message: AskStages) -> tuple[Participant, ...]:
    counts = unpacked(message.counts)
    facts = zip(counts[::3], counts[1::3], counts[2::3], strict=True)
    return tuple(
        Participant(message.topic, message.partition, producer_id, *fact)
        for producer_id, fact in zip(parted(message.producers), facts, strict=True)
    )


def is_whole(message: AskStages | ApplyStages) -> bool:
    """Whether it has as many numbers as its producers need."""
    each = 8 * (3 if isinstance(message, AskStages) else 1)
    producers, left = divmod(len(message.producers), PRODUCER_ID_BYTES)
    return not left and len(message.counts) == each * producers
