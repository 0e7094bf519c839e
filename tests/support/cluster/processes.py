"""Clusters of `hocket serve` processes: started, killed, stopped, started again, and asked."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import hocket
from hocket import Client
from hocket.cluster_model import KeyOwner, NodeDescription, RingDescription
from hocket.errors import HocketError
from hocket.model import DECIDERS_COUNT
from tests.support.cli import HOCKET, environment
from tests.support.processes.forked import popen

READY_SECONDS = 60.0
LOOK_SECONDS = 0.1  # between two looks at a condition
ASK_SECONDS = 10.0


class Process:
    """One node: its data directory, and the process that serves it now, if any does."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.data = directory / name
        self.log = directory / f"{name}.log"
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self.is_stopped = False
        self.host = "127.0.0.1"  # where it listens
        self.prefix: Sequence[str] = ()  # a command that it is started with
        self.options: tuple[str, ...] = ()  # that it is always started with
        self.tls_ca: Path | None = None
        self._client: Client | None = None

    @property
    def address(self) -> str:
        return self.url.partition("://")[2]

    @property
    def node(self) -> str:
        """Its store id."""
        return next(each.node for each in self.nodes() if each.name == self.name)

    def begin(self, *options: str, listen: str = "", prefix: Sequence[str] = ()) -> None:
        """Start the process; `prefix` is a command to start it with. See `wait_ready`."""
        assert self.process is None
        listen = listen or self.address or f"{self.host}:0"
        command = [*(prefix or self.prefix), *HOCKET, "serve", "--listen", listen,
                   "--data", str(self.data), "--name", self.name, *self.options,
                   *options]  # fmt: skip
        with self.log.open("ab") as log:
            self.process = popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment()
            )

    def wait_ready(self, seconds: float = READY_SECONDS) -> str:
        """Its ready line. Fails with the log if it does not come."""
        assert self.process is not None
        assert self.process.stdout is not None
        found, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if found else ""
        assert line, f"{self.name} is not ready:\n{self.said()}"
        self.url = line.split()[-1]
        return line

    def start(self, *options: str, **more: Any) -> Process:
        self.begin(*options, **more)
        self.wait_ready()
        return self

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    # --- ends and stops --------------------------------------------------------------------------

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, number: int = signal.SIGTERM, seconds: float = 30.0) -> int:
        """Send a signal that ends it; its exit code."""
        assert self.process is not None
        self.hang_up()
        self.process.send_signal(number)
        return self.wait_end(seconds)

    def wait_end(self, seconds: float) -> int:
        """Its exit code, when it ends of its own accord."""
        assert self.process is not None
        code = self.process.wait(seconds)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process, self.is_stopped = None, False
        return code

    def stop(self) -> None:
        """SIGSTOP, and see it stand."""
        assert self.process is not None
        self.hang_up()
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)
        self.is_stopped = True

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.is_stopped = False

    def cpu_seconds(self) -> float:
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    # --- questions -------------------------------------------------------------------------------

    def client(self, **options: Any) -> Client:
        """A connection to this node; without options always the same one."""
        if options:
            return hocket.connect(self.url, **options)
        if self._client is None:
            self._client = hocket.connect(self.url, tls_ca=self.tls_ca)
        return self._client

    def hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def ring(self) -> RingDescription:
        return self.client().ring(timeout=ASK_SECONDS)

    def nodes(self) -> list[NodeDescription]:
        return self.client().nodes(timeout=ASK_SECONDS)

    def look_up(self, key: str, *, cached: bool = False) -> KeyOwner:
        return self.client().look_up(key, cached=cached, timeout=ASK_SECONDS)

    def states(self) -> dict[str, str]:
        return {each.name: each.state for each in self.nodes()}


