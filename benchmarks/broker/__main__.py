"""The rows of `make bench-broker`: one broker on this machine, against the least it could do.

Rows of other brokers come with their own suite; here the peer is the machine itself (`bare.py`).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import runner
from benchmarks.broker import bare
from benchmarks.broker.ours import Bench, serving
from benchmarks.runner import Contender, Contest, Row, percentile

VALUE = os.urandom(100)
CHUNK_BYTES = 1 << 20
ACKED = "every record acknowledged, which means synced to disk; 100 B values; one client process"
FROM_MEMORY = (
    "served from the broker's memory tier, when nothing that was stored is left to be written; "
    "100 B values; one client process"
)
SHARED = "every message acknowledged by itself, and all acks synced to disk"
WHERE = "data on the disk of the directory the benchmark was started from"


def rate(name: str, seconds: Callable[[int], float]) -> Contender:
    return Contender(name, lambda count: {"rate": count / seconds(count)})


def latency(name: str, round_trips: Callable[[int], list[float]]) -> Contender:
    def measure(count: int) -> dict[str, float]:
        latencies = round_trips(count)
        return {f"p{part}": percentile(latencies, part) * 1e6 for part in (50, 99)}

    return Contender(name, measure)


def contests(bench: Bench, directory: Path) -> list[Contest]:
    size = len(VALUE)

    def stored(count: int) -> float:
        return bare.seconds_to_store(count * size, CHUNK_BYTES, directory)

    def fetched(count: int) -> float:
        return bare.seconds_to_fetch(count * size, CHUNK_BYTES)

    def echoes(count: int) -> list[float]:
        return bare.synced_echoes(count, size, directory)

    def records(
        name: str, ours: Callable[[int], float], peer: str, theirs: Callable[[int], float],
        count: int, *settings: str,
    ) -> Contest:  # fmt: skip
        return Contest(
            rate("hocket", ours),
            [rate(peer, theirs)],
            [Row(name, "rate", "records/s", None)],
            count=count,
            quick_count=20_000,
            settings=settings,
        )

    synced, memory = "bare socket and synced file", "bare socket"
    return [
        records("produce, send()", bench.produce, synced, stored, 1_000_000, ACKED, WHERE),
        records(
            "produce, send() with keys, 4 partitions",
            bench.produce_keyed, synced, stored, 1_000_000, ACKED, WHERE,
        ),
        records(
            "produce, send_many()", bench.produce_lists, synced, stored, 2_000_000, ACKED, WHERE
        ),
        records("consume, for m in sub", bench.consume, memory, fetched, 1_000_000, FROM_MEMORY),
        records(
            "consume, Arrow batches", bench.consume_arrow, memory, fetched, 2_000_000, FROM_MEMORY
        ),
        records(
            "consume, shared index, each acked",
            bench.consume_shared, memory, fetched, 500_000, FROM_MEMORY, SHARED,
        ),
        records(
            "one transaction, send_many(), 2 topics",
            bench.transact, synced, stored, 1_000_000, ACKED, WHERE,
        ),
        Contest(
            latency("hocket", bench.publish),
            [latency("bare echo, synced", echoes)],
            [
                Row("publish, one at a time, p50", "p50", "us", None, less_is_better=True),
                Row("publish, one at a time, p99", "p99", "us", None, less_is_better=True),
            ],
            count=1000,
            quick_count=50,
            settings=(ACKED, WHERE),
        ),
        Contest(
            rate("hocket", bench.publish_together),
            [rate("bare echo, synced, one at a time", lambda count: 20 * sum(echoes(count // 20)))],
            [Row("publish, 10,000 coroutines at once", "rate", "messages/s", None)],
            count=10_000,
            quick_count=500,
            settings=(ACKED, WHERE),
        ),
    ]  # fmt: skip


def main() -> int:
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as scratch,
        serving(Path(scratch)) as url,
    ):
        bench = Bench(url, VALUE)
        return runner.main("broker", "The broker on one node", contests(bench, Path(scratch)))


if __name__ == "__main__":
    sys.exit(main())
