"""How a node comes onto the ring.

First it registers at the root, whose address any node on the ring knows. The answer says how many
nodes there are: with few of them the registry is the ring, and we are on it. Else we look our own
position up, and ask the node that leads there to let us in. It answers only if we lie between it
and its successor, and we take its whole list of successors (Zave 2017, operation Join; the first
Chord papers took one pointer, which one failure could leave dangling).

If the root cannot be reached, but a node of a large ring can, we join there and go on registering.
If the root itself finds nobody on the ring, and most of the others say that they are not on it
either, it is the ring, and begins anew. Silence alone does not make it so before a long time has
passed: the root may be the one that is cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.events import Arm, Disarm, Effect, Enrol, Send
from hocket.core.ring.lookups import Outcome
from hocket.core.ring.messages import AskRoot, JoinAt, NotMine, Register, RegistryIs, Welcome
from hocket.core.ring.standing import Standing

if TYPE_CHECKING:
    from hocket.core.ring.ring import Ring

JOIN = ("join", 0)  # the timers
REGISTER = ("register", 0)
FAILURES_MAX = 3  # lookups that find nobody, before we ask anew who is there
REFUSALS_MAX = 4  # of one node that is busy, before we ask anew who is there
NEARER_MAX = 16  # times that we are sent on
PATIENCE = 3  # times the age at which a beacon is stale: so long the root bears silence


class Joining:
    def __init__(self, ring: Ring, seeds: tuple[Contact, ...]) -> None:
        self.seeds = seeds
        self.is_registered = False
        self.has_begun = False  # the wait of a node that keeps coming back is over
        self._ring = ring
        self._turn = 0  # among the seeds
        self._root = ""  # its address, as long as it seems worth asking
        self._guides: tuple[Contact, ...] = ()  # some who are on the ring
        self._request = 0  # the one whose answer counts
        self._at: Contact | None = None  # whom we ask to let us in
        self._outside: dict[str, None] = {}  # nodes that said they are not on the ring either
        self._began_us = ring.now_us
        self._failures = 0
        self._refusals = 0
        self._sent_on = 0
        self._then: Callable[[int], list[Effect]] = self._register  # when the timer has run out

    def begin(self, wait_us: int) -> list[Effect]:
        return [Arm(JOIN, wait_us)]

    def due(self, now_us: int) -> list[Effect]:
        self.has_begun = True
        return self._then(now_us)

    def stalled(self) -> list[Effect]:
        if not self.has_begun:
            return []  # who keeps coming back waits all the same
        return [Arm(JOIN, self._ring.settings.query_us)]

    # --- the registry ------------------------------------------------------

    def _register(self, _now_us: int) -> list[Effect]:
        ring = self._ring
        self._at = None
        self._request = ring.requests.take()
        if ring.root is not None:
            self._then = self._register
            enrol = Enrol(ring.me, None, self._request)
            return [enrol, Arm(JOIN, ring.settings.query_us_max)]
        self._then = self._not_registered
        to = seed(self._root) if self._root else self.seeds[self._turn % len(self.seeds)]
        return [Send(to, Register(self._request, ring.me)), self._soon(ring.settings.query_us)]

    def _not_registered(self, now_us: int) -> list[Effect]:
        if self._root:
            self._root = ""
            if self._guides:
                return self._look(now_us)
        self._turn += 1
        return self._register(now_us)

    def sent_to_root(self, sender: Contact, message: AskRoot, now_us: int) -> list[Effect]:
        if message.request != self._request:
            return []
        if not message.small:
            self._guides = (sender,)
        if not message.beacon.root:
            self._turn += 1
            self._then = self._register
            return [self._soon(self._ring.settings.retry_us)]
        self._root = message.beacon.root
        return self._register(now_us)

    def told(self, sender: Contact, message: RegistryIs, now_us: int) -> list[Effect]:
        """This is in the registry. If it makes a small ring, the ring has seen to it already."""
        ring = self._ring
        is_answer = message.request != 0 and message.request == self._request
        if not is_answer and ring.me not in message.members:
            return []
        self.is_registered = True
        # Those who were named may all be on their way as we are; the root is there, if anybody is.
        # The root itself knows them all.
        members = message.members if ring.root is None else (*ring.root.members, *self.seeds)
        known = dict.fromkeys((*members, sender))
        self._guides = tuple(each for each in known if each.node != ring.me.node)
        if self._then in (self._register, self._not_registered):
            return self._look(now_us)
        return []

    # --- the ring ----------------------------------------------------------

    def _look(self, now_us: int) -> list[Effect]:
        ring = self._ring
        self._request = 0
        self._at = None
        self._refusals = self._sent_on = 0
        self._then = self._keep_looking  # a lookup always ends, and takes its own time
        lookup = ring.lookups.start(
            ring.me.position, self._looked, now_us, via=self._guides, is_urgent=True
        )
        return [Disarm(JOIN), *lookup]

    def _keep_looking(self, _now_us: int) -> list[Effect]:
        return []

    def _looked(self, outcome: Outcome) -> list[Effect]:
        ring = self._ring
        if ring.standing is not Standing.JOINING:
            return []
        self._then = self._look
        if outcome.route:
            self._failures = 0
            return self._ask(outcome.route[-1], ring.now_us)
        self._failures += 1
        if self._failures < FAILURES_MAX:
            return [self._soon(ring.settings.query_us)]
        self._failures = 0
        if ring.root is not None and self._is_nobody_there():
            return ring.found(ring.now_us)
        self._guides = ()
        self._outside = {}
        self._then = self._register
        return [self._soon(ring.settings.query_us)]

    def is_outside(self, node: str) -> None:
        """Somebody could not lead us on: it is not on the ring."""
        self._outside[node] = None

    def _is_nobody_there(self) -> bool:
        patience_us = PATIENCE * self._ring.settings.beacon_stale_us
        asked = [each for each in self._guides if each.incarnation]
        outside = [each for each in asked if each.node in self._outside]
        if len(outside) * 2 > len(asked):
            return True
        return self._ring.now_us - self._began_us >= patience_us

    def _ask(self, at: Contact, _now_us: int) -> list[Effect]:
        ring = self._ring
        ring.asking = True
        self._at = at
        self._request = ring.requests.take()
        self._then = self._not_answered
        join_at = JoinAt(self._request, ring.me)
        return [Send(at, join_at), Arm(JOIN, ring.routes.timeout_us(at))]

    def _not_answered(self, _now_us: int) -> list[Effect]:
        self._ring.asking = False
        self._then = self._look
        return [self._soon(self._ring.settings.retry_us)]

    def refused(self, request: int) -> list[Effect]:
        if request != self._request:
            return []
        self._ring.asking = False
        self._refusals += 1
        assert self._at is not None
        # Whoever refuses for long may know better than we how large the ring is.
        is_enough = self._refusals >= REFUSALS_MAX
        self._then = self._register if is_enough else partial(self._ask, self._at)
        return [self._soon(self._ring.settings.retry_us)]

    def sent_on(self, message: NotMine, now_us: int) -> list[Effect]:
        if message.request != self._request:
            return []
        self._sent_on += 1
        ring, nearer = self._ring, message.nearer
        if nearer.node == ring.me.node:
            return self._not_answered(now_us)
        if self._sent_on > NEARER_MAX or nearer.position == ring.me.position:
            # Stabilization must come to its end there first. Or another node lies where we do;
            # then nobody can ever let us in, and those around must not be asked all the time.
            self._not_answered(now_us)
            return [self._soon(ring.settings.stabilize_us)]
        return self._ask(nearer, now_us)

    def gone(self, request: int, now_us: int) -> list[Effect]:
        """Whom we asked is not on the ring."""
        if request != self._request:
            return []
        if self._at is not None:
            return self._not_answered(now_us)
        self._then = self._not_registered
        return [self._soon(self._ring.settings.retry_us)]

    def welcomed(self, sender: Contact, message: Welcome, now_us: int) -> list[Effect]:
        if message.request != self._request:
            return []
        # A node that is alone has an empty list: its successor is itself.
        successors = message.successors or (sender,)
        effects = self._ring.enter(sender, successors, message.beacon, now_us)
        if not self.is_registered:
            effects.append(Arm(REGISTER, self._ring.settings.query_us_max))
        return effects

    def register_late(self) -> list[Effect]:
        """We are on the ring, and the root does not know it."""
        ring = self._ring
        if self.is_registered:
            return []
        again = Arm(REGISTER, ring.settings.stabilize_us, ring.settings.stabilize_us)
        if not ring.beacon.root:
            return [again]
        self._request = ring.requests.take()
        return [Send(seed(ring.beacon.root), Register(self._request, ring.me)), again]

    def registered_late(self, request: int) -> None:
        self.is_registered = self.is_registered or request == self._request

    def _soon(self, after_us: int) -> Arm:
        return Arm(JOIN, after_us, self._ring.settings.retry_us)
