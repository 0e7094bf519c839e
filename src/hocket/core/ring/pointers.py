"""A node's standing, its successors and its predecessor, and the operations that keep them right.

Rule 1: the standing, a successor or the predecessor changes in this file only.
Rule 2: while a question of ours is out whose answer may change our successors, our pointers count
        as undefined (`asking`), and we refuse to tell them (`Busy`). A node that is refused drops
        its step, and tries again after a while that chance decides. To let it wait instead can
        deadlock: on a ring where all nodes ask at once, each waits for its successor, all the way
        round.
Rule 3: no node is adopted without having answered us.
Rule 4: only the head of the successor list is ever dropped, and only when it is dead.
Rule 5: a node whose successors are all dead stays on the ring. It asks the nodes that it knows, the
        nearest first, and the first to answer is its successor.

The operations are those of Zave, "Reasoning about identifier spaces: how to make Chord correct"
(IEEE TSE 2017): Join, StabilizeFromSuccessor, StabilizeFromPredecessor and Rectify. `convict` is
how we learn of her Fail. In her model an operation that asks is one atomic step; here it is not.
Rules 2 and 3, and checking again when the answer comes, make up for that.

Rule 5 is about what her proof excludes: r neighbours die at once, or a cut makes them look dead. To
join again would be within her model, but a join needs a ring to join. In a cut some nodes of a side
lose all their successors, and are all that the lists of others have on that side: one after the
other would join again, until nobody was left who could let anybody in. A node that takes the
nearest one it knows skips some members at most. To skip is what StabilizeFromPredecessor mends, and
if two rings come of it, `other_rings` makes them one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from hocket.core.ring import events, messages, small_ring
from hocket.core.ring.circle import SIZE, between
from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.events import Arm, Disarm, Effect, Send
from hocket.core.ring.messages import Beacon
from hocket.core.ring.own_node import OwnNode
from hocket.core.ring.suspicion import Deaths, Suspicions

STABILIZE = ("stabilize", 0)  # the timers that run while a node is on the ring
FINGER = ("finger", 0)
BEACON = ("beacon", 0)
QUERY = "query"  # the name of the timers of our questions
SEEDS_MAX = 16  # nodes that a new life of ours may ask, beside its seeds and the root
CANDIDATES_MAX = 16  # nodes that are asked, in turn, by one that has lost all its successors


class Standing(StrEnum):
    """Where a node is with regard to the ring."""

    OUTSIDE = "outside"  # it has not begun yet, or this life is over
    JOINING = "joining"
    SMALL = "small"  # on a ring that lives by the registry
    MEMBER = "member"  # on a ring that stabilizes
    LEAVING = "leaving"


@dataclass(slots=True)
class _Query:
    """The one question that is out and may change our successors."""

    request: int
    to: Contact
    is_nearer: bool  # `to` lies before our successor: this is StabilizeFromPredecessor
    sent_us: int


class Pointers:
    """See the head of the file."""

    def __init__(self, node: OwnNode) -> None:
        self.node = node
        self.me = node.me
        self.standing = Standing.OUTSIDE
        self.successors: list[Contact] = []
        self.predecessor: Contact | None = None
        self.asking = False
        self.comes_round = False  # our successor's list reaches us: the ring is hardly larger
        self.seeds: tuple[Contact, ...] = ()  # that this life joined by
        self.is_spent = False  # this life was on the ring, or on its way there, and is over
        self.has_changed = False  # something that `NeighboursChanged` tells of
        self.deaths = Deaths(node.settings)
        self.suspicions = Suspicions(
            node.settings, node.routes, node.pings, self.acquaintances, self.convict
        )
        self.is_seeking = False  # all successors are dead, and others are being asked
        self._query: _Query | None = None
        self._candidates: list[Contact] = []  # for our successor, if we have none; the nearest last
        self._candidate: Contact | None = None  # the predecessor, if the present one is dead
        self._doubted: Contact | None = None  # the predecessor, while it is pinged to find that out

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

    def acquaintances(self) -> list[Contact]:
        """All successors, the predecessor and all fingers, each once."""
        known = dict.fromkeys(self.successors)
        if self.predecessor is not None:
            known[self.predecessor] = None
        known.update(dict.fromkeys(self.node.fingers.entries.values()))
        return list(known)

    def take_change(self) -> bool:
        """Whether anything has changed since the last call."""
        has_changed, self.has_changed = self.has_changed, False
        return has_changed

    # --- the standing --------------------------------------------------------

    def begin_joining(self, seeds: tuple[Contact, ...]) -> None:
        self.standing = Standing.JOINING
        self.seeds = seeds
        self.has_changed = True

    def start(self, beacon: Beacon, now_us: int) -> list[Effect]:
        """Arm the timers of a node that comes onto the ring.

        Chance spreads their first turns over the period, so that nodes which begin together do not
        go on in step.
        """
        self.node.beacons.begin(beacon, now_us)
        settings = self.node.settings
        return [
            Arm(STABILIZE, 0, settings.stabilize_us),
            Arm(FINGER, 0, settings.finger_us),
            Arm(BEACON, 0, settings.beacon_us),
        ]

    def become_small(self, members: tuple[Contact, ...]) -> list[Effect]:
        """From now on this node lives by the registry, which has these members."""
        effects: list[Effect] = [] if self._query is None else self._end_query(self._query)
        self.standing = Standing.SMALL
        self.asking = False
        self.node.small.live_by(members)
        for member in members:
            self.node.routes.told(member)
        self._begin_with(*small_ring.neighbours(self.me, members, self.node.settings.successors))
        return effects

    def become_member(self, successors: list[Contact], predecessor: Contact | None) -> list[Effect]:
        """From now on this node stabilizes, beginning with these pointers."""
        self.standing = Standing.MEMBER
        self.asking = False
        self._begin_with(successors, predecessor)
        return self._drop_dead_heads(self.node.now_us)

    def stop(self, standing: Standing) -> None:
        """This life is over; `standing` is OUTSIDE or LEAVING."""
        self.standing = standing
        self.is_spent = True
        self.asking = False
        self._query = None
        self._begin_with([], None)

    def begin_again(self) -> list[Effect]:
        """Nothing of this life is worth keeping but the nodes that the next one can ask."""
        node = self.node
        known = node.routes.passive(self.me.position, SEEDS_MAX)
        addresses = [node.beacon.root, *(each.address for each in (*known, *self.seeds))]
        self.stop(Standing.OUTSIDE)
        others = [each for each in dict.fromkeys(addresses) if each not in ("", self.me.address)]
        return [events.BeginAgain(tuple(seed(each) for each in others))]

    def _begin_with(self, successors: list[Contact], predecessor: Contact | None) -> None:
        self.has_changed = True
        self._candidate = None
        self._set_successors(successors)
        self._set_predecessor(predecessor)

    # --- Join: the side that comes in ----------------------------------------

    def enter(
        self,
        predecessor: Contact | None,
        successors: tuple[Contact, ...],
        beacon: Beacon,
        now_us: int,
    ) -> list[Effect]:
        """Zave's Join: the whole list and the predecessor from one node, then stabilize at once."""
        effects = [*self.start(beacon, now_us), events.Joined()]
        effects += self.become_member(self._behind_us(successors), predecessor)
        period_us = self.node.settings.stabilize_us
        effects.append(Arm(STABILIZE, period_us, period_us // 10))
        return effects + self.stabilize_from_successor(now_us)

    def enter_small(
        self, members: tuple[Contact, ...], beacon: Beacon, now_us: int
    ) -> list[Effect]:
        """This node is one of the members of a small ring."""
        return [*self.start(beacon, now_us), events.Joined(), *self.become_small(members)]

    def found(self, now_us: int) -> list[Effect]:
        """The root found nobody: it alone is what is left of the ring, and others will join it."""
        beacon = self.node.beacon
        return [*self.start(beacon, now_us), events.Joined(), *self.become_member([], None)]

    def begin_asking(self) -> None:
        """`JoinAt` is out, which lets this node in: its pointers are undefined until `enter`."""
        self.asking = True

    def end_asking(self) -> None:
        """`JoinAt` was refused, or not answered."""
        self.asking = False

    # --- Join: the side that lets others in ----------------------------------

    def asked_to_let_in(self, sender: Contact, message: messages.JoinAt) -> list[Effect]:
        request, who = message.request, message.who
        successors = self.successors
        if (
            self.asking
            or self.is_seeking
            or self.standing is not Standing.MEMBER
            or any(each.node == who.node for each in successors)  # a former life of the joiner
        ):
            return [Send(sender, messages.Busy(request))]
        if self._lies_before_successor(who):
            welcome = messages.Welcome(request, tuple(successors), self.node.beacon)
            return [Send(sender, welcome)]
        nearer = self.node.routes.preceding(who.position, 1) or successors
        return [Send(sender, messages.NotMine(request, nearer[0]))]

    def asked_for_state(self, sender: Contact, message: messages.GetState) -> list[Effect]:
        if self.asking or self.standing is Standing.JOINING:
            return [Send(sender, messages.Busy(message.request))]
        successors = tuple(self.successors)
        state = messages.StateIs(message.request, self.predecessor, successors, self.node.beacon)
        return [Send(sender, state)]

    # --- StabilizeFromSuccessor, StabilizeFromPredecessor --------------------

    def stabilize_from_successor(self, now_us: int) -> list[Effect]:
        if self.asking:
            return []
        if self.successors:
            return self._ask(self.successors[0], now_us, is_nearer=False)
        candidate = self._next_candidate()
        return [] if candidate is None else self._ask(candidate, now_us, is_nearer=True)

    def stabilize_from_predecessor(self, nearer: Contact, now_us: int) -> list[Effect]:
        """`nearer` is our successor's predecessor, or another node that should be our successor."""
        if self.asking or not self._lies_before_successor(nearer):
            return []
        return self._ask(nearer, now_us, is_nearer=True)

    def _next_candidate(self) -> Contact | None:
        """Who may be our successor, as we have none; None: nobody that we know.

        When all were asked in vain we are alone, and our own successor: those who refused may be on
        their way in, and need somebody who lets them in. We go on asking.
        """
        if not self._candidates:
            self.is_seeking = False
            self._candidates = self._likely_alive()
        while self._candidates:
            candidate = self._candidates.pop()
            if candidate not in self.deaths.convicted and candidate not in self.suspicions.cases:
                return candidate
        self.is_seeking = False
        return None

    def _likely_alive(self) -> list[Contact]:
        """Nodes that we know and did not give up, the nearest last."""
        known = self.node.routes.nearest(CANDIDATES_MAX)
        return [each for each in reversed(known) if not self.deaths.is_over(each)]

    def _lies_before_successor(self, contact: Contact) -> bool:
        mine = self.me.position
        if not self.successors:
            return contact.position != mine
        return between(mine, contact.position, self.successors[0].position)

    def _ask(self, to: Contact, now_us: int, *, is_nearer: bool) -> list[Effect]:
        request = self.node.requests.take()
        self._query = _Query(request, to, is_nearer, now_us)
        self.asking = True
        return [
            Send(to, messages.GetState(request)),
            Arm((QUERY, request), self.node.routes.timeout_us(to)),
        ]

    def _end_query(self, query: _Query) -> list[Effect]:
        self._query = None
        self.asking = False
        return [Disarm((QUERY, query.request))]

    def answered(
        self, sender: Contact, message: messages.StateIs, now_us: int
    ) -> list[Effect] | None:
        """None: the answer comes too late, the step was dropped."""
        query = self._query
        if query is None or query.request != message.request or query.to != sender:
            return None
        self.node.routes.answered(sender, now_us - query.sent_us)
        effects = self._end_query(query)
        if query.is_nearer:
            if self._lies_before_successor(sender):  # it may no longer do so
                self._set_successors(self._behind_us((sender, *message.successors)))
            return effects + self._notify_successor(now_us)
        self._set_successors(self._behind_us((sender, *message.successors)))
        self.comes_round = self.me in message.successors
        nearer = message.predecessor
        # A node that we gave up is asked, too: giving it up may have been a mistake.
        if nearer is not None and not self.deaths.is_over(nearer):
            effects += self.stabilize_from_predecessor(nearer, now_us)
        if self.asking:
            return effects
        return effects + self._notify_successor(now_us)

    def refused(self, request: int) -> list[Effect]:
        query = self._query
        if query is None or query.request != request:
            return []
        return self._drop_step(query)

    def _drop_step(self, query: _Query) -> list[Effect]:
        """Drop the step with no change at all; we try again soon, at a time that chance decides."""
        effects = self._end_query(query)
        retry_us = self.node.settings.retry_us
        effects.append(Arm(STABILIZE, retry_us, retry_us))
        return effects + self._drop_dead_heads(self.node.now_us)

    def stalled(self) -> list[Effect]:
        """This node stood still: a question that is out is dropped."""
        return [] if self._query is None else self._drop_step(self._query)

    def query_due(self, request: int, now_us: int) -> list[Effect]:
        query = self._query
        if query is None or query.request != request:
            return []
        self._end_query(query)
        return self.suspect(query.to, now_us) + self._go_on_without(query, now_us)

    def _go_on_without(self, query: _Query, now_us: int) -> list[Effect]:
        """The question that is over was not answered."""
        if self.is_seeking:
            return self.stabilize_from_successor(now_us)
        if query.is_nearer:
            return self._notify_successor(now_us)
        return self._drop_dead_heads(now_us)

    def _notify_successor(self, now_us: int) -> list[Effect]:
        """Notify the first successor of now, which may not be the one when the step began."""
        effects = self._drop_dead_heads(now_us)
        if effects or not self.successors:
            return effects
        return [Send(self.successors[0], messages.Notify(self.me))]

    def meet(self, other: Contact, now_us: int) -> list[Effect]:
        """Others take `other` for the owner of our own position, so `other` does not know us."""
        if self.standing is not Standing.MEMBER:
            return []
        notify = Send(other, messages.Notify(self.me))
        return [notify, *self.stabilize_from_predecessor(other, now_us)]

    # --- Rectify -------------------------------------------------------------

    def rectify(self, who: Contact, now_us: int) -> list[Effect]:
        """`who` thinks that it is our predecessor."""
        predecessor = self.predecessor
        if self.standing is not Standing.MEMBER or who == predecessor:
            return []
        if (
            predecessor is None
            or predecessor in self.deaths.convicted  # while we lived by the registry, say
            or between(predecessor.position, who.position, self.me.position)
        ):
            self._set_predecessor(who)
            return [] if self.successors else self.stabilize_from_successor(now_us)
        self._candidate = who
        if self._doubted == predecessor:
            return []
        self._doubted = predecessor
        return self.node.pings.send(predecessor, partial(self._rectified, predecessor), now_us)

    def _rectified(
        self, doubted: Contact, sender: Contact | None, _pong: messages.Pong | None, now_us: int
    ) -> list[Effect]:
        self._doubted = None
        return self.suspect(doubted, now_us) if sender is None else []

    # --- Fail, as we learn of it ---------------------------------------------

    def suspect(self, contact: Contact, now_us: int) -> list[Effect]:
        """This node did not answer in time, or the link to it broke."""
        if self.is_on_the_ring and contact not in self.deaths.convicted:
            return self.suspicions.open(contact, now_us)
        return []

    def spoke(self, contact: Contact) -> None:
        """This life is alive: close the case against it, and let nobody take its place."""
        if self.suspicions.cases:
            self.suspicions.close(contact)
        self.deaths.spoke(contact)
        if self._candidate is not None and contact == self.predecessor:
            self._candidate = None

    def end_life(self, contact: Contact, now_us: int) -> list[Effect]:
        """This life is certainly over: its node said so, or a newer life of that node speaks."""
        self.deaths.end(contact)
        return self.convict(contact, now_us)

    def convict(self, contact: Contact, now_us: int) -> list[Effect]:
        """Give this life up: as far as we know it is over."""
        if contact.node == self.me.node or contact in self.deaths.convicted:
            return []
        self.deaths.convict(contact, now_us)
        self.suspicions.close(contact)
        self.node.routes.forget(contact)
        self.node.fingers.forget(contact)
        effects: list[Effect] = [events.Died(contact)]
        effects += self.node.lookups.died(contact, now_us)
        if self.standing is Standing.MEMBER:
            effects += self._do_without(contact, now_us)
        return effects

    def _do_without(self, contact: Contact, now_us: int) -> list[Effect]:
        if self.predecessor == contact:
            candidate = self._candidate
            self._set_predecessor(None if candidate in self.deaths.convicted else candidate)
        query = self._query
        if query is None or query.to != contact:
            return self._drop_dead_heads(now_us)
        return self._end_query(query) + self._go_on_without(query, now_us)

    def _drop_dead_heads(self, now_us: int) -> list[Effect]:
        """Not while we ask: the list is undefined then, and the answer may put it right."""
        successors, convicted = self.successors, self.deaths.convicted
        if self.asking or not successors or successors[0] not in convicted:
            return []
        alive = 1
        while alive < len(successors) and successors[alive] in convicted:
            alive += 1
        self._set_successors(successors[alive:])
        if not self.successors:
            self.is_seeking = True
            likely = self._likely_alive()
            self._candidates = likely + likely  # a busy one refuses, and is asked once more
        return self.stabilize_from_successor(now_us)

    # --- the lists -----------------------------------------------------------

    def _behind_us(self, contacts: Iterable[Contact]) -> list[Contact]:
        """A successor list for us, made of what another node told: in order, and not past us."""
        mine = self.me.position
        reached = 0
        result: list[Contact] = []
        length = self.node.settings.successors
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
            self.node.routes.pin(contact)
        for contact in old:
            self.node.routes.unpin(contact)
        self.successors = successors
        self.is_seeking = False
        self.has_changed = True

    def _set_predecessor(self, predecessor: Contact | None) -> None:
        old = self.predecessor
        if predecessor == old:
            return
        if predecessor is not None:
            self.node.routes.pin(predecessor)
        if old is not None:
            self.node.routes.unpin(old)
        self.predecessor = predecessor
        self._candidate = None
        self.has_changed = True
