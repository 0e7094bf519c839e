"""A whole ring with right tables, without a network: for lookups and broadcasts."""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import dataclass

from hocket.core.ring.circle import BITS, SIZE, between
from hocket.core.ring.contact import Contact
from hocket.core.ring.fingers import Fingers
from hocket.core.ring.messages import CloserAre
from hocket.core.ring.routes import Routes
from hocket.core.ring.settings import RingSettings


def members_at(*positions: int) -> tuple[Contact, ...]:
    return tuple(
        Contact(position, f"n{position}", 1, f"n{position}:1") for position in sorted(positions)
    )


def members_by_chance(count: int, chance: random.Random) -> tuple[Contact, ...]:
    return members_at(*(chance.getrandbits(BITS) for _ in range(count)))


@dataclass(slots=True)
class Seat:
    me: Contact
    routes: Routes
    fingers: Fingers
    successors: list[Contact]

    def closer(self, key: int, count: int, request: int = 0) -> CloserAre:
        """What a member answers to GetCloser."""
        head = self.successors[0].position
        if between(self.me.position, key, head) or key == head:
            return CloserAre(request, (), tuple(self.successors))
        return CloserAre(request, self.routes.preceding(key, count), ())


class Table:
    """All members of an ideal ring."""

    def __init__(self, members: tuple[Contact, ...], settings: RingSettings) -> None:
        self.members = members
        self.seats: dict[Contact, Seat] = {}
        for place, me in enumerate(members):
            routes = Routes(me, settings)
            fingers = Fingers(me, settings, routes)
            behind = (members[place + 1 :] + members[:place])[: settings.successors]
            for successor in behind:
                routes.pin(successor)
            fingers.fill(members)
            self.seats[me] = Seat(me, routes, fingers, list(behind))

    def owner(self, key: int) -> Contact:
        return self.members[bisect_left(self.members, key, key=_position) % len(self.members)]

    def before(self, key: int) -> Contact:
        """The key's predecessor."""
        return min(self.members, key=lambda member: (key - member.position - 1) % SIZE)


def _position(contact: Contact) -> int:
    return contact.position
