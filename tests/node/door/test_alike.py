"""Subscriptions of one client that are told the same get one payload."""

from __future__ import annotations

import pytest

import hocket
from hocket import frames
from hocket.frames import Deliver, DeliverAlike, packed
from hocket.node.door.alike import HANDLES_MAX, Alike
from tests.support.node.running import Speaker, listening

DATA = memoryview(b"a batch")


@pytest.fixture
def address(tmp_path):
    with listening(tmp_path / "data") as where:
        yield where


def url_of(address: tuple[str, int]) -> str:
    return f"hocket://{address[0]}:{address[1]}"


def opened(speaker: Speaker, request: int, **options: object) -> int:
    speaker.say(frames.OpenSubscription(request, "t", credit_bytes=1 << 20, **options))  # type: ignore[arg-type]
    answer = speaker.hear()
    assert isinstance(answer, frames.SubscriptionOpened)
    return answer.handle


def test_who_knows_it_gets_one_payload_for_all_of_its_subscriptions(address):
    with hocket.connect(url_of(address)) as client, Speaker(address) as speaker:
        client.create_topic("t")
        speaker.say(frames.Hello(1, features=("unheard-of", frames.ALIKE)))
        speaker.hear()
        handles = [opened(speaker, request) for request in (2, 3, 4)]
        client.publish("t", b"for three")
        delivered = speaker.hear()
        assert delivered == DeliverAlike(0, packed(handles), 0, 0, 1)
        assert speaker.payload.count(b"for three") == 1
        late = opened(speaker, 5)  # it begins at the first message: it is told something else
        assert speaker.hear() == Deliver(0, late, 0, 0, 1)
        speaker.say(frames.CloseHandle(6, handles[1]))
        assert isinstance(speaker.hear(), frames.Done)
        client.publish("t", b"for all that are left")
        left = [handles[0], handles[2], late]
        assert speaker.hear() == DeliverAlike(0, packed(left), 0, 1, 2)


def test_who_does_not_know_it_gets_one_for_each(address):
    with hocket.connect(url_of(address)) as client, Speaker(address) as speaker:
        client.create_topic("t")
        speaker.greet()
        handles = [opened(speaker, request) for request in (2, 3)]
        client.publish("t", b"for two")
        for handle in handles:
            assert speaker.hear() == Deliver(0, handle, 0, 0, 1)
            assert b"for two" in speaker.payload


def test_all_subscriptions_of_a_client_get_everything_once_and_in_order(address):
    with hocket.connect(url_of(address)) as client:
        client.create_topic("t")
        values = [b"%d" % number for number in range(200)]
        readers = [client.subscribe("t", index=f"i{number}") for number in range(5)]
        with client.producer("t", linger=0) as producer:
            for number, value in enumerate(values):
                producer.send(value)
                if number == 100:  # from here on one of them is behind the others
                    producer.flush(30)
                    readers[2].seek(0, 7)
        for number, reader in enumerate(readers):
            got = [reader.receive(timeout=30) for _ in range(200 if number != 2 else 193)]
            assert [each.value for each in got] == values[7 if number == 2 else 0 :]
            got[-1].ack()
            reader.commit(timeout=30)


# --- what is alike -------------------------------------------------------------------------------


def test_only_what_differs_in_nothing_else_is_alike():
    alike = Alike()
    payload = [DATA]
    assert not alike
    assert not alike.joins(Deliver(0, 1, 0, 5, 9), payload)
    alike.hold(Deliver(0, 1, 0, 5, 9), payload)
    assert alike.joins(Deliver(0, 2, 0, 5, 9), payload)
    assert alike.joins(Deliver(0, 3, 0, 5, 9), [DATA])  # another list of the same memory
    for other in (Deliver(0, 4, 1, 5, 9), Deliver(0, 4, 0, 6, 9), Deliver(0, 4, 0, 5, 10)):
        assert not alike.joins(other, payload)
    assert not alike.joins(Deliver(0, 4, 0, 5, 9), [memoryview(bytes(DATA))])  # it may change
    assert not alike.joins(Deliver(0, 4, 0, 5, 9), [DATA, DATA])
    assert alike.take() == (DeliverAlike(0, packed([1, 2, 3]), 0, 5, 9), payload)
    assert not alike
    assert not alike.joins(Deliver(0, 4, 0, 5, 9), payload)


def test_one_alone_stays_as_it_is():
    alike = Alike()
    alike.hold(Deliver(0, 1, 0, 5, 9), [DATA])
    assert alike.take() == (Deliver(0, 1, 0, 5, 9), [DATA])


def test_a_frame_has_a_limit():
    alike = Alike()
    alike.hold(Deliver(0, 0, 0, 5, 9), [DATA])
    joined = [alike.joins(Deliver(0, each, 0, 5, 9), [DATA]) for each in range(1, HANDLES_MAX + 1)]
    assert joined == [True] * (HANDLES_MAX - 1) + [False]
