"""Five nodes of ours, and how the consumers of one topic are spread over them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import hocket
from benchmarks.fanout.measure import Served
from benchmarks.fanout.processes import running

HOCKET = (sys.executable, "-m", "hocket.cli")
NODES = 5
SUCCESSORS = 2
NEVER = 1_000_000  # so many consumers of one partition come never: all are served by its leader
SETTLE_SECONDS = 12.0  # consumers are spread within 10 s of the last arrival
STILL_SECONDS = 3.0
LOOK_SECONDS = 0.5


@contextmanager
def cluster(directory: Path, *, spreads: bool) -> Iterator[Cluster]:
    """Nodes with empty data directories, which spread many consumers, or never do."""
    options = () if spreads else ("--popular", str(NEVER))
    with ExitStack() as stack:
        nodes: dict[str, int] = {}
        for number in range(NODES):
            command = [
                *HOCKET, "serve", "--listen", "127.0.0.1:0", "--data",
                str(directory / f"node-{number}"), "--log-level", "warning", *options,
            ]  # fmt: skip
            if nodes:
                command += ["--join", next(iter(nodes)).partition("://")[2]]
            else:
                command += ["--successors", str(SUCCESSORS)]
            process = stack.enter_context(running(command, stdout=subprocess.PIPE))
            assert process.stdout is not None
            nodes[process.stdout.readline().split()[-1]] = process.pid
        yield Cluster(nodes, spreads=spreads)


class Cluster:
    def __init__(self, nodes: dict[str, int], *, spreads: bool) -> None:
        self._nodes = nodes  # address -> process
        self._spreads = spreads
        self.address = next(iter(nodes))
        self._processes: dict[str, int] = {}  # node -> process
        for address, process in nodes.items():
            with hocket.connect(address) as client:
                self._processes[client.broker.node] = process

    def served(self) -> Served:
        return Served("hocket", self.address, list(self._nodes.values()), self._settle)

    def _settle(self, topic: str) -> tuple[int, dict[str, float]]:
        with hocket.connect(self.address) as client:
            leader = client.describe(topic).partitions[0].leader
        process = self._processes[leader]
        if not self._spreads:
            return process, {}
        counts = self._settled(topic)
        mean = sum(counts.values()) / NODES
        return process, {
            "most": max(counts.values()) / mean,
            "leader": counts.get(leader, 0) / mean,
        }

    def _settled(self, topic: str) -> dict[str, int]:
        """How many consumers each node has, once that has not changed for a while."""
        begun = changed = monotonic()
        last = self._consumers(topic)
        while monotonic() - begun < SETTLE_SECONDS and monotonic() - changed < STILL_SECONDS:
            sleep(LOOK_SECONDS)
            counts = self._consumers(topic)
            if counts != last:
                last, changed = counts, monotonic()
        return last

    def _consumers(self, topic: str) -> dict[str, int]:
        (tree,) = ring_of(self.address, topic)
        return {each["node"]: each["consumers"] for each in tree["nodes"]}


def ring_of(address: str, topic: str) -> list[dict[str, Any]]:
    """What `hocket ring --topic` says: for each partition who serves its consumers."""
    told = subprocess.run(
        [*HOCKET, "ring", "--topic", topic, "--json", "--server", address],
        check=True,
        capture_output=True,
        text=True,
    )
    found: list[dict[str, Any]] = json.loads(told.stdout)
    return found
