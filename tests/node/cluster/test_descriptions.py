"""What a topic holds is told by the node that holds it, whichever node is asked; or not, and then
that is said."""

from __future__ import annotations

import pytest

from hocket import frames
from hocket.core.placement.descriptions import GROUPS_MAX, GetPartitions, PartitionsAre
from hocket.model import PartitionDescription, ReplicaState
from hocket.node.cluster.descriptions import ANSWER_US, SILENT_US, Descriptions
from hocket.wire import batch as batches
from tests.support.node.cluster import Asking, Nodes

RECORD = batches.encode([b"record"], timestamps=5)
SILENT = "it is on node n1, at n1:4150, which does not answer; what it holds is not known here"


@pytest.fixture
def nodes() -> Nodes:
    """All partitions are on `n1`, unless a test says otherwise."""
    nodes = Nodes()
    nodes.put_on(1)
    return nodes


def described(client: Asking, topic: str = "orders") -> list[PartitionDescription]:
    """Of all parts of the answer."""
    found: list[PartitionDescription] = []
    after = ""
    while after or not found:
        answer = client.ask(frames.DescribeTopic, topic=topic, paged=True, after=after)
        assert isinstance(answer, frames.Topics), answer
        found += answer.topics[0].partitions
        after = answer.next
        if not after:
            break
    return found


def descriptions(nodes: Nodes, number: int) -> Descriptions:
    node = nodes.machines[number].node
    assert node is not None
    return node.descriptions


def test_every_node_tells_what_the_home_of_a_topic_tells(nodes: Nodes):
    at_home = Asking(nodes, 1)
    at_home.create("orders", partitions=2)
    nodes.settle()
    for _ in range(3):
        assert isinstance(
            at_home.ask(frames.Publish, RECORD, topic="orders", partition=1), frames.Published
        )
    wanted = described(at_home)
    assert [(each.start, each.end, each.leader) for each in wanted] == [(0, 0, "n1"), (0, 3, "n1")]
    assert described(Asking(nodes, 0)) == described(Asking(nodes, 2)) == wanted


def test_a_home_that_has_not_heard_of_a_topic_yet_catches_up_before_it_tells(nodes: Nodes):
    home, root = nodes.machines[1], nodes.root
    nodes.links.cut([root.address], [home.address], one_way=True)
    Asking(nodes, 0).create("orders", partitions=2)
    nodes.until(lambda: "orders" in Asking(nodes, 2).topics(), 5, "n2 has heard of it")
    nodes.links.heal()
    assert [(each.leader, each.problem) for each in described(Asking(nodes, 2))] == [("n1", "")] * 2


def test_each_partition_is_described_by_the_node_that_holds_it(nodes: Nodes):
    nodes.put_on(0, 1, 2)
    Asking(nodes, 2).create("orders", partitions=7)
    nodes.settle()
    for number in range(7):
        client = Asking(nodes, number % 3)
        for _ in range(number):
            client.ask(frames.Publish, RECORD, topic="orders", partition=number)
    for number in range(3):
        found = described(Asking(nodes, number))
        assert [(each.partition, each.end, each.leader, each.replicas) for each in found] == [
            (each, each, f"n{each % 3}", (f"n{each % 3}",)) for each in range(7)
        ]
        assert [each.replica_states for each in found] == [
            (ReplicaState(f"n{each % 3}", "leader", 1, each),) for each in range(7)
        ]


def test_two_homes_that_are_down_cost_one_second_together(nodes: Nodes):
    nodes.put_on(0, 1, 2)
    Asking(nodes, 0).create("orders", partitions=6)
    nodes.settle()
    client = Asking(nodes, 0)
    nodes.crash(1)
    nodes.crash(2)
    began = nodes.now_us
    found = described(client)
    assert ANSWER_US <= nodes.now_us - began < ANSWER_US + 200_000
    assert [(each.leader, each.known, each.replicas) for each in found] == [
        (("n0", True, ("n0",)), ("", False, ("n1",)), ("", False, ("n2",)))[each % 3]
        for each in range(6)
    ]
    assert all(("does not answer" in each.problem) != each.known for each in found)


def test_delayed_messages_are_counted_elsewhere_as_well(nodes: Nodes):
    at_home = Asking(nodes, 1)
    at_home.create("orders", delayed=True)
    nodes.settle()
    later = batches.encode([b"later"], timestamps=nodes.now_us + 3_600_000_000)
    at_home.ask(frames.Publish, later, topic="orders", partition=0, delayed=True)
    (partition,) = described(Asking(nodes, 2))
    assert (partition.waiting, partition.known) == (1, True)


