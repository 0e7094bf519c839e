"""The near half of a producer: records gather into lanes, and are cut into batches.

Records with a key go to the partition of its hash, others to the sticky one, which moves on with
each batch cut there. A batch is cut when it is full, when its first record has waited for `linger`,
or, without linger, as soon as nothing of its lane is in flight: then the time an acknowledgement
takes decides how many records gather, and a lone record waits for nothing.

Cutting never waits. What waits is the beginning of a new batch while more than `window_bytes` are
unacknowledged; so a producer holds at most its window and one batch for each partition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from hocket.client.connection.session import Session, again
from hocket.client.producing.delivery import ProducerOptions, Pusher
from hocket.client.producing.gathering import Lane, Outcome, Outgoing, Stamp
from hocket.client.producing.records import Record
from hocket.errors import HocketError, MessageTooLarge, UnknownPartition, WrongType
from hocket.model import partition_of
from hocket.timers import Timer
from hocket.wire.batch import NO_PRODUCER, encode

VALUE_ALONE = (None, None, None, None)  # no key, headers, timestamp, nobody who waits


class ProducerCore(Pusher):
    """Called by one thread at a time, but for what `lane` says may be done by any."""

    def __init__(
        self,
        session: Session,
        topic: str,
        options: ProducerOptions,
        settle: Callable[[Outgoing, Outcome], None],
    ) -> None:
        super().__init__(session, topic, options, settle)
        self.sticky = Lane(0, room=-1)  # takes nothing: no partition is known yet
        self._gathering: dict[Lane, None] = {}  # a timer will look at these
        self._gather_timer: Timer | None = None

    # --- taking records --------------------------------------------------------------------------

    def lane_of(self, key: bytes | None, partition: object) -> Lane | None:
        """None: whichever is sticky."""
        if partition is None:
            return None if key is None else self.lanes[partition_of(key, len(self.lanes))]
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise WrongType(f"a partition is a number, not {partition!r}")
        if not 0 <= partition < len(self.lanes):
            raise UnknownPartition(
                f"topic {self.topic!r} has partitions 0 to {len(self.lanes) - 1}, "
                f"and no {partition}"
            )
        return self.lanes[partition]

    def offer(self, lane: Lane | None, record: Record, size: int) -> bool:
        """Take the record, unless the window is full."""
        self.check_usable()
        self.check_size(size)
        chosen = self._with_room(lane, size)
        if chosen is None:
            return False
        chosen.room -= size
        # A value alone goes as one, or it alone would make its whole batch a mixed one.
        chosen.items.append(record[0] if record[1:] == VALUE_ALONE else record)
        if not chosen.awake:
            self.wake(chosen)
        return True

    def offer_many(
        self, lane: Lane | None, records: Sequence[bytes | Record], ends: list[int], start: int
    ) -> int:
        """Take records from `start` on while the window has room; returns where it ended.

        `ends` are their sizes, added up: ends[i] is the size of the records 0 to i.
        """
        while start < len(records):
            self.check_usable()
            before = ends[start - 1] if start else 0
            chosen = self._with_room(lane, ends[start] - before)
            if chosen is None:
                break
            end = max(bisect_right(ends, before + chosen.room, start), start + 1)
            chosen.room -= ends[end - 1] - before
            chosen.items.extend(records[start:end])
            start = end
            if not chosen.awake:
                self.wake(chosen)
        return start

    def offer_entry(
        self,
        lane: Lane | None,
        encode_entry: Callable[[Stamp], bytes],
        count: int,
        waiter: Any = None,
    ) -> bool:
        """Take a batch that is encoded elsewhere, behind what has gathered; unless it must wait.

        The `waiter` is told where its first record stands.
        """
        self.check_usable()
        if self.is_full:
            return False
        chosen = self.sticky if lane is None else lane
        if chosen.items:
            self.cut(chosen)
        stamp = self._stamp(chosen)
        entry = encode_entry(stamp)
        if len(entry) > self.entry_bytes_max:
            raise MessageTooLarge(
                f"a batch of {len(entry)} bytes is more than the {self.entry_bytes_max} that this "
                "broker takes"
            )
        waiters = [] if waiter is None else [(0, waiter)]
        self.enqueue(chosen, self._outgoing(chosen, entry, count, stamp, waiters))
        if chosen is self.sticky:
            self._move_on()
        return True

    def check_size(self, size: int) -> None:
        if size > self.message_bytes_max:
            raise MessageTooLarge(
                f"a message of {size} bytes is more than the {self.message_bytes_max} that this "
                "broker takes"
            )

    @property
    def is_full(self) -> bool:
        return self.unacked_bytes >= self.options.window_bytes

    def _with_room(self, lane: Lane | None, size: int) -> Lane | None:
        """The lane for a record of this size, after a cut if it was full; None: wait."""
        chosen = self.sticky if lane is None else lane
        if size <= chosen.room:
            return chosen
        if chosen.items:
            self.cut(chosen)
            chosen = self.sticky if lane is None else lane
        if not chosen.items:
            if self.is_full:
                return None
            chosen.room = self.batch_bytes
        return chosen

    def withdraw(self, record: Record) -> bool:
        """Take back a record that is not part of a batch yet."""
        return any(lane.take_back(record) for lane in self.lanes)

    # --- cutting batches -------------------------------------------------------------------------

    def wake_for(self, lane: Lane, record: bytes | Record) -> None:
        """For a sender that found the lane asleep after it had appended this record."""
        if self.failure is not None or self._closing:
            # Everything gathered was cut or failed when we stopped. If the record is still here it
            # came too late, and its sender is told so; the others look after their own.
            if lane.take_back(record):
                self.check_usable()
        elif lane.items and not lane.awake:
            self.wake(lane)

    def wake(self, lane: Lane) -> None:
        """Records have gathered and nobody is going to look: see to it that somebody does."""
        lane.awake = True
        if self.options.linger_us:
            lane.begun_us = self.session.clock.ticks_us()
            self._gathering[lane] = None
            if self._gather_timer is None:
                self._set_gather_timer(self.options.linger_us)
        elif not lane.queue:  # else the next acknowledgement looks
            self.cut(lane)

    def _set_gather_timer(self, delay_us: int) -> None:
        self._gather_timer = self.session.timers.after(delay_us, self._look_at_gathered)

    def _look_at_gathered(self) -> None:
        self._gather_timer = None
        now = self.session.clock.ticks_us()
        linger = self.options.linger_us
        for lane in list(self._gathering):
            if lane.begun_us + linger <= now:
                del self._gathering[lane]
                lane.awake = False
                if lane.items:
                    self.cut(lane)
        if self._gathering:
            due = min(lane.begun_us for lane in self._gathering) + linger
            self._set_gather_timer(due - now)

    def _lane_is_idle(self, lane: Lane) -> None:
        if not self.options.linger_us:
            lane.awake = False
            if lane.items:
                self.wake(lane)

    def stop_taking(self) -> None:
        """It is about to be closed; what was taken is still delivered."""
        self._closing = True
        for lane in self.lanes:
            lane.room, lane.awake = -1, False
        self.cut_all()

    def cut_all(self) -> int:
        """Cut what has gathered anywhere. Every batch so far has a smaller serial than this."""
        for lane in self.lanes:
            if lane.items:
                self.cut(lane)
        return self.new_serial()

    def cut(self, lane: Lane) -> None:
        items = lane.take()
        self._cut_items(lane, items)
        lane.drop(len(items))
        lane.begun_us = self.session.clock.ticks_us()
        if not self._closing:
            lane.room = 0 if self.is_full else self.batch_bytes
        if lane is self.sticky:
            self._move_on()

    def _cut_items(self, lane: Lane, items: list[bytes | Record]) -> None:
        try:
            batch = self._batch(lane, items)
        except MessageTooLarge:  # `room` is only a hint: see `lane`
            middle = len(items) // 2
            self._cut_items(lane, items[:middle])
            self._cut_items(lane, items[middle:])
        else:
            self.enqueue(lane, batch)

    def _batch(self, lane: Lane, items: list[bytes | Record]) -> Outgoing:
        stamp = self._stamp(lane)
        now = self.session.clock.now_us()
        if not lane.mixed:
            try:
                entry = self._encoded(stamp, items, now)
            except WrongType:  # not values alone: some are records with keys or more
                lane.mixed = True
            else:
                return self._outgoing(lane, entry, len(items), stamp, [])
        records = [
            item if type(item) is tuple else (item, None, None, None, None) for item in items
        ]
        values, keys, headers, timestamps, waiters = zip(*records, strict=True)
        waiting = [(at, waiter) for at, waiter in enumerate(waiters) if waiter is not None]
        lane.mixed = bool(waiting) or any(keys) or any(headers)
        stamps: int | list[int] = now
        if any(each is not None for each in timestamps):
            stamps = [now if each is None else each for each in timestamps]
        entry = self._encoded(stamp, values, stamps, keys=keys, headers=headers)
        return self._outgoing(lane, entry, len(items), stamp, waiting)

    def _stamp(self, lane: Lane) -> Stamp:
        """Before the producer has an id, batches are stamped as nobody's, and anew when pushed."""
        stamp = self.stamp_of_next(lane)
        return stamp if stamp.producer_id else stamp._replace(producer_id=NO_PRODUCER)

    def _encoded(self, stamp: Stamp, values: Any, timestamps: Any, **columns: Any) -> bytes:
        return encode(
            values,
            timestamps=timestamps,
            codec=self.options.codec,
            producer_id=stamp.producer_id,
            epoch=stamp.epoch,
            sequence=stamp.sequence,
            **columns,
        )

    def _outgoing(
        self, lane: Lane, entry: bytes, count: int, stamp: Stamp, waiters: list[tuple[int, Any]]
    ) -> Outgoing:
        expires = self.session.clock.ticks_us() + self.options.delivery_us
        return Outgoing(lane, self.new_serial(), entry, count, stamp, waiters, expires)

    # --- partitions ------------------------------------------------------------------------------

    def _grow(self, partitions: int) -> None:
        known = len(self.lanes)
        super()._grow(partitions)
        if not known:  # a random one, so that many small producers do not all begin at the first
            self.sticky = self.lanes[self.session.random.randrange(partitions)]

    def _move_on(self) -> None:
        self.sticky = self.lanes[(self.sticky.partition + 1) % len(self.lanes)]

    def _fail_gathered(self, lane: Lane, error: HocketError) -> None:
        items = lane.take()
        lane.drop(len(items))
        if items and self.first_error is None:
            self.first_error = again(error)
        for item in items:
            if type(item) is tuple and item[4] is not None:
                self.refuse(item[4], again(error))

    def refuse(self, waiter: Any, error: HocketError) -> None:
        """Tell who waits for a record that it will not be sent."""
        batch = Outgoing(self.sticky, -1, b"", 1, Stamp(b"", 0, 0), [(0, waiter)], 0)
        self._settle(batch, error)
