"""A node of a real cluster: a `ClusterNode` with real links and timers, and its place in it all."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

from hocket.adapters.clock import SystemClock
from hocket.adapters.executor import ThreadExecutor
from hocket.adapters.loop import Loop
from hocket.adapters.transport import Certificate
from hocket.core.ring.contact import Contact
from hocket.core.ring.settings import SECOND, RingSettings
from hocket.errors import HocketError, OutOfRange
from hocket.node.cluster.cluster_node import ClusterNode
from hocket.node.cluster.describing import Describing
from hocket.node.cluster.membership import Membership, refuse_other_replication
from hocket.node.cluster.ring_member import MemberSettings
from hocket.node.door.connections import Connections
from hocket.node.links.asking import Refused
from hocket.node.links.links import NodeLinks, Own
from hocket.node.running.hooks import OnSent
from hocket.node.settings import NodeSettings
from hocket.node_frames import NO_CHANGERS, HelloRefused, NodeHello
from hocket.ports import Disk, Executor
from hocket.version import __version__

log = logging.getLogger("hocket.cluster")
LEAVING_US_MAX = 3 * SECOND  # a node that cannot say goodbye goes without
LOOK_US = 50_000
LIFE_MIN_MAX = 1 << 31  # a clock that is far ahead must not use all numbers up
PATIENCE_US = 10 * SECOND  # that a node which returns has with a root that is away
# A ring of real processes should be whole again within seconds. What that costs an idle node is
# measured in docs/internals/links.md.
STABILIZE_US = 2 * SECOND
FINGER_US = 2 * SECOND


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands in its cluster, and how others reach it."""

    membership: Membership
    address: str  # HOST:PORT, as others are told
    name: str = ""
    domain: str = ""
    capacity: int = 1
    seeds: tuple[str, ...] = ()  # to join by, beside those that are remembered
    returns: bool = False  # it has belonged to the cluster before
    replication: int | None = None  # of topics that do not say so, as whoever starts it believes
    tls: Callable[[], ssl.SSLContext | None] = field(default=lambda: None)  # to dial with
    certificate_fault: Callable[[Certificate, str], str] = field(
        default=lambda _certificate, _node: ""
    )
    changers: str = NO_CHANGERS  # the plug-ins here that may change records
    changers_may_differ: bool = False


def greeting_of(place: Place, boot: int) -> NodeHello:
    member = place.membership
    return NodeHello(
        cluster=member.cluster, node=member.node, name=place.name, software=f"hocket {__version__}",
        position=member.position, address=place.address, domain=place.domain, boot=boot,
        capacity=place.capacity, changers=place.changers,
        changers_may_differ=place.changers_may_differ,
    )  # fmt: skip


