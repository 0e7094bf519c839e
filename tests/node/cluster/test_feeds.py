"""Subscriptions whose bytes another node hands on: who is sent where, and what ends a feed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hocket import frames
from hocket.frames import packed, unpacked
from hocket.model import Grant
from hocket.node.running.crowds import AVOID_US
from hocket.wire import batch as batches
from tests.support.node.cluster import SECOND, Asking, Nodes

FRESH = 4_000_000_000 * SECOND  # retention takes nothing away
RECORD = batches.encode([b"record"], timestamps=FRESH)


def popular(most: int, partitions: int = 1, count: int = 3) -> Nodes:
    """The topic `orders` is at the first node; more than `most` consumers are spread."""
    nodes = Nodes(nodes=count, nodes_max=count, popular=most)
    nodes.put_on(0)
    Asking(nodes, 0).create("orders", partitions=partitions)
    nodes.settle()
    return nodes


def publish(nodes: Nodes, count: int, partition: int = 0, payload: bytes = RECORD) -> None:
    client = Asking(nodes, 0)
    for _ in range(count):
        answer = client.ask(frames.Publish, payload, topic="orders", partition=partition)
        assert isinstance(answer, frames.Published), answer


class Consumer:
    """Subscribes at the leader, and takes the bytes where the leader says."""

    def __init__(self, nodes: Nodes, token: str | None = None, **options: object) -> None:
        self.nodes, self.token, self.index = nodes, token, options.get("index", "")
        self.leader = Asking(nodes, 0, token)
        fields = {"fed": True, "credit_bytes": 1 << 20, **options}
        opened = self.leader.ask(frames.OpenSubscription, topic="orders", **fields)
        assert isinstance(opened, frames.SubscriptionOpened), opened
        self.opened = opened
        self.at: int | None = None  # the number of the feeder
        if opened.feeder:
            (feeder,) = opened.feeder
            self.at = int(feeder.node[1:])
            assert feeder.address == nodes.machines[self.at].address

    @property
    def places(self) -> bytes:
        numbers, groups = unpacked(self.opened.positions), unpacked(self.opened.groups)
        pairs = zip(numbers[::2], groups, numbers[1::2], strict=True)
        return packed(n for place in pairs for n in place)

    def feed(self, credit_bytes: int = 1 << 20, **fields: object) -> frames.Frame:
        assert self.at is not None
        self.home = Asking(self.nodes, self.at, self.token)
        fields = {"topic": "orders", "places": self.places, "credit_bytes": credit_bytes, **fields}
        answer = self.home.ask(frames.OpenFeed, **fields)
        if isinstance(answer, frames.SubscriptionOpened):
            self.feed_handle = answer.handle
        return answer

    @property
    def delivered(self) -> list[tuple[int, int]]:
        """Where each Deliver begins, at the leader or at home: partition and offset."""
        told = self.leader.told if self.at is None else self.home.told
        return [(e.partition, e.offset) for e in told if isinstance(e, frames.Deliver)]

    def ends(self, asking: Asking) -> list[str]:
        return [each.code for each in asking.told if isinstance(each, frames.HandleEnded)]


def a_fed_one(nodes: Nodes, **options: object) -> Consumer:
    """The first newcomer whose home is not the leader."""
    for number in range(20):
        consumer = Consumer(nodes, **{"index": f"own-{number}", **options})
        if consumer.at is not None:
            return consumer
    raise AssertionError("nobody is sent home")


def test_few_are_served_by_the_leader_and_one_more_at_home():
    nodes = popular(2)
    first, second = Consumer(nodes, index="a"), Consumer(nodes)
    assert (first.at, second.at) == (None, None)
    third = a_fed_one(nodes)
    assert isinstance(third.feed(), frames.SubscriptionOpened)
    publish(nodes, 3)
    nodes.run(2 * SECOND)
    expected = [(0, 0), (0, 1), (0, 2)]
    assert first.delivered == second.delivered == third.delivered == expected
    assert not any(isinstance(each, frames.Deliver) for each in third.leader.told)
    third.leader.done(frames.Commit, handle=third.opened.handle, positions=packed([0, 3]))


def test_who_does_not_know_of_feeds_is_served_by_the_leader():
    nodes = popular(0)
    old = Consumer(nodes, index="old", fed=False)
    publish(nodes, 2)
    nodes.run(5 * SECOND)
    assert (old.at, old.delivered, old.ends(old.leader)) == (None, [(0, 0), (0, 1)], [])


def test_who_was_not_fed_is_served_by_the_leader_and_its_feeder_is_avoided():
    nodes = popular(0)
    consumer = a_fed_one(nodes)
    feeder = f"n{consumer.at}"
    again = Consumer(nodes, index="again", direct=True, unfed=feeder)
    assert again.at is None
    homes = {Consumer(nodes, index=f"late-{number}").at for number in range(8)}
    assert consumer.at not in homes
    assert len(homes) == 2  # the leader, and the third one
    nodes.run(AVOID_US)
    homes = {Consumer(nodes, index=f"later-{number}").at for number in range(12)}
    assert consumer.at in homes
    Consumer(nodes, unfed="nobody")  # it is not there to be avoided


def test_those_who_came_first_are_told_to_open_anew():
    nodes = popular(5)
    crowd = [Consumer(nodes, index=f"own-{number}") for number in range(6)]
    nodes.run(2 * SECOND)
    ended = [each for each in crowd if each.ends(each.leader)]
    assert len(ended) == 3  # five at the leader, and two is the mean
    assert all(each.ends(each.leader) == ["notHere"] for each in ended)


def test_credit_is_one_for_all_partitions_of_a_feed():
    nodes = popular(0, partitions=3)
    large = batches.encode([b"x" * 400], timestamps=FRESH)
    for partition in range(3):
        publish(nodes, 8, partition, large)
    consumer = a_fed_one(nodes)
    opened = consumer.feed(credit_bytes=3 * len(large))
    assert isinstance(opened, frames.SubscriptionOpened)
    nodes.run(3 * SECOND)
    assert sorted(partition for partition, _ in consumer.delivered) == [0, 1, 2]
    for taken in range(3, 24):  # who never gives credit back gets nothing more
        assert len(consumer.delivered) == taken
        consumer.home.begin(frames.Credit, handle=opened.handle, bytes=len(large))
        nodes.run(SECOND)
    for partition in range(3):
        offsets = [offset for number, offset in consumer.delivered if number == partition]
        assert offsets == list(range(8))


def test_a_topic_that_is_deleted_ends_its_feeds():
    nodes = popular(0)
    consumer = a_fed_one(nodes)
    consumer.feed()
    Asking(nodes, 0).done(frames.DeleteTopic, topic="orders")
    nodes.run(2 * SECOND)
    assert consumer.ends(consumer.leader) == consumer.ends(consumer.home) == ["unknownTopic"]
    Asking(nodes, 0).create("orders")
    nodes.settle()
    refused = consumer.feed()  # of the old one, by its group
    assert isinstance(refused, frames.Failure)
    assert (refused.code, "made anew" in refused.message) == ("unknownPartition", True)


def test_a_topic_that_grows_has_its_consumers_open_anew():
    nodes = popular(0)
    consumer = a_fed_one(nodes)
    consumer.feed()
    config = Asking(nodes, 0).describe("orders").topics[0].config
    config = replace(config, partitions=2)
    Asking(nodes, 0).done(frames.AlterTopic, topic="orders", config=config)
    nodes.run(SECOND)
    assert consumer.ends(consumer.leader) == ["notHere"]


def test_a_revoke_reaches_feeds():
    nodes = popular(0)
    first = Asking(nodes, 0)
    admin = first.token(frames.CreateUser, name="root", roles=("admin",))
    guard = Asking(nodes, 0, admin)
    guard.done(frames.CreateRole, name="reader")
    guard.done(frames.AddGrant, role="reader", grant=Grant("subscribe", "orders"))
    token = guard.token(frames.CreateUser, name="ann", roles=("reader",))
    stranger = guard.token(frames.CreateUser, name="bob", roles=())
    nodes.settle()
    consumer = a_fed_one(nodes, token=token)
    assert isinstance(consumer.feed(), frames.SubscriptionOpened)
    other = Asking(nodes, consumer.at or 0, stranger)
    refused = other.refused(frames.OpenFeed, topic="orders", places=consumer.places)
    assert refused.code == "notAllowed"
    guard.done(frames.RemoveGrant, role="reader", grant=Grant("subscribe", "orders"))
    nodes.run(2 * SECOND)
    assert consumer.ends(consumer.leader) == consumer.ends(consumer.home) == ["notAllowed"]


def test_a_feed_without_a_way_to_the_leader_is_ended():
    nodes = popular(0)
    consumer = a_fed_one(nodes)
    consumer.feed()
    nodes.run(2 * SECOND)
    nodes.crash(0)
    nodes.until(lambda: bool(consumer.ends(consumer.home)), 15, "the feed is ended")
    assert consumer.ends(consumer.home) == ["busy"]


def test_the_tree_is_told_and_who_is_silent():
    nodes = popular(0)
    consumer = a_fed_one(nodes)
    consumer.feed()
    publish(nodes, 3)
    nodes.run(2 * SECOND)
    tree = Asking(nodes, 2).ask(frames.DescribeTree, topic="orders")
    assert isinstance(tree, frames.TreeIs)
    assert tree.silent == ()
    by_node = {each.node: each for each in tree.nodes}
    root, home = by_node["n0"], by_node[f"n{consumer.at}"]
    assert (root.is_root, root.parent, root.children) == (True, "", (home.node,))
    assert (home.is_root, home.parent, home.consumers) == (False, "n0", 1)
    assert root.child_bytes[0] == home.bytes_out > 0
    assert root.bytes_out >= root.child_bytes[0]
    nodes.crash(1)
    tree = Asking(nodes, 2).ask(frames.DescribeTree, topic="orders")
    assert isinstance(tree, frames.TreeIs)
    assert tree.silent == ("n1",)


@pytest.mark.parametrize("places", [b"1", packed([0, 1])])
def test_places_that_make_no_sense_cost_the_connection(places):
    nodes = popular(0)
    client = Asking(nodes, 1)
    assert client.refused(frames.OpenFeed, topic="orders", places=places).code == "protocol"
    nodes.run()
    assert client.is_lost


# --- consumers that do not keep to it ------------------------------------------------------------


def two_at_one_home(nodes: Nodes) -> tuple[Consumer, Consumer]:
    """Two that the leader has sent to the same node."""
    by_home: dict[int, Consumer] = {}
    for number in range(40):
        consumer = Consumer(nodes, index=f"of-two-{number}")
        if consumer.at is not None:
            if consumer.at in by_home:
                return by_home[consumer.at], consumer
            by_home[consumer.at] = consumer
    raise AssertionError("no two have the same home")


def test_who_never_reads_holds_up_nobody_and_fills_no_memory():
    nodes = popular(0)
    large = batches.encode([b"x" * 4000], timestamps=FRESH)
    deaf, victim = two_at_one_home(nodes)
    assert isinstance(deaf.feed(credit_bytes=len(large)), frames.SubscriptionOpened)
    opened = victim.feed(credit_bytes=4 * len(large))
    assert isinstance(opened, frames.SubscriptionOpened)
    machine = nodes.machines[deaf.at or 0]
    assert machine.node is not None
    relays = machine.node.relays
    relays._settings.node_bytes = 8 * len(large)
    for taken in range(1, 41):
        publish(nodes, 1, payload=large)
        nodes.until(lambda: len(victim.delivered) == taken, 5, "the victim is given it")  # noqa: B023
        victim.home.begin(frames.Credit, handle=opened.handle, bytes=len(large))
        assert relays.held_bytes <= relays._settings.node_bytes
    assert victim.delivered == [(0, offset) for offset in range(40)]
    assert deaf.delivered == [(0, 0)]


@pytest.mark.parametrize("offset", [1_000, (1 << 62)])
def test_who_says_an_offset_that_is_not_there_yet_waits_and_holds_up_nobody(offset):
    nodes = popular(0)
    publish(nodes, 3)
    liar, victim = two_at_one_home(nodes)
    group = unpacked(liar.opened.groups)[0]
    assert isinstance(liar.feed(places=packed([0, group, offset])), frames.SubscriptionOpened)
    nodes.run(2 * SECOND)
    victim.feed()
    publish(nodes, 3)
    nodes.until(lambda: victim.delivered[-1:] == [(0, 5)], 5, "the victim is given all")
    publish(nodes, 1)
    nodes.until(lambda: victim.delivered[-1:] == [(0, 6)], 5, "the victim is given what is new")
    assert victim.delivered[0] == (0, 0)
    assert victim.delivered == sorted(set(victim.delivered))
    assert liar.delivered == []


def test_who_says_an_old_offset_is_given_what_is_there_and_its_index_stays():
    nodes = popular(0)
    publish(nodes, 4)
    liar, victim = two_at_one_home(nodes)
    liar.leader.done(frames.Commit, handle=liar.opened.handle, positions=packed([0, 3]))
    group = unpacked(liar.opened.groups)[0]
    liar.feed(places=packed([0, group, 0]))
    victim.feed()
    nodes.run(SECOND)
    publish(nodes, 1)
    for each in (liar, victim):
        nodes.until(lambda: each.delivered[-1:] == [(0, 4)], 5, "both have all")  # noqa: B023
        assert each.delivered[0] == (0, 0)
    refused = liar.leader.refused(
        frames.Commit, handle=liar.opened.handle, positions=packed([0, 1_000])
    )
    assert refused.code == "outOfRange"
    indexes = Asking(nodes, 0).ask(frames.ListIndexes, topic="orders", index=liar.index)
    assert isinstance(indexes, frames.Indexes)
    assert indexes.indexes[0].partitions[0].position == 3


def test_a_feed_of_what_is_not_there_is_refused():
    nodes = popular(0)
    client = Asking(nodes, 1)
    refused = client.refused(frames.OpenFeed, topic="nothing", places=packed([0, 1, 0]))
    assert refused.code == "unknownTopic"
    refused = client.refused(frames.OpenFeed, topic="orders", places=packed([7, 1, 0]))
    assert refused.code == "unknownPartition"
    assert not client.is_lost
