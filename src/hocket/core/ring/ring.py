"""One node's ring core: it is told events, and answers with the effects that it wants.

Rule 1: the same events give the same effects. The core is told the time, and the driver draws the
        chance (`Arm.jitter_us`).
Rule 2: a message for a former life of ours is answered `Gone`; a message from a former life of
        another node is dropped. A node that speaks in a newer life has ended its older one.
Rule 3: a node joins, registers, notifies and leaves in its own name only. What it says in another
        node's name is dropped: else one node could talk another one out of the ring.
Rule 4: the ring is soft state. It routes, and proposes places; nothing that must not be lost rests
        on it. So a node that cannot find back drops all it has, and joins again as a new life.
Rule 5: the attributes of `Ring` and of its parts may be read from anywhere. They change in the file
        of their own class only; `OwnNode.now_us`, which `step` sets, is the one exception.

`Ring` dispatches: every event, message and timer goes to the part that it concerns. The parts share
one `OwnNode` (what this node knows of others) and one `Pointers` (its standing, its successors and
its predecessor, with the operations that Zave has proven right). What the ring does not promise is
in docs/internals/ring.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from hocket.core.ring import events, messages, small_ring
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Arm, Effect, Event, Send, Timer
from hocket.core.ring.finger_care import FingerCare
from hocket.core.ring.joining import JOIN, REGISTER, Joining
from hocket.core.ring.key_owners import KeyOwners
from hocket.core.ring.leaving import LEAVE, Departure
from hocket.core.ring.lookups import LOOKUP, NAMED_MAX, PROBE
from hocket.core.ring.messages import Beacon, Message
from hocket.core.ring.other_rings import BEGIN_AGAIN, OtherRings, SecondLook
from hocket.core.ring.own_node import OwnNode
from hocket.core.ring.pings import PING, PingAnswers
from hocket.core.ring.pointers import BEACON, FINGER, QUERY, STABILIZE, Pointers, Standing
from hocket.core.ring.registry_care import RegistryCare
from hocket.core.ring.root import Root
from hocket.core.ring.settings import RingSettings

_REQUESTS = (
    messages.GetState,
    messages.JoinAt,
    messages.Ping,
    messages.GetCloser,
    messages.Register,
    messages.Deregister,
    messages.GetRegistry,
)
# Only a node that is on the ring sends these, so the sender may be a step of a route.
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
# These are about the node that sends them.
_OF_ONESELF = frozenset(
    (
        messages.JoinAt,
        messages.Notify,
        messages.Leaving,
        messages.Register,
        messages.Deregister,
    )
)


class Ring:
    """See the head of the file."""

    def __init__(self, me: Contact, settings: RingSettings, *, is_root: bool = False) -> None:
        self.me = me
        self.settings = settings
        self.node = node = OwnNode(me, settings)
        self.fingers = node.fingers
        self.small = node.small
        self.pointers = pointers = Pointers(node)
        if is_root:
            node.root = Root(me, settings, me.incarnation)
        self.key_owners = KeyOwners(node, pointers)
        self.joining: Joining | None = None  # the last one; it also registers late
        self._departure: Departure | None = None
        self._ping_answers = PingAnswers(me, node.pings, node.beacons)
        self._second_look = SecondLook(node, pointers)
        self._finger_care = FingerCare(node, pointers, self.key_owners, self._second_look)
        self._registry_care = RegistryCare(node, pointers)
        self._other_rings = OtherRings(node, pointers, self._registry_care)

    def step(self, event: Event, now_us: int) -> list[Effect]:
        """What is to be done about one event."""
        self.node.now_us = now_us
        effects = self._handlers[type(event)](self, event, now_us)
        if self.pointers.take_change():
            effects.append(events.NeighboursChanged())
        return effects

    # --- what others look at -------------------------------------------------

    @property
    def standing(self) -> Standing:
        return self.pointers.standing

    @property
    def is_on_the_ring(self) -> bool:
        return self.pointers.is_on_the_ring

    @property
    def successors(self) -> list[Contact]:
        return self.pointers.successors

    @property
    def predecessor(self) -> Contact | None:
        return self.pointers.predecessor

    @property
    def asking(self) -> bool:
        """A question is out that may change our pointers, so they count as undefined."""
        return self.pointers.asking

    @property
    def beacon(self) -> Beacon:
        return self.node.beacon

    @property
    def root(self) -> Root | None:
        """While this node is the root."""
        return self.node.root

    @property
    def root_address(self) -> str:
        """Where the root is, as far as this node knows."""
        return self.node.root_address

    # --- coming and going ----------------------------------------------------

    def _begin(self, event: events.Begin, now_us: int) -> list[Effect]:
        settings, node, pointers = self.settings, self.node, self.pointers
        members = event.members
        node.small.learn(0)
        if len(members) <= settings.registry_reply_max:
            for member in members:
                node.routes.heard(member)
        effects = [] if self.root is None else self.root.begin(members)
        effects += pointers.start(Beacon(root=event.root), now_us)
        if len(members) <= settings.successors + 1:
            return effects + pointers.become_small(members)
        node.fingers.fill(members)
        successors, predecessor = small_ring.neighbours(self.me, members, settings.successors)
        return effects + pointers.become_member(successors, predecessor)

    def _join(self, event: events.Join, _now_us: int) -> list[Effect]:
        self.pointers.begin_joining(event.seeds)
        self.joining = Joining(self.node, self.pointers, event.seeds)
        return self.joining.begin(event.wait_us)

    def _leave(self, _event: events.Leave, _now_us: int) -> list[Effect]:
        if self.pointers.is_outside or self._departure is not None:
            return []
        self._departure = Departure(self.node, self.pointers)
        return self._departure.begin()

    def _under_way(self) -> Joining | None:
        """The joining, as long as this node is not on the ring yet."""
        return self.joining if self.pointers.standing is Standing.JOINING else None

    # --- time ----------------------------------------------------------------

    def _due(self, event: events.Due, now_us: int) -> list[Effect]:
        name, number = event.timer
        return self._timers[name](self, number, now_us)

    def _stabilize_due(self, _number: int, now_us: int) -> list[Effect]:
        pointers = self.pointers
        if not pointers.is_on_the_ring:
            return []
        again = _again(STABILIZE, self.settings.stabilize_us)
        if pointers.lives_by_registry:
            return [again, *self._registry_care.look_after_small(now_us)]
        return [again, *pointers.stabilize_from_successor(now_us), *self._second_look.due(now_us)]

    def _query_due(self, number: int, now_us: int) -> list[Effect]:
        return self.pointers.query_due(number, now_us)

    def _finger_due(self, _number: int, now_us: int) -> list[Effect]:
        pointers = self.pointers
        if not pointers.is_on_the_ring:
            return []
        again = _again(FINGER, self.settings.finger_us)
        return [again] if pointers.lives_by_registry else [again, *self._finger_care.due(now_us)]

    def _beacon_due(self, _number: int, now_us: int) -> list[Effect]:
        if not self.pointers.is_on_the_ring:
            return []
        again = _again(BEACON, self.settings.beacon_us)
        if self.root is not None:
            self.node.beacons.take(self.root.next_beacon(), now_us)
            awaited = self.root.enrol_awaited()
            return [again, *awaited, *self._hand_on(self.beacon, self.me.position)]
        if self.node.beacons.is_stale(now_us):
            return [again, *self._other_rings.look(now_us)]
        return [again]

    def _lookup_due(self, timer: Timer, now_us: int) -> list[Effect]:
        lookups = self.node.lookups
        effects = lookups.due(timer, now_us)
        for contact in lookups.silent:
            effects += self.pointers.suspect(contact, now_us)
        return effects

    def _probe_due(self, number: int, now_us: int) -> list[Effect]:
        return self._lookup_due((PROBE, number), now_us)

    def _patience_due(self, number: int, now_us: int) -> list[Effect]:
        return self._lookup_due((LOOKUP, number), now_us)

    def _ping_due(self, number: int, now_us: int) -> list[Effect]:
        return self.node.pings.due(number, now_us)

    def _join_due(self, _number: int, now_us: int) -> list[Effect]:
        joining = self._under_way()
        return [] if joining is None else joining.due(now_us)

    def _register_due(self, _number: int, _now_us: int) -> list[Effect]:
        if self.pointers.is_on_the_ring and self.joining is not None:
            return self.joining.register_late()
        return []

    def _leave_due(self, _number: int, _now_us: int) -> list[Effect]:
        if self._departure is None or self.pointers.standing is Standing.OUTSIDE:
            return []
        return self._departure.go_on()

    def _begin_again_due(self, _number: int, now_us: int) -> list[Effect]:
        is_member = self.pointers.standing is Standing.MEMBER
        return self._other_rings.due(now_us) if is_member else []

    def _stalled(self, _event: events.Stalled, now_us: int) -> list[Effect]:
        effects = self.node.lookups.stalled(now_us) + self.node.pings.stalled()
        self.pointers.suspicions.stalled(now_us)
        joining = self._under_way()
        if joining is not None:
            effects += joining.stalled()
        return effects + self.pointers.stalled()

    # --- hearing -------------------------------------------------------------

    def _heard(self, event: events.Heard, now_us: int) -> list[Effect]:
        sender, message = event.sender, event.message
        kind = type(message)
        if kind in _OF_ONESELF and message.who != sender:  # type: ignore[union-attr]
            return []
        me, node, pointers = self.me, self.node, self.pointers
        meant = event.to_incarnation
        if meant and meant != me.incarnation:
            return self._say_gone(sender, me._replace(incarnation=meant), message)
        if pointers.is_outside:
            return self._heard_outside(sender, message)
        if isinstance(message, messages.Deregister):  # from a life that is about to be over
            return self._registry_care.asked(sender, message)
        if sender.node == me.node or pointers.deaths.is_over(sender):
            return []
        effects: list[Effect] = []
        known = node.routes.newest(sender.node)
        if known is not None and known.incarnation != sender.incarnation:
            if known.incarnation > sender.incarnation:
                return []
            effects = pointers.end_life(known, now_us)
        if kind in _OF_MEMBERS:
            node.routes.heard(sender)
        was_given_up = sender in pointers.deaths.convicted
        pointers.spoke(sender)
        if was_given_up:
            effects += self._second_look.wrong_about(sender, now_us)
        answer = self._messages[kind](self, sender, message, now_us)
        return effects + answer if effects else answer

    def _say_gone(self, to: Contact, was: Contact, message: Message) -> list[Effect]:
        if isinstance(message, _REQUESTS):
            return [Send(to, messages.Gone(message.request, was, self.beacon))]
        return []

    def _heard_outside(self, sender: Contact, message: Message) -> list[Effect]:
        pointers = self.pointers
        if pointers.standing is Standing.LEAVING and isinstance(message, messages.RegistryIs):
            return self._told(sender, message, self.node.now_us)
        # A life that has not begun yet must not be taken for one that is over.
        return self._say_gone(sender, self.me, message) if pointers.is_spent else []

    def _get_state(self, sender: Contact, message: messages.GetState, _now_us: int) -> list[Effect]:
        return self.pointers.asked_for_state(sender, message)

    def _state_is(self, sender: Contact, message: messages.StateIs, now_us: int) -> list[Effect]:
        effects = self.pointers.answered(sender, message, now_us)
        if effects is None:
            return []
        return effects + self._registry_care.take_beacon(message.beacon, now_us)

    def _busy(self, _sender: Contact, message: messages.Busy, _now_us: int) -> list[Effect]:
        joining = self._under_way()
        if joining is not None:
            return joining.refused(message.request)
        return self.pointers.refused(message.request)

    def _join_at(self, sender: Contact, message: messages.JoinAt, _now_us: int) -> list[Effect]:
        effects = self.pointers.asked_to_let_in(sender, message)
        if self.pointers.lives_by_registry:
            # The joiner was told that this ring is large, and we were not told yet.
            effects += self._registry_care.fetch()
        return effects

    def _welcome(self, sender: Contact, message: messages.Welcome, now_us: int) -> list[Effect]:
        joining = self._under_way()
        return [] if joining is None else joining.welcomed(sender, message, now_us)

    def _not_mine(self, _sender: Contact, message: messages.NotMine, now_us: int) -> list[Effect]:
        joining = self._under_way()
        return [] if joining is None else joining.sent_on(message, now_us)

    def _ask_root(self, sender: Contact, message: messages.AskRoot, now_us: int) -> list[Effect]:
        joining = self._under_way()
        return [] if joining is None else joining.sent_to_root(sender, message, now_us)

    def _notify(self, _sender: Contact, message: messages.Notify, now_us: int) -> list[Effect]:
        return self.pointers.rectify(message.who, now_us)

    def _gone(self, sender: Contact, message: messages.Gone, now_us: int) -> list[Effect]:
        pointers = self.pointers
        effects = self.node.lookups.heard(sender, message, now_us) or []
        effects += self.node.pings.gone(message.request, now_us)
        joining = self._under_way()
        if joining is not None:
            effects += joining.gone(message.request, now_us)
        was = message.was
        for held in [*pointers.acquaintances(), was]:  # that life may have had another position
            if held.node == was.node == sender.node and held.incarnation <= was.incarnation:
                effects += pointers.end_life(held, now_us)
        return effects

    def _leaving(self, _sender: Contact, message: messages.Leaving, now_us: int) -> list[Effect]:
        return self.pointers.end_life(message.who, now_us)

    def _link_lost(self, event: events.LinkLost, now_us: int) -> list[Effect]:
        held = event.contact in self.pointers.acquaintances()
        return self.pointers.suspect(event.contact, now_us) if held else []

    def _ping(self, sender: Contact, message: messages.Ping, now_us: int) -> list[Effect]:
        return self._ping_answers.asked(sender, message, now_us)

    def _pong(self, sender: Contact, message: messages.Pong, now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        if sender == self.predecessor or sender in self.successors:
            effects = self._registry_care.take_beacon(message.beacon, now_us)
        return effects + self.node.pings.answered(sender, message, now_us)

    # --- lookups -------------------------------------------------------------

    def _find(self, event: events.Find, now_us: int) -> list[Effect]:
        return self.key_owners.find(event, now_us)

    def _get_closer(
        self, sender: Contact, message: messages.GetCloser, _now_us: int
    ) -> list[Effect]:
        # Whatever count the sender asks for, an answer must not hold all nodes that we know.
        count = min(message.count, NAMED_MAX)
        closer = self.key_owners.closer(
            message.request, message.key, count, by_fingers=message.by_fingers
        )
        return [Send(sender, closer)]

    def _closer_are(
        self, sender: Contact, message: messages.CloserAre, now_us: int
    ) -> list[Effect]:
        joining = self._under_way()
        leads_on = message.owners or message.preceding
        if joining is not None and not leads_on:
            joining.could_not_lead(sender.node)
        return self.node.lookups.heard(sender, message, now_us) or []

    # --- the beacon and the registry -----------------------------------------

    def _beacon_is(self, _sender: Contact, message: messages.BeaconIs, now_us: int) -> list[Effect]:
        if self.pointers.standing is Standing.JOINING:
            return []
        effects = self._registry_care.take_beacon(message.beacon, now_us)
        return effects + self._hand_on(message.beacon, message.limit)

    def _hand_on(self, beacon: Beacon, limit: int) -> list[Effect]:
        node = self.node
        if not node.beacons.is_to_be_handed_on(beacon):
            return []
        children = node.fingers.spread(limit, self.pointers.successors)
        return [Send(child, messages.BeaconIs(beacon, end)) for child, end in children]

    def _registry_asked(
        self, sender: Contact, message: messages.Register | messages.GetRegistry, _now_us: int
    ) -> list[Effect]:
        return self._registry_care.asked(sender, message)

    def _lead(self, event: events.Lead, now_us: int) -> list[Effect]:
        self.node.root = Root(self.me, self.settings, event.epoch)
        changed = events.RegistryChanged(event.version, event.members)
        effects = self._registry_changed(changed, now_us)
        if self.pointers.is_on_the_ring:
            effects.append(Arm(BEACON, 0))  # so that all hear at once where the root is
        return effects

    def _cease(self, _event: events.Cease, _now_us: int) -> list[Effect]:
        self.node.root = None
        return []

    def _root_is(self, event: events.RootIs, _now_us: int) -> list[Effect]:
        self.node.elected(event.epoch, event.address)
        return []

    def _registry_changed(self, event: events.RegistryChanged, now_us: int) -> list[Effect]:
        effects, own = self._registry_care.changed(event, now_us)
        return effects if own is None else effects + self._told(self.me, own, now_us)

    def _told(self, sender: Contact, message: messages.RegistryIs, now_us: int) -> list[Effect]:
        """What the root says about the registry; at the root, what the registry itself says."""
        departure = self._departure
        if departure is not None and departure.is_struck(message):
            return departure.end()
        if self.pointers.is_outside:
            return []
        joining = self._under_way()
        if joining is not None:
            return joining.told(sender, message, now_us)
        if self.joining is not None:
            self.joining.registered_late(message.request)
        return self._registry_care.told(message, now_us)

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
        events.Lead: _lead,
        events.Cease: _cease,
        events.RootIs: _root_is,
    }
    _timers: ClassVar[dict[str, Callable[..., list[Effect]]]] = {
        STABILIZE[0]: _stabilize_due,
        QUERY: _query_due,
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
    # `Deregister` is missing here: `_heard` answers it before it asks which life speaks.
    _messages: ClassVar[dict[type, Callable[..., list[Effect]]]] = {
        messages.GetState: _get_state,
        messages.StateIs: _state_is,
        messages.Busy: _busy,
        messages.Gone: _gone,
        messages.JoinAt: _join_at,
        messages.Welcome: _welcome,
        messages.NotMine: _not_mine,
        messages.Notify: _notify,
        messages.Ping: _ping,
        messages.Pong: _pong,
        messages.GetCloser: _get_closer,
        messages.CloserAre: _closer_are,
        messages.Leaving: _leaving,
        messages.BeaconIs: _beacon_is,
        messages.Register: _registry_asked,
        messages.GetRegistry: _registry_asked,
        messages.AskRoot: _ask_root,
        messages.RegistryIs: _told,
    }


def _again(timer: Timer, period_us: int) -> Arm:
    return Arm(timer, period_us, period_us // 10)
