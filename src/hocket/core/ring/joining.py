"""How a node comes onto the ring, and how long a node that keeps coming back waits before that.

First the node registers at the root, whose address every node on the ring knows. The answer says
how many nodes there are. With few of them the registry is the ring, and the node is on it. Else the
node looks its own position up, and asks the node that leads there to let it in. That one agrees
only if the joiner lies between it and its successor, and the joiner takes its whole list of
successors (Zave 2017, operation Join; the first Chord papers took one pointer, which one failure
could leave dangling).

If the root cannot be reached, but a node of a large ring can, we join there and go on registering.
If the root itself finds nobody on the ring, and most of the others say that they are not on the
ring either, the root alone is the ring, and begins anew. Mere silence does not make it so before a
long time has passed: the root may be the one that is cut off.

Every join changes the lists of the neighbours. A node that starts over and over (its process dies,
its network comes and goes) would keep them busy, so from its second return on it waits, each time
twice as long (`wait_us`). A node that was stopped in order does not flap: its driver forgets the
joins before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hocket.core.ring import small_ring
from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.events import Arm, Disarm, Effect, Enrol, Send
from hocket.core.ring.lookups import Outcome
from hocket.core.ring.messages import (
    AskRoot,
    Beacon,
    JoinAt,
    NotMine,
    Register,
    RegistryIs,
    Welcome,
)
from hocket.core.ring.own_node import OwnNode
from hocket.core.ring.pointers import Pointers, Standing
from hocket.core.ring.settings import SECOND

JOIN = ("join", 0)  # the timers
REGISTER = ("register", 0)
FAILURES_MAX = 3  # lookups that find nobody, before the root is asked again
REFUSALS_MAX = 4  # by one busy node, before the root is asked again
NEARER_MAX = 16  # how often we are sent on to a nearer node
PATIENCE = 3  # times the age of a stale beacon: for so long the root bears silence
RECENT_US = 600 * SECOND  # joins within this time count as recent
WAIT_US_MAX = 300 * SECOND


def wait_us(joins_us: Sequence[int], now_us: int) -> int:
    """How long a node that joined at those times waits before it joins now.

    0 unless several of the joins are recent: to return once is nothing unusual.
    """
    # Clocks are set back, too: a join that lies far ahead is as old as one that lies far back.
    recent = sum(abs(now_us - join_us) < RECENT_US for join_us in joins_us)
    # The power is bounded before it is taken: there may be many joins.
    return min(SECOND << min(recent - 1, 10), WAIT_US_MAX) if recent > 1 else 0


class Joining:
    """One way onto the ring, from the first message until the node is on the ring and registered.

    `seeds` are nodes to begin with.
    """

    def __init__(self, node: OwnNode, pointers: Pointers, seeds: tuple[Contact, ...]) -> None:
        self.seeds = seeds
        self.is_registered = False
        self.has_begun = False  # the wait of a node that keeps coming back is over
        self._node = node
        self._pointers = pointers
        self._turn = 0  # among the seeds
        self._root_address = ""  # as long as the root seems worth asking
        self._guides: tuple[Contact, ...] = ()  # nodes that may be on the ring
        self._request = 0  # the only request whose answer counts
        self._at: Contact | None = None  # the node that we ask to let us in
        self._outside: dict[str, None] = {}  # nodes that said they are not on the ring either
        self._began_us = node.now_us
        self._failures = 0
        self._refusals = 0
        self._sent_on = 0
        self._then: Callable[[int], list[Effect]] = self._register  # when the timer runs out

    def begin(self, wait_us: int) -> list[Effect]:
        return [Arm(JOIN, wait_us)]

    def due(self, now_us: int) -> list[Effect]:
        self.has_begun = True
        return self._then(now_us)

    def stalled(self) -> list[Effect]:
        if not self.has_begun:
            return []  # a node that keeps coming back waits all the same
        return [Arm(JOIN, self._node.settings.query_us)]

    # --- the registry ------------------------------------------------------

    def _register(self, _now_us: int) -> list[Effect]:
        node = self._node
        self._at = None
        self._request = node.requests.take()
        if node.root is not None:
            self._then = self._register
            enrol = Enrol(node.me, None, self._request)
            return [enrol, Arm(JOIN, node.settings.query_us_max)]
        self._then = self._not_registered
        address, turn = self._root_address, self._turn
        if not address and node.root_address:  # known from those who elect the root
            address = "" if turn % 2 else node.root_address
            turn //= 2
        to = seed(address) if address else self.seeds[turn % len(self.seeds)]
        return [Send(to, Register(self._request, node.me)), self._soon(node.settings.query_us)]

    def _not_registered(self, now_us: int) -> list[Effect]:
        if self._root_address:
            self._root_address = ""
            if self._guides:
                return self._look(now_us)
        self._turn += 1
        return self._register(now_us)

    def sent_to_root(self, sender: Contact, message: AskRoot, now_us: int) -> list[Effect]:
        """The node that we asked is not the root."""
        if message.request != self._request:
            return []
        if not message.small:
            self._guides = (sender,)
        if not message.beacon.root:
            self._turn += 1
            self._then = self._register
            return [self._soon(self._node.settings.retry_us)]
        self._root_address = message.beacon.root
        return self._register(now_us)

    def told(self, sender: Contact, message: RegistryIs, now_us: int) -> list[Effect]:
        """What the registry says, while this node is not on the ring yet."""
        node, pointers = self._node, self._pointers
        count = node.settings.successors
        node.small.learn(max(node.small.version, message.beacon.registry))
        if message.count <= count + 1 and node.me in message.members:
            entered = pointers.enter_small(message.members, message.beacon, now_us)
            return [Disarm(JOIN), *entered]
        if node.me in message.founders:
            # We were on the small ring before we knew it: the other nodes have us in their lists.
            successors, predecessor = small_ring.neighbours(node.me, message.founders, count)
            return self._enter(predecessor, tuple(successors), message.beacon, now_us)
        is_answer = message.request != 0 and message.request == self._request
        if not is_answer and node.me not in message.members:
            return []
        self.is_registered = True
        # All members that are named may be on their way as we are; the sender, which is the root,
        # is there if anybody is. The root itself knows all members.
        root = node.root
        members = message.members if root is None else (*root.members, *self.seeds)
        known = dict.fromkeys((*members, sender))
        self._guides = tuple(each for each in known if each.node != node.me.node)
        if self._then in (self._register, self._not_registered):
            return self._look(now_us)
        return []

    # --- the ring ----------------------------------------------------------

    def _look(self, now_us: int) -> list[Effect]:
        node = self._node
        self._request = 0
        self._at = None
        self._refusals = self._sent_on = 0
        self._then = self._keep_looking  # a lookup always ends, and has its own timers
        lookup = node.lookups.start(
            node.me.position, self._looked, now_us, via=self._guides, is_urgent=True
        )
        return [Disarm(JOIN), *lookup]

    def _keep_looking(self, _now_us: int) -> list[Effect]:
        return []

    def _looked(self, outcome: Outcome) -> list[Effect]:
        node, pointers = self._node, self._pointers
        if pointers.standing is not Standing.JOINING:
            return []
        self._then = self._look
        if outcome.route:
            self._failures = 0
            return self._ask(outcome.route[-1], node.now_us)
        self._failures += 1
        if self._failures < FAILURES_MAX:
            return [self._soon(node.settings.query_us)]
        self._failures = 0
        if node.root is not None and self._is_nobody_there():
            return pointers.found(node.now_us)
        self._guides = ()
        self._outside = {}
        self._then = self._register
        return [self._soon(node.settings.query_us)]

    def could_not_lead(self, node: str) -> None:
        """A node that we asked for the way named nobody: it is not on the ring."""
        self._outside[node] = None

    def _is_nobody_there(self) -> bool:
        patience_us = PATIENCE * self._node.settings.beacon_stale_us
        asked = [each for each in self._guides if each.incarnation]
        outside = [each for each in asked if each.node in self._outside]
        if len(outside) * 2 > len(asked):
            return True
        return self._node.now_us - self._began_us >= patience_us

    def _ask(self, at: Contact, _now_us: int) -> list[Effect]:
        node = self._node
        self._pointers.begin_asking()
        self._at = at
        self._request = node.requests.take()
        self._then = self._not_answered
        join_at = JoinAt(self._request, node.me)
        return [Send(at, join_at), Arm(JOIN, node.routes.timeout_us(at))]

    def _not_answered(self, _now_us: int) -> list[Effect]:
        self._pointers.end_asking()
        self._then = self._look
        return [self._soon(self._node.settings.retry_us)]

    def refused(self, request: int) -> list[Effect]:
        if request != self._request or self._at is None:
            return []  # only who was asked to let us in can refuse
        self._pointers.end_asking()
        self._refusals += 1
        # A node that refuses for long may know better than we do how large the ring is.
        is_enough = self._refusals >= REFUSALS_MAX
        self._then = self._register if is_enough else partial(self._ask, self._at)
        return [self._soon(self._node.settings.retry_us)]

    def sent_on(self, message: NotMine, now_us: int) -> list[Effect]:
        if message.request != self._request:
            return []
        self._sent_on += 1
        node, nearer = self._node, message.nearer
        if nearer.node == node.me.node:
            return self._not_answered(now_us)
        if self._sent_on > NEARER_MAX or nearer.position == node.me.position:
            # Stabilization must come to its end there first. Or another node lies where we do:
            # then nobody can ever let us in, and the nodes around must not be asked all the time.
            self._not_answered(now_us)
            return [self._soon(node.settings.stabilize_us)]
        return self._ask(nearer, now_us)

    def gone(self, request: int, now_us: int) -> list[Effect]:
        """The node that we asked is not on the ring."""
        if request != self._request:
            return []
        if self._at is not None:
            return self._not_answered(now_us)
        self._then = self._not_registered
        return [self._soon(self._node.settings.retry_us)]

    def welcomed(self, sender: Contact, message: Welcome, now_us: int) -> list[Effect]:
        if message.request != self._request:
            return []
        # A node that is alone has an empty list: its successor is itself.
        successors = message.successors or (sender,)
        effects = self._enter(sender, successors, message.beacon, now_us)
        if not self.is_registered:
            effects.append(Arm(REGISTER, self._node.settings.query_us_max))
        return effects

    def _enter(
        self,
        predecessor: Contact | None,
        successors: tuple[Contact, ...],
        beacon: Beacon,
        now_us: int,
    ) -> list[Effect]:
        return [Disarm(JOIN), *self._pointers.enter(predecessor, successors, beacon, now_us)]

    # --- the registry, once more -------------------------------------------

    def register_late(self) -> list[Effect]:
        """This node is on the ring, and the root does not know it."""
        node = self._node
        if self.is_registered:
            return []
        again = Arm(REGISTER, node.settings.stabilize_us, node.settings.stabilize_us)
        if not node.root_address:
            return [again]
        self._request = node.requests.take()
        if node.root is not None:
            return [Enrol(node.me, None, self._request), again]
        return [Send(seed(node.root_address), Register(self._request, node.me)), again]

    def registered_late(self, request: int) -> None:
        self.is_registered = self.is_registered or request == self._request

    def _soon(self, after_us: int) -> Arm:
        return Arm(JOIN, after_us, self._node.settings.retry_us)
