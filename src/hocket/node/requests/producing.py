"""Producers on request: opened, their batches checked and stored, and answered when durable."""

from __future__ import annotations

import logging
from array import array

from hocket import frames
from hocket.core.metadata.catalogue import Topic
from hocket.core.origin import Origin
from hocket.core.partition import events
from hocket.core.partition.dedupe import NEW
from hocket.core.partition.events import StageAcked, StageKey
from hocket.core.session.failures import told
from hocket.core.session.permissions import IN_PROCESS
from hocket.core.session.session import Demand, OpenedProducer, Session, failure
from hocket.errors import (
    CorruptData,
    Fenced,
    HocketError,
    MessageTooLarge,
    OutOfRange,
    ProducerConflict,
    ProtocolError,
    Rejected,
    UnknownProducer,
    UnknownTopic,
)
from hocket.frames import Frame, packed
from hocket.model import (
    DAY_US,
    NAME_BYTES_MAX,
    OWN_PRODUCERS,
    PUBLISH_DELAY_US_MAX,
    format_duration,
    partition_of,
)
from hocket.node.identity import audit
from hocket.node.requests.dockets import Dockets, Waiting, docket_of
from hocket.node.requests.transacting import Transacting
from hocket.node.running.hooks import Judged, Passing, passing_of
from hocket.node.running.partitions import Hosted, batch_of
from hocket.node.wiring import Servant, Wiring
from hocket.wire.batch import (
    NO_PRODUCER,
    BatchInfo,
    check_content,
    first_key_hash,
    parse,
    whole_batches,
)
from hocket.wire.columns import FLAG_HEADERS

log = logging.getLogger("hocket.node")

# More than an entry takes that says whose a producer id is; it may have to come before a batch.
OWNER_BYTES = 256 + NAME_BYTES_MAX
UNCHANGED = (
    "a plug-in of the broker changes these messages, and a transaction knows its messages by their "
    "checksums; publish them without a transaction"
)


