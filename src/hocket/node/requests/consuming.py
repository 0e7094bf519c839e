"""Subscriptions on request: opened, given credit, committed, closed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from hocket import frames
from hocket.cluster_model import NodeAddress
from hocket.core.metadata.catalogue import Topic
from hocket.core.origin import Origin
from hocket.core.partition import events
from hocket.core.session.session import (
    Demand,
    OpenedFeed,
    OpenedSubscription,
    Session,
    failure,
    triples,
)
from hocket.errors import Busy, NotAllowed, NotHere, OutOfRange
from hocket.frames import Frame, packed, unpacked
from hocket.model import PartitionId, Start
from hocket.node.requests.indexes import is_index, no_index
from hocket.node.requests.operations import Operation, Operations
from hocket.node.requests.start_offsets import StartOffsets
from hocket.node.running.partitions import Hosted
from hocket.node.running.sessions import Address
from hocket.node.wiring import Servant, Wiring


@dataclass(slots=True, eq=False)
class Opening:
    """A subscription that is being opened: the disk, and the log, may be asked meanwhile."""

    connection: int
    session: Session
    frame: frames.OpenSubscription
    topic: Topic
    hosted: dict[int, Hosted]  # the partitions that it reads
    positions: dict[int, int]  # partition -> where to begin, as the consumer says
    index_is_new: bool
    partitions: int  # how many the topic had when it was asked for


class Consuming:
    def __init__(self, wiring: Wiring, operations: Operations) -> None:
        self._wiring = wiring
        self._operations = operations

    def servants(self) -> dict[type, Servant]:
        return {
            frames.OpenSubscription: self._open_subscription,
            frames.OpenFeed: self._open_feed,
            frames.Credit: self._credit,
            frames.Commit: self._commit,
            frames.Settle: self._wiring.shares.settle,
            frames.CloseHandle: self._close_handle,
        }

    # --- opening: resolve where to begin, attach the index, answer -------------------------------

    def _open_subscription(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.OpenSubscription)
        assert topic is not None
        hosted = self._wiring.partitions.of_numbers(topic.groups, demand.partitions)
        positions = dict(_pairs(frame.positions))
        may_have_lost = frame.resumes and topic.config.durability == "memory"
        for number, offset in positions.items():
            end = hosted[number].core.high_watermark if number in hosted else 0
            if offset > end and may_have_lost:
                positions[number] = end
            elif offset > end:
                raise OutOfRange(f"offset {offset} lies beyond partition {number}'s end at {end}")
        self._wiring.shares.check_mode(topic.name, frame.index, frame.mode, hosted.values())
        unknown = {
            number: each
            for number, each in hosted.items()
            if frame.index not in each.core.cursors.leading and number not in positions
        }
        start = frame.start
        is_new = bool(frame.index) and not is_index(self._wiring.partitions, topic, frame.index)
        if is_new and frame.must_exist:
            raise no_index(self._wiring.partitions, topic, frame.index, session)
        if frame.index and not is_new:
            # `start` is for a new index. Where this one has not been yet, all is still before it.
            start = Start()
        count = len(topic.groups)
        opening = Opening(connection, session, frame, topic, hosted, positions, is_new, count)
        resolved = partial(self._resolved, opening)
        StartOffsets(self._wiring, connection, frame.request, unknown, resolved).resolve(start)

    def _resolved(self, opening: Opening, starts: dict[int, int]) -> None:
        if opening.connection not in self._wiring.sessions:
            return
        starts |= opening.positions
        if opening.frame.index:
            self._attach(opening, starts)
        else:
            self._opened(opening, starts, {})

    def _attach(self, opening: Opening, starts: dict[int, int]) -> None:
        """Log in every partition that the index has a (new) consumer."""
        frame, topic, hosted = opening.frame, opening.topic, opening.hosted
        for each in hosted.values():
            self._wiring.partitions.admit_progress(each.group)
        self._wiring.shares.check_mode(topic.name, frame.index, frame.mode, hosted.values())
        if frame.mode != "own":
            self._wiring.shares.prepare(topic.name, frame, hosted, starts)
        operation = self._operations.begin(
            opening.connection, topic.name, len(hosted), partial(self._attached, opening)
        )
        for number, each in hosted.items():
            self._wiring.partitions.step(
                each,
                events.AttachIndex(
                    Origin(opening.connection, 0, operation),
                    frame.index,
                    starts.get(number, 0),
                    frame.hold_retention,
                    frame.mode,
                    self._wiring.shares.settings(frame, each),
                ),
            )

    def _attached(self, opening: Opening, operation: Operation) -> None:
        connection, frame = opening.connection, opening.frame
        if operation.error is not None:
            self._answer(connection, failure(frame.request, operation.error))
            return
        if connection not in self._wiring.sessions:
            return
        if not self._wiring.shares.is_as_attached(opening.topic.name, frame, opening.hosted):
            changed = f"index {frame.index!r} was deleted or opened otherwise meanwhile"
            self._answer(connection, failure(frame.request, Busy(f"{changed}; try again")))
            return
        if not all(map(self._wiring.partitions.holds, opening.hosted.values())):
            error = self._wiring.catalogue.no_leader(opening.topic)
            self._answer(connection, failure(frame.request, error))
            return
        cursors = {n: c for n, c in operation.cursors.items() if c is not None}
        positions = {number: cursor.position for number, cursor in cursors.items()}
        epochs = {number: cursor.epoch for number, cursor in cursors.items()}
        self._opened(opening, positions | opening.positions, epochs)

    def _opened(self, opening: Opening, positions: dict[int, int], epochs: dict[int, int]) -> None:
        connection, frame = opening.connection, opening.frame
        topic, hosted = opening.topic, opening.hosted
        opened = OpenedSubscription(
            topic.name,
            frame.index,
            list(hosted),
            epochs,
            whole_topic=not frame.partitions,
            part=frame.part,
            hold_retention=frame.hold_retention,
            mode=frame.mode,
        )
        try:
            handle = opening.session.open(opened)
        except NotAllowed as error:  # any more: the log was asked meanwhile
            self._answer(connection, failure(frame.request, error))
            return
        address = connection, handle
        pairs = packed(n for number in hosted for n in (number, positions[number]))
        answer = frames.SubscriptionOpened(
            frame.request, handle, pairs, index_is_new=opening.index_is_new
        )
        if frame.mode == "own":
            feeder = self._feeder(address, frame, hosted)
            if feeder is not None:
                answer.feeder = (feeder,)
                answer.groups = packed(each.group for each in hosted.values())
            self._wiring.deliveries.open(
                address, topic.name, frame.index, hosted, positions, frame.credit_bytes,
                is_fed=feeder is not None,
            )  # fmt: skip
            self._answer(connection, answer)
            self._wiring.deliveries.begin(address)
        else:
            first = next(iter(hosted.values())).core
            answer.lease_us = first.shares[frame.index].settings.lease_us
            self._answer(connection, answer)
            self._wiring.shares.open(address, topic.name, frame, hosted)
        # The topic may have got partitions while the subscription was being opened.
        if len(topic.groups) > opening.partitions:
            self.grow(connection, handle, opened, topic, topic.groups[opening.partitions :])
        elif frame.part:  # or before, since the client was told who leads them
            self._answer(connection, frames.PartitionsChanged(0, handle, len(topic.groups), True))

    def _feeder(
        self, address: Address, frame: frames.OpenSubscription, hosted: dict[int, Hosted]
    ) -> NodeAddress | None:
        """The node at which this consumer takes its bytes; None: here."""
        crowds = self._wiring.crowds
        now_us = self._wiring.clock.now_us()
        if frame.unfed:
            crowds.avoid(frame.unfed, now_us)
        groups = [each.group for each in hosted.values()]
        crowds.join(address, groups, is_movable=frame.fed)
        if not frame.fed or frame.direct:
            return None
        name = frame.index or f"{self._wiring.name} {address}"
        home = crowds.place(address, groups, f"{frame.topic}\0{name}", now_us)
        return None if home is None else NodeAddress(home.node, home.address)

    # --- a feed: the bytes of a subscription that is open at another node ------------------------

    def _open_feed(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.OpenFeed)
        assert topic is not None
        self._wiring.feeds.check_relays()
        places = [
            (PartitionId(topic.name, partition, group), offset)
            for partition, group, offset in triples(frame.places)
        ]
        opened = OpenedFeed(topic.name, frame.index, [each.partition for each, _ in places])
        handle = session.open(opened)
        positions = packed(n for each, offset in places for n in (each.partition, offset))
        self._answer(connection, frames.SubscriptionOpened(frame.request, handle, positions))
        self._wiring.feeds.open((connection, handle), places, frame.credit_bytes)

    # --- a topic that grows ----------------------------------------------------------------------

    def grow(
        self,
        connection: int,
        handle: int,
        opened: OpenedSubscription,
        topic: Topic,
        groups: Sequence[int],
    ) -> None:
        """Tell an open subscription of new partitions of its topic; add them to it, if it is the
        whole topic's and all of them are here."""
        if not opened.whole_topic and not opened.part:
            return
        if self._wiring.deliveries.is_fed((connection, handle)):
            moves = "the topic has grown: open the subscription again"
            self._wiring.deliveries.end((connection, handle), NotHere.code, moves)
            return
        found = [self._wiring.partitions.get(group) for group in groups]
        here = [hosted for hosted in found if hosted is not None]
        if opened.part or len(here) < len(groups):
            # The client opens the new ones, wherever they are: who holds an index of its own, say,
            # must be one handle at each node, and know what it has.
            opened.whole_topic, opened.part = False, True
        else:
            self._extend(connection, handle, opened, here)
        changed = frames.PartitionsChanged(0, handle, len(topic.groups), opened.part)
        self._answer(connection, changed)

    def _extend(
        self, connection: int, handle: int, opened: OpenedSubscription, here: Iterable[Hosted]
    ) -> None:
        for hosted in here:
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

    # --- an open subscription --------------------------------------------------------------------

    def _credit(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, opened = demand.frame, demand.opened
        assert isinstance(frame, frames.Credit)
        address = connection, frame.handle
        if isinstance(opened, OpenedFeed):
            self._wiring.feeds.give_credit(address, frame.bytes)
            return
        assert isinstance(opened, OpenedSubscription)
        if opened.mode == "own":
            self._wiring.deliveries.give_credit(address, frame.bytes)
        else:
            self._wiring.shares.give_credit(address, frame)

    def _commit(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, opened = demand.frame, demand.opened
        assert isinstance(frame, frames.Commit)
        assert isinstance(opened, OpenedSubscription)
        topic = self._wiring.catalogue.topic(opened.topic)
        pairs = [
            (number, position)
            for number, position in _pairs(frame.positions)
            if number not in opened.unaware  # else it is from before a seek, and means nothing now
        ]
        for number, position in pairs:
            hosted = self._wiring.partitions[topic.groups[number]]
            if position > hosted.core.high_watermark:
                raise OutOfRange(
                    f"index {opened.index!r} cannot be put at {position}: partition {number} "
                    f"ends at {hosted.core.high_watermark}"
                )
            self._wiring.partitions.admit_progress(hosted.group)
        finish = partial(self._operations.answer_done, frame.request)
        operation = self._operations.begin(connection, opened.topic, len(pairs), finish)
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

    def _answer(self, connection: int, answer: Frame) -> None:
        self._wiring.network.send(connection, answer)


def _pairs(positions: bytes) -> Iterable[tuple[int, int]]:
    """Partition and position, as a frame packs them."""
    numbers = unpacked(positions)
    return zip(numbers[::2], numbers[1::2], strict=True)
