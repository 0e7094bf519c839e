"""Who gets the next messages of a shared index: the dispatcher of one (topic, index) on this node.

Rule 1: nothing is read without credit. One read may overdraw the credit of bytes, and nothing more
        is read before that debt is paid; the credit of messages is never overdrawn. A consumer that
        has released messages gets none before it gives credit, or before the time of a lease has
        passed: it would only release them again.
Rule 2: of the consumers that are ready, the one that was served longest ago goes first, and takes
        no more than an even share. Its partitions take turns (`core.sharing.portions`).
Rule 3: a consumer is stalled when one of its leases ran out and it had given no sign of life for
        the time of a lease. It comes after all others, and gets one message at a time.
Rule 4: a suspect (it was with a consumer that died) goes to a consumer that has nothing else, and
        that one gets nothing else meanwhile. A consumer for which a suspect is next is held back
        until it has nothing, so that suspects do not wait for ever.
Rule 5: of what a consumer has that tells how far it has handed messages out, the deliveries of
        those told of count, and that of the next one; the others are in doubt.
Rule 6: the same events have the same effects. Time is what the events say; leases end at a Tick, or
        when a consumer settles messages or joins.

What has become of each message is kept for each partition by `core.sharing.leases`. In the mode
"key_shared" that keeps the order of keys as well; the keys have to be scanned first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar

from hocket.core.sharing import handing
from hocket.core.sharing.absence import Absences
from hocket.core.sharing.consumer import Consumer
from hocket.core.sharing.events import (
    Advanced,
    Answer,
    Closing,
    CreditGiven,
    DeadLettered,
    Effect,
    EndConsumer,
    Event,
    FetchDamaged,
    Fetched,
    FetchFailed,
    Held,
    Joined,
    Left,
    PartitionAdded,
    PartitionRemoved,
    Record,
    Recorded,
    Refunded,
    Reserve,
    Reserved,
    Reset,
    Revive,
    Revived,
    Scan,
    ScanFailed,
    Scanned,
    Send,
    SettingsChanged,
    Settle,
    Tick,
    Widened,
)
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.portions import FETCH_BYTES_MAX, Portions
from hocket.core.sharing.ranges import Range, clipped, without
from hocket.core.sharing.ready import Ready
from hocket.core.sharing.state import ShareChange

_FAR = 1 << 64  # behind every offset


class Dispatcher:
    """See the head of the file. An event about a consumer that is gone has no effect."""

    def __init__(self, mode: str) -> None:
        self._is_keyed = mode == "key_shared"
        self._leases: dict[int, Leases] = {}
        self._consumers: dict[int, Consumer] = {}
        self._vanished: dict[bytes, int] = {}  # consumers that may come back: identity -> number
        self._absent = Absences()
        self._ready = Ready()
        self._portions = Portions(self._leases, self._consumers, self._ready)
        self._fetches = self._portions.fetches
        self._scanning: dict[int, int] = {}  # partition -> the offset where its scan began
        self._resting: dict[int, bool] = {}  # partitions that are not read before the next Tick
        self._not_scanned: dict[int, bool] = {}  # partitions not scanned before the next Tick
        # Partitions that several nodes keep -> whether nothing is reserved before the next Tick.
        self._reserving: dict[int, bool] = {}
        self._is_closing = False

    def step(self, event: Event) -> list[Effect]:
        return self._handlers[type(event)](self, event)

    @property
    def is_idle(self) -> bool:
        """No consumer is there or may come back, and no message waits for a time."""
        return not (self._consumers or self._vanished) and all(
            leases.is_idle for leases in self._leases.values()
        )

    def leased(self, partition: int) -> int:
        """How many messages of the partition are with consumers."""
        return self._leases[partition].leased

    def is_dying(self, partition: int, offset: int) -> bool:
        return self._leases[partition].is_dying(offset)

    def reaches(self, partition: int, offset: int) -> bool:
        """Whether a message of the partition that lies this far back can be revived."""
        return self._leases[partition].reaches(offset)

    # --- consumers come and go -------------------------------------------------------------------

    def _joined(self, event: Joined) -> list[Effect]:
        effects: list[Effect] = []
        self._pass_time(self._leases, event.now_us)
        former = self._vanished.pop(event.identity, None)
        for consumer in self._consumers.values():
            if consumer.identity == event.identity:
                former = consumer.number
                effects.append(
                    EndConsumer(former, "its consumer has opened the index again elsewhere")
                )
        if former is not None and former in self._consumers:
            self._absent.note(self._consumers[former], self._leases)
            self._remove(self._consumers[former])
        for number, leases in self._leases.items():
            held = [(start, end) for partition, start, end in event.held if partition == number]
            leases.welcome(event.consumer, event.identity, former, held, event.now_us)
        self._consumers[event.consumer] = consumer = Consumer(
            event.consumer,
            event.identity,
            deque(event.partitions),
            set(event.partitions),
            event.credit_bytes,
            event.credit_messages,
            event.now_us,
            tells=event.tells,
        )
        consumer.lost = self._absent.end(consumer, self._leases)
        self._ready.add(consumer)
        self._spread()
        return [*effects, *self._records(self._leases), *self._dispatch()]

    def _widened(self, event: Widened) -> list[Effect]:
        consumer = self._consumers.get(event.consumer)
        if consumer is not None and event.partition not in consumer.wanted:
            consumer.turns.append(event.partition)
            consumer.wanted.add(event.partition)
            self._spread()
        return self._dispatch()

    def _left(self, event: Left) -> list[Effect]:
        consumer = self._consumers.get(event.consumer)
        if consumer is None:
            return []
        self._remove(consumer)
        if not event.graceful:
            self._absent.note(consumer, self._leases)
        for leases in self._leases.values():
            if event.graceful:
                leases.leave(consumer.number)
            else:
                leases.vanish(consumer.number, event.now_us)
        if not event.graceful:
            self._vanished[consumer.identity] = consumer.number
        self._spread()
        return [*self._records(self._leases), *self._dispatch()]

    def _remove(self, consumer: Consumer) -> None:
        for fetch in list(consumer.fetching.values()):
            self._portions.give_up(fetch)
        self._ready.remove(consumer)
        del self._consumers[consumer.number]

    def _credit_given(self, event: CreditGiven) -> list[Effect]:
        consumer = self._consumers.get(event.consumer)
        if consumer is None:
            return []
        self._ready.remove(consumer)
        consumer.credit_bytes += event.bytes
        consumer.credit_messages += event.messages
        if event.bytes or event.messages:
            consumer.sated_until_us = 0
        self._ready.add(consumer)
        self._lives(consumer, event.now_us)
        return [
            *self._records(handing.told(consumer, self._leases, event.handed)),
            *self._dispatch(),
        ]

    def _refunded(self, event: Refunded) -> list[Effect]:
        consumer = self._consumers.get(event.consumer)
        if consumer is None:
            return []
        self._ready.remove(consumer)
        consumer.credit_bytes += event.bytes
        self._ready.add(consumer)
        return self._dispatch()

    def _lives(self, consumer: Consumer, now_us: int) -> None:
        consumer.life_us = now_us
        if consumer.stalled:
            self._set_stalled(consumer, False)

    def _set_stalled(self, consumer: Consumer, stalled: bool) -> None:
        self._ready.remove(consumer)
        consumer.stalled = stalled
        self._ready.add(consumer)
        self._spread()

    def _spread(self) -> None:
        """Share the keys out among the consumers that are not stalled, or among all if all are."""
        if not self._is_keyed:
            return
        for number, leases in self._leases.items():
            wanting = [each for each in self._consumers.values() if number in each.wanted]
            lively = [each for each in wanting if not each.stalled]
            leases.spread([each.number for each in lively or wanting])

    # --- messages --------------------------------------------------------------------------------

    def _partition_added(self, event: PartitionAdded) -> list[Effect]:
        self._leases[event.partition] = event.leases
        if event.leases.reservation is not None:
            self._reserving[event.partition] = False
        if self._is_keyed:
            event.leases.order_keys()
            self._spread()
        return [*self._records([event.partition]), *self._dispatch()]

    def _partition_removed(self, event: PartitionRemoved) -> list[Effect]:
        number = event.partition
        for fetch, fetching in list(self._fetches.items()):
            if fetching.partition == number:
                self._portions.end(fetch)
        for known in (self._scanning, self._resting, self._not_scanned, self._reserving):
            known.pop(number, None)
        self._absent.forget(number)
        for consumer in self._consumers.values():
            consumer.forget(number)
        del self._leases[number]
        return self._dispatch()

    def _reserved(self, event: Reserved) -> list[Effect]:
        self._leases[event.partition].is_reserved(event.high)
        self._reserving[event.partition] = not event.high
        return self._dispatch()

    def _recorded(self, event: Recorded) -> list[Effect]:
        self._leases[event.partition].committed(event.change)
        return self._dispatch()

    def _settings_changed(self, event: SettingsChanged) -> list[Effect]:
        self._leases[event.partition].settings = event.settings
        return []

    def _advanced(self, event: Advanced) -> list[Effect]:
        self._leases[event.partition].advanced(event.start, event.end)
        return self._dispatch()

    def _fetched(self, event: Fetched) -> list[Effect]:
        fetching = self._fetches.pop(event.fetch, None)
        if fetching is None:
            return []
        number, runs = fetching.partition, fetching.runs
        leases, consumer = self._leases[number], self._consumers[fetching.consumer]
        self._ready.remove(consumer)
        consumer.end(fetching)
        end = event.end if event.bytes else 0
        read = clipped(runs, event.start, end)
        late = leases.keys.overtaking(read) if leases.keys is not None else []
        ranges = leases.lease(
            without(read, late) if late else read, event.now_us, identity=consumer.identity,
            in_doubt=consumer.tells,
        )  # fmt: skip
        leases.give_back([*late, *clipped(runs, max(event.start, end), _FAR)])
        leases.lose(clipped(runs, 0, event.start))
        sends: list[Effect] = []
        changed = {number}
        if ranges:
            if number in consumer.lost:
                again = [(first, last) for first, last, _ in ranges]
                consumer.lost[number] = without(consumer.lost[number], again)
            consumer.credit_bytes -= event.bytes
            consumer.credit_messages -= sum(last - first for first, last, _ in ranges)
            if consumer.tells:
                handing.sent(consumer, number, leases, ranges)
                changed |= handing.point_out(consumer, self._leases)
            alone = leases.has_suspect(consumer.number)
            sends.append(Send(event.fetch, consumer.number, number, ranges, alone))
        elif event.start <= runs[0][0] and not late:
            self._resting[number] = True  # another read now would find nothing either
        self._ready.add(consumer)
        return [*self._records(sorted(changed)), *sends, *self._dispatch()]

    def _fetch_failed(self, event: FetchFailed) -> list[Effect]:
        fetching = self._fetches.get(event.fetch)
        if fetching is None:
            return []
        self._resting[fetching.partition] = True
        self._portions.give_up(event.fetch)
        return self._dispatch()

    def _fetch_damaged(self, event: FetchDamaged) -> list[Effect]:
        if event.fetch not in self._fetches:
            return []
        fetching = self._portions.end(event.fetch)
        number, runs = fetching.partition, fetching.runs
        leases = self._leases[number]
        leases.give_back(clipped(runs, event.end, _FAR))
        leases.bury(clipped(runs, event.start, event.end), event.reason)
        leases.give_back(clipped(runs, 0, event.start))
        return [*self._records([number]), *self._dispatch()]

    def _scanned(self, event: Scanned) -> list[Effect]:
        number = event.partition
        if self._scanning.get(number) != event.start:
            return []  # the scan was asked for before the index was put elsewhere
        del self._scanning[number]
        if not self._leases[number].scan(event.start, event.key_hashes):
            self._not_scanned[number] = True
        return self._dispatch()

    def _scan_failed(self, event: ScanFailed) -> list[Effect]:
        if self._scanning.pop(event.partition, None) is not None:
            self._not_scanned[event.partition] = True
        return []

    def _settle(self, event: Settle) -> list[Effect]:
        consumer = self._consumers.get(event.consumer)
        if consumer is None:
            return [Answer(event.consumer, event.token, event.ranges, 0)]
        self._lives(consumer, event.now_us)
        asked: dict[int, list[Range]] = {}
        refused: list[Held] = []
        for number, start, end in event.ranges:
            if number in self._leases:
                asked.setdefault(number, []).append((start, end))
            else:
                refused.append((number, start, end))
        self._pass_time(asked, event.now_us)
        if event.action == "release":
            self._sate(consumer, asked, event.now_us)
        for number, ranges in asked.items():
            others = self._leases[number].settle(
                consumer.number,
                event.action,
                ranges,
                now_us=event.now_us,
                duration_us=event.duration_us,
                reason=event.reason,
                again=event.again,
                lost=consumer.lost.get(number),
            )
            refused += [(number, start, end) for start, end in others]
        changed = dict.fromkeys(asked) | dict.fromkeys(handing.point_out(consumer, self._leases))
        records = self._records(changed, event.token)
        answer = Answer(consumer.number, event.token, refused, len(records))
        return [*records, answer, *self._dispatch()]

    def _sate(self, consumer: Consumer, partitions: Iterable[int], now_us: int) -> None:
        self._ready.remove(consumer)
        for number in partitions:
            until_us = now_us + self._leases[number].settings.lease_us
            consumer.sated_until_us = max(consumer.sated_until_us, until_us)
        self._ready.add(consumer)

    def _dead_lettered(self, event: DeadLettered) -> list[Effect]:
        self._leases[event.partition].dead_lettered(event.start, event.end)
        return [*self._records([event.partition]), *self._dispatch()]

    def _revive(self, event: Revive) -> list[Effect]:
        number = event.partition
        runs = self._leases[number].revive(event.letters, event.log)
        if runs:
            self._scanning.pop(number, None)  # keys are read anew, from the first of these on
        records = self._records([number], event.token)
        return [Revived(event.token, runs), *records, *self._dispatch()]

    def _reset(self, event: Reset) -> list[Effect]:
        for fetch, fetching in list(self._fetches.items()):
            if fetching.partition == event.partition:
                self._portions.give_up(fetch)
        self._scanning.pop(event.partition, None)
        for consumer in self._consumers.values():
            consumer.waiting.pop(event.partition, None)
        self._leases[event.partition].reset(event.offset)
        return [*self._records([event.partition], event.token), *self._dispatch()]

    # --- time ------------------------------------------------------------------------------------

    def _tick(self, event: Tick) -> list[Effect]:
        self._resting.clear()
        self._not_scanned.clear()
        self._reserving = dict.fromkeys(self._reserving, False)
        self._pass_time(self._leases, event.now_us)
        for consumer in self._consumers.values():
            if 0 < consumer.sated_until_us <= event.now_us:
                self._ready.remove(consumer)
                consumer.sated_until_us = 0
                self._ready.add(consumer)
        self._vanished = {
            identity: number
            for identity, number in self._vanished.items()
            if any(leases.held_by(number) for leases in self._leases.values())
        }
        return [*self._records(self._leases), *self._dispatch()]

    def _pass_time(self, partitions: Iterable[int], now_us: int) -> None:
        for number in partitions:
            leases = self._leases[number]
            is_dead = partial(self._is_dead, leases.settings.lease_us)
            for holder, deadline in leases.pass_time(now_us, is_dead):
                consumer = self._consumers.get(holder)
                if consumer and not consumer.stalled and is_dead(holder, deadline):
                    self._set_stalled(consumer, True)

    def _is_dead(self, lease_us: int, holder: int, deadline: int) -> bool:
        """Whether its link broke, or it was silent for the whole lease that ended then."""
        consumer = self._consumers.get(holder)
        return consumer is None or consumer.life_us <= deadline - lease_us

    def _closing(self, _event: Closing) -> list[Effect]:
        self._is_closing = True
        for fetch in list(self._fetches):
            self._portions.give_up(fetch)
        return [
            Record(number, self._closed(leases, leases.take_change() or ShareChange()), 0)
            for number, leases in self._leases.items()
        ]

    def _closed(self, leases: Leases, change: ShareChange) -> ShareChange:
        change.clean, change.lent = True, leases.lent()
        return change

    def _records(self, partitions: Iterable[int], token: int = 0) -> list[Record]:
        """Log what happened in these partitions since it was last logged."""
        records = []
        for number in partitions:
            leases = self._leases[number]
            change = leases.take_change()
            if change is not None:
                awaited = leases.awaited
                if self._is_closing:  # the state stays clean, and nobody gets anything more
                    self._closed(leases, change)
                    awaited = 0
                records.append(Record(number, change, token, awaited))
        return records

    # --- who gets what ---------------------------------------------------------------------------

    def _dispatch(self) -> list[Effect]:
        if self._is_closing:
            return []
        resting = self._resting
        open_ = [
            number
            for number, leases in self._leases.items()
            if number not in resting and leases.available()
        ]
        effects = self._portions.fetch(open_) if open_ else []
        if self._is_keyed:
            effects += self._scans()
        if self._reserving and self._ready.ranks:
            effects += self._reservations()
        return effects

    def _reservations(self) -> list[Effect]:
        effects: list[Effect] = []
        for number, rests in self._reserving.items():
            if not rests and any(
                number in self._consumers[rank[2]].wanted for rank in self._ready.ranks
            ):
                high = self._leases[number].reservation_wanted()
                effects += [Reserve(number, high)] if high else []
        return effects

    def _scans(self) -> list[Effect]:
        effects: list[Effect] = []
        for number, leases in self._leases.items():
            wanted = leases.scan_wanted()
            if wanted and number not in self._scanning and number not in self._not_scanned:
                self._scanning[number] = wanted[0]
                effects.append(Scan(number, *wanted, FETCH_BYTES_MAX))
        return effects

    _handlers: ClassVar[dict[type, Callable[..., list[Effect]]]] = {
        PartitionAdded: _partition_added,
        PartitionRemoved: _partition_removed,
        Reserved: _reserved,
        Recorded: _recorded,
        SettingsChanged: _settings_changed,
        Joined: _joined,
        Widened: _widened,
        Left: _left,
        CreditGiven: _credit_given,
        Advanced: _advanced,
        Fetched: _fetched,
        Refunded: _refunded,
        FetchFailed: _fetch_failed,
        FetchDamaged: _fetch_damaged,
        Scanned: _scanned,
        ScanFailed: _scan_failed,
        Settle: _settle,
        DeadLettered: _dead_lettered,
        Revive: _revive,
        Reset: _reset,
        Tick: _tick,
        Closing: _closing,
    }
