"""Topics on request: made, changed, deleted, listed, described."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from hocket import frames
from hocket.cluster_model import NodeAddress
from hocket.core.metadata import catalogue as catalogue_core
from hocket.core.metadata.catalogue import Topic
from hocket.core.metadata.metadata import GROUP
from hocket.core.origin import Origin
from hocket.core.partition.waiting import WaitingPartition
from hocket.core.placement.descriptions import GROUPS_MAX, PROBLEM_MAX
from hocket.core.session.session import (
    Demand,
    OpenedFeed,
    OpenedProducer,
    OpenedSubscription,
    Session,
    failure,
)
from hocket.errors import OutOfRange, UnknownTopic
from hocket.frames import packed
from hocket.model import (
    DECIDERS,
    EntryKind,
    PartitionDescription,
    ReplicaState,
    TopicConfig,
    TopicDescription,
    is_own_topic,
)
from hocket.node.background.transactions import Transactions
from hocket.node.replication.copies import Copies
from hocket.node.replication.deciders import DeciderCopies
from hocket.node.replication.saved import is_of_raft
from hocket.node.requests.consuming import Consuming
from hocket.node.requests.operations import Operations
from hocket.node.requests.pages import Page, partition_bytes, topic_bytes
from hocket.node.requests.start_offsets import StartOffsets
from hocket.node.running.own_requests import NODE
from hocket.node.running.partitions import Hosted
from hocket.node.wiring import Servant, Wiring


class Others(Protocol):
    """The other nodes of a cluster, which hold the partitions that are not here."""

    def ask(
        self,
        node: str,
        groups: Sequence[int],
        done: Callable[[dict[int, PartitionDescription]], None],
    ) -> None:
        """Have `node` say what these hold. `done` is called once, in any case soon, with what was
        told, by the partitions' numbers."""


class Nobody:
    """The others of a node that is alone."""

    def ask(
        self,
        _node: str,
        _groups: Sequence[int],
        done: Callable[[dict[int, PartitionDescription]], None],
    ) -> None:
        done({})


