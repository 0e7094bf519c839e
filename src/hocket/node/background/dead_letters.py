"""Dead letters: messages that were delivered in vain are copied to `<topic>.dlq`, then given up.

A unit is a run of messages of one shared index that the log says is dying. A unit becomes batches,
cut in a way that follows from its messages, each of a producer whose id follows from the unit and
the batch. So after a crash the same unit makes the same batches, and those that are stored already
are recognised. Retention may have taken the front of the unit by then. So batches are cut from its
end, and are known by where they end: all but the first are as before, and that one is recognised.
A unit whose batches cannot be stored (the disk is full, say) waits and is tried again. If another
node holds the partition of the dead letters, the batches go there (`node.background.storing`); only
when that node says that they are stored, the messages are given up here.

What cannot be read is set aside as well as it can be. A batch that cannot be opened makes one dead
letter with the bytes of the whole batch, whichever unit meets it first: that is produced under an
id that follows from the batch. A single record that cannot be read makes a dead letter with what
can be told of it, and a damaged range of the log one without any bytes. The header `unreadable`
says which of the three it is; nobody replays them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b

from hocket import frames
from hocket.core.origin import Origin
from hocket.core.partition import events
from hocket.core.session.session import DEAD_LETTERS
from hocket.core.sharing.state import DyingRow, Unit as Dying
from hocket.errors import CorruptData, HocketError, OutOfRange, TopicExists
from hocket.frames import Frame
from hocket.log.model import FileUnreadable, ReadResult
from hocket.model import DAY_US, OWN_PRODUCERS, SECOND_US, TopicConfig
from hocket.node.background.storing import Storing
from hocket.node.running.own_requests import NODE
from hocket.node.running.partitions import Hosted, batch_of
from hocket.node.wiring import Wiring
from hocket.wire.batch import Batch, check_entries, encode, iterate_entries, parse
from hocket.wire.entry import Header

log = logging.getLogger("hocket.node")

AT_ONCE = 8  # units that are worked on at the same time, for each node that holds dead letters
READ_BYTES = 1 << 20
PIECE_BYTES = 1 << 20  # of one batch, unless a single message is larger
CONFIG = TopicConfig(disk_retention_us=30 * DAY_US)  # replicas: as many as the topic has
PART_BYTES = 32 << 20  # of a batch that cannot be read, in one dead letter
REMIND_US = 600 * SECOND_US  # so often it is said again why dead letters wait
PREFIX = "hocket-dlq-"  # of the headers that say where a dead letter came from

Headers = dict[str, bytes | None]
Record = tuple[bytes, bytes | None, Headers]  # value, key, headers


@dataclass(slots=True)
class Piece:
    """Records that become one batch of the dead letters."""

    producer_id: bytes
    sequence: int
    records: list[Record]


@dataclass(slots=True, eq=False)
class Unit:
    hosted: Hosted
    index: str
    start: int
    end: int
    deliveries: int
    reason: str
    epoch: int  # of the index: a seek raises it, and after that the same messages die anew
    at: int  # the next offset to read
    records: list[Record] = field(default_factory=list)
    raw: list[Piece] = field(default_factory=list)  # batches that cannot be opened
    is_read: bool = False
    pieces: list[Piece] = field(default_factory=list)
    stored: int = 0  # how many of the pieces are in the dead letters, durably
    trouble: str = ""  # why the unit was put off, as was last logged
    told_us: int = 0  # when that was
    life: int = 0  # see core.sharing.state.Unit: a message that was revived dies anew

    @property
    def topic(self) -> str:
        return self.hosted.core.topic

    @property
    def source(self) -> tuple[int, str]:
        """The group and the index. Units of one source are stored one after the other."""
        return self.hosted.group, self.index

    @property
    def is_dying(self) -> bool:
        """False if the index was put elsewhere or deleted meanwhile."""
        core = self.hosted.core
        share, cursor = core.shares.get(self.index), core.cursors.applied.get(self.index)
        if share is None or cursor is None or cursor.epoch != self.epoch:
            return False
        return any(unit.start < self.end and self.start < unit.end for unit in share.dying)

    def producer_id(self, start: int, end: int, what: str = "") -> bytes:
        """The same whenever this is stored, so that it is stored once. Clients may not use it,
        or one of them could have the broker take a dead letter for a repetition."""
        name = f"{self.hosted.group}/{self.index}/{self.epoch}/{start}/{end}{what}"
        if self.life and not what:
            name += f"/{self.life}"
        digest_size = 16 - len(OWN_PRODUCERS)
        return (
            OWN_PRODUCERS
            + blake2b(name.encode(), digest_size=digest_size, person=b"hocket-dlq").digest()
        )

    def piece_of(self, records: list[Record]) -> Piece:
        *_, (_value, _key, headers) = records
        last = int(headers[PREFIX + "offset"] or b"")
        return Piece(self.producer_id(self.end, last), 0, records)

    def about(self, offset: int, timestamp: int, reason: str, **more: object) -> Headers:
        """The headers that say where a dead letter comes from, and why."""
        source = {
            "topic": self.topic,
            "partition": self.hosted.core.number,
            "offset": offset,
            "timestamp": timestamp,
            "index": self.index,
            "deliveries": self.deliveries,
            "reason": reason,
            **more,
        }
        return {PREFIX + name: str(fact).encode(errors="replace") for name, fact in source.items()}


class DeadLetters:
    def __init__(
        self,
        wiring: Wiring,
        create_topic: Callable[[Origin, str, TopicConfig], None],
        storing: Storing,
    ) -> None:
        self._wiring = wiring
        self._storing = storing
        self._create_topic = create_topic
        self.waiting: list[Unit] = []  # for `work`
        self._under_way: dict[int, Unit] = {}
        self._put_off_units: list[Unit] = []
        # The number of the unit for which a topic is being made -> which others wait for it.
        self._making: dict[int, list[int]] = {}
        self._makers: dict[str, int] = {}  # topic -> that number
        self._numbers = wiring.network.numbers
        # source -> epoch and offset of the last batch of it that was set aside: it is stored before
        # the next unit of that source is looked at
        self._set_aside: dict[tuple[int, str], tuple[int, int]] = {}

    def take(self, hosted: Hosted, index: str, dying: Sequence[DyingRow]) -> None:
        """Work on these units later, which are durably dying."""
        if dying:
            epoch = hosted.core.cursors.applied[index].epoch
            for each in (Dying(*row) for row in dying):
                unit = Unit(
                    hosted, index, each.start, each.end, each.deliveries, each.reason, epoch,
                    at=each.start, life=each.life,
                )  # fmt: skip
                self.waiting.append(unit)

    def leave(self, hosted: Hosted) -> None:
        """Another node leads this partition from now on, and goes on with what dies there."""
        for unit in (*self._under_way.values(), *self._put_off_units, *self.waiting):
            if unit.hosted is hosted:
                self._set_aside.pop(unit.source, None)  # it may not be stored yet
        self.waiting = [unit for unit in self.waiting if unit.hosted is not hosted]
        self._put_off_units = [unit for unit in self._put_off_units if unit.hosted is not hosted]
        for number, unit in list(self._under_way.items()):
            if unit.hosted is hosted:
                del self._under_way[number]

    def work(self) -> None:
        """Begin with units that wait, one at a time of each source. Called each turn and tick."""
        # Whatever is put off holds up its source: the units of one are stored in their order.
        busy = {unit.source for unit in (*self._under_way.values(), *self._put_off_units)}
        # By home: a node that is away holds up what goes to it, and nothing else.
        counts = Counter(map(self._home_of, self._under_way.values()))
        waiting, self.waiting = self.waiting, []
        for unit in waiting:
            home = self._home_of(unit)
            if unit.source in busy or counts[home] >= AT_ONCE:
                self.waiting.append(unit)
                continue
            number = next(self._numbers)
            self._under_way[number] = unit
            busy.add(unit.source)
            counts[home] += 1
            self._go_on(number, unit)

    def _home_of(self, unit: Unit) -> str:
        """The node to which the dead letters go; empty while there is no topic for them."""
        topic = self._wiring.catalogue.topics.get(unit.topic + DEAD_LETTERS)
        if topic is None:
            return ""
        return self._wiring.catalogue.leader_of(topic, unit.hosted.core.number % len(topic.groups))

    def _go_on(self, number: int, unit: Unit) -> None:
        if number not in self._under_way:
            return  # another node goes on with it
        try:
            if not self._wiring.partitions.holds(unit.hosted):
                del self._under_way[number]  # its topic was deleted, and the messages with it
            elif not unit.is_read:
                self._read(number, unit)
            elif unit.stored < len(unit.pieces):
                self._store(number, unit)
            else:
                self._wiring.partitions.admit(unit.hosted.group)
                del self._under_way[number]
                if unit.is_dying:
                    self._wiring.shares.dead_lettered(unit.hosted, unit.index, unit.start, unit.end)
        except HocketError as error:
            self._put_off(number, unit, str(error))

    def _put_off(self, number: int, unit: Unit, why: str = "") -> None:
        """Try the unit again at the next tick; nothing is lost meanwhile."""
        now_us = self._wiring.clock.now_us()
        if why and (why != unit.trouble or now_us - unit.told_us >= REMIND_US):
            unit.trouble, unit.told_us = why, now_us
            log.warning(
                "messages %d to %d of topic %r, partition %d, cannot be put into the dead letters "
                "yet, and those behind them of index %r wait: %s",
                unit.start, unit.end - 1, unit.topic, unit.hosted.core.number, unit.index, why,
            )  # fmt: skip
        if self._under_way.pop(number, None) is not None:  # else another node goes on with it
            self._put_off_units.append(unit)

    def tick(self) -> None:
        self.waiting[:0] = self._put_off_units  # in front: they came first
        self._put_off_units.clear()
        if self.waiting:
            self.work()

    # --- reading ---------------------------------------------------------------------------------

    def _read(self, number: int, unit: Unit) -> None:
        """Read all the messages of the unit, in as many reads as that takes."""
        unit.at = max(unit.at, unit.hosted.core.start)  # retention may have taken the front

        def found(read: ReadResult | HocketError) -> None:
            if number not in self._under_way:
                return  # another node goes on with it
            if isinstance(read, FileUnreadable):  # it may pass
                self._put_off(number, unit, str(read))
                return
            if isinstance(read, CorruptData) and unit.hosted.copy is not None:
                self._put_off(number, unit, str(read))
                unit.hosted.copy.cannot_read(read)  # others have it, and go on
                return
            if isinstance(read, OutOfRange):
                self._are_gone(unit, read)
            elif isinstance(read, HocketError):
                self._keep_damaged(unit, read)
            else:
                self._keep(unit, read)
            if unit.at >= unit.end:
                unit.is_read = True
                unit.pieces = [*map(unit.piece_of, _cut(unit.records)), *unit.raw]
            self._go_on(number, unit)

        try:
            read = self._wiring.log.read(
                unit.hosted.group, unit.at, bytes_max=READ_BYTES, end_offset=unit.end, done=found
            )
        except (OutOfRange, CorruptData) as error:
            found(error)
            return
        if read is not None:
            found(read)

    def _keep(self, unit: Unit, read: ReadResult) -> None:
        if not read.bytes:  # all that is left is an accepted loss, or gone
            self._are_gone(unit, OutOfRange("they are gone"))
            return
        for piece in read.slices:
            try:
                for position, header in iterate_entries(piece):
                    first = max(unit.at, header.base_offset)
                    last = min(unit.end, header.end_offset)
                    if first < last:
                        self._keep_batch(unit, piece[position : position + header.size], header)
                        unit.at = last
            except CorruptData as error:  # a header in memory does not match its checksum
                self._keep_damaged(unit, error)

    def _keep_batch(self, unit: Unit, entry: memoryview, header: Header) -> None:
        try:
            batch = parse(entry)
            batch.columns()
        except CorruptData as error:
            self._keep_raw(unit, entry, header, error)
            return
        first = max(0, unit.at - batch.base_offset)
        last = min(batch.count, unit.end - batch.base_offset)
        try:
            self._keep_records(unit, batch, first, last)
        except CorruptData as error:
            for record in range(first, last):
                if batch.unreadable(record, record + 1):
                    self._keep_remains(unit, batch, record, error)
                else:
                    self._keep_records(unit, batch, record, record + 1)

    def _keep_records(self, unit: Unit, batch: Batch, first: int, last: int) -> None:
        rows = zip(
            range(batch.base_offset + first, batch.base_offset + last),
            batch.values(first, last),
            batch.keys(first, last),
            batch.headers(first, last),
            batch.timestamps(first, last),
            strict=True,
        )
        unit.records += [
            (value, key, {**headers, **unit.about(offset, timestamp, unit.reason)})
            for offset, value, key, headers, timestamp in rows
        ]

    def _keep_remains(self, unit: Unit, batch: Batch, record: int, error: CorruptData) -> None:
        offset = batch.base_offset + record
        (timestamp,) = batch.timestamps(record, record + 1)
        value, key, headers = batch.remains(record)
        reason = f"cannot be read: {error}"
        about = unit.about(offset, timestamp, reason, end=offset + 1, unreadable="record")
        unit.records.append((value, key, {**headers, **about}))

    def _keep_raw(self, unit: Unit, entry: memoryview, header: Header, error: CorruptData) -> None:
        """Set the whole batch aside, once, though its messages may die in many units."""
        start, end = header.base_offset, header.end_offset
        known = unit.epoch, start
        if self._set_aside.get(unit.source) == known:
            return
        log.error(
            "topic %r, partition %d: offsets %d to %d cannot be read, and are set aside, as one "
            "dead letter with their bytes: %s",
            unit.topic, unit.hosted.core.number, start, end - 1, error,
        )  # fmt: skip
        self._set_aside[unit.source] = known
        part_bytes = min(PART_BYTES, self._wiring.settings.limits.batch_bytes_max // 2)
        parts = [entry[at : at + part_bytes] for at in range(0, len(entry), part_bytes)]
        for number, part in enumerate(parts):
            about = unit.about(
                start, header.max_timestamp, f"cannot be read: {error}",
                end=end, unreadable="batch", part=f"{number + 1}/{len(parts)}",
            )  # fmt: skip
            mine = unit.producer_id(start, end, "/raw")
            unit.raw.append(Piece(mine, number, [(bytes(part), None, about)]))

    def _keep_damaged(self, unit: Unit, error: HocketError) -> None:
        """Nothing matches a checksum: the dead letter says only where the messages were."""
        start, end = unit.at, unit.end
        if isinstance(error, CorruptData) and error.end is not None:
            end = min(max(error.end, start + 1), end)
        about = unit.about(
            start, 0, f"damaged where it is stored: {error}", end=end, unreadable="damaged"
        )
        unit.records.append((b"", None, about))
        unit.at = end

    def _are_gone(self, unit: Unit, error: HocketError) -> None:
        """Retention has removed them, or an operator has given them up: nothing is left."""
        log.error(
            "messages %d to %d of topic %r, partition %d, were delivered in vain and cannot be "
            "put into the dead letters, for they are not there any more: %s",
            min(unit.at, unit.end - 1), unit.end - 1, unit.topic, unit.hosted.core.number, error,
        )  # fmt: skip
        unit.at = unit.end

    # --- storing ---------------------------------------------------------------------------------

    def _store(self, number: int, unit: Unit) -> None:
        name = unit.topic + DEAD_LETTERS
        topic = self._wiring.catalogue.topics.get(name)
        if topic is None:
            self._make_topic(number, unit, name)
            return
        goal = unit.hosted.core.number % len(topic.groups)
        group = topic.groups[goal]
        piece = unit.pieces[unit.stored]
        values, keys, headers = zip(*piece.records, strict=True)
        now_us = self._wiring.clock.now_us()
        entry = memoryview(
            encode(
                values,
                timestamps=now_us,
                keys=keys,
                headers=[tuple(each.items()) for each in headers],
                producer_id=piece.producer_id,
                sequence=piece.sequence,
            )
        )
        (info,) = check_entries(entry, verify=False)
        hosted = self._wiring.partitions.get(group)
        if hosted is None:
            done = partial(self._stored_elsewhere, number, unit)
            self._storing.store(topic, goal, info.header.count, bytes(entry), done)
            return
        self._wiring.partitions.admit(hosted.group, info.header.length)
        batch = batch_of(info, entry)
        batch.crc = None  # stored again after a crash, it has another timestamp
        produce = events.Produce(Origin(NODE, 0, number), batch, now_us)
        self._wiring.partitions.step(hosted, produce)

    def _stored_elsewhere(self, number: int, unit: Unit, error: HocketError | None) -> None:
        if error is not None:
            self._put_off(number, unit, str(error))
            return
        if number in self._under_way:
            unit.stored += 1
        self._go_on(number, unit)

    def _make_topic(self, number: int, unit: Unit, name: str) -> None:
        maker = self._makers.get(name)
        if maker in self._making:
            self._making[maker].append(number)
            return
        try:
            self._create_topic(Origin(NODE, 0, number), name, self._config_of(unit.topic))
        except TopicExists:  # a client is making the topic, and that is not committed yet
            self._put_off(number, unit)
        else:
            self._makers[name] = number
            self._making[number] = []

    def _config_of(self, topic: str) -> TopicConfig:
        known = self._wiring.catalogue.topics.get(topic)
        return replace(CONFIG, replication=1 if known is None else known.replication)

    def answered(self, frame: Frame) -> None:
        """One of our own requests was answered: to make the topic, or to store a piece."""
        waiting = [frame.request, *self._making.pop(frame.request, ())]
        for number in waiting:
            unit = self._under_way.get(number)
            if unit is None:  # it is not ours, or another node goes on with it
                continue
            if isinstance(frame, frames.Published):
                unit.stored += 1
            if isinstance(frame, frames.Failure):
                self._put_off(number, unit, frame.message)
            else:
                self._go_on(number, unit)


def _cut(records: list[Record]) -> list[list[Record]]:
    """Cut records, from the last one on, into batches that are not too large."""
    pieces: list[list[Record]] = []
    size = PIECE_BYTES
    for record in reversed(records):
        value, key, headers = record
        bytes_here = len(value) + len(key or b"")
        bytes_here += sum(len(name) + len(data or b"") for name, data in headers.items())
        if size + bytes_here > PIECE_BYTES:
            pieces.append([])
            size = 0
        pieces[-1].append(record)
        size += bytes_here
    return [piece[::-1] for piece in reversed(pieces)]