def life_min(now_us: int) -> int:
    """Lives have larger numbers than the time of the start, in seconds.

    Numbers are counted, and need no clock. But a data directory that was put back from an older
    copy has forgotten how far; all others, who remember, would not listen to it, and take its
    changes for those of its former life.
    """
    return min(now_us // SECOND, LIFE_MIN_MAX)


class Surroundings(Protocol):
    """What the broker gives (`node.broker`)."""

    @property
    def settings(self) -> NodeSettings: ...
    @property
    def disk(self) -> Disk: ...
    @property
    def executor(self) -> Executor: ...
    @property
    def loop(self) -> Loop: ...
    @property
    def connections(self) -> Connections: ...


class Member:
    def __init__(self, place: Place, around: Surroundings) -> None:
        self.place = place
        settings, loop, connections = around.settings, around.loop, around.connections
        disk, executor = around.disk, around.executor
        member = place.membership
        chance = Random(os.urandom(16))
        own = Own(
            hello=greeting_of(place, chance.getrandbits(63) + 1),
            successors=lambda: self.node.registering.successors or member.successors,
            replications=lambda: self.node.preferring.replications,
            positions=self._positions,
            root=lambda: self.cluster_node.ring.core.root_address,
            certificate_fault=place.certificate_fault,
            is_starting=lambda: self._ready is not None,
        )
        self._loop = loop
        # Names are resolved apart from what the node waits for when it goes down.
        self._resolving = ThreadExecutor(loop.post, name="hocket names")
        self._ready: Callable[[], None] | None = None
        self._failed: Callable[[HocketError], None] | None = None
        self.links = NodeLinks(
            own, loop=loop, executor=self._resolving, chance=chance, tls=place.tls,
            refusals=connections.refusals,
        )  # fmt: skip
        self.links.receiver = self
        self.cluster_node = ClusterNode(
            replace(settings, cluster=member.cluster),
            MemberSettings(
                node=member.node,
                address=place.address,
                position=member.position,
                domain=place.domain,
                capacity=place.capacity,
                life_min=life_min(SystemClock().now_us()),
                ring=RingSettings(
                    successors=member.successors, stabilize_us=STABILIZE_US, finger_us=FINGER_US
                ),
            ),
            disk=disk,
            executor=executor,
            clock=SystemClock(),
            network=connections,
            timers=loop,
            links=self.links,
            chance=chance,
        )
        self.node = self.cluster_node.node
        if member.is_founder:
            self.node.registering.founded_with = member.successors
        self.node.registering.reach = self.links.reach
        self._describing = Describing(
            self.node,
            self.cluster_node.ring,
            self.cluster_node.inspecting,
            lambda node: self.links.names.get(node, ""),
        )
        self.node.serve_with(self._describing.servants())
        connections.links = self.links

    def join(self, ready: Callable[[], None], failed: Callable[[HocketError], None]) -> None:
        """Enter the ring; `ready` is called once, when this node may serve clients.

        That is when it has all metadata that the root has. A node that returns knows what was true
        when it left, and does not wait for a root that is away for long. `failed` is called instead
        if the cluster does not let this node in: what it serves would be another's. To be called on
        the loop's thread, or before it runs.
        """
        self._ready, self._failed = ready, failed
        self.cluster_node.start([*self.place.seeds, *self.place.membership.seeds])
        self.cluster_node.when_caught_up(self._caught_up)
        if self._ready is not None:
            self._loop.after(PATIENCE_US, self._patience_is_over)

    def _caught_up(self) -> None:
        """The founder writes down what it was founded with; others may only repeat it."""
        member = self.place.membership
        try:
            if member.is_founder and member.replication and self.node.group0.is_lone:
                self.node.preferring.found(member.replication, self._look_at_replication)
                self.node.end_turn()
            else:
                self._look_at_replication()
        except HocketError as error:
            self._give_up(error)

    def _look_at_replication(self) -> None:
        now, founded = self.node.preferring.replications
        try:
            refuse_other_replication(self.place.replication, now, founded)
        except OutOfRange as error:
            self._give_up(error)
        else:
            self._tell_ready()

    def _give_up(self, error: HocketError) -> None:
        failed, self._ready, self._failed = self._failed, None, None
        if failed is not None:
            failed(error)

    def _tell_ready(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready()

    def _patience_is_over(self) -> None:
        if self._ready is None:
            return
        to_others, _from_others = self.links.open_links
        if self.links.refusals and not to_others:
            self._fail(*next(iter(self.links.refusals.items())))
        elif self.place.returns and self.node.metadata_index:
            log.warning(
                "the root of the cluster does not answer: this node serves what it has, and "
                "changes of topics and access are refused until the root is back"
            )
            self._tell_ready()
        else:
            self._say_why_it_waits()

    def _say_why_it_waits(self) -> None:
        _to_others, from_others = self.links.open_links
        if from_others:
            log.warning(
                "the root of the cluster does not answer, or cannot enter this node: a node that "
                "joins for the first time waits for that. Look at the root and its log"
            )
        else:
            log.warning(
                "no node of the cluster has called this one at %s: look whether others reach it "
                "there (--advertise), and whether the root runs. This node waits",
                self.place.address,
            )

    def _fail(self, address: str, answer: HelloRefused) -> None:
        text = f"the node at {address} refuses this one: {answer.text}"
        self._give_up(Refused(text, answer.code))

    def tick(self) -> None:
        self.cluster_node.tick()

    def leave(self, done: Callable[[], None]) -> None:
        """Say goodbye to the ring, then call `done`; after a while call it anyway."""
        ring = self.cluster_node.ring
        if not ring.core.successors:  # nobody is there to be told
            ring.stops_in_order()
            done()
            return
        ring.leave()
        self.links.flush()

        def look(left_us: int) -> None:
            if ring.core.standing == "outside" or left_us <= 0:
                done()
            else:
                self._loop.after(LOOK_US, lambda: look(left_us - LOOK_US))

        look(LEAVING_US_MAX)

    def close(self) -> None:
        self.links.close()
        self._resolving.abandon()
        self.cluster_node.close()

    def on_stored(self, told: Callable[[int], None]) -> None:
        self.cluster_node.replicas.on_stored = told

    def on_sent(self, told: OnSent) -> None:
        self.cluster_node.replicas.on_sent = told

    # --- what the links tell ---------------------------------------------------------------------

    def heard(self, sender: Contact, to_incarnation: int, message: object) -> None:
        self.cluster_node.heard(sender, to_incarnation, message)

    def link_lost(self, contact: Contact) -> None:
        self.cluster_node.link_lost(contact)

    def link_broken(self, node: str) -> None:
        self.cluster_node.link_broken(node)

    def process_gone(self, node: str) -> None:
        self.cluster_node.link_broken(node, process_gone=True)

    def link_refused(self, address: str, answer: HelloRefused) -> None:
        """A second process of one store has to go at once: the ring would send to either. And who
        has another's name, or other plug-ins, is told so before it serves anybody."""
        if answer.code in ("twice", "nameTaken", "otherPlugins") and self._ready is not None:
            self._fail(address, answer)

    def _positions(self) -> tuple[int, ...]:
        """Those that are taken, as far as this node knows."""
        ring = self.cluster_node.ring.core
        _version, members = self.cluster_node.node.registering.members()
        known = {
            each.position for each in (*members, *ring.small.members, *ring.successors, ring.me)
        }
        return tuple(sorted(known))
