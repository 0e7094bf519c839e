"""One node of a Chord ring: what it is told, and what it wants done.

Rule 1: same events, same effects. Time is told, chance is the driver's (`Arm.jitter_us`).
Rule 2: a message meant for a former life of ours is answered `Gone`; one that a former life of
        another sent is dropped. Who speaks in a newer life has ended its older one.
Rule 3: who joins, registers, notifies or leaves speaks for itself. What somebody says in another's
        name is dropped: else one node could talk another one out of the ring.
Rule 4: the ring is soft state. It routes, and proposes places; nothing that must not be lost rests
        on it. So a node that was cut off drops all it has, and joins again as a new incarnation.

Here is how a node comes, hears and goes. The successors and the predecessor, with the operations on
them that Zave has proven right, are in `chord/pointers.py`; the other parts stand beside it. What
the ring does not promise is in docs/internals/ring.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from hocket.core.ring import events, messages, small_ring
from hocket.core.ring.circle import SIZE
from hocket.core.ring.contact import Contact
from hocket.core.ring.errands import Errands
from hocket.core.ring.events import Arm, Disarm, Effect, Event, Send
from hocket.core.ring.finger_care import FingerCare
from hocket.core.ring.joining import JOIN, REGISTER, Joining
from hocket.core.ring.leaving import LEAVE, Departure
from hocket.core.ring.lookups import LOOKUP, NAMED_MAX, PROBE, Outcome
from hocket.core.ring.messages import Beacon, Message
from hocket.core.ring.other_rings import BEGIN_AGAIN, OtherRings
from hocket.core.ring.pings import PING
from hocket.core.ring.pointers import QUERY, STABILIZE, Pointers
from hocket.core.ring.registry_care import RegistryCare
from hocket.core.ring.root import Root
from hocket.core.ring.second_look import SecondLook
from hocket.core.ring.settings import RingSettings
from hocket.core.ring.standing import Standing

__all__ = ["Ring", "Standing"]

FINGER = ("finger", 0)  # the timers
BEACON = ("beacon", 0)
FRESH_PERIODS = 2  # of stabilization: so long a conviction of ours may be news to others

_REQUESTS = (
    messages.GetState,
    messages.JoinAt,
    messages.Ping,
    messages.GetCloser,
    messages.Register,
    messages.Deregister,
    messages.GetRegistry,
)
# Only one who is on the ring says these, so it may be a step of a route.
_OF_MEMBERS = frozenset(
    (
        messages.GetState,
        messages.StateIs,
        messages.Welcome,
        messages.NotMine,
        messages.Notify,
        messages.Ping,
        messages.BeaconIs,
    )
)
# These are about the one who says them.
_OF_ONESELF = frozenset(
    (
        messages.JoinAt,
        messages.Notify,
        messages.Leaving,
        messages.Register,
        messages.Deregister,
    )
)


class Ring(Pointers):
    """See the head of the file. The attributes may be read by all, and are changed by none."""

    def __init__(self, me: Contact, settings: RingSettings, *, is_root: bool = False) -> None:
        super().__init__(me, settings)
        self.is_root = is_root
        self.root = Root(me, settings) if is_root else None
        self.joining: Joining | None = None
        self._departure: Departure | None = None
        self._errands = Errands(self)
        self.second_look = SecondLook(self)
        self._finger_care = FingerCare(self)
        self._other_rings = OtherRings(self)
        self._registry_care = RegistryCare(self)

    def step(self, event: Event, now_us: int) -> list[Effect]:
        self.now_us = now_us
        effects = self._handlers[type(event)](self, event, now_us)
        if self._has_changed:
            self._has_changed = False
            effects.append(events.NeighboursChanged())
        return effects

    @property
    def lives_by_registry(self) -> bool:
        return self.standing is Standing.SMALL

    @property
    def is_on_the_ring(self) -> bool:
        standing = self.standing
        return standing is Standing.MEMBER or standing is Standing.SMALL

    @property
    def is_outside(self) -> bool:
        standing = self.standing
        return standing is Standing.OUTSIDE or standing is Standing.LEAVING

    # --- coming and going ----------------------------------------------------

    def _begin(self, event: events.Begin, now_us: int) -> list[Effect]:
        settings = self.settings
        members = event.members
        self.small.version = 0
        if len(members) <= settings.registry_reply_max:
            for member in members:
                self.routes.heard(member)
        effects = [] if self.root is None else self.root.begin(members)
        effects += self._start(Beacon(root=event.root), now_us)
        if len(members) <= settings.successors + 1:
            return effects + self.become_small(members)
        self.fingers.fill(members)
        return effects + self.become_member(
            *small_ring.neighbours(self.me, members, settings.successors)
        )

    def _join(self, event: events.Join, _now_us: int) -> list[Effect]:
        self.standing = Standing.JOINING
        self._has_changed = True
        self.seeds = event.seeds
        self.joining = Joining(self, event.seeds)
        return self.joining.begin(event.wait_us)

    def enter(
        self,
        predecessor: Contact | None,
        successors: tuple[Contact, ...],
        beacon: Beacon,
        now_us: int,
    ) -> list[Effect]:
        """Zave's Join: the whole list and the predecessor from one node, then stabilize at once."""
        effects = [Disarm(JOIN), *self._start(beacon, now_us), events.Joined()]
        effects += self.become_member(self._behind_us(successors), predecessor)
        return effects + self._stabilize_due(0, now_us)

    def enter_small(
        self, members: tuple[Contact, ...], beacon: Beacon, now_us: int
    ) -> list[Effect]:
        effects = [Disarm(JOIN), *self._start(beacon, now_us), events.Joined()]
        return effects + self.become_small(members)

    def found(self, now_us: int) -> list[Effect]:
        """The root found nobody: what is left of the ring is us, and others will join here."""
        return [*self._start(self.beacon, now_us), events.Joined(), *self.become_member([], None)]

    def meet(self, other: Contact, now_us: int) -> list[Effect]:
        """Others hold this node for the owner of our place; so it does not know us."""
        if self.standing is not Standing.MEMBER:
            return []
        notify = Send(other, messages.Notify(self.me))
        return [notify, *self.stabilize_from_predecessor(other, now_us)]

    def _leave(self, _event: events.Leave, _now_us: int) -> list[Effect]:
        if self.is_outside or self._departure is not None:
            return []
        self._departure = Departure(self)
        return self._departure.begin()

    def _start(self, beacon: Beacon, now_us: int) -> list[Effect]:
        """The timers, spread over their period: those who begin together do not beat together."""
        self.beacons.take(beacon, now_us)
        self.beacons.fresh_us = now_us
        settings = self.settings
        return [
            Arm(STABILIZE, 0, settings.stabilize_us),
            Arm(FINGER, 0, settings.finger_us),
            Arm(BEACON, 0, settings.beacon_us),
        ]

    # --- time ----------------------------------------------------------------

    def _due(self, event: events.Due, now_us: int) -> list[Effect]:
        name, number = event.timer
        return self._timers[name](self, number, now_us)

    def _stabilize_due(self, _number: int, now_us: int) -> list[Effect]:
        if not self.is_on_the_ring:
            return []
        period_us = self.settings.stabilize_us
        again = Arm(STABILIZE, period_us, period_us // 10)
        if self.lives_by_registry:
            return [again, *self._registry_care.look_after_small(now_us)]
        return [again, *self.stabilize_from_successor(now_us), *self.second_look.due(now_us)]

    def _finger_due(self, _number: int, now_us: int) -> list[Effect]:
        if not self.is_on_the_ring:
            return []
        period_us = self.settings.finger_us
        again = Arm(FINGER, period_us, period_us // 10)
        return [again] if self.lives_by_registry else [again, *self._finger_care.due(now_us)]

    def _beacon_due(self, _number: int, now_us: int) -> list[Effect]:
        if not self.is_on_the_ring:
            return []
        period_us = self.settings.beacon_us
        again = Arm(BEACON, period_us, period_us // 10)
        if self.root is not None:
            self.root.number += 1
            self.beacons.take(self.root.beacon, now_us)
            awaited = self.root.enrol_awaited()
            return [again, *awaited, *self._hand_on(self.beacon, self.me.position)]
        if self.beacons.is_stale(now_us):
            return [again, *self._other_rings.look(now_us)]
        return [again]

    def _lookup_due(self, name: str, number: int, now_us: int) -> list[Effect]:
        effects = self.lookups.due((name, number), now_us)
        for contact in self.lookups.silent:
            effects += self.suspect(contact, now_us)
        return effects

    def _probe_due(self, number: int, now_us: int) -> list[Effect]:
        return self._lookup_due(PROBE, number, now_us)

    def _patience_due(self, number: int, now_us: int) -> list[Effect]:
        return self._lookup_due(LOOKUP, number, now_us)

    def _ping_due(self, number: int, now_us: int) -> list[Effect]:
        return self.pings.due(number, now_us)

    def _join_due(self, _number: int, now_us: int) -> list[Effect]:
        if self.standing is Standing.JOINING and self.joining is not None:
            return self.joining.due(now_us)
        return []

    def _register_due(self, _number: int, _now_us: int) -> list[Effect]:
        if self.is_on_the_ring and self.joining is not None:
            return self.joining.register_late()
        return []

    def _leave_due(self, _number: int, _now_us: int) -> list[Effect]:
        if self._departure is None or self.standing is Standing.OUTSIDE:
            return []
        return self._departure.go_on()

    def _begin_again_due(self, _number: int, now_us: int) -> list[Effect]:
        return self._other_rings.due(now_us) if self.standing is Standing.MEMBER else []

    def _stalled(self, _event: events.Stalled, now_us: int) -> list[Effect]:
        effects = self.lookups.stalled(now_us) + self.pings.stalled()
        self.suspicions.stalled(now_us)
        if self.standing is Standing.JOINING and self.joining is not None:
            effects += self.joining.stalled()
        if self._query is not None:
            effects += self._drop_step(self._query)
        return effects

    # --- lookups -------------------------------------------------------------

    def _find(self, event: events.Find, now_us: int) -> list[Effect]:
        if not self.is_on_the_ring:
            return [events.NotLocated(event.token, event.key)]
        own = self.closer(0, event.key, NAMED_MAX)
        done = partial(self._found, event.token)
        return self.lookups.start(event.key, done, now_us, own=own, is_urgent=True)

    def _found(self, token: int, outcome: Outcome) -> list[Effect]:
        if not outcome.owners:
            return [events.NotLocated(token, outcome.key)]
        alive = self._without_the_dead(outcome.owners)
        owners = alive or outcome.owners
        return [events.Located(token, outcome.key, owners, outcome.route)]

    def closer(self, request: int, key: int, count: int) -> messages.CloserAre:
        """Our answer to a step of a lookup."""
        successors = self.successors
        mine = self.me.position
        owners: tuple[Contact, ...] = ()
        if self.lives_by_registry:
            size = self.settings.successors + 1
            owners = small_ring.owners(key, self.small.members, size, self.convicted)
        elif self.standing is not Standing.MEMBER:
            return messages.CloserAre(request, (), ())
        elif not successors or key == mine:
            owners = (self.me, *successors)
        elif (key - mine) % SIZE <= (successors[0].position - mine) % SIZE:
            owners = tuple(successors)
            owners = self._without_the_dead(owners) or owners
        if owners:
            return messages.CloserAre(request, (), owners)
        # Those before the key may all be dead without our knowing it.
        away = (key - mine) % SIZE
        beyond = tuple(each for each in successors if (each.position - mine) % SIZE >= away)
        beyond = self._without_the_dead(beyond)
        return messages.CloserAre(request, self.routes.preceding(key, count), (), beyond)

    def _without_the_dead(self, contacts: tuple[Contact, ...]) -> tuple[Contact, ...]:
        """For a while we may know better than others. Later its neighbours do, and if they still
        hold it, it is we who were wrong."""
        if not self.convicted:
            return contacts
        since_us = self.now_us - FRESH_PERIODS * self.settings.stabilize_us
        return tuple(each for each in contacts if self.convicted.get(each, since_us) <= since_us)

    # --- hearing -------------------------------------------------------------

    def _heard(self, event: events.Heard, now_us: int) -> list[Effect]:
        sender, message = event.sender, event.message
        kind = type(message)
        if kind in _OF_ONESELF and message.who != sender:  # type: ignore[union-attr]
            return []
        me = self.me
        meant = event.to_incarnation
        if meant and meant != me.incarnation:
            return self._say_gone(sender, me._replace(incarnation=meant), message)
        if self.is_outside:
            return self._heard_outside(sender, message)
        if isinstance(message, messages.Deregister):  # said by a life that takes its leave
            return self._registry_asked(sender, message, now_us)
        if sender.node == me.node or self.is_over(sender):
            return []
        effects: list[Effect] = []
        known = self.routes.newest(sender.node)
        if known is not None and known.incarnation != sender.incarnation:
            if known.incarnation > sender.incarnation:
                return []
            effects = self.end_life(known, now_us)
            if self.is_outside:
                return effects
        if kind in _OF_MEMBERS:
            self.routes.heard(sender)
        was_given_up = sender in self.convicted
        self.spoke(sender)
        if was_given_up:
            effects += self.second_look.wrong_about(sender, now_us)
        answer = self._messages[kind](self, sender, message, now_us)
        return effects + answer if effects else answer

    def _say_gone(self, to: Contact, was: Contact, message: Message) -> list[Effect]:
        if isinstance(message, _REQUESTS):
            return [Send(to, messages.Gone(message.request, was, self.beacon))]
        return []

    def _heard_outside(self, sender: Contact, message: Message) -> list[Effect]:
        if self.standing is Standing.LEAVING and isinstance(message, messages.RegistryIs):
            return self.told(sender, message, self.now_us)
        # Before it has begun, a life must not be taken for one that is over.
        return self._say_gone(sender, self.me, message) if self.is_spent else []

    def _state_is(self, sender: Contact, message: messages.StateIs, now_us: int) -> list[Effect]:
        effects = self._answered(sender, message, now_us)
        return [] if effects is None else effects + self.take_beacon(message.beacon, now_us)

    def _busy(self, _sender: Contact, message: messages.Busy, _now_us: int) -> list[Effect]:
        if self.standing is Standing.JOINING and self.joining is not None:
            return self.joining.refused(message.request)
        return self._refused(message.request)

    def _asked_to_let_in(
        self, sender: Contact, message: messages.JoinAt, now_us: int
    ) -> list[Effect]:
        effects = self._join_at(sender, message, now_us)
        if self.lives_by_registry:  # somebody was told that this ring is large: so should we be
            effects += self._registry_care.fetch()
        return effects

    def _welcome(self, sender: Contact, message: messages.Welcome, now_us: int) -> list[Effect]:
        if self.standing is Standing.JOINING and self.joining is not None:
            return self.joining.welcomed(sender, message, now_us)
        return []

    def _not_mine(self, _sender: Contact, message: messages.NotMine, now_us: int) -> list[Effect]:
        if self.standing is Standing.JOINING and self.joining is not None:
            return self.joining.sent_on(message, now_us)
        return []

    def _ask_root(self, sender: Contact, message: messages.AskRoot, now_us: int) -> list[Effect]:
        if self.standing is Standing.JOINING and self.joining is not None:
            return self.joining.sent_to_root(sender, message, now_us)
        return []

    def _gone(self, sender: Contact, message: messages.Gone, now_us: int) -> list[Effect]:
        effects = self.lookups.heard(sender, message, now_us) or []
        effects += self.pings.gone(message.request, now_us)
        if self.standing is Standing.JOINING and self.joining is not None:
            effects += self.joining.gone(message.request, now_us)
        was = message.was
        for held in [*self.acquaintances(), was]:  # that life may have lived elsewhere
            if held.node == was.node == sender.node and held.incarnation <= was.incarnation:
                effects += self.end_life(held, now_us)
        return effects

    def _leaving(self, _sender: Contact, message: messages.Leaving, now_us: int) -> list[Effect]:
        return self.end_life(message.who, now_us)

    def _link_lost(self, event: events.LinkLost, now_us: int) -> list[Effect]:
        held = event.contact in self.acquaintances()
        return self.suspect(event.contact, now_us) if held else []

    def _ping(self, sender: Contact, message: messages.Ping, now_us: int) -> list[Effect]:
        return self._errands.pinged(sender, message, now_us)

    def _pong(self, sender: Contact, message: messages.Pong, now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        if sender == self.predecessor or sender in self.successors:
            effects = self.take_beacon(message.beacon, now_us)
        return effects + self.pings.answered(sender, message, now_us)

    def _get_closer(
        self, sender: Contact, message: messages.GetCloser, _now_us: int
    ) -> list[Effect]:
        # Whatever is asked for: an answer must not be as large as all that we know.
        count = min(message.count, NAMED_MAX)
        return [Send(sender, self.closer(message.request, message.key, count))]

    def _closer_are(
        self, sender: Contact, message: messages.CloserAre, now_us: int
    ) -> list[Effect]:
        leads_on = message.owners or message.preceding
        if self.standing is Standing.JOINING and self.joining is not None and not leads_on:
            self.joining.is_outside(sender.node)
        return self.lookups.heard(sender, message, now_us) or []

    # --- the beacon and the registry -----------------------------------------

    def take_beacon(self, beacon: Beacon, now_us: int) -> list[Effect]:
        """It came by our own ring."""
        is_news = self.beacons.take(beacon, now_us) and beacon.registry > self.small.version
        return self._registry_care.news() if is_news else []

    def _beacon_is(self, _sender: Contact, message: messages.BeaconIs, now_us: int) -> list[Effect]:
        if self.standing is Standing.JOINING:
            return []
        effects = self.take_beacon(message.beacon, now_us)
        return effects + self._hand_on(message.beacon, message.limit)

    def _hand_on(self, beacon: Beacon, limit: int) -> list[Effect]:
        if not self.beacons.is_to_be_handed_on(beacon):
            return []
        children = self.fingers.spread(limit, self.successors)
        return [Send(child, messages.BeaconIs(beacon, end)) for child, end in children]

    def _registry_asked(
        self,
        sender: Contact,
        message: messages.Register | messages.Deregister | messages.GetRegistry,
        _now_us: int,
    ) -> list[Effect]:
        return self._registry_care.asked(sender, message)

    def _registry_changed(self, event: events.RegistryChanged, now_us: int) -> list[Effect]:
        return self._registry_care.changed(event, now_us)

    def told(self, sender: Contact, message: messages.RegistryIs, now_us: int) -> list[Effect]:
        """What the root says about the registry; at the root, what the registry says itself."""
        departure = self._departure
        if departure is not None and departure.is_struck_out(message):
            return departure.end()
        if self.is_outside:
            return []
        return self._registry_care.told(sender, message, now_us)

    _handlers: ClassVar[dict[type, Callable[..., list[Effect]]]] = {
        events.Begin: _begin,
        events.Join: _join,
        events.Leave: _leave,
        events.Heard: _heard,
        events.Due: _due,
        events.LinkLost: _link_lost,
        events.Stalled: _stalled,
        events.Find: _find,
        events.RegistryChanged: _registry_changed,
    }
    _timers: ClassVar[dict[str, Callable[..., list[Effect]]]] = {
        STABILIZE[0]: _stabilize_due,
        QUERY: Pointers._query_due,
        FINGER[0]: _finger_due,
        BEACON[0]: _beacon_due,
        PROBE: _probe_due,
        LOOKUP: _patience_due,
        PING: _ping_due,
        JOIN[0]: _join_due,
        REGISTER[0]: _register_due,
        LEAVE[0]: _leave_due,
        BEGIN_AGAIN[0]: _begin_again_due,
    }
    _messages: ClassVar[dict[type, Callable[..., list[Effect]]]] = {
        messages.GetState: Pointers._get_state,
        messages.StateIs: _state_is,
        messages.Busy: _busy,
        messages.Gone: _gone,
        messages.JoinAt: _asked_to_let_in,
        messages.Welcome: _welcome,
        messages.NotMine: _not_mine,
        messages.Notify: Pointers._rectify,
        messages.Ping: _ping,
        messages.Pong: _pong,
        messages.GetCloser: _get_closer,
        messages.CloserAre: _closer_are,
        messages.Leaving: _leaving,
        messages.BeaconIs: _beacon_is,
        messages.Register: _registry_asked,
        messages.Deregister: _registry_asked,
        messages.GetRegistry: _registry_asked,
        messages.AskRoot: _ask_root,
        messages.RegistryIs: told,
    }
