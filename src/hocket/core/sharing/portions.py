"""Who is read the next messages of a shared index, and how many: see rules 1 to 4 of `dispatcher`.

A read for a consumer is a Fetch. Its messages are RESERVED from then on, until they were read, or
the read is given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hocket.core.sharing.consumer import Consumer, Fetching
from hocket.core.sharing.events import Effect, Fetch
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.ranges import Range, length
from hocket.core.sharing.ready import Ready

FETCH_BYTES_MAX = 1 << 20  # that one read may return, unless a single batch is larger
FETCH_MESSAGES_MAX = 2_000  # that one read may lease


class Portions:
    """The leases, the consumers and those of them that are ready are the dispatcher's own."""

    def __init__(
        self, leases: Mapping[int, Leases], consumers: Mapping[int, Consumer], ready: Ready
    ) -> None:
        self.fetches: dict[int, Fetching] = {}  # the reads under way
        self._last_fetch = 0
        self._leases = leases
        self._consumers = consumers
        self._ready = ready

    def fetch(self, partitions: Iterable[int]) -> list[Effect]:
        """Reads for those who are ready, of these partitions, which have available messages."""
        effects: list[Effect] = []
        # `_portion` counts here how many consumers are ready for the partition.
        open_ = dict.fromkeys(partitions, 0)
        has_suspects = any(leases.suspects for leases in self._leases.values())
        at = 0
        while open_ and at < len(self._ready.ranks):
            consumer = self._consumers[self._ready.ranks[at][2]]
            suspects = self._suspects_next(consumer, open_) if has_suspects else []
            if has_suspects and self._is_held_back(consumer, suspects):
                fetch = None
            else:
                fetch = self._fetch_for(consumer, open_, suspects)
            if fetch is None:
                at += 1
            else:  # the consumer has gone to the back, and the next one is at this place
                effects.append(fetch)
                at = 0 if has_suspects else at  # a suspect that is taken holds nobody back
        return effects

    def _fetch_for(
        self, consumer: Consumer, open_: dict[int, int], suspects: list[int]
    ) -> Fetch | None:
        if consumer.stalled and (consumer.fetching or self._holds(consumer)):
            return None
        for _ in range(len(consumer.turns)):
            number = consumer.turns[0]
            consumer.turns.rotate(-1)
            if number not in open_ or number in consumer.fetching:
                continue
            leases = self._leases[number]
            if not suspects:
                portion = self._portion(consumer, number, leases, open_)
                runs = leases.reserve(consumer.number, portion)
            elif number in suspects:
                runs = leases.reserve_suspect(consumer.number)
            else:
                continue
            if not leases.available():
                del open_[number]
            if runs:
                return self._begin_fetch(consumer, number, runs)
        return None

    def _is_held_back(self, consumer: Consumer, suspects: list[int]) -> bool:
        """Whether it has a suspect, or has something else while a suspect is next for it."""
        if any(leases.has_suspect(consumer.number) for leases in self._leases.values()):
            return True
        return bool(suspects and (consumer.fetching or self._holds(consumer)))

    def _suspects_next(self, consumer: Consumer, open_: dict[int, int]) -> list[int]:
        """The partitions where a suspect is the lowest message that the consumer may have."""
        return [
            number
            for number in consumer.turns
            if number in open_ and self._leases[number].suspect_is_next(consumer.number)
        ]

    def _portion(
        self, consumer: Consumer, number: int, leases: Leases, open_: dict[int, int]
    ) -> int:
        """How many of the partition's available messages this consumer may have now."""
        if consumer.stalled:
            return 1
        if not open_[number]:
            open_[number] = sum(
                number in each.wanted and number not in each.fetching
                for each in (self._consumers[rank[2]] for rank in self._ready.ranks if not rank[0])
            )
        fair = -(-leases.available() // open_[number])
        open_[number] = max(1, open_[number] - 1)
        return min(consumer.messages_left, fair, FETCH_MESSAGES_MAX)

    def _begin_fetch(self, consumer: Consumer, number: int, runs: list[Range]) -> Fetch:
        self._last_fetch += 1
        bytes_max = min(FETCH_BYTES_MAX, consumer.bytes_left)
        fetching = Fetching(consumer.number, number, runs, bytes_max, length(runs))
        self.fetches[self._last_fetch] = fetching
        self._ready.remove(consumer)
        consumer.begin(self._last_fetch, fetching)
        self._ready.add(consumer)
        return Fetch(self._last_fetch, consumer.number, number, runs[0][0], runs[-1][1], bytes_max)

    def _holds(self, consumer: Consumer) -> bool:
        return any(leases.held_by(consumer.number) for leases in self._leases.values())

    def give_up(self, fetch: int) -> None:
        fetching = self.end(fetch)
        self._leases[fetching.partition].give_back(fetching.runs)

    def end(self, fetch: int) -> Fetching:
        fetching = self.fetches.pop(fetch)
        consumer = self._consumers[fetching.consumer]
        self._ready.remove(consumer)
        consumer.end(fetching)
        self._ready.add(consumer)
        return fetching
