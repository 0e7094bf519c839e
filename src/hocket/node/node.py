"""The node: the one driver of all cores, over a log, a network and a clock, real or simulated.

Everything happens on one thread, in turns: the shell hands over what has come (`received`,
`connected`, `disconnected`, `tick`) and then calls `end_turn`, which starts the group commit of all
that the turn appended. What depends on it is sent when the log says that it is durable.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hocket import frames
from hocket.core.metadata import metadata as metadata_core
from hocket.core.metadata.access import Access
from hocket.core.metadata.catalogue import Catalogue
from hocket.core.metadata.metadata import Metadata
from hocket.core.metadata.registry import Registry
from hocket.core.partition import events
from hocket.core.partition.events import StageAcked, TransactionApplied
from hocket.core.session.session import TRUSTED, Caller, Demand, Hangup, Reply, Session, failure
from hocket.core.transactions.decider import Decider
from hocket.errors import HocketError, NotAllowed, ProtocolError, ShuttingDown, StoreStopped
from hocket.frames import Frame
from hocket.log.settings import GroupSettings
from hocket.log.store import LogStore
from hocket.node.background.dead_letters import DeadLetters
from hocket.node.identity import audit
from hocket.node.requests.access import Guarding
from hocket.node.requests.consuming import Consuming
from hocket.node.requests.producing import Producing
from hocket.node.requests.registering import Registering
from hocket.node.requests.topics import Topics
from hocket.node.requests.transacting import Transacting
from hocket.node.running.committed_log import CommittedLog
from hocket.node.running.deliveries import Address, Deliveries
from hocket.node.running.own_requests import NetworkWithin
from hocket.node.running.partitions import Hosted, Partitions, Watcher
from hocket.node.running.sharing import Shares
from hocket.node.settings import NodeSettings
from hocket.node.wiring import Parts
from hocket.ports import Clock, Disk, Executor, Network
from hocket.version import __version__
from hocket.wire.entry import Kind

PRODUCERS_CHECKED_EVERY_US = 3_600 * 1_000_000


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
        log = LogStore.open(disk, executor, clock, settings.log, self)
        network = NetworkWithin(network, lambda frame: self._dead_letters.answered(frame))
        partitions = Partitions(log, self._hear)
        deliveries = Deliveries(log, network, partitions, self._subscription_ended)
        shares = Shares(log, network, clock, partitions, self._subscription_ended)
        self.name = settings.name or log.store_id
        metadata = Metadata()
        catalogue = Catalogue(indexes=metadata.indexes)
        metadata.register(Kind.CONFIG, metadata_core.CATALOGUE, catalogue)
        self._access = Access(metadata.indexes)
        metadata.register(Kind.ACCESS, "access", self._access)
        self._parts = Parts(
            self.name, settings, clock, network, log, metadata, catalogue, partitions, deliveries,
            shares, entropy,
        )  # fmt: skip
        decider = Decider(metadata.indexes)
        metadata.register(Kind.DECISION, "transactions", decider)
        registry = Registry(metadata.indexes)
        metadata.register(Kind.NODES, "nodes", registry)
        self.registering = Registering(self._parts, registry)
        self._transacting = Transacting(self._parts, decider)
        self._producing = Producing(self._parts, self._transacting)
        self._consuming = Consuming(self._parts)
        self._topics = Topics(self._parts, self._consuming)
        self._dead_letters = DeadLetters(self._parts, self._topics.create)
        self._guarding = Guarding(self._parts, self._access, executor, self._hang_up)
        self._servants = {
            **self._guarding.servants(),
            **self._topics.servants(),
            **self._producing.servants(),
            **self._transacting.servants(),
            **self._consuming.servants(),
        }
        self._committed: dict[int, Callable[[Any], None]] = {  # changes of the metadata, by kind
            Kind.CONFIG: self._topics.changed,
            Kind.ACCESS: self._guarding.changed,
            Kind.DECISION: self._transacting.carry_out,
            Kind.NODES: self.registering.changed,
        }
        self._paused = False
        self._retention_at_us = 0
        self._producers_at_us = 0
        try:
            self._recover()
        except BaseException:
            disk.unlock()
            raise

    @property
    def access_is_on(self) -> bool:
        """There is a user: whoever comes from outside the process has to show who he is."""
        return self._access.is_on

    def committed_log(self) -> CommittedLog:
        return CommittedLog(self._parts.log)

    def watch(self, watcher: Watcher) -> None:
        """Tell it of every partition held here, and from now on of every change."""
        self._parts.partitions.watch(watcher)

    # --- what the shell calls ---------------------------------------------

    def connected(self, connection: int, caller: Caller = TRUSTED) -> None:
        self._parts.sessions[connection] = Session(
            self._parts.catalogue,
            node=self.name,
            software=f"hocket {__version__}",
            limits=self._parts.settings.limits,
            caller=caller,
            access=self._access,
        )

    def received(self, connection: int, frame: Frame, payload: memoryview) -> None:
        session = self._parts.sessions.get(connection)
        if session is None:  # hung up on while this was on its way
            return
        for effect in session.step(frame):
            if isinstance(effect, Reply | Hangup):
                _audit_if_denied(session, frame, effect.frame)
            if isinstance(effect, Reply):
                self._parts.network.send(connection, effect.frame)
            elif isinstance(effect, Hangup):
                self._hang_up(connection, effect.frame)
            else:
                self._serve(connection, session, effect, payload)

    def disconnected(self, connection: int) -> None:
        session = self._parts.sessions.pop(connection, None)
        if session is not None:
            for handle in session.handles:
                self._parts.close_subscription((connection, handle), graceful=False)

    def end_turn(self) -> None:
        self._dead_letters.work()
        self._parts.partitions.end_turn()
        self._parts.log.flush()
        if self._parts.log.congested != self._paused:
            self._paused = not self._paused
            if self._paused:
                self._parts.network.pause()
            else:
                self._parts.network.resume()

    def tick(self) -> None:
        now = self._parts.clock.now_us()
        if now >= self._retention_at_us:
            self._retention_at_us = now + self._parts.settings.retention_every_us
            self._apply_retention(now)
        self._transacting.tick(now)
        self._parts.shares.tick()
        self._dead_letters.tick()
        self._parts.log.tick()
        self.end_turn()

    def say_goodbye(self, reason: str) -> None:
        """Tell every client that we are going; those that can will look for another node."""
        for connection in list(self._parts.sessions):
            self._hang_up(connection, frames.Goodbye(0, reason))

    def close(self) -> None:
        """Make everything durable and let the data directory go. Waits for the disk."""
        self._parts.shares.closing()
        self.end_turn()
        self._parts.log.close()

    # --- what the log calls ---------------------------------------------

    def log_durable(self, through: dict[int, int]) -> None:
        for group, index in through.items():
            if group == metadata_core.GROUP:
                for kind, changed in self._parts.metadata.durable(index):
                    self._committed[kind](changed)
            else:
                self._parts.partitions.durable(group, index)
        self._transacting.pump()

    def log_stopped(self, error: StoreStopped) -> None:
        """Nobody who waits for durability will get it; they must not wait for ever either."""
        for connection in list(self._parts.sessions):
            self._hang_up(connection, frames.Goodbye(0, str(error)))

    def log_room(self) -> None:
        if self._paused and not self._parts.log.congested:
            self._paused = False
            self._parts.network.resume()

    def snapshot(self, group: int) -> tuple[int, bytes]:
        if group == metadata_core.GROUP:
            return self._parts.metadata.snapshot()
        return self._parts.partitions[group].core.snapshot()

    # --- recovery ---------------------------------------------

    def _recover(self) -> None:
        recovered = dict(self._parts.log.recovered)
        self._parts.log.recovered.clear()  # else it would keep all of it in memory
        now_us = self._parts.clock.now_us()
        own = recovered.pop(metadata_core.GROUP, None)
        if own is not None:
            self._parts.metadata_term = own.term + 1
            self._parts.metadata.restore(own.snapshot_index, own.snapshot)
            for header, body in own.entries:
                self._parts.metadata.replayed(header.kind, header.index, bytes(body))
        self._parts.log.configure(metadata_core.GROUP, GroupSettings())
        for topic in self._parts.catalogue.topics.values():
            for number, group in enumerate(topic.groups):
                known = recovered.pop(group, None)
                hosted = self._parts.partitions.host(
                    topic.name, number, group, topic.config, known, now_us=now_us
                )
                for index, share in hosted.core.shares.items():
                    self._dead_letters.take(hosted, index, share.dying)
        for group in recovered:  # of topics whose deletion was the last thing that happened
            self._parts.log.delete_group(group)
        self._transacting.started()

    # --- serving ---------------------------------------------

    def _serve(
        self, connection: int, session: Session, demand: Demand, payload: memoryview
    ) -> None:
        try:
            self._servants[type(demand.frame)](connection, session, demand, payload)
        except ProtocolError as error:
            self._hang_up(connection, failure(demand.frame.request, error))
        except HocketError as error:
            answer = failure(demand.frame.request, error)
            _audit_if_denied(session, demand.frame, answer)
            self._parts.network.send(connection, answer)

    def _hang_up(self, connection: int, last_word: Frame | None) -> None:
        session = self._parts.sessions.get(connection)
        if isinstance(last_word, frames.Goodbye) and session and not session.greeted:
            last_word = frames.Failure(0, ShuttingDown.code, last_word.reason)
        if last_word is not None:
            self._parts.network.send(connection, last_word)
        self._parts.network.close(connection)
        self.disconnected(connection)

    def _subscription_ended(self, address: Address) -> None:
        connection, handle = address
        session = self._parts.sessions.get(connection)
        if session is not None:
            session.handles.pop(handle, None)

    def _hear(self, hosted: Hosted, effect: events.Effect) -> None:
        if isinstance(effect, events.Acked):
            self._producing.acked(hosted, effect)
        elif isinstance(effect, StageAcked):
            self._producing.staged(hosted, effect)
        elif isinstance(effect, TransactionApplied):
            self._transacting.applied(hosted, effect)
        elif isinstance(effect, events.EndMoved | events.LogStartMoved):
            self._parts.deliveries.advanced(hosted)
            self._parts.shares.advanced(hosted)
        elif isinstance(effect, events.ShareChanged):
            self._parts.shares.changed(effect)
            self._dead_letters.take(hosted, effect.name, effect.change.dying)
        elif isinstance(effect, events.IndexMoved):
            self._consuming.index_moved(hosted, effect)
        elif isinstance(effect, events.IndexFenced):
            self._consuming.fenced(effect.origin, hosted, effect.name)
        else:
            assert isinstance(effect, events.Refused)
            self._producing.refused(
                hosted, effect.origin, effect.sequence, effect.code, effect.message
            )

    def _apply_retention(self, now_us: int) -> None:
        expire = now_us >= self._producers_at_us
        if expire:
            self._producers_at_us = now_us + PRODUCERS_CHECKED_EVERY_US
        for hosted in list(self._parts.partitions):
            start = self._parts.partitions.planned_log_start(hosted, now_us)
            idle_since = now_us - events.PRODUCER_IDLE_US
            try:
                if start > hosted.core.start:
                    self._parts.partitions.admit(hosted.group)
                    self._parts.partitions.step(hosted, events.MoveLogStart(start))
                if expire and hosted.core.dedupe.has_idle(idle_since):
                    self._parts.partitions.admit(hosted.group)
                    self._parts.partitions.step(hosted, events.ExpireProducers(idle_since))
            except HocketError:  # no room to write it down: next time
                return


def _audit_if_denied(session: Session, frame: Frame, answer: Frame | None) -> None:
    if isinstance(answer, frames.Failure) and answer.code == NotAllowed.code:
        audit.denied(session, frame, answer.message)
