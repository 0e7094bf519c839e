"""The node: the one driver of all cores, over a log, a network and a clock, real or simulated.

Everything happens on one thread, in turns. The shell (`node.broker`, or a simulated machine) hands
over what has come (`received`, `connected`, `disconnected`, `tick`). Then the shell calls
`end_turn`, which starts the group commit of everything that the turn appended. What depends on a
commit is sent when the log says that the commit is durable (`log_durable`). What does not is there
to be sent already: the acknowledgements of topics kept in memory, say. So a shell that can wait for
the disk within `commit` calls `conclude`, sends, and then calls `commit`.

This file has no rule about topics, producers or indexes: it hands requests to their servants
(`node.requests`), effects of partitions to the reactions for them, and what became durable to
whoever appended it. Three tables, built once, say who gets what.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from hocket import frames
from hocket.cluster_model import NodeAddress
from hocket.core.group0.forwards import deposed
from hocket.core.metadata import metadata as metadata_core
from hocket.core.metadata.access import Access
from hocket.core.metadata.catalogue import Place, Topic
from hocket.core.metadata.names import Names
from hocket.core.metadata.preferences import Preferences
from hocket.core.metadata.registry import Registry
from hocket.core.origin import Origin
from hocket.core.partition import events
from hocket.core.partition.events import StageAcked, TransactionApplied
from hocket.core.session.session import TRUSTED, Caller, Demand, Session, failure
from hocket.errors import HocketError, StoreStopped
from hocket.frames import Frame
from hocket.log.model import RecoveredGroup
from hocket.log.settings import GroupSettings
from hocket.log.store import LogStore
from hocket.model import (
    DECIDERS,
    DECIDERS_REPLICAS,
    DECISIONS,
    EntryKind,
    PartitionDescription,
    TopicConfig,
    is_own_topic,
)
from hocket.node import recovery
from hocket.node.background.dead_letters import DeadLetters
from hocket.node.background.delays import Delays
from hocket.node.background.retention import Retention
from hocket.node.background.storing import Storing
from hocket.node.background.transactions import Others, Transactions
from hocket.node.identity.trail import Trail
from hocket.node.replication import unclaimed
from hocket.node.replication.copies import Copies
from hocket.node.replication.deciders import DeciderCopies
from hocket.node.replication.group0 import Group0, Office
from hocket.node.replication.replicas import Replicas
from hocket.node.requests import alone, plugging
from hocket.node.requests.access import Guarding
from hocket.node.requests.auditing import Auditors, ReadingAudit
from hocket.node.requests.consuming import Consuming
from hocket.node.requests.feeding import Feeding
from hocket.node.requests.handing_on import CHANGES, HandedOn, HandingOn, TakingOver
from hocket.node.requests.indexes import Indexes
from hocket.node.requests.naming import Naming
from hocket.node.requests.operations import Operations
from hocket.node.requests.preferring import Preferring
from hocket.node.requests.producing import Producing
from hocket.node.requests.registering import Registering
from hocket.node.requests.reviving import Reviving
from hocket.node.requests.serving import Serving
from hocket.node.requests.topics import Others as Describers, Topics
from hocket.node.requests.transacting import Transacting
from hocket.node.requests.trimming import Trimming
from hocket.node.running.committed_log import CommittedLog
from hocket.node.running.own_requests import HANDED_ON
from hocket.node.running.partitions import Hosted, Reaction, Watcher
from hocket.node.running.traffic import Holdings, Traffic
from hocket.node.settings import NodeSettings
from hocket.node.wiring import Servant, Wiring
from hocket.ports import Clock, Disk, Executor, Network
from hocket.version import __version__

# A Welcome has at most 64 KiB, and a client that loses one node needs a few others, not all.
NODES_TOLD_MAX = 64


class Node:
    def __init__(
        self,
        settings: NodeSettings,
        *,
        disk: Disk,
        executor: Executor,
        clock: Clock,
        network: Network,
        entropy: Callable[[int], bytes] = os.urandom,
        alone: bool = True,
    ) -> None:
        """`alone`: no other node keeps the metadata; else `replicate_by` is called soon."""
        log_settings = replace(settings.log, new_groups=(DECISIONS,))
        store = LogStore.open(disk, executor, clock, log_settings)
        self.executor = executor  # for what extends a node
        wiring = Wiring(settings, log=store, clock=clock, network=network, entropy=entropy)
        self._wiring = self.wiring = wiring  # the latter for what extends a node
        self.group0 = Group0(wiring, alone=alone)
        self.name = wiring.name
        self.cluster = wiring.cluster
        metadata = wiring.metadata
        self._access = wiring.access = Access(metadata.indexes)
        registry = Registry(metadata.indexes)
        wiring.catalogue.nodes = lambda: max(1, len(registry.members))
        metadata.register(EntryKind.CONFIG, metadata_core.CATALOGUE, wiring.catalogue)
        metadata.register(EntryKind.ACCESS, "access", self._access)
        metadata.register(EntryKind.NODES, "nodes", registry)
        preferences = Preferences(metadata.indexes)
        wiring.catalogue.default_replication = lambda: preferences.replication_to_come
        metadata.register(EntryKind.PREFERENCES, "preferences", preferences)
        names = Names(metadata.indexes)
        metadata.register(EntryKind.NAMES, "names", names)
        is_old = DECISIONS not in store.recovered
        own = wiring.deciders.own.core
        metadata.retire(EntryKind.DECISION, "transactions", own if is_old else None)
        self.registering = Registering(wiring, registry)
        wiring.catalogue.address_of = self.registering.address_of
        self.preferring = Preferring(wiring, preferences, self.registering)
        self.naming = Naming(wiring, names, self.registering)
        self.naming.leads = lambda: self.group0.leads and not self.group0.holds
        self.transactions = Transactions(wiring)
        self._transacting = Transacting(wiring, self.transactions)
        self._producing = Producing(wiring, self._transacting)
        self.give_up_waiting = self._producing.give_up_waiting
        operations = Operations(wiring.network)
        self._copies = self.copies = Copies(wiring)
        self._copies.on_index_refused = operations.part_done
        self._consuming = Consuming(wiring, operations)
        self._indexes = Indexes(wiring, operations)
        self.feeding = Feeding(wiring)
        self._decider_copies = DeciderCopies(wiring)
        self._decider_copies.on_committed = self.transactions.durable
        self._decider_copies.on_served = self.transactions.served
        self._decider_copies.on_stopped = self.transactions.stopped
        self._topics = Topics(
            wiring, self._consuming, operations, self.transactions, self._copies,
            self._decider_copies,
        )  # fmt: skip
        self._guarding = Guarding(wiring, self._access, executor)
        self.handing_on = HandingOn(wiring, self._guarding)
        self.naming.release_by = self.handing_on.release
        self.storing = Storing(wiring)
        self._dead_letters = DeadLetters(wiring, self._create, self.storing)
        self._reviving = Reviving(wiring, self._topics.ask_others)
        self._trimming = Trimming(wiring, operations)
        self.trail = Trail(wiring.log.store_id, disk, clock)
        self._reading_audit = ReadingAudit(wiring, self.trail)
        self._delays = Delays(wiring)
        self._retention = Retention(wiring)
        self._paused = False
        # From here on everything is built. What is below calls what is above by these tables only.
        self._servants = self._table_of_servants()
        self._serving = Serving(wiring, self._servants, self._copies)
        self.received = self._serving.received
        self.taking_over = TakingOver(wiring, self._access, self._servants, self.group0)
        self._committed = self._table_of_changes()
        self._topics.on_claimed = self._take_dying
        self._copies.on_served = self.transactions.partition_served, self._take_dying
        self._copies.on_left = self.transactions.partition_stopped, self._dead_letters.leave
        self.group0.took_effect = self._took_effect
        self.group0.replaced = self._replaced
        self.group0.refuse = self._refuse
        wiring.partitions.react_with(self._table_of_reactions())
        wiring.network.answer_to(self._dead_letters.answered, self._delays.answered)
        try:
            self._recover()
            store.report_to(self)  # what recovery found out about damage is durable afterwards
        except BaseException:
            store.abandon()
            raise
        recovery.tell(wiring)
        self.transactions.started()
        self.naming.started()
        self._guarding.started()

    def _table_of_servants(self) -> dict[type, Servant]:
        """Who serves a request, by the type of its frame."""
        servants = {
            **self._guarding.servants(),
            **self._topics.servants(),
            **self._producing.servants(),
            **self._transacting.servants(),
            **self._consuming.servants(),
            **self._indexes.servants(),
            **self._reviving.servants(),
            **self._trimming.servants(),
            **self._reading_audit.servants(),
            **self.preferring.servants(),
            **self.naming.servants(),
            **alone.servants(),
            **plugging.servants(self._wiring),
        }
        changes = {kind: partial(self._change, servants[kind]) for kind in CHANGES}
        claimed = self.naming.claiming(changes[frames.RegisterName])
        return servants | changes | {frames.RegisterName: claimed}

    def _change(
        self,
        servant: Servant,
        connection: int,
        session: Session,
        demand: Demand,
        payload: memoryview,
    ) -> None:
        """A change of the metadata is asked for: here, or it is handed on to whoever decides."""
        if self.group0.holds:
            if connection == HANDED_ON:
                again = partial(self.taking_over.again, demand.frame.request)
            else:
                again = partial(self.received, connection, demand.frame, payload)
            self.group0.hold(again)
        elif self.group0.leads:
            servant(connection, session, demand, payload)
        else:
            self.handing_on.serve(connection, session, demand)

    def _create(self, origin: Origin, name: str, config: TopicConfig) -> None:
        """A topic for the node itself."""
        create = self._topics.create if self.group0.leads else self.handing_on.create
        create(origin, name, config)

    def _table_of_changes(self) -> dict[int, Callable[[Any], None]]:
        """Who is told of a durable change of the metadata, by the kind of its entry."""
        return {
            EntryKind.CONFIG: self._topics.changed,
            EntryKind.ACCESS: self._guarding.changed,
            EntryKind.NODES: self.registering.changed,
            EntryKind.PREFERENCES: self.preferring.changed,
            EntryKind.NAMES: self.naming.changed,
        }

    def _table_of_reactions(self) -> dict[type, Reaction]:
        """Who is told of an effect of a partition, by the effect's type."""
        return {
            events.Acked: self._producing.acked,
            events.Refused: self._producing.refused,
            StageAcked: self._producing.staged,
            TransactionApplied: self.transactions.applied,
            events.EndMoved: self._advanced,
            events.LogStartMoved: self._log_start_moved,
            events.ShareChanged: self._share_changed,
            events.IndexMoved: self._indexes.moved,
            events.IndexFenced: self._indexes.fenced,
            events.Released: self._delays.released,
        }

    @property
    def access_is_on(self) -> bool:
        """There is a user: a client from outside the process has to say which user it is."""
        return self._access.is_on

    @property
    def traffic(self) -> Traffic:
        return self._wiring.partitions.traffic

    def holdings(self) -> Holdings:
        """What is stored here, counted now."""
        wiring = self._wiring
        topics = wiring.catalogue.topics.values()
        stats = [wiring.log.stats(hosted.group) for hosted in wiring.partitions]
        return Holdings(
            topics=sum(not is_own_topic(topic.name) for topic in topics),
            partitions=len(stats) - len(wiring.partitions.waiting),
            memory_bytes=sum(each.memory_bytes for each in stats),
            disk_bytes=sum(each.disk_bytes for each in stats),
            durability=dict(
                Counter(t.config.durability for t in topics if not is_own_topic(t.name))
            ),
        )

    def make_first_admin(self, token: str) -> None:
        """Turn access control on, with the user that the token names as its admin.

        For a broker that serves nobody yet. It is done once what was appended is durable.
        """
        self._guarding.make_first_admin(token)

    def committed_log(self) -> CommittedLog:
        return CommittedLog(self._wiring.log, self._copies.readable)

    def watch_copies(self, advanced: Callable[[Hosted], None]) -> None:
        """Tell of each copy of a partition that another node leads how far it can be read."""
        self._copies.on_advanced = advanced

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` of every partition held here, and from now on of every change."""
        self._wiring.partitions.watch(watcher)

    def serve_with(self, servants: dict[type, Servant]) -> None:
        """Have these serve their kinds of requests from now on."""
        self._servants |= servants

    def describe_by(self, others: Describers) -> None:
        """Have these say what partitions hold that are not here."""
        self._topics.others = others

    def replicate_by(self, replicas: Replicas, office: Office, term_min: int = 0) -> None:
        """Have the copies of what other nodes keep, too, speak with those. `office` is told when
        this node begins and ceases to be the root."""
        self.group0.office = office
        self._wiring.partitions.lacks_room = replicas.full_disk.lacks_room
        self._copies.replicate_by(replicas)
        self._decider_copies.replicate_by(replicas)
        self.group0.begin(replicas, term_min)

    def deaths_by(self, is_dead: Callable[[str], bool]) -> None:
        """Have this say which nodes are dead, so that nobody is sent there to ask."""
        self._wiring.catalogue.is_dead = is_dead

    @property
    def store(self) -> LogStore:
        return self._wiring.log

    def audit_by(self, auditors: Auditors) -> None:
        """Have these say what the audit logs of the cluster hold."""
        self._reading_audit.auditors = auditors

    def talk_by(self, others: Others) -> None:
        """Have these carry what this node has to say to others."""
        self.transactions.others = self.storing.others = others

    def place_by(self, place: Place) -> None:
        """Have this say where new partitions are to be; without it, they are here."""
        self._wiring.catalogue.place = place

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics of the cluster that this node knows."""
        return self._wiring.catalogue.topics

    @property
    def loads(self) -> Mapping[str, int]:
        """How many partitions each node of the cluster has, by its id."""
        return self._wiring.catalogue.loads

    def catch_up_by(
        self, catch_up: Callable[[Callable[[], None]], None], knows: Callable[[], bool]
    ) -> None:
        """Before it is said that a topic is unknown, a token wrong, or something not allowed, have
        this call when all is known that may be, and look again. `knows` says meanwhile whether all
        is known: what is unknown then is not there."""
        self._serving.knows = knows
        self._serving.catch_up = self._transacting.catch_up = catch_up
        self._guarding.catch_up_by(catch_up)
        self.naming.catch_up, self.naming.knows = catch_up, knows

    def described(self, groups: Iterable[int]) -> tuple[PartitionDescription, ...]:
        """What those of these groups hold that are partitions here, for another node."""
        return self._topics.described(groups)

    def answer(self, connection: int, frame: Frame) -> None:
        self._wiring.network.send(connection, frame)

    # --- what the shell calls ---------------------------------------------

    def connected(self, connection: int, caller: Caller = TRUSTED) -> None:
        self._wiring.sessions[connection] = Session(
            self._wiring.catalogue,
            node=self.name,
            software=f"hocket {__version__}",
            limits=self._wiring.settings.limits,
            cluster=self.cluster,
            nodes=self._other_nodes,
            caller=caller,
            access=self._access,
            handed_on=HandedOn(self.group0),
        )

    def _other_nodes(self) -> tuple[NodeAddress, ...]:
        """Those behind this one on the ring first, so that nodes do not all tell of the same."""
        _version, members = self.registering.members()
        me = self._wiring.catalogue.me
        others = sorted(members)
        at = next((at for at, each in enumerate(others) if each.node == me), -1)
        behind = others[at + 1 :] + others[: max(0, at)]
        return tuple(NodeAddress(each.node, each.address) for each in behind[:NODES_TOLD_MAX])

    def disconnected(self, connection: int) -> None:
        self._wiring.disconnect(connection)
        self.naming.disconnected(connection)

    def end_turn(self) -> None:
        self.conclude()
        self.commit()

    def conclude(self) -> None:
        """Append what the turn has gathered."""
        if self.transactions.inbox:
            self.transactions.pump()
        if self._dead_letters.waiting:
            self._dead_letters.work()
        if self._reviving.waiting:
            self._reviving.work()
        if self._wiring.partitions.changed:  # most turns have changed nothing
            self._wiring.partitions.end_turn()
        self._copies.end_turn()

    def commit(self) -> None:
        """Start the group commit of what the turn appended."""
        self._wiring.log.flush()
        if self._wiring.log.congested != self._paused:
            self._paused = not self._paused
            if self._paused:
                self._wiring.network.pause()
            else:
                self._wiring.network.resume()

    def tick(self) -> None:
        now_us = self._wiring.clock.now_us()
        self._retention.tick(now_us)
        self._decider_copies.tick()
        self.transactions.tick(now_us)
        self.storing.tick(now_us)
        self.naming.tick(now_us)
        self._wiring.shares.tick()
        self.feeding.tick(now_us)
        self._dead_letters.tick()
        self._delays.tick(now_us)
        self._wiring.log.tick()
        self.end_turn()

    def say_goodbye(self, reason: str) -> None:
        """Tell every client that we are going; those that can will look for another node."""
        for connection in list(self._wiring.sessions):
            self._wiring.hang_up(connection, frames.Goodbye(0, reason))

    def close(self) -> None:
        """Make everything durable and let the data directory go. Waits for the disk."""
        self._wiring.shares.closing()
        self.end_turn()
        self._copies.close()
        self._wiring.log.close()

    def found_deciders(self) -> None:
        """The cluster has a second node: from now on its deciders are spread over the nodes.

        When it has a third one, three nodes keep each of them.
        """
        topic = self._wiring.catalogue.topics.get(DECIDERS)
        with suppress(HocketError):  # it is being done, or cannot be done now: it is tried again
            if topic is None:
                self._topics.create_deciders()
            elif not topic.is_replicated and self._wiring.catalogue.nodes() >= DECIDERS_REPLICAS:
                self._topics.spread_deciders()

    # --- what the log calls ---------------------------------------------

    def log_durable(self, through: dict[int, int]) -> None:
        for group, index in through.items():
            if group == metadata_core.GROUP:
                self.group0.durable(index)
            elif group in self._decider_copies:
                self._decider_copies.flushed(group)
            elif group in self._wiring.deciders:
                self.transactions.durable(group, index)
            elif group in self._copies:
                self._copies.flushed(group)
            else:
                self._wiring.partitions.durable(group, index)
        if self.transactions.inbox:
            self.transactions.pump()

    def log_stopped(self, error: StoreStopped) -> None:
        """What waits for durability will not get it, and must not wait for ever either."""
        self._copies.stop(str(error))
        self._decider_copies.stop(str(error))
        self.group0.stop(str(error))
        self.say_goodbye(str(error))

    def log_room(self) -> None:
        if self._paused and not self._wiring.log.congested:
            self._paused = False
            self._wiring.network.resume()

    def snapshot(self, group: int) -> tuple[int, bytes]:
        if group == metadata_core.GROUP:
            return self.group0.snapshot()
        known = self._wiring.unclaimed.get(group)
        if known is not None:
            return known.snapshot_index, known.snapshot
        if group in self._decider_copies:
            return self._decider_copies.snapshot(group)
        if group in self._wiring.deciders:
            return self._wiring.deciders.snapshot(group)
        if group in self._copies:
            return self._copies.snapshot(group)
        return self._wiring.partitions[group].core.snapshot()

    # --- the metadata of a cluster ---------------------------------------------

    @property
    def metadata_index(self) -> int:
        """The last entry of the metadata that has taken effect here."""
        return self._wiring.metadata.applied_index

    def metadata_snapshot(self) -> tuple[int, bytes]:
        """That index, and the state behind it."""
        return self._wiring.metadata.snapshot()

    def metadata_parts(self, *, anew: bool = False) -> dict[str, str]:
        """The same by its parts, as JSON; `anew`: also of parts that seem to be as they were."""
        if anew:
            self._wiring.metadata.changed()
        return self._wiring.metadata.parts()

    def _took_effect(self, changes: list[tuple[int, Any]]) -> None:
        for kind, changed in changes:
            self._committed[kind](changed)
        self.handing_on.applied(self.metadata_index)

    def _replaced(self, changes: list[tuple[int, Any]]) -> None:
        """The state is another one, which another node has sent."""
        for kind, changed in changes:
            self._committed[kind](changed)
        self._drop_deleted()
        self.handing_on.installed()
        self.handing_on.applied(self.metadata_index)

    def _refuse(self, waiting: list[Any]) -> None:
        """This node decides no more, and nobody knows what comes of the changes on their way."""
        self.taking_over.ceased()
        for origin in waiting:
            if isinstance(origin, Origin):
                self._guarding.forget(origin)
            if isinstance(origin, Origin) and origin.connection != HANDED_ON:
                self.preferring.forget(origin)
                self._wiring.network.send(origin.connection, failure(origin.request, deposed()))

    def _drop_deleted(self) -> None:
        """Of partitions that no topic was known for, it may be known now that it was deleted."""
        for hosted in list(self._wiring.partitions):
            if self._wiring.catalogue.is_deleted(hosted.group):
                self._wiring.partitions.drop(hosted.group)
        self._copies.drop_deleted()
        for group in list(self._wiring.unclaimed):
            if self._wiring.catalogue.is_deleted(group):
                self._topics.drop_unclaimed(group)

    # --- what partitions tell, where more than one must hear it -----------

    def _advanced(self, hosted: Hosted, _effect: events.EndMoved | events.LogStartMoved) -> None:
        self._wiring.deliveries.advanced(hosted)
        self._wiring.shares.advanced(hosted)

    def _log_start_moved(self, hosted: Hosted, effect: events.LogStartMoved) -> None:
        self._advanced(hosted, effect)
        self._trimming.moved(hosted)

    def _share_changed(self, hosted: Hosted, effect: events.ShareChanged) -> None:
        self._wiring.shares.changed(effect)
        self._dead_letters.take(hosted, effect.name, effect.change.dying)

    # --- recovery ---------------------------------------------

    def _recover(self) -> None:
        wiring = self._wiring
        recovered = dict(wiring.log.recovered)
        wiring.log.recovered.clear()  # else the log would keep all of it in memory
        wiring.log.configure(metadata_core.GROUP, GroupSettings())
        self.group0.recover(recovered.pop(metadata_core.GROUP, None))
        recovery.recover_decisions(wiring, recovered.pop(DECISIONS, None))
        catalogue = wiring.catalogue
        if self.group0.is_lone:  # else somebody else may know their topics
            recovery.adopt(wiring, recovered)
        for topic in catalogue.topics.values():
            if topic.is_replicated:
                self._recover_copies(topic, recovered)
                continue
            here = [number for number, home in enumerate(topic.homes) if home == catalogue.me]
            if topic.name == DECIDERS:
                unclaimed.recover_deciders(wiring, (topic.groups[each] for each in here), recovered)
                continue
            for hosted in recovery.host(wiring, topic, here, recovered):
                self._take_dying(hosted)
        unclaimed.keep(wiring, recovered)

    def _take_dying(self, hosted: Hosted) -> None:
        for index, share in hosted.core.shares.items():
            self._dead_letters.take(hosted, index, share.dying)

    def _recover_copies(self, topic: Topic, recovered: dict[int, RecoveredGroup]) -> None:
        for number, replicas in enumerate(topic.replicas):
            if self._wiring.catalogue.me in replicas:
                known = recovered.pop(topic.groups[number], None)
                copies = self._decider_copies if topic.name == DECIDERS else self._copies
                copies.host(topic, number, known)
