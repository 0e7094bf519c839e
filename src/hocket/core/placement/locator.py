"""Which node leads a partition: hints that leaders publish on the ring, and how nodes ask for them.

Rule 1: the newest term wins, then the newest life of a node; the order of arrival means nothing.
Rule 2: a hint that is not published again for a while is forgotten.

The owner of a partition's key and the two nodes behind it keep the hint, so two of the three may be
lost. A wrong hint costs a detour and nothing else: a node that does not lead says so.

The messages go in the envelope of `core.ring.messages`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from hocket.core.ring.contact import Contact
from hocket.core.ring.settings import SECOND
from hocket.model import PartitionId

KEEPERS = 3  # nodes that keep a hint: the key's owner, and those behind it
PUBLISH_US = 30 * SECOND  # a leader publishes with this period, and at once when it becomes leader
KEPT_US = 3 * PUBLISH_US  # so two messages in a row may be lost
HINTS_MAX = 100_000


@dataclass(slots=True)
class PublishLeader:
    """A leader tells the nodes that keep the hint."""

    partition_id: PartitionId
    leader: Contact
    term: int


@dataclass(slots=True)
class WhereIs:
    """Which node leads this partition?"""

    request: int
    partition_id: PartitionId


@dataclass(slots=True)
class LeaderIs:
    """The answer to `WhereIs`."""

    request: int
    partition_id: PartitionId
    leader: Contact | None  # None: no leader has published itself lately
    term: int = 0  # a node that asks several keepers believes the newest term


LocatorMessage = PublishLeader | WhereIs | LeaderIs


class _Hint(NamedTuple):
    term: int
    leader: Contact
    published_us: int


class LocatorStore:
    """The hints that this node keeps for others."""

    def __init__(self) -> None:
        self._hints: OrderedDict[PartitionId, _Hint] = OrderedDict()  # published longest ago first

    def __len__(self) -> int:
        return len(self._hints)

    def publish(self, partition_id: PartitionId, leader: Contact, term: int, now_us: int) -> None:
        self._expire(now_us)
        known = self._hints.get(partition_id)
        if known is not None:
            new, old = (term, leader.incarnation), (known.term, known.leader.incarnation)
            if new < old or (new == old and leader != known.leader):
                return
        self._hints[partition_id] = _Hint(term, leader, now_us)
        self._hints.move_to_end(partition_id)
        if len(self._hints) > HINTS_MAX:
            self._hints.popitem(last=False)

    def where(self, partition_id: PartitionId, now_us: int) -> Contact | None:
        self._expire(now_us)
        hint = self._hints.get(partition_id)
        return None if hint is None else hint.leader

    def heard(self, message: PublishLeader | WhereIs, now_us: int) -> LeaderIs | None:
        """A message of another node; returns the answer, if the message is a question."""
        if isinstance(message, PublishLeader):
            self.publish(message.partition_id, message.leader, message.term, now_us)
            return None
        leader = self.where(message.partition_id, now_us)
        term = 0 if leader is None else self._hints[message.partition_id].term
        return LeaderIs(message.request, message.partition_id, leader, term)

    def _expire(self, now_us: int) -> None:
        while self._hints:
            partition_id, hint = next(iter(self._hints.items()))
            # Clocks are set back, too: a hint from far ahead is as old as one from far back.
            if abs(now_us - hint.published_us) < KEPT_US:
                return
            del self._hints[partition_id]
