"""Who leads which partition, as the leaders have said: hints for those who look for them.

Rule 1: the newest term wins, then the newest life of a node; the order of arrival means nothing.
Rule 2: what has not been said again for a while is forgotten.

A partition's hint is kept at the owner of its key and at the two nodes behind it, so it survives
two of them. A wrong hint costs a detour and nothing else: a node that does not lead says so.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from hocket.core.placement.locator_messages import LeaderIs, PublishLeader, WhereIs
from hocket.core.relay.messages import Place
from hocket.core.ring.contact import Contact
from hocket.core.ring.settings import SECOND

KEEPERS = 3  # of one hint: the key's owner, and those behind it
PUBLISH_US = 30 * SECOND  # a leader says it so often, and at once when it becomes one
KEPT_US = 3 * PUBLISH_US  # two of these may be lost
HINTS_MAX = 100_000


class _Hint(NamedTuple):
    term: int
    leader: Contact
    said_us: int


class LocatorStore:
    """The hints that this node keeps for others."""

    def __init__(self) -> None:
        self._hints: OrderedDict[Place, _Hint] = OrderedDict()  # said longest ago first

    def __len__(self) -> int:
        return len(self._hints)

    def publish(self, place: Place, leader: Contact, term: int, now_us: int) -> None:
        self._expire(now_us)
        known = self._hints.get(place)
        if known is not None:
            said, before = (term, leader.incarnation), (known.term, known.leader.incarnation)
            if said < before or (said == before and leader != known.leader):
                return
        self._hints[place] = _Hint(term, leader, now_us)
        self._hints.move_to_end(place)
        if len(self._hints) > HINTS_MAX:
            self._hints.popitem(last=False)

    def where(self, place: Place, now_us: int) -> Contact | None:
        self._expire(now_us)
        hint = self._hints.get(place)
        return None if hint is None else hint.leader

    def heard(self, message: PublishLeader | WhereIs, now_us: int) -> LeaderIs | None:
        """What another node says or asks; the answer, if it is a question."""
        if isinstance(message, PublishLeader):
            self.publish(message.place, message.leader, message.term, now_us)
            return None
        leader = self.where(message.place, now_us)
        term = 0 if leader is None else self._hints[message.place].term
        return LeaderIs(message.request, message.place, leader, term)

    def _expire(self, now_us: int) -> None:
        while self._hints:
            place, hint = next(iter(self._hints.items()))
            # Clocks are set back, too: what lies far ahead is as old as anything.
            if abs(now_us - hint.said_us) < KEPT_US:
                return
            del self._hints[place]
