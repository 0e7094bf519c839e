"""What happens at once: topics deleted and grown under work, seeks against acks, a full disk."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

import hocket
from hocket import errors, frames
from hocket.client.faces.blocking.subscription import Subscription
from hocket.frames import packed, unpacked
from hocket.model import Start, TopicConfig
from hocket.wire import batch as batches
from tests.node.test_simulated import tiny
from tests.support.node.simulated import SECOND, Client, World
from tests.support.threads import Running


class Asker(Client):
    """Asks by hand, and keeps what it is told."""

    def __init__(self, world: World) -> None:
        self.heard: list[frames.Frame] = []
        self.greeted = False
        super().__init__(world)
        world.until(lambda: self.greeted, 5, "a welcome")

    def begin(self) -> None:
        self.greeted = True

    def received(self, frame: frames.Frame, payload: memoryview) -> None:
        if isinstance(frame, frames.Ping):
            self.send(frames.Done(frame.request))
        elif frame.request:
            self._answers.pop(frame.request, self.heard.append)(frame)
        else:
            self.heard.append(frame)

    def answer(self, kind: type, payload: bytes = b"", **fields: object) -> frames.Frame:
        answers: list[frames.Frame] = []
        self._last_request += 1
        self._answers[self._last_request] = answers.append
        self.send(kind(self._last_request, **fields), payload)
        self.world.until(lambda: bool(answers), 10, f"an answer to {kind.__name__}")
        return answers[0]


def batch(world: World, *values: bytes) -> bytes:
    return batches.encode(values, timestamps=world.clock.now_us())


@pytest.fixture
def world() -> World:
    return World("hard times", settings=tiny)


def test_requests_about_a_topic_that_is_deleted_meanwhile_are_all_answered(world):
    """In one turn, and in every order with what the disk brings."""
    for round_number in range(30):
        admin, consumer = Asker(world), Asker(world)
        topic = f"t{round_number}"
        config = TopicConfig(partitions=3, memory_retention_us=0)
        assert isinstance(admin.answer(frames.CreateTopic, topic=topic, config=config), frames.Done)
        admin.answer(frames.Publish, batch(world, b"x"), topic=topic, partition=0)
        opened = consumer.answer(frames.OpenSubscription, topic=topic, index="i", credit_bytes=1000)
        assert isinstance(opened, frames.SubscriptionOpened)
        world.run(2 * SECOND)  # so that times must be looked up on disk
        asked = [
            frames.SeekIndex(900, topic, "i", Start("time", 1)),
            frames.Commit(901, opened.handle, packed([0, 1])),
            frames.OpenSubscription(902, topic, "j", start=Start("time", 1)),
            frames.DeleteIndex(903, topic, "i"),
        ]
        world.random.shuffle(asked)
        for frame in asked:
            consumer.send(frame)
        world.run(world.random.randrange(3000))
        assert isinstance(admin.answer(frames.DeleteTopic, topic=topic), frames.Done)
        world.run(2 * SECOND)
        answered = {frame.request for frame in consumer.heard if frame.request}
        assert answered == {900, 901, 902, 903}, f"unanswered in round {round_number}"


def test_a_subscription_that_opens_while_its_topic_grows_gets_the_new_partitions(world):
    admin, consumer = Asker(world), Asker(world)
    admin.answer(frames.CreateTopic, topic="t", config=TopicConfig(partitions=1))
    node = world.node
    opening = frames.OpenSubscription(900, "t", "i", credit_bytes=10_000)
    node.received(consumer.connection, opening, memoryview(b""))
    growing = frames.AlterTopic(901, "t", TopicConfig(partitions=2))
    node.received(admin.connection, growing, memoryview(b""))
    node.end_turn()
    world.run(SECOND)
    admin.answer(frames.Publish, batch(world, b"new"), topic="t", partition=1)
    world.run(SECOND)
    assert 1 in [each.partition for each in consumer.heard if isinstance(each, frames.Deliver)]


def test_acks_on_their_way_do_not_undo_a_seek(world):
    admin, consumer = Asker(world), Asker(world)
    admin.answer(frames.CreateTopic, topic="t", config=TopicConfig())
    admin.answer(frames.Publish, batch(world, *[b"x"] * 10), topic="t", partition=0)
    opened = consumer.answer(frames.OpenSubscription, topic="t", index="i")
    assert isinstance(opened, frames.SubscriptionOpened)
    sought: list[frames.Frame] = []
    admin._answers[900] = sought.append
    admin.send(frames.SeekIndex(900, "t", "i", Start("earliest")))
    while not sought:  # the consumer goes on acknowledging what it had before it heard of the seek
        consumer.send(frames.Commit(0, opened.handle, packed([0, 9])))
        world.run(100)
    consumer.send(frames.Commit(0, opened.handle, packed([0, 9])))
    while not any(isinstance(each, frames.Moved) for each in consumer.heard):
        world.run(100)
    listed = admin.answer(frames.ListIndexes, topic="t")
    assert isinstance(listed, frames.Indexes)
    assert listed.indexes[0].partitions[0].position == 0


def test_a_full_disk_refuses_writers_and_serves_readers_and_it_ends_by_itself(world):
    admin = Asker(world)
    admin.answer(frames.CreateTopic, topic="t", config=TopicConfig(segment_bytes_max=4096))
    admin.answer(frames.Publish, batch(world, b"before"), topic="t", partition=0)
    world.run(3 * SECOND)
    world.disk.capacity_bytes = sum(world.disk.files().values())
    refused: list[frames.Frame] = []
    for _ in range(60):
        answer = admin.answer(frames.Publish, batch(world, bytes(1000)), topic="t", partition=0)
        if isinstance(answer, frames.Failure):
            refused.append(answer)
    assert {answer.code for answer in refused} == {"storageFull"}
    reader = Asker(world)  # is greeted, and reads
    reader.answer(frames.OpenSubscription, topic="t", credit_bytes=1000)
    world.run(SECOND)
    assert any(isinstance(each, frames.Deliver) for each in reader.heard)
    world.disk.capacity_bytes = None
    world.run(5 * SECOND)
    again = admin.answer(frames.Publish, batch(world, b"after"), topic="t", partition=0)
    assert isinstance(again, frames.Published)


def test_a_failed_sync_stops_the_writing_and_not_the_reading(world):
    admin = Asker(world)
    admin.answer(frames.CreateTopic, topic="t", config=TopicConfig())
    admin.answer(frames.Publish, batch(world, b"before"), topic="t", partition=0)
    world.disk.before = fail_writes
    admin.send(frames.Publish(900, "t", 0), batch(world, b"lost"))
    world.run(SECOND)
    later = Asker(world)
    answer = later.answer(frames.Publish, batch(world, b"late"), topic="t", partition=0)
    assert isinstance(answer, frames.Failure)
    assert answer.code == "storeStopped"
    later.answer(frames.OpenSubscription, topic="t", credit_bytes=1000)
    world.run(SECOND)
    (delivered,) = [each for each in later.heard if isinstance(each, frames.Deliver)]
    assert (delivered.offset, delivered.end) == (0, 1)  # what was not durable is not shown


def fail_writes(operation: str, *_: object) -> None:
    if "write" in operation or "sync" in operation:
        raise OSError(5, "the disk has failed")


def test_a_topic_deleted_under_a_committing_consumer_does_not_harm_the_broker(tmp_path):
    with hocket.embedded(tmp_path / "data") as client:
        for round_number in range(25):
            client.create_topic("t", partitions=4)
            for number in range(20):
                client.publish("t", b"x", partition=number % 4)
            messages = client.subscribe("t", index="i")
            reading = threading.Event()
            with Running(commit_each, messages, reading):
                assert reading.wait(20)
                time.sleep(0.001 * (round_number % 4))  # a little later every time
                client.delete_topic("t")
            with suppress(errors.HocketError):
                messages.close()
        assert client.topics() == []


def commit_each(messages: Subscription, reading: threading.Event) -> None:
    with suppress(errors.HocketError):  # until the topic is gone
        while True:
            messages.receive(timeout=5).ack()
            reading.set()
            messages.commit(timeout=5)


def test_only_a_subscription_that_resumes_in_a_topic_kept_in_memory_may_be_beyond_the_end(world):
    asker = Asker(world)
    asker.answer(frames.CreateTopic, topic="m", config=TopicConfig(durability="memory"))
    asker.answer(frames.CreateTopic, topic="q", config=TopicConfig())
    for topic in "mq":
        asker.answer(frames.Publish, batch(world, b"x"), topic=topic, partition=0)
    beyond = {"positions": packed([0, 9]), "credit_bytes": 100}
    for topic, resumes in (("m", False), ("q", True), ("q", False)):
        refused = asker.answer(frames.OpenSubscription, topic=topic, resumes=resumes, **beyond)
        assert isinstance(refused, frames.Failure)
        assert refused.code == "outOfRange"
    opened = asker.answer(frames.OpenSubscription, topic="m", resumes=True, **beyond)
    assert isinstance(opened, frames.SubscriptionOpened)
    assert unpacked(opened.positions) == [0, 1]
