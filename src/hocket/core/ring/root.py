"""The root of the ring: the registry that it tells, and the beacons that it sends.

The root is a node like the others, with two more duties, for as long as it is the root: which node
that is may change (`events.Lead`, `events.Cease`). Its *epoch* grows each time.

The registry: a durable log of the root, outside of this core, says which nodes belong to the ring.
`Root` holds what that log says now, and decides which nodes are told. If the ring lives by the
registry, before a change or after it, all members are told. In a large ring only the node that
asked for the change is told, and it is told only some of the members.

The beacon: when a network is cut, each side closes up to a ring of its own, and stabilization never
makes one ring of two. So the root numbers its signs of life, and nodes hand them round. The ring
without the root gets no new ones. Its nodes notice that, look for a node that has a newer one, and
join there again (`other_rings`). `Beacons` is what every node keeps of them.

Rule: a beacon counts as fresh only if it came by our own ring. A beacon from elsewhere shows that
there is another ring. It must not be handed round in ours, where it would look fresh.
"""

from __future__ import annotations

from bisect import bisect_left

from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Effect, Enrol, RegistryChanged, Send
from hocket.core.ring.messages import Beacon, RegistryIs
from hocket.core.ring.settings import RingSettings

NEAR_MAX = 4  # members just before the asker, which are told in any case


class Beacons:
    """The newest beacon that this node has, and how old it is."""

    __slots__ = ("_handed_on", "fresh_us", "newest", "stale_us")

    def __init__(self, stale_us: int) -> None:
        self.newest = Beacon()  # the newest that came by our own ring
        self.fresh_us = 0  # when it came
        self.stale_us = stale_us
        self._handed_on = Beacon()

    def begin(self, beacon: Beacon, now_us: int) -> None:
        """This node comes onto a ring that has this beacon; whatever its age, it is fresh now."""
        self.take(beacon, now_us)
        self.fresh_us = now_us

    def take(self, beacon: Beacon, now_us: int) -> bool:
        """A beacon came by our own ring. True if it is newer than what we had."""
        if beacon <= self.newest:
            return False
        self.newest = beacon
        self.fresh_us = now_us
        return True

    def is_to_be_handed_on(self, beacon: Beacon) -> bool:
        """True once per beacon, even if `newest` is that beacon already.

        We may have it from a neighbour's answer, while the nodes behind us do not have it.
        """
        if beacon <= self._handed_on:
            return False
        self._handed_on = beacon
        return True

    def is_stale(self, now_us: int) -> bool:
        return now_us - self.fresh_us >= self.stale_us


class Root:
    """What only the root has: the registry as it is now, and the number of the newest beacon."""

    def __init__(self, me: Contact, settings: RingSettings, epoch: int) -> None:
        self.me = me
        self.settings = settings
        self.epoch = epoch
        self.version = -1  # -1 until the registry has said anything
        self.members: tuple[Contact, ...] = ()
        # The ring that lived by the registry last. A node that missed how the ring grew begins with
        # these members.
        self.founders: tuple[Contact, ...] = ()
        self.number = 0  # the number of the newest beacon
        # Members that the ring began with, and that the registry does not have yet.
        self._awaited: tuple[Contact, ...] = ()

    @property
    def beacon(self) -> Beacon:
        return Beacon(self.epoch, self.number, max(self.version, 0), self.me.address)

    def next_beacon(self) -> Beacon:
        self.number += 1
        return self.beacon

    @property
    def is_ready(self) -> bool:
        return self.version >= 0 and not self._awaited

    def begin(self, members: tuple[Contact, ...]) -> list[Effect]:
        """Enter the members of a ring that begins in the registry, unless it has them already."""
        if len(members) <= self.settings.successors + 1:
            self.founders = members
        self._awaited = members
        return self.enrol_awaited()

    def enrol_awaited(self) -> list[Effect]:
        """Enter those members that the registry still does not have."""
        if self._awaited:
            self._awaited = self._missing(self._awaited)
        return [Enrol(member, None, 0) for member in self._awaited]

    def changed(self, event: RegistryChanged) -> list[Effect]:
        small = self.settings.successors + 1
        was_small = self.is_ready and len(self.members) <= small
        self.version, self.members = event.version, event.members
        if len(self._awaited) <= len(event.members):
            self._awaited = self._missing(self._awaited)
        if self._awaited:
            return []  # a node that asked meanwhile gets no answer, and asks again
        if len(event.members) <= small:
            self.founders = event.members
        elif self.founders:
            known = dict.fromkeys(event.members)
            self.founders = tuple(each for each in self.founders if each in known)
        effects: list[Effect] = []
        if event.sender is not None:
            effects.append(Send(event.sender, self.answer(event.request, event.sender)))
        if was_small or len(event.members) <= small:
            effects += [
                Send(member, self.answer(0, member))
                for member in event.members
                if member.node != self.me.node and member != event.sender
            ]
        return effects

    def _missing(self, members: tuple[Contact, ...]) -> tuple[Contact, ...]:
        known = {member.node: member.incarnation for member in self.members}
        return tuple(each for each in members if known.get(each.node, 0) < each.incarnation)

    def answer(self, request: int, asker: Contact) -> RegistryIs:
        """What a node is told about the registry."""
        members = self.members
        count = len(members)
        if count > max(self.settings.registry_reply_max, self.settings.successors + 2):
            members = self._some(asker)
        return RegistryIs(request, self.beacon, count, members, self.founders)

    def _some(self, asker: Contact) -> tuple[Contact, ...]:
        """Members spread evenly over the ring, and those before the asker, where it will join."""
        members = self.members
        size = len(members)
        wanted = self.settings.registry_reply_max
        here = bisect_left(members, asker)
        indexes = [(here - step) % size for step in range(1, NEAR_MAX + 1)]
        indexes += [turn * size // wanted for turn in range(wanted)]
        chosen = dict.fromkeys(indexes)
        return tuple(members[index] for index in sorted(list(chosen)[:wanted]))
