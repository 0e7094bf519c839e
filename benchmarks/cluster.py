"""The rows of `make bench-cluster`: partitions on three nodes, against the same ones on one node;
three replicas of each, against one; and how long nobody leads after a leader's death.

The client, the data and the partitions are the same. The nodes are processes of this machine, so
three nodes have no more processors than one: what is asked is that spreading costs little. With
three replicas every record is written, synced and checked three times by the same processors.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter

import hocket
import hocket.aio
from benchmarks import runner
from benchmarks.broker.__main__ import ACKED, FROM_MEMORY, SHARED, WHERE, latency, rate
from benchmarks.broker.ours import Bench, serving
from benchmarks.failover import Failover
from benchmarks.runner import Contender, Contest, Row, fixed
from hocket.core.transactions.messages import decider_of
from hocket.model import DECIDERS_COUNT

VALUE = os.urandom(100)
PARTITIONS = 6  # of every topic, on one node as on three
NODES = 3
KEYS = 100
AT_LEAST = 0.8  # of the rate of one node
PUBLISH_AT_LEAST = 1 / 1.2  # three nodes may take 1.2 times as long
REPLICATED_AT_LEAST = 0.35  # of the rate of one replica
REPLICATED_PUBLISH_AT_LEAST = 1 / 3  # three replicas may take three times as long
FAILOVER_MEDIAN_SECONDS, FAILOVER_WORST_SECONDS = 2.0, 6.0
KILLS = 30
DECIDING = 64  # ids that are decided on at the same time
_SERIALS = itertools.count()
THREE, ONE = "three nodes", "one node"
IN_TURNS = "three brokers in turns"
THREE_REPLICAS, ONE_REPLICA = "three replicas", "one replica"
REPLICAS = (
    f"{PARTITIONS} partitions, led by {NODES} nodes; acknowledged when two of three have synced "
    "it, or the one; all processes on this machine"
)
SAME = f"{PARTITIONS} partitions, on {NODES} nodes and on one; all processes on this machine"


# What the processor time says, measured while others used the machine, too: it counts no waiting.
WHY_OF_KEYS = (
    "three brokers that know nothing of each other, in turns, take nearly as long. For a message "
    "one node takes 0.31 ms of processor time at the client and 0.50 at the broker, three brokers "
    "in turns 0.36 and 0.76, three nodes 0.36 and 0.78: a process that had to wait for its turn "
    "has to be woken, and finds the caches with others' data"
)
WHY_OF_ARROW = (
    "three nodes take 13 % more processor time at the client (178 ms for 3,000,000 records against "
    "157) and 33 % more at the nodes (120 ms against 90), with as many batches and as many waits; "
    "a credit of 2 to 24 MiB makes no difference, and nodes at rest take 0.6 % of a processor. "
    "With two processors, both busy, that alone is 0.83x"
)


Sides = tuple[tuple[str, Bench], tuple[str, Bench]]  # ours and the peer, each with its name


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


def records(
    name: str,
    measure: Callable[[Bench, int], float],
    count: int,
    sides: Sides,
    *settings: str,
    at_least: float | None = None,
    why: str = "",
) -> Contest:
    (ours, our_bench), (peer, peer_bench) = sides
    return Contest(
        rate(ours, lambda count: measure(our_bench, count)),
        [rate(peer, lambda count: measure(peer_bench, count))],
        [Row(name, "rate", "records/s", at_least, why=why)],
        count=count,
        quick_count=20_000,
        settings=settings,
    )


def latencies(
    name: str,
    measure: Callable[[Bench, int], list[float]],
    count: int,
    sides: Sides,
    *settings: str,
    at_least: float | None = None,
) -> Contest:
    (ours, our_bench), (peer, peer_bench) = sides
    return Contest(
        latency(ours, lambda count: measure(our_bench, count)),
        [latency(peer, lambda count: measure(peer_bench, count))],
        [
            Row(f"{name}, p50", "p50", "us", at_least, less_is_better=True),
            Row(f"{name}, p99", "p99", "us", None, less_is_better=True),
        ],
        count=count,
        quick_count=20,
        settings=settings,
    )


def of_keys(three: Bench, one: Bench, apart: list[Bench], *settings: str) -> Contest:
    """Publishes that go to other nodes by turns; and, to tell what of that is the cluster's doing,
    to three brokers that know nothing of each other."""
    name = f"publish, one at a time, {KEYS} keys"
    return Contest(
        latency(THREE, lambda count: three.publish(count, KEYS)),
        [
            latency(IN_TURNS, lambda count: publish_in_turns(apart, count)),
            latency(ONE, lambda count: one.publish(count, KEYS)),
        ],
        [
            Row(f"{name}, p50", "p50", "us", PUBLISH_AT_LEAST, less_is_better=True, against=ONE,
                why=WHY_OF_KEYS),
            Row(f"{name}, p50, against three brokers", "p50", "us", None, less_is_better=True,
                against=IN_TURNS),
            Row(f"{name}, p99", "p99", "us", None, less_is_better=True, against=ONE),
        ],
        count=500,
        quick_count=20,
        settings=settings,
    )  # fmt: skip


def publish_in_turns(brokers: list[Bench], count: int) -> list[float]:
    """Each broker has a client and a topic of its own; what is published is for a broker by chance,
    as keys are for a node."""
    chance = random.Random(KEYS)
    found = []
    with ExitStack() as stack:
        ways = []
        for each in brokers:
            client = stack.enter_context(hocket.connect(each.url))
            ways.append((client, stack.enter_context(each.topic(client))))
        keys = [(chance.choice(ways), b"key-%d" % number) for number in range(KEYS)]
        for (client, topic), key in keys:
            client.publish(topic, VALUE, key=key)
        for (client, topic), key in itertools.islice(itertools.cycle(keys), count):
            start = perf_counter()
            client.publish(topic, VALUE, key=key)
            found.append(perf_counter() - start)
    return found


def of_three_nodes(three: Bench, one: Bench, apart: list[Bench]) -> list[Contest]:
    sides = (THREE, three), (ONE, one)
    stored = SAME, ACKED, WHERE
    return [
        records(
            "produce, send()", Bench.produce, 500_000, sides, *stored, at_least=AT_LEAST
        ),
        records(
            "produce, send() with keys", Bench.produce_keyed, 500_000, sides, *stored,
            at_least=AT_LEAST,
        ),
        records(
            "produce, send_many()", Bench.produce_lists, 1_000_000, sides, *stored,
            at_least=AT_LEAST,
        ),
        records(
            "consume, for m in sub", Bench.consume, 500_000, sides, SAME, FROM_MEMORY,
            at_least=AT_LEAST,
        ),
        # A million take 80 ms: then a checkpoint of what was stored just before decides the row.
        records(
            "consume, Arrow batches", Bench.consume_arrow, 3_000_000, sides, SAME, FROM_MEMORY,
            at_least=AT_LEAST, why=WHY_OF_ARROW,
        ),
        records(
            "consume, shared index, each acked", Bench.consume_shared, 200_000, sides, SAME,
            FROM_MEMORY, SHARED, at_least=AT_LEAST,
        ),
        records(
            "one transaction, send_many(), 2 topics", Bench.transact, 500_000, sides, *stored
        ),
        latencies(
            "publish, one at a time", Bench.publish, 500, sides, *stored,
            at_least=PUBLISH_AT_LEAST,
        ),
        of_keys(three, one, apart, *stored),
        latencies(
            "first message of a new client", Bench.first_messages, 30, sides, *stored,
            "on three nodes it asks who leads, and connects, for two of three partitions",
        ),
    ]  # fmt: skip


def of_three_replicas(three: Bench, one: Bench) -> list[Contest]:
    sides = (THREE_REPLICAS, three), (ONE_REPLICA, one)
    stored = REPLICAS, WHERE
    return [
        records(
            "three replicas: produce, send()", Bench.produce, 300_000, sides, *stored,
            at_least=REPLICATED_AT_LEAST,
        ),
        records(
            "three replicas: produce, send_many()", Bench.produce_lists, 500_000, sides, *stored,
            at_least=REPLICATED_AT_LEAST,
        ),
        records(
            "three replicas: consume, for m in sub", Bench.consume, 300_000, sides, REPLICAS,
            FROM_MEMORY,
        ),
        records(
            "three replicas: one transaction, send_many(), 2 topics", Bench.transact, 1_000_000,
            sides, *stored, at_least=REPLICATED_AT_LEAST,
        ),
        records(
            "three replicas: consume, shared index, each acked", Bench.consume_shared, 200_000,
            sides, REPLICAS, FROM_MEMORY, SHARED, at_least=REPLICATED_AT_LEAST,
        ),
        latencies(
            "three replicas: publish, one at a time", Bench.publish, 500, sides, *stored,
            at_least=REPLICATED_PUBLISH_AT_LEAST,
        ),
    ]  # fmt: skip


def of_deciders(url: str) -> Contest:
    """How many decisions a second one decider takes, and all of them together."""

    def decided(deciders: int) -> Callable[[int], float]:
        return lambda count: asyncio.run(seconds_to_decide(url, count, deciders))

    return Contest(
        rate("all eight deciders", decided(DECIDERS_COUNT)),
        [rate("one decider", decided(1))],
        [Row("decisions of transactions", "rate", "decisions/s", None)],
        count=4_000,
        quick_count=400,
        settings=(
            f"{DECIDING} clients' coroutines, each with an id of its own, commit one empty "
            f"transaction after the other; each decision is on the disks of two of {NODES} nodes; "
            "all processes on this machine",
        ),
    )


async def seconds_to_decide(url: str, count: int, deciders: int) -> float:
    """Each id belongs to one of the first so many deciders, and they are even."""
    serial = next(_SERIALS)
    wanted = [number % deciders for number in range(DECIDING)]
    ids = (f"decide-{serial}-{number}" for number in itertools.count())
    found: list[str] = []
    for decider in wanted:
        found.append(next(each for each in ids if decider_of(each, DECIDERS_COUNT) == decider))
    async with await hocket.aio.connect(url) as client:

        async def commit(name: str, numbers: range) -> None:
            for number in numbers:
                async with client.transaction(name, number=number):
                    pass  # the end of the block commits

        await asyncio.gather(*(commit(name, range(1)) for name in found))  # who decides is known
        start = perf_counter()
        share = count // DECIDING
        await asyncio.gather(*(commit(name, range(1, 1 + share)) for name in found))
        return (perf_counter() - start) * count / (share * DECIDING)


def of_failover(failover: Failover) -> Contest:
    def measure(count: int) -> dict[str, float]:
        seconds = failover.seconds(count)
        return {"median": statistics.median(seconds), "worst": max(seconds)}

    return Contest(
        Contender("the leader is killed", measure),
        [fixed("asked", median=FAILOVER_MEDIAN_SECONDS, worst=FAILOVER_WORST_SECONDS)],
        [
            Row("failover after kill -9, median", "median", "s", 1.0, less_is_better=True),
            Row(f"failover after kill -9, worst of {KILLS}", "worst", "s", 1.0,
                less_is_better=True),
        ],
        count=KILLS,
        quick_count=2,
        rounds=1,
        settings=(
            "one partition of three replicas; from the kill of the node that leads it until the "
            "next message is acknowledged",
        ),
    )  # fmt: skip


def main() -> int:
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as scratch,
        serving(Path(scratch)) as one,
        cluster(Path(scratch)) as three,
        ExitStack() as alone,
        Failover(Path(scratch), VALUE) as failover,
    ):
        check_spread(three)
        apart = [
            Bench(alone.enter_context(serving(Path(scratch))), VALUE, PARTITIONS // NODES)
            for _ in range(NODES)
        ]
        spread = Bench(three, VALUE, PARTITIONS, replication=1)
        contests = [
            *of_three_nodes(spread, Bench(one, VALUE, PARTITIONS), apart),
            *of_three_replicas(Bench(three, VALUE, PARTITIONS, replication=NODES), spread),
            of_deciders(three),
            of_failover(failover),
        ]
        title = "Partitions and replicas on three nodes, against one"
        return runner.main("cluster", title, contests, rounds=5)


if __name__ == "__main__":
    sys.exit(main())
