"""The near half of a producer: records gather, one gathering a partition, and are cut into batches.

A record with a key goes to the partition of the key's hash. Records without a key are spread:
partitions take turns, and the one whose turn it is is the sticky one. A turn ends when its bytes
are used up, or when a batch is cut there; but who publishes one record after the other stays for a
short turn, since the node that has just answered is awake. Turns are short at
first, so that a burst is spread, and grow to a whole batch, so that a long stream has as few
batches as if it had one partition. After a rest, and after a flush, they are short again. While
turns are short, the batches of all partitions gather at the same time.

A batch is cut when it is full, or when its first record has waited for `linger`. Without linger it
is cut as soon as nothing of its partition is in flight: then the time that an acknowledgement takes
decides how many records gather, and a lone record waits for nothing. On a loop, what is sent in one
turn of it goes together, since nothing leaves before the turn is over.

Cutting never waits. A new batch is not begun while `window_bytes` or more are unacknowledged; so a
producer holds at most its window and one batch for each partition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from hocket.client_core.producing.delivery import Pusher
from hocket.client_core.producing.fates import ProducerOptions, Settle
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.outgoing import Outgoing, Stamp
from hocket.client_core.producing.placing import Placing
from hocket.client_core.producing.records import Record
from hocket.client_core.session.answers import again
from hocket.client_core.session.session import Session
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

TURN_BYTES_MIN = 4096
ROUNDS = 2  # of each length of turns, before it doubles: so nobody gets twice as much as others
REST_US = 100_000  # without a batch being cut, after which turns are short again
AT_ONCE_US = 1000  # a record that comes so soon behind an acknowledgement has waited for it
PIECE_BYTES_MIN = 8192  # of Arrow rows, which are cut into batches at once: see `pieces`
VALUE_ALONE = (None, None, None, None)  # no key, no headers, no timestamp, nothing that waits


class ProducerCore(Placing):
    """One thread at a time calls this; only what `gathering` allows may be done by any."""

    def __init__(
        self,
        session: Session,
        topic: str,
        options: ProducerOptions,
        settle: Settle | None = None,
    ) -> None:
        super().__init__(session, topic, options, settle)
        self.sticky = Gathering(0, room=-1)  # takes nothing while no partition is known
        self._turn_bytes = TURN_BYTES_MIN  # the length of the next turn
        self._turns_left = 0  # of this length
        self._cut_us = 0  # when a batch was last cut
        self._idle_us = 0  # when the last batch of the sticky gathering was acknowledged
        self._stayed = 0  # bytes in this turn of records that were published one after the other
        self._lingering: dict[Gathering, None] = {}  # what the linger timer will look at
        self._linger_timer: Timer | None = None
        self._due: list[Gathering] = []  # to be cut when those who send now have sent

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
        if gathering is None:
            if record[4] is not None:
                self._stay(size)
            chosen = self._with_turn(size)
            if chosen is None:
                return False
            chosen.turn -= size
        else:
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
        extra: int = 0,
    ) -> int:
        """Take records from `start` on while the window has room; returns the first not taken.

        `ends` are their sizes, added up: ends[i] is the size of the records 0 to i, but for the
        `extra` bytes that each of them has.
        """

        def end_of(at: int) -> int:
            return ends[at] + extra * (at + 1)

        self._check_disk()
        numbers = range(len(records))
        while start < len(records):
            self.check_usable()
            before = end_of(start - 1) if start else 0
            size = end_of(start) - before
            chosen = (
                self._with_turn(size) if gathering is None else self._with_room(gathering, size)
            )
            if chosen is None:
                break
            room = chosen.turn if gathering is None else chosen.room
            end = max(bisect_right(numbers, before + room, start, key=end_of), start + 1)
            if gathering is None:
                chosen.turn -= end_of(end - 1) - before
            else:
                chosen.room -= end_of(end - 1) - before
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
        chosen = self._following() if gathering is None else gathering
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
        if gathering is None:
            self._begin_turn(chosen)
        return True

    def pieces(self, size: int) -> int:
        """Into how many batches to cut rows of so many bytes, so that they are spread."""
        return max(1, min(len(self.gatherings), size // max(PIECE_BYTES_MIN, self._turn_bytes)))

    def check_size(self, size: int) -> None:
        if size > self.message_bytes_max:
            raise MessageTooLarge(
                f"a message of {size} bytes is more than the {self.message_bytes_max} that this "
                "broker takes"
            )

    @property
    def is_full(self) -> bool:
        return self.unacked_bytes >= self.options.window_bytes

    def _with_room(self, gathering: Gathering, size: int) -> Gathering | None:
        """The gathering, with room for a record of this size if it was full; None: not yet."""
        if size > gathering.room:
            gathering.room, gathering.turn = gathering.room + max(0, gathering.turn), 0
        if size > gathering.room:
            if gathering.items:
                self.cut(gathering)
            if self.is_full:
                return None
            gathering.room = self.batch_bytes
        return gathering

    def _with_turn(self, size: int) -> Gathering | None:
        """The sticky gathering, with as much left of its turn; None: no room yet."""
        if self.outbox.now_us - self._cut_us >= REST_US:
            self._shorten_turns()
        if size <= self.sticky.turn or self.next_turn(size):
            return self.sticky
        following = self._with_room(self._following(), size)
        if following is not None:
            granted = min(max(size, self._turn_bytes), following.room)
            following.room -= granted
            following.turn += granted
            self._begin_turn(following)
        return following

    def _stay(self, size: int) -> None:
        """A record is published: if its sender has waited for the one before, the turn goes on."""
        sticky = self.sticky
        if (
            self.outbox.now_us - self._idle_us <= AT_ONCE_US
            and not (sticky.queue or sticky.items)
            and self._stayed + size <= TURN_BYTES_MIN
            and sticky.turn < size <= sticky.room
        ):
            sticky.room -= size
            sticky.turn += size
            self._stayed += size

    def next_turn(self, size: int) -> bool:
        """It is the next partition's turn, if that has room for a record of this size.

        Any thread may call this: see rule 3 of `gathering`.
        """
        if not self.gatherings:
            return False
        following = self._following()
        # Half of the room, so that something is left for records with keys.
        granted = min(self._turn_bytes, max(TURN_BYTES_MIN, following.room // 2))
        if not size <= granted <= following.room:
            return False
        following.room -= granted
        following.turn += granted
        self._begin_turn(following)
        return True

    def _following(self) -> Gathering:
        return self.gatherings[(self.sticky.partition + 1) % len(self.gatherings)]

    def _begin_turn(self, gathering: Gathering) -> None:
        self.sticky = gathering
        self._stayed = 0
        self._turns_left -= 1
        if self._turns_left <= 0:
            self._set_turns(min(2 * self._turn_bytes, self.batch_bytes))

    def _set_turns(self, size: int) -> None:
        self._turn_bytes = size
        self._turns_left = ROUNDS * len(self.gatherings)

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
        now = self.outbox.now_us
        if now - self._cut_us >= REST_US:
            self._shorten_turns()
        if self.options.linger_us:
            gathering.begun_us = now
            self._lingering[gathering] = None
            if self._linger_timer is None:
                self._set_linger_timer(self.options.linger_us)
        elif not gathering.queue:  # else the next acknowledgement looks
            self._due.append(gathering)
            if len(self._due) == 1:
                self.outbox.at_end(self._cut_due)

    def _cut_due(self) -> None:
        due, self._due = self._due, []
        for gathering in due:
            if gathering.queue:
                continue  # it was cut meanwhile, and the next acknowledgement looks
            gathering.awake = False
            if gathering.items:  # else they failed, or were taken back
                gathering.awake = True
                self.cut(gathering)

    def _shorten_turns(self) -> None:
        """What begins now may be a burst: spread it."""
        if len(self.gatherings) > 1:
            self._set_turns(TURN_BYTES_MIN)
            excess = max(0, self.sticky.turn - TURN_BYTES_MIN)
            self.sticky.turn -= excess
            self.sticky.room += excess

    def _set_linger_timer(self, delay_us: int) -> None:
        self._linger_timer = self.outbox.arm(delay_us, self._look_at_gathered)

    def _look_at_gathered(self) -> None:
        self._linger_timer = None
        now = self.outbox.now_us
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

    def gathering_is_idle(self, gathering: Gathering) -> None:
        if gathering is self.sticky:
            self._idle_us = self.outbox.now_us
        if not self.options.linger_us:
            gathering.awake = False
            if gathering.items:
                self.wake(gathering)

    def stop_taking(self) -> None:
        """The producer is about to be closed; what it has taken is still delivered."""
        self._closing = True
        for gathering in self.gatherings:
            gathering.close()
        self.cut_all()

    def deliver(self) -> bool:
        self.cut_all()
        return super().deliver()

    def cut_all(self) -> int:
        """Cut what has gathered anywhere. Returns a serial that is behind every batch so far."""
        self._cut_due()
        for gathering in self.gatherings:
            if gathering.items:
                self.cut(gathering)
        if not self._closing and self.failure is None:
            self._shorten_turns()
        return self.new_serial()

    def cut(self, gathering: Gathering) -> None:
        items = gathering.take()
        self._cut_items(gathering, items)
        gathering.drop(len(items))
        outbox = self.outbox
        outbox.tell_time()  # encoding takes milliseconds, and what has come since is younger
        self._cut_us = gathering.begun_us = outbox.now_us
        if not self._closing:
            gathering.room = 0 if self.is_full else self.batch_bytes
            gathering.turn = 0  # so the next partition is next

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
        now = self.outbox.wall_us
        if not gathering.mixed:
            try:
                entry = self._encoded(stamp, items, now)
            except WrongType:  # not values alone: some are records with keys or more
                gathering.mixed = True
            else:
                return self._outgoing(entry, len(items), stamp, [])
        records: list[Any] = items
        if bytes in set(map(type, items)):
            records = [item if type(item) is tuple else (item, *VALUE_ALONE) for item in items]
        values, keys, headers, timestamps, waiters = zip(*records, strict=True)
        waiting: list[tuple[int, Any]] = []
        if waiters.count(None) < len(items):  # rarely, and this look takes a third of the time
            waiting = [(at, waiter) for at, waiter in enumerate(waiters) if waiter is not None]
        gathering.mixed = bool(waiting) or any(keys) or any(headers)
        stamps: int | list[int] = now
        if timestamps.count(None) < len(items):
            stamps = [now if each is None else each for each in timestamps]
        entry = self._encoded(stamp, values, stamps, keys=keys, headers=headers)
        return self._outgoing(entry, len(items), stamp, waiting)

    def _stamp(self, gathering: Gathering) -> Stamp:
        """Before the producer has an id, batches are stamped as nobody's, and anew when pushed."""
        stamp = gathering.pusher.stamp_of_next(gathering)
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
        expires = self.outbox.now_us + self.options.delivery_us
        return Outgoing(self.new_serial(), entry, count, stamp, waiters, expires)

    # --- partitions ------------------------------------------------------------------------------

    def _grow(self, partitions: int, pusher: Pusher) -> None:
        known = len(self.gatherings)
        super()._grow(partitions, pusher)
        if not known:  # a random one, so that many small producers do not all begin at the first
            self.sticky = self.gatherings[self.outbox.random.randrange(partitions)]
        self._set_turns(self.batch_bytes if partitions == 1 else TURN_BYTES_MIN)

    def _fail_gathered(self, gathering: Gathering, error: HocketError) -> None:
        items = gathering.take()
        gathering.drop(len(items))
        if items:
            waiters = [item[4] for item in items if type(item) is tuple and item[4] is not None]
            self._lose(len(items) - len(waiters), again(error))
            for waiter in waiters:
                self.refuse(waiter, again(error))

    def refuse(self, waiter: Any, error: HocketError) -> None:
        """Tell the `waiter` of a record that the record will not be sent."""
        batch = Outgoing(-1, b"", 1, Stamp(b"", 0, 0), [(0, waiter)], 0)
        self._tell(batch, error)
