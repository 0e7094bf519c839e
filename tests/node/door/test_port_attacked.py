"""What a connection may say at the port that once ended the broker, or half-did what it asked."""

from __future__ import annotations

import pytest

import hocket
from hocket import errors, frames
from hocket.model import Start
from tests.support.node.running import Speaker, running
from tests.support.threads import until


@pytest.fixture
def served(tmp_path):
    with running(tmp_path / "data") as (broker, address):
        yield broker, address, f"hocket://{address[0]}:{address[1]}"


def test_a_refusal_that_would_not_fit_into_a_frame_is_cut(served):
    _, address, url = served
    with hocket.connect(url) as first:
        token = first.create_user("ann", roles=["admin"])
    with hocket.connect(url, token=token) as ann:
        token = ann.create_user("nobody", roles=[])
        with Speaker(address) as speaker:
            speaker.say(frames.Hello(1, token=token))
            assert isinstance(speaker.hear(), frames.Welcome)
            name = "i" * 1_000_000
            speaker.say(frames.OpenSubscription(2, "orders", name))
            speaker.say(frames.SeekIndex(3, "orders", name, Start()))
            speaker.say(frames.DeleteIndex(4, "orders", name))
            for request in (2, 3, 4):
                answer = speaker.hear()
                assert isinstance(answer, frames.Failure)
                assert (answer.request, answer.code) == (request, "notAllowed")
                assert len(answer.message) < 2000
        assert ann.topics() == []


def test_an_answer_that_does_not_fit_is_a_failure_for_whoever_asked_alone(served):
    broker, address, url = served
    with Speaker(address) as speaker, hocket.connect(url) as client:
        speaker.greet()
        text = "x" * 2_000_000
        for each in broker.node._wiring.sessions:
            broker.post(lambda each=each: broker.node._wiring.network.send(
                each, frames.Explained(99, True, text)))  # fmt: skip
        answer = speaker.hear()
        assert isinstance(answer, frames.Failure)
        assert (answer.request, answer.code) == (99, "tooLarge")
        client.ping()


def test_what_cannot_be_told_without_being_asked_for_ends_that_connection_alone(served):
    broker, address, url = served
    with hocket.connect(url) as client, Speaker(address) as speaker:
        speaker.greet()
        number = max(broker.node._wiring.sessions)
        broker.post(lambda: broker.node._wiring.network.send(
            number, frames.HandleEnded(0, 1, "fenced", "x" * 2_000_000)))  # fmt: skip
        assert speaker.at_end()
        client.ping()
        assert number not in broker.node._wiring.sessions


def test_a_request_is_done_whole_although_garbage_follows_it_at_once(served):
    _, address, url = served
    with hocket.connect(url) as client:
        client.create_topic("orders", partitions=2)
        for partition in (0, 1):
            client.publish("orders", b"x", partition=partition)
        with client.subscribe("orders", index="i", mode="shared") as other:
            for _ in range(2):
                other.receive(timeout=10)
            with Speaker(address) as speaker:
                speaker.greet()
                seek = frames.SeekIndex(2, "orders", "i", Start("latest"))
                data = b"".join(bytes(each) for each in speaker.wire.send(seek))
                speaker.send(data + b"\xff" * 64)
                until(lambda: client.lag("orders", "i") == 0)
            (index,) = client.indexes("orders")
            assert [each.leased for each in index.partitions] == [0, 0]


def test_the_ids_of_transactions_are_each_users_own(served):
    _, _, url = served
    with hocket.connect(url) as first:
        first.create_topic("t")
        token = first.create_user("ann", roles=["admin"])
    with hocket.connect(url, token=token) as ann:
        ann.create_role("writer")
        ann.grant("writer", "publish", "t")
        tokens = [ann.create_user(name, roles=["writer"]) for name in ("bob", "eve")]
        with (
            hocket.connect(url, token=tokens[0]) as bob,
            hocket.connect(url, token=tokens[1]) as eve,
        ):
            with bob.transaction("nightly", number=1) as transaction:
                transaction.send("t", b"of bob")
                staged = transaction.prepare()
            with pytest.raises(errors.TransactionConflict, match="nothing is staged"):
                eve.commit_prepared("nightly", 1, staged)
            eve.drop_prepared("nightly", 1, staged)  # she has nothing under that id
            with eve.transaction("nightly", number=1 << 40) as other:
                other.send("t", b"of eve")
            bob.commit_prepared("nightly", 1, staged)
            with bob.transaction("nightly", number=2) as transaction:
                transaction.send("t", b"of bob")
        assert ann.describe("t").partitions[0].end == 3
