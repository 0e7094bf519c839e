"""The members of a transaction: participants as users name them, with the groups they live in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from hocket.errors import HocketError, LimitExceeded, OutOfRange, UnknownTopic
from hocket.model import Participant

PARTICIPANTS_MAX = 10_000


class Member(NamedTuple):
    """A participant and the group of its partition; None: there is no such partition."""

    group: int | None
    participant: Participant

    def encoded(self) -> list[Any]:
        """As JSON knows it."""
        each = self.participant
        return [self.group, each.topic, each.partition, each.producer_id.hex(), each.batches,
                each.records, each.crc]  # fmt: skip

    @staticmethod
    def decode(fields: list[Any]) -> Member:
        group, topic, partition, producer_id, *counts = fields
        return Member(group, Participant(topic, partition, bytes.fromhex(producer_id), *counts))


def wrong_with(members: tuple[Member, ...]) -> HocketError | None:
    if len(members) > PARTICIPANTS_MAX:
        return LimitExceeded(
            f"a transaction has at most {PARTICIPANTS_MAX} participants, not {len(members)}; use "
            "fewer partitions or producers"
        )
    seen: set[tuple[int, bytes]] = set()
    for group, each in members:
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
    """Of an abort."""
    if len(producers) > PARTICIPANTS_MAX:
        return LimitExceeded(
            f"an abort names at most {PARTICIPANTS_MAX} producers, not {len(producers)}"
        )
    if not producers or any(len(producer_id) != 16 for producer_id in producers):
        return OutOfRange("an abort names one producer or more, each by its 16 bytes")
    if len(set(producers)) < len(producers):
        return OutOfRange("an abort names each producer once")
    return None


def producers_of(members: Iterable[Member]) -> list[bytes]:
    return list(dict.fromkeys(each.producer_id for _, each in members))


def records_of(members: Iterable[Member]) -> dict[str, int]:
    records: Counter[str] = Counter()
    for _, each in members:
        records[each.topic] += each.records
    return dict(records)


def groups_of(members: Iterable[Member]) -> list[int]:
    return list(dict.fromkeys(group for group, _ in members if group is not None))


def by_group(members: Iterable[Member]) -> dict[int, list[Participant]]:
    """In one pass: of ten thousand members each may be in a group of its own."""
    found: dict[int, list[Participant]] = {}
    for group, participant in members:
        if group is not None:
            found.setdefault(group, []).append(participant)
    return found
