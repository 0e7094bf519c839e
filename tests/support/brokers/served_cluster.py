"""Three nodes that hold partitions and a gateway that holds none, as one broker to its clients.

It has the ways of `ServerProcess`, so that a test of one served broker is a test of a cluster: it
is killed, ended and started as a whole. Clients are given the address of the gateway alone. Every
node listens where it did before, so that the others, and clients, find it again.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.cluster.processes import READY_SECONDS, Cluster

HOSTS = ("one", "two", "three")
GATEWAY = "gateway"
HOLDS_NOTHING = ("--capacity", "0")


class ServedCluster:
    def __init__(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.cluster = Cluster(data)
        self.cluster.add(GATEWAY).options = HOLDS_NOTHING

    def __enter__(self) -> ServedCluster:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.cluster.close()

    @property
    def address(self) -> str:
        return self.cluster[GATEWAY].url

    def start(self) -> None:
        if self.address:
            self.cluster.restart(*self.cluster.all)
            return
        first, *others = HOSTS
        founder = self.cluster.found(first)
        self.cluster.join([*others, GATEWAY], [founder])

    def terminate(self) -> int:
        """SIGTERM to all at once, as when a machine is shut down; 0 if all ended so."""
        running = [each for each in self.cluster.all.values() if each.process is not None]
        for each in running:
            assert each.process is not None
            each.hang_up()
            each.process.send_signal(signal.SIGTERM)
        return max(abs(each.wait_end(READY_SECONDS)) for each in running)
