"""One node of a cluster: the node with its store and sessions, its ring member, its relays, and
its side of group 0.

The shell hands over what came from other nodes (`heard`). The end of a turn is that of a node
alone: what the turn appended is committed, and what waits for that is sent then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hocket.core.group0.messages import Group0Message
from hocket.core.group0.settings import Group0Settings
from hocket.core.placement.auditing import AuditHolds, GetAudit
from hocket.core.placement.descriptions import GetPartitions, PartitionsAre
from hocket.core.placement.locator import LocatorMessage
from hocket.core.placement.storing import BatchStored, StoreBatch
from hocket.core.placement.trees import GetTrees, TreesAre
from hocket.core.raft.settings import RaftSettings
from hocket.core.relay.messages import RelayMessage
from hocket.core.relay.settings import RelaySettings
from hocket.core.ring.contact import Contact
from hocket.core.ring.messages import Message as RingMessage
from hocket.core.ring.views import GetView, ViewIs
from hocket.core.transactions.messages import TransactionMessage
from hocket.model import PartitionId
from hocket.node.cluster.auditing import Auditing
from hocket.node.cluster.catching_up import CatchingUp
from hocket.node.cluster.descriptions import Descriptions
from hocket.node.cluster.group0 import MetadataGroup
from hocket.node.cluster.inspecting import Inspecting
from hocket.node.cluster.placing import Placing
from hocket.node.cluster.relays import Relays
from hocket.node.cluster.ring_member import MemberSettings, RingMember
from hocket.node.cluster.ring_memory import DiskMemory
from hocket.node.cluster.talking import Talking
from hocket.node.cluster.trees import Trees
from hocket.node.node import Node
from hocket.node.raft_mail import ReplicationMessage
from hocket.node.replication.replicas import Replicas
from hocket.node.running.committed_log import Held
from hocket.node.running.partitions import Hosted
from hocket.node.settings import NodeSettings
from hocket.ports import Clock, Disk, Executor, Links, Network, Timers

_ANSWERS = ViewIs | PartitionsAre | AuditHolds | TreesAre
_OF_RAFT = frozenset(ReplicationMessage.__args__)
_OF_THE_RING = frozenset(RingMessage.__args__)
_OF_GROUP_0 = frozenset(Group0Message.__args__)
_OF_TRANSACTIONS = frozenset(TransactionMessage.__args__)
_FOR_RELAYS = frozenset((*RelayMessage.__args__, *LocatorMessage.__args__))


class ClusterNode:
    def __init__(
        self,
        settings: NodeSettings,
        member: MemberSettings,
        *,
        disk: Disk,
        executor: Executor,
        clock: Clock,
        network: Network,
        timers: Timers,
        links: Links,
        chance: Random,
        entropy: Callable[[int], bytes] = os.urandom,
        relay: RelaySettings | None = None,
        group0: Group0Settings | None = None,
        raft: RaftSettings | None = None,
    ) -> None:
        self.node = Node(
            settings, disk=disk, executor=executor, clock=clock, network=network, entropy=entropy,
            alone=False,
        )  # fmt: skip
        self.ring = RingMember(
            member,
            clock=clock,
            timers=timers,
            links=links,
            chance=chance,
            memory=DiskMemory(disk),
            registrar=self.node.registering,
        )
        self.group0 = MetadataGroup(
            self.node, self.ring, links=links, settings=group0 or Group0Settings()
        )
        self._founds = False  # it is the first node, and begins the ring as soon as it leads
        self._committed = self.node.committed_log()
        self._committed.on_damage = self.node.feeding.stop
        self.relays = Relays(
            me=lambda: self.ring.core.me,
            clock=clock,
            timers=timers,
            links=links,
            chance=chance,
            find=self.ring.find,
            settings=relay or RelaySettings(children_max=settings.relay_children),
            log=self._committed,
            replicas=self._replicas_of,
            copy_of=self._committed.copy_of,
        )
        self.node.feeding.by(self.relays, self._living)
        self.inspecting = Inspecting(
            self.ring, settings.name or member.node, timers=timers, links=links
        )
        self.catching_up = CatchingUp(
            self.node.group0.read, timers=timers, end_turn=self.node.end_turn
        )
        self.node.catch_up_by(self.catching_up, lambda: self.catching_up.knows)
        self.descriptions = Descriptions(
            self.node, me=lambda: self.ring.core.me, timers=timers, links=links,
            catch_up=self.catching_up,
        )  # fmt: skip
        self.node.describe_by(self.descriptions)
        self.auditing = Auditing(
            self.node, me=lambda: self.ring.core.me, timers=timers, links=links
        )
        self.node.audit_by(self.auditing)
        self.trees = Trees(
            self.node, self.relays, me=lambda: self.ring.core.me, timers=timers, links=links
        )
        self.node.serve_with(self.trees.servants())
        self.node.talk_by(Talking(self.node, me=lambda: self.ring.core.me, links=links))
        self.node.place_by(
            Placing(
                member.node,
                members=lambda: self.node.registering.members()[1],
                convicted=lambda: self.ring.core.pointers.deaths.convicted,
                loads=lambda: self.node.loads,
            )
        )
        self.replicas = Replicas(
            member.node,
            self.ring.core.me.incarnation,
            self.node.store,
            contact=lambda: self.ring.core.me,
            contact_of=self.group0.contact_of,
            clock=clock,
            timers=timers,
            links=links,
            chance=chance,
            settings=raft,
        )
        self.group0.on_leading.append(self._found)
        self.group0.begin(self.replicas, member.life_min)
        self._lives: dict[str, int] = {}  # of other nodes, the last of which something was heard
        self.node.deaths_by(self._is_dead)
        self.ring.on_died.append(self.relays.died)
        self.ring.on_stalled.append(self.relays.stalled)
        self.ring.on_renewed.append(self.relays.renewed)
        self.node.watch(self)
        self.node.watch_copies(self._copy_advanced)

    # --- what the shell calls -----------------------------------------------

    def start(self, seeds: Sequence[str] = ()) -> None:
        """Enter the ring by way of these addresses, and of all nodes that this one has known. A
        founder that knows none begins a ring.

        Those that were stopped in order count as well: if all were stopped at once, the one that
        was struck last has struck all others, and whoever is the root now may be one of those.
        """
        member = self.ring.settings
        others = [address for address in seeds if address != member.address]
        registry = self.node.registering
        known = (*registry.members()[1], *registry.left)
        others += [each.address for each in known if each.node != member.node]
        self.group0.seeds = tuple(others)
        if others:
            self.ring.join(list(dict.fromkeys(others)))
        else:
            self._founds = True
            self._found()
        self.end_turn()

    def _found(self) -> None:
        """Begin the ring, if nobody else is there to begin it."""
        if self._founds and self.group0.leads:
            self._founds = False
            self.ring.begin((self.ring.core.me,), self.ring.settings.address)

    @property
    def is_caught_up(self) -> bool:
        """Whether this node has, once in this life, had all metadata that the root had."""
        return self.group0.caught_up

    def when_caught_up(self, tell: Callable[[], None]) -> None:
        """Call `tell` once, as soon as it is so."""
        if self.is_caught_up:
            tell()
        else:
            self.group0.on_caught_up.append(tell)

    def _living(self) -> list[Contact]:
        """All nodes that are there, as far as this one knows, by their positions."""
        _version, members = self.node.registering.members()
        me = self.ring.core.me.node
        return sorted(each for each in members if each.node == me or not self._is_dead(each.node))

    def _is_dead(self, node: str) -> bool:
        """Its last life has ended, as far as the ring knows; one that came back is another.

        A node that comes and goes waits for its place on the ring, and so in the registry, while it
        serves already: it is known by what it says.
        """
        known = self.node.registering.known(node)
        if known is None:
            return False
        life = max(known.incarnation, self._lives.get(node, 0))
        return any(
            each.node == node and each.incarnation >= life
            for each in self.ring.core.pointers.deaths.convicted
        )

    def _replicas_of(self, partition_id: PartitionId) -> list[Contact]:
        """The nodes that keep a partition, as far as they live; none if it has one copy."""
        topic, number = self.node.topics.get(partition_id.topic), partition_id.partition
        if topic is None or not topic.is_replicated or number >= len(topic.groups):
            return []
        if topic.groups[number] != partition_id.group:  # a topic of this name that is gone
            return []
        stores = topic.replicas[number]
        known = [self.group0.contact_of(each) for each in stores if not self._is_dead(each)]
        return [each for each in known if each is not None]

    def link_broken(self, node: str, *, process_gone: bool = False) -> None:
        """`process_gone`: nobody listens any more where it was; it is not merely cut off."""
        self.replicas.link_lost(node, process_gone=process_gone)
        if process_gone:
            self.relays.process_gone(node)
        self.node.end_turn()

    def link_lost(self, contact: Contact) -> None:
        self.ring.link_lost(contact)
        self.replicas.link_lost(contact.node, process_gone=False)
        self.node.end_turn()

    def heard(self, sender: Contact, to_incarnation: int, message: Any) -> None:
        if self.descriptions.silent:
            self.descriptions.spoke(sender.node)
        self.group0.spoke(sender)
        if sender.incarnation > self._lives.get(sender.node, 0):
            self._lives[sender.node] = sender.incarnation
        kind = type(message)
        if kind in _OF_RAFT:  # first: a cluster that has nothing to do says nothing else
            self.replicas.heard(sender, message)
        elif kind in _OF_THE_RING:
            self.ring.heard(sender, to_incarnation, message)
        elif kind in _OF_GROUP_0:
            self.group0.heard(sender, message)
        elif isinstance(message, _ANSWERS) and not self._is_of_this_life(to_incarnation):
            pass  # questions are counted anew in each life: it answers another one
        elif kind in _FOR_RELAYS:
            self.relays.heard(sender, message)
        elif isinstance(message, GetView | ViewIs):
            self.inspecting.heard(sender, message)
        elif isinstance(message, GetPartitions | PartitionsAre):
            self.descriptions.heard(sender, message)
        elif kind in _OF_TRANSACTIONS:
            self.node.transactions.heard(sender.node, message)
        elif isinstance(message, GetAudit | AuditHolds):
            self.auditing.heard(sender, message)
        elif isinstance(message, GetTrees | TreesAre):
            self.trees.heard(sender, message)
        elif isinstance(message, StoreBatch | BatchStored):
            self.node.storing.heard(sender.node, message)
        else:
            self.ring.heard(sender, to_incarnation, message)

    def _is_of_this_life(self, incarnation: int) -> bool:
        return incarnation in (0, self.ring.core.me.incarnation)

    def committed_end(self, partition_id: PartitionId) -> int:
        """Up to where consumers may read a partition of this node; 0: the node does not hold it."""
        return self._committed.end(partition_id)

    def partition_ids(self) -> list[PartitionId]:
        """The partitions that this node holds, with their groups."""
        return self._committed.partition_ids()

    def tick(self) -> None:
        self.group0.tick()
        if self.group0.leads and len(self.node.registering.members()[1]) > 1:
            self.node.found_deciders()
        self.relays.look_at_copies()
        self.node.tick()

    def end_turn(self) -> None:
        self.node.end_turn()

    def close(self) -> None:
        """Make everything durable and let the data directory go. Other nodes find out by silence,
        unless this node has left the ring before."""
        self.ring.close()
        self.inspecting.close()
        self.descriptions.close()
        self.auditing.close()
        self.trees.close()
        self.catching_up.close()
        self.relays.close()
        self.node.close()

    # --- what the node's partitions tell ------------------------------------

    def hosted(self, hosted: Hosted) -> None:
        partition_id = _partition_id(hosted)
        self._committed.add(partition_id, hosted)
        core = hosted.core
        self.relays.own(partition_id, core.start, core.high_watermark, hosted.term)

    def advanced(self, hosted: Hosted) -> None:
        self.relays.advanced(_partition_id(hosted), hosted.core.start, hosted.core.high_watermark)

    def _copy_advanced(self, hosted: Hosted) -> None:
        held = Held(hosted.core.start, hosted.core.high_watermark)
        self.relays.copy_advanced(_partition_id(hosted), held)

    def dropped(self, hosted: Hosted) -> None:
        self._committed.remove(_partition_id(hosted))
        self.relays.disown(_partition_id(hosted))


def _partition_id(hosted: Hosted) -> PartitionId:
    return PartitionId(hosted.core.topic, hosted.core.number, hosted.group)
