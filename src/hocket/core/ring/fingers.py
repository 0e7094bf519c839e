"""The fingers: nodes far away on the ring, at most one for each power of two.

Finger i is a node in [me + 2^i, me + 2^(i+1)). Chord takes the first node there. Any other node
there keeps lookups at O(log N) steps as well, so the one that answers fastest is taken (Gummadi et
al. 2003). The ring's correctness does not rest on fingers: they only shorten the way. No finger is
needed for an interval that the successor list covers wholly.

A broadcast goes along the same edges (El-Ansary et al. 2003). Each node hands it to all fingers and
successors within its arc, and gives each of them the arc up to the next one. The arcs do not
overlap, so no node gets the broadcast twice; each node knows at least its successor, so none is
left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from hocket.core.ring.circle import BITS, SIZE, between, distance
from hocket.core.ring.contact import Contact
from hocket.core.ring.routes import Routes
from hocket.core.ring.settings import RingSettings


class Fingers:
    """The table of fingers. Every node in it is pinned in the routes."""

    def __init__(self, me: Contact, settings: RingSettings, routes: Routes) -> None:
        self.me = me
        self.settings = settings
        self.entries: dict[int, Contact] = {}  # by exponent
        self._routes = routes
        self._next = BITS - 1  # the exponent to renew next
        # The entries by distance; None until they are needed.
        self._sorted: list[tuple[int, Contact]] | None = None

    def fill(self, members: tuple[Contact, ...]) -> None:
        """Set all fingers at once. `members` are a whole ring, sorted by position."""
        position = self.me.position
        count = len(members)
        here = bisect_left(members, _before(position))
        # The successor list reaches to `last`; it covers a shorter ring wholly.
        last = members[(here + self.settings.successors) % count]
        covered = distance(position, last.position) if count > self.settings.successors + 1 else -1
        for exponent in range(BITS - 1, _lowest(covered) - 1, -1):
            first = members[bisect_left(members, _before(self.target(exponent))) % count]
            if _exponent(position, first) == exponent:
                self.put(exponent, first)

    def next_exponent(self, successors: Sequence[Contact]) -> int | None:
        """The finger to renew next: from the longest step down to the shortest, then again.

        None if the successors cover the ring, so that no finger is needed.
        """
        if not successors:
            return None
        lowest = _lowest(distance(self.me.position, successors[-1].position))
        if lowest == BITS:
            return None
        exponent = self._next if self._next >= lowest else BITS - 1
        self._next = exponent - 1
        return exponent

    def target(self, exponent: int) -> int:
        """The first position at which this finger could lie."""
        return (self.me.position + (1 << exponent)) % SIZE

    def candidates(self, exponent: int, owners: tuple[Contact, ...]) -> tuple[Contact, ...]:
        """Those of the owners of `target(exponent)` that could be this finger."""
        position = self.me.position
        fitting = [owner for owner in owners if _exponent(position, owner) == exponent]
        return tuple(fitting[: self.settings.finger_candidates])

    def put(self, exponent: int, contact: Contact) -> None:
        assert _exponent(self.me.position, contact) == exponent
        old = self.entries.get(exponent)
        if old != contact:
            self._routes.pin(contact)
            self.entries[exponent] = contact
            self._sorted = None
            if old is not None:
                self._routes.unpin(old)

    def drop(self, exponent: int) -> None:
        old = self.entries.pop(exponent, None)
        if old is not None:
            self._sorted = None
            self._routes.unpin(old)

    def forget(self, contact: Contact) -> None:
        """Drop this life, and every older life of that node."""
        for exponent, entry in list(self.entries.items()):
            if entry.node == contact.node and entry.incarnation <= contact.incarnation:
                self.drop(exponent)

    def preceding(self, key: int, successors: Sequence[Contact], count: int) -> tuple[Contact, ...]:
        """Of the fingers and successors those strictly between us and the key, nearest first."""
        position = self.me.position
        known = dict.fromkeys((*self.entries.values(), *successors))
        within = [each for each in known if between(position, each.position, key)]
        within.sort(key=lambda each: distance(each.position, key))
        return tuple(within[:count])

    def spread(self, limit: int, successors: Sequence[Contact]) -> list[tuple[Contact, int]]:
        """The nodes to hand a broadcast to, each with its own limit.

        The broadcast then reaches all nodes strictly between us and `limit`. A limit at our own
        position is the whole ring.
        """
        position = self.me.position
        reach = (limit - position) % SIZE or SIZE
        # Most calls end here: more than half of all nodes are leaves of the broadcast.
        if not successors or (successors[0].position - position) % SIZE >= reach:
            return []
        if self._sorted is None:
            self._sorted = sorted(
                (distance(position, entry.position), entry) for entry in self.entries.values()
            )
        within = {away: entry for away, entry in self._sorted if away < reach}
        for successor in successors:
            away = (successor.position - position) % SIZE
            if 0 < away < reach:
                within[away] = successor
        children = [within[away] for away in sorted(within)]
        # There are none if others have put somebody at our own position.
        limits = [*(child.position for child in children[1:]), limit][: len(children)]
        return list(zip(children, limits, strict=True))


def _exponent(position: int, contact: Contact) -> int:
    """Which finger of the node at `position` this contact could be; -1 if it is that node."""
    return distance(position, contact.position).bit_length() - 1


def _lowest(covered: int) -> int:
    """The lowest exponent whose interval is not wholly within that distance."""
    return (covered + 1).bit_length() - 1 if covered >= 0 else BITS


def _before(position: int) -> Contact:
    """A contact that sorts before all at this position: contacts are tuples, position first."""
    return Contact(position, "", -1, "")
