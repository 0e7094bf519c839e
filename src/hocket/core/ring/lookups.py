"""The lookups of this node that are under way: which nodes own a key?

Rule 1: we ask every node on the way ourselves (the lookup is iterative). A node on the way answers
        once and does nothing else, so its patience does not matter.
Rule 2: a node that is asked lies strictly nearer to the key than the node that named it. So a
        lookup ends even if tables are wrong.
Rule 3: the nearest node is asked first. If somebody waits for the answer (`is_urgent`), a few nodes
        are asked at once. A node that is dead or slow is passed over, and asked once more when no
        other node is left. Whether it is dead is not decided here.
Rule 4: the first answer with owners ends the lookup. If all nearer nodes are silent, the owners are
        those that the nearest node which did answer named as `beyond`: its own successors behind
        the dead.

This is find_successor of the Chord paper (Stoica et al. 2003, figure 5), with parallel probes as in
DHash++ (Dabek et al. 2004). Nearness counts backwards from the key: the key's predecessor is the
nearest node. A node at the key itself, which is the key's owner, is the farthest.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from hocket.core.ring.circle import SIZE
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Arm, Disarm, Effect, Send, Timer
from hocket.core.ring.messages import CloserAre, GetCloser, Gone, RequestNumbers
from hocket.core.ring.routes import Routes
from hocket.core.ring.settings import RingSettings

NAMED_MAX = 4  # nearer nodes that one answer names
RESERVE_MAX = 16  # nodes taken from the routes when all that were named are silent
ASKED_MAX = 2  # how often one node is asked; a message may be lost

PROBE = "probe"  # the timers' names
LOOKUP = "lookup"


@dataclass(slots=True)
class Outcome:
    """What a lookup came to."""

    key: int
    owners: tuple[Contact, ...]  # the key's successor first; empty: not found
    route: tuple[Contact, ...]  # each node named the next one; the last one named the owners


class _State(Enum):
    WAITING = 0
    ASKED = 1
    SILENT = 2
    DONE = 3  # it has answered, or is dead


@dataclass(slots=True)
class _Step:
    """A node on the way of a lookup."""

    contact: Contact
    remaining: int  # the distance from this node to the key, less one
    parent: _Step | None  # the node that named this one
    state: _State = _State.WAITING
    asked: int = 0


@dataclass(slots=True)
class _Lookup:
    number: int
    key: int
    done: Callable[[Outcome], list[Effect]]
    is_own: bool  # on our own ring, so that our routes may be used
    width: int  # how many probes may be out at a time
    by_fingers: bool = False  # see `GetCloser`
    steps: list[_Step] = field(default_factory=list)  # nearest to the key first
    named: dict[str, _Step] = field(default_factory=dict)  # by node, or by the address of a seed
    probes: dict[int, _Probe] = field(default_factory=dict)  # by request; late ones included
    out: int = 0  # how many probes are out and not late
    nearest: int = SIZE  # the `remaining` of the nearest node that has answered
    fallback: _Fallback | None = None

    def add(self, contact: Contact, parent: _Step | None) -> None:
        name = contact.node or contact.address
        known = self.named.get(name)
        if known is not None:
            if known.contact.incarnation >= contact.incarnation:
                return
            known.state = _State.DONE  # that life is over
        # The position of a seed is not known: it may name any node, and every node is nearer.
        remaining = (self.key - contact.position - 1) % SIZE if contact.incarnation else SIZE
        step = self.named[name] = _Step(contact, remaining, parent)
        insort(self.steps, step, key=_remaining)


@dataclass(slots=True)
class _Fallback:
    """The owners of the key, in case all nodes that are nearer than `step` are dead."""

    step: _Step
    owners: tuple[Contact, ...]


@dataclass(slots=True)
class _Probe:
    lookup: _Lookup
    step: _Step
    sent_us: int
    is_late: bool = False


class Lookups:
    """See the head of the file."""

    def __init__(
        self, me: Contact, settings: RingSettings, routes: Routes, requests: RequestNumbers
    ) -> None:
        self.me = me
        self.settings = settings
        self.silent: list[Contact] = []  # the nodes whose timeout the last call of `due` was about
        self._routes = routes
        self._requests = requests
        self._lookups: dict[int, _Lookup] = {}
        self._probes: dict[int, _Probe] = {}  # by request

    @property
    def active(self) -> int:
        return len(self._lookups)

    def start(
        self,
        key: int,
        done: Callable[[Outcome], list[Effect]],
        now_us: int,
        *,
        via: tuple[Contact, ...] = (),
        own: CloserAre | None = None,
        is_urgent: bool = False,
        by_fingers: bool = False,
    ) -> list[Effect]:
        """Begin a lookup.

        `via` are the nodes to begin with; a node that is not on that ring needs them. `own` is our
        own answer to the question, if we are on that ring. An urgent lookup asks several nodes at
        once; another one asks one at a time, and a slow node costs its timeout. With `by_fingers`
        no node on the way takes a short cut that it has learnt.

        `done` is called once, possibly before this returns. Its effects are part of what the call
        that ended the lookup returns.
        """
        if own is not None and own.owners:
            return done(Outcome(key, own.owners, ()))
        width = self.settings.parallel_probes if is_urgent else 1
        lookup = _Lookup(
            self._requests.take(), key, done, is_own=not via and not by_fingers, width=width,
            by_fingers=by_fingers,
        )  # fmt: skip
        first = via
        if own is not None:
            first += own.preceding
        elif not via:
            first = self._routes.preceding(key, NAMED_MAX)
        for contact in first:
            if contact.node != self.me.node:
                lookup.add(contact, None)
        self._lookups[lookup.number] = lookup
        patience = Arm((LOOKUP, lookup.number), self.settings.lookup_us_max)
        return [patience, *self._go_on(lookup, now_us)]

    def heard(self, sender: Contact, message: CloserAre | Gone, now_us: int) -> list[Effect] | None:
        """None: the message answers no question of ours, or the lookup is over."""
        probe = self._probes.get(message.request)
        if probe is None:
            return None
        step, lookup = probe.step, probe.lookup
        if step.contact.node not in ("", sender.node):
            return None
        effects = self._settle(lookup, step)
        if isinstance(message, Gone):
            return effects + self._go_on(lookup, now_us)
        self._routes.answered(sender, now_us - probe.sent_us)
        if step.contact != sender:  # it was a seed, or is a newer life: now we know its contact
            step.contact = sender
            lookup.named[sender.node] = step
        if message.owners:
            for contact in message.owners:
                self._routes.told(contact)
            return effects + self._end(lookup, message.owners, _chain(step))
        self._take_in(lookup, step, message)
        return effects + self._go_on(lookup, now_us)

    def due(self, timer: Timer, now_us: int) -> list[Effect]:
        self.silent = []
        kind, number = timer
        if kind == LOOKUP:
            lookup = self._lookups.get(number)
            return [] if lookup is None else self._end(lookup, (), ())
        probe = self._probes.get(number)
        if probe is None or probe.is_late:
            return []
        # A late answer is still welcome, as long as the lookup lasts.
        probe.is_late = True
        probe.lookup.out -= 1
        probe.step.state = _State.SILENT
        if probe.step.contact.incarnation:
            self.silent.append(probe.step.contact)
        return self._go_on(probe.lookup, now_us)

    def died(self, contact: Contact, now_us: int) -> list[Effect]:
        """This life is over: no lookup waits for it any longer, or asks it again."""
        effects: list[Effect] = []
        for lookup in list(self._lookups.values()):
            step = lookup.named.get(contact.node)
            if step is None or step.contact.incarnation > contact.incarnation:
                continue
            effects += self._settle(lookup, step)
            effects += self._go_on(lookup, now_us)
        return effects

    def stalled(self, now_us: int) -> list[Effect]:
        """This node stood still, so no other is to blame: every question gets its time again."""
        effects: list[Effect] = []
        for lookup in self._lookups.values():
            effects.append(Arm((LOOKUP, lookup.number), self.settings.lookup_us_max))
            for request, probe in lookup.probes.items():
                if not probe.is_late:
                    probe.sent_us = now_us
                    timeout_us = self._routes.timeout_us(probe.step.contact)
                    effects.append(Arm((PROBE, request), timeout_us))
        return effects

    def _take_in(self, lookup: _Lookup, step: _Step, message: CloserAre) -> None:
        remaining = (lookup.key - step.contact.position - 1) % SIZE
        if message.beyond and remaining < lookup.nearest:
            lookup.fallback = _Fallback(step, message.beyond)
        lookup.nearest = min(lookup.nearest, remaining)
        for contact in message.preceding[:NAMED_MAX]:
            is_nearer = (lookup.key - contact.position - 1) % SIZE < remaining
            if is_nearer and contact.incarnation and contact.node != self.me.node:
                self._routes.told(contact)
                lookup.add(contact, step)

    def _go_on(self, lookup: _Lookup, now_us: int) -> list[Effect]:
        effects: list[Effect] = []
        while lookup.out < lookup.width:
            step = self._best(lookup)
            if step is None or self._is_vain(lookup, step):
                break
            effects += self._ask(lookup, step, now_us)
        if lookup.out:
            return effects
        fallback = lookup.fallback
        if fallback is None:
            return effects + self._end(lookup, (), ())
        return effects + self._end(lookup, fallback.owners, _chain(fallback.step))

    def _is_vain(self, lookup: _Lookup, step: _Step) -> bool:
        """No use asking: the node was silent, or is farther than one that knows the owners."""
        fallback = lookup.fallback
        if fallback is None or lookup.out:
            return False
        return step.asked > 0 or step.remaining >= fallback.step.remaining

    def _best(self, lookup: _Lookup) -> _Step | None:
        """The node to ask next. A node farther than one that has answered is only a reserve."""
        for step in lookup.steps:
            if step.state is _State.WAITING:
                return step if step.remaining < lookup.nearest or not lookup.out else None
        if lookup.out:
            return None
        if lookup.is_own:
            lookup.is_own = False  # the routes are used once
            for contact in self._routes.preceding(lookup.key, RESERVE_MAX):
                lookup.add(contact, None)
            return self._best(lookup)
        for step in lookup.steps:
            if step.state is _State.SILENT and step.asked < ASKED_MAX:
                return step
        return None

    def _ask(self, lookup: _Lookup, step: _Step, now_us: int) -> list[Effect]:
        request = self._requests.take()
        step.state = _State.ASKED
        step.asked += 1
        lookup.out += 1
        self._probes[request] = lookup.probes[request] = _Probe(lookup, step, now_us)
        return [
            Send(step.contact, GetCloser(request, lookup.key, NAMED_MAX, lookup.by_fingers)),
            Arm((PROBE, request), self._routes.timeout_us(step.contact)),
        ]

    def _settle(self, lookup: _Lookup, step: _Step) -> list[Effect]:
        """This node has answered, or is dead: wait for it no longer, even if it was asked twice."""
        step.state = _State.DONE
        effects: list[Effect] = []
        for request, probe in list(lookup.probes.items()):
            if probe.step is step:
                effects += self._close(request, probe)
        return effects

    def _close(self, request: int, probe: _Probe) -> list[Effect]:
        del self._probes[request]
        del probe.lookup.probes[request]
        if probe.is_late:
            return []
        probe.lookup.out -= 1
        return [Disarm((PROBE, request))]

    def _end(
        self, lookup: _Lookup, owners: tuple[Contact, ...], route: tuple[Contact, ...]
    ) -> list[Effect]:
        effects: list[Effect] = [Disarm((LOOKUP, lookup.number))]
        for request, probe in list(lookup.probes.items()):
            effects += self._close(request, probe)
        del self._lookups[lookup.number]
        return effects + lookup.done(Outcome(lookup.key, owners, route))


def _remaining(step: _Step) -> int:
    return step.remaining


def _chain(step: _Step) -> tuple[Contact, ...]:
    contacts = []
    link: _Step | None = step
    while link is not None:
        contacts.append(link.contact)
        link = link.parent
    return tuple(reversed(contacts))
