"""A topic that is deleted and made anew under its old name is another one, on every node."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hocket import frames
from hocket.client_core.calls import topics
from hocket.core.relay.messages import Piece
from hocket.model import PartitionId, TopicConfig
from hocket.sim.client import Client
from hocket.sim.cluster import Cluster
from hocket.sim.producers import Founder, Ledger, Producer
from hocket.sim.swarm import options_of
from hocket.sim.workload import Consumer
from hocket.wire import batch as batches
from tests.support.node.cluster import Asking, Nodes

SECOND = 1_000_000
TOPIC = "topic-0"
PARTITION_ID = PartitionId(TOPIC, 0)


def test_who_reads_the_old_topic_is_given_nothing_of_the_new_one() -> None:
    quiet = replace(
        options_of(0), temper="still", faults=(), loss=0.0, duplication=0.0, reordering=0.0,
        tails=0.0, skew_us_max=0, drift_ppm_max=0, nodes=4, nodes_max=4, successors=2, topics=1,
        partitions=1, producers=1, batches=10, record_bytes_max=8, consumers=4, slow_consumers=0.0,
        credit_bytes=20_000, safety_us=10 * SECOND, subscribers=0, workers=0,
    )  # fmt: skip
    cluster = Cluster(1, quiet)
    cluster.begin()
    run = cluster.scheduler.run_until_true
    old = cluster.workload
    assert run(
        lambda: len(old.consumers) == 4 and old.producers[0].made[0] and not old.unfinished(),
        within_us=20 * SECOND,
    )
    old.stop()
    (owner,) = old.owners[PARTITION_ID]
    count = len(old.logs[PARTITION_ID])

    answers: list[object] = []
    deleter = Client(cluster, owner, "deleter")
    deleter.ask(topics.delete_topic(TOPIC, missing_ok=False), answers.append)
    assert run(lambda: answers == [None], within_us=5 * SECOND)
    founder = Founder(cluster, owner, TOPIC, 1)
    assert run(lambda: founder.created, within_us=5 * SECOND)
    assert owner.node is not None
    [made_anew] = [each for each in owner.node.partition_ids() if each.topic == TOPIC]
    assert made_anew._replace(group=0) == PARTITION_ID

    ledger = Ledger()
    ledger.begin(PARTITION_ID)
    logs = ledger.logs
    producers = [Producer(cluster, owner, TOPIC, number, ledger) for number in (7, 8)]
    reader = Consumer(
        cluster, 99, PARTITION_ID, slow=False,
        delivered=lambda _consumer, _end: None, log_id=lambda _partition_id: made_anew,
    )  # fmt: skip
    assert run(
        lambda: (
            all(each.made[0] == 10 and each.finished for each in producers)
            and reader.next_offset == len(logs[PARTITION_ID])
        ),
        within_us=20 * SECOND,
    )
    assert reader.next_offset > count  # the new log has what the old readers would take for theirs
    assert dict(reader.diary) == logs[PARTITION_ID]
    for consumer in old.consumers:
        assert consumer.next_offset == count
        assert dict(consumer.diary) == old.logs[PARTITION_ID]


def test_so_it_is_with_a_spread_topic_whose_partitions_are_on_other_nodes_then() -> None:
    nodes = Nodes()
    got: dict[tuple[str, int, int], list[bytes]] = {}

    def publish(partition: int, home: int, value: bytes) -> None:
        batch = batches.encode([value], timestamps=4_000_000_000 * SECOND)
        answer = Asking(nodes, home).ask(frames.Publish, batch, topic=TOPIC, partition=partition)
        assert isinstance(answer, frames.Published), answer

    def consume_everywhere(which: str) -> None:
        catalogue = nodes.root.node.node._wiring.catalogue
        for number, machine in enumerate(nodes.machines):
            for partition, group in enumerate(catalogue.topic(TOPIC).groups):
                values = got.setdefault((which, number, partition), [])
                partition_id = PartitionId(TOPIC, partition, group)
                deliver = partial(_take, values)
                consume = partial(machine.node.relays.consume, partition_id, 0, 1 << 20, deliver)
                machine.turn(consume)

    def has(which: str, count: int) -> bool:
        return all(len(values) == count for key, values in got.items() if key[0] == which)

    nodes.put_on(0, 1, 2)
    Asking(nodes, 0).create(TOPIC, partitions=3)
    nodes.settle()
    consume_everywhere("old")
    for partition in range(3):
        publish(partition, partition, b"old %d" % partition)
    nodes.until(lambda: has("old", 1), 30, "all have the old records")

    Asking(nodes, 1).done(frames.DeleteTopic, topic=TOPIC)
    nodes.put_on(1, 2, 0)
    Asking(nodes, 2).create(TOPIC, partitions=3)
    nodes.settle()
    consume_everywhere("new")
    for partition in range(3):
        for number in range(2):  # more than the old one had: its readers would want the second
            publish(partition, (partition + 1) % 3, b"new %d/%d" % (partition, number))
    nodes.until(lambda: has("new", 2), 30, "all have the new records")
    nodes.run(5 * SECOND)
    assert {key: b" ".join(values) for key, values in got.items()} == {
        (which, number, partition): (
            b"old %d" % partition
            if which == "old"
            else b"new %d/0 new %d/1" % (partition, partition)
        )
        for which in ("old", "new")
        for number in range(3)
        for partition in range(3)
    }


def _take(values: list[bytes], pieces: tuple[Piece, ...], _end: int) -> None:
    for piece in pieces:
        values += map(bytes, batches.parse(memoryview(piece.data), 0).values(0))


def test_it_is_made_when_the_nodes_that_serve_it_have_heard_of_it() -> None:
    """Else one of them might serve the old topic still, and take what is for the new one."""
    nodes = Nodes()
    nodes.put_on(2)
    admin = Asking(nodes, 0)
    admin.create(TOPIC)
    nodes.settle()
    for kind, fields in ((frames.DeleteTopic, {}), (frames.CreateTopic, {"config": TopicConfig()})):
        request = admin.begin(kind, topic=TOPIC, **fields)
        while not admin.is_answered(request):
            nodes.run(10)
        assert isinstance(admin.answer_to(request), frames.Done)
    here, there = (nodes.machines[number].node.node.topics for number in (0, 2))
    assert there[TOPIC].groups == here[TOPIC].groups


def test_a_node_that_does_not_answer_holds_it_up_for_a_second() -> None:
    nodes = Nodes()
    nodes.put_on(2)
    admin = Asking(nodes, 0)
    nodes.crash(2)
    began = nodes.now_us
    admin.create(TOPIC)
    assert nodes.now_us - began < 2 * SECOND
