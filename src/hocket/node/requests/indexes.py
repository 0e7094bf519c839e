"""Indexes on request: listed, put elsewhere, deleted; and what their consumers hear of it."""

from __future__ import annotations

from functools import partial
from typing import cast

from hocket import frames
from hocket.core.metadata.catalogue import Topic
from hocket.core.origin import Origin
from hocket.core.partition import events
from hocket.core.partition.cursors import Cursor
from hocket.core.session.permissions import OF_INDEXES
from hocket.core.session.session import Demand, OpenedSubscription, Session, failure
from hocket.errors import Fenced, HocketError, UnknownIndex
from hocket.frames import packed
from hocket.model import IndexDescription, IndexPartition, Mode
from hocket.node.requests.operations import Operation, Operations
from hocket.node.requests.pages import Page, index_bytes
from hocket.node.requests.skipping import Skip
from hocket.node.requests.start_offsets import StartOffsets
from hocket.node.running.partitions import Hosted, Partitions
from hocket.node.wiring import Servant, Wiring


def is_index(partitions: Partitions, topic: Topic, index: str) -> bool:
    """Whether a partition of the topic that is here has the index."""
    hosted = filter(None, map(partitions.get, topic.groups))
    return any(index in each.core.cursors.leading for each in hosted)


def no_index(partitions: Partitions, topic: Topic, index: str, session: Session) -> UnknownIndex:
    """The error for a name that no index has; it tells the names that this user may know."""
    hosted = filter(None, map(partitions.get, topic.groups))
    names = {name for each in hosted for name in each.core.cursors.applied}
    seen = sorted(name for name in names if session.rights.may(OF_INDEXES, topic.name, name))
    return UnknownIndex(
        f"topic {topic.name!r} has no index {index!r}; there are: {', '.join(seen) or 'none'}"
    )


