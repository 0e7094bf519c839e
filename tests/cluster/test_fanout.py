"""A crowd of consumers of one topic, on real nodes: spread, fed by relays, and none misses any."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hocket import Client
from hocket.cluster_model import TreeNode
from hocket.errors import HocketError
from tests.support.cli import HOCKET, environment
from tests.support.cluster.clients import stored
from tests.support.cluster.crowd import Crowd, Publishing
from tests.support.cluster.history import check, now
from tests.support.cluster.processes import Cluster, Process, cluster_in, wait_for
from tests.support.cluster.sockets import bytes_sent
from tests.support.processes import forked
from tests.support.threads import LONG

SECONDS = 30.0
RESUMED_SECONDS_MAX = 5.0  # after a relay has died
SPREAD_SECONDS_MAX = 10.0  # after the last consumer has come
# After the leader has died: others elect a leader, within two seconds as its port refuses them, and
# consumers and the producer look for it. Most of it is the pause of the producer.
FAILED_OVER_SECONDS_MAX = 10.0
BALANCE_MAX = 1.3  # consumers of the busiest node, of the mean, where there are many
NAMES = "abcde"
NOT_HERE = (  # sentences about keys, transactions and shared indexes
    "a_key_stays_in_its_partition", "transactions_are_whole", "settled_is_not_delivered_again",
    "a_key_is_delivered_in_order",
)  # fmt: skip

pytestmark = pytest.mark.timeout(400)


def tell(text: str) -> None:
    """What was measured; it is seen with `-s`, and if the test fails."""
    sys.stdout.write(text + "\n")


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
    at = next(iter(cluster.all.values()))
    with Publishing(url_of(cluster), "t", pause=pause) as publishing:
        wait_until_spread(at, crowd, consumers, most)
        others = [each for each in tree_at(at, "t") if not each.is_root and each.node != at.node]
        relay = next(each for each in others if each.consumers)
        dying = process_of(cluster, relay.node)
        tell(f"{relay.consumers} consumers lose their relay")
        kill(dying, crowd, publishing, RESUMED_SECONDS_MAX)
        cluster.restart(dying.name)
        cluster.wait_ideal(60, at)
        wait_until_spread(at, crowd, consumers, most)
        root = root_of(tree_at(at, "t"))
        assert root is not None
        leading = process_of(cluster, root.node)
        kill(leading, crowd, publishing, FAILED_OVER_SECONDS_MAX)
        judge(next(each for each in cluster.up if each is not leading), crowd, publishing)


def wait_until_spread(at: Process, crowd: Crowd, consumers: int, most: float) -> None:
    began = time.monotonic()
    wait_for(
        lambda: is_spread(tree_at(at, "t"), consumers, most), 120,
        lambda: (tree_at(at, "t"), crowd.state()),
    )  # fmt: skip
    tell(f"spread after {time.monotonic() - began:.1f} s")


def kill(process: Process, crowd: Crowd, publishing: Publishing, seconds_max: float) -> None:
    """Kill it, and see that everybody is given something again within so many seconds."""
    crowd.mark()
    killed_at = now()
    process.kill()
    # One may have been sent and not yet be acknowledged; the one after that is sent later.
    behind = publishing.acknowledged + 2
    wait_for(lambda: crowd.have(behind), 60, crowd.state)
    pauses = crowd.pauses()
    longest = [round(each, 2) for each in pauses[-3:]]
    tell(
        f"longest pauses: {longest}, half of all at most {pauses[len(pauses) // 2]:.2f} s; "
        f"between two acknowledgements at most {publishing.pause_since(killed_at):.2f} s"
    )
    assert pauses[-1] <= seconds_max


def judge(at: Process, crowd: Crowd, publishing: Publishing) -> None:
    """Every consumer got every offset once, in order."""
    end = publishing.stop()
    wait_for(lambda: crowd.have(end), 60, crowd.state)
    events = [*publishing.events, *crowd.end(), *stored(at.client(), ["t"])]
    looked_at = check(events, idle=NOT_HERE)
    tell(f"{end} messages; looked at {looked_at['everything_is_delivered']} deliveries")


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
            wait_for(lambda: stay.have(1), SECONDS, stay.state)
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
            came_back = publishing.acknowledged + 2
            wait_for(lambda: stay.have(came_back), SECONDS, stay.state)
            pause = stay.pauses()[-1]
            tell(f"the longest pause of those who came back: {pause:.2f} s")
            assert pause < 2
            judge(at, stay, publishing)


def shown(process: Process) -> list[dict[str, Any]]:
    command = [*HOCKET, "ring", "--topic", "t", "--json", "--server", process.url]
    done = forked.run(command, timeout=SECONDS, env=environment())
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def check_what_is_shown(process: Process, consumers: int) -> None:
    (tree,) = shown(process)
    assert (tree["topic"], tree["partition"]) == ("t", 0)
    assert sum(each["consumers"] for each in tree["nodes"]) == consumers
    root = next(each for each in tree["nodes"] if each["node"] == tree["root"])
    assert sorted(root["children"]) == sorted(
        each["node"] for each in tree["nodes"] if each["parent"] == tree["root"]
    )


def test_each_replica_roots_a_tree(tmp_path: Path) -> None:
    """A replica has the log already: it takes nothing a second time, and feeds others, too."""
    with founded(tmp_path, NAMES, "--popular", "4") as cluster:
        make(cluster["a"].client(), "t", 3)
        at = cluster["b"]
        with (
            Crowd(url_of(cluster), "t", 25, per_client=5) as crowd,
            Publishing(url_of(cluster), "t", size=4000) as publishing,
        ):
            wait_until_spread(at, crowd, 25, 1.25 * 25 / 5 + 1)
            wait_for(lambda: are_three_trees(at), SECONDS, lambda: tree_at(at, "t"))
            (tree,) = shown(at)
            roots = [each["node"] for each in tree["nodes"] if each["reads_log"]]
            assert tree["root"] in roots
            replicas = at.client().describe("t").partitions[0].replicas
            assert set(replicas) == set(roots)
            replicas_take_bytes_once(cluster, tree["root"], roots, publishing)
            judge(at, crowd, publishing)


def are_three_trees(at: Process) -> bool:
    """Three nodes read their logs, and have no parent; all others hang on one of them."""
    (tree,) = shown(at) or [{"nodes": []}]
    roots = [each for each in tree["nodes"] if each["reads_log"]]
    others = [each for each in tree["nodes"] if not each["reads_log"]]
    names = {each["node"] for each in roots}
    return (
        len(roots) == 3
        and len(others) == 2
        and not any(each["parent"] for each in roots)
        and all(each["parent"] in names for each in others)
    )


def replicas_take_bytes_once(
    cluster: Cluster, leader: str, roots: list[str], publishing: Publishing
) -> None:
    sent = sent_by(process_of(cluster, leader), cluster, publishing)
    for node, count in sent.items():
        if node in roots:
            assert 0.9 < count < 1.4, (node, sent)


def test_who_is_fed_is_told_that_the_topic_is_gone(tmp_path: Path) -> None:
    with founded(tmp_path, "ab", "--popular", "1") as cluster:
        client = cluster["a"].client()
        make(client, "t", 1)
        with Crowd(url_of(cluster), "t", 4) as crowd:
            at = cluster["b"]
            wait_for(lambda: is_spread(tree_at(at, "t"), 4, 3), SECONDS, crowd.state)
            client.delete_topic("t", timeout=SECONDS)
            wait_for(lambda: all(each.error for each in crowd.look()), SECONDS, crowd.state)
            assert {each.error.partition(":")[0] for each in crowd.look()} == {"UnknownTopic"}


@pytest.mark.skipif(not LONG, reason="HOCKET_STRESS=long: a thousand consumers")
def test_a_thousand_consumers_survive_a_relay_and_the_leader(tmp_path: Path) -> None:
    with founded(tmp_path, NAMES) as cluster:
        make(cluster["a"].client(), "t", 3)
        with Crowd(url_of(cluster), "t", 1000, per_client=20) as crowd:
            # Two messages a second: each of them is a thousand deliveries and 500 commits.
            survive_a_relay_and_the_leader(cluster, crowd, 1000, BALANCE_MAX * 200, pause=0.5)


@pytest.mark.skipif(not LONG, reason="HOCKET_STRESS=long: ten nodes")
def test_ten_nodes_with_two_children_each_are_a_tree_of_depth_three(tmp_path: Path) -> None:
    names = "abcdefghij"
    with founded(tmp_path, names, "--popular", "5", "--relay-children", "2") as cluster:
        make(cluster["a"].client(), "t", 1)
        with (
            Crowd(url_of(cluster), "t", 60, per_client=6) as crowd,
            Publishing(url_of(cluster), "t", size=4000) as publishing,
        ):
            look_at_a_deep_tree(cluster, crowd, publishing)


def look_at_a_deep_tree(cluster: Cluster, crowd: Crowd, publishing: Publishing) -> None:
    at = cluster["a"]
    wait_until_spread(at, crowd, 60, 9)
    wait_for(lambda: max(depths(at), default=0) >= 3, 60, lambda: tree_at(at, "t"))
    nodes = tree_at(at, "t")
    root = root_of(nodes)
    assert root is not None
    assert 0 < len(root.children) <= 2
    assert all(len(each.children) <= 2 for each in nodes)
    only_children_take_bytes(cluster, root, publishing)
    inner = next(each for each in nodes if each.children and not each.is_root)
    if inner.node == at.node:
        at = cluster["b"]
    kill(process_of(cluster, inner.node), crowd, publishing, RESUMED_SECONDS_MAX)
    tell(f"depths {sorted(depths(at))}")
    judge(at, crowd, publishing)


def depths(at: Process) -> list[int]:
    """How far each node is from the root of its tree."""
    parents = {each.node: each.parent for each in tree_at(at, "t")}
    found = []
    for node in parents:
        up, steps = node, 0
        while parents.get(up) and steps < len(parents):
            up, steps = parents[up], steps + 1
        found.append(steps)
    return found


def only_children_take_bytes(cluster: Cluster, root: TreeNode, publishing: Publishing) -> None:
    sent = sent_by(process_of(cluster, root.node), cluster, publishing)
    for node, count in sent.items():
        if node in root.children:
            assert count > 0.9, (node, sent)
        else:
            assert count < 0.1, (node, sent)


def sent_by(
    process: Process, cluster: Cluster, publishing: Publishing, messages: int = 200
) -> dict[str, float]:
    """What the process sends to each other node while so many messages are published, as a multiple
    of their bytes; the kernel counts it."""
    assert process.process is not None
    pid, pids = process.process.pid, dict[str, int]()
    for each in process.nodes():
        other = process_of(cluster, each.node).process
        if other is not None and other.pid != pid:
            pids[each.node] = other.pid
    before = {node: bytes_sent(pid, other) for node, other in pids.items()}
    began = publishing.acknowledged
    wait_for(lambda: publishing.acknowledged >= began + messages, 60)
    payload = (publishing.acknowledged - began) * publishing.size
    return {node: (bytes_sent(pid, pids[node]) - before[node]) / payload for node in pids}
