"""The near half of a producer: records gather, one gathering a partition, and are cut into batches.

A record with a key goes to the partition of the key's hash. A record without a key goes to the
sticky partition; the next partition becomes sticky whenever a batch is cut there. A batch is cut
when it is full, or when its first record has waited for `linger`. Without linger it is cut as soon
as nothing of its partition is in flight: then the time that an acknowledgement takes decides how
many records gather, and a lone record waits for nothing.

Cutting never waits. A new batch is not begun while `window_bytes` or more are unacknowledged; so a
producer holds at most its window and one batch for each partition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from hocket.client.connection.session import Session, again
from hocket.client.producing.delivery import ProducerOptions, Pusher
from hocket.client.producing.gathering import Gathering
from hocket.client.producing.outgoing import Outcome, Outgoing, Stamp
from hocket.client.producing.records import Record
from hocket.errors import (
    HocketError,
    MessageTooLarge,
    StorageFull,
    UnknownPartition,
    WrongType,
)
from hocket.model import partition_of
from hocket.timers import Timer
from hocket.wire.batch import NO_PRODUCER, encode

VALUE_ALONE = (None, None, None, None)  # no key, no headers, no timestamp, nothing that waits


class ProducerCore(Pusher):
    """One thread at a time calls this; only what `gathering` allows may be done by any."""

    def __init__(
        self,
        session: Session,
        topic: str,
        options: ProducerOptions,
        settle: Callable[[Outgoing, Outcome], None],
    ) -> None:
        super().__init__(session, topic, options, settle)
        self.sticky = Gathering(0, room=-1)  # takes nothing while no partition is known
        self._lingering: dict[Gathering, None] = {}  # what the linger timer will look at
        self._linger_timer: Timer | None = None

    # --- taking records --------------------------------------------------------------------------

    def gathering_of(self, key: bytes | None, partition: object) -> Gathering | None:
        """Where a record with this key goes; None: to the partition that is sticky then."""
        if partition is None:
            return None if key is None else self.gatherings[partition_of(key, len(self.gatherings))]
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise WrongType(f"a partition is a number, not {partition!r}")
        if not 0 <= partition < len(self.gatherings):
            raise UnknownPartition(
                f"topic {self.topic!r} has partitions 0 to {len(self.gatherings) - 1}, "
                f"and no {partition}"
            )
        return self.gatherings[partition]

    def _check_disk(self) -> None:
        """Raise, once, that the broker's disk was too full for earlier records.

        So whoever only sends hears of it too, and does not go on sending for nothing.
        """
        error = self.first_error
        if isinstance(error, StorageFull):
            self.first_error = None
            raise again(error)

    def offer(self, gathering: Gathering | None, record: Record, size: int) -> bool:
        """Take the record, unless the window is full."""
        self.check_usable()
        self._check_disk()
        self.check_size(size)
        chosen = self._with_room(gathering, size)
        if chosen is None:
            return False
        chosen.room -= size
        # A value alone goes as one, or it alone would make its whole batch a mixed one.
        chosen.items.append(record[0] if record[1:] == VALUE_ALONE else record)
        if not chosen.awake:
            self.wake(chosen)
        return True

    def offer_many(
        self,
        gathering: Gathering | None,
        records: Sequence[bytes | Record],
        ends: list[int],
        start: int,
    ) -> int:
        """Take records from `start` on while the window has room; returns the first not taken.

        `ends` are their sizes, added up: ends[i] is the size of the records 0 to i.
        """
        self._check_disk()
        while start < len(records):
            self.check_usable()
            before = ends[start - 1] if start else 0
            chosen = self._with_room(gathering, ends[start] - before)
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
        gathering: Gathering | None,
        encode_entry: Callable[[Stamp], bytes],
        count: int,
        waiter: Any = None,
    ) -> bool:
        """Take a batch that `encode_entry` makes, behind what has gathered; False: no room yet.

        The `waiter` is told the position of its first record.
        """
        self.check_usable()
        self._check_disk()
        if self.is_full:
            return False
        chosen = self.sticky if gathering is None else gathering
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
        self.enqueue(chosen, self._outgoing(entry, count, stamp, waiters))
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

    def _with_room(self, gathering: Gathering | None, size: int) -> Gathering | None:
        """The gathering for a record of this size, cut if it was full; None: no room yet."""
        chosen = self.sticky if gathering is None else gathering
        if size <= chosen.room:
            return chosen
        if chosen.items:
            self.cut(chosen)
            chosen = self.sticky if gathering is None else gathering
        if not chosen.items:
            if self.is_full:
                return None
            chosen.room = self.batch_bytes
        return chosen

    def withdraw(self, record: Record) -> bool:
        """Take back a record that is not part of a batch yet; False: it is, or was never taken."""
        return any(gathering.take_back(record) for gathering in self.gatherings)

    # --- cutting batches -------------------------------------------------------------------------

    def wake_for(self, gathering: Gathering, record: bytes | Record) -> None:
        """For a sender that has appended this record and found that nobody looks."""
        if self.failure is not None or self._closing:
            # Everything gathered was cut or failed when we stopped. If the record is still here it
            # came too late, and its sender is told so; the others look after their own.
            if gathering.take_back(record):
                self.check_usable()
        elif gathering.items and not gathering.awake:
            self.wake(gathering)

    def wake(self, gathering: Gathering) -> None:
        """Records have gathered and nobody is going to cut them: see to it."""
        gathering.awake = True
        if self.options.linger_us:
            gathering.begun_us = self.session.clock.ticks_us()
            self._lingering[gathering] = None
            if self._linger_timer is None:
                self._set_linger_timer(self.options.linger_us)
        elif not gathering.queue:  # else the next acknowledgement looks
            self.cut(gathering)

    def _set_linger_timer(self, delay_us: int) -> None:
        self._linger_timer = self.session.timers.after(delay_us, self._look_at_gathered)

    def _look_at_gathered(self) -> None:
        self._linger_timer = None
        now = self.session.clock.ticks_us()
        linger = self.options.linger_us
        for gathering in list(self._lingering):
            if gathering.begun_us + linger <= now:
                del self._lingering[gathering]
                gathering.awake = False
                if gathering.items:
                    self.cut(gathering)
        if self._lingering:
            due = min(gathering.begun_us for gathering in self._lingering) + linger
            self._set_linger_timer(due - now)

    def _gathering_is_idle(self, gathering: Gathering) -> None:
        if not self.options.linger_us:
            gathering.awake = False
            if gathering.items:
                self.wake(gathering)

    def stop_taking(self) -> None:
        """The producer is about to be closed; what it has taken is still delivered."""
        self._closing = True
        for gathering in self.gatherings:
            gathering.room, gathering.awake = -1, False
        self.cut_all()

    def deliver(self) -> bool:
        self.cut_all()
        return super().deliver()

    def cut_all(self) -> int:
        """Cut what has gathered anywhere. Returns a serial that is behind every batch so far."""
        for gathering in self.gatherings:
            if gathering.items:
                self.cut(gathering)
        return self.new_serial()

    def cut(self, gathering: Gathering) -> None:
        items = gathering.take()
        self._cut_items(gathering, items)
        gathering.drop(len(items))
        gathering.begun_us = self.session.clock.ticks_us()
        if not self._closing:
            gathering.room = 0 if self.is_full else self.batch_bytes
        if gathering is self.sticky:
            self._move_on()

    def _cut_items(self, gathering: Gathering, items: list[bytes | Record]) -> None:
        try:
            batch = self._batch(gathering, items)
        except MessageTooLarge:  # `room` is only a hint: see `gathering`
            middle = len(items) // 2
            self._cut_items(gathering, items[:middle])
            self._cut_items(gathering, items[middle:])
        else:
            self.enqueue(gathering, batch)

    def _batch(self, gathering: Gathering, items: list[bytes | Record]) -> Outgoing:
        stamp = self._stamp(gathering)
        now = self.session.clock.now_us()
        if not gathering.mixed:
            try:
                entry = self._encoded(stamp, items, now)
            except WrongType:  # not values alone: some are records with keys or more
                gathering.mixed = True
            else:
                return self._outgoing(entry, len(items), stamp, [])
        records = [
            item if type(item) is tuple else (item, None, None, None, None) for item in items
        ]
        values, keys, headers, timestamps, waiters = zip(*records, strict=True)
        waiting = [(at, waiter) for at, waiter in enumerate(waiters) if waiter is not None]
        gathering.mixed = bool(waiting) or any(keys) or any(headers)
        stamps: int | list[int] = now
        if any(each is not None for each in timestamps):
            stamps = [now if each is None else each for each in timestamps]
        entry = self._encoded(stamp, values, stamps, keys=keys, headers=headers)
        return self._outgoing(entry, len(items), stamp, waiting)

    def _stamp(self, gathering: Gathering) -> Stamp:
        """Before the producer has an id, batches are stamped as nobody's, and anew when pushed."""
        stamp = self.stamp_of_next(gathering)
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
        self, entry: bytes, count: int, stamp: Stamp, waiters: list[tuple[int, Any]]
    ) -> Outgoing:
        expires = self.session.clock.ticks_us() + self.options.delivery_us
        return Outgoing(self.new_serial(), entry, count, stamp, waiters, expires)

    # --- partitions ------------------------------------------------------------------------------

    def _grow(self, partitions: int) -> None:
        known = len(self.gatherings)
        super()._grow(partitions)
        if not known:  # a random one, so that many small producers do not all begin at the first
            self.sticky = self.gatherings[self.session.random.randrange(partitions)]

    def _move_on(self) -> None:
        self.sticky = self.gatherings[(self.sticky.partition + 1) % len(self.gatherings)]

    def _fail_gathered(self, gathering: Gathering, error: HocketError) -> None:
        items = gathering.take()
        gathering.drop(len(items))
        if items and self.first_error is None:
            self.first_error = again(error)
        for item in items:
            if type(item) is tuple and item[4] is not None:
                self.refuse(item[4], again(error))

    def refuse(self, waiter: Any, error: HocketError) -> None:
        """Tell the `waiter` of a record that the record will not be sent."""
        batch = Outgoing(-1, b"", 1, Stamp(b"", 0, 0), [(0, waiter)], 0)
        self._settle(batch, error)
