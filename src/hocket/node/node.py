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
from collections.abc import Callable
from typing import Any

from hocket import frames
from hocket.core.metadata import metadata as metadata_core
from hocket.core.metadata.access import Access
from hocket.core.metadata.registry import Registry
from hocket.core.partition import events
from hocket.core.partition.events import StageAcked, TransactionApplied
from hocket.core.session.session import TRUSTED, Caller, Demand, Hangup, Reply, Session, failure
from hocket.core.transactions.decider import Decider
from hocket.errors import HocketError, NotAllowed, ProtocolError, StoreStopped
from hocket.frames import Frame
from hocket.log.settings import GroupSettings
from hocket.log.store import LogStore
from hocket.model import EntryKind
from hocket.node import recovery
from hocket.node.background.dead_letters import DeadLetters
from hocket.node.background.delays import Delays
from hocket.node.background.retention import Retention
from hocket.node.identity import audit
from hocket.node.requests import alone
from hocket.node.requests.access import Guarding
from hocket.node.requests.consuming import Consuming
from hocket.node.requests.indexes import Indexes
from hocket.node.requests.operations import Operations
from hocket.node.requests.producing import Producing
from hocket.node.requests.registering import Registering
from hocket.node.requests.reviving import Reviving
from hocket.node.requests.topics import Topics
from hocket.node.requests.transacting import Transacting
from hocket.node.requests.trimming import Trimming
from hocket.node.running.committed_log import CommittedLog
from hocket.node.running.partitions import Hosted, Reaction, Watcher
from hocket.node.running.traffic import Holdings, Traffic
from hocket.node.settings import NodeSettings
from hocket.node.wiring import Servant, Wiring
from hocket.ports import Clock, Disk, Executor, Network
from hocket.version import __version__


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
    ) -> None:
        store = LogStore.open(disk, executor, clock, settings.log)
        wiring = Wiring(settings, log=store, clock=clock, network=network, entropy=entropy)
        self._wiring = wiring
        self.name = wiring.name
        self.cluster = wiring.cluster
        metadata = wiring.metadata
        self._access = Access(metadata.indexes)
        decider = Decider(metadata.indexes)
        registry = Registry(metadata.indexes)
        metadata.register(EntryKind.CONFIG, metadata_core.CATALOGUE, wiring.catalogue)
        metadata.register(EntryKind.ACCESS, "access", self._access)
        metadata.register(EntryKind.DECISION, "transactions", decider)
        metadata.register(EntryKind.NODES, "nodes", registry)
        self.registering = Registering(wiring, registry)
        self._transacting = Transacting(wiring, decider)
        self._producing = Producing(wiring, self._transacting)
        operations = Operations(wiring.network)
        self._consuming = Consuming(wiring, operations)
        self._indexes = Indexes(wiring, operations)
        self._topics = Topics(wiring, self._consuming, operations)
        self._guarding = Guarding(wiring, self._access, executor)
        self._dead_letters = DeadLetters(wiring, self._topics.create)
        self._reviving = Reviving(wiring)
        self._trimming = Trimming(wiring, operations)
        self._delays = Delays(wiring)
        self._retention = Retention(wiring)
        self._paused = False
        # From here on everything is built. What is below calls what is above by these tables only.
        self._servants = self._table_of_servants()
        self._committed = self._table_of_changes()
        wiring.partitions.react_with(self._table_of_reactions())
        wiring.network.answer_to(self._dead_letters.answered, self._delays.answered)
        try:
            self._recover()
            store.report_to(self)  # what recovery found out about damage is durable afterwards
        except BaseException:
            store.abandon()
            raise
        recovery.tell(wiring)
        self._transacting.started()
        self._guarding.started()

    def _table_of_servants(self) -> dict[type, Servant]:
        """Who serves a request, by the type of its frame."""
        return {
            **self._guarding.servants(),
            **self._topics.servants(),
            **self._producing.servants(),
            **self._transacting.servants(),
            **self._consuming.servants(),
            **self._indexes.servants(),
            **self._reviving.servants(),
            **self._trimming.servants(),
            **alone.servants(),
        }

    def _table_of_changes(self) -> dict[int, Callable[[Any], None]]:
        """Who is told of a durable change of the metadata, by the kind of its entry."""
        return {
            EntryKind.CONFIG: self._topics.changed,
            EntryKind.ACCESS: self._guarding.changed,
            EntryKind.DECISION: self._transacting.carry_out,
            EntryKind.NODES: self.registering.changed,
        }

    def _table_of_reactions(self) -> dict[type, Reaction]:
        """Who is told of an effect of a partition, by the effect's type."""
        return {
            events.Acked: self._producing.acked,
            events.Refused: self._producing.refused,
            StageAcked: self._producing.staged,
            TransactionApplied: self._transacting.applied,
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
            topics=len(topics),
            partitions=len(stats) - len(wiring.partitions.waiting),
            memory_bytes=sum(each.memory_bytes for each in stats),
            disk_bytes=sum(each.disk_bytes for each in stats),
            durability=dict(Counter(topic.config.durability for topic in topics)),
        )

    def make_first_admin(self, token: str) -> None:
        """Turn access control on, with the user that the token names as its admin.

        For a broker that serves nobody yet. It is done once what was appended is durable.
        """
        self._guarding.make_first_admin(token)

    def committed_log(self) -> CommittedLog:
        return CommittedLog(self._wiring.log)

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` of every partition held here, and from now on of every change."""
        self._wiring.partitions.watch(watcher)

    def serve_with(self, servants: dict[type, Servant]) -> None:
        """Have these serve their kinds of requests from now on."""
        self._servants |= servants

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
            caller=caller,
            access=self._access,
        )

    def received(self, connection: int, frame: Frame, payload: memoryview) -> None:
        session = self._wiring.sessions.get(connection)
        if session is None:  # the node hung up while this frame was on its way
            return
        for effect in session.step(frame):
            if isinstance(effect, Reply | Hangup):
                _audit_if_denied(session, frame, effect.frame)
            if isinstance(effect, Reply):
                self._wiring.network.send(connection, effect.frame)
            elif isinstance(effect, Hangup):
                self._wiring.hang_up(connection, effect.frame)
            else:
                self._serve(connection, session, effect, payload)

    def _serve(
        self, connection: int, session: Session, demand: Demand, payload: memoryview
    ) -> None:
        try:
            self._servants[type(demand.frame)](connection, session, demand, payload)
        except ProtocolError as error:
            self._wiring.hang_up(connection, failure(demand.frame.request, error))
        except HocketError as error:
            answer = failure(demand.frame.request, error)
            _audit_if_denied(session, demand.frame, answer)
            self._wiring.network.send(connection, answer)

    def disconnected(self, connection: int) -> None:
        self._wiring.disconnect(connection)

    def end_turn(self) -> None:
        self.conclude()
        self.commit()

    def conclude(self) -> None:
        """Append what the turn has gathered."""
        if self._dead_letters.waiting:
            self._dead_letters.work()
        if self._reviving.waiting:
            self._reviving.work()
        self._wiring.partitions.end_turn()

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
        self._transacting.tick(now_us)
        self._wiring.shares.tick()
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
        self._wiring.log.close()

    # --- what the log calls ---------------------------------------------

    def log_durable(self, through: dict[int, int]) -> None:
        for group, index in through.items():
            if group == metadata_core.GROUP:
                for kind, changed in self._wiring.metadata.durable(index):
                    self._committed[kind](changed)
            else:
                self._wiring.partitions.durable(group, index)
        if self._transacting.inbox:
            self._transacting.pump()

    def log_stopped(self, error: StoreStopped) -> None:
        """What waits for durability will not get it, and must not wait for ever either."""
        self.say_goodbye(str(error))

    def log_room(self) -> None:
        if self._paused and not self._wiring.log.congested:
            self._paused = False
            self._wiring.network.resume()

    def snapshot(self, group: int) -> tuple[int, bytes]:
        if group == metadata_core.GROUP:
            return self._wiring.metadata.snapshot()
        return self._wiring.partitions[group].core.snapshot()

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
        now_us = wiring.clock.now_us()
        wiring.log.configure(metadata_core.GROUP, GroupSettings())
        own = recovered.pop(metadata_core.GROUP, None)
        if own is not None:
            recovery.recover_metadata(wiring, own, recovered)
        for topic in wiring.catalogue.topics.values():
            for number, group in enumerate(topic.groups):
                known = recovered.pop(group, None)
                hosted = wiring.partitions.host(
                    topic.name, number, group, topic.config, known, now_us=now_us
                )
                for index, share in hosted.core.shares.items():
                    self._dead_letters.take(hosted, index, share.dying)
            for number, (group, goal) in enumerate(zip(topic.waiting, topic.groups, strict=False)):
                known = recovered.pop(group, None)
                wiring.partitions.host(
                    topic.name, number, group, topic.config, known, now_us=now_us, waits_for=goal
                )
        for group in recovered:  # of topics whose deletion was the last thing that happened
            wiring.log.delete_group(group)


def _audit_if_denied(session: Session, frame: Frame, answer: Frame | None) -> None:
    if isinstance(answer, frames.Failure) and answer.code == NotAllowed.code:
        audit.denied(session, frame, answer.message)
