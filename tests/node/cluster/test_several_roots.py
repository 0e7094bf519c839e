"""Each replica of a popular partition roots a tree: what it hands on, and when it does not."""

from __future__ import annotations

from hocket import frames
from hocket.cluster_model import TreeNode
from tests.node.cluster.test_feeds import RECORD, Consumer, publish
from tests.support.node.cluster import SECOND, Asking, Nodes

REPLICAS = {"n0", "n1", "n2"}


def replicated() -> Nodes:
    """`n0` leads the topic `orders`, `n1` and `n2` keep copies, and `n3` and `n4` do not."""
    nodes = Nodes(nodes=5, nodes_max=5, popular=0)
    nodes.put_on(0, 1, 2)
    Asking(nodes, 0).create("orders", replication=3)
    nodes.settle()
    nodes.until(lambda: bool(Asking(nodes, 0).describe("orders").topics), 10, "it is led")
    return nodes


def fed_at_each(nodes: Nodes) -> dict[int, Consumer]:
    """One consumer at each node but the leader."""
    found: dict[int, Consumer] = {}
    for number in range(60):
        consumer = Consumer(nodes, index=f"own-{number}")
        if consumer.at is not None and consumer.at not in found:
            consumer.feed()
            found[consumer.at] = consumer
        if len(found) == 4:
            return found
    raise AssertionError(f"consumers came to {sorted(found)} only")


def tree(nodes: Nodes, at: int = 4) -> dict[str, TreeNode]:
    told = Asking(nodes, at).ask(frames.DescribeTree, topic="orders")
    assert isinstance(told, frames.TreeIs)
    return {each.node: each for each in told.nodes}


def test_each_replica_reads_its_own_log_and_the_others_divide_themselves():
    nodes = replicated()
    consumers = fed_at_each(nodes)
    publish(nodes, 3)
    nodes.run(2 * SECOND)
    for consumer in consumers.values():
        assert [offset for _, offset in consumer.delivered] == [0, 1, 2]
    places = tree(nodes)
    assert {each.node for each in places.values() if each.reads_log} == REPLICAS
    assert [each.node for each in places.values() if each.is_root] == ["n0"]
    assert all(not places[node].parent for node in REPLICAS)
    assert {places[node].parent for node in ("n3", "n4")} <= REPLICAS


def test_a_copy_goes_on_feeding_when_the_leader_dies():
    nodes = replicated()
    consumers = fed_at_each(nodes)
    publish(nodes, 2)
    nodes.run(2 * SECOND)
    nodes.crash(0)
    nodes.until(lambda: any(each.is_root for each in tree(nodes).values()), 20, "another leads")
    (leader,) = [int(each.node[1:]) for each in tree(nodes).values() if each.is_root]
    client = Asking(nodes, leader)
    record = client.ask(frames.Publish, RECORD, topic="orders", partition=0)
    assert isinstance(record, frames.Published), record
    for at in (1, 2):  # nobody had to open anything anew
        consumer = consumers[at]
        nodes.until(lambda: consumer.delivered[-1] == (0, 2), 10, f"n{at} hands it on")  # noqa: B023
        assert consumer.ends(consumer.home) == []
    assert {each.node for each in tree(nodes).values() if each.reads_log} == {"n1", "n2"}


def test_a_copy_that_does_not_hear_the_leader_roots_no_tree_and_comes_back():
    nodes = replicated()
    consumers = fed_at_each(nodes)
    publish(nodes, 1)
    nodes.run(2 * SECOND)
    addresses = [machine.address for machine in nodes.machines]
    nodes.links.cut([addresses[1]], [addresses[0], *addresses[2:]])
    lone = consumers[1]
    nodes.until(lambda: bool(lone.ends(lone.home)), 20, "the feed at n1 is ended")
    assert lone.ends(lone.home) == ["busy"]
    machine = nodes.machines[1].node
    assert machine is not None
    for core in machine.relays.cores.values():
        assert not core.is_owner
    publish(nodes, 2)
    assert lone.delivered == [(0, 0)]
    nodes.links.heal()
    nodes.run(10 * SECOND)
    again = Consumer(nodes, index="again")
    while again.at != 1:
        again = Consumer(nodes, index=f"{again.index}x")
    again.feed()
    nodes.until(lambda: bool(again.delivered), 10, "n1 is fed again")
    assert tree(nodes)["n1"].reads_log


def test_a_copy_that_nobody_needs_leaves():
    nodes = replicated()
    consumers = fed_at_each(nodes)
    nodes.run(SECOND)
    assert tree(nodes).keys() == {"n0", "n1", "n2", "n3", "n4"}
    for consumer in consumers.values():
        consumer.home.done(frames.CloseHandle, handle=consumer.feed_handle)
    nodes.run(20 * SECOND)
    assert tree(nodes).keys() == {"n0"}
