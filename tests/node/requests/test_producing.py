"""Producers at a node, step by step: whose an id is, and what is taken for a repetition."""

from __future__ import annotations

import logging

import pytest

from hocket import frames
from hocket.errors import Fenced, OutOfRange, ProducerConflict
from hocket.frames import unpacked
from hocket.model import OWN_PRODUCERS, Grant, TopicConfig
from tests.support.node.guarded import GuardedNode, Person, one_batch, token_of, with_users

STOLEN = b"s" * 16


def place_with_two() -> tuple[GuardedNode, Person, Person]:
    """Bob and Eve may both publish to `orders`, which has two partitions."""
    place, known = with_users()
    admin = place.trusted()
    admin.ask(frames.AlterTopic, "orders", TopicConfig(partitions=2))
    known["eve"] = token_of(admin.ask(frames.CreateUser, "eve", ("worker",)))
    return place, place.greeted(known["bob"]), place.greeted(known["eve"])


def publish(
    person: Person, sequence: int, value: bytes = b"x", *, producer_id: bytes = STOLEN,
    partition: int = 0, epoch: int = 0,
) -> frames.Frame:  # fmt: skip
    batch = one_batch(value, producer_id=producer_id, sequence=sequence, epoch=epoch)
    return person.ask(frames.Publish, "orders", partition, payload=batch)


def opened(person: Person, producer_id: bytes = b"", **more: object) -> frames.Frame:
    return person.ask(frames.OpenProducer, "orders", producer_id, **more)


def push(person: Person, handle: int, producer_id: bytes, *batches: tuple[int, bytes]) -> list:
    """Push these (sequence, value) in one frame; what was heard since."""
    heard = len(person.told)
    payload = b"".join(
        one_batch(value, producer_id=producer_id, sequence=sequence) for sequence, value in batches
    )
    frame = frames.Push(0, handle, 0)
    person.place.node.received(person.connection, frame, memoryview(payload))
    person.place.settle()
    return person.told[heard:]


def code_of(answer: frames.Frame) -> str:
    assert isinstance(answer, frames.Failure), answer
    return answer.code


def offset_of(answer: frames.Frame) -> int:
    assert isinstance(answer, frames.Published), answer
    return answer.offset


# --- repetitions ---------------------------------------------------------------------------------


def test_another_batch_under_the_same_sequence_is_refused_and_logged(caplog):
    place = GuardedNode()
    person = place.greeted()
    person.ask(frames.CreateTopic, "orders", TopicConfig())
    assert offset_of(publish(person, 0, b"mine")) == 0
    assert code_of(publish(person, 0, b"other")) == ProducerConflict.code
    assert offset_of(publish(person, 0, b"mine")) == 0
    assert "refused: user=(nobody) address=10.0.0.1 batch 0 for partition 0 of topic" in caplog.text
    place.crash()
    person = place.greeted()
    assert code_of(publish(person, 0, b"other")) == ProducerConflict.code
    place.node.close()  # and also from a checkpoint
    place.start()
    person = place.greeted()
    assert code_of(publish(person, 0, b"other")) == ProducerConflict.code
    assert offset_of(publish(person, 0, b"mine")) == 0
    assert offset_of(publish(person, 1, b"next")) == 1


def test_what_was_pushed_behind_a_refused_batch_is_not_stored():
    place = GuardedNode()
    owner, thief = place.greeted(), place.greeted()
    owner.ask(frames.CreateTopic, "orders", TopicConfig())
    answer = opened(owner)
    assert isinstance(answer, frames.ProducerOpened)
    handle, producer_id = answer.handle, answer.producer_id
    assert push(owner, handle, producer_id, (0, b"0"))[0].sequence == 0
    publish(thief, 1, b"stolen", producer_id=producer_id)
    first, second = push(owner, handle, producer_id, (1, b"1"), (2, b"2"))
    assert (first.sequence, first.code) == (1, "producerConflict")
    assert (second.sequence, second.code) == (2, "sequenceGap")
    (third,) = push(owner, handle, producer_id, (2, b"2"))
    assert third.code == "sequenceGap"


def test_a_batch_refused_for_the_moment_comes_again_before_those_behind_it(monkeypatch):
    place = GuardedNode()
    owner, thief = place.greeted(), place.greeted()
    owner.ask(frames.CreateTopic, "orders", TopicConfig())
    answer = opened(owner)
    assert isinstance(answer, frames.ProducerOpened)
    handle, producer_id = answer.handle, answer.producer_id
    push(owner, handle, producer_id, (0, b"0"))
    with monkeypatch.context() as patch:
        patch.setattr("hocket.node.requests.producing.batch_of", broken)
        assert push(owner, handle, producer_id, (1, b"1"))[0].code == OutOfRange.code
    publish(thief, 1, b"stolen", producer_id=producer_id)
    assert push(owner, handle, producer_id, (2, b"2"))[0].code == "sequenceGap"
    publish(thief, 2, b"2", producer_id=producer_id)  # he has guessed it, and stored it for her
    assert push(owner, handle, producer_id, (2, b"2"))[0].sequence == 2
    assert push(owner, handle, producer_id, (1, b"1"))[0].code == ProducerConflict.code


