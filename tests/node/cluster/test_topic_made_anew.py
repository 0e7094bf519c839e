"""A topic that is deleted and made anew under its old name is another one, on every node."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hocket import frames
from hocket.model import PartitionId
from hocket.sim.client import Client
from hocket.sim.cluster import Cluster
from hocket.sim.swarm import options_of
from hocket.sim.workload import Consumer, Founder, Producer

SECOND = 1_000_000
TOPIC = "topic-0"
PARTITION_ID = PartitionId(TOPIC, 0)


class Deleter(Client):
    """Deletes the topic on the node that has it."""

    answer: frames.Frame | None = None

    def begin(self) -> None:
        self.ask(partial(frames.DeleteTopic, topic=TOPIC), self._answered)

    def _answered(self, answer: frames.Frame) -> None:
        self.answer = answer


def test_who_reads_the_old_topic_is_given_nothing_of_the_new_one() -> None:
    quiet = replace(
        options_of(0), temper="still", faults=(), loss=0.0, duplication=0.0, reordering=0.0,
        tails=0.0, skew_us_max=0, drift_ppm_max=0, nodes=4, nodes_max=4, successors=2, topics=1,
        partitions=1, producers=1, batches=10, record_bytes_max=8, consumers=4, slow_consumers=0.0,
        credit_bytes=20_000, safety_us=10 * SECOND,
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
    owner = old.owners[PARTITION_ID]
    count = len(old.logs[PARTITION_ID])

    deleter = Deleter(cluster, owner, "deleter")
    assert run(lambda: deleter.answer is not None, within_us=5 * SECOND)
    assert isinstance(deleter.answer, frames.Done)
    founder = Founder(cluster, owner, TOPIC)
    assert run(lambda: founder.created, within_us=5 * SECOND)
    assert owner.node is not None
    [made_anew] = [each for each in owner.node.partition_ids() if each.topic == TOPIC]
    assert made_anew._replace(group=0) == PARTITION_ID

    logs: dict[PartitionId, dict[int, bytes]] = {PARTITION_ID: {}}
    producers = [Producer(cluster, owner, TOPIC, number, logs) for number in (7, 8)]
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
