"""How long a partition of three replicas has no leader after `kill -9` of the node that leads it.

A client publishes one message at a time. Its leader is killed between two of them; what is measured
is the time from the kill until the next message is acknowledged, which another node does. Then the
dead node is started again, and the next kill waits until all replicas have everything.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, perf_counter, sleep

import hocket
from hocket import Client

NODES = 3
TOPIC = "failover"
PATIENCE = 60.0
LOOK_SECONDS = 0.05


class Node:
    """A broker process that comes back where it was, with its data."""

    def __init__(self, data: Path, join: Sequence[str] = ()) -> None:
        self._data = data
        self.url = ""
        self._start("127.0.0.1:0", join)

    def _start(self, listen: str, options: Sequence[str] = ()) -> None:
        command = [sys.executable, "-m", "hocket.cli", "serve", "--log-level", "error", "--listen",
                   listen, "--data", str(self._data), *options]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().split()[-1]

    @property
    def address(self) -> str:
        return self.url.partition("://")[2]

    def end(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self) -> float:
        """When it was gone."""
        self._process.kill()
        killed = perf_counter()
        self.end(signal.SIGKILL)
        return killed

    def start_again(self) -> None:
        self._start(self.address)


class Failover:
    """Three nodes with one partition of three replicas, for a `with` block."""

    def __init__(self, directory: Path, value: bytes) -> None:
        self._value = value
        first = Node(directory / "node-0")
        join = ("--join", first.address)
        self._nodes = [first]
        self._nodes += [Node(directory / f"node-{number}", join) for number in range(1, NODES)]

    def __enter__(self) -> Failover:
        with self._client() as client:
            client.create_topic(TOPIC, replication=NODES)
        return self

    def __exit__(self, *_error: object) -> None:
        for node in self._nodes:
            node.end()

    def _client(self) -> Client:
        addresses = ",".join(node.address for node in self._nodes)
        return hocket.connect(f"hocket://{addresses}", timeout=PATIENCE)

    def seconds(self, count: int) -> list[float]:
        """Of each of so many kills."""
        with self._client() as client:
            return [self._one(client) for _ in range(count)]

    def _one(self, client: Client) -> float:
        leader = self._wait_even(client)
        client.publish(TOPIC, self._value)
        killed = leader.kill()
        client.publish(TOPIC, self._value, timeout=PATIENCE)
        seconds = perf_counter() - killed
        leader.start_again()
        return seconds

    def _wait_even(self, client: Client) -> Node:
        """The node that leads, when all replicas have everything."""
        deadline = monotonic() + PATIENCE
        while True:
            (partition,) = client.describe(TOPIC).partitions
            states = partition.replica_states
            if partition.leader and len(states) == NODES and not any(e.lag for e in states):
                break
            assert monotonic() < deadline, f"the replicas are not even: {partition}"
            sleep(LOOK_SECONDS)
        addresses = {each.node: each.address for each in client.nodes()}
        return next(n for n in self._nodes if n.address == addresses[partition.leader])