def test_what_was_refused_and_came_again_holds_nothing_up(monkeypatch):
    place = GuardedNode()
    owner = place.greeted()
    owner.ask(frames.CreateTopic, "orders", TopicConfig())
    answer = opened(owner)
    assert isinstance(answer, frames.ProducerOpened)
    handle, producer_id = answer.handle, answer.producer_id
    with monkeypatch.context() as patch:
        patch.setattr("hocket.node.requests.producing.batch_of", broken)
        assert push(owner, handle, producer_id, (0, b"0"))[0].code == OutOfRange.code
    (acked,) = push(owner, handle, producer_id, (0, b"0"), (1, b"1"))
    assert unpacked(acked.offsets) == [0, 1]


def broken(*_: object) -> None:
    raise OutOfRange("not this time")


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_producer_of_the_broker_itself_is_not_for_clients(epoch: int):
    """Their ids can be foreseen, so that a dead letter could be taken for a repetition."""
    place = GuardedNode()
    person = place.greeted()
    person.ask(frames.CreateTopic, "orders", TopicConfig())
    own = OWN_PRODUCERS.ljust(16, b"x")
    assert code_of(opened(person, own)) == OutOfRange.code
    assert code_of(publish(person, 0, producer_id=own, epoch=epoch)) == OutOfRange.code


# --- whose an id is ------------------------------------------------------------------------------


def test_an_id_is_the_first_users_and_refused_to_others_and_that_is_audited(caplog):
    caplog.set_level(logging.INFO, "hocket.audit")
    _place, bob, eve = place_with_two()
    assert offset_of(publish(bob, 0)) == 0
    for answer in (
        publish(eve, 1),
        publish(eve, 0, partition=1),  # he has not used it there, but it is his in the whole topic
        publish(eve, 0, epoch=1),
        opened(eve, STOLEN),
        opened(eve, STOLEN, transaction="job", number=1),
    ):
        assert code_of(answer) == Fenced.code
    lines = [line for line in caplog.messages if "belongs to another user" in line]
    assert len(lines) == 5
    assert lines[0] == (
        f"denied: user='eve' address=10.0.0.1 producer id {STOLEN.hex()} in topic 'orders': it "
        "belongs to another user"
    )
    assert offset_of(publish(bob, 1)) == 1
    assert isinstance(opened(bob, STOLEN), frames.ProducerOpened)


def test_an_id_stays_its_owners_over_a_crash_and_a_checkpoint():
    place, bob, _ = place_with_two()
    publish(bob, 0)
    admin = place.trusted()
    renewed = {name: token_of(admin.ask(frames.RenewToken, name)) for name in ("bob", "eve")}
    place.crash()
    assert code_of(publish(place.greeted(renewed["eve"]), 1)) == Fenced.code
    place.node.close()
    place.start()
    assert code_of(publish(place.greeted(renewed["eve"]), 1)) == Fenced.code
    assert offset_of(publish(place.greeted(renewed["bob"]), 1)) == 1


def test_an_opened_handle_is_of_no_use_once_somebody_else_has_used_the_id():
    _place, bob, eve = place_with_two()
    answer = opened(eve, STOLEN)
    assert isinstance(answer, frames.ProducerOpened)
    publish(bob, 0)
    (refused,) = push(eve, answer.handle, STOLEN, (1, b"x"))
    assert (refused.code, refused.sequence) == (Fenced.code, 1)


def test_an_id_from_before_access_control_is_the_first_users():
    place = GuardedNode()
    anybody = place.greeted()
    anybody.ask(frames.CreateTopic, "orders", TopicConfig())
    publish(anybody, 0)
    anybody.ask(frames.CreateUser, "ann", ("admin",))
    admin = place.trusted()
    admin.ask(frames.CreateRole, "worker")
    admin.ask(frames.AddGrant, "worker", Grant("publish", "orders"))
    bob, eve = (
        place.greeted(token_of(admin.ask(frames.CreateUser, name, ("worker",))))
        for name in ("bob", "eve")
    )
    assert offset_of(publish(bob, 1)) == 1
    assert code_of(publish(eve, 2)) == Fenced.code


def test_clients_within_the_process_are_one_owner_too():
    place, bob, _ = place_with_two()
    trusted = place.trusted()
    assert offset_of(publish(trusted, 0)) == 0
    assert code_of(publish(bob, 1)) == Fenced.code
    assert offset_of(publish(place.trusted(), 1)) == 1


def test_a_batch_without_a_producer_belongs_to_nobody():
    _, bob, eve = place_with_two()
    for person in (bob, eve, bob):
        assert isinstance(publish(person, 0, producer_id=bytes(16)), frames.Published)