class Cluster:
    """Nodes by their names; the first founds."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.options = options  # of every node
        self.all: dict[str, Process] = {}

    def __getitem__(self, name: str) -> Process:
        return self.all[name]

    def add(self, name: str) -> Process:
        """A node that is not started yet."""
        if name not in self.all:
            self.all[name] = Process(self.directory, name)
        return self.all[name]

    def found(self, name: str, *options: str, **more: Any) -> Process:
        return self.add(name).start(*self.options, *options, **more)

    def join(self, names: Sequence[str], by: Sequence[Process]) -> None:
        """All at once, each by way of another of `by`."""
        for number, name in enumerate(names):
            seed = by[number % len(by)]
            self.add(name).begin("--join", seed.address, *self.options)
        for name in names:
            self[name].wait_ready()

    def restart(self, *names: str) -> None:
        """With their data, and without --join."""
        for name in names:
            self[name].begin(*self.options)
        for name in names:
            self[name].wait_ready()

    @property
    def up(self) -> list[Process]:
        """Those that run and are not stopped."""
        return [each for each in self.all.values() if each.process and not each.is_stopped]

    def ideal(self, at: Process) -> RingDescription | None:
        """The ring as `at` gathers it, if it is one of exactly those that are up, and ideal."""
        try:
            ring = at.ring()
        except HocketError:
            return None
        is_all = {each.name for each in ring.nodes} == {each.name for each in self.up}
        return ring if ring.ideal and is_all else None

    def wait_ideal(self, seconds: float, at: Process | None = None) -> RingDescription:
        at = at or self.up[0]
        found = wait_for(lambda: self.ideal(at), seconds, lambda: f"{at.ring()}\n{self.logs()}")
        assert isinstance(found, RingDescription)
        return found

    def logs(self, lines: int = 15) -> str:
        return "\n".join(
            "\n".join([f"--- {each.name}", *each.said().splitlines()[-lines:]])
            for each in self.all.values()
        )

    def close(self) -> None:
        for each in self.all.values():
            each.hang_up()
            if each.process is not None:
                each.end(signal.SIGKILL)


@contextmanager
def cluster_in(directory: Path, *options: str) -> Iterator[Cluster]:
    cluster = Cluster(directory, *options)
    try:
        yield cluster
    finally:
        cluster.close()


def wait_for(
    condition: Callable[[], object], seconds: float, why: Callable[[], object] = lambda: ""
) -> object:
    """What the condition gives as soon as that is true."""
    deadline = monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert monotonic() < deadline, f"not so after {seconds} s: {why()}"
        sleep(LOOK_SECONDS)


def wait_until_three_keep_each(cluster: Cluster, seconds: float = 60.0) -> None:
    """Each decider of transactions; a cluster of fewer nodes has one copy of each."""

    def grown() -> set[str]:
        said = "".join(each.said() for each in cluster.all.values())
        return set(re.findall(r"group (\d+) is kept by", said))

    wait_for(lambda: len(grown()) == DECIDERS_COUNT, seconds, lambda: (grown(), cluster.logs()))


def root_of(cluster: Cluster) -> str:
    """The node that has said last that it leads group 0; the founder if none has."""
    said = {0: next(iter(cluster.all))}
    for name, node in cluster.all.items():
        terms = re.findall(r"this node is the root.*, in term (\d+)", node.said())
        said.update((int(term), name) for term in terms)
    return said[max(said)]


def owner_of(position: int, ring: RingDescription) -> str:
    """The first node at a position or behind it, as the ring has them."""
    behind = [each.node for each in ring.nodes if each.position >= position]
    return behind[0] if behind else ring.nodes[0].node


def check_lookups(cluster: Cluster, ring: RingDescription, count: int) -> list[int]:
    """Look `count` keys up from each node, by fingers: all are right. Gives how many hops each."""
    hops = []
    for asker in cluster.up:
        for number in range(count):
            found = asker.look_up(f"key {number}")
            assert found.owner == owner_of(found.position, ring), (asker.name, found, ring)
            hops.append(len(found.hops))
    return hops
