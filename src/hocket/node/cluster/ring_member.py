"""Drives a node's ring core: carries out its effects, and gives it what it must not have itself.

That is time, chance, a number for every life, and the news that this node itself stood still. A
timer that comes much too late shows that, and then the silence of others is no evidence
(`Stalled`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from hocket.core.ring import events
from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.events import Located, NotLocated
from hocket.core.ring.joining import wait_us
from hocket.core.ring.messages import Message
from hocket.core.ring.ring import Ring
from hocket.core.ring.settings import RingSettings
from hocket.node.cluster.ring_memory import Memory
from hocket.node.requests.registrar import Registrar
from hocket.ports import Cancellable, Clock, Links, Timers

STALL_US = 200_000  # if a timer is later than this, the loop stood still
STALLED = events.Stalled()


@dataclass(slots=True)
class MemberSettings:
    node: str  # the id of its store: a node that lost its disk, and so its lives, is another node
    address: str  # where other nodes reach it
    position: int
    domain: str = ""
    capacity: int = 1
    is_root: bool = False  # for good; else whoever leads group 0 is
    life_min: int = 0  # the lives that begin have larger numbers, and the terms of a lone voter
    ring: RingSettings = field(default_factory=RingSettings)


class RingMember:
    def __init__(
        self,
        settings: MemberSettings,
        *,
        clock: Clock,
        timers: Timers,
        links: Links,
        chance: Random,
        memory: Memory,
        registrar: Registrar | None = None,
    ) -> None:
        """`registrar` is asked while this node is the root: always (`MemberSettings.is_root`), or
        from `lead` to `cease`."""
        assert not settings.is_root or registrar is not None, "the root keeps the registry"
        self.settings = settings
        self.changes = 0  # how often the standing or the neighbours changed
        self.stalls = 0
        self.on_died: list[Callable[[Contact], None]] = []  # the ring has given a node up as dead
        self.on_stalled: list[Callable[[], None]] = []
        self.on_neighbours: list[Callable[[], None]] = []
        self.on_renewed: list[Callable[[], None]] = []  # this node has begun a new life
        self.closed = False
        self._clock = clock
        self._timers = timers
        self._links = links
        self._chance = chance
        self._memory = memory
        self._registrar = registrar
        self._epoch = 0  # of this node as the root; 0: it is not, by election
        self._elected = 0, ""  # the epoch and the address of the root that was elected last
        self._armed: dict[events.Timer, Cancellable] = {}
        self._finds: dict[int, Callable[[Located | NotLocated], None]] = {}
        self._last_find = 0
        self._told_us = 0  # the time that the core was told last
        self._set_back_us = 0  # by how much the clock was set back so far, in all
        self._carry_out: dict[type, Callable[[Any], None]] = {
            events.Send: self._send,
            events.Arm: self._arm,
            events.Disarm: self._disarm,
            events.Located: self._located,
            events.NotLocated: self._located,
            events.Enrol: self._enrol,
            events.Strike: self._strike,
            events.Joined: self._changed,
            events.Left: self._changed,
            events.NeighboursChanged: self._neighbours_changed,
            events.BeginAgain: self._begin_again,
            events.Died: self._died,
        }
        memory.outlive(settings.life_min)
        self.core = self._new_life()

    # --- what the node calls ------------------------------------------------

    def begin(self, members: tuple[Contact, ...], root: str) -> None:
        """Begin as a member of exactly this ring; if this node is the only member, found a ring."""
        self._tell_registry()
        self.step(events.Begin(members, root))

    def lead(self, epoch: int) -> None:
        """This node is the root from now on."""
        self._epoch = epoch
        self._tell_lead()

    def cease(self) -> None:
        """This node is the root no more."""
        self._epoch = 0
        self.step(events.Cease())

    def elected(self, epoch: int, address: str) -> None:
        """Another node is the root."""
        self._elected = epoch, address
        self.step(events.RootIs(epoch, address))

    def _tell_lead(self) -> None:
        assert self._registrar is not None
        self.step(events.Lead(self._epoch, *self._registrar.members()))

    def _tell_registry(self) -> None:
        if self._registrar is not None and self.core.root is not None:
            version, enrolled = self._registrar.members()
            self.step(events.RegistryChanged(version, enrolled))

    def join(self, seeds: Sequence[str]) -> None:
        self._join(tuple(seed(address) for address in seeds))

    def leave(self) -> None:
        self.stops_in_order()
        self.step(events.Leave())

    def stops_in_order(self) -> None:
        """Whoever starts this node again need not wait for its place: it does not flap."""
        if self._memory.joins_us():
            self._memory.leaving()

    def heard(self, sender: Contact, to_incarnation: int, message: Message) -> None:
        self.step(events.Heard(sender, to_incarnation, message))

    def link_lost(self, contact: Contact) -> None:
        self.step(events.LinkLost(contact))

    def find(
        self,
        key: int,
        done: Callable[[Located | NotLocated], None],
        *,
        by_fingers: bool = False,
    ) -> None:
        self._last_find += 1
        self._finds[self._last_find] = done
        self.step(events.Find(self._last_find, key, by_fingers))

    def close(self) -> None:
        """Nothing more happens; other nodes find out by the silence of this one."""
        self.closed = True
        for timer in self._armed.values():
            timer.cancel()
        self._armed.clear()
        self._finds.clear()

    # --- the turn -----------------------------------------------------------

    def step(self, event: events.Event) -> None:
        if self.closed:
            return
        core = self.core
        carry_out = self._carry_out
        for effect in core.step(event, self._now_us()):
            carry_out[type(effect)](effect)
            if self.core is not core:  # it asked for a new life: its other effects are void
                return

    def _due(self, timer: events.Timer, due_us: int) -> None:
        del self._armed[timer]
        if self._now_us() - due_us > STALL_US:
            self._stalled()
            if self.closed:
                return
        self.step(events.Due(timer))

    def _now_us(self) -> int:
        """A time that is never less than before. If a clock that is set back by an hour were
        believed, every timeout of the core would last an hour longer: the dead would stay on the
        ring."""
        now_us = self._clock.now_us() + self._set_back_us
        if now_us < self._told_us:
            self._set_back_us += self._told_us - now_us
            now_us = self._told_us
        self._told_us = now_us
        return now_us

    def _stalled(self) -> None:
        self.stalls += 1
        self.step(STALLED)
        for tell in self.on_stalled:
            tell()

    # --- carrying out effects -----------------------------------------------

    def _send(self, effect: events.Send) -> None:
        self._links.send(self.core.me, effect.to, effect.message)

    def _arm(self, effect: events.Arm) -> None:
        running = self._armed.pop(effect.timer, None)
        if running is not None:
            running.cancel()
        delay_us = effect.after_us
        if effect.jitter_us:
            delay_us += self._chance.randrange(effect.jitter_us)
        due_us = self._now_us() + delay_us
        self._armed[effect.timer] = self._timers.after(
            delay_us, partial(self._due, effect.timer, due_us)
        )

    def _disarm(self, effect: events.Disarm) -> None:
        running = self._armed.pop(effect.timer, None)
        if running is not None:
            running.cancel()

    def _located(self, effect: Located | NotLocated) -> None:
        done = self._finds.pop(effect.token, None)
        if done is not None:
            done(effect)

    def _enrol(self, effect: events.Enrol) -> None:
        assert self._registrar is not None
        self._registrar.enrol(effect.who, partial(self._registered, effect))

    def _strike(self, effect: events.Strike) -> None:
        assert self._registrar is not None
        self._registrar.strike(effect.who, partial(self._registered, effect))

    def _registered(
        self, effect: events.Enrol | events.Strike, version: int, members: tuple[Contact, ...]
    ) -> None:
        if self.core.root is not None:  # else another node is, by now
            self.step(events.RegistryChanged(version, members, effect.sender, effect.request))

    def _changed(self, _effect: events.Effect) -> None:
        self.changes += 1

    def _neighbours_changed(self, _effect: events.NeighboursChanged) -> None:
        self.changes += 1
        for tell in self.on_neighbours:
            tell()

    def _died(self, effect: events.Died) -> None:
        for tell in self.on_died:
            tell(effect.contact)

    # --- lives --------------------------------------------------------------

    def _new_life(self) -> Ring:
        own = self.settings
        life = self._memory.next_life()
        me = Contact(own.position, own.node, life, own.address, own.domain, own.capacity)
        return Ring(me, own.ring, is_root=own.is_root)

    def _begin_again(self, effect: events.BeginAgain) -> None:
        """This node was cut off. Of its old life it keeps only the nodes that it can ask."""
        for timer in self._armed.values():
            timer.cancel()
        self._armed.clear()
        unanswered, self._finds = self._finds, {}
        self.core = self._new_life()
        self.changes += 1
        for token, done in unanswered.items():
            done(NotLocated(token, 0))
        if self._epoch:
            self._tell_lead()
        elif self._elected[0]:
            self.step(events.RootIs(*self._elected))
        for tell in self.on_renewed:
            tell()
        self._join(effect.seeds)

    def _join(self, seeds: tuple[Contact, ...]) -> None:
        now_us = self._clock.now_us()
        wait = wait_us(self._memory.joins_us(), now_us)
        self._memory.joining(now_us)
        self._tell_registry()
        self.step(events.Join(seeds, wait))
