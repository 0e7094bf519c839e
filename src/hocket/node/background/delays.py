"""Delayed messages that are due: moved from the log in which they wait into their partition.

For each such log a move is under way or none is. A move begins when the clock says that something
is due: the log is asked to release it, and says in an entry what goes (`core.partition.waiting`).
Then the released messages are read, in the order in which they go, and appended to the partition as
batches of a producer whose id and sequence follow from the log. When all are there, durably, the
log is told, and the next messages are released in the same entry, if more are due.

A move that cannot go on (the disk is full, say) is dropped, and begun again at the next tick. What
it had stored is recognised then. A message that cannot be read is damage: it is named in the log
of the broker, and the others go on without it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from hocket import frames
from hocket.core.origin import Origin
from hocket.core.partition import events
from hocket.core.partition.waiting import WaitingPartition
from hocket.errors import (
    CorruptData,
    Fenced,
    HocketError,
    OutOfRange,
    ProducerConflict,
    SequenceGap,
    UnknownProducer,
    UnknownTopic,
    from_code,
)
from hocket.frames import Frame
from hocket.log.model import FileUnreadable, ReadResult
from hocket.model import DUE_PRODUCERS, MINUTE_US
from hocket.node.running.own_requests import NODE
from hocket.node.running.partitions import Hosted, batch_of
from hocket.node.wiring import Wiring
from hocket.wire.batch import Batch, check_entries, encode, iterate_entries, parse

log = logging.getLogger("hocket.node")

RELEASED_AT_ONCE = 500  # messages; reading and storing them takes the node some milliseconds
PIECE_BYTES = 1 << 20  # of one batch, unless a single message is larger
READ_BYTES = 1 << 20
BATCHES_KEPT = 8  # that were read last: of a large batch often several messages are due together
AHEAD_US = MINUTE_US  # so long before its messages are due, a chunk of times may be sorted
SORTED_AT_ONCE = 16  # chunks, each tick; see core.partition.due_times

# Refusals by which the partition says that it does not know what was moved before.
_STRANGE = (SequenceGap, UnknownProducer, Fenced, ProducerConflict)

Record = tuple[bytes, bytes | None, dict[str, bytes | None], int]  # value, key, headers, due


@dataclass(slots=True, eq=False)
class Move:
    hosted: Hosted  # the log in which the messages wait
    core: WaitingPartition
    number: int  # of our own requests
    offsets: list[int] | None = None  # what is released; None: the log was asked, or told
    at: int = 0  # the next of them to be read
    sequence: int = 0  # of the next batch
    records: list[Record] = field(default_factory=list)  # read, and not stored yet
    size: int = 0  # of these
    batches: list[Batch] = field(default_factory=list)  # that were read last
    is_storing: bool = False  # the partition is being told of a batch at this moment


class Delays:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._moves: dict[int, Move] = {}  # by the group of the log in which messages wait
        self._by_number: dict[int, Move] = {}
        self._troubles: dict[int, str] = {}  # why a move was dropped, as was last logged

    # --- beginning -------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        for hosted in self._wiring.partitions.waiting.values():
            if hosted.group not in self._moves:
                self._look_at(hosted, now_us)

    def _look_at(self, hosted: Hosted, now_us: int) -> None:
        core = hosted.core
        assert isinstance(core, WaitingPartition)
        if core.released:
            move = self._begin(hosted, core)
            self._start(move, core.released)
        elif core.due.prepare(now_us + AHEAD_US, SORTED_AT_ONCE) or core.due.prepare(now_us, 0):
            due_us = core.due.next_us
            if due_us is not None and due_us <= now_us:
                self._ask(self._begin(hosted, core), events.Release(now_us, RELEASED_AT_ONCE))

    def _begin(self, hosted: Hosted, core: WaitingPartition) -> Move:
        move = Move(hosted, core, next(self._wiring.network.numbers))
        self._moves[hosted.group] = self._by_number[move.number] = move
        return move

    def _end(self, move: Move) -> None:
        del self._moves[move.hosted.group], self._by_number[move.number]

    def _ask(self, move: Move, event: events.Release | events.MovedOn | events.BeginLife) -> None:
        """Have the log say what is released, or that it has moved on."""
        move.offsets = None
        try:
            self._wiring.partitions.admit_progress(move.hosted.group)
        except HocketError as error:
            self._drop(move, error)
        else:
            self._wiring.partitions.step(move.hosted, event)

    def _drop(self, move: Move, error: HocketError) -> None:
        """Begin anew at the next tick; nothing is lost meanwhile."""
        group, why = move.hosted.group, str(error)
        if self._troubles.get(group) != why:
            self._troubles[group] = why
            log.warning("%s are due, and cannot be delivered yet: %s", move.hosted.where, why)
        self._end(move)

    def released(self, hosted: Hosted, effect: events.Released) -> None:
        """The log says, durably, what goes now."""
        move = self._moves.get(hosted.group)
        if move is None:
            return  # it was dropped; the next tick finds what is released
        if effect.offsets:
            self._start(move, effect.offsets)
        else:
            self._end(move)

    def _start(self, move: Move, offsets: list[int]) -> None:
        move.offsets, move.at, move.sequence = list(offsets), 0, move.core.sequence
        move.records, move.size = [], 0
        self._go_on(move)

    def _go_on(self, move: Move) -> None:
        """Read until a batch is full, or all is read, and store it; and so on until all is stored.

        What is answered at once is gone on with here, and not by those who bring the answer: there
        may be hundreds of batches, and the stack is not that deep.
        """
        while self._is_under_way(move):
            assert move.offsets is not None
            if move.at < len(move.offsets) and move.size < PIECE_BYTES:
                batch = self._known(move)
                if batch is not None:
                    self._keep(move, batch)
                elif not self._read(move):
                    return  # the disk is asked
            elif move.records:
                if not self._store(move):
                    return  # the batch is on its way
            else:
                self._ask(move, self._moved_on(move))
                return

    def _is_under_way(self, move: Move) -> bool:
        """False if it was dropped; then, or if the topic was deleted, nothing more is done."""
        if self._moves.get(move.hosted.group) is not move:
            return False
        if not self._wiring.partitions.holds(move.hosted):
            self._end(move)
            return False
        return True

    # --- reading ---------------------------------------------------------------------------------

    def _known(self, move: Move) -> Batch | None:
        assert move.offsets is not None
        offset = move.offsets[move.at]
        for batch in move.batches:
            if batch.base_offset <= offset < batch.end_offset:
                return batch
        return None

    def _read(self, move: Move) -> bool:
        """Read the batch with the next message, and more if they are wanted, too. False: later."""
        assert move.offsets is not None
        offset = move.offsets[move.at]
        end = offset + 1
        for following in move.offsets[move.at + 1 :]:
            if following != end:
                break
            end += 1

        def found(read: ReadResult | HocketError) -> None:
            if self._is_under_way(move):
                self._take(move, offset, read)
                self._go_on(move)

        try:
            read = self._wiring.log.read(
                move.hosted.group, offset, bytes_max=READ_BYTES, end_offset=end, done=found
            )
        except (OutOfRange, CorruptData) as error:
            self._take(move, offset, error)
            return True
        if read is not None:
            self._take(move, offset, read)
        return read is not None

    def _take(self, move: Move, offset: int, read: ReadResult | HocketError) -> None:
        """Keep the batches that were read; skip what can never be read."""
        if isinstance(read, FileUnreadable):  # it may pass
            self._drop(move, read)
            return
        error: HocketError = OutOfRange("it is gone")
        batches: list[Batch] = []
        if isinstance(read, HocketError):
            error = read
        else:
            try:
                for piece in read.slices:
                    batches += [parse(piece, position) for position, _ in iterate_entries(piece)]
            except CorruptData as damage:
                error = damage
        move.batches = [*batches, *move.batches][: max(BATCHES_KEPT, len(batches))]
        if not any(batch.base_offset <= offset < batch.end_offset for batch in batches):
            self._say_lost(move, offset, error)
            move.at += 1

    def _keep(self, move: Move, batch: Batch) -> None:
        """Take messages that follow one another in this batch, until ours is full."""
        assert move.offsets is not None
        first = last = move.offsets[move.at] - batch.base_offset
        for offset in move.offsets[move.at :]:
            if offset != batch.base_offset + last or last == batch.count:
                break
            last += 1
        try:
            rows = zip(
                batch.values(first, last),
                batch.keys(first, last),
                batch.headers(first, last),
                batch.timestamps(first, last),
                strict=True,
            )
        except CorruptData as error:
            self._say_lost(move, move.offsets[move.at], error)
            move.at += 1
            return
        for row in rows:
            move.at += 1
            move.records.append(row)
            move.size += _size(row)
            if move.size >= PIECE_BYTES:
                break

    def _say_lost(self, move: Move, offset: int, error: HocketError) -> None:
        log.error(
            "one of %s, number %d, is due and is lost, for it cannot be read: %s",
            move.hosted.where, offset, error,
        )  # fmt: skip

    # --- storing ---------------------------------------------------------------------------------

    def _store(self, move: Move) -> bool:
        """Append a batch to the partition itself. False: it is on its way, or the move is over."""
        hosted = self._wiring.partitions.get(move.hosted.waits_for)
        if hosted is None:  # the topic is being deleted
            self._end(move)
            return False
        values, keys, headers, dues = zip(*move.records, strict=True)
        entry = memoryview(
            encode(
                values,
                timestamps=dues,
                keys=keys,
                headers=[tuple(each.items()) for each in headers],
                producer_id=producer_id(move.core.life),
                sequence=move.sequence,
            )
        )
        (info,) = check_entries(entry, verify=False)
        try:
            self._wiring.partitions.admit(hosted.group, info.header.length)
        except HocketError as error:
            self._drop(move, error)
            return False
        batch = batch_of(info, entry)
        batch.crc = None  # after a crash, damage may have taken a message out of it
        now_us = self._wiring.clock.now_us()
        # Retention counts from now on: what comes late (the broker was down) must not go at once.
        batch.max_timestamp = max(batch.max_timestamp, now_us)
        produce = events.Produce(Origin(NODE, 0, move.number), batch, now_us)
        move.is_storing, sequence = True, move.sequence
        self._wiring.partitions.step(hosted, produce)
        move.is_storing = False
        return move.sequence > sequence

    def answered(self, frame: Frame) -> None:
        """A batch is stored in its partition, or was refused."""
        move = self._by_number.get(frame.request)
        if move is None:
            return
        if isinstance(frame, frames.Published):
            self._troubles.pop(move.hosted.group, None)
            move.sequence += 1
            move.records, move.size = [], 0
            if not move.is_storing:  # else `_go_on` is at work
                self._go_on(move)
            return
        assert isinstance(frame, frames.Failure)
        error = from_code(frame.code, frame.message)
        if isinstance(error, UnknownTopic):  # it was deleted just now, and what waits goes along
            self._end(move)
        elif isinstance(error, _STRANGE):
            log.warning(
                "%s go on under a new id, since their partition does not know the old one: %s",
                move.hosted.where, error,
            )  # fmt: skip
            self._ask(move, events.BeginLife(move.core.life + 1))
        else:
            self._drop(move, error)

    def _moved_on(self, move: Move) -> events.MovedOn:
        now_us = self._wiring.clock.now_us()
        is_ready = move.core.due.prepare(now_us, SORTED_AT_ONCE)
        due_us = move.core.due.next_us
        count = RELEASED_AT_ONCE if is_ready and due_us is not None and due_us <= now_us else 0
        return events.MovedOn(move.sequence, now_us, count)


def producer_id(life: int) -> bytes:
    """A partition has one log in which messages wait for it, so the life tells all ids apart."""
    return DUE_PRODUCERS + life.to_bytes(16 - len(DUE_PRODUCERS), "big")


def _size(record: Record) -> int:
    value, key, headers, _ = record
    size = len(value) + len(key or b"")
    return size + sum(len(name) + len(data or b"") for name, data in headers.items())
