"""The broker that a job works with: one alone, or three nodes that keep replicas of everything."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

import hocket
from hocket import Client
from tests.support.cluster.faults import Faults
from tests.support.cluster.processes import Cluster, wait_for, wait_until_three_keep_each
from tests.support.processes.server import ServerProcess

NAMES = ["one", "two", "three"]
SECONDS = 60.0  # of a call, while a node is dead


class OneBroker:
    """Listens at the same port in every life."""

    replication = 1

    def __init__(self, folder: Path) -> None:
        self._server = ServerProcess(folder / "data")

    @property
    def servers(self) -> str:
        return f"hocket://127.0.0.1:{self._server.port}"

    def start(self) -> None:
        self._server.start()

    def kill(self) -> None:
        self._server.kill()

    def close(self) -> None:
        if self._server.process is not None:
            self._server.kill()

    def client(self) -> Client:
        return hocket.connect(self.servers)


class ThreeNodes:
    """A cluster of three processes, in which `kill -9` hits whoever leads."""

    replication = len(NAMES)

    def __init__(self, folder: Path) -> None:
        folder = folder / "nodes"
        folder.mkdir()
        self._cluster = Cluster(folder)
        self._client: Client | None = None
        self._topics: dict[str, Faults] = {}
        self._dead = ""  # the name of the node that was killed, until it is started again

    @property
    def servers(self) -> str:
        return "hocket://" + ",".join(self._cluster[name].address for name in NAMES)

    def start(self) -> None:
        founder = self._cluster.found(NAMES[0])
        self._cluster.join(NAMES[1:], [founder])
        wait_until_three_keep_each(self._cluster)
        self._client = self.client()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._cluster.close()

    def client(self) -> Client:
        return hocket.connect(self.servers, timeout=SECONDS)

    def know(self, *topics: str) -> None:
        """These were made, and their leaders are to be looked for."""
        assert self._client is not None
        for topic in topics:
            faults = Faults(self._cluster, NAMES, topic, self._client, Random(0))
            faults.wait_led()
            self._topics[topic] = faults

    def kill_leader(self, topic: str) -> None:
        """The node that leads the first partition of this topic."""
        self._dead = self._topics[topic].wait_led()[0]
        self._cluster[self._dead].kill()

    def bring_back(self) -> None:
        """Start the dead node again, and wait until it has everything.

        Others have come to lead meanwhile.
        """
        for faults in self._topics.values():
            wait_for(partial(self._is_led_by_others, faults), SECONDS, faults.leaders)
        self._cluster.restart(self._dead)
        for faults in self._topics.values():
            faults.wait_even()

    def _is_led_by_others(self, faults: Faults) -> bool:
        return self._dead not in faults.wait_led()
