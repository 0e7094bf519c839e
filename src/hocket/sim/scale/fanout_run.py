"""The chapter on one popular partition: every node has a consumer of it, relays form a tree."""

from __future__ import annotations

from functools import partial
from math import log

from hocket.core.ring.settings import SECOND
from hocket.sim.scale.audience import Audience
from hocket.sim.scale.figures import Cell, Chapter, Options, Table
from hocket.sim.scale.quiet import without_collecting
from hocket.sim.scale.statistics import histogram, mean, percentile
from hocket.sim.scale.world import World

BATCH = bytes(1_000)
EVERY_US = SECOND // 2
GATHER_SECONDS = 30  # in which the first half of the consumers begins
CROWD_SECONDS = 60  # in which the second half begins
SETTLE_SECONDS = 10
CRASHED = 0.1  # the share of those relays that have children

TREE_COLUMNS = [
    "nodes>", "log₁₆ N>", "depth, mean>", "depth, max>", "children, max>", "owner's egress>",
    "most of any node>", "delay, mean, ms>", "delay, p99, ms>",
]  # fmt: skip
REPAIR_COLUMNS = [
    "nodes>", "relays crashed>", "consumers below them>", "repaired, p50, s>", "p99, s>", "max, s>",
    "lost or twice>", "incomplete>",
]  # fmt: skip
CROWD_COLUMNS = [
    "consumers>", "then>", "first delivery, p50, s>", "p99, s>", "attaches at the owner>",
    "delay of the others, p99, ms>", "depth after, max>",
]  # fmt: skip


def fanout(options: Options) -> Chapter:
    """Depth, the owner's work, the way back after crashes, and a crowd of consumers."""
    trees: list[list[Cell]] = []
    repairs: list[list[Cell]] = []
    crowds: list[list[Cell]] = []
    series: dict[str, object] = {}
    for size in options.sizes():
        options.say(f"fanout: {size:,} nodes, each with a consumer")
        with World(options.seed) as world, without_collecting():
            world.build(size)
            audience = Audience(world)
            crowds.append(_gather(audience, size))
            tree, depths = _measure_tree(audience, size)
            trees.append(tree)
            options.say(f"fanout: {size:,} nodes, {CRASHED:.0%} of the relays crash")
            repair, times = _measure_repair(audience, size)
            repairs.append(repair)
            audience.close()
        series[str(size)] = {"depths": list(depths.items()), "repairs": times}
    tables = [
        Table("fanout", TREE_COLUMNS, trees),
        Table("repair", REPAIR_COLUMNS, repairs),
        Table("consumers", CROWD_COLUMNS, crowds),
    ]
    return Chapter("fanout", tables, series, options.run())


def _gather(audience: Audience, size: int) -> list[Cell]:
    """Begin half of the consumers; when they are settled, begin the other half within a minute."""
    world = audience.world
    chance = world.scheduler.random("subscribers")
    everybody = [contact.address for contact in world.contacts]
    chance.shuffle(everybody)
    early, late = everybody[: size // 2], everybody[size // 2 :]
    _subscribe(audience, early, seconds=GATHER_SECONDS)
    world.run_seconds(GATHER_SECONDS + SETTLE_SECONDS)
    audience.attaches_at_owner = 0
    for address in early:
        audience.readers[address].latency_us.clear()
    _subscribe(audience, late, seconds=CROWD_SECONDS)
    audience.keep_publishing(BATCH, every_us=EVERY_US, count=2 * CROWD_SECONDS)
    world.run_seconds(CROWD_SECONDS + SETTLE_SECONDS)
    waits = [
        (reader.first_us - reader.began_us) / SECOND
        for address in late
        for reader in [audience.readers[address]]
        if reader.first_us
    ]
    others = [delay for each in early for delay in audience.readers[each].latency_us]
    return [
        len(early),
        size,
        percentile(waits, 0.5),
        percentile(waits, 0.99),
        audience.attaches_at_owner,
        percentile(others, 0.99) / 1000,
        max(audience.depth.values()),
    ]


def _subscribe(audience: Audience, addresses: list[str], *, seconds: int) -> None:
    scheduler = audience.world.scheduler
    chance = scheduler.random("subscribing")
    for address in addresses:
        wait_us = chance.randrange(seconds * SECOND)
        scheduler.after(wait_us, partial(audience.subscribe, address))


def _measure_tree(audience: Audience, size: int) -> tuple[list[Cell], dict[int, float]]:
    world = audience.world
    audience.sent_bytes.clear()
    for reader in audience.readers.values():
        reader.latency_us.clear()
    before = audience.log.end
    audience.keep_publishing(BATCH, every_us=EVERY_US, count=20)
    world.run_seconds(20)
    published = (audience.log.end - before) * len(BATCH)
    delays = [delay for each in audience.readers.values() for delay in each.latency_us]
    depths = [depth for address, depth in audience.depth.items() if address != audience.owner]
    row: list[Cell] = [
        size,
        log(size, 16),
        mean(depths),
        max(depths),
        max(audience.children().values()),
        audience.sent_bytes.get(audience.owner, 0) / published,
        max(audience.sent_bytes.values()) / published,
        mean(delays) / 1000,
        percentile(delays, 0.99) / 1000,
    ]
    return row, histogram(depths)


def _measure_repair(audience: Audience, size: int) -> tuple[list[Cell], list[float]]:
    """Crash a tenth of the relays with children at once, silently, while records are published."""
    world = audience.world
    inner = [address for address in audience.children() if address != audience.owner]
    inner = [address for address in inner if address != world.root]
    doomed = world.scheduler.random("doomed").sample(inner, max(round(CRASHED * len(inner)), 1))
    below = _below(audience, doomed)
    for reader in audience.readers.values():
        reader.latency_us.clear()
        reader.wrong = 0
    for address in doomed:
        audience.crash(address)
    audience.keep_publishing(BATCH, every_us=EVERY_US, count=40)
    world.run_seconds(20)
    world.until(lambda: not audience.behind(), seconds_max=40)
    times = [
        max(audience.readers[address].latency_us, default=0) / SECOND
        for address in below
        if address in audience.readers
    ]
    row: list[Cell] = [
        size,
        len(doomed),
        len(times),
        percentile(times, 0.5),
        percentile(times, 0.99),
        max(times, default=0.0),
        sum(reader.wrong for reader in audience.readers.values()),
        audience.behind(),
    ]
    return row, sorted(times)


def _below(audience: Audience, relays: list[str]) -> list[str]:
    """All nodes whose way to the owner leads through one of these relays."""
    doomed = set(relays)
    below: list[str] = []
    for address in audience.parent:
        up: str | None = audience.parent[address]
        passed = 0
        while up is not None and up not in doomed and passed <= len(audience.parent):
            up = audience.parent.get(up)
            passed += 1
        if up in doomed and address not in doomed:
            below.append(address)
    return below
