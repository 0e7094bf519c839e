"""Three nodes that keep three replicas of every topic, one of which is killed every ten seconds.

Each in turn is killed by `kill -9`, and started again at once. Clients are given the addresses of
all. `KilledCluster` has the ways of `ServerProcess`; a test that has one of its own kills it within
its process. The one that many tests share has a process of its own, so that nothing of it is taken
for left behind by a test:

    python -m tests.support.brokers.killed_cluster DIRECTORY
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from hocket.client.faces.aio.client import AsyncClient
from hocket.client.faces.aio.producer import AsyncProducer
from hocket.client.faces.aio.subscription import AsyncSubscription
from hocket.client.faces.aio.topics import AsyncTopicCalls
from hocket.client.faces.blocking.client import Client
from hocket.client.faces.blocking.producer import Producer
from hocket.client.faces.blocking.subscription import Subscription
from hocket.client.faces.blocking.topics import TopicCalls
from hocket.errors import Busy, HocketError, ReplyLost, TopicExists, UnknownIndex, UnknownTopic
from tests.support import threads
from tests.support.brokers import blocking
from tests.support.brokers.served_cluster import HOSTS, ServedCluster
from tests.support.cluster.processes import Cluster, wait_until_three_keep_each

EVERY_SECONDS = 10.0
BACK_SECONDS = 30.0  # in which the root knows that a node is back
AGAIN_SECONDS = 0.2
PATIENCE_SECONDS_MIN = 5.0  # who waits for so long in a test expects that something comes
WAIT_SECONDS = 90.0
LEASE_SECONDS = 5.0
# Changes, and what says that one was done already.
CHANGES: dict[str, type[HocketError] | None] = {
    "create_topic": TopicExists, "alter_topic": None, "delete_topic": UnknownTopic,
    "delete_index": UnknownIndex, "seek": None, "delete_messages": None,
    "revive": None,
}  # fmt: skip


class KilledCluster(ServedCluster):
    def __init__(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.cluster = Cluster(data, "--replication", str(len(HOSTS)))
        self.kills = 0
        self._ending = threading.Event()
        self._killer: threading.Thread | None = None

    def __exit__(self, *error: object) -> None:
        self._spare()
        super().__exit__(*error)

    @property
    def address(self) -> str:
        nodes = self.cluster.all.values()
        return "hocket://" + ",".join(each.address for each in nodes) if nodes else ""

    def start(self) -> None:
        if self.address:
            self.cluster.restart(*self.cluster.all)
        else:
            founder = self.cluster.found(HOSTS[0])
            self.cluster.join(HOSTS[1:], [founder])
            wait_until_three_keep_each(self.cluster)
        self._ending.clear()
        self._killer = threading.Thread(target=self._kill, name="test: killer")
        self._killer.start()

    def terminate(self) -> int:
        self._spare()
        return super().terminate()

    def _spare(self) -> None:
        """Nobody is killed from now on, and all are there."""
        self._ending.set()
        if self._killer is not None:
            self._killer.join()
            self._killer = None

    def _kill(self) -> None:
        while True:
            began = time.monotonic()
            name = HOSTS[self.kills % len(HOSTS)]
            self.cluster[name].kill()
            self.kills += 1
            self.cluster.restart(name)
            if self._ending.wait(max(0.0, began + EVERY_SECONDS - time.monotonic())):
                return


class KilledProcess:
    """The one that many tests share."""

    def __init__(self, data: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.brokers.killed_cluster", str(data)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        assert self.address, "the nodes do not start"

    def terminate(self) -> int:
        said, _ = self._process.communicate("")
        sys.stdout.write(said)
        return self._process.returncode


@contextmanager
def patient() -> Iterator[None]:
    """Topics are made when all nodes are back: three replicas need three nodes that are there.

    What three nodes cannot keep in this version has one replica. What may be with a consumer is
    withheld at each new leader for a lease, which would be longer than a leader lives here: shared
    indexes have a short one. Whoever waits in a test for what has to come waits longer. How far a
    partition is nobody knows while another leader is elected: `describe` says so, and asks again.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "SLOWNESS", WAIT_SECONDS / threads.PATIENCE)
        patch.setattr(blocking, "HANG_SECONDS", 2 * WAIT_SECONDS)
        for name in ("receive", "receive_batch"):
            for face in (Subscription, AsyncSubscription):
                patch.setattr(face, name, _longer(getattr(face, name)))
        for producer in (Producer, AsyncProducer):
            patch.setattr(producer, "flush", _longer(producer.flush))
        for client in (Client, AsyncClient):
            patch.setattr(client, "subscribe", _leased_shortly(client.subscribe))
        for name in CHANGES:
            patch.setattr(Client, name, _again(getattr(Client, name)))
            patch.setattr(AsyncClient, name, _again_async(getattr(AsyncClient, name)))
        patch.setattr(TopicCalls, "describe", _known(TopicCalls.describe))
        patch.setattr(AsyncTopicCalls, "describe", _known_async(AsyncTopicCalls.describe))
        yield


