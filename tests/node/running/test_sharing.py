"""Shared indexes on a node by frames: what is answered, and what is kept in memory, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hocket import frames
from hocket.core.sharing.leases import GRACE_US
from hocket.frames import packed, unpacked
from hocket.model import Start, TopicConfig
from hocket.node.running import sharing
from hocket.wire import batch as batches
from tests.node.test_simulated import tiny
from tests.support.node.simulated import SECOND, TOPIC, Client, World


class Asker(Client):
    """Asks, and keeps what it is told."""

    def __init__(self, world: World) -> None:
        self.heard: list[frames.Frame] = []
        super().__init__(world)
        world.run(10_000)

    def told(self, frame: frames.Frame, payload: memoryview) -> None:
        self.heard.append(frame)

    def begin_asking(self, kind: type, **fields: object) -> list[frames.Frame]:
        """The list that its answer will be in."""
        answers: list[frames.Frame] = []
        self.ask(kind, answers.append, **fields)
        return answers

    def answer(self, kind: type, **fields: object) -> Any:
        answers = self.begin_asking(kind, **fields)
        self.world.until(lambda: bool(answers), 10, f"{kind.__name__} is answered")
        return answers[0]

    def create(self, partitions: int = 1) -> None:
        config = TopicConfig(partitions=partitions)
        assert isinstance(self.answer(frames.CreateTopic, topic=TOPIC, config=config), frames.Done)

    def publish(self, count: int, partition: int = 0) -> None:
        entry = batches.encode([b"x"] * count, timestamps=self.world.clock.now_us())
        answers: list[frames.Frame] = []
        self._last_request += 1
        self._answers[self._last_request] = answers.append
        self.send(frames.Publish(self._last_request, TOPIC, partition), entry)
        self.world.until(lambda: bool(answers), 10, "it is published")

    def share(self, identity: bytes = b"a", **more: object) -> int:
        fields = {
            "topic": TOPIC, "index": "workers", "mode": "shared", "start": Start("earliest"),
            "credit_bytes": 1 << 20, "consumer": identity.ljust(16), "prefetch": 100, **more,
        }  # fmt: skip
        opened = self.answer(frames.OpenSubscription, **fields)
        assert isinstance(opened, frames.SubscriptionOpened), opened
        self.world.run(1000)
        return opened.handle

    def leases(self) -> list[tuple[int, list[int]]]:
        found = [frame for frame in self.heard if isinstance(frame, frames.Lease)]
        return [(frame.partition, unpacked(frame.ranges)) for frame in found]

    def settle(self, handle: int, action: str = "ack", *ranges: int) -> list[frames.Frame]:
        return self.begin_asking(frames.Settle, handle=handle, action=action, ranges=packed(ranges))


@pytest.fixture
def world() -> World:
    return World("sharing", settings=tiny)


def wait(world: World, fact: Callable[[], bool], what: str) -> None:
    world.until(fact, 10, what)


def test_what_is_settled_when_the_index_is_deleted_is_answered_by_a_failure(world):
    one, other = Asker(world), Asker(world)
    one.create()
    one.publish(5)
    handle = one.share()
    wait(world, lambda: one.leases() == [(0, [0, 5, 1])], "they are leased")
    deleted = other.begin_asking(frames.DeleteIndex, topic=TOPIC, index="workers")
    settled = one.settle(handle, "ack", 0, 0, 5)
    wait(world, lambda: bool(deleted and settled), "both are answered")
    assert isinstance(deleted[0], frames.Done)
    if isinstance(settled[0], frames.Failure):
        assert settled[0].code in ("unknownIndex", "unknownHandle")
    assert [type(each) for each in one.heard[-1:]] == [frames.HandleEnded]
    assert world.node._wiring.shares._settlements._waiting == {}


def test_what_is_settled_when_the_topic_is_deleted_is_answered_too(world):
    one, other = Asker(world), Asker(world)
    one.create()
    one.publish(5)
    handle = one.share()
    wait(world, lambda: bool(one.leases()), "they are leased")
    settled = one.settle(handle, "ack", 0, 0, 5)
    other.begin_asking(frames.DeleteTopic, topic=TOPIC)
    wait(world, lambda: bool(settled), "it is answered")
    assert world.node._wiring.shares._settlements._waiting == {}
    assert world.node._wiring.shares._shared == {}


def test_a_topic_that_grows_is_shared_with_its_new_partitions(world):
    one = Asker(world)
    one.create()
    one.share()
    grown = one.begin_asking(frames.AlterTopic, topic=TOPIC, config=TopicConfig(partitions=3))
    wait(world, lambda: bool(grown), "it has grown")
    one.publish(4, partition=2)
    wait(world, lambda: one.leases() == [(2, [0, 4, 1])], "they are leased at once")


def test_an_index_that_nobody_consumes_is_put_away_and_taken_up_without_a_wait(world, monkeypatch):
    monkeypatch.setattr(sharing, "IDLE_US", SECOND)
    one = Asker(world)
    one.create()
    one.publish(5)
    handle = one.share()
    wait(world, lambda: bool(one.leases()), "they are leased")
    one.settle(handle, "ack", 0, 0, 2)
    one.answer(frames.CloseHandle, handle=handle)
    wait(world, lambda: world.node._wiring.shares._shared == {}, "it is put away")
    one.heard.clear()
    one.share(b"b")
    assert one.leases() == [(0, [2, 5, 2])]


def test_one_that_was_left_without_a_word_is_kept_until_its_leases_have_ended(world, monkeypatch):
    monkeypatch.setattr(sharing, "IDLE_US", 0)
    one, other = Asker(world), Asker(world)
    one.create()
    one.publish(5)
    one.share()
    wait(world, lambda: bool(one.leases()), "they are leased")
    world.network.cut(one.connection)
    world.run(SECOND)
    assert world.node._wiring.shares._shared
    other.share(b"b")
    assert other.leases() == []
    world.run(GRACE_US)
    assert other.leases() == [(0, [0, 1, 2])], "the first of them, alone"


def test_an_index_that_is_put_away_while_it_is_being_opened_is_made_again(world, monkeypatch):
    one = Asker(world)
    one.create()
    one.publish(5)
    prepare = sharing.Shares.prepare
    prepared = []

    def forgetful(self, *arguments):
        prepare(self, *arguments)
        prepared.append(arguments)
        if len(prepared) == 1:
            self._shared.clear()

    monkeypatch.setattr(sharing.Shares, "prepare", forgetful)
    one.share()
    world.run(GRACE_US + SECOND)
    assert len(prepared) == 2
    assert one.leases() == [(0, [0, 5, 1])]
