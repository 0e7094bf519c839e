"""Many ring members in virtual time, and the truth about them that no member can know.

The members are `hocket.node.cluster.ring_member.RingMember`, the driver of a real node, each with
its real core. Nothing here decides anything about the ring: the world makes nodes, kills them, and
compares what they know with the truth.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Self

from hocket.core.ring.circle import candidates, choose, position_of
from hocket.core.ring.contact import Contact
from hocket.core.ring.settings import SECOND, RingSettings
from hocket.node.cluster.ring_member import MemberSettings, RingMember
from hocket.node.cluster.ring_memory import VolatileMemory
from hocket.sim.scale.enrolment import Enrolment
from hocket.sim.scale.wires import Delays, Wires
from hocket.sim.scheduler import Scheduler

SEEDS = 3  # addresses that a joining node is given


class World:
    def __init__(
        self,
        seed: object,
        settings: RingSettings | None = None,
        *,
        delays: Delays | None = None,
        chosen: bool = True,
    ) -> None:
        self.settings = settings or RingSettings()
        self.chosen = chosen  # positions: the best of 16 candidates, or the hash of the name
        self.scheduler = Scheduler(seed)
        self.wires = Wires(self.scheduler, delays or Delays())
        self.members: dict[str, RingMember] = {}  # those alive, by address
        self.root = ""
        self.joins = 0
        self.crashes = 0
        self._enrolment = Enrolment(self.scheduler)
        self._made = 0
        self._taken: list[int] = []  # positions of all living nodes, with those that still join
        self._positions: list[int] = []  # of the nodes on the ring, in order
        self._contacts: list[Contact] = []  # of the same nodes, in the same order

    # --- making and killing nodes -------------------------------------------

    def build(self, count: int) -> None:
        """Make an ideal ring of `count` nodes: all begin with the right neighbours and fingers."""
        made = [self._make(is_root=number == 0) for number in range(count)]
        everybody = tuple(sorted(member.core.me for member in made))
        self.root = made[0].core.me.address
        self._enrolment.begin(everybody)
        for member in made:
            member.begin(everybody, self.root)
        self.look()

    def join(self) -> RingMember:
        """Add a node, which is given the addresses of some others."""
        chance = self.scheduler.random("seeds")
        seeds = [self._contacts[chance.randrange(len(self._contacts))] for _ in range(SEEDS)]
        member = self._make()
        self.joins += 1
        member.on_neighbours.append(lambda: self._enter(member))
        member.join([contact.address for contact in seeds])
        return member

    def crash(self, address: str) -> None:
        """Kill a node silently: its machine is gone, and no link reports its end."""
        self.crashes += 1
        member = self.members.pop(address)
        self.wires.detach(address)
        member.close()
        position = member.core.me.position
        del self._taken[bisect_left(self._taken, position)]
        place = bisect_left(self._positions, position)
        if place < len(self._positions) and self._positions[place] == position:
            del self._positions[place], self._contacts[place]

    def victims(self, count: int, stream: str) -> list[str]:
        """Some living nodes, chosen at random.

        Never the root: in a real cluster other machines would take over its log.
        """
        able = [address for address in self.members if address != self.root]
        return self.scheduler.random(stream).sample(able, min(count, len(able)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for member in self.members.values():
            member.close()

    def _make(self, *, is_root: bool = False) -> RingMember:
        name = f"node-{self._made}"
        self._made += 1
        settings = MemberSettings(
            node=name,
            address=name,
            position=self._position(name),
            is_root=is_root,
            ring=self.settings,
        )
        scheduler = self.scheduler
        member = RingMember(
            settings,
            clock=scheduler,
            timers=scheduler,
            links=self.wires,
            chance=scheduler.random("jitter"),
            memory=VolatileMemory(),
            registrar=self._enrolment if is_root else None,
        )
        self.members[name] = member
        self.wires.attach(name, member.heard)  # type: ignore[arg-type]  # ring messages only
        return member

    def _position(self, name: str) -> int:
        identity = f"{self.scheduler.seed}/{name}".encode()  # in place of a public key
        position = (
            choose(candidates(identity), self._taken) if self.chosen else position_of(identity)
        )
        insort(self._taken, position)
        return position

    # --- the truth ----------------------------------------------------------

    def look(self) -> None:
        """Find out again which nodes are on the ring."""
        self._contacts = sorted(
            member.core.me for member in self.members.values() if member.core.is_on_the_ring
        )
        self._positions = [contact.position for contact in self._contacts]

    @property
    def contacts(self) -> Sequence[Contact]:
        """The living nodes that are on the ring, by position."""
        return self._contacts

    def owner(self, key: int) -> Contact | None:
        if not self._contacts:
            return None
        return self._contacts[bisect_left(self._positions, key) % len(self._contacts)]

    def unsettled(self) -> int:
        """How many members have other neighbours than they should have; 0: the ring is ideal."""
        self.look()
        return len(self.members) - sum(1 for _ in self._settled(self.settings.successors))

    def astray(self) -> int:
        """How many members have a wrong first successor, or none; 0: one ring, in order."""
        self.look()
        return len(self.members) - sum(1 for _ in self._settled(1))

    def _settled(self, length: int) -> Iterable[Contact]:
        contacts = self._contacts
        count = len(contacts)
        length = min(length, count - 1)
        around = contacts + contacts[:length]
        for place, contact in enumerate(contacts):
            core = self.members[contact.address].core
            if core.successors[:length] != around[place + 1 : place + 1 + length]:
                continue
            if length > 1 and core.predecessor != contacts[place - 1]:
                continue
            yield contact

    def _enter(self, member: RingMember) -> None:
        """A node that joined has neighbours: from now on it owns keys."""
        contact = member.core.me
        if member.closed or not member.core.is_on_the_ring:
            return
        place = bisect_left(self._positions, contact.position)
        if place == len(self._positions) or self._positions[place] != contact.position:
            self._positions.insert(place, contact.position)
            self._contacts.insert(place, contact)

    # --- time ---------------------------------------------------------------

    def now_us(self) -> int:
        return self.scheduler.now_us()

    def run_seconds(self, seconds: float) -> None:
        self.scheduler.run_for(round(seconds * SECOND))

    def until(
        self, condition: Callable[[], bool], *, seconds_max: float, every: float = 1.0
    ) -> float | None:
        """Run until `condition` holds. Returns the seconds that it took; None: not in time."""
        began_us = self.now_us()
        while not condition():
            if self.now_us() - began_us >= seconds_max * SECOND:
                return None
            self.run_seconds(every)
        return (self.now_us() - began_us) / SECOND


def fingers_only(settings: RingSettings | None = None) -> RingSettings:
    """Settings without the memory of all nodes heard of: the ring that Chord's papers describe."""
    return replace(settings or RingSettings(), routes_max=0)
