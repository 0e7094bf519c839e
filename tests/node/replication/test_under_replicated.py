"""Which copies lack what their leader has, as any node tells it: true, and without flickering."""

from __future__ import annotations

import pytest

from hocket import frames
from hocket.model import PartitionDescription
from hocket.wire import batch as batches
from tests.support.node.cluster import SECOND, Asking, Nodes
from tests.support.node.replicated import leader_of


@pytest.fixture
def nodes() -> Nodes:
    nodes = Nodes()
    Asking(nodes, 0).create("orders", replication=3)
    nodes.settle()
    leader_of(nodes)
    return nodes


def described(nodes: Nodes, number: int) -> PartitionDescription:
    (topic,) = Asking(nodes, number).describe("orders").topics
    (partition,) = topic.partitions
    return partition


def behind(nodes: Nodes, number: int) -> list[str]:
    return [each.node for each in described(nodes, number).replica_states if each.behind]


def publish(nodes: Nodes, number: int, count: int = 1) -> None:
    record = batches.encode([b"x"] * count, timestamps=5)
    answer = Asking(nodes, number).ask(frames.Publish, record, topic="orders", partition=0)
    assert isinstance(answer, frames.Published), answer


def others(number: int) -> list[int]:
    return [each for each in range(3) if each != number]


def test_each_copy_says_its_role_what_it_has_on_disk_and_what_it_lacks(nodes):
    leader = leader_of(nodes)
    for _ in range(3):
        publish(nodes, leader)
    nodes.run(2 * SECOND)
    partition = described(nodes, others(leader)[0])
    assert partition.leader == f"n{leader}"
    assert [each.node for each in partition.replica_states] == ["n0", "n1", "n2"]
    roles = {each.node: each.role for each in partition.replica_states}
    assert roles == {f"n{each}": "leader" if each == leader else "follower" for each in range(3)}
    assert {(each.end, each.lag, each.behind) for each in partition.replica_states} == {
        (3, 0, False)
    }
    assert not partition.under_replicated


def test_a_new_topic_and_one_under_load_are_never_called_under_replicated(nodes):
    leader, since = leader_of(nodes), nodes.now_us
    lags = set()
    client, record = Asking(nodes, leader), batches.encode([b"x"] * 10, timestamps=5)
    for _ in range(500):  # without a pause: something is always on its way
        client.begin(frames.Publish, record, topic="orders", partition=0)
        described = client.describe("orders").topics[0]
        (partition,) = described.partitions
        lags |= {each.lag for each in partition.replica_states}
        assert not partition.under_replicated, partition
    assert nodes.now_us - since > 3 * SECOND
    assert lags - {0}, "nothing was ever on its way: this shows nothing"


@pytest.mark.parametrize("under_load", [False, True])
def test_a_follower_that_dies_is_behind_within_five_seconds_until_it_is_back(nodes, under_load):
    leader = leader_of(nodes)
    follower, witness = others(leader)
    publish(nodes, leader)
    nodes.run(8 * SECOND)  # a group with nothing to do is quiet by then
    nodes.crash(follower)
    since = nodes.now_us
    while not behind(nodes, witness):
        assert nodes.now_us - since < 5 * SECOND
        if under_load:
            publish(nodes, leader)
        nodes.run(SECOND // 10)
    partition = described(nodes, witness)
    assert [each.node for each in partition.replica_states if each.behind] == [f"n{follower}"]
    assert partition.under_replicated
    for _ in range(20):
        publish(nodes, leader)
    nodes.run(3 * SECOND)
    lags = {each.node: each.lag for each in described(nodes, witness).replica_states}
    assert lags[f"n{follower}"] >= 20
    assert lags[f"n{witness}"] == 0
    nodes.start(follower)
    nodes.until(lambda: not behind(nodes, witness), 10, "the follower is back")
    for _ in range(30):
        nodes.run(SECOND // 10)
        assert not behind(nodes, witness)


def test_a_leader_that_dies_is_behind_as_soon_as_another_leads(nodes):
    leader = leader_of(nodes)
    nodes.run(2 * SECOND)
    nodes.crash(leader)
    witness = others(leader)[0]
    nodes.until(lambda: described(nodes, witness).known, 10, "another one leads")
    nodes.until(lambda: behind(nodes, witness) == [f"n{leader}"], 4, "the dead one is behind")


def test_where_nobody_leads_every_copy_is_behind(nodes):
    leader = leader_of(nodes)
    for number in others(leader):
        nodes.crash(number)
    nodes.until(lambda: not described(nodes, leader).known, 10, "it leads no more")
    partition = described(nodes, leader)
    assert partition.under_replicated
    assert {(each.role, each.behind) for each in partition.replica_states} == {("unknown", True)}