@pytest.mark.parametrize("paged", [True, False])
def test_a_topic_of_many_partitions_is_asked_about_in_parts(nodes: Nodes, paged: bool):
    count = 2 * GROUPS_MAX + 5
    at_home, elsewhere = Asking(nodes, 1), Asking(nodes, 2)
    at_home.create("orders", partitions=count)
    nodes.settle()
    at_home.ask(frames.Publish, RECORD, topic="orders", partition=count - 1)
    found = described(elsewhere) if paged else elsewhere.describe("orders").topics[0].partitions
    assert [(each.partition, each.known) for each in found] == [(n, True) for n in range(count)]
    assert [each.end for each in found] == [0] * (count - 1) + [1]


def test_a_home_that_is_down_is_waited_for_a_second_and_not_each_time(nodes: Nodes):
    Asking(nodes, 1).create("orders", partitions=2)
    nodes.settle()
    client = Asking(nodes, 2)
    nodes.crash(1)

    def asked() -> tuple[list[PartitionDescription], int]:
        began = nodes.now_us
        return described(client), nodes.now_us - began

    found, took_us = asked()
    assert ANSWER_US <= took_us < ANSWER_US + 200_000
    assert [(each.known, each.problem, each.leader) for each in found] == [(False, SILENT, "")] * 2
    assert {each.replicas for each in found} == {("n1",)}
    assert {each.replica_states for each in found} == {(ReplicaState("n1", "unknown"),)}
    assert {(each.start, each.end, each.disk_bytes) for each in found} == {(0, 0, 0)}
    again, took_us = asked()
    assert again == found
    assert took_us < 200_000
    nodes.start(1)
    nodes.run(SILENT_US)
    nodes.until(lambda: all(each.known for each in described(client)), 20, "the home answers")


def test_a_node_that_was_silent_is_asked_again_as_soon_as_it_says_anything(nodes: Nodes):
    Asking(nodes, 1).create("orders")
    nodes.settle()
    asking, home = nodes.machines[2], nodes.machines[1]
    nodes.links.cut([asking.address], [home.address])
    client = Asking(nodes, 2)
    assert [each.known for each in described(client)] == [False]
    nodes.links.heal()
    assert [each.known for each in described(client)] == [False]  # it is not asked for a moment
    assert asking.node is not None
    members = {each.node: each for each in asking.node.node.registering.members()[1]}
    asking.node.heard(members["n1"], 0, GetPartitions(1, ()))
    assert [each.known for each in described(client)] == [True]


def test_a_node_that_comes_and_goes_is_no_dead_one_while_it_waits_for_its_place(nodes: Nodes):
    """The registry has a former life of it, and the ring has found that one dead."""
    asking = nodes.machines[2].node
    assert asking is not None
    for _ in range(4):
        nodes.crash(1)
        nodes.until(lambda: asking._is_dead("n1"), 120, "n1 is given up")
        nodes.start(1)
        nodes.run(3_000_000)
    back = nodes.machines[1].node
    known = asking.node.registering.known("n1")
    assert back is not None
    assert known is not None
    assert known.incarnation < back.ring.core.me.incarnation
    assert not asking._is_dead("n1")


def test_whom_nobody_knows_is_not_asked(nodes: Nodes):
    told: list[dict[int, PartitionDescription]] = []
    descriptions(nodes, 2).ask("nobody", [1], told.append)
    assert told == [{}]


def test_only_the_one_that_was_asked_answers_and_once(nodes: Nodes):
    Asking(nodes, 1).create("orders")
    nodes.settle()
    asking = descriptions(nodes, 2)
    told: list[dict[int, PartitionDescription]] = []
    members = {each.node: each for each in nodes.machines[2].node.node.registering.members()[1]}
    groups = nodes.machines[2].node.node._wiring.catalogue.topic("orders").groups
    asking.ask("n1", groups, told.append)
    lie = PartitionDescription(0, 0, 99, 0, 0, 0, 0, 0, "n0", ("n0",))
    asking.heard(members["n0"], PartitionsAre(asking._last, (lie,)))
    asking.heard(members["n1"], PartitionsAre(asking._last + 1, (lie,)))
    assert told == []
    nodes.run()
    assert [each[0].end for each in told] == [0]
    asking.heard(members["n1"], PartitionsAre(asking._last, (lie,)))
    assert len(told) == 1


def test_a_node_tells_of_partitions_only_and_of_those_that_it_holds(nodes: Nodes):
    Asking(nodes, 1).create("orders", delayed=True)
    nodes.settle()
    home = nodes.machines[1].node
    assert home is not None
    assert [each.partition for each in home.node.described(range(10))] == [0]
    other = nodes.machines[2].node
    assert other is not None
    assert other.node.described(range(10)) == ()
    assert not home.descriptions._inquiries
    home.descriptions.heard(other.ring.core.me, GetPartitions(7, tuple(range(1000))))
