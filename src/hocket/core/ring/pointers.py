"""A node's successors and its predecessor, and the operations that keep them right.

Rule 1: every change of a successor or predecessor happens in this file.
Rule 2: while a question of ours is out whose answer may change our successors, our pointers count
        as undefined (`asking`), and we refuse to tell them (`Busy`). Whoever is refused drops its
        step and tries again after a while that chance decides. To let it wait instead can deadlock:
        on a ring where all ask at once, each waits for its successor, all the way round.
Rule 3: nobody is adopted without having answered us.
Rule 4: of the successor list only the head is ever dropped, and only when it is dead.

The operations are those of Zave, "Reasoning about identifier spaces: how to make Chord correct"
(IEEE TSE 2017): Join, StabilizeFromSuccessor, StabilizeFromPredecessor and Rectify. Her Fail is
what `convict` learns of. An operation that asks is not atomic here, as it is in her model; rules 2
and 3, and looking again when the answer comes, stand for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from hocket.core.ring import events, messages
from hocket.core.ring.beacons import Beacons
from hocket.core.ring.circle import SIZE, between
from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.events import Arm, Disarm, Effect, Send
from hocket.core.ring.fingers import Fingers
from hocket.core.ring.lookups import Lookups
from hocket.core.ring.messages import Beacon
from hocket.core.ring.pings import Pings
from hocket.core.ring.requests import Requests
from hocket.core.ring.routes import Routes
from hocket.core.ring.settings import RingSettings
from hocket.core.ring.small_ring import SmallRing, neighbours
from hocket.core.ring.standing import Standing
from hocket.core.ring.suspicion import Suspicions

STABILIZE = ("stabilize", 0)  # the timers
QUERY = "query"
CONVICTED_MAX = 64  # remembered: others go on naming them for a while
OVER_MAX = 256  # likewise, of those who will never be back
SEEDS_MAX = 16  # whom a new life of ours may ask


@dataclass(slots=True)
class _Query:
    """The one question that may change our successors."""

    request: int
    to: Contact
    is_nearer: bool  # it lies before our successor: stabilize from predecessor
    sent_us: int


class Pointers:
    def __init__(self, me: Contact, settings: RingSettings) -> None:
        self.me = me
        self.settings = settings
        self.standing = Standing.OUTSIDE
        self.successors: list[Contact] = []
        self.predecessor: Contact | None = None
        self.asking = False
        self.comes_round = False  # our successor's list reaches us: the ring is hardly larger
        self.seeds: tuple[Contact, ...] = ()  # who let us in, or might have
        self.now_us = 0  # of the event that is being dealt with
        self.requests = Requests()
        self.routes = Routes(me, settings)
        self.fingers = Fingers(me, settings, self.routes)
        self.lookups = Lookups(me, settings, self.routes, self.requests)
        self.pings = Pings(self.routes, self.requests)
        self.beacons = Beacons(settings.beacon_stale_us)
        self.small = SmallRing()
        self.suspicions = Suspicions(
            settings, self.routes, self.pings, self.acquaintances, self.convict
        )
        self.convicted: dict[Contact, int] = {}  # when; and not heard since; oldest first
        self.is_spent = False  # this life has been on the ring, or on its way there, and is over
        self._over: dict[str, int] = {}  # by node, the newest life that is certainly over
        self._query: _Query | None = None
        self._candidate: Contact | None = None  # predecessor, should the present one be dead
        self._doubted: Contact | None = None  # the predecessor, while it is pinged for that
        self._has_changed = False

    @property
    def beacon(self) -> Beacon:
        return self.beacons.newest

    def acquaintances(self) -> list[Contact]:
        """Whom we hold, each once, the nearest first."""
        known = dict.fromkeys(self.successors)
        if self.predecessor is not None:
            known[self.predecessor] = None
        known.update(dict.fromkeys(self.fingers.entries.values()))
        return list(known)

    # --- another standing ----------------------------------------------------

    def become_small(self, members: tuple[Contact, ...]) -> list[Effect]:
        """From now on the registry is the ring, and these are in it."""
        effects: list[Effect] = [] if self._query is None else self._end_query(self._query)
        self.standing = Standing.SMALL
        self.asking = False
        self.small.members = members
        for member in members:
            self.routes.told(member)
        self._begin_with(*neighbours(self.me, members, self.settings.successors))
        return effects

    def become_member(self, successors: list[Contact], predecessor: Contact | None) -> list[Effect]:
        self.standing = Standing.MEMBER
        self.asking = False
        self._begin_with(successors, predecessor)
        return self._drop_dead_heads(self.now_us)

    def stop(self, standing: Standing) -> None:
        self.standing = standing
        self.is_spent = True
        self.asking = False
        self._query = None
        self._begin_with([], None)

    def begin_again(self) -> list[Effect]:
        """Of this life nothing is worth keeping but whom to ask."""
        known = self.routes.passive(self.me.position, SEEDS_MAX)
        addresses = [self.beacon.root, *(each.address for each in (*known, *self.seeds))]
        self.stop(Standing.OUTSIDE)
        others = [each for each in dict.fromkeys(addresses) if each not in ("", self.me.address)]
        return [events.BeginAgain(tuple(seed(each) for each in others))]

    def _begin_with(self, successors: list[Contact], predecessor: Contact | None) -> None:
        self._has_changed = True
        self._candidate = None
        self._set_successors(successors)
        self._set_predecessor(predecessor)

    # --- Join: the side that lets others in ----------------------------------

    def _join_at(self, sender: Contact, message: messages.JoinAt, _now_us: int) -> list[Effect]:
        request, who = message.request, message.who
        successors = self.successors
        if (
            self.asking
            or self.standing is not Standing.MEMBER
            or any(each.node == who.node for each in successors)  # a former life of it
        ):
            return [Send(sender, messages.Busy(request))]
        if self._lies_before_successor(who):
            welcome = messages.Welcome(request, tuple(successors), self.beacon)
            return [Send(sender, welcome)]
        nearer = self.routes.preceding(who.position, 1) or successors
        return [Send(sender, messages.NotMine(request, nearer[0]))]

    def _get_state(self, sender: Contact, message: messages.GetState, _now_us: int) -> list[Effect]:
        if self.asking or self.standing is Standing.JOINING:
            return [Send(sender, messages.Busy(message.request))]
        successors = tuple(self.successors)
        state = messages.StateIs(message.request, self.predecessor, successors, self.beacon)
        return [Send(sender, state)]

    # --- StabilizeFromSuccessor, StabilizeFromPredecessor --------------------

    def stabilize_from_successor(self, now_us: int) -> list[Effect]:
        if self.asking:
            return []
        if self.successors:
            return self._ask(self.successors[0], now_us, is_nearer=False)
        if self.predecessor is not None:  # alone so far: we are our own successor
            return self.stabilize_from_predecessor(self.predecessor, now_us)
        return []

    def stabilize_from_predecessor(self, nearer: Contact, now_us: int) -> list[Effect]:
        """The predecessor of our successor, or another that should be our successor."""
        if self.asking or not self._lies_before_successor(nearer):
            return []
        return self._ask(nearer, now_us, is_nearer=True)

    def _lies_before_successor(self, contact: Contact) -> bool:
        mine = self.me.position
        if not self.successors:
            return contact.position != mine
        return between(mine, contact.position, self.successors[0].position)

    def _ask(self, to: Contact, now_us: int, *, is_nearer: bool) -> list[Effect]:
        request = self.requests.take()
        self._query = _Query(request, to, is_nearer, now_us)
        self.asking = True
        return [
            Send(to, messages.GetState(request)),
            Arm((QUERY, request), self.routes.timeout_us(to)),
        ]

    def _end_query(self, query: _Query) -> list[Effect]:
        self._query = None
        self.asking = False
        return [Disarm((QUERY, query.request))]

    def _answered(
        self, sender: Contact, message: messages.StateIs, now_us: int
    ) -> list[Effect] | None:
        """None: too late, the step was dropped."""
        query = self._query
        if query is None or query.request != message.request or query.to != sender:
            return None
        self.routes.answered(sender, now_us - query.sent_us)
        effects = self._end_query(query)
        if query.is_nearer:
            if self._lies_before_successor(sender):  # still
                self._set_successors(self._behind_us((sender, *message.successors)))
            return effects + self._notify_successor(now_us)
        self._set_successors(self._behind_us((sender, *message.successors)))
        self.comes_round = self.me in message.successors
        nearer = message.predecessor
        # One whom we gave up is asked, too: it may have been a mistake.
        if nearer is not None and not self.is_over(nearer):
            effects += self.stabilize_from_predecessor(nearer, now_us)
        if self.asking:
            return effects
        return effects + self._notify_successor(now_us)

    def _refused(self, request: int) -> list[Effect]:
        query = self._query
        if query is None or query.request != request:
            return []
        return self._drop_step(query)

    def _drop_step(self, query: _Query) -> list[Effect]:
        """With no change at all; soon, and at a time that chance decides, we try again."""
        effects = self._end_query(query)
        effects.append(Arm(STABILIZE, self.settings.retry_us, self.settings.retry_us))
        return effects + self._drop_dead_heads(self.now_us)

    def _query_due(self, request: int, now_us: int) -> list[Effect]:
        query = self._query
        if query is None or query.request != request:
            return []
        self._end_query(query)
        effects = self.suspect(query.to, now_us)
        if query.is_nearer:
            return effects + self._notify_successor(now_us)
        return effects + self._drop_dead_heads(now_us)

    def _notify_successor(self, now_us: int) -> list[Effect]:
        """The first one we have now, whoever it was when the step began."""
        effects = self._drop_dead_heads(now_us)
        if effects or not self.successors:
            return effects
        return [Send(self.successors[0], messages.Notify(self.me))]

    # --- Rectify -------------------------------------------------------------

    def _rectify(self, _sender: Contact, message: messages.Notify, now_us: int) -> list[Effect]:
        who, predecessor = message.who, self.predecessor
        if self.standing is not Standing.MEMBER or who == predecessor:
            return []
        if (
            predecessor is None
            or predecessor in self.convicted  # while we lived by the registry, say
            or between(predecessor.position, who.position, self.me.position)
        ):
            self._set_predecessor(who)
            return [] if self.successors else self.stabilize_from_successor(now_us)
        self._candidate = who
        if self._doubted == predecessor:
            return []
        self._doubted = predecessor
        return self.pings.send(predecessor, partial(self._rectified, predecessor), now_us)

    def _rectified(
        self, doubted: Contact, sender: Contact | None, _pong: messages.Pong | None, now_us: int
    ) -> list[Effect]:
        self._doubted = None
        return self.suspect(doubted, now_us) if sender is None else []

    # --- Fail, as we learn of it ---------------------------------------------

    def suspect(self, contact: Contact, now_us: int) -> list[Effect]:
        if self.standing in (Standing.MEMBER, Standing.SMALL) and contact not in self.convicted:
            return self.suspicions.open(contact, now_us)
        return []

    def spoke(self, contact: Contact) -> None:
        """It is there. Cases against it are closed, and nobody waits for its place."""
        if self.suspicions.cases:
            self.suspicions.close(contact)
        if self.convicted:
            self.convicted.pop(contact, None)
        if self._candidate is not None and contact == self.predecessor:
            self._candidate = None

    def is_over(self, contact: Contact) -> bool:
        """Certainly: what it says comes late."""
        over = self._over
        return bool(over) and over.get(contact.node, 0) >= contact.incarnation

    def end_life(self, contact: Contact, now_us: int) -> list[Effect]:
        """This life is over: it said so, or a newer one speaks."""
        incarnation = max(self._over.pop(contact.node, 0), contact.incarnation)
        self._over[contact.node] = incarnation
        if len(self._over) > OVER_MAX:
            del self._over[next(iter(self._over))]
        return self.convict(contact, now_us)

    def convict(self, contact: Contact, now_us: int) -> list[Effect]:
        """This life is over, for all we know."""
        if contact.node == self.me.node or contact in self.convicted:
            return []
        self.convicted[contact] = now_us
        if len(self.convicted) > CONVICTED_MAX:
            del self.convicted[next(iter(self.convicted))]
        self.suspicions.close(contact)
        self.routes.forget(contact)
        self.fingers.forget(contact)
        effects: list[Effect] = [events.Died(contact)]
        effects += self.lookups.died(contact, now_us)
        if self.standing is Standing.MEMBER:
            effects += self._do_without(contact, now_us)
        return effects

    def _do_without(self, contact: Contact, now_us: int) -> list[Effect]:
        if self.predecessor == contact:
            candidate = self._candidate
            self._set_predecessor(None if candidate in self.convicted else candidate)
        query = self._query
        if query is None or query.to != contact:
            return self._drop_dead_heads(now_us)
        effects = self._end_query(query)
        if query.is_nearer:
            return effects + self._notify_successor(now_us)
        return effects + self._drop_dead_heads(now_us)

    def _drop_dead_heads(self, now_us: int) -> list[Effect]:
        """Not while we ask: the list is then undefined, and the answer may put it right."""
        successors = self.successors
        if self.asking or not successors or successors[0] not in self.convicted:
            return []
        alive = 1
        while alive < len(successors) and successors[alive] in self.convicted:
            alive += 1
        if alive == len(successors):
            return self.begin_again()
        self._set_successors(successors[alive:])
        return self.stabilize_from_successor(now_us)

    # --- the lists -----------------------------------------------------------

    def _behind_us(self, contacts: Iterable[Contact]) -> list[Contact]:
        """A list of ours made of what another tells: in order, and not past ourselves."""
        mine = self.me.position
        reached = 0
        result: list[Contact] = []
        length = self.settings.successors
        for contact in contacts:
            away = (contact.position - mine) % SIZE
            if away <= reached or len(result) == length:
                break
            reached = away
            if contact.node != self.me.node:  # a former life of ours, elsewhere
                result.append(contact)
        return result

    def _set_successors(self, successors: list[Contact]) -> None:
        old = self.successors
        if successors == old:
            return
        for contact in successors:
            self.routes.pin(contact)
        for contact in old:
            self.routes.unpin(contact)
        self.successors = successors
        self._has_changed = True

    def _set_predecessor(self, predecessor: Contact | None) -> None:
        old = self.predecessor
        if predecessor == old:
            return
        if predecessor is not None:
            self.routes.pin(predecessor)
        if old is not None:
            self.routes.unpin(old)
        self.predecessor = predecessor
        self._candidate = None
        self._has_changed = True
