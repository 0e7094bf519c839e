"""One small cluster of real processes goes through what a cluster has to bear; in order, and once.

The ring is larger than a successor list and one, so that it is kept by its own protocol, and not by
the registry. The whole of it, with ten processes, is in `test_whole.py`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import hocket
from hocket.cluster_model import RingDescription
from hocket.errors import HocketError, RootAway
from tests.support.cluster.processes import Cluster, Process, check_lookups, cluster_in, wait_for

SECONDS = 60.0


def topics_at(process: Process) -> set[str]:
    return set(process.client().topics())


def create(process: Process, topic: str) -> None:
    """The client asks again by itself until there is a root; unless it may have happened."""

    def is_created() -> bool:
        try:
            process.client().create_topic(topic, exist_ok=True)
        except RootAway as error:
            if not error.may_have_happened:
                raise
            return False
        return True

    wait_for(is_created, SECONDS, process.said)


def wait_for_topics(cluster: Cluster, names: set[str]) -> None:
    for each in cluster.up:
        wait_for(lambda each=each: topics_at(each) == names, SECONDS, lambda: cluster.logs())


def neither_root_nor_beside_it(cluster: Cluster, ring: RingDescription) -> Process:
    order = [each.name for each in ring.nodes]
    return cluster[order[(order.index("root") + 2) % len(order)]]


@pytest.mark.timeout(240)
def test_a_cluster_of_five_lives_through_stops_kills_and_returns(tmp_path: Path):
    with cluster_in(tmp_path, "--successors", "2") as cluster:
        root = cluster.found("root")
        cluster.join(["b", "c", "d", "e"], [root])
        ring = cluster.wait_ideal(SECONDS)
        ids = {each.name: each.node for each in ring.nodes}
        places = {each.name: each.position for each in ring.nodes}
        assert ring.successors == 2
        assert ring.cluster == ids["root"]
        hops = check_lookups(cluster, ring, 10)
        assert max(hops) >= 2
        assert set(root.states().values()) == {"alive"}

        victim = neither_root_nor_beside_it(cluster, ring)
        other = next(each for each in cluster.up if each not in (root, victim))
        other.client().create_topic("made-at-another-node")
        wait_for_topics(cluster, {"made-at-another-node"})

        # Neither healing nor lookups need the root, and another node takes its place.
        root.stop()
        ring = cluster.wait_ideal(SECONDS, other)
        check_lookups(cluster, ring, 10)
        assert topics_at(other) == {"made-at-another-node"}
        create(other, "while-the-first-root-is-away")
        root.go_on()
        cluster.wait_ideal(SECONDS, other)
        wait_for_topics(cluster, topics_at(other))
        victim.kill()
        cluster.wait_ideal(SECONDS, other)
        create(other, "while-one-is-down")
        assert other.states()[victim.name] in ("suspect", "dead")

        # Without --join, with its old identity, and with what it has missed.
        cluster.restart(victim.name)
        assert topics_at(victim) >= {"while-one-is-down"}
        ring = cluster.wait_ideal(SECONDS)
        assert {each.name: each.node for each in ring.nodes} == ids
        assert {each.name: each.position for each in ring.nodes} == places

        root.kill()
        assert "made-at-another-node" in topics_at(victim)
        cluster.restart("root")
        cluster.wait_ideal(SECONDS, victim)
        create(victim, "after-the-root-return")
        wait_for_topics(cluster, topics_at(root))

        leaving = cluster["e" if victim.name != "e" else "d"]
        assert leaving.end() == 0
        cluster.wait_ideal(SECONDS)
        assert {each.node: each.state for each in root.nodes()}[ids[leaving.name]] == "dead"
        cluster.restart(leaving.name)
        ring = cluster.wait_ideal(SECONDS)
        assert {each.name: (each.node, each.position) for each in ring.nodes} == {
            name: (ids[name], places[name]) for name in ids
        }

        # A copy of a data directory ends, says why, and the ring is as it was.
        copy = cluster.add("copy")
        shutil.copytree(victim.data, copy.data)
        copy.begin()
        assert copy.wait_end(SECONDS) == 1
        assert "Give each node a data directory of its own" in copy.said().splitlines()[-1]
        del cluster.all["copy"]
        assert any("denied: link" in each.said() for each in cluster.up)

        # And so does a new node with the name of another.
        second = Process(tmp_path / "elsewhere", victim.name)
        second.data.parent.mkdir()
        second.begin("--join", root.address)
        assert second.wait_end(SECONDS) == 1
        assert f"has the name '{victim.name}', too" in second.said().splitlines()[-1]
        assert "another --name" in second.said().splitlines()[-1]
        cluster.wait_ideal(SECONDS)

        token = victim.client().create_user("ada", ["admin"])
        for each in cluster.up:
            wait_for(lambda each=each: knows_ada(each, token), SECONDS, lambda: cluster.logs())


def knows_ada(process: Process, token: str) -> bool:
    try:
        with hocket.connect(process.url, token=token) as client:
            users, _roles = client.access()
            return [user.name for user in users] == ["ada"]
    except HocketError:
        return False
