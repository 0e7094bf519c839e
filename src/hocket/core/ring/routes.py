"""The route cache: all nodes that this node has heard of, and how quickly each one answers.

Rule 1: a node is here with one life, the newest; and at each position there is one node.
Rule 2: a pinned node (a successor, the predecessor, a finger) stays. When there are too many nodes,
        the one among the others that was heard of longest ago goes first.
Rule 3: a life that was given up comes back only by its own word (`heard`), not by hearsay (`told`):
        other nodes go on naming the dead for a while.

A cache of all nodes costs little and makes most lookups one or two hops long (Gupta, Liskov and
Rodrigues 2003); the fingers are the path that is certain. Contacts are sorted by their distance
from us, so that the nodes before a key are a slice, and no slice goes over the circle's seam.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict

from hocket.core.ring.circle import SIZE, distance
from hocket.core.ring.contact import Contact
from hocket.core.ring.settings import RingSettings

FORGOTTEN_MAX = 64  # nodes given up and kept to be probed: a cut makes the living look dead
STRANGERS_MAX = 16  # nodes outside of the cache that are timed: candidates for a finger


class Routes:
    """See the head of the file."""

    def __init__(self, me: Contact, settings: RingSettings) -> None:
        self.me = me
        self.settings = settings
        # Two parallel lists. The distances are an array: a simulation has thousands of nodes with
        # thousands of entries each.
        self._distances = array("Q")
        self._contacts: list[Contact] = []
        self._by_node: dict[str, Contact] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()  # not pinned; heard of longest ago first
        self._pins: dict[Contact, int] = {}  # how often each contact is pinned
        self._forgotten: dict[str, Contact] = {}  # by node; none of these lives is in the cache
        self._trips: dict[str, tuple[int, int]] = {}  # by node: smoothed round trip, and deviation
        self._strangers: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._contacts)

    def heard(self, contact: Contact) -> None:
        """This life has spoken itself: learn it, or note that it was heard of just now."""
        node = contact.node
        if self._by_node.get(node) == contact:
            if node in self._idle:
                self._idle.move_to_end(node)
            return
        forgotten = self._forgotten.get(node)
        if forgotten is not None and forgotten.incarnation <= contact.incarnation:
            del self._forgotten[node]
        self.told(contact)

    def told(self, contact: Contact) -> None:
        """Another node has named this life: learn it, unless we know better."""
        me = self.me
        node = contact.node
        if not contact.incarnation or node == me.node or contact.position == me.position:
            return
        if not self.settings.routes_max and contact not in self._pins:
            return
        forgotten = self._forgotten.get(node)
        if forgotten is not None:
            if contact.incarnation <= forgotten.incarnation:
                return
            del self._forgotten[node]
        known = self._by_node.get(node)
        if known is not None:
            if contact.incarnation <= known.incarnation:
                return
            self._remove(known)
        self._add(contact)

    def pin(self, contact: Contact) -> None:
        """Keep this contact until it is unpinned as often as it was pinned."""
        pins = self._pins.get(contact, 0)
        self._pins[contact] = pins + 1
        if not pins:
            self.told(contact)
            if self._by_node.get(contact.node) == contact:
                self._idle.pop(contact.node, None)

    def unpin(self, contact: Contact) -> None:
        """The counterpart of `pin`."""
        pins = self._pins[contact] - 1
        if pins:
            self._pins[contact] = pins
            return
        del self._pins[contact]
        if self._by_node.get(contact.node) == contact:
            self._idle[contact.node] = None
            self._evict()

    def forget(self, contact: Contact) -> None:
        """This life is dead: remove it, pinned or not. Pins still count until they are undone."""
        if not contact.incarnation:
            return
        known = self._by_node.get(contact.node)
        if known is not None:
            if known.incarnation > contact.incarnation:
                return
            self._remove(known)
        if contact.node != self.me.node:
            forgotten = self._forgotten.pop(contact.node, contact)
            self._forgotten[contact.node] = max(forgotten, contact, key=_incarnation)
            if len(self._forgotten) > FORGOTTEN_MAX:
                del self._forgotten[next(iter(self._forgotten))]

    def is_known(self, contact: Contact) -> bool:
        """Whether this very life is in the cache."""
        known = self._by_node.get(contact.node)
        return known is not None and known.incarnation == contact.incarnation

    def newest(self, node: str) -> Contact | None:
        """The life of this node that is in the cache."""
        return self._by_node.get(node)

    def preceding(self, key: int, count: int) -> tuple[Contact, ...]:
        """Up to `count` nodes strictly between us and the key, the nearest to the key first."""
        end = bisect_left(self._distances, (key - self.me.position) % SIZE or SIZE)
        return tuple(self._contacts[max(end - count, 0) : end][::-1])

    def nearest(self, count: int) -> list[Contact]:
        """The first `count` nodes behind us, the nearest first."""
        return self._contacts[:count]

    def passive(self, after: int, count: int) -> tuple[Contact, ...]:
        """The next `count` nodes clockwise after a position, those given up lately included.

        These can be asked whether there is another ring: when a network is cut, the nodes on the
        other side are the ones that were given up.
        """
        start = bisect_left(self._distances, (after + 1 - self.me.position) % SIZE)
        known = self._contacts[start : start + count]
        known += self._contacts[: min(start, count - len(known))]
        everybody = [*known, *self._forgotten.values()]
        everybody.sort(key=lambda contact: (contact.position - after - 1) % SIZE)
        return tuple(everybody[:count])

    def answered(self, contact: Contact, round_trip_us: int) -> None:
        """Note one measured round trip. Round trips are smoothed as TCP does it (RFC 6298)."""
        node = contact.node
        trips = self._trips if node in self._by_node else self._strangers
        trip = trips.get(node)
        if trip is None:
            trips[node] = (round_trip_us, round_trip_us // 2)
            if len(self._strangers) > STRANGERS_MAX:
                del self._strangers[next(iter(self._strangers))]
        else:
            smoothed, deviation = trip
            deviation += (abs(smoothed - round_trip_us) - deviation) // 4
            trips[node] = (smoothed + (round_trip_us - smoothed) // 8, deviation)

    def round_trip_us(self, contact: Contact) -> int | None:
        """The smoothed round trip; None if none was measured."""
        trip = self._trip(contact)
        return None if trip is None else trip[0]

    def timeout_us(self, contact: Contact) -> int:
        """How long an answer may take before it counts as missing."""
        trip = self._trip(contact)
        if trip is None:
            return self.settings.query_us
        timeout_us = trip[0] + 4 * trip[1]
        return min(max(timeout_us, self.settings.query_us_min), self.settings.query_us_max)

    def _trip(self, contact: Contact) -> tuple[int, int] | None:
        return self._trips.get(contact.node) or self._strangers.get(contact.node)

    def _add(self, contact: Contact) -> None:
        away = distance(self.me.position, contact.position)
        index = bisect_left(self._distances, away)
        if index < len(self._distances) and self._distances[index] == away:
            if self._contacts[index].incarnation >= contact.incarnation:
                return
            self._remove(self._contacts[index])
        node = contact.node
        self._distances.insert(index, away)
        self._contacts.insert(index, contact)
        self._by_node[node] = contact
        trip = self._strangers.pop(node, None)
        if trip is not None:
            self._trips[node] = trip
        if contact not in self._pins:
            self._idle[node] = None
        self._evict()

    def _evict(self) -> None:
        while self._idle and len(self._contacts) > self.settings.routes_max:
            node, _nothing = self._idle.popitem(last=False)
            self._remove(self._by_node[node])

    def _remove(self, contact: Contact) -> None:
        index = bisect_left(self._distances, distance(self.me.position, contact.position))
        del self._distances[index]
        del self._contacts[index]
        del self._by_node[contact.node]
        self._idle.pop(contact.node, None)
        self._trips.pop(contact.node, None)


def _incarnation(contact: Contact) -> int:
    return contact.incarnation