class Producing:
    def __init__(self, wiring: Wiring, transacting: Transacting) -> None:
        self._wiring = wiring
        self._transacting = transacting
        self._dockets = Dockets(self._is_next, self._ask, self._release)

    def servants(self) -> dict[type, Servant]:
        return {
            frames.OpenProducer: self._open_producer,
            frames.Push: self._push,
            frames.Publish: self._publish,
        }

    def _open_producer(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.OpenProducer)
        assert topic is not None
        producer_id = frame.producer_id or self._wiring.entropy(16)
        groups = topic.waiting if frame.delayed else topic.groups
        hosted = self._wiring.partitions.of_numbers(groups, demand.partitions)
        cores = [each.core for each in hosted.values()]
        if frame.producer_id:
            self._check_owner(session, topic, frame.producer_id)
        if frame.transaction:
            key = self._transacting.key_of(frame.transaction, frame.number, producer_id)
            opened = OpenedProducer(topic.name, producer_id, frame.epoch, *key.name)
            sequences = [core.stages.next_sequence(key) for core in cores]
            self._opened(connection, session, frame, opened, topic, sequences)
            return
        newest = max(core.dedupe.epoch_of(producer_id) for core in cores)
        if frame.epoch < newest:
            raise Fenced(f"epoch {newest} of this producer has taken over from {frame.epoch}")
        for core in cores:
            if core.dedupe.is_holed(producer_id, frame.epoch):
                raise UnknownProducer(
                    f"batches of this producer in partition {core.number} of topic {topic.name!r} "
                    "were lost to damage of the log; open a new producer"
                )
        sequences = [core.dedupe.next_sequence(producer_id, frame.epoch) for core in cores]
        opened = OpenedProducer(topic.name, producer_id, frame.epoch, delayed=frame.delayed)
        self._opened(connection, session, frame, opened, topic, sequences)

    def _opened(
        self,
        connection: int,
        session: Session,
        frame: frames.OpenProducer,
        opened: OpenedProducer,
        topic: Topic,
        sequences: list[int],
    ) -> None:
        self._wiring.network.send(
            connection,
            frames.ProducerOpened(
                frame.request,
                session.open(opened),
                opened.producer_id,
                opened.epoch,
                len(topic.groups),
                packed(sequences),
            ),
        )

    def _check_owner(self, session: Session, topic: Topic, producer_id: bytes) -> str:
        """Who uses the producer id here. Raises Fenced if the id belongs to another user.

        An id that anybody owns in one partition is nobody else's in the others.
        """
        user = session.rights.owner
        if user and producer_id != NO_PRODUCER:
            partitions = self._wiring.partitions
            for hosted in filter(None, map(partitions.get, topic.all_groups)):
                owner = hosted.core.dedupe.owner_of(producer_id)
                if owner not in ("", user):
                    audit.foreign_producer(session, topic.name, producer_id)
                    raise Fenced(
                        "this producer id belongs to another user; open a producer without an id"
                    )
        return user

    def _push(self, connection: int, session: Session, demand: Demand, payload: memoryview) -> None:
        frame, topic, opened = demand.frame, demand.topic, demand.opened
        assert isinstance(frame, frames.Push)
        assert isinstance(opened, OpenedProducer)
        assert topic is not None
        groups = topic.waiting if opened.delayed else topic.groups
        origin = Origin(connection, frame.handle, 0)
        hosted = self._wiring.partitions.get(groups[frame.partition])
        if hosted is None:
            self._refuse_elsewhere(origin, topic, frame.partition, payload)
            return
        for info in self._checked(payload):
            if (info.producer_id, info.epoch) != (opened.producer_id, opened.epoch):
                raise ProtocolError(
                    f"a batch of another producer or epoch was pushed to handle {frame.handle}"
                )
            try:
                if self._has_judges(topic, hosted, origin, info):
                    self._wait(hosted, origin, session, topic, opened, info, payload)
                elif opened.transaction:
                    self._check(info, payload)
                    if self._wiring.hooks.on_publish is not None:
                        self._show_staged(hosted, session, opened, info, payload)
                    self._transacting.stage(hosted, origin, opened, info, payload)
                else:
                    user = self._user_of(session, topic, hosted, info)
                    refused = _refused_before(opened, frame.partition, info)
                    self._produce(hosted, origin, info, payload, user, refused)
            except HocketError as error:
                refusal = events.Refused(origin, info.sequence, error.code, str(error))
                self.refused(hosted, refusal)
                break  # the batches behind this one would leave a gap

    def _refuse_elsewhere(
        self, origin: Origin, topic: Topic, partition: int, payload: memoryview
    ) -> None:
        """The partition is on another node; it is new, say, and the handle older."""
        error = self._wiring.catalogue.not_here(
            topic, self._wiring.catalogue.leader_of(topic, partition)
        )
        (info, *_) = self._checked(payload)
        self._refuse(origin, partition, info.sequence, error.code, str(error))

    def _user_of(self, session: Session, topic: Topic, hosted: Hosted, info: BatchInfo) -> str:
        """Who sends the batch. Raises Fenced if its producer id belongs to another user."""
        user = session.rights.owner
        if user and hosted.core.dedupe.owner_of(info.producer_id) != user:  # it is new here
            self._check_owner(session, topic, info.producer_id)
        return user

    def _publish(
        self, connection: int, session: Session, demand: Demand, payload: memoryview
    ) -> None:
        frame, topic = demand.frame, demand.topic
        assert isinstance(frame, frames.Publish)
        assert topic is not None
        infos = self._checked(payload)
        if len(infos) != 1:
            raise ProtocolError(f"Publish carries one batch, not {len(infos)}")
        (info,) = infos
        if info.producer_id.startswith(OWN_PRODUCERS):
            raise OutOfRange("this producer id is one of the broker's own; open one without an id")
        partition = frame.partition
        if partition == -1:
            partition = chosen_partition(payload, info, len(topic.groups))
            self._wiring.catalogue.check_here(topic, (partition,))
        groups = topic.waiting if frame.delayed else topic.groups
        hosted = self._wiring.partitions[groups[partition]]
        origin = Origin(connection, 0, frame.request)
        if self._has_judges(topic, hosted, origin, info):
            self._wait(hosted, origin, session, topic, None, info, payload)
            return
        user = self._user_of(session, topic, hosted, info)
        self._produce(hosted, origin, info, payload, user)

    def _checked(self, payload: memoryview) -> list[BatchInfo]:
        try:
            infos = whole_batches(payload)
        except CorruptData as error:
            raise ProtocolError(f"what was sent is not a whole batch: {error}") from error
        if not infos:
            raise ProtocolError("a frame that should carry a batch carries none")
        return infos

    def _produce(
        self,
        hosted: Hosted,
        origin: Origin,
        info: BatchInfo,
        payload: memoryview,
        user: str,
        refused: int | None = None,
    ) -> None:
        self._check(info, payload)
        on_publish, sent_crc = self._wiring.hooks.on_publish, None
        if on_publish is not None:
            sent_crc, core = info.header.body_crc, hosted.core
            # One that is stored already is not shown to plug-ins again: what they make of it may
            # differ every time. It is compared with what was sent before, not with what is stored.
            known = core.dedupe.producers.get(info.producer_id)
            if (  # first what most are, without a call
                known is not None
                and info.sequence == known.next_sequence
                and info.epoch == known.epoch
            ) or core.dedupe.judge(info.producer_id, info.epoch, info.sequence) is NEW:
                who = "" if user == IN_PROCESS else user
                made = on_publish(passing_of(
                    (core.topic, core.number, who, payload, info, hosted.waits_for != 0, False)
                ))  # fmt: skip
                if made is not None:
                    info, payload = self._made(made)
        if self._wiring.hooks.meter is not None:
            self._wiring.hooks.meter.pushed(origin, hosted.core.number, info.sequence)
        self._store(hosted, origin, info, payload, user, refused, sent_crc)

    def _store(
        self,
        hosted: Hosted,
        origin: Origin,
        info: BatchInfo,
        payload: memoryview,
        user: str,
        refused: int | None,
        sent_crc: int | None = None,
    ) -> None:
        """`sent_crc` is that of the batch as it was sent, if plug-ins may have changed it."""
        self._wiring.partitions.admit(hosted.group, info.header.length + OWNER_BYTES)
        batch = batch_of(info, payload)
        if sent_crc is not None:
            batch.crc, batch.changeable = sent_crc, True
        if self._wiring.hooks.tracer is not None and info.header.flags & FLAG_HEADERS:
            core = hosted.core
            self._wiring.hooks.tracer.arrived(origin, core.topic, core.number, payload, info)
        now_us = self._wiring.clock.now_us()
        if hosted.waits_for:
            batch.dues = _checked_dues(payload, info, now_us)
        self._wiring.partitions.step(hosted, events.Produce(origin, batch, now_us, user, refused))

    def _made(self, made: bytes) -> tuple[BatchInfo, memoryview]:
        payload = memoryview(made)
        (info,) = whole_batches(payload)
        self._check(info, payload)
        return info, payload

    def _show_staged(
        self,
        hosted: Hosted,
        session: Session,
        opened: OpenedProducer,
        info: BatchInfo,
        payload: memoryview,
    ) -> None:
        """Raises why plug-ins do not want a batch of a transaction. They cannot change it: whoever
        commits the transaction names its batches by their checksums."""
        on_publish = self._wiring.hooks.on_publish
        key = StageKey(opened.transaction, opened.number, opened.producer_id)
        if on_publish is None or info.sequence < hosted.core.stages.next_sequence(key):
            return
        passing = Passing(
            hosted.core.topic, hosted.core.number, session.rights.user, payload, info,
            transaction=True,
        )  # fmt: skip
        if on_publish(passing) is not None:
            raise Rejected(UNCHANGED)

    # --- batches that plug-ins elsewhere look at ---------------------------------------------

    def _has_judges(self, topic: Topic, hosted: Hosted, origin: Origin, info: BatchInfo) -> bool:
        """Whether it has to wait for somebody's judgement, or behind one that waits."""
        judges, dockets = self._wiring.hooks.judges, self._dockets.dockets
        if judges is None and not dockets:
            return False
        if judges is not None and judges.look_at(topic.name):
            return True
        return docket_of(hosted.group, origin, info) in dockets  # else it would overtake that one

    def _wait(
        self,
        hosted: Hosted,
        origin: Origin,
        session: Session,
        topic: Topic,
        opened: OpenedProducer | None,
        info: BatchInfo,
        payload: memoryview,
    ) -> None:
        self._check(info, payload)
        own = bytes(payload[info.position : info.position + info.size])  # it is used again
        waiting = Waiting(
            hosted.group, hosted.core.number, origin, session, topic, opened,
            info._replace(position=0), memoryview(own),
        )  # fmt: skip
        if self._wiring.hooks.meter is not None:
            self._wiring.hooks.meter.pushed(origin, hosted.core.number, info.sequence)
        self._dockets.add(waiting)

    def _is_next(self, waiting: Waiting) -> bool:
        """Whether it would be stored now. See `_produce`: one that is stored is not shown again."""
        hosted, info, opened = self._hosted(waiting), waiting.info, waiting.opened
        if hosted is None:
            return False
        if opened is not None and opened.transaction:
            key = StageKey(opened.transaction, opened.number, opened.producer_id)
            return info.sequence >= hosted.core.stages.next_sequence(key)
        return hosted.core.dedupe.judge(info.producer_id, info.epoch, info.sequence) is NEW

    def _ask(self, waiting: Waiting, judged: Judged) -> None:
        hooks, hosted = self._wiring.hooks, self._hosted(waiting)
        passing = Passing(
            waiting.topic.name, waiting.number, waiting.session.rights.user, waiting.payload,
            waiting.info, hosted is not None and bool(hosted.waits_for),
            waiting.opened is not None and bool(waiting.opened.transaction),
        )  # fmt: skip
        if hooks.judges is not None:
            hooks.judges.ask(passing, judged)
            return
        # They were switched off while it waited. Those within the node still look at it.
        try:
            made = None if hooks.on_publish is None else hooks.on_publish(passing)
        except HocketError as error:
            judged(error)
        else:
            judged(made)

    def _release(self, waiting: Waiting) -> None:
        """It is judged, and its turn: store it, where its partition is now."""
        origin, info, opened = waiting.origin, waiting.info, waiting.opened
        try:
            self._store_judged(waiting)
        except HocketError as error:
            hosted, session = self._hosted(waiting), waiting.session
            if hosted is not None:
                self.refused(hosted, events.Refused(origin, info.sequence, error.code, str(error)))
            elif opened is None:
                self._wiring.network.send(origin.connection, failure(origin.request, error))
            elif session.handles.get(origin.handle) is opened:  # else it has heard that it ended
                self._refuse(origin, waiting.number, info.sequence, error.code, str(error))

    def _store_judged(self, waiting: Waiting) -> None:
        origin, opened, outcome = waiting.origin, waiting.opened, waiting.outcome
        if isinstance(outcome, HocketError):
            raise outcome
        hosted = self._hosted(waiting)
        if hosted is None:
            raise self._elsewhere(waiting)
        info, payload = waiting.info, waiting.payload
        if outcome is not None:
            info, payload = self._made(outcome)
        if opened is not None and opened.transaction:
            if outcome is not None:
                raise Rejected(UNCHANGED)
            self._transacting.stage(hosted, origin, opened, info, payload)
            return
        user = self._user_of(waiting.session, waiting.topic, hosted, info)
        refused = None if opened is None else _refused_before(opened, waiting.number, info)
        sent_crc = waiting.info.header.body_crc
        self._store(hosted, origin, info, payload, user, refused, sent_crc)

    def _hosted(self, waiting: Waiting) -> Hosted | None:
        return self._wiring.partitions.get(waiting.group)

    def _elsewhere(self, waiting: Waiting) -> HocketError:
        """Why the partition of a batch is not here any more."""
        catalogue, name = self._wiring.catalogue, waiting.topic.name
        topic = catalogue.topics.get(name)
        if topic is None or waiting.group not in topic.all_groups:
            return UnknownTopic(f"topic {name!r} was deleted while plug-ins looked at the batch")
        leader = catalogue.leader_of(topic, waiting.number)
        return catalogue.not_here(topic, leader) if leader else catalogue.no_leader(topic)

    def give_up_waiting(self, error: HocketError) -> None:
        """Refuse all batches that plug-ins elsewhere still look at: the node goes down."""
        self._dockets.give_up(error)

    # --- checks, and answers -----------------------------------------------------------------

    def _check(self, info: BatchInfo, payload: memoryview) -> None:
        """Raises for a batch that is too large, or that nobody could read."""
        header = info.header
        if header.length > self._wiring.settings.limits.batch_bytes_max:
            raise MessageTooLarge(
                f"a batch of {header.length} bytes is more than the "
                f"{self._wiring.settings.limits.batch_bytes_max} this broker takes"
            )
        try:
            check_content(payload, info)
        except CorruptData as error:
            raise CorruptData(
                f"batch {info.sequence} of its producer was not stored, for nobody could read it: "
                f"{error}; encode it anew"
            ) from error

    def staged(self, hosted: Hosted, effect: StageAcked) -> None:
        origin, number = effect.origin, hosted.core.number
        answer = frames.PushAcked(0, origin.handle, number, effect.sequence, b"")
        self._wiring.network.send(origin.connection, answer)

    def acked(self, hosted: Hosted, effect: events.Acked) -> None:
        origin, number = effect.origin, hosted.core.number
        if self._wiring.hooks.meter is not None:
            batches = len(effect.offsets)
            self._wiring.hooks.meter.acked(origin, number, effect.sequence, batches)
        if self._wiring.hooks.tracer is not None:
            self._wiring.hooks.tracer.acked(origin, number, effect.sequence, effect.offsets)
        answer: Frame
        if origin.request:
            answer = frames.Published(origin.request, number, effect.offsets[0])
        else:
            offsets = packed(effect.offsets)
            answer = frames.PushAcked(0, origin.handle, number, effect.sequence, offsets)
        self._wiring.network.send(origin.connection, answer)

    def refused(self, hosted: Hosted, effect: events.Refused) -> None:
        origin, code, message = effect.origin, effect.code, effect.message
        if self._wiring.hooks.tracer is not None:
            number = hosted.core.number
            self._wiring.hooks.tracer.refused(origin, number, effect.sequence, code)
        session = self._wiring.sessions.get(origin.connection)
        if code == ProducerConflict.code and session is not None:
            log.warning(
                "refused: %s batch %d for partition %d of topic %r: %s",
                audit.who(session), effect.sequence, hosted.core.number, hosted.core.topic, message,
            )  # fmt: skip
        if origin.request:
            answer = frames.Failure(origin.request, code, told(message))
            self._wiring.network.send(origin.connection, answer)
        else:
            self._refuse(origin, hosted.core.number, effect.sequence, code, message)

    def _refuse(self, origin: Origin, number: int, sequence: int, code: str, message: str) -> None:
        """Refuse a pushed batch, and those behind it."""
        session = self._wiring.sessions.get(origin.connection)
        opened = session.handles.get(origin.handle) if session is not None else None
        if isinstance(opened, OpenedProducer):
            opened.refused[number] = min(opened.refused.get(number, sequence), sequence)
        answer = frames.PushRefused(0, origin.handle, number, sequence, code, told(message))
        self._wiring.network.send(origin.connection, answer)


