"""A crowd of consumers of one topic, on real nodes: spread, fed by relays, and none misses any."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest

import hocket
from hocket import Client
from hocket.cluster_model import TreeNode
from hocket.errors import HocketError
from tests.support.cli import HOCKET, environment
from tests.support.cluster.crowd import Crowd
from tests.support.cluster.processes import Cluster, Process, cluster_in, wait_for
from tests.support.threads import LONG

SECONDS = 30.0
RESUMED_SECONDS_MAX = 5.0  # after a relay has died
SPREAD_SECONDS_MAX = 10.0  # after the last consumer has come
BALANCE_MAX = 1.3  # consumers of the busiest node, of the mean, where there are many
NAMES = "abcde"

pytestmark = pytest.mark.timeout(400)


def tell(text: str) -> None:
    """What was measured; it is seen with `-s`, and if the test fails."""
    sys.stdout.write(text + "\n")


class Publishing:
    """Publishes one message after the other, until it is stopped; each is acknowledged."""

    def __init__(self, url: str, topic: str, *, size: int = 100, pause: float = 0.02) -> None:
        self.acknowledged = 0
        self.error: BaseException | None = None
        self._url, self._topic = url, topic
        self._value, self._pause = b"x" * size, pause
        self._ending = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with hocket.connect(self._url) as client, client.producer(self._topic) as producer:
                while not self._ending.is_set():
                    producer.send(self._value)
                    producer.flush(timeout=60)
                    self.acknowledged += 1
                    time.sleep(self._pause)
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Publishing:
        return self

    def __exit__(self, *_error: object) -> None:
        self._ending.set()
        self._thread.join(90)

    def stop(self) -> int:
        """How many there are."""
        self._ending.set()
        self._thread.join(90)
        assert self.error is None, self.error
        return self.acknowledged


def url_of(cluster: Cluster) -> str:
    return "hocket://" + ",".join(each.address for each in cluster.all.values())


def tree_at(process: Process, topic: str) -> list[TreeNode]:
    try:
        return list(process.client().tree(topic, timeout=5).nodes)
    except HocketError:
        return []


def root_of(nodes: list[TreeNode]) -> TreeNode | None:
    return next((each for each in nodes if each.is_root), None)


def is_spread(nodes: list[TreeNode], consumers: int, most: float) -> bool:
    """So many consumers, and at no node too many.

    Where a consumer is at home is a hash of its name: of a few, none may be at home at some node.
    """
    served = [each.consumers for each in nodes]
    return sum(served) == consumers and max(served) <= most


def is_at_the_leader(nodes: list[TreeNode], consumers: int) -> bool:
    return [each.is_root for each in nodes if each.consumers] == [True] and is_spread(
        nodes, consumers, consumers
    )


def process_of(cluster: Cluster, node: str) -> Process:
    names = {each.node: each.name for each in cluster.up[0].nodes()}
    return cluster[names[node]]


@contextmanager
def founded(directory: Path, names: str, *options: str) -> Iterator[Cluster]:
    with cluster_in(directory, "--successors", "2", *options) as cluster:
        first = cluster.found(names[0])
        cluster.join(list(names[1:]), [first])
        cluster.wait_ideal(60)
        yield cluster


def make(client: Client, topic: str, replication: int) -> None:
    client.create_topic(topic, replication=replication, timeout=SECONDS)


def survive_a_relay_and_the_leader(
    cluster: Cluster, crowd: Crowd, consumers: int, most: float, *, pause: float = 0.02
) -> None:
    """Kill a relay, start it again, kill the leader: everybody gets every offset once."""
    with Publishing(url_of(cluster), "t", pause=pause) as publishing:
        kill_in_turn(cluster, crowd, publishing, consumers, most)


def kill_in_turn(
    cluster: Cluster, crowd: Crowd, publishing: Publishing, consumers: int, most: float
) -> None:
    at = next(iter(cluster.all.values()))
    began = time.monotonic()
    wait_for(
        lambda: is_spread(tree_at(at, "t"), consumers, most),
        SPREAD_SECONDS_MAX + 2 * SECONDS,
        lambda: (tree_at(at, "t"), crowd.state()),
    )  # fmt: skip
    tell(f"spread after {time.monotonic() - began:.1f} s")
    others = [each for each in tree_at(at, "t") if not each.is_root and each.node != at.node]
    relay = next(each for each in others if each.consumers)
    dying = process_of(cluster, relay.node)
    tell(f"{relay.consumers} consumers lose their relay")
    crowd.mark()
    dying.kill()
    time.sleep(RESUMED_SECONDS_MAX + 3)
    pauses = sorted(each.longest_pause for each in crowd.consumers)
    tell(f"longest pauses after the relay's death: {pauses[-3:]}")
    assert pauses[-1] <= RESUMED_SECONDS_MAX
    cluster.restart(dying.name)
    cluster.wait_ideal(60, at)
    wait_for(lambda: is_spread(tree_at(at, "t"), consumers, most), 60, lambda: tree_at(at, "t"))
    root = root_of(tree_at(at, "t"))
    assert root is not None
    crowd.mark()
    process_of(cluster, root.node).kill()
    time.sleep(RESUMED_SECONDS_MAX + 3)
    pauses = sorted(each.longest_pause for each in crowd.consumers)
    tell(f"longest pauses after the leader's death: {pauses[-3:]}")
    ends = {0: publishing.stop()}
    wait_for(
        lambda: crowd.have_all(ends), 60,
        lambda: (ends, crowd.state()),
    )  # fmt: skip
    crowd.check(ends)


def test_a_relay_and_then_the_leader_die(tmp_path: Path) -> None:
    with founded(tmp_path, "abcd", "--popular", "3") as cluster:
        make(cluster["a"].client(), "t", 3)
        with Crowd(url_of(cluster), "t", 12) as crowd:
            survive_a_relay_and_the_leader(cluster, crowd, 12, 1.25 * 12 / 4 + 1)


def test_the_crowd_goes_and_the_rest_come_back_to_the_leader(tmp_path: Path) -> None:
    with founded(tmp_path, "abc", "--popular", "4") as cluster:
        make(cluster["a"].client(), "t", 1)
        url, at = url_of(cluster), cluster["b"]
        with Publishing(url, "t") as publishing, Crowd(url, "t", 2, name="stays") as stay:
            wait_for(lambda: all(each.count() for each in stay.consumers), SECONDS, stay.state)
            with Crowd(url, "t", 10, name="goes") as go:
                wait_for(
                    lambda: is_spread(tree_at(at, "t"), 12, 6), SECONDS,
                    lambda: (tree_at(at, "t"), go.state()),
                )  # fmt: skip
                check_what_is_shown(cluster["c"], 12)
                stay.mark()
            wait_for(
                lambda: is_at_the_leader(tree_at(at, "t"), 2), SECONDS,
                lambda: (tree_at(at, "t"), stay.state()),
            )  # fmt: skip
            ends = {0: publishing.stop()}
            wait_for(lambda: stay.have_all(ends), SECONDS, stay.state)
            stay.check(ends)
        pause = max(each.longest_pause for each in stay.consumers)
        tell(f"the longest pause of those who came back: {pause:.2f} s")
        assert pause < 2


def check_what_is_shown(process: Process, consumers: int) -> None:
    command = [*HOCKET, "ring", "--topic", "t", "--json", "--server", process.url]
    (tree,) = json.loads(subprocess.check_output(command, env=environment()))
    assert (tree["topic"], tree["partition"]) == ("t", 0)
    assert sum(each["consumers"] for each in tree["nodes"]) == consumers
    root = next(each for each in tree["nodes"] if each["node"] == tree["root"])
    assert sorted(root["children"]) == sorted(
        each["node"] for each in tree["nodes"] if each["parent"] == tree["root"]
    )


def test_who_is_fed_is_told_that_the_topic_is_gone(tmp_path: Path) -> None:
    with founded(tmp_path, "ab", "--popular", "1") as cluster:
        client = cluster["a"].client()
        make(client, "t", 1)
        with Crowd(url_of(cluster), "t", 4) as crowd:
            at = cluster["b"]
            wait_for(lambda: is_spread(tree_at(at, "t"), 4, 3), SECONDS, crowd.state)
            client.delete_topic("t", timeout=SECONDS)
            wait_for(lambda: all(each.error for each in crowd.consumers), SECONDS, crowd.state)
        assert {type(each.error).__name__ for each in crowd.consumers} == {"UnknownTopic"}


@pytest.mark.skipif(not LONG, reason="HOCKET_STRESS=long: a thousand consumers")
def test_a_thousand_consumers_survive_a_relay_and_the_leader(tmp_path: Path) -> None:
    with founded(tmp_path, NAMES) as cluster:
        make(cluster["a"].client(), "t", 3)
        with Crowd(url_of(cluster), "t", 1000, per_client=20) as crowd:
            # All of them are in this process: so many messages a second as it can take.
            survive_a_relay_and_the_leader(cluster, crowd, 1000, BALANCE_MAX * 200, pause=0.5)


@pytest.mark.skipif(not LONG, reason="HOCKET_STRESS=long: ten nodes")
def test_ten_nodes_with_two_children_each_are_a_tree_of_depth_three(tmp_path: Path) -> None:
    names = "abcdefghij"
    with founded(tmp_path, names, "--popular", "5", "--relay-children", "2") as cluster:
        make(cluster["a"].client(), "t", 1)
        with (
            Crowd(url_of(cluster), "t", 60, per_client=6) as crowd,
            Publishing(url_of(cluster), "t") as publishing,
        ):
            look_at_a_deep_tree(cluster, crowd, publishing)


def look_at_a_deep_tree(cluster: Cluster, crowd: Crowd, publishing: Publishing) -> None:
    at = cluster["a"]
    wait_for(lambda: is_spread(tree_at(at, "t"), 60, 9), 60, lambda: tree_at(at, "t"))

    def depths() -> dict[str, int]:
        parents = {each.node: each.parent for each in tree_at(at, "t")}
        found = {}
        for node in parents:
            up, steps = node, count()
            while parents.get(up) and next(steps) < 10:
                up = parents[up]
            found[node] = next(steps)
        return found

    wait_for(lambda: max(depths().values(), default=0) >= 3, 60, lambda: tree_at(at, "t"))
    time.sleep(5)
    nodes = tree_at(at, "t")
    root = root_of(nodes)
    assert root is not None
    assert len(root.children) <= 2
    assert all(len(each.children) <= 2 for each in nodes)
    inner = next(each for each in nodes if each.children and not each.is_root)
    dying = process_of(cluster, inner.node)
    crowd.mark()
    dying.kill()
    time.sleep(RESUMED_SECONDS_MAX + 3)
    pauses = sorted(each.longest_pause for each in crowd.consumers)
    tell(f"depths {sorted(depths().values())}, longest pauses {pauses[-3:]}")
    assert pauses[-1] <= RESUMED_SECONDS_MAX
    ends = {0: publishing.stop()}
    wait_for(lambda: crowd.have_all(ends), 60)
    crowd.check(ends)