def _longer(act: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(act)
    def patiently(self: Any, timeout: float | None = None, **more: Any) -> Any:
        is_patience = timeout is not None and timeout >= PATIENCE_SECONDS_MIN
        return act(self, WAIT_SECONDS if is_patience else timeout, **more)

    return patiently


def _leased_shortly(act: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(act)
    def subscribe(*args: Any, **more: Any) -> Any:
        if more.get("mode") in ("shared", "key_shared"):
            more.setdefault("lease", LEASE_SECONDS)
        return act(*args, **more)

    return subscribe


class _Doubt:
    """What a caller has to find out by itself, as the contract says: was it done, or not yet?

    Who is told that the answer was lost asks again, and knows by the refusal that it was done.
    """

    def __init__(self, act: Callable[..., Any], more: dict[str, Any]) -> None:
        self._deadline = time.monotonic() + BACK_SECONDS
        self._done = CHANGES[act.__name__]
        self._is_lost = False
        is_single = more.get("delayed") or more.get("durability") == "memory"
        is_new = act.__name__ == "create_topic"
        self.more = {"replication": 1, **more} if is_single and is_new else more

    def settle(self, error: HocketError) -> bool:
        """True: it was done; False: ask again. Raises what another call would not change."""
        if isinstance(error, ReplyLost):
            self._is_lost = True
        elif self._is_lost and self._done is not None and isinstance(error, self._done):
            return True
        elif not isinstance(error, Busy) and "when they are back" not in str(error):
            raise error
        if time.monotonic() > self._deadline:
            raise error
        return False


def _again(act: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(act)
    def patiently(*args: Any, **more: Any) -> Any:
        doubt = _Doubt(act, more)
        while True:
            try:
                return act(*args, **doubt.more)
            except HocketError as error:
                if doubt.settle(error):
                    return None
            time.sleep(AGAIN_SECONDS)

    return patiently


def _again_async(act: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(act)
    async def patiently(*args: Any, **more: Any) -> Any:
        doubt = _Doubt(act, more)
        while True:
            try:
                return await act(*args, **doubt.more)
            except HocketError as error:
                if doubt.settle(error):
                    return None
            await asyncio.sleep(AGAIN_SECONDS)

    return patiently


def _known(act: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(act)
    def patiently(*args: Any, **more: Any) -> Any:
        deadline = time.monotonic() + BACK_SECONDS
        while True:
            found = act(*args, **more)
            if all(each.known for each in found.partitions) or time.monotonic() > deadline:
                return found
            time.sleep(AGAIN_SECONDS)

    return patiently


def _known_async(act: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(act)
    async def patiently(*args: Any, **more: Any) -> Any:
        deadline = time.monotonic() + BACK_SECONDS
        while True:
            found = await act(*args, **more)
            if all(each.known for each in found.partitions) or time.monotonic() > deadline:
                return found
            await asyncio.sleep(AGAIN_SECONDS)

    return patiently


def main(data: str) -> int:
    with KilledCluster(Path(data)) as served:
        sys.stdout.write(served.address + "\n")
        sys.stdout.flush()
        sys.stdin.read()
        code = served.terminate()
    sys.stdout.write(f"{served.kills} kills\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
