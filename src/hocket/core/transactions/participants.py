"""The participants of a transaction, as users name them, and the groups of their partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from hocket.errors import HocketError, LimitExceeded, OutOfRange, UnknownTopic
from hocket.model import Participant

PARTICIPANTS_MAX = 10_000


class LocatedParticipant(NamedTuple):
    """A participant and the group of its partition; None if there is no such partition."""

    group: int | None
    participant: Participant

    def encoded(self) -> list[Any]:
        """As JSON knows it."""
        each = self.participant
        return [self.group, each.topic, each.partition, each.producer_id.hex(), each.batches,
                each.records, each.crc]  # fmt: skip

    @staticmethod
    def decode(fields: list[Any]) -> LocatedParticipant:
        group, topic, partition, producer_id, *counts = fields
        return LocatedParticipant(
            group, Participant(topic, partition, bytes.fromhex(producer_id), *counts)
        )


def wrong_with(participants: tuple[LocatedParticipant, ...]) -> HocketError | None:
    """Why a commit cannot name these participants; None if it can."""
    if len(participants) > PARTICIPANTS_MAX:
        return LimitExceeded(
            f"a transaction has at most {PARTICIPANTS_MAX} participants, not {len(participants)}; "
            "use fewer partitions or producers"
        )
    seen: set[tuple[int, bytes]] = set()
    for group, each in participants:
        if group is None:
            return UnknownTopic(f"there is no partition {each.partition} of topic {each.topic!r}")
        if len(each.producer_id) != 16 or not each.batches:
            return OutOfRange(
                f"a participant has a producer of 16 bytes and at least one batch, not "
                f"{each.producer_id.hex()!r} and {each.batches}"
            )
        if (group, each.producer_id) in seen:
            return OutOfRange(
                f"producer {each.producer_id.hex()} is named twice for partition {each.partition} "
                f"of topic {each.topic!r}"
            )
        seen.add((group, each.producer_id))
    return None


def wrong_with_producers(producers: tuple[bytes, ...]) -> HocketError | None:
    """Why an abort cannot name these producers; None if it can."""
    if len(producers) > PARTICIPANTS_MAX:
        return LimitExceeded(
            f"an abort names at most {PARTICIPANTS_MAX} producers, not {len(producers)}"
        )
    if not producers or any(len(producer_id) != 16 for producer_id in producers):
        return OutOfRange("an abort names one producer or more, each by its 16 bytes")
    if len(set(producers)) < len(producers):
        return OutOfRange("an abort names each producer once")
    return None


def producers_of(participants: Iterable[LocatedParticipant]) -> list[bytes]:
    """Each producer once."""
    return list(dict.fromkeys(each.producer_id for _, each in participants))


def records_of(participants: Iterable[LocatedParticipant]) -> dict[str, int]:
    """How many records the participants have in each topic."""
    records: Counter[str] = Counter()
    for _, each in participants:
        records[each.topic] += each.records
    return dict(records)


def groups_of(participants: Iterable[LocatedParticipant]) -> list[int]:
    """Each group once."""
    return list(dict.fromkeys(group for group, _ in participants if group is not None))


def by_group(participants: Iterable[LocatedParticipant]) -> dict[int, list[Participant]]:
    """The participants of each group. In one pass: ten thousand may be in as many groups."""
    found: dict[int, list[Participant]] = {}
    for group, participant in participants:
        if group is not None:
            found.setdefault(group, []).append(participant)
    return found
