"""The node that has founded a cluster is killed: another one becomes the root, and all goes on."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

import hocket
from hocket.errors import HocketError, RootAway
from tests.support.cluster.processes import Cluster, Process, cluster_in, wait_for

SECONDS = 60.0
TOLD_SECONDS_MAX = 10.0  # without a root, on a machine that has other things to do as well


def catalogue_at(process: Process, token: str) -> tuple[list[str], list[str]]:
    with hocket.connect(process.url, token=token) as client:
        users, _roles = client.access()
        return sorted(client.topics()), sorted(user.name for user in users)


def wait_same(cluster: Cluster, token: str, topics: list[str], users: list[str]) -> None:
    def is_same() -> bool:
        try:
            found = [catalogue_at(each, token) for each in cluster.up]
        except HocketError:
            return False
        return all(each == (topics, users) for each in found)

    wait_for(is_same, SECONDS, lambda: cluster.logs())


def create(process: Process, topic: str, token: str = "") -> None:
    """Until a root is elected the client asks again by itself; unless it may have happened."""

    def is_created() -> bool:
        try:
            with hocket.connect(process.url, token=token or None) as client:
                client.create_topic(topic, exist_ok=True)
        except RootAway as error:
            if not error.may_have_happened:
                raise
            return False
        return True

    wait_for(is_created, SECONDS, process.said)


def votes(process: Process, count: int) -> bool:
    return f"{count} nodes vote in group 0" in process.said()


@pytest.mark.timeout(150)
def test_the_founder_is_killed_and_topics_users_and_nodes_change_all_the_same(tmp_path: Path):
    with cluster_in(tmp_path) as cluster:
        founder = cluster.found("a")
        cluster.join(["b", "c"], [founder])
        b, c = cluster["b"], cluster["c"]
        wait_for(lambda: votes(founder, 3), SECONDS, founder.said)
        token = b.client().create_user("ada", ["admin"])
        create(c, "before", token)
        wait_same(cluster, token, ["before"], ["ada"])

        founder.kill()
        began = time.monotonic()
        create(b, "topic", token)
        seconds = time.monotonic() - began
        sys.stdout.write(f"a topic was made {seconds:.2f} s after the root was killed\n")
        assert seconds < TOLD_SECONDS_MAX
        with hocket.connect(c.url, token=token) as client:
            client.create_user("bob", [])
        cluster.join(["d"], [c])
        wait_same(cluster, token, ["before", "topic"], ["ada", "bob"])

        cluster.restart("a")
        wait_same(cluster, token, ["before", "topic"], ["ada", "bob"])
        create(founder, "after", token)
        wait_same(cluster, token, ["after", "before", "topic"], ["ada", "bob"])

        # All at once, as when the power fails; each comes back with what it has.
        for each in list(cluster.up):
            each.kill()
        for name in "abcd":
            cluster[name].begin()
        for name in "abcd":
            cluster[name].wait_ready()
        wait_same(cluster, token, ["after", "before", "topic"], ["ada", "bob"])
        create(cluster["d"], "again", token)
