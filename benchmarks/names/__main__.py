"""The rows of `make bench-names`: two processes that talk by name over the loopback.

Messages in a second and round trips, at 100 bytes and 64 KiB, against pyzmq (PAIR, TCP) and
`multiprocessing.connection` (TCP); and what an open connection costs in memory. All in one run.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import hocket
from benchmarks import runner
from benchmarks.names.sides import ECHO, STREAM, Parent
from benchmarks.runner import Contender, Contest, Row, fixed, percentile
from hocket.local import EventPump, QueueBroker

PIPE, ZMQ, OURS = "multiprocessing.connection", "pyzmq", "hocket names"
SIZES = {"100 B": 100, "64 KiB": 64 << 10}
MEMORY_MAX_KIB = 64.0  # of one connection, both ends, in one process
SAME = (
    "two processes, blocking calls on the main thread of each, over TCP on the loopback; "
    "the same bytes object is sent; a queue of 1,024 messages each way"
)


@contextmanager
def served() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        command = [
            sys.executable, "-m", "hocket.cli", "serve", "--listen", "127.0.0.1:0", "--data",
            directory, "--log-level", "error",
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            process.wait(30)


def streaming(parent: Parent, size: int) -> Callable[[int], dict[str, float]]:
    message = b"m" * size

    def measure(count: int) -> dict[str, float]:
        end = parent.end
        end.send(b"%s %d" % (STREAM, count))
        send = end.send
        began = perf_counter()
        for _ in range(count):
            send(message)
        end.receive()
        return {"rate": count / (perf_counter() - began)}

    return measure


def echoing(parent: Parent, size: int) -> Callable[[int], dict[str, float]]:
    message = b"m" * size

    def measure(count: int) -> dict[str, float]:
        end = parent.end
        end.send(b"%s %d" % (ECHO, count))
        latencies = []
        for _ in range(count):
            began = perf_counter()
            end.send(message)
            end.receive()
            latencies.append(perf_counter() - began)
        return {f"p{part}": percentile(latencies, part) * 1e6 for part in (50, 99)}

    return measure


def memory(server: str) -> Callable[[int], dict[str, float]]:
    """KiB of resident memory for each open connection, with both of its ends in this process."""

    def measure(count: int) -> dict[str, float]:
        with hocket.connect(server) as one, hocket.connect(server) as other:
            pump = EventPump().start()
            there, here = QueueBroker("there", pump, one), QueueBroker("here", pump, other)
            ends = Ends(2 * count)
            there.bind(1, ends)
            gc.collect()
            before = _resident_kib()
            for _ in range(count):
                here.connect("there", 1, ends)
            assert ends.all_here.wait(120)
            gc.collect()
            grown = _resident_kib() - before
            pump.stop()
        return {"kib": grown / count}

    return measure


class Ends:
    def __init__(self, expected: int) -> None:
        self.queues: list[Any] = []
        self._expected = expected
        self.all_here = threading.Event()

    def accepted(self, queue: Any) -> None:
        self.queues.append(queue)
        if len(self.queues) == self._expected:
            self.all_here.set()

    connected = accepted

    def refused(self, reason: Exception) -> None:
        raise reason


def _resident_kib() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1024


def contests(server: str, parents: dict[str, Parent]) -> list[Contest]:
    found = []
    for label, size in SIZES.items():
        counts = (100_000, 2_000) if size < 1000 else (10_000, 200)

        def sides(measured: Any, size: int = size) -> list[Contender]:
            return [Contender(name, measured(parents[name], size)) for name in (OURS, PIPE, ZMQ)]

        ours, *peers = sides(streaming)
        rows = [
            Row(f"messages of {label}, against {PIPE}", "rate", "messages/s", 1.0, against=PIPE),
            Row(f"messages of {label}, against {ZMQ}", "rate", "messages/s", 0.5, against=ZMQ),
        ]
        found.append(Contest(ours, peers, rows, *counts, settings=[SAME]))
        ours, *peers = sides(echoing)
        row = Row(
            f"round trip of {label}", "p50", "us", round(1 / 1.5, 3), less_is_better=True,
            also=("p99",), against=ZMQ,
        )  # fmt: skip
        found.append(Contest(ours, peers, [row], 3_000, 100, settings=[SAME]))
    row = Row("memory of an open connection", "kib", "KiB", 1.0, less_is_better=True,
              note="both ends in one process, idle")  # fmt: skip
    ceiling = fixed("the ceiling", kib=MEMORY_MAX_KIB)
    found.append(Contest(Contender(OURS, memory(server)), [ceiling], [row], 1_000, 50, rounds=2))
    return found


def main() -> int:
    with served() as server:
        parents = {
            OURS: Parent("ours", server), PIPE: Parent("pipe"), ZMQ: Parent("zmq"),
        }  # fmt: skip
        try:
            title = "Names across processes against their peers"
            return runner.main("names", title, contests(server, parents))
        finally:
            for parent in parents.values():
                parent.close()


if __name__ == "__main__":
    sys.exit(main())