class Topics:
    def __init__(
        self,
        wiring: Wiring,
        consuming: Consuming,
        operations: Operations,
        transactions: Transactions,
        copies: Copies,
        decider_copies: DeciderCopies,
    ) -> None:
        self._wiring = wiring
        self._transactions = transactions
        self._copies = copies
        self._decider_copies = decider_copies
        self._consuming = consuming
        self._operations = operations
        self.others: Others = Nobody()
        # Told of a partition whose log was here before its topic was known.
        self.on_claimed: Callable[[Hosted], None] = lambda _hosted: None

    def servants(self) -> dict[type, Servant]:
        return {
            frames.CreateTopic: self._change_topic,
            frames.AlterTopic: self._change_topic,
            frames.DeleteTopic: self._change_topic,
            frames.ListTopics: self._list_topics,
            frames.DescribeTopic: self._describe,
            frames.FindOffsets: self._find_offsets,
            frames.FindLeaders: self._find_leaders,
        }

    def create_deciders(self) -> None:
        self._wiring.partitions.admit(GROUP)
        append = self._wiring.catalogue.create_deciders()
        self._wiring.append_metadata(EntryKind.CONFIG, append.index, append.body)

    def spread_deciders(self) -> None:
        self._wiring.partitions.admit(GROUP)
        append = self._wiring.catalogue.spread_deciders()
        self._wiring.append_metadata(EntryKind.CONFIG, append.index, append.body)

    def create(self, origin: Origin, name: str, config: TopicConfig) -> None:
        self._wiring.partitions.admit(GROUP)
        append = self._wiring.catalogue.create(origin, name, config)
        self._wiring.append_metadata(EntryKind.CONFIG, append.index, append.body)

    def _change_topic(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        origin = Origin(connection, 0, frame.request)
        if isinstance(frame, frames.CreateTopic):
            self.create(origin, frame.topic, frame.config)
            return
        self._wiring.partitions.admit_tidying(GROUP)
        if isinstance(frame, frames.AlterTopic):
            append = self._wiring.catalogue.alter(origin, frame.topic, frame.config)
        else:
            assert isinstance(frame, frames.DeleteTopic)
            append = self._wiring.catalogue.delete(origin, frame.topic)
        self._wiring.append_metadata(EntryKind.CONFIG, append.index, append.body)

    def changed(self, changed: catalogue_core.Changed) -> None:
        change = changed.change
        if self._wiring.hooks.on_topic is not None and not is_own_topic(change.topic):
            known = self._wiring.catalogue.topics.get(change.topic)
            config = None if known is None else known.config
            self._wiring.hooks.on_topic(change.kind, change.topic, config)
        if change.kind == "delete":
            gone = f"topic {change.topic!r} was deleted"
            for hosted in filter(None, map(self._wiring.partitions.get, changed.groups)):
                self._wiring.deliveries.end_all(hosted, UnknownTopic.code, gone)
                self._refuse_waiting(self._wiring.partitions.drop(hosted.group), gone)
            self._wiring.feeds.end_topic(change.topic, UnknownTopic.code, gone)
            for group in changed.groups:
                self._copies.drop(group)
                self.drop_unclaimed(group)
            self._wiring.shares.drop(change.topic, None, UnknownTopic.code, gone)
            self._operations.topic_deleted(change.topic, gone)
            self._end_producers(change.topic, gone)
        else:
            topic = self._wiring.catalogue.topics.get(change.topic)
            if topic is not None and topic.name == DECIDERS:
                self._deciders_made(topic)
            elif topic is not None:
                self._configured(topic, changed.groups)
                if change.kind == "create":
                    self._answer_when_known(changed.origin, topic)
                    return
        self._wiring.answer(changed.origin, frames.Done)

    def _answer_when_known(self, origin: Origin | None, topic: Topic) -> None:
        """The nodes that are to serve it have heard of it, or take longer than they may.

        One that has not may serve an older topic of this name, which was deleted: it would
        acknowledge what is published to this one, and throw it away with that one.
        """
        if origin is not None and origin.connection > NODE:
            every = range(len(topic.groups))
            self.ask_others(topic, every, lambda _: self._wiring.answer(origin, frames.Done))
        else:
            self._wiring.answer(origin, frames.Done)

    def _deciders_made(self, topic: Topic) -> None:
        for number, (group, stores) in enumerate(zip(topic.groups, topic.replicas, strict=True)):
            if self._wiring.catalogue.me not in stores:
                continue
            if len(stores) > 1:
                self._decider_copies.host(topic, number)
            elif not is_of_raft(self._wiring.unclaimed.get(group)):
                self._transactions.host(group)
            # else other nodes keep it, too, and the entry that says so comes later
        self._transactions.founded()

    def _refuse_waiting(self, hosted: Hosted, why: str) -> None:
        """Refuse every Publish that waits. Producers hear that their handle has ended instead."""
        error = UnknownTopic(why)
        for origin in hosted.core.waiting():
            if origin.request:
                self._wiring.network.send(origin.connection, failure(origin.request, error))

    def _configured(self, topic: Topic, new_groups: tuple[int, ...]) -> None:
        partitions, me = self._wiring.partitions, self._wiring.catalogue.me
        for number, group in enumerate(topic.groups):
            if topic.is_replicated:
                self._configured_copy(topic, number)
                continue
            hosted = partitions.get(group)
            if hosted is None:
                if topic.homes[number] == me:
                    self._host(topic, number, group)
            else:
                partitions.configure(hosted, topic.config)
        for number, (group, goal) in enumerate(zip(topic.waiting, topic.groups, strict=False)):
            hosted = partitions.get(group)
            if hosted is None:
                if topic.homes[number] == me:
                    self._host(topic, number, group, waits_for=goal)
            else:
                partitions.configure(hosted, topic.config)
        new_groups = tuple(group for group in new_groups if group in topic.groups)
        if not new_groups:
            return
        for connection, session in list(self._wiring.sessions.items()):
            for handle, opened in list(session.handles.items()):
                if opened.topic == topic.name and not isinstance(opened, OpenedFeed):
                    self._grow(connection, handle, opened, topic, new_groups)

    def _host(self, topic: Topic, number: int, group: int, *, waits_for: int = 0) -> None:
        """A new partition; or one whose log was here before its topic was known."""
        known = self._wiring.unclaimed.pop(group, None)
        hosted = self._wiring.partitions.host(
            topic.name, number, group, topic.config, known,
            now_us=self._wiring.clock.now_us(), waits_for=waits_for,
        )  # fmt: skip
        if known is not None:
            self.on_claimed(hosted)

    def drop_unclaimed(self, group: int) -> None:
        """The topic of this log was deleted before anybody knew here that there was one."""
        if self._wiring.unclaimed.pop(group, None) is not None:
            self._wiring.log.delete_group(group)

    def _configured_copy(self, topic: Topic, number: int) -> None:
        group = topic.groups[number]
        if group in self._copies:
            self._copies.configure(group, topic)
        elif self._wiring.catalogue.me in topic.replicas[number]:
            self._copies.host(topic, number, self._wiring.unclaimed.pop(group, None))

    def _grow(
        self,
        connection: int,
        handle: int,
        opened: OpenedProducer | OpenedSubscription,
        topic: Topic,
        new_groups: tuple[int, ...],
    ) -> None:
        """Tell an open producer or subscription that its topic has new partitions."""
        if isinstance(opened, OpenedSubscription):
            if not self._wiring.deliveries.is_stopped((connection, handle)):
                self._consuming.grow(connection, handle, opened, topic, new_groups)
            return
        self._wiring.network.send(
            connection, frames.PartitionsChanged(0, handle, len(topic.groups))
        )

    def _end_producers(self, topic: str, why: str) -> None:
        for connection, session in self._wiring.sessions.items():
            for handle, opened in list(session.handles.items()):
                if isinstance(opened, OpenedProducer) and opened.topic == topic:
                    del session.handles[handle]
                    self._wiring.network.send(
                        connection, frames.HandleEnded(0, handle, UnknownTopic.code, why)
                    )

    def _list_topics(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.ListTopics)
        topics = self._wiring.catalogue.topics
        page: Page[TopicDescription] = Page(paged=frame.paged)
        next_ = ""
        for name in sorted(name for name in topics if name > frame.after):
            if session.rights.sees(name) and not is_own_topic(name):
                topic = TopicDescription(name, topics[name].config)
                if not page.takes(topic, topic_bytes(topic)):
                    next_ = page.items[-1].name
                    break
        answer = frames.Topics(frame.request, tuple(page.items), next_)
        self._wiring.network.send(connection, answer)

    def _describe(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.DescribeTopic)
        assert topic is not None
        first = _number(frame.after)
        page: Page[PartitionDescription] = Page(paged=frame.paged)
        count = len(topic.groups)

        def answer(describe: Callable[[int], PartitionDescription], end: int) -> None:
            for number in range(first, end):
                partition = describe(number)
                if not page.takes(partition, partition_bytes(partition)):
                    break
            described = TopicDescription(topic.name, topic.config, tuple(page.items))
            end = first + len(page.items)
            next_ = str(end) if end < count else ""
            self._wiring.network.send(connection, frames.Topics(frame.request, (described,), next_))

        def here(number: int) -> PartitionDescription | None:
            hosted = self._wiring.partitions.get(topic.groups[number])
            return None if hosted is None else self._described(hosted, topic.waiting)

        if self._wiring.catalogue.is_here(topic):
            answer(lambda number: here(number) or self._unknown(topic, number), count)
            return
        end = min(first + GROUPS_MAX, count) if frame.paged else count

        def told(found: dict[int, PartitionDescription]) -> None:
            answer(
                lambda number: here(number) or found.get(number) or self._unknown(topic, number),
                end,
            )

        self.ask_others(topic, range(first, end), told)

    def ask_others(
        self,
        topic: Topic,
        numbers: Iterable[int],
        told: Callable[[dict[int, PartitionDescription]], None],
    ) -> None:
        """Have each node say what it serves of these, all at the same time.

        Of a partition that several nodes keep all of them are asked: who leads it may have changed
        since this node has heard of it.
        """
        catalogue = self._wiring.catalogue
        groups: dict[str, list[int]] = {}  # by the node to ask
        wanted = {number for number in numbers if not catalogue.is_led_here(topic, number)}
        for number in sorted(wanted):
            for node in catalogue.holders_to_ask(topic, number):
                groups.setdefault(node, []).append(topic.groups[number])
        found: dict[int, PartitionDescription] = {}
        silent = set(groups)
        is_told = False

        def answered(node: str, theirs: dict[int, PartitionDescription]) -> None:
            nonlocal is_told
            silent.discard(node)
            found.update(theirs)
            for number in theirs:
                catalogue.heard_leader(topic, number, node)
            if not is_told and (not silent or wanted <= found.keys()):
                is_told = True
                told(found)

        if not groups:
            told(found)
        for node, asked in groups.items():
            self.others.ask(node, asked, partial(answered, node))

    def described(self, groups: Iterable[int]) -> tuple[PartitionDescription, ...]:
        """What those of these groups hold that are partitions here, for another node."""
        partitions, topics = self._wiring.partitions, self._wiring.catalogue.topics
        found = []
        for hosted in filter(None, map(partitions.get, groups)):
            topic = topics.get(hosted.core.topic)
            if topic is not None and hosted.group in topic.groups:
                partition = self._described(hosted, topic.waiting)
                found.append(replace(partition, problem=partition.problem[:PROBLEM_MAX]))
        return tuple(found)

    def _described(self, hosted: Hosted, waiting: list[int]) -> PartitionDescription:
        core, me = hosted.core, self._wiring.catalogue.me
        states: tuple[ReplicaState, ...]
        if hosted.copy is None:
            states = (ReplicaState(me, "leader", hosted.term, core.high_watermark),)
        else:
            states = self._copies.states(hosted)
        stats = self._wiring.log.stats(hosted.group)
        memory_bytes, disk_bytes, problem = stats.memory_bytes, stats.disk_bytes, stats.problem
        tier_bytes = stats.tier_bytes
        count = 0
        if core.number < len(waiting):
            delayed = self._wiring.partitions[waiting[core.number]].core
            assert isinstance(delayed, WaitingPartition)
            count = delayed.count
            theirs = self._wiring.log.stats(waiting[core.number])
            memory_bytes += theirs.memory_bytes
            disk_bytes += theirs.disk_bytes
            tier_bytes += theirs.tier_bytes
            if theirs.problem:
                problem = "; ".join(filter(None, (problem, f"delayed messages: {theirs.problem}")))
        return PartitionDescription(
            partition=core.number,
            start=core.start,
            end=core.high_watermark,
            memory_start=stats.memory_start,
            memory_bytes=memory_bytes,
            disk_bytes=disk_bytes,
            memory_reads=stats.memory_reads,
            disk_reads=stats.disk_reads,
            leader=me,
            replicas=self._wiring.catalogue.topics[core.topic].replicas[core.number],
            problem=problem,
            waiting=count,
            replica_states=states,
            tier_bytes=tier_bytes,
        )

    def _unknown(self, topic: Topic, number: int) -> PartitionDescription:
        replicas = topic.replicas[number]
        leader = self._wiring.catalogue.leader_of(topic, number)
        if len(replicas) == 1 or leader not in ("", self._wiring.catalogue.me):
            problem = self._wiring.catalogue.unknown_here(leader)
        else:
            problem = (
                "nobody is known to lead it: a leader is being elected, or too few of its replicas "
                "are there"
            )
        return PartitionDescription(
            partition=number,
            start=0,
            end=0,
            memory_start=0,
            memory_bytes=0,
            disk_bytes=0,
            memory_reads=0,
            disk_reads=0,
            leader="",
            replicas=replicas,
            problem=problem,
            known=False,
            replica_states=tuple(
                ReplicaState(each, "unknown", behind=len(replicas) > 1) for each in replicas
            ),
        )

    def _find_leaders(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        topic = demand.topic
        assert topic is not None
        unheard = [
            number
            for number in range(len(topic.groups))
            if len(topic.replicas[number]) > 1 and not self._wiring.catalogue.hears(topic, number)
        ]
        self.ask_others(
            topic, unheard, lambda _found: self._tell_leaders(connection, demand, topic)
        )

    def _tell_leaders(self, connection: int, demand: Demand, topic: Topic) -> None:
        catalogue = self._wiring.catalogue
        leading = catalogue.leaders_of(topic)
        place = {node: at for at, node in enumerate(dict.fromkeys(leading))}
        nodes = tuple(NodeAddress(node, catalogue.address_of(node)) for node in place)
        leaders = packed(place[node] for node in leading)
        self._wiring.network.send(
            connection, frames.LeadersAre(demand.frame.request, nodes, leaders)
        )

    def _find_offsets(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.FindOffsets)
        assert topic is not None

        def found(offsets: dict[int, int]) -> None:
            in_order = [offsets[number] for number in demand.partitions]
            self._wiring.network.send(connection, frames.Offsets(frame.request, packed(in_order)))

        hosted = self._wiring.partitions.of_numbers(topic.groups, demand.partitions)
        StartOffsets(self._wiring, connection, frame.request, hosted, found).resolve(frame.start)


def _number(after: str) -> int:
    """How many partitions were described in the parts before."""
    if not after:
        return 0
    if not (after.isascii() and after.isdecimal() and len(after) < 10):
        raise OutOfRange(f"`after` must be the `next` of an earlier answer, not {after[:80]!r}")
    return int(after)
