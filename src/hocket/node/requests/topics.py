"""Topics on request: made, changed, deleted, listed, described."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from hocket import frames
from hocket.core.metadata import catalogue as catalogue_core
from hocket.core.metadata.catalogue import Topic
from hocket.core.metadata.metadata import GROUP
from hocket.core.origin import Origin
from hocket.core.partition.waiting import WaitingPartition
from hocket.core.placement.descriptions import GROUPS_MAX, PROBLEM_MAX
from hocket.core.session.session import Demand, OpenedProducer, OpenedSubscription, Session, failure
from hocket.errors import OutOfRange, UnknownTopic
from hocket.frames import packed
from hocket.model import EntryKind, PartitionDescription, TopicConfig, TopicDescription
from hocket.node.requests.consuming import Consuming
from hocket.node.requests.operations import Operations
from hocket.node.requests.pages import Page, partition_bytes, topic_bytes
from hocket.node.requests.start_offsets import StartOffsets
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
    def __init__(self, wiring: Wiring, consuming: Consuming, operations: Operations) -> None:
        self._wiring = wiring
        self._consuming = consuming
        self._operations = operations
        self.others: Others = Nobody()

    def servants(self) -> dict[type, Servant]:
        return {
            frames.CreateTopic: self._change_topic,
            frames.AlterTopic: self._change_topic,
            frames.DeleteTopic: self._change_topic,
            frames.ListTopics: self._list_topics,
            frames.DescribeTopic: self._describe,
            frames.FindOffsets: self._find_offsets,
        }

    def create(self, origin: Origin, name: str, config: TopicConfig) -> None:
        self._wiring.partitions.admit(GROUP)
        asked = self._wiring.asked
        home = None if asked is None else asked.node  # a topic lives where it was asked for
        append = self._wiring.catalogue.create(origin, name, config, home)
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
        if change.kind == "delete":
            gone = f"topic {change.topic!r} was deleted"
            for hosted in filter(None, map(self._wiring.partitions.get, changed.groups)):
                self._wiring.deliveries.end_all(hosted, UnknownTopic.code, gone)
                self._refuse_waiting(self._wiring.partitions.drop(hosted.group), gone)
            self._wiring.shares.drop(change.topic, None, UnknownTopic.code, gone)
            self._operations.topic_deleted(change.topic, gone)
            self._end_producers(change.topic, gone)
        else:
            topic = self._wiring.catalogue.topics.get(change.topic)
            if topic is not None and self._wiring.catalogue.is_here(topic):
                self._configured(topic, changed.groups)
        self._wiring.answer(changed.origin, frames.Done)

    def _refuse_waiting(self, hosted: Hosted, why: str) -> None:
        """Refuse every Publish that waits. Producers hear that their handle has ended instead."""
        error = UnknownTopic(why)
        for origin in hosted.core.waiting():
            if origin.request:
                self._wiring.network.send(origin.connection, failure(origin.request, error))

    def _configured(self, topic: Topic, new_groups: tuple[int, ...]) -> None:
        partitions = self._wiring.partitions
        for number, group in enumerate(topic.groups):
            hosted = partitions.get(group)
            if hosted is None:
                partitions.host(topic.name, number, group, topic.config)
            else:
                partitions.belongs_to(hosted, topic.name, number)
                partitions.configure(hosted, topic.config)
        for number, (group, goal) in enumerate(zip(topic.waiting, topic.groups, strict=False)):
            hosted = partitions.get(group)
            if hosted is None:
                partitions.host(topic.name, number, group, topic.config, waits_for=goal)
            else:
                partitions.configure(hosted, topic.config)
        new_groups = tuple(group for group in new_groups if group in topic.groups)
        if not new_groups:
            return
        for connection, session in list(self._wiring.sessions.items()):
            for handle, opened in list(session.handles.items()):
                if opened.topic == topic.name:
                    self._grow(connection, handle, opened, topic, new_groups)

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
            stopped = self._wiring.deliveries.is_stopped((connection, handle))
            if not opened.whole_topic or stopped:
                return
            self._consuming.grow(connection, handle, opened, new_groups)
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
            if session.rights.sees(name):
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

        if self._wiring.catalogue.is_here(topic):
            answer(lambda number: self._described(topic.groups[number], topic.waiting), count)
            return
        end = min(first + GROUPS_MAX, count) if frame.paged else count

        def told(found: dict[int, PartitionDescription]) -> None:
            answer(lambda number: found.get(number) or self._unknown(topic, number), end)

        self.others.ask(self._wiring.catalogue.home_of(topic), topic.groups[first:end], told)

    def described(self, groups: Iterable[int]) -> tuple[PartitionDescription, ...]:
        """What those of these groups hold that are partitions here, for another node."""
        partitions, topics = self._wiring.partitions, self._wiring.catalogue.topics
        found = []
        for hosted in filter(None, map(partitions.get, groups)):
            topic = topics.get(hosted.core.topic)
            if topic is not None and hosted.group in topic.groups:
                partition = self._described(hosted.group, topic.waiting)
                found.append(replace(partition, problem=partition.problem[:PROBLEM_MAX]))
        return tuple(found)

    def _described(self, group: int, waiting: list[int]) -> PartitionDescription:
        core = self._wiring.partitions[group].core
        stats = self._wiring.log.stats(group)
        memory_bytes, disk_bytes, problem = stats.memory_bytes, stats.disk_bytes, stats.problem
        count = 0
        if core.number < len(waiting):
            delayed = self._wiring.partitions[waiting[core.number]].core
            assert isinstance(delayed, WaitingPartition)
            count = delayed.count
            theirs = self._wiring.log.stats(waiting[core.number])
            memory_bytes += theirs.memory_bytes
            disk_bytes += theirs.disk_bytes
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
            leader=self._wiring.name,
            replicas=(self._wiring.name,),
            problem=problem,
            waiting=count,
        )

    def _unknown(self, topic: Topic, number: int) -> PartitionDescription:
        catalogue = self._wiring.catalogue
        home = catalogue.home_of(topic)
        return PartitionDescription(
            partition=number,
            start=0,
            end=0,
            memory_start=0,
            memory_bytes=0,
            disk_bytes=0,
            memory_reads=0,
            disk_reads=0,
            leader=home,
            replicas=(home,),
            problem=catalogue.unknown_here(topic),
            known=False,
        )

    def _find_offsets(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.FindOffsets)
        assert topic is not None

        def found(offsets: dict[int, int]) -> None:
            in_order = [offsets[number] for number in sorted(offsets)]
            self._wiring.network.send(connection, frames.Offsets(frame.request, packed(in_order)))

        hosted = self._wiring.partitions.of_numbers(topic.groups, range(len(topic.groups)))
        StartOffsets(self._wiring, connection, frame.request, hosted, found).resolve(frame.start)


def _number(after: str) -> int:
    """How many partitions were described in the parts before."""
    if not after:
        return 0
    if not (after.isascii() and after.isdecimal() and len(after) < 10):
        raise OutOfRange(f"`after` must be the `next` of an earlier answer, not {after[:80]!r}")
    return int(after)
