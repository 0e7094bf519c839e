"""A world: one way to reach a broker (embedded, or served, or a cluster of four) in one style.

Everything a test needs of its world goes through here, so that no test asks which one it is in,
but for the few that say so.

The world of a cluster has real processes, three nodes that hold partitions and a gateway at which
its clients enter and which holds none. All tests run there with `HOCKET_STRESS=long`, and those of
`SLICE` otherwise. What cannot be in a cluster says why, where it says in which worlds it is.

With `HOCKET_STRESS=long` there is a fourth one, `killed`: three nodes that keep three replicas of
everything, one of which is killed every ten seconds (`killed_cluster.py`). What is in a cluster is
there, too, but for what needs quiet (`NEED_QUIET`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import hocket
import hocket.aio
from hocket.errors import UnknownPartition
from tests.support.brokers.blocking import LoopThread
from tests.support.brokers.killed_cluster import KilledCluster
from tests.support.brokers.served_cluster import GATEWAY, HOSTS, ServedCluster
from tests.support.leaks import LeakCheck
from tests.support.processes.server import ServerProcess
from tests.support.threads import LONG, Running, until

THREADS = 16
CLUSTERS = ("cluster", "killed") if LONG else ("cluster",)
KINDS = ("embedded", "served", *CLUSTERS)
WORLDS = [(kind, style) for kind in KINDS for style in ("sync", "aio")]
_NUMBERS = count()


def only(*kinds: str, style: str = "", not_in_a_cluster: str = "") -> pytest.MarkDecorator:
    """For what makes sense in some of the worlds. What is not in a cluster says why."""
    assert bool(not_in_a_cluster) != ("cluster" in kinds), "a reason, or the world"
    kinds += CLUSTERS if "cluster" in kinds else ()
    chosen = [each for each in WORLDS if each[0] in kinds and style in ("", each[1])]
    return pytest.mark.parametrize("world", chosen, indirect=True, ids="-".join, scope="session")


# For what is the broker's own doing and takes seconds: every kind and every style, once; in a
# cluster, of which all is tested in both styles, twice.
EACH_ONCE = pytest.mark.parametrize(
    "world",
    [
        ("embedded", "sync"),
        ("served", "aio"),
        *((kind, style) for kind in CLUSTERS for style in ("sync", "aio")),
    ],
    indirect=True,
    ids="-".join,
    scope="session",
)


class World:
    def __init__(self, kind: str, loop: LoopThread | None, address: str = "") -> None:
        self.kind = kind
        self.loop = loop
        self.address = address
        self.client: Any = None
        self._clusters: dict[Path, ServedCluster] = {}  # that lived, and may do so again

    @property
    def served(self) -> bool:
        return self.kind != "embedded"

    @property
    def nodes(self) -> int:
        """How many there are."""
        return {"cluster": len((*HOSTS, GATEWAY)), "killed": len(HOSTS)}.get(self.kind, 1)

    @property
    def replication(self) -> int:
        """How many replicas a topic has that does not say so itself."""
        return len(HOSTS) if self.kind == "killed" else 1

    @property
    def is_aio(self) -> bool:
        return self.loop is not None

    def name(self) -> str:
        """Of a topic that nobody else uses."""
        return f"topic-{next(_NUMBERS)}"

    def topic(self, partitions: int = 1, **config: Any) -> str:
        name = self.name()
        self.client.create_topic(name, partitions=partitions, **config)
        return name

    # --- clients ---------------------------------------------------------------------------------

    def connect(self, address: str = "", **options: Any) -> Any:
        """Another client of the served broker, or of the one at this address."""
        url = address or self.address
        if self.loop is None:
            return hocket.connect(url, **options)
        return self.loop.run(lambda: hocket.aio.connect(url, **options))

    def embedded(self, path: Path | None) -> Any:
        """A broker of its own in this process, with its client."""
        if self.loop is None:
            return hocket.embedded(path)
        return self.loop.run(lambda: hocket.aio.embedded(path))

    def server(self, path: Path) -> ServerProcess | ServedCluster:
        """A broker of the test's own with its data there, not started yet."""
        return self._cluster(path) if self.kind in CLUSTERS else ServerProcess(path)

    def _cluster(self, path: Path) -> ServedCluster:
        return KilledCluster(path) if self.kind == "killed" else ServedCluster(path)

    @contextmanager
    def life(self, path: Path) -> Iterator[Any]:
        """A client of a broker that lives for the block, with the data that is there already."""
        with ExitStack() as ending:
            if self.kind == "embedded":
                yield ending.enter_context(self.embedded(path))
                return
            cluster = self._clusters.get(path) or self._cluster(path)
            self._clusters[path] = cluster
            ending.enter_context(cluster)
            with self.connect(cluster.address) as client:
                yield client
            assert cluster.terminate() == 0

    def send_all(self, producer: Any, values: list[bytes]) -> None:
        """One by one, without a step between them that only a test would make."""
        if self.loop is None:
            for value in values:
                producer.send(value)
            return

        async def send() -> None:
            for value in values:
                await producer.inner.send(value)

        self.loop.run(send)

    # --- at the same time ------------------------------------------------------------------------

    def together(self, name: str, calls: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[Any]:
        """Call the client's method `name` with each of these arguments, many at once.

        From 16 threads, or from as many coroutines as there are calls. Results in order.
        """
        if self.loop is not None:
            method = getattr(self.client.inner, name)
            return self.loop.gather(
                [lambda a=args, k=kwargs: method(*a, **k) for args, kwargs in calls]
            )
        method = getattr(self.client, name)
        results: list[Any] = [None] * len(calls)
        start = threading.Barrier(THREADS)

        def some(first: int) -> None:
            start.wait()
            for at in range(first, len(calls), THREADS):
                args, kwargs = calls[at]
                results[at] = method(*args, **kwargs)

        in_parallel([lambda first=first: some(first) for first in range(THREADS)])
        return results


def in_parallel(jobs: list[Callable[[], Any]]) -> list[Any]:
    """Each on a thread of its own; what they return, in order."""
    running = [Running(job).__enter__() for job in jobs]
    return [each.result() for each in running]


def take(subscription: Any, number: int, timeout: float = 20) -> list[Any]:
    return [subscription.receive(timeout) for _ in range(number)]


def values(messages: list[Any]) -> list[bytes]:
    return [message.value for message in messages]


def publish_to_new_partition(client: Any, topic: str, partition: int) -> None:
    """The number of the partition; a producer hears a moment later than others that it is there."""

    def published() -> bool:
        try:
            client.publish(topic, b"%d" % partition, partition=partition)
        except UnknownPartition:
            return False
        return True

    until(published, timeout=5)


@contextmanager
def opened_world(kind: str, style: str, server: Callable[[], str]) -> Iterator[World]:
    if style == "aio":
        with LoopThread() as loop:
            yield from _with_client(World(kind, loop), server)
            assert not loop.complaints, loop.complaints
    else:
        yield from _with_client(World(kind, None), server)


def _with_client(world: World, server: Callable[[], str]) -> Iterator[World]:
    if world.served:
        world.address = server()
    if world.kind in CLUSTERS:  # a client of many nodes opens and closes connections as it needs
        yield world  # them: each test has one of its own, lest they be taken for left behind
        return
    with world.connect() if world.served else world.embedded(None) as world.client:
        yield world


class OwnLeakCheck(LeakCheck):
    """The leak check, but for what the embedded broker that outlives the test opens meanwhile.

    That is data files, and a thread for each of its workers, started on first use (the first
    checkpoint comes after seconds). A second thread for a worker is another broker's, and a leak;
    so is a "hocket-broker", which every broker has from its beginning.
    """

    def _left(self) -> list[str]:
        living = threading.enumerate()
        names = [thread.name for thread in living]
        for thread in living:
            if thread.name.startswith("hocket: ") and names.count(thread.name) == 1:
                self._threads.add(thread)
                self._tasks.add(thread.native_id or 0)
        return [
            each
            for each in super()._left()
            if not (each.startswith("open file") and "/hocket-" in each)
        ]
