"""The partitions of this node that other nodes keep, too: hosted as copies, served while it leads.

A copy is entered among the partitions of the node (`Partitions`) while this node serves it, and not
longer. So whatever looks for a partition there finds those only that it may change; and a client
that asks for another one hears who leads it, as far as this node knows (`Catalogue.leaders`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from hocket import frames
from hocket.core.metadata.catalogue import Topic
from hocket.core.origin import Origin
from hocket.core.session.session import OpenedProducer, failure
from hocket.errors import HocketError, NotHere
from hocket.log.model import RecoveredGroup
from hocket.model import ReplicaState
from hocket.node.replication.partition_machine import PartitionMachine
from hocket.node.replication.replica import Replica
from hocket.node.replication.replicas import Replicas
from hocket.node.replication.saved import found_in, new_group, wrapped
from hocket.node.running.partitions import Hosted
from hocket.node.wiring import Wiring

log = logging.getLogger("hocket.replication")


class Copies:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        # Told of a request about an index that a partition will not answer any more.
        self.on_index_refused: Callable[[Origin, int, HocketError], None] = lambda *_refused: None
        # Told of a partition that this node begins, or ceases, to lead.
        self.on_served: tuple[Callable[[Hosted], None], ...] = ()
        self.on_left: tuple[Callable[[Hosted], None], ...] = ()
        # Told, at the end of a turn, of a copy that can be read further than before.
        self.on_advanced: Callable[[Hosted], None] = lambda _hosted: None
        self._advanced: dict[int, Hosted] = {}  # in this turn
        self._hosted: dict[int, Hosted] = {}
        self._replicas: Replicas | None = None
        # Those that were recovered before there were links to other nodes.
        self._recovered: dict[int, tuple[Topic, int, RecoveredGroup]] = {}

    def __contains__(self, group: int) -> bool:
        return group in self._hosted or group in self._recovered

    def replicate_by(self, replicas: Replicas) -> None:
        """From now on there are links to other nodes."""
        self._replicas = replicas
        recovered, self._recovered = self._recovered, {}
        for topic, number, known in recovered.values():
            self._host(topic, number, known, replicas)

    def host(self, topic: Topic, number: int, recovered: RecoveredGroup | None = None) -> None:
        if self._replicas is not None:
            self._host(topic, number, recovered, self._replicas)
        elif recovered is not None:
            self._wiring.partitions.configure_log(topic.groups[number], topic.config)
            self._recovered[topic.groups[number]] = topic, number, recovered
        else:  # a new one, whose store is opened for the first time since
            self._wiring.partitions.configure_log(topic.groups[number], topic.config)
            self._recovered[topic.groups[number]] = topic, number, RecoveredGroup()

    def _host(
        self, topic: Topic, number: int, recovered: RecoveredGroup | None, replicas: Replicas
    ) -> None:
        wiring, group = self._wiring, topic.groups[number]
        hosted = wiring.partitions.new(topic.name, number, group, topic.config)
        voters = topic.replicas[number]
        if recovered is None:
            found = new_group(voters)
        else:
            found = found_in(recovered, wiring.log.replicated, group, voters)
        hosted.core.restore(found.index, found.state)
        wiring.partitions.hold(group, hosted.core.stages.moved())
        machine = PartitionMachine(hosted, wiring.partitions, wiring.log, wiring.clock, self)
        replica = Replica(group, machine, replicas, found.saved, found.entries)
        replica.ahead = found.ahead
        hosted.copy = replica
        self._hosted[group] = hosted
        wiring.catalogue.leaders[group] = ""
        replicas.add(replica)
        replicas.homecoming.homes[group] = voters[0]
        if found.damage:
            replica.stop(found.damage)
        if recovered is None and voters[0] == wiring.catalogue.me:
            replica.found()

    def confirm(self, groups: Sequence[int], done: Callable[[bool], None]) -> None:
        """Call `done` with whether this node leads all these groups now, as their voters say."""
        left = len(groups)

        def answered(leads: bool) -> None:
            nonlocal left
            if left > 0 and not leads:
                left = 0
                done(False)
            elif left > 0:
                left -= 1
                if not left:
                    done(True)

        for group in groups:
            copy = self._hosted[group].copy if group in self._hosted else None
            if isinstance(copy, Replica) and copy.serves:
                copy.authority.confirm(answered)
            else:
                answered(False)

    def configure(self, group: int, topic: Topic) -> None:
        hosted = self._hosted.get(group)
        if hosted is not None:
            self._wiring.partitions.configure(hosted, topic.config)

    def drop(self, group: int) -> None:
        """The topic is deleted; nothing if there is no copy here.

        The log of a copy that was served is gone by now, with the partition.
        """
        hosted, known = self._hosted.pop(group, None), self._recovered.pop(group, None)
        if hosted is None and known is None:
            return
        copy = None if hosted is None else hosted.copy
        if copy is None or not copy.serves:
            self._wiring.log.delete_group(group)
        if self._replicas is not None:
            self._replicas.remove(group)

    def drop_deleted(self) -> None:
        for group in [*self._hosted, *self._recovered]:
            if self._wiring.catalogue.is_deleted(group):
                self.drop(group)

    def flushed(self, group: int) -> None:
        if self._replicas is not None and group in self._replicas:
            self._replicas.flushed(group)

    def snapshot(self, group: int) -> tuple[int, bytes]:
        known = self._recovered.get(group)
        if known is not None:
            return known[2].snapshot_index, known[2].snapshot
        copy = self._hosted[group].copy
        assert isinstance(copy, Replica)
        applied, state = copy.machine.snapshot()
        return applied, wrapped(copy.raft.group, applied, state, copy.ahead)

    def end_turn(self) -> None:
        replicas = self._replicas
        if replicas is not None and (
            replicas.untold or replicas.letters or replicas.full_disk.lacking
        ):
            replicas.end_turn()
        if self._advanced:
            advanced, self._advanced = self._advanced, {}
            for hosted in advanced.values():
                self.on_advanced(hosted)

    def readable(self, group: int) -> Hosted | None:
        """The copy of a partition that another node leads, if others may be given what is committed
        of it: this node hears the leader, and its log holds all that its core knows of."""
        hosted = self._hosted.get(group)
        copy = None if hosted is None else hosted.copy
        if hosted is None or not isinstance(copy, Replica) or copy.serves or copy.stopped:
            return None
        if not copy.leader or not copy.hears_leader or copy.is_faulty:
            return None
        end = self._wiring.log.replicated.bounds(group)[2]
        return hosted if end.next_offset >= hosted.core.high_watermark else None

    def stop(self, why: str) -> None:
        """Nothing becomes durable here any more: others lead from now on."""
        for hosted in self._hosted.values():
            if isinstance(hosted.copy, Replica) and not hosted.copy.stopped:
                hosted.copy.stop(why)

    def close(self) -> None:
        if self._replicas is not None:
            self._replicas.close()

    # --- who leads (see partition_machine.Leadership) ---------------------------------------------

    def serves(self, hosted: Hosted) -> None:
        log.info("this node leads %s, in term %d", hosted.where, hosted.term)
        self._wiring.catalogue.leaders[hosted.group] = self._wiring.catalogue.me
        hosted.served_us = self._wiring.clock.now_us()
        self._wiring.partitions.enter(hosted)
        for tell in self.on_served:
            tell(hosted)

    def stops(self, hosted: Hosted, leader: str) -> None:
        log.info("this node leads %s no more; %s does", hosted.where, leader or "nobody yet")
        wiring, core = self._wiring, hosted.core
        wiring.catalogue.leaders[hosted.group] = leader
        topic = wiring.catalogue.topics.get(core.topic)
        if topic is None:
            error = NotHere(f"{hosted.where} is led by another node")
        elif leader:
            error = wiring.catalogue.not_here(topic, leader)
        else:
            error = wiring.catalogue.no_leader(topic)
        error.may_have_happened = True
        self._end_handles(hosted, error)
        for origin in core.waiting():
            if origin.request:
                wiring.network.send(origin.connection, failure(origin.request, error))
        for origin in core.waiting_for_indexes():
            self.on_index_refused(origin, core.number, error)
        wiring.partitions.leave(hosted)

    def hint(self, hosted: Hosted) -> None:
        copy = hosted.copy
        if isinstance(copy, Replica):
            self._wiring.catalogue.leaders[hosted.group] = copy.leader
            if copy.stopped:
                self._wiring.catalogue.deaf.add(hosted.group)

    def advanced(self, hosted: Hosted) -> None:
        self._advanced[hosted.group] = hosted

    def _end_handles(self, hosted: Hosted, error: HocketError) -> None:
        """A handle may be for other partitions, too: its client opens it anew, where they are."""
        wiring, topic = self._wiring, hosted.core.topic
        wiring.deliveries.end_all(hosted, error.code, str(error))
        wiring.shares.leave(hosted, error)
        for tell in self.on_left:
            tell(hosted)
        for connection, session in wiring.sessions.items():
            for handle, opened in list(session.handles.items()):
                if isinstance(opened, OpenedProducer) and opened.topic == topic:
                    del session.handles[handle]
                    ended = frames.HandleEnded(0, handle, error.code, str(error))
                    wiring.network.send(connection, ended)

    # --- for people ------------------------------------------------------------------------------

    def states(self, hosted: Hosted) -> tuple[ReplicaState, ...]:
        """All replicas of a partition that this node leads, as it knows them."""
        copy = hosted.copy
        assert isinstance(copy, Replica)
        group, leading = copy.raft.group, copy.raft.leading
        me, last = self._wiring.catalogue.me, group.outline.last
        flushed = {me: group.outline.flushed}  # the last entry that is durable, as far as is known
        if leading is not None:
            flushed |= {peer: each.matched for peer, each in leading.peers.items()}
        states = []
        for node in sorted(flushed):
            end = self._wiring.log.replicated.end_at(hosted.group, flushed[node])
            offset = 0 if end is None else end.next_offset
            role, lag = "leader" if node == me else "follower", last - flushed[node]
            behind = self._replicas is None or self._replicas.is_behind(copy, node)
            states.append(ReplicaState(node, role, hosted.term, offset, lag, behind))
        return tuple(states)
