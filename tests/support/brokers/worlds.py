"""Where the client contract is tested: a broker in this process, one in a process of its own, and,
with `HOCKET_STRESS=long`, a cluster of such processes, and one of which nodes are killed.

A world has one broker for many tests; each test has clients and topics of its own.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hocket
from hocket.client.connection.embedded import EmbeddedConnector, start_broker
from hocket.client.faces.aio.client import AsyncClient
from hocket.client.faces.blocking.client import Client
from hocket.client.faces.opening import Opening
from tests.support.brokers.killed_cluster import KilledProcess, patient
from tests.support.brokers.served_cluster import ServedCluster
from tests.support.processes.forked import popen
from tests.support.threads import LONG

READY_SECONDS = 30


class EmbeddedWorld:
    name = "embedded"

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="hocket-test-")
        self._broker, self._end = start_broker(self._directory.name)

    def connect(self) -> Client:
        return Client(EmbeddedConnector(self._broker), name="contract")

    def aio_connect(self) -> Any:
        async def nothing_else() -> None:
            pass

        async def open_client() -> AsyncClient:
            client = AsyncClient(EmbeddedConnector(self._broker), closing=nothing_else)
            await client._open(10)
            return client

        return Opening(open_client, "world.connect(...)")

    def close(self) -> None:
        self._end()
        self._directory.cleanup()


class ServerWorld:
    name = "server"

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="hocket-test-")
        command = [sys.executable, "-m", "hocket.cli", "serve"]
        self._process = popen(
            [*command, "--listen", "127.0.0.1:0", "--data", self._directory.name],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"no server: exit code {self._process.wait(READY_SECONDS)}"
        self.url = line.split()[-1]

    def connect(self) -> Client:
        return hocket.connect(self.url)

    def aio_connect(self) -> Any:
        return hocket.aio.connect(self.url)

    def close(self) -> None:
        assert self._process.stdout is not None
        self._process.terminate()
        code = self._process.wait(READY_SECONDS)
        self._process.stdout.close()
        self._directory.cleanup()
        assert code == 0, f"the server ended with {code}"


class ClusterWorld:
    """Clients enter at a node that holds nothing."""

    name = "cluster"

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="hocket-test-")
        self._cluster = ServedCluster(Path(self._directory.name))
        self._cluster.start()

    def connect(self) -> Client:
        return hocket.connect(self._cluster.address)

    def aio_connect(self) -> Any:
        return hocket.aio.connect(self._cluster.address)

    def close(self) -> None:
        code = self._cluster.terminate()
        self._directory.cleanup()
        assert code == 0, f"a node ended with {code}"


class KilledWorld:
    """Three replicas of everything, on nodes of which one is killed every ten seconds."""

    name = "killed"

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="hocket-test-")
        self._cluster = KilledProcess(Path(self._directory.name) / "nodes")
        self._patience = patient()
        self._patience.__enter__()

    def connect(self) -> Client:
        return hocket.connect(self._cluster.address)

    def aio_connect(self) -> Any:
        return hocket.aio.connect(self._cluster.address)

    def close(self) -> None:
        self._patience.__exit__(None, None, None)
        code = self._cluster.terminate()
        self._directory.cleanup()
        assert code == 0, f"a node ended with {code}"


def client_threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("hocket client", "hocket link"))]


World = EmbeddedWorld | ServerWorld | ClusterWorld | KilledWorld
WORLDS: dict[str, Callable[[], World]] = {"embedded": EmbeddedWorld, "server": ServerWorld}
if LONG:
    WORLDS |= {"cluster": ClusterWorld, "killed": KilledWorld}
_numbers = itertools.count()


def new_name(what: str = "topic") -> str:
    return f"{what}-{next(_numbers)}"
