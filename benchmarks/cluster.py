"""The rows of `make bench-cluster`: partitions on three nodes, against the same ones on one node.

The client, the data and the partitions are the same. The nodes are processes of this machine, so
three nodes have no more processors than one: what is asked is that spreading costs little.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import hocket
from benchmarks import runner
from benchmarks.broker.__main__ import ACKED, FROM_MEMORY, SHARED, WHERE, latency, rate
from benchmarks.broker.ours import Bench, serving
from benchmarks.runner import Contest, Row

VALUE = os.urandom(100)
PARTITIONS = 6  # of every topic, on one node as on three
NODES = 3
KEYS = 100
AT_LEAST = 0.8  # of the rate of one node
PUBLISH_AT_LEAST = 1 / 1.2  # three nodes may take 1.2 times as long
THREE, ONE = "three nodes", "one node"
SAME = f"{PARTITIONS} partitions, on {NODES} nodes and on one; all processes on this machine"


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """Three nodes; the address of the first, which is all that the client is told."""
    with ExitStack() as nodes:
        first = nodes.enter_context(serving(directory))
        for _ in range(NODES - 1):
            nodes.enter_context(serving(directory, "--join", first.partition("://")[2]))
        yield first


def check_spread(url: str) -> None:
    """That three nodes lead, lest one node be compared with itself."""
    with hocket.connect(url) as client:
        client.create_topic("probe", partitions=PARTITIONS)
        leaders = {each.leader for each in client.describe("probe").partitions}
        client.delete_topic("probe")
    assert len(leaders) == NODES, f"the partitions are led by {leaders}"


def contests(three: Bench, one: Bench) -> list[Contest]:
    def records(
        name: str, measure: Callable[[Bench, int], float], count: int, *settings: str,
        at_least: float | None = AT_LEAST,
    ) -> Contest:  # fmt: skip
        return Contest(
            rate(THREE, lambda count: measure(three, count)),
            [rate(ONE, lambda count: measure(one, count))],
            [Row(name, "rate", "records/s", at_least)],
            count=count,
            quick_count=20_000,
            settings=(SAME, *settings),
        )

    def latencies(
        name: str, measure: Callable[[Bench, int], list[float]], count: int, *settings: str,
        at_least: float | None = None,
    ) -> Contest:  # fmt: skip
        return Contest(
            latency(THREE, lambda count: measure(three, count)),
            [latency(ONE, lambda count: measure(one, count))],
            [
                Row(f"{name}, p50", "p50", "us", at_least, less_is_better=True),
                Row(f"{name}, p99", "p99", "us", None, less_is_better=True),
            ],
            count=count,
            quick_count=20,
            settings=(SAME, *settings),
        )

    return [
        records("produce, send()", Bench.produce, 500_000, ACKED, WHERE),
        records("produce, send() with keys", Bench.produce_keyed, 500_000, ACKED, WHERE),
        records("produce, send_many()", Bench.produce_lists, 1_000_000, ACKED, WHERE),
        records("consume, for m in sub", Bench.consume, 500_000, FROM_MEMORY),
        records("consume, Arrow batches", Bench.consume_arrow, 1_000_000, FROM_MEMORY),
        records(
            "consume, shared index, each acked", Bench.consume_shared, 200_000, FROM_MEMORY, SHARED,
        ),
        records(
            "one transaction, send_many(), 2 topics",
            Bench.transact, 500_000, ACKED, WHERE, at_least=None,
        ),
        latencies(
            "publish, one at a time", Bench.publish, 500, ACKED, WHERE, at_least=PUBLISH_AT_LEAST
        ),
        latencies(
            f"publish, one at a time, {KEYS} keys",
            lambda bench, count: bench.publish(count, KEYS), 500, ACKED, WHERE,
            at_least=PUBLISH_AT_LEAST,
        ),
        latencies(
            "first message of a new client", Bench.first_messages, 30, ACKED, WHERE,
            "on three nodes it asks who leads, and connects, for two of three partitions",
        ),
    ]  # fmt: skip


def main() -> int:
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as scratch,
        serving(Path(scratch)) as one,
        cluster(Path(scratch)) as three,
    ):
        check_spread(three)
        benches = Bench(three, VALUE, PARTITIONS), Bench(one, VALUE, PARTITIONS)
        title = "Partitions on three nodes against one"
        return runner.main("cluster", title, contests(*benches), rounds=5)


if __name__ == "__main__":
    sys.exit(main())
