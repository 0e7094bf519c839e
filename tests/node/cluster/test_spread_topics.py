"""Topics whose partitions are on several nodes: who serves what, who says what, and growth."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from hocket import frames
from hocket.core.placement.locator import KEEPERS
from hocket.core.placement.placement import key_of
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Located
from hocket.frames import packed, unpacked
from hocket.model import OWN_PRODUCERS, PartitionId, Start, TopicConfig, is_own_topic
from hocket.wire import batch as batches
from tests.support.node.cluster import SECOND, Asking, Nodes

FRESH = 4_000_000_000 * SECOND  # retention takes nothing away
RECORD = batches.encode([b"record"], timestamps=FRESH)
PRODUCER = b"p" * 16


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def spread(nodes: Nodes, *numbers: int, partitions: int = 6, **config: object) -> None:
    """The topic `orders`, on these nodes in turn."""
    nodes.put_on(*(numbers or (0, 1, 2)))
    Asking(nodes, 0).create("orders", partitions=partitions, **config)
    nodes.settle()


def hosted(nodes: Nodes, number: int) -> list[tuple[str, int]]:
    node = nodes.machines[number].node
    assert node is not None
    return sorted((each.core.topic, each.core.number) for each in node.node._wiring.partitions)


def batch(sequence: int, *, epoch: int = 0) -> bytes:
    return batches.encode(
        [b"record"], timestamps=FRESH, producer_id=PRODUCER, epoch=epoch, sequence=sequence
    )


# --- where partitions are ------------------------------------------------------------------------


def test_three_hundred_partitions_over_ten_nodes_are_balanced():
    nodes = Nodes(nodes=10, nodes_max=10, successors=4)
    for number in range(10):
        Asking(nodes, number).create(f"topic-{number}", partitions=30)
    nodes.settle()
    counts = [len(hosted(nodes, number)) for number in range(10)]
    assert sum(counts) == 300
    assert max(counts) <= 1.3 * 30, counts
    homes = {
        topic.name: Counter(topic.homes)
        for topic in nodes.root.node.node._wiring.catalogue.topics.values()
        if not is_own_topic(topic.name)
    }
    # Each topic alone is spread, too: its work is for all nodes.
    assert all(len(each) == 10 for each in homes.values()), homes


def test_a_node_that_is_dead_or_has_left_gets_nothing_while_others_are_there(nodes: Nodes):
    nodes.crash(1)
    root = nodes.root.node
    convicted = root.ring.core.pointers.deaths.convicted
    nodes.until(lambda: any(each.node == "n1" for each in convicted), 60, "n1 is given up")
    Asking(nodes, 2).create("orders", partitions=6)
    catalogue = root.node._wiring.catalogue
    assert Counter(catalogue.topic("orders").homes) == {"n0": 3, "n2": 3}
    nodes.start(1)
    nodes.settle()
    nodes.until(lambda: nodes.machines[1].is_member, 60, "n1 is back")
    Asking(nodes, 2).create("more", partitions=3)
    assert Counter(catalogue.topic("more").homes)["n1"] == 3, "it has the least"


def test_a_gateway_gets_nothing_and_a_larger_node_more(nodes: Nodes):
    capacities = {"n0": 1, "n1": 0, "n2": 3, "n3": 1}
    nodes.capacity_of = lambda machine: capacities[machine.name]
    for number in range(3):
        nodes.crash(number)
        nodes.start(number)
        nodes.settle()
        nodes.until(lambda number=number: nodes.machines[number].is_member, 60, "it is back")
    newcomer = nodes.add_machine()
    newcomer.start([nodes.root.address])
    nodes.until(lambda: newcomer.is_member, 60, "it has joined")
    nodes.settle()
    Asking(nodes, 1).create("orders", partitions=20)
    nodes.settle()
    assert [len(hosted(nodes, number)) for number in range(4)] == [4, 0, 12, 4]


def test_more_replicas_than_nodes_are_refused_with_both_numbers(nodes: Nodes):
    for number in range(3):
        client = Asking(nodes, number)
        refused = client.refused(
            frames.CreateTopic, topic="t", config=TopicConfig(replication=4, partitions=2)
        )
        assert refused.code == "notEnoughNodes"
        assert refused.message == "4 replicas need 4 nodes, and there are 3"
        assert client.topics() == []


def test_a_log_is_kept_and_opened_again_where_it_is(nodes: Nodes):
    spread(nodes, delayed=True)
    for number in range(6):
        client = Asking(nodes, number % 3)
        client.ask(frames.Publish, RECORD, topic="orders", partition=number)
    later = batches.encode([b"later"], timestamps=nodes.now_us + 3600 * SECOND)
    Asking(nodes, 1).ask(frames.Publish, later, topic="orders", partition=4, delayed=True)
    before = [hosted(nodes, number) for number in range(3)]
    assert before == [
        [("orders", each) for each in (number, number, number + 3, number + 3)]
        for number in range(3)
    ], "what waits for a partition is where the partition is"
    for number in range(3):
        nodes.crash(number)
        nodes.start(number)
        nodes.settle()
        assert hosted(nodes, number) == before[number]
    described = Asking(nodes, 2).describe("orders").topics[0].partitions
    assert [each.end for each in described] == [1] * 6
    assert [each.waiting for each in described] == [0, 0, 0, 0, 1, 0]


# --- who serves what -----------------------------------------------------------------------------

REQUESTS: list[tuple[type, dict[str, object]]] = [
    (frames.OpenProducer, {}),
    (frames.OpenSubscription, {"credit_bytes": 0}),
    (frames.OpenSubscription, {"credit_bytes": 0, "index": "i"}),
    (
        frames.OpenSubscription,
        {"credit_bytes": 0, "index": "s", "mode": "shared", "consumer": b"c" * 16, "prefetch": 1},
    ),
    (frames.FindOffsets, {"start": Start("latest")}),
    (frames.ListIndexes, {}),
    (frames.SeekIndex, {"index": "i", "start": Start("earliest")}),
    (frames.DeleteIndex, {"index": "i"}),
]


@pytest.mark.parametrize(("kind", "fields"), REQUESTS)
def test_what_is_here_is_served_and_of_the_rest_is_said_where_it_is(nodes: Nodes, kind, fields):
    spread(nodes)
    client = Asking(nodes, 1)
    client.ask(
        frames.OpenSubscription,
        topic="orders",
        index="i",
        partitions=packed([1, 4]),
        credit_bytes=0,
    )
    refused = client.refused(kind, topic="orders", **fields)
    assert (refused.code, refused.node) == ("severalNodes", "")
    refused = client.refused(kind, topic="orders", partitions=packed([1, 2]), **fields)
    assert refused.code == "severalNodes", "a part of it is here"
    refused = client.refused(kind, topic="orders", partitions=packed([5, 2]), **fields)
    assert (refused.code, refused.node, refused.address) == ("notHere", "n2", "n2:4150")
    refused = client.refused(kind, topic="orders", partitions=packed([1, 9]), **fields)
    assert refused.code == "unknownPartition"
    refused = client.refused(kind, topic="orders", partitions=packed([1, 1]), **fields)
    assert refused.code == "outOfRange"
    answer = client.ask(kind, topic="orders", partitions=packed([4, 1]), **fields)
    assert not isinstance(answer, frames.Failure), answer


def test_answers_are_in_the_order_of_the_question(nodes: Nodes):
    spread(nodes)
    client = Asking(nodes, 1)
    client.ask(frames.Publish, RECORD, topic="orders", partition=4)
    client.ask(
        frames.OpenSubscription,
        topic="orders",
        index="i",
        partitions=packed([1, 4]),
        credit_bytes=0,
    )
    named = packed([4, 1])
    found = client.ask(frames.FindOffsets, topic="orders", start=Start("latest"), partitions=named)
    assert unpacked(found.offsets) == [1, 0]
    sought = client.ask(
        frames.SeekIndex, topic="orders", index="i", start=Start("latest"), partitions=named
    )
    assert unpacked(sought.offsets) == [1, 0]
    (index,) = client.ask(frames.ListIndexes, topic="orders", partitions=named).indexes
    assert [(each.partition, each.position) for each in index.partitions] == [(4, 1), (1, 0)]
    opened = client.ask(frames.OpenProducer, topic="orders", producer_id=PRODUCER, partitions=named)
    client.begin(frames.Push, batch(0), handle=opened.handle, partition=4)
    nodes.run()
    assert [each.partition for each in client.told if isinstance(each, frames.PushAcked)] == [4]
    again = client.ask(frames.OpenProducer, topic="orders", producer_id=PRODUCER, partitions=named)
    assert (again.partitions, unpacked(again.sequences)) == (6, [1, 0])


def test_messages_are_deleted_in_the_partitions_that_are_named(nodes: Nodes):
    spread(nodes)
    client = Asking(nodes, 1)
    for partition in (1, 4, 4):
        client.ask(frames.Publish, RECORD, topic="orders", partition=partition)
    named = packed([4, 1])
    refused = client.refused(
        frames.DeleteMessages, topic="orders", offsets=packed([1]), partitions=named
    )
    assert (refused.code, refused.message) == (
        "outOfRange", "these are 2 partitions: name an offset for each",
    )  # fmt: skip
    client.done(frames.DeleteMessages, topic="orders", offsets=packed([2, 0]), partitions=named)
    described = client.describe("orders").topics[0].partitions
    assert [(each.start, each.end) for each in described][1::3] == [(0, 1), (2, 2)]
    for offsets, partitions, code in (
        (packed([0] * 6), b"", "severalNodes"),
        (packed([0]), packed([0]), "notHere"),
    ):
        refused = client.refused(
            frames.DeleteMessages, topic="orders", offsets=offsets, partitions=partitions
        )
        assert refused.code == code


def test_a_seek_makes_an_index_that_other_nodes_have_and_this_one_has_not(nodes: Nodes):
    spread(nodes)
    client = Asking(nodes, 1)
    client.ask(frames.Publish, RECORD, topic="orders", partition=4)
    seek = {
        "topic": "orders", "index": "i", "start": Start("latest"), "partitions": packed([1, 4]),
    }  # fmt: skip
    assert client.refused(frames.SeekIndex, **seek).code == "unknownIndex"
    sought = client.ask(frames.SeekIndex, **seek, elsewhere=True)
    assert unpacked(sought.offsets) == [0, 1]
    (index,) = client.ask(frames.ListIndexes, topic="orders", partitions=packed([1, 4])).indexes
    assert [each.position for each in index.partitions] == [0, 1]


def test_one_partition_alone_is_at_its_node(nodes: Nodes):
    spread(nodes)
    client = Asking(nodes, 1)
    for kind, fields in (
        (frames.Publish, {}),
        (frames.SeekIndex, {"index": "i", "start": Start("earliest")}),
        (frames.SkipUnreadable, {"index": "i", "offset": 0}),
        (
            frames.Revive,
            {"index": "i", "offsets": packed([0]), "dead_partition": 0, "letters": packed([0])},
        ),
    ):
        payload = RECORD if kind is frames.Publish else b""
        refused = client.refused(kind, payload, topic="orders", partition=2, **fields)
        assert (refused.code, refused.node) == ("notHere", "n2")


def test_a_message_whose_partition_the_node_chooses_is_sent_on_to_that_partitions_node(nodes):
    spread(nodes)
    clients = {f"n{number}": Asking(nodes, number) for number in range(3)}
    seen = set()
    for number in range(12):
        keyed = batches.encode([b"v"], timestamps=FRESH, keys=[b"k%d" % number])
        answer = clients["n0"].ask(frames.Publish, keyed, topic="orders", partition=-1)
        if isinstance(answer, frames.Failure):
            assert answer.code == "notHere"
            seen.add(answer.node)
            answer = clients[answer.node].ask(frames.Publish, keyed, topic="orders", partition=-1)
        assert isinstance(answer, frames.Published)
    assert seen == {"n1", "n2"}


def test_any_node_says_who_leads_what(nodes: Nodes):
    spread(nodes, 2, 1, partitions=5)
    for number in range(3):
        answer = Asking(nodes, number).ask(frames.FindLeaders, topic="orders")
        assert [(each.node, each.address) for each in answer.nodes] == [
            ("n2", "n2:4150"), ("n1", "n1:4150"),
        ]  # fmt: skip
        assert unpacked(answer.leaders) == [0, 1, 0, 1, 0]
    assert Asking(nodes, 1).refused(frames.FindLeaders, topic="none").code == "unknownTopic"


def test_every_partition_is_told_to_the_locator_and_found_by_its_key(nodes: Nodes):
    spread(nodes)
    nodes.run(3 * SECOND)
    groups = nodes.root.node.node._wiring.catalogue.topic("orders").groups
    found: dict[tuple[int, int], str] = {}
    for number, machine in enumerate(nodes.machines):
        for partition, group in enumerate(groups):
            partition_id = PartitionId("orders", partition, group)

            def told(leader: Contact | None, number: int = number, partition: int = partition):
                assert leader is not None
                found[number, partition] = leader.node

            def located(at: Located, partition_id=partition_id, machine=machine, told=told):
                machine.node.relays.leaders.ask(partition_id, at.owners[:KEEPERS], told)

            machine.turn(partial(machine.node.ring.find, key_of(partition_id), located))
    nodes.run()
    assert found == {
        (number, partition): f"n{partition % 3}" for number in range(3) for partition in range(6)
    }


# --- growth --------------------------------------------------------------------------------------


def grow(nodes: Nodes, partitions: int, *numbers: int) -> None:
    nodes.put_on(*numbers)
    Asking(nodes, 2).done(
        frames.AlterTopic, topic="orders", config=TopicConfig(partitions=partitions)
    )
    nodes.settle()
    nodes.run(SECOND // 10)


def changed(client: Asking) -> list[tuple[int, int, bool]]:
    return [
        (each.handle, each.partitions, each.part)
        for each in client.told
        if isinstance(each, frames.PartitionsChanged)
    ]


@pytest.mark.parametrize("mode", ["own", "shared"])
def test_new_partitions_belong_to_a_subscription_of_all_if_they_are_here(nodes: Nodes, mode):
    spread(nodes, 1, partitions=1)
    client = Asking(nodes, 1)
    shared = {"mode": mode, "consumer": b"c" * 16, "prefetch": 10} if mode == "shared" else {}
    opened = client.ask(
        frames.OpenSubscription, topic="orders", index="i", credit_bytes=10_000, **shared
    )
    grow(nodes, 2, 1)
    assert changed(client) == [(opened.handle, 2, False)]
    client.ask(frames.Publish, RECORD, topic="orders", partition=1)
    nodes.run()
    kind = frames.Deliver if mode == "own" else frames.Lease
    assert [each.partition for each in client.told if isinstance(each, kind)] == [1]
    grow(nodes, 4, 0, 1)
    assert changed(client)[1:] == [(opened.handle, 4, True)]
    client.told.clear()
    client.ask(frames.Publish, RECORD, topic="orders", partition=3)
    client.ask(frames.Publish, RECORD, topic="orders", partition=0)
    nodes.run()
    assert [each.partition for each in client.told if isinstance(each, kind)] == [0], (
        "what came with partitions of other nodes is opened by the client"
    )
    grow(nodes, 5, 1)
    assert changed(client) == [(opened.handle, 5, True)], "it stays a part"
    more = client.ask(
        frames.OpenSubscription, topic="orders", index="i", credit_bytes=10_000, part=True,
        partitions=packed([3, 4]), **shared,
    )  # fmt: skip
    nodes.run()
    found = [(each.handle, each.partition) for each in client.told if isinstance(each, kind)]
    assert found[1:] == [(more.handle, 3)]


def test_growth_is_told_to_whoever_has_the_topic_open_on_every_node(nodes: Nodes):
    spread(nodes, 0, 1, partitions=4)
    clients = [Asking(nodes, number) for number in range(2)]
    handles = []
    for number, client in enumerate(clients):
        named = packed([number, number + 2])
        producer = client.ask(frames.OpenProducer, topic="orders", partitions=named)
        part = client.ask(
            frames.OpenSubscription, topic="orders", credit_bytes=0, partitions=named, part=True
        )
        client.ask(frames.OpenSubscription, topic="orders", credit_bytes=0, partitions=named)
        handles.append((producer.handle, part.handle))
    grow(nodes, 5, 2)
    for client, (producer, part) in zip(clients, handles, strict=True):
        assert changed(client) == [(part, 4, True), (producer, 5, False), (part, 5, True)], (
            "a part is told how many there are when it is opened, too"
        )
    assert hosted(nodes, 2) == [("orders", 4)]


def test_a_part_names_its_partitions(nodes: Nodes):
    spread(nodes, 1)
    refused = Asking(nodes, 1).refused(
        frames.OpenSubscription, topic="orders", credit_bytes=0, part=True
    )
    assert (refused.code, "names its partitions" in refused.message) == ("outOfRange", True)


def test_a_batch_for_a_partition_of_another_node_is_refused_by_name(nodes: Nodes):
    spread(nodes, 1, partitions=1)
    client = Asking(nodes, 1)
    opened = client.ask(frames.OpenProducer, topic="orders", producer_id=PRODUCER)
    grow(nodes, 2, 2)
    client.begin(frames.Push, batch(0), handle=opened.handle, partition=1)
    client.begin(frames.Push, batch(1), handle=opened.handle, partition=1)
    client.begin(frames.Push, batch(0), handle=opened.handle, partition=0)
    nodes.run()
    refused = [each for each in client.told if isinstance(each, frames.PushRefused)]
    assert [(each.partition, each.sequence, each.code) for each in refused] == [
        (1, 0, "notHere"), (1, 1, "notHere"),
    ]  # fmt: skip
    assert "on node n2, at n2:4150" in refused[0].message
    acked = [each for each in client.told if isinstance(each, frames.PushAcked)]
    assert [(each.partition, each.sequence) for each in acked] == [(0, 0)]


def test_a_producer_id_belongs_to_its_user_in_the_partitions_that_are_here(nodes: Nodes):
    admin = Asking(nodes, 0)
    tokens = [
        admin.token(frames.CreateUser, name=name, roles=("admin",)) for name in ("ann", "bob")
    ]
    spread(nodes)
    ann, bob = (Asking(nodes, 1, token) for token in tokens)
    opened = ann.ask(
        frames.OpenProducer, topic="orders", producer_id=PRODUCER, partitions=packed([1])
    )
    ann.begin(frames.Push, batch(0), handle=opened.handle, partition=1)
    nodes.run()
    refused = bob.refused(
        frames.OpenProducer, topic="orders", producer_id=PRODUCER, partitions=packed([4])
    )
    assert refused.code == "fenced"
    assert not PRODUCER.startswith(OWN_PRODUCERS)


def test_a_topic_is_deleted_on_all_its_nodes(nodes: Nodes):
    spread(nodes, delayed=True)
    clients = [Asking(nodes, number) for number in range(3)]
    for number, client in enumerate(clients):
        client.ask(frames.OpenProducer, topic="orders", partitions=packed([number]))
    clients[2].done(frames.DeleteTopic, topic="orders")
    nodes.settle()
    nodes.run()
    for number, client in enumerate(clients):
        assert hosted(nodes, number) == []
        assert [each.code for each in client.told if isinstance(each, frames.HandleEnded)] == [
            "unknownTopic"
        ]
