"""The command behind `make bench-fanout`: one topic, and 1 to 1,000 consumers of it.

On one node: a busy producer and 20 consumers with indexes of their own, against NATS JetStream and
Redis Streams. On five nodes: consumers that are spread, against all of them at the leader, and
against as many at one server of NATS and Redis.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks import report, runner
from benchmarks.fanout import rows, servers
from benchmarks.fanout.cluster import cluster
from benchmarks.fanout.measure import Load, Served, measure
from benchmarks.fanout.ours import MEMORY
from benchmarks.fanout.plot import draw
from benchmarks.fanout.redis_streams import ALWAYS
from benchmarks.fanout.servers import NoPeer
from benchmarks.runner import Sample

SUITE, TITLE = "fanout", "Many consumers of one topic"
ONE, FIVE = "one node", "five nodes"
ROUNDS = 3  # of the rows of one node; those of five nodes have one
ONE_NODE = Load(rate=2000, seconds=4.0, value_bytes=100, consumers=20, looking_max=20)
FIVE_NODES = Load(rate=200, seconds=5.0, value_bytes=1024, consumers=0, apart=True)
CONSUMERS = (1, 10, 100, 1000)
QUICK_SECONDS, QUICK_CONSUMERS = 1.0, (1, 40)


def peers(stack: ExitStack, scratch: Path, about: dict[str, str]) -> list[Served]:
    found = []
    for name, serving in (("NATS JetStream", servers.nats), ("Redis Streams", servers.redis)):
        try:
            address, process = stack.enter_context(serving(scratch))
        except NoPeer as error:
            about[name] = f"not measured: {error}"
        else:
            about[name] = servers.version(name)
            found.append(Served(name, address, [process]))
    return found


def always(stack: ExitStack, scratch: Path, about: dict[str, str]) -> list[Served]:
    """The peers that can be told to sync before they answer; the NATS of Debian (2.9) cannot."""
    try:
        address, process = stack.enter_context(servers.redis(scratch, "always"))
    except NoPeer as error:
        about[ALWAYS] = f"not measured: {error}"
        return []
    return [Served(ALWAYS, address, [process])]


def one_node(sides: Sequence[Served], load: Load, rounds: int, scratch: Path) -> runner.Samples:
    samples: runner.Samples = {side.side: [] for side in sides}
    with tqdm(total=rounds * len(sides), desc=ONE, unit="run", leave=False) as shown:
        for number in range(rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                samples[side.side].append(measure(side, load, scratch))
                shown.update()
    return samples


def five_nodes(
    sides: dict[str, Served], loads: Sequence[Load], scratch: Path
) -> dict[int, dict[str, Sample]]:
    """For each number of consumers, what each side did."""
    found: dict[int, dict[str, Sample]] = {}
    with tqdm(total=len(loads) * len(sides), desc=FIVE, unit="run", leave=False) as shown:
        for load in loads:
            samples = found[load.consumers] = {}
            for name, side in sides.items():
                samples[name] = measure(side, load, scratch)
                shown.update()
    return found


def main() -> int:
    chosen = runner.parse_arguments(SUITE, None, ROUNDS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the servers end with us
    wanted = [
        part for part in (ONE, FIVE) if any(each.lower() in part for each in chosen.rows or [""])
    ]
    if not wanted:
        print(f"--rows takes a part of {ONE!r} or {FIVE!r} here", file=sys.stderr)
        return 2
    loads = [FIVE_NODES.of(count) for count in CONSUMERS]
    single = ONE_NODE
    if chosen.quick:
        loads = [FIVE_NODES.of(count, QUICK_SECONDS) for count in QUICK_CONSUMERS]
        single = ONE_NODE.of(ONE_NODE.consumers, QUICK_SECONDS)
    about: dict[str, Any] = report.describe_machine()
    other_work = report.OtherWork()
    alone: runner.Samples = {}
    crowds: dict[int, dict[str, Sample]] = {}
    started = time.perf_counter()
    with ExitStack() as stack:
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-"))
        )
        rivals = peers(stack, scratch, about)
        if ONE in wanted:
            with servers.broker(scratch) as ours, ExitStack() as synced:
                sides = [ours, replace(ours, side=MEMORY), *rivals, *always(synced, scratch, about)]
                alone = one_node(sides, single, chosen.rounds, scratch)
        if FIVE in wanted:
            spread = stack.enter_context(cluster(scratch / "spread", spreads=True))
            leader = stack.enter_context(cluster(scratch / "leader", spreads=False))
            crowded = {rows.SPREAD: spread.served(), rows.LEADER: leader.served()}
            crowded |= {each.side: each for each in rivals}
            crowds = five_nodes(crowded, loads, scratch)
    results = [*rows.of_one_node(alone, single), *rows.of_five_nodes(crowds, FIVE_NODES)]
    about["took"] = f"{time.perf_counter() - started:.0f} s"
    about["other processes"] = other_work.describe()
    if chosen.quick:
        about["beware"] = "a --quick run: a smoke test whose numbers mean nothing"
    print(report.text_table(results))
    print(rows.text_table(crowds))
    print(f"other processes took {about['other processes']}")
    directory = runner.results_directory(chosen)
    if directory is None:
        print("(not written to files: not a whole run, and no --results DIR)", file=sys.stderr)
        return 0
    report.write(directory, SUITE, TITLE, results, about)
    page = directory / f"{SUITE}.md"
    if crowds:
        page.write_text(page.read_text() + rows.section(crowds))
        draw(directory / f"{SUITE}_consumers.png", crowds)
    print(f"written: {directory / SUITE}.json, .md, .png", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
