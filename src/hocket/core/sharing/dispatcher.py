"""Who gets the next messages of a shared index: the dispatcher of one (topic, index) on this node.

Rule 1: nothing is read without credit. Bytes may be overdrawn by one read, and the debt is paid
        before anything more is; messages never are. Who has released messages gets none before it
        gives credit, or a lease's time is over: it would only release them again.
Rule 2: of those who are ready, the one that has waited longest since it was last served goes first,
        and takes no more than an even share. Its partitions take turns.
Rule 3: a consumer is stalled when a lease of it ran out and it had given no sign of life for the
        time of a lease. It comes after all others, and gets one message at a time.
Rule 4: same events, same effects. Time is what the events say; leases end at a Tick, or when
        somebody settles messages or joins.

What has become of each message is in the partitions' shares (`core.sharing.share`). In the mode
"key_shared" they keep the order of keys as well, which need to be scanned first.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar

from hocket.core.sharing.consumer import Consumer, Fetching
from hocket.core.sharing.events import (
    Advanced,
    Answer,
    Closing,
    CreditGiven,
    DeadLettered,
    Effect,
    EndConsumer,
    Event,
    Fetch,
    Fetched,
    FetchFailed,
    Held,
    Joined,
    Left,
    PartitionAdded,
    Record,
    Refunded,
    Reset,
    Scan,
    ScanFailed,
    Scanned,
    Send,
    SettingsChanged,
    Settle,
    Tick,
    Widened,
)
from hocket.core.sharing.ranges import Range, clipped, length
from hocket.core.sharing.share import Share
from hocket.core.sharing.state import ShareChange

FETCH_BYTES_MAX = 1 << 20  # of one read, unless a single batch is larger
FETCH_MESSAGES_MAX = 2_000  # that one read is to lease
_FAR = 1 << 64  # behind every offset


class Sharing:
    """See the head of the file. What concerns somebody who is not there brings nothing about."""

    def __init__(self, mode: str) -> None:
        self._is_keyed = mode == "key_shared"
        self._shares: dict[int, Share] = {}
        self._consumers: dict[int, Consumer] = {}
        self._vanished: dict[bytes, int] = {}  # identity -> number of who may come back
        self._ready: list[tuple[bool, int, int]] = []  # the ranks of those with credit, in order
        self._fetches: dict[int, Fetching] = {}
        self._last_fetch = 0
        self._scanning: dict[int, int] = {}  # partition -> where its scan under way began
        self._resting: dict[int, bool] = {}  # partitions not to be read before the next Tick
        self._not_scanned: dict[int, bool] = {}  # likewise
        self._is_closing = False

    def step(self, event: Event) -> list[Effect]:
        return self._handlers[type(event)](self, event)

    @property
    def is_idle(self) -> bool:
        """Nobody consumes it, or may come back, and nothing waits for a time."""
        return not (self._consumers or self._vanished) and all(
            share.is_idle for share in self._shares.values()
        )

    def leased(self, partition: int) -> int:
        """How many messages of it are with consumers."""
        return self._shares[partition].leased

    # --- consumers come and go -------------------------------------------------------------------

    def _joined(self, event: Joined) -> list[Effect]:
        effects: list[Effect] = []
        self._pass_time(self._shares, event.now_us)
        former = self._vanished.pop(event.identity, None)
        for consumer in self._consumers.values():
            if consumer.identity == event.identity:
                former = consumer.number
                effects.append(
                    EndConsumer(former, "its consumer has opened the index again elsewhere")
                )
        if former is not None and former in self._consumers:
            self._remove(self._consumers[former])
        for number, share in self._shares.items():
            held = [(start, end) for partition, start, end in event.held if partition == number]
            share.welcome(event.consumer, former, held, event.now_us)
        self._consumers[event.consumer] = consumer = Consumer(
            event.consumer,
            event.identity,
            deque(event.partitions),
            set(event.partitions),
            event.credit_bytes,
            event.credit_messages,
            event.now_us,
        )
        self._rank(consumer)
        self._spread()
        return [*effects, *self._records(self._shares), *self._dispatch()]

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
        for share in self._shares.values():
            if event.graceful:
                share.leave(consumer.number)
            else:
                share.vanish(consumer.number, event.now_us)
        if not event.graceful:
            self._vanished[consumer.identity] = consumer.number
        self._spread()
        return [*self._records(self._shares), *self._dispatch()]

    def _remove(self, consumer: Consumer) -> None:
        for fetch in list(consumer.fetching.values()):
            self._give_up(fetch)
        self._unrank(consumer)
        del self._consumers[consumer.number]

    def _credit_given(self, event: CreditGiven) -> list[Effect]:
        consumer = self._consumers.get(event.consumer)
        if consumer is None:
            return []
        self._unrank(consumer)
        consumer.credit_bytes += event.bytes
        consumer.credit_messages += event.messages
        consumer.sated_until_us = 0
        self._rank(consumer)
        self._lives(consumer, event.now_us)
        return self._dispatch()

    def _refunded(self, event: Refunded) -> list[Effect]:
        consumer = self._consumers.get(event.consumer)
        if consumer is None:
            return []
        self._unrank(consumer)
        consumer.credit_bytes += event.bytes
        self._rank(consumer)
        return self._dispatch()

    def _lives(self, consumer: Consumer, now_us: int) -> None:
        consumer.life_us = now_us
        if consumer.stalled:
            self._set_stalled(consumer, False)

    def _set_stalled(self, consumer: Consumer, stalled: bool) -> None:
        self._unrank(consumer)
        consumer.stalled = stalled
        self._rank(consumer)
        self._spread()

    def _rank(self, consumer: Consumer) -> None:
        """Among those who are ready, if it has credit."""
        if consumer.bytes_left > 0 and consumer.messages_left > 0 and not consumer.sated_until_us:
            insort(self._ready, consumer.rank)

    def _unrank(self, consumer: Consumer) -> None:
        at = bisect_left(self._ready, consumer.rank)
        if at < len(self._ready) and self._ready[at] == consumer.rank:
            del self._ready[at]

    def _spread(self) -> None:
        """Share the keys out among those who are not stalled, or all if all are."""
        if not self._is_keyed:
            return
        for number, share in self._shares.items():
            wanting = [each for each in self._consumers.values() if number in each.wanted]
            lively = [each for each in wanting if not each.stalled]
            share.spread([each.number for each in lively or wanting])

    # --- messages --------------------------------------------------------------------------------

    def _partition_added(self, event: PartitionAdded) -> list[Effect]:
        self._shares[event.partition] = event.share
        if self._is_keyed:
            event.share.order_keys()
            self._spread()
        return [*self._records([event.partition]), *self._dispatch()]

    def _settings_changed(self, event: SettingsChanged) -> list[Effect]:
        self._shares[event.partition].settings = event.settings
        return []

    def _advanced(self, event: Advanced) -> list[Effect]:
        self._shares[event.partition].advanced(event.start, event.end)
        return self._dispatch()

    def _fetched(self, event: Fetched) -> list[Effect]:
        fetching = self._fetches.pop(event.fetch, None)
        if fetching is None:
            return []
        number, runs = fetching.partition, fetching.runs
        share, consumer = self._shares[number], self._consumers[fetching.consumer]
        self._unrank(consumer)
        consumer.end(fetching)
        end = event.end if event.bytes else 0
        ranges = share.lease(clipped(runs, event.start, end), event.now_us)
        share.give_back(clipped(runs, max(event.start, end), _FAR))
        share.lose(clipped(runs, 0, event.start))
        sends: list[Effect] = []
        if ranges:
            consumer.credit_bytes -= event.bytes
            consumer.credit_messages -= sum(last - first for first, last, _ in ranges)
            sends.append(Send(event.fetch, consumer.number, number, ranges))
        elif event.start <= runs[0][0]:
            self._resting[number] = True  # it would only be read again, in vain
        self._rank(consumer)
        return [*self._records([number]), *sends, *self._dispatch()]

    def _fetch_failed(self, event: FetchFailed) -> list[Effect]:
        fetching = self._fetches.get(event.fetch)
        if fetching is None:
            return []
        self._resting[fetching.partition] = True
        self._give_up(event.fetch)
        return self._dispatch()

    def _give_up(self, fetch: int) -> None:
        fetching = self._fetches.pop(fetch)
        consumer = self._consumers[fetching.consumer]
        self._unrank(consumer)
        consumer.end(fetching)
        self._rank(consumer)
        self._shares[fetching.partition].give_back(fetching.runs)

    def _scanned(self, event: Scanned) -> list[Effect]:
        number = event.partition
        if self._scanning.get(number) != event.start:
            return []  # asked for before the index was put elsewhere
        del self._scanning[number]
        if not self._shares[number].scan(event.start, event.key_hashes):
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
            if number in self._shares:
                asked.setdefault(number, []).append((start, end))
            else:
                refused.append((number, start, end))
        self._pass_time(asked, event.now_us)
        if event.action == "release":
            self._sate(consumer, asked, event.now_us)
        for number, ranges in asked.items():
            others = self._shares[number].settle(
                consumer.number,
                event.action,
                ranges,
                now_us=event.now_us,
                duration_us=event.duration_us,
                reason=event.reason,
            )
            refused += [(number, start, end) for start, end in others]
        records = self._records(asked, event.token)
        answer = Answer(consumer.number, event.token, refused, len(records))
        return [*records, answer, *self._dispatch()]

    def _sate(self, consumer: Consumer, partitions: Iterable[int], now_us: int) -> None:
        self._unrank(consumer)
        for number in partitions:
            until_us = now_us + self._shares[number].settings.lease_us
            consumer.sated_until_us = max(consumer.sated_until_us, until_us)
        self._rank(consumer)

    def _dead_lettered(self, event: DeadLettered) -> list[Effect]:
        self._shares[event.partition].dead_lettered(event.start, event.end)
        return [*self._records([event.partition]), *self._dispatch()]

    def _reset(self, event: Reset) -> list[Effect]:
        for fetch, fetching in list(self._fetches.items()):
            if fetching.partition == event.partition:
                self._give_up(fetch)
        self._scanning.pop(event.partition, None)
        self._shares[event.partition].reset(event.offset)
        return [*self._records([event.partition], event.token), *self._dispatch()]

    # --- time ------------------------------------------------------------------------------------

    def _tick(self, event: Tick) -> list[Effect]:
        self._resting.clear()
        self._not_scanned.clear()
        self._pass_time(self._shares, event.now_us)
        for consumer in self._consumers.values():
            if 0 < consumer.sated_until_us <= event.now_us:
                self._unrank(consumer)
                consumer.sated_until_us = 0
                self._rank(consumer)
        self._vanished = {
            identity: number
            for identity, number in self._vanished.items()
            if any(share.held_by(number) for share in self._shares.values())
        }
        return [*self._records(self._shares), *self._dispatch()]

    def _pass_time(self, partitions: Iterable[int], now_us: int) -> None:
        for number in partitions:
            share = self._shares[number]
            for holder, deadline in share.pass_time(now_us):
                consumer = self._consumers.get(holder)
                silent_since = deadline - share.settings.lease_us
                if consumer and consumer.life_us <= silent_since and not consumer.stalled:
                    self._set_stalled(consumer, True)

    def _closing(self, _event: Closing) -> list[Effect]:
        self._is_closing = True
        for fetch in list(self._fetches):
            self._give_up(fetch)
        return [
            Record(number, self._closed(share, share.take_change() or ShareChange()), 0)
            for number, share in self._shares.items()
        ]

    def _closed(self, share: Share, change: ShareChange) -> ShareChange:
        change.clean, change.lent = True, share.lent()
        return change

    def _records(self, partitions: Iterable[int], token: int = 0) -> list[Record]:
        """What is to be logged of all that happened in these."""
        records = []
        for number in partitions:
            share = self._shares[number]
            change = share.take_change()
            if change is not None:
                if self._is_closing:  # it stays in good order
                    self._closed(share, change)
                records.append(Record(number, change, token))
        return records

    # --- who gets what ---------------------------------------------------------------------------

    def _dispatch(self) -> list[Effect]:
        if self._is_closing:
            return []
        effects: list[Effect] = []
        open_ = {
            number: 0  # later: how many are ready for it
            for number, share in self._shares.items()
            if number not in self._resting and share.available()
        }
        at = 0
        while open_ and at < len(self._ready):
            fetch = self._fetch_for(self._consumers[self._ready[at][2]], open_)
            if fetch is None:
                at += 1
            else:  # it has gone to the back, so the next one is in its place
                effects.append(fetch)
        if self._is_keyed:
            effects += self._scans()
        return effects

    def _fetch_for(self, consumer: Consumer, open_: dict[int, int]) -> Fetch | None:
        if consumer.stalled and (consumer.fetching or self._holds(consumer)):
            return None
        for _ in range(len(consumer.turns)):
            number = consumer.turns[0]
            consumer.turns.rotate(-1)
            if number not in open_ or number in consumer.fetching:
                continue
            share = self._shares[number]
            runs = share.reserve(consumer.number, self._portion(consumer, number, share, open_))
            if not share.available():
                del open_[number]
            if runs:
                return self._begin_fetch(consumer, number, runs)
        return None

    def _portion(self, consumer: Consumer, number: int, share: Share, open_: dict[int, int]) -> int:
        """So many of what is available there are for this one."""
        if consumer.stalled:
            return 1
        if not open_[number]:
            open_[number] = sum(
                number in each.wanted and number not in each.fetching
                for each in (self._consumers[rank[2]] for rank in self._ready if not rank[0])
            )
        fair = -(-share.available() // open_[number])
        open_[number] = max(1, open_[number] - 1)
        return min(consumer.messages_left, fair, FETCH_MESSAGES_MAX)

    def _begin_fetch(self, consumer: Consumer, number: int, runs: list[Range]) -> Fetch:
        self._last_fetch += 1
        bytes_max = min(FETCH_BYTES_MAX, consumer.bytes_left)
        fetching = Fetching(consumer.number, number, runs, bytes_max, length(runs))
        self._fetches[self._last_fetch] = fetching
        self._unrank(consumer)
        consumer.begin(self._last_fetch, fetching)
        self._rank(consumer)
        return Fetch(self._last_fetch, consumer.number, number, runs[0][0], runs[-1][1], bytes_max)

    def _holds(self, consumer: Consumer) -> bool:
        return any(share.held_by(consumer.number) for share in self._shares.values())

    def _scans(self) -> list[Effect]:
        effects: list[Effect] = []
        for number, share in self._shares.items():
            wanted = share.scan_wanted()
            if wanted and number not in self._scanning and number not in self._not_scanned:
                self._scanning[number] = wanted[0]
                effects.append(Scan(number, *wanted, FETCH_BYTES_MAX))
        return effects

    _handlers: ClassVar[dict[type, Callable[..., list[Effect]]]] = {
        PartitionAdded: _partition_added,
        SettingsChanged: _settings_changed,
        Joined: _joined,
        Widened: _widened,
        Left: _left,
        CreditGiven: _credit_given,
        Advanced: _advanced,
        Fetched: _fetched,
        Refunded: _refunded,
        FetchFailed: _fetch_failed,
        Scanned: _scanned,
        ScanFailed: _scan_failed,
        Settle: _settle,
        DeadLettered: _dead_lettered,
        Reset: _reset,
        Tick: _tick,
        Closing: _closing,
    }
