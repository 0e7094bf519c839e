"""The node: the one driver of all cores, over a log, a network and a clock, real or simulated.

Everything happens on one thread, in turns: the shell hands over what has come (`received`,
`connected`, `disconnected`, `tick`) and then calls `end_turn`, which starts the group commit of all
that the turn appended. What depends on it is sent when the log says that it is durable.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import hocket
from hocket import frames
from hocket.core import catalogue as catalogue_core
from hocket.core import partition as events
from hocket.core.catalogue import Catalogue
from hocket.core.session import Demand, Hangup, Reply, Session, failure
from hocket.errors import HocketError, ProtocolError, ShuttingDown, StoreStopped
from hocket.frames import Frame
from hocket.log.settings import GroupSettings
from hocket.log.store import LogStore
from hocket.node.consuming import Consuming
from hocket.node.deliveries import Address, Deliveries
from hocket.node.partitions import Hosted, Partitions
from hocket.node.parts import Parts
from hocket.node.producing import Producing
from hocket.node.settings import NodeSettings
from hocket.node.topics import Topics
from hocket.ports import Clock, Disk, Executor, Network
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
        partitions = Partitions(log, self._hear)
        deliveries = Deliveries(log, network, partitions, self._subscription_ended)
        self.name = settings.name or log.store_id
        self._parts = Parts(
            self.name, settings, clock, network, log, Catalogue(), partitions, deliveries, entropy
        )
        self._producing = Producing(self._parts)
        self._consuming = Consuming(self._parts)
        self._topics = Topics(self._parts, self._consuming)
        self._servants = {
            **self._topics.servants(),
            **self._producing.servants(),
            **self._consuming.servants(),
        }
        self._paused = False
        self._retention_at_us = 0
        self._producers_at_us = 0
        self._recover()

    # --- what the shell calls ---------------------------------------------

    def connected(self, connection: int) -> None:
        self._parts.sessions[connection] = Session(
            self._parts.catalogue,
            node=self.name,
            software=f"hocket {hocket.__version__}",
            limits=self._parts.settings.limits,
        )

    def received(self, connection: int, frame: Frame, payload: memoryview) -> None:
        session = self._parts.sessions.get(connection)
        if session is None:  # hung up on while this was on its way
            return
        for effect in session.step(frame):
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
                self._parts.deliveries.close((connection, handle))

    def end_turn(self) -> None:
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
        self._parts.log.tick()
        self.end_turn()

    def say_goodbye(self, reason: str) -> None:
        """Tell every client that we are going; those that can will look for another node."""
        for connection in list(self._parts.sessions):
            self._hang_up(connection, frames.Goodbye(0, reason))

    def close(self) -> None:
        """Make everything durable and let the data directory go. Waits for the disk."""
        self.end_turn()
        self._parts.log.close()

    # --- what the log calls ---------------------------------------------

    def log_durable(self, through: dict[int, int]) -> None:
        for group, index in through.items():
            if group == catalogue_core.GROUP:
                for changed in self._parts.catalogue.durable(index):
                    self._topics.changed(changed)
            else:
                self._parts.partitions.durable(group, index)

    def log_stopped(self, error: StoreStopped) -> None:
        """Nobody who waits for durability will get it; they must not wait for ever either."""
        for connection in list(self._parts.sessions):
            self._hang_up(connection, frames.Goodbye(0, str(error)))

    def log_room(self) -> None:
        if self._paused and not self._parts.log.congested:
            self._paused = False
            self._parts.network.resume()

    def snapshot(self, group: int) -> tuple[int, bytes]:
        if group == catalogue_core.GROUP:
            return self._parts.catalogue.snapshot()
        return self._parts.partitions[group].core.snapshot()

    # --- recovery ---------------------------------------------

    def _recover(self) -> None:
        recovered = dict(self._parts.log.recovered)
        self._parts.log.recovered.clear()  # else it would keep all of it in memory
        now_us = self._parts.clock.now_us()
        self._parts.catalogue_term = 1
        own = recovered.pop(catalogue_core.GROUP, None)
        if own is not None:
            self._parts.catalogue_term = own.term + 1
            self._parts.catalogue.restore(own.snapshot_index, own.snapshot)
            for header, body in own.entries:
                if header.kind == Kind.CONFIG:
                    self._parts.catalogue.replayed(header.index, bytes(body))
        self._parts.log.configure(catalogue_core.GROUP, GroupSettings())
        for topic in self._parts.catalogue.topics.values():
            for number, group in enumerate(topic.groups):
                known = recovered.pop(group, None)
                self._parts.partitions.host(
                    topic.name, number, group, topic.config, known, now_us=now_us
                )
        for group in recovered:  # of topics whose deletion was the last thing that happened
            self._parts.log.delete_group(group)

    # --- serving ---------------------------------------------

    def _serve(
        self, connection: int, session: Session, demand: Demand, payload: memoryview
    ) -> None:
        try:
            self._servants[type(demand.frame)](connection, session, demand, payload)
        except ProtocolError as error:
            self._hang_up(connection, failure(demand.frame.request, error))
        except HocketError as error:
            self._parts.network.send(connection, failure(demand.frame.request, error))

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
        elif isinstance(effect, events.EndMoved | events.LogStartMoved):
            self._parts.deliveries.advanced(hosted)
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
