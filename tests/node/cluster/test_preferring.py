"""What is set for the whole cluster: asked for at any node, decided by the root, known to all."""

from __future__ import annotations

import pytest

from hocket import frames
from hocket.model import TopicConfig
from tests.support.node.cluster import Asking, Nodes


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def cluster(nodes: Nodes, number: int) -> frames.ClusterIs:
    answer = Asking(nodes, number).ask(frames.DescribeCluster)
    assert isinstance(answer, frames.ClusterIs)
    return answer


def replicas(nodes: Nodes, topic: str) -> list[int]:
    (described,) = Asking(nodes, 0).describe(topic).topics
    return [len(each.replicas) for each in described.partitions]


def test_a_default_that_one_node_was_told_holds_at_all_for_new_topics(nodes):
    assert [cluster(nodes, number).replication for number in range(3)] == [1, 1, 1]
    Asking(nodes, 1).create("before")
    Asking(nodes, 2).done(frames.SetCluster, replication=3)
    assert cluster(nodes, 2).replication == 3  # who set it reads it at once
    nodes.settle()
    told = [cluster(nodes, number) for number in range(3)]
    assert [(each.replication, each.nodes) for each in told] == [(3, 3)] * 3
    assert {each.cluster for each in told} == {"n0"}
    Asking(nodes, 1).create("after")
    Asking(nodes, 1).create("own", replication=2)
    nodes.settle()
    assert [replicas(nodes, name) for name in ("before", "after", "own")] == [[1], [3], [2]]
    (described,) = Asking(nodes, 2).describe("after").topics
    assert described.config.replication is None
    # The topic that was made before grows as it began.
    Asking(nodes, 0).done(frames.AlterTopic, topic="before", config=TopicConfig(2))
    assert replicas(nodes, "before") == [1, 1]


def test_a_default_survives_the_loss_of_power_and_a_snapshot(nodes):
    Asking(nodes, 0).done(frames.SetCluster, replication=2)
    nodes.settle()
    for number in range(3):
        nodes.crash(number)
    for number in range(3):
        nodes.start(number)
    nodes.settle()
    nodes.crash(2)
    for number in range(12):  # more than the root keeps in memory: the third gets a snapshot
        Asking(nodes, 0).create(f"t{number}", replication=1)
    nodes.start(2)
    nodes.settle()
    assert [cluster(nodes, number).replication for number in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("number", [0, 1])
def test_what_no_topic_could_have_is_refused_and_nothing_is_set(nodes, number):
    client = Asking(nodes, number)
    refused = client.refused(frames.SetCluster, replication=4)
    assert (refused.code, "there are 3" in refused.message) == ("notEnoughNodes", True)
    assert client.refused(frames.SetCluster, replication=8).code == "outOfRange"
    assert client.refused(frames.SetCluster, replication=0).code == "outOfRange"
    assert cluster(nodes, number).replication == 1


def test_admins_set_it_others_may_look_and_the_audit_log_has_it(nodes, caplog):
    caplog.set_level("INFO", "hocket.audit")
    admin = Asking(nodes, 1)
    token = admin.token(frames.CreateUser, name="ann", roles=("admin",))
    admin.done(frames.CreateRole, name="reader")
    other = admin.token(frames.CreateUser, name="bob", roles=("reader",))
    nodes.settle()
    assert Asking(nodes, 2, other).refused(frames.SetCluster, replication=2).code == "notAllowed"
    assert isinstance(Asking(nodes, 2, other).ask(frames.DescribeCluster), frames.ClusterIs)
    Asking(nodes, 2, token).done(frames.SetCluster, replication=2)
    denied, changed = [each for each in caplog.messages if "etCluster" in each]
    assert denied.startswith("denied: user='bob' address=somewhere by way of node n2 SetCluster")
    assert changed.startswith("changed: user='ann' address=somewhere by way of node n2")
    assert changed.endswith("setCluster replication=2")
