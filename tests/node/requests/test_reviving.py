"""Dead letters given back to their index on a node, by frames: what is answered, and crashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hocket import frames
from hocket.frames import packed, unpacked
from hocket.node.requests import reviving
from hocket.node.running import sharing
from tests.node.running.test_sharing import Asker
from tests.node.test_simulated import tiny
from tests.support.node.simulated import SECOND, TOPIC, World

REVIVE = {
    "topic": TOPIC, "index": "workers", "partition": 0, "offsets": packed([1]),
    "letters": packed([0]), "dead_partition": 0,
}  # fmt: skip


@pytest.fixture
def world() -> World:
    return World("reviving", settings=tiny)


def rejected(world: World) -> tuple[Asker, int]:
    """A worker that has rejected the second of three messages, and acknowledged the others."""
    one = Asker(world)
    one.create()
    one.publish(3)
    handle = one.share()
    world.until(lambda: bool(one.leases()), 10, "they are leased")
    one.settle(handle, "ack", 0, 0, 1, 0, 2, 3)
    one.settle(handle, "reject", 0, 1, 2)
    return one, handle


def buried(world: World) -> tuple[Asker, int]:
    one, handle = rejected(world)
    share = world.node._wiring.partitions[_group(world)].core.shares["workers"]
    world.until(lambda: share.start == 3, 10, "it is with the dead letters, and settled")
    one.heard.clear()
    return one, handle


def _group(world: World) -> int:
    return int(world.node._wiring.catalogue.topics[TOPIC].groups[0])


def offsets(answer: Any) -> list[int]:
    assert isinstance(answer, frames.Offsets), answer
    return unpacked(answer.offsets)


def half_buried(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[Asker, Callable[[], None]]:
    """The dead letter is there, and its message not settled until the function is called."""
    held: list[tuple[Any, ...]] = []
    shares = world.node._wiring.shares
    settle = shares.dead_lettered
    monkeypatch.setattr(shares, "dead_lettered", lambda *what: held.append(what))
    one, _ = rejected(world)
    world.until(lambda: bool(held), 10, "it is with the dead letters")
    one.heard.clear()
    return one, lambda: settle(*held[0])


def test_a_request_that_comes_before_the_index_has_it_settled_waits(world, monkeypatch):
    one, settle = half_buried(world, monkeypatch)
    asked = one.begin_asking(frames.Revive, **REVIVE)
    world.until(lambda: bool(world.node._reviving.waiting), 10, "it waits")
    world.run(SECOND)
    assert (asked, one.leases()) == ([], [])
    settle()
    world.until(lambda: bool(asked), 10, "it is answered")
    assert offsets(asked[0]) == [1]
    world.until(lambda: one.leases() == [(0, [1, 2, 1])], 10, "it is delivered again, as new")


def test_nobody_waits_whose_link_broke_or_whose_index_is_gone(world, monkeypatch):
    one, _ = half_buried(world, monkeypatch)
    other = Asker(world)
    waiting = world.node._reviving
    other.begin_asking(frames.Revive, **REVIVE)
    world.until(lambda: len(waiting.waiting) == 1, 10, "it waits")
    world.network.cut(other.connection)
    world.until(lambda: not waiting.waiting, 10, "it does not wait any more")
    asked = one.begin_asking(frames.Revive, **REVIVE)
    world.until(lambda: len(waiting.waiting) == 1, 10, "it waits")
    one.answer(frames.DeleteTopic, topic=TOPIC)
    world.until(lambda: bool(asked), 10, "it is answered")
    assert isinstance(asked[0], frames.Failure)
    assert asked[0].code == "unknownTopic"


@pytest.mark.parametrize("micros", [0, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 20_000])
def test_a_crash_at_any_point_delivers_it_again_once(world, micros):
    one, _ = buried(world)
    one.begin_asking(frames.Revive, **REVIVE)
    world.run(micros)
    world.crash()
    world.run(10_000)
    world.start_node()
    world.run(10 * SECOND)
    other = Asker(world)
    assert offsets(other.answer(frames.Revive, **REVIVE)) in ([1], [])
    assert offsets(other.answer(frames.Revive, **REVIVE)) == []
    handle = other.share(b"b")
    world.until(lambda: bool(other.leases()), 10, "it is delivered")
    (lease,) = other.leases()
    assert lease[1][:2] == [1, 2]
    settled = other.settle(handle, "ack", 0, 1, 2)
    world.until(lambda: bool(settled), 10, "it is done")
    assert offsets(other.answer(frames.Revive, **REVIVE)) == []
    world.run(SECOND)
    assert len(other.leases()) == 1


def test_an_index_that_was_put_away_is_taken_up(world, monkeypatch):
    monkeypatch.setattr(sharing, "IDLE_US", SECOND)
    one, handle = buried(world)
    one.answer(frames.CloseHandle, handle=handle)
    shares = world.node._wiring.shares
    world.until(lambda: shares._shared == {}, 10, "it is put away")
    assert offsets(one.answer(frames.Revive, **REVIVE)) == [1]
    assert shares._shared
    world.until(lambda: shares._shared == {}, 10, "and again")
    one.share(b"b")
    assert one.leases() == [(0, [1, 2, 1])]


@pytest.mark.parametrize("index", ["workers", None])
def test_an_index_that_is_deleted_meanwhile_is_answered_for(world, index):
    one, _ = buried(world)
    other = Asker(world)
    asked = one.begin_asking(frames.Revive, **REVIVE)
    if index:
        other.answer(frames.DeleteIndex, topic=TOPIC, index=index)
    else:
        other.answer(frames.DeleteTopic, topic=TOPIC)
    world.until(lambda: bool(asked), 10, "it is answered")
    assert world.node._wiring.shares._revivals == {}


def test_no_more_requests_wait_than_may(world, monkeypatch):
    monkeypatch.setattr(reviving, "WAITING_MAX", 1)
    one, settle = half_buried(world, monkeypatch)
    first = one.begin_asking(frames.Revive, **REVIVE)
    second = one.answer(frames.Revive, **REVIVE)
    assert isinstance(second, frames.Failure)
    assert second.code == "busy"
    settle()
    world.until(lambda: bool(first), 10, "the other one is answered")
    assert offsets(first[0]) == [1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"offsets": packed([1])[:7], "letters": packed([0])[:7]},
        {"offsets": b"", "letters": b""},
        {"offsets": packed([1, 1])},
        {"offsets": packed([1, 1]), "letters": packed([0, 0])},
        {"offsets": packed([1] * 1001), "letters": packed(range(1001))},
        {"offsets": packed([2**64 - 1])},
        {"letters": packed([2**64 - 1])},
        {"dead_partition": 9},
        {"index": "nobody"},
    ],
)
def test_nonsense_is_refused_and_changes_nothing(world, wrong):
    one, _ = buried(world)
    assert isinstance(one.answer(frames.Revive, **{**REVIVE, **wrong}), frames.Failure)
    assert offsets(one.answer(frames.Revive, **REVIVE)) == [1]
