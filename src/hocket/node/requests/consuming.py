"""Subscriptions and indexes on request: opened, moved, committed, listed, deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from hocket import frames
from hocket.core.metadata.catalogue import Topic
from hocket.core.origin import Origin
from hocket.core.partition import events
from hocket.core.partition.cursors import Cursor
from hocket.core.session.permissions import OF_INDEXES
from hocket.core.session.session import Demand, OpenedSubscription, Session, failure
from hocket.errors import (
    Busy,
    Fenced,
    HocketError,
    NotAllowed,
    OutOfRange,
    UnknownIndex,
    UnknownTopic,
)
from hocket.frames import Frame, packed, unpacked
from hocket.model import IndexDescription, IndexPartition, Mode, Start
from hocket.node.requests.start_offsets import StartOffsets
from hocket.node.running.partitions import Hosted
from hocket.node.wiring import Servant, Wiring


@dataclass(slots=True, eq=False)
class Operation:
    """A request about indexes, which is done when every partition it concerns has done its part."""

    connection: int
    topic: str
    waiting: int  # for so many partitions
    finish: Callable[[Operation], None]
    cursors: dict[int, Cursor | None] = field(default_factory=dict)
    error: HocketError | None = None


class Consuming:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._operations: dict[int, Operation] = {}
        self._last_operation = 0
        self._last_ping = 0

    def servants(self) -> dict[type, Servant]:
        return {
            frames.OpenSubscription: self._open_subscription,
            frames.Credit: self._credit,
            frames.Commit: self._commit,
            frames.Settle: self._wiring.shares.settle,
            frames.CloseHandle: self._close_handle,
            frames.Done: self._pinged,
            frames.ListIndexes: self._list_indexes,
            frames.SeekIndex: self._seek_index,
            frames.DeleteIndex: self._delete_index,
        }

    def _open_subscription(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.OpenSubscription)
        assert topic is not None
        hosted = {
            number: self._wiring.partitions[topic.groups[number]] for number in demand.partitions
        }
        numbers = unpacked(frame.positions)
        given = dict(zip(numbers[::2], numbers[1::2], strict=True))
        for number, offset in given.items():
            end = hosted[number].core.high_watermark if number in hosted else 0
            if offset > end:
                raise OutOfRange(f"offset {offset} lies beyond partition {number}'s end at {end}")
        self._wiring.shares.check_mode(topic.name, frame.index, frame.mode, hosted.values())
        unknown = {
            number: each
            for number, each in hosted.items()
            if frame.index not in each.core.cursors.leading and number not in given
        }

        def resolved(starts: dict[int, int]) -> None:
            if connection not in self._wiring.sessions:
                return
            starts |= given
            if frame.index:
                self._attach(connection, session, frame, topic, hosted, starts)
            else:
                self._opened(connection, session, frame, topic, hosted, starts, {})

        start = frame.start
        if frame.index and self._is_index(topic, frame.index):
            start = Start()  # only where it has not been yet, and there all is still before it
        StartOffsets(self._wiring, connection, frame.request, unknown, resolved).resolve(start)

    def _attach(
        self,
        connection: int,
        session: Session,
        frame: frames.OpenSubscription,
        topic: Topic,
        hosted: dict[int, Hosted],
        starts: dict[int, int],
    ) -> None:
        for each in hosted.values():
            self._wiring.partitions.admit(each.group)
        self._wiring.shares.check_mode(topic.name, frame.index, frame.mode, hosted.values())
        if frame.mode != "own":
            self._wiring.shares.prepare(topic.name, frame, hosted, starts)

        def attached(operation: Operation) -> None:
            if operation.error is not None:
                self._answer(connection, failure(frame.request, operation.error))
                return
            if connection not in self._wiring.sessions:
                return
            if not self._wiring.shares.is_as_attached(topic.name, frame, hosted):
                changed = f"index {frame.index!r} was deleted or opened otherwise meanwhile"
                self._answer(connection, failure(frame.request, Busy(f"{changed}; try again")))
                return
            cursors = {n: c for n, c in operation.cursors.items() if c is not None}
            places = {number: cursor.position for number, cursor in cursors.items()}
            numbers = unpacked(frame.positions)
            places |= dict(zip(numbers[::2], numbers[1::2], strict=True))
            epochs = {number: cursor.epoch for number, cursor in cursors.items()}
            self._opened(connection, session, frame, topic, hosted, places, epochs)

        operation = self._begin_operation(connection, topic.name, len(hosted), attached)
        for number, each in hosted.items():
            self._wiring.partitions.step(
                each,
                events.AttachIndex(
                    Origin(connection, 0, operation),
                    frame.index,
                    starts.get(number, 0),
                    frame.hold_retention,
                    frame.mode,
                    self._wiring.shares.settings(frame, each),
                ),
            )

    def _opened(
        self,
        connection: int,
        session: Session,
        frame: frames.OpenSubscription,
        topic: Topic,
        hosted: dict[int, Hosted],
        places: dict[int, int],
        epochs: dict[int, int],
    ) -> None:
        opened = OpenedSubscription(
            topic.name,
            frame.index,
            list(hosted),
            epochs,
            whole_topic=not frame.partitions,
            hold_retention=frame.hold_retention,
            mode=frame.mode,
        )
        try:
            handle = session.open(opened)
        except NotAllowed as error:  # any more: the log was asked meanwhile
            self._answer(connection, failure(frame.request, error))
            return
        address = connection, handle
        pairs = packed(n for number in hosted for n in (number, places[number]))
        answer = frames.SubscriptionOpened(frame.request, handle, pairs)
        if frame.mode == "own":
            self._wiring.deliveries.open(
                address, topic.name, frame.index, hosted, places, frame.credit_bytes
            )
            self._answer(connection, answer)
            self._wiring.deliveries.begin(address)
        else:
            first = next(iter(hosted.values())).core
            answer.lease_us = first.shares[frame.index].settings.lease_us
            self._answer(connection, answer)
            self._wiring.shares.open(address, topic.name, frame, hosted)
        # Partitions that were added while it was being opened.
        groups = [group for n, group in enumerate(topic.groups) if n not in hosted]
        if opened.whole_topic and groups:
            self.grow(connection, handle, opened, groups)
            self._answer(connection, frames.PartitionsChanged(0, handle, len(topic.groups)))

    def grow(
        self, connection: int, handle: int, opened: OpenedSubscription, groups: Iterable[int]
    ) -> None:
        """The topic of an open subscription has new partitions."""
        for group in groups:
            hosted = self._wiring.partitions[group]
            number, start = hosted.core.number, 0
            opened.partitions.append(number)
            if opened.mode != "own":
                self._grow_shared(connection, handle, opened, hosted)
                continue
            if opened.index:
                origin = Origin(connection, handle, 0)
                self._wiring.partitions.step(
                    hosted,
                    events.AttachIndex(origin, opened.index, 0, opened.hold_retention),
                )
                cursor = hosted.core.cursors.leading[opened.index]
                opened.epochs[number], start = cursor.epoch, cursor.position
            self._wiring.deliveries.extend((connection, handle), number, hosted, start)

    def _grow_shared(
        self, connection: int, handle: int, opened: OpenedSubscription, hosted: Hosted
    ) -> None:
        self._wiring.shares.grow((connection, handle), hosted)
        self._wiring.partitions.step(
            hosted,
            events.AttachIndex(
                Origin(connection, handle, 0),
                opened.index,
                0,
                opened.hold_retention,
                opened.mode,
                self._wiring.shares.settings_now((connection, handle)),
            ),
        )

    def _credit(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, opened = demand.frame, demand.opened
        assert isinstance(frame, frames.Credit)
        assert isinstance(opened, OpenedSubscription)
        address = connection, frame.handle
        if opened.mode == "own":
            self._wiring.deliveries.give_credit(address, frame.bytes)
        else:
            self._wiring.shares.give_credit(address, frame.bytes, frame.messages)

    def _commit(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, opened = demand.frame, demand.opened
        assert isinstance(frame, frames.Commit)
        assert isinstance(opened, OpenedSubscription)
        topic = self._wiring.catalogue.topic(opened.topic)
        numbers = unpacked(frame.positions)
        pairs = [
            (number, position)
            for number, position in zip(numbers[::2], numbers[1::2], strict=True)
            if number not in opened.unaware  # else it is of before the seek, and means nothing now
        ]
        for number, position in pairs:
            hosted = self._wiring.partitions[topic.groups[number]]
            if position > hosted.core.high_watermark:
                raise OutOfRange(
                    f"index {opened.index!r} cannot be put at {position}: partition {number} "
                    f"ends at {hosted.core.high_watermark}"
                )
            self._wiring.partitions.admit(hosted.group)
        operation = self._begin_operation(
            connection, opened.topic, len(pairs), partial(self._answer_done, frame.request)
        )
        for number, position in pairs:
            hosted = self._wiring.partitions[topic.groups[number]]
            self._wiring.partitions.step(
                hosted,
                events.CommitIndex(
                    Origin(connection, frame.handle, operation),
                    opened.index,
                    opened.epochs[number],
                    position,
                ),
            )

    def _close_handle(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.CloseHandle)
        self._wiring.close_subscription((connection, frame.handle), graceful=True)
        # A client closes a producer when all is acknowledged, and a subscription after its last
        # commit was answered; there is nothing left to wait for.
        self._wiring.network.send(connection, frames.Done(frame.request))

    def _list_indexes(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        topic = demand.topic
        assert topic is not None
        hosted = [self._wiring.partitions[group] for group in topic.groups]
        names = sorted({name for each in hosted for name in each.core.cursors.applied})
        indexes = tuple(
            self._index_described(name, hosted)
            for name in names
            if session.rights.may(OF_INDEXES, topic.name, name)
        )
        self._wiring.network.send(connection, frames.Indexes(demand.frame.request, indexes))

    def _index_described(self, name: str, hosted: list[Hosted]) -> IndexDescription:
        cursors = [each.core.cursors.applied.get(name) for each in hosted]
        partitions = tuple(
            IndexPartition(
                each.core.number,
                # Where it has not been yet (the topic has grown, say) all is still before it.
                max(cursor.position if cursor else 0, each.core.start),
                each.core.high_watermark,
                self._wiring.deliveries.is_attached(each, name)
                or self._wiring.shares.is_attached(each, name),
                each.core.shares[name].ahead() if name in each.core.shares else 0,
                self._wiring.shares.leased(each, name),
            )
            for each, cursor in zip(hosted, cursors, strict=True)
        )
        held = any(cursor.hold_retention for cursor in cursors if cursor)
        mode = next((cursor.mode for cursor in cursors if cursor), "own")
        return IndexDescription(name, cast(Mode, mode), held, partitions)

    def _seek_index(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.SeekIndex)
        assert topic is not None
        hosted = {
            number: self._wiring.partitions[topic.groups[number]] for number in demand.partitions
        }
        self._check_index(topic, frame.index)

        def resolved(offsets: dict[int, int]) -> None:
            def sought(operation: Operation) -> None:
                if operation.error is not None:
                    self._answer(connection, failure(frame.request, operation.error))
                    return
                in_order = [offsets[number] for number in sorted(offsets)]
                self._wiring.network.send(
                    connection, frames.Offsets(frame.request, packed(in_order))
                )

            operation = self._begin_operation(connection, topic.name, len(hosted), sought)
            for number, each in hosted.items():
                seek = events.SeekIndex(
                    Origin(connection, 0, operation), frame.index, offsets[number]
                )
                self._wiring.partitions.step(each, seek)
                if each.core.cursors.leading[frame.index].mode != "own":
                    # At once: what is settled from now on is of after the seek, in the log too.
                    self._move_shared(each, frame.index, offsets[number])

        for each in hosted.values():
            self._wiring.partitions.admit(each.group)
        question = StartOffsets(self._wiring, connection, frame.request, hosted, resolved)
        question.resolve(frame.start)

    def _delete_index(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.DeleteIndex)
        assert topic is not None
        self._check_index(topic, frame.index)
        hosted = [self._wiring.partitions[group] for group in topic.groups]
        for each in hosted:
            self._wiring.partitions.admit(each.group)
        operation = self._begin_operation(
            connection, topic.name, len(hosted), partial(self._answer_done, frame.request)
        )
        for each in hosted:
            self._wiring.partitions.step(
                each, events.DeleteIndex(Origin(connection, 0, operation), frame.index)
            )

    def _check_index(self, topic: Topic, index: str) -> None:
        if not self._is_index(topic, index):
            raise UnknownIndex(f"topic {topic.name!r} has no index {index!r}")

    def _is_index(self, topic: Topic, index: str) -> bool:
        return any(
            index in self._wiring.partitions[group].core.cursors.leading for group in topic.groups
        )

    def _begin_operation(
        self, connection: int, topic: str, waiting: int, finish: Callable[[Operation], None]
    ) -> int:
        self._last_operation += 1
        operation = Operation(connection, topic, waiting, finish)
        self._operations[self._last_operation] = operation
        if not waiting:
            del self._operations[self._last_operation]
            finish(operation)
        return self._last_operation

    def _operation_part(self, origin: Origin, number: int, outcome: Any) -> None:
        operation = self._operations.get(origin.request)
        if operation is None:
            return
        operation.waiting -= 1
        if isinstance(outcome, HocketError):
            operation.error = operation.error or outcome
        else:
            operation.cursors[number] = outcome
        if not operation.waiting:
            del self._operations[origin.request]
            operation.finish(operation)

    def topic_deleted(self, topic: str, why: str) -> None:
        """What its partitions still had to do will not be done."""
        for number, operation in list(self._operations.items()):
            if operation.topic == topic:
                del self._operations[number]
                operation.error = UnknownTopic(why)
                operation.finish(operation)

    def fenced(self, hosted: Hosted, effect: events.IndexFenced) -> None:
        """A commit came with an epoch of the past."""
        origin, index = effect.origin, effect.name
        outcome: HocketError | None = None
        if self._wiring.deliveries.owner(hosted, index) != (origin.connection, origin.handle):
            outcome = Fenced(f"another consumer has taken index {index!r} over")
        # Else a seek has overtaken it, and what counts is the same as if it had come before that.
        self._operation_part(origin, hosted.core.number, outcome)

    def _answer_done(self, request: int, operation: Operation) -> None:
        answer: Frame = frames.Done(request)
        if operation.error is not None:
            answer = failure(request, operation.error)
        self._answer(operation.connection, answer)

    def _answer(self, connection: int, answer: Frame) -> None:
        self._wiring.network.send(connection, answer)

    def index_moved(self, hosted: Hosted, effect: events.IndexMoved) -> None:
        if effect.by == "seek":
            assert effect.cursor is not None
            self._follow_seek(hosted, effect.name, effect.cursor)
        elif effect.by == "delete":
            gone = f"index {effect.name!r} was deleted"
            self._wiring.deliveries.end_owner(hosted, effect.name, UnknownIndex.code, gone)
            self._wiring.shares.drop(hosted.core.topic, effect.name, UnknownIndex.code, gone)
        self._operation_part(effect.origin, hosted.core.number, effect.cursor)

    def _follow_seek(self, hosted: Hosted, index: str, cursor: Cursor) -> None:
        """The consumer of the index goes on at the new place, as its owner still."""
        owner = self._wiring.deliveries.owner(hosted, index)
        if owner is None:
            return
        connection, handle = owner
        opened = self._wiring.sessions[connection].handles[handle]
        assert isinstance(opened, OpenedSubscription)
        opened.epochs[hosted.core.number] = cursor.epoch
        self._wiring.deliveries.sought(hosted, index, cursor.position)
        self._await_awareness(connection, opened, hosted.core.number)

    def _move_shared(self, hosted: Hosted, index: str, offset: int) -> None:
        for connection, handle in self._wiring.shares.sought(hosted, index, offset):
            opened = self._wiring.sessions[connection].handles[handle]
            assert isinstance(opened, OpenedSubscription)
            self._await_awareness(connection, opened, hosted.core.number)

    def _await_awareness(self, connection: int, opened: OpenedSubscription, number: int) -> None:
        """Of an index that was put elsewhere, as was said already.

        Commits and settlements do not say whether they are from before that. Those that come before
        this Ping is answered are: an own index sends nothing from the new place until then, and
        whoever shares one has heard of the move before of anything new.
        """
        self._last_ping += 1
        opened.unaware[number] = self._last_ping
        self._answer(connection, frames.Ping(self._last_ping))

    def _pinged(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        for handle, opened in list(session.handles.items()):
            if isinstance(opened, OpenedSubscription):
                for number, ping in list(opened.unaware.items()):
                    if ping == demand.frame.request:
                        del opened.unaware[number]
                        self._wiring.deliveries.move_heard((connection, handle), number)
