"""One measurement: a producer at a steady rate, consumers of one topic, and what all of it took."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.fanout.processes import cpu_seconds, delays_in, worker
from benchmarks.fanout.sides import SIDES
from benchmarks.runner import percentile

LOOKING_MAX = 10  # consumers that look at every message; all others only count bytes

_names = itertools.count()


@dataclass(slots=True)
class Load:
    rate: int  # messages a second
    seconds: float
    value_bytes: int
    consumers: int
    apart: bool = False  # each consumer is a client by itself
    looking_max: int = LOOKING_MAX

    def of(self, consumers: int, seconds: float | None = None) -> Load:
        """The same load for another number of consumers, or for another time."""
        return replace(self, consumers=consumers, seconds=seconds or self.seconds)

    @property
    def looking(self) -> int:
        return min(self.consumers, self.looking_max)


@dataclass(slots=True)
class Served:
    """Who serves a topic: where clients go, and the processes."""

    side: str
    address: str
    processes: Sequence[int]
    # Called with the topic when all consumers are there, and returns when they are where they will
    # stay: the process that owns the topic, and how the consumers are spread.
    settle: Callable[[str], tuple[int, dict[str, float]]] | None = None


def measure(served: Served, load: Load, directory: Path) -> dict[str, float]:
    """Delays in milliseconds, processor time and the owner's egress for each second of the load."""
    topic = f"bench-{next(_names)}"
    asyncio.run(SIDES[served.side].make(served.address, topic, load.looking))
    delays = directory / f"{topic}.delays"
    task: dict[str, Any] = {
        "side": served.side, "address": served.address, "topic": topic, "rate": load.rate,
        "seconds": load.seconds, "value_bytes": load.value_bytes,
    }  # fmt: skip
    with ExitStack() as stack:
        looking = stack.enter_context(
            worker(
                role="consume", consumers=load.looking, apart=load.apart, delays=str(delays), **task
            )
        )
        crowd = None
        if load.consumers > load.looking:
            others = load.consumers - load.looking
            crowd = stack.enter_context(worker(role="count", consumers=others, **task))
        producer = stack.enter_context(worker(role="produce", **task))
        for each in filter(None, (looking, crowd, producer)):
            each.is_ready()
        owner, spread = served.processes[0], dict[str, float]()
        if served.settle is not None:
            owner, spread = served.settle(topic)
        if crowd is not None:
            crowd.go()
            crowd.is_ready()
        cpu, before = sum(map(cpu_seconds, served.processes)), bytes_sent(owner, served.processes)
        producer.go()
        workers = [producer.result(), looking.result()]
        counted = crowd.result() if crowd is not None else {"least": 1.0, "cpu": 0.0}
        sent = bytes_sent(owner, served.processes)
        cpu = sum(map(cpu_seconds, served.processes)) - cpu
        for each in filter(None, (looking, crowd)):
            each.go()
    found = delays_in(delays)
    delays.unlink()
    expected = int(load.rate * load.seconds) * load.looking
    assert len(found) == expected, f"{served.side}: {len(found)} of {expected} messages came"
    return {
        "p50": percentile(found, 50) * 1e3,
        "p99": percentile(found, 99) * 1e3,
        "egress": (sent.in_all - before.in_all) / load.seconds / 1024,
        "links": (sent.to_servers - before.to_servers) / load.seconds / 1024,
        "server cpu": cpu / load.seconds,
        "client cpu": sum(each["cpu"] for each in [*workers, counted]) / load.seconds,
        "least": counted["least"],
        **spread,
    }


@dataclass(slots=True)
class Sent:
    """What the kernel counts for all TCP connections that a process has now, in bytes."""

    in_all: int
    to_servers: int  # to the other processes that serve the topic


def bytes_sent(process: int, servers: Sequence[int]) -> Sent:
    told = subprocess.run(["ss", "-tinpHO"], check=True, capture_output=True, text=True).stdout
    found = [match for line in told.splitlines() if (match := _CONNECTION.match(line))]
    owners = {match["local"]: int(match["process"]) for match in found}
    sent = Sent(0, 0)
    for match in found:
        if int(match["process"]) == process:
            count = int(match["sent"])
            sent.in_all += count
            if owners.get(match["peer"]) in servers:
                sent.to_servers += count
    return sent


_CONNECTION = re.compile(
    r"\S+ +\d+ +\d+ +(?P<local>\S+) +(?P<peer>\S+) +.*pid=(?P<process>\d+),.*"
    r"bytes_sent:(?P<sent>\d+)"
)