def _refused_before(opened: OpenedProducer, partition: int, info: BatchInfo) -> int | None:
    """The first batch of the handle that was refused, and did not come again."""
    refused = opened.refused.get(partition) if opened.refused else None
    if refused == info.sequence:
        del opened.refused[partition]  # it has come again
        return None
    return refused


def _checked_dues(payload: memoryview, info: BatchInfo, now_us: int) -> array[int]:
    """When each record of a batch with delayed records is due.

    All of the batch is looked at: if a record could not be read when it is due, nobody would be
    there any more to be told.
    """
    batch = parse(payload, info.position, verify=False)
    batch.check(0, batch.count)
    dues = array("q", batch.timestamps())
    if max(dues) > now_us + PUBLISH_DELAY_US_MAX + DAY_US:  # a day more: clocks differ
        raise OutOfRange(
            f"a message is delayed by {format_duration(PUBLISH_DELAY_US_MAX)} at most, and one of "
            f"these would be due in {format_duration(max(dues) - now_us)}"
        )
    return dues


def chosen_partition(payload: memoryview, info: BatchInfo, partitions: int) -> int:
    """The partition of a batch whose sender leaves it to us.

    A retry of the batch must get the same partition, or the batch would be stored twice.
    """
    key_hash = first_key_hash(payload, info)
    if key_hash is not None:
        return key_hash % partitions
    return partition_of(info.producer_id + info.sequence.to_bytes(8, "little"), partitions)