class Indexes:
    def __init__(self, wiring: Wiring, operations: Operations) -> None:
        self._wiring = wiring
        self._operations = operations
        self._last_ping = 0

    def servants(self) -> dict[type, Servant]:
        return {
            frames.ListIndexes: self._list_indexes,
            frames.SeekIndex: self._seek_index,
            frames.SkipUnreadable: self._skip_unreadable,
            frames.DeleteIndex: self._delete_index,
            frames.Done: self._pinged,
        }

    # --- requests --------------------------------------------------------------------------------

    def _list_indexes(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.ListIndexes)
        assert topic is not None
        hosted = self._of(topic, demand)
        known = {name for each in hosted for name in each.core.cursors.applied}
        wanted = known & {frame.index} if frame.index else known
        page: Page[IndexDescription] = Page(paged=frame.paged)
        next_ = ""
        for name in sorted(name for name in wanted if name > frame.after):
            if session.rights.may(OF_INDEXES, topic.name, name):
                index = self._described(name, hosted)
                if not page.takes(index, index_bytes(index)):
                    next_ = page.items[-1].name
                    break
        answer = frames.Indexes(frame.request, tuple(page.items), next_)
        self._wiring.network.send(connection, answer)

    def _described(self, name: str, hosted: list[Hosted]) -> IndexDescription:
        cursors = [each.core.cursors.applied.get(name) for each in hosted]
        partitions = tuple(
            IndexPartition(
                each.core.number,
                # Where the index has not been yet (the topic has grown, say), all is before it.
                max(cursor.position if cursor else 0, each.core.start),
                each.core.high_watermark,
                self._wiring.deliveries.is_attached(each, name)
                or self._wiring.shares.is_attached(each, name),
                each.core.shares[name].ahead() if name in each.core.shares else 0,
                self._wiring.shares.leased(each, name),
                self._lost(name, each, cursor),
            )
            for each, cursor in zip(hosted, cursors, strict=True)
        )
        held = any(cursor.hold_retention for cursor in cursors if cursor)
        mode = next((cursor.mode for cursor in cursors if cursor), "own")
        return IndexDescription(name, cast(Mode, mode), held, partitions)

    def _lost(self, name: str, hosted: Hosted, cursor: Cursor | None) -> int:
        """How many messages were removed before the index had consumed them."""
        share = hosted.core.shares.get(name)
        if share is not None:
            return share.lost
        if cursor is None:
            return 0  # it has not been there yet, and goes on where the log starts then
        # What its next consumer will miss is not in the log yet; what a consumer has been sent, and
        # has not acknowledged, is not missed.
        reached = max(cursor.position, self._wiring.deliveries.next_of(hosted, name))
        return cursor.lost + max(0, hosted.core.start - reached)

    def _seek_index(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.SeekIndex)
        assert topic is not None
        if not frame.elsewhere:
            self._check_index(topic, frame.index)
        hosted = self._wiring.partitions.of_numbers(topic.groups, demand.partitions)
        for each in hosted.values():
            self._wiring.partitions.admit_progress(each.group)
        resolved = partial(self._seek, connection, frame, topic, hosted)
        question = StartOffsets(self._wiring, connection, frame.request, hosted, resolved)
        question.resolve(frame.start)

    def _seek(
        self,
        connection: int,
        frame: frames.SeekIndex,
        topic: Topic,
        hosted: dict[int, Hosted],
        offsets: dict[int, int],
    ) -> None:
        in_order = [offsets[number] for number in hosted]
        sought = partial(self._sought, frame.request, in_order)
        operation = self._operations.begin(connection, topic.name, len(hosted), sought)
        for number, each in hosted.items():
            seek = events.SeekIndex(Origin(connection, 0, operation), frame.index, offsets[number])
            self._wiring.partitions.step(each, seek)
            if each.core.cursors.leading[frame.index].mode != "own":
                # At once: what is settled from now on is of after the seek, in the log too.
                self._move_shared(each, frame.index, offsets[number])

    def _sought(self, request: int, offsets: list[int], operation: Operation) -> None:
        if operation.error is not None:
            answer: frames.Frame = failure(request, operation.error)
        else:
            answer = frames.Offsets(request, packed(offsets))
        self._wiring.network.send(operation.connection, answer)

    def _skip_unreadable(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.SkipUnreadable)
        assert topic is not None
        self._check_index(topic, frame.index)
        hosted = self._wiring.partitions[topic.groups[frame.partition]]
        Skip(self._wiring, self._operations, connection, frame, hosted).begin()

    def _delete_index(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.DeleteIndex)
        assert topic is not None
        self._check_index(topic, frame.index)
        hosted = self._of(topic, demand)
        for each in hosted:
            self._wiring.partitions.admit_tidying(each.group)  # it may have held retention back
        finish = partial(self._operations.answer_done, frame.request)
        operation = self._operations.begin(connection, topic.name, len(hosted), finish)
        for each in hosted:
            self._wiring.partitions.step(
                each, events.DeleteIndex(Origin(connection, 0, operation), frame.index)
            )

    def _of(self, topic: Topic, demand: Demand) -> list[Hosted]:
        """The partitions that the demand is about."""
        return list(self._wiring.partitions.of_numbers(topic.groups, demand.partitions).values())

    def _check_index(self, topic: Topic, index: str) -> None:
        if not is_index(self._wiring.partitions, topic, index):
            raise UnknownIndex(f"topic {topic.name!r} has no index {index!r}")

    # --- what partitions tell --------------------------------------------------------------------

    def moved(self, hosted: Hosted, effect: events.IndexMoved) -> None:
        if effect.by == "seek":
            assert effect.cursor is not None
            self._follow_seek(hosted, effect.name, effect.cursor)
        elif effect.by == "delete":
            gone = f"index {effect.name!r} was deleted"
            self._wiring.deliveries.end_owner(hosted, effect.name, UnknownIndex.code, gone)
            self._wiring.shares.drop(hosted.core.topic, effect.name, UnknownIndex.code, gone)
        self._operations.part_done(effect.origin, hosted.core.number, effect.cursor)

    def fenced(self, hosted: Hosted, effect: events.IndexFenced) -> None:
        """A commit came with an epoch of the past."""
        origin, index = effect.origin, effect.name
        outcome: HocketError | None = None
        if self._wiring.deliveries.owner(hosted, index) != (origin.connection, origin.handle):
            outcome = Fenced(f"another consumer has taken index {index!r} over")
        # Else a seek has overtaken the commit: the index is where it would be had the commit come
        # before the seek.
        self._operations.part_done(origin, hosted.core.number, outcome)

    # --- consumers of an index that was put elsewhere --------------------------------------------

    def _follow_seek(self, hosted: Hosted, index: str, cursor: Cursor) -> None:
        """The consumer of the index goes on at the new position, and stays the index's owner."""
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
        """Wait until the consumer has heard that its index was put elsewhere.

        The consumer was told already. Its commits and settlements do not say whether they are from
        before that. Those that come before this Ping is answered are: an own index sends nothing
        from the new position until then, and a consumer of a shared one hears of the move before it
        hears of anything new.
        """
        self._last_ping += 1
        opened.unaware[number] = self._last_ping
        self._wiring.network.send(connection, frames.Ping(self._last_ping))

    def _pinged(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        for handle, opened in list(session.handles.items()):
            if isinstance(opened, OpenedSubscription):
                for number, ping in list(opened.unaware.items()):
                    if ping == demand.frame.request:
                        del opened.unaware[number]
                        self._wiring.deliveries.move_heard((connection, handle), number)
