"""What the root does besides being a node like others: the registry's answers, and the beacon.

The registry itself is a log of the root's, and durable; here is what it says now, and whom to tell.
All members are told of a change while the ring lives by the registry, before the change or after
it. In a large ring only the one who asked is told, and only some of the members.
"""

from __future__ import annotations

from bisect import bisect_left

from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Effect, Enrol, RegistryChanged, Send
from hocket.core.ring.messages import Beacon, RegistryIs
from hocket.core.ring.settings import RingSettings

NEAR_MAX = 4  # members before the asker that it is told in any case


class Root:
    def __init__(self, me: Contact, settings: RingSettings) -> None:
        self.me = me
        self.settings = settings
        self.version = -1  # before the registry has said anything
        self.members: tuple[Contact, ...] = ()
        # The ring that lived by the registry last. Nodes that missed how it grew begin with it.
        self.founders: tuple[Contact, ...] = ()
        self.number = 0  # of the newest beacon
        self._awaited: tuple[Contact, ...] = ()  # that we began with, and not in the registry yet

    @property
    def beacon(self) -> Beacon:
        return Beacon(self.me.incarnation, self.number, max(self.version, 0), self.me.address)

    @property
    def is_ready(self) -> bool:
        return self.version >= 0 and not self._awaited

    def begin(self, members: tuple[Contact, ...]) -> list[Effect]:
        """A ring that begins is entered in the registry, as far as it is not there yet."""
        if len(members) <= self.settings.successors + 1:
            self.founders = members
        self._awaited = members
        return self.enrol_awaited()

    def enrol_awaited(self) -> list[Effect]:
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
            return []  # who asked meanwhile asks again
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
        members = self.members
        count = len(members)
        if count > max(self.settings.registry_reply_max, self.settings.successors + 2):
            members = self._some(asker)
        return RegistryIs(request, self.beacon, count, members, self.founders)

    def _some(self, asker: Contact) -> tuple[Contact, ...]:
        """Spread evenly over the ring, and those before the asker, where it will join."""
        members = self.members
        size = len(members)
        wanted = self.settings.registry_reply_max
        here = bisect_left(members, asker)
        indexes = [(here - step) % size for step in range(1, NEAR_MAX + 1)]
        indexes += [turn * size // wanted for turn in range(wanted)]
        chosen = dict.fromkeys(indexes)
        return tuple(members[index] for index in sorted(list(chosen)[:wanted]))
