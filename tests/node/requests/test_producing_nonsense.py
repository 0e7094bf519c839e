"""Batches that come to a node: one that nobody could read is refused, and costs nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from hocket import frames
from hocket.frames import unpacked
from hocket.wire.batch import check_entries, encode
from tests.node.running.test_sharing import Asker, wait
from tests.node.test_simulated import tiny
from tests.support.node.simulated import TOPIC, World
from tests.support.wire.batches import (
    body_of,
    prelude,
    sealed,
    with_fallen_offset,
    with_false_raw_length,
    with_foreign_name,
)

SOME = [b"the same value again" for _ in range(20)]
NONSENSE = {
    "zstd declares another length": lambda **more: with_false_raw_length(
        SOME * 100, codec="zstd", **more
    ),
    "lz4 does not open": lambda **more: with_false_raw_length(SOME, **more),
    "an offset falls": lambda **more: with_fallen_offset(SOME, at=3, **more),
    "a name is not UTF-8": lambda **more: with_foreign_name(SOME, at=3, **more),
    "a codec of the future": lambda **more: _changed(codec=7, **more),
    "no records": lambda **more: _changed(count=0, **more),
    "reserved bits": lambda **more: _reserved(**more),
}


def _changed(*, codec: int = 0, count: int = 20, **more: Any) -> bytes:
    entry = encode(SOME, timestamps=1, **more)
    return sealed(entry, body_of(entry), codec=codec, count=count)


def _reserved(**more: Any) -> bytes:
    entry = encode(SOME, timestamps=1, **more)
    return sealed(entry, prelude(entry, reserved=1))


@pytest.fixture
def world() -> World:
    return World("producing", settings=tiny)


@pytest.fixture
def one(world: World) -> Asker:
    asker = Asker(world)
    asker.create()
    return asker


def published(one: Asker, entry: bytes) -> frames.Frame:
    answers: list[frames.Frame] = []
    one._last_request += 1
    one._answers[one._last_request] = answers.append
    one.send(frames.Publish(one._last_request, TOPIC, 0), entry)
    wait(one.world, lambda: bool(answers), "it is answered")
    return answers[0]


def end(one: Asker) -> int:
    (topic,) = one.answer(frames.DescribeTopic, topic=TOPIC).topics
    return topic.partitions[0].end


@pytest.mark.parametrize("name", NONSENSE)
def test_a_publish_of_nonsense_is_refused_and_the_next_one_stored(one: Asker, name: str):
    answer = published(one, NONSENSE[name]())
    assert isinstance(answer, frames.Failure), answer
    assert answer.code == "corruptData"
    assert "was not stored, for nobody could read it" in answer.message
    assert not answer.may_have_happened
    assert end(one) == 0
    assert isinstance(published(one, encode([b"good"], timestamps=1)), frames.Published)
    assert end(one) == 1


@pytest.mark.parametrize("transaction", ["", "t"])
@pytest.mark.parametrize("name", NONSENSE)
def test_a_push_of_nonsense_is_refused_with_its_number_also_to_a_stage(
    one: Asker, name: str, transaction: str
):
    opened = one.answer(
        frames.OpenProducer, topic=TOPIC, producer_id=b"p" * 16, transaction=transaction, number=1
    )
    stamp = {"producer_id": opened.producer_id, "epoch": opened.epoch}
    good = [encode([b"good"], timestamps=1, sequence=number, **stamp) for number in range(2)]
    bad = NONSENSE[name](sequence=1, **stamp)
    one.send(frames.Push(0, opened.handle, 0), good[0] + bad)
    wait(one.world, lambda: len(one.heard) == 2, "both are answered")
    refused, acked = sorted(one.heard, key=lambda frame: isinstance(frame, frames.PushAcked))
    assert isinstance(refused, frames.PushRefused)
    assert (refused.sequence, refused.code) == (1, "corruptData")
    assert isinstance(acked, frames.PushAcked)
    assert acked.sequence == 0
    one.heard.clear()
    one.send(frames.Push(0, opened.handle, 0), good[1])  # its number was not used up
    wait(one.world, lambda: bool(one.heard), "it is answered")
    (acked,) = one.heard
    assert isinstance(acked, frames.PushAcked)
    assert acked.sequence == 1
    assert unpacked(acked.offsets) == ([] if transaction else [1])
    assert end(one) == (0 if transaction else 2)


@pytest.mark.parametrize(
    "change", [lambda entry: entry[:-1], lambda entry: entry[:60] + b"?" + entry[61:]]
)
def test_bytes_that_are_not_what_was_sent_still_cost_the_connection(one: Asker, change: Any):
    entry = encode([b"good"], timestamps=1)
    check_entries(entry)
    answer = published(one, change(entry))
    assert isinstance(answer, frames.Failure)
    assert answer.code == "protocol"
