"""Values of a type: encoded before anything is sent, decoded when they are asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import msgspec
import pydantic
import pytest

from hocket import errors, values
from tests.support.brokers.every_world import take
from tests.support.threads import until


@dataclass
class Item:
    name: str
    price: Decimal


@dataclass
class Order:
    id: UUID
    items: list[Item]
    placed: datetime | None = None


class Model(pydantic.BaseModel):
    number: int
    tags: dict[str, list[int]] = {}


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


class Reversed:
    """A coder of one's own."""

    def encode(self, value: str) -> bytes:
        return value[::-1].encode()

    def decode(self, data: bytes) -> str:
        return data.decode()[::-1]


ORDER = Order(UUID(int=7), [Item("tea", Decimal("2.50"))], datetime(2026, 1, 2, 3, tzinfo=UTC))
WRONG = Order(UUID(int=7), [Item("tea", Decimal(1)), Item("milk", "free")])  # type: ignore[arg-type]
KINDS = [
    (Order, ORDER),
    (Model, Model(number=3, tags={"a": [1]})),
    (Point, Point(1, 2.5)),
    (dict, {"a": [1, None, True]}),
    (list[Order], [ORDER]),
    (str, "plain text, §7"),
    (int, 12),
    (Reversed(), "backwards"),
]


def test_what_is_sent_in_any_way_is_what_is_received(world, client):
    for kind, value in KINDS:
        topic = world.topic()
        client.publish(topic, value, value=kind, key=b"k")
        with client.producer(topic, value=kind) as producer:
            producer.send(value, key=b"k", headers={"h": b"v"})
            future = producer.send_future(value)
            producer.send_many([value, value], keys=[b"1", None])
            producer.flush()
            assert future.result(10).offset == 2
        with client.transaction(topic) as transaction:
            transaction.send(topic, value, value=kind)
            transaction.send_many(topic, [value], value=kind)
        with client.subscribe(topic, value=kind) as subscription:
            messages = take(subscription, 7)
        assert [each.value for each in messages] == [value] * 7
        assert messages[0].value is messages[0].value  # decoded once
        assert messages[1].headers == {"h": b"v"}
        coder = values.coder(kind)
        assert {each.raw for each in messages} == {coder.encode(value)}


def test_bytes_are_what_they_were(world, client):
    topic = world.topic()
    client.publish(topic, b"1")
    client.publish(topic, value=b"2")  # as the message was called before there were types
    client.publish(topic, b"3", value=bytes)
    client.publish(topic, b"4", value=None)
    with client.producer(topic, value=bytes) as producer:
        producer.send(b"5")
    with client.transaction(topic) as transaction:
        transaction.send(topic, value=b"6")
    with client.subscribe(topic) as subscription:
        messages = take(subscription, 6)
    assert [each.value for each in messages] == [each.raw for each in messages]
    assert [each.value for each in messages] == [b"%d" % number for number in range(1, 7)]
    with pytest.raises(errors.WrongType):
        client.publish(topic)


def test_what_does_not_fit_names_its_field_and_nothing_is_sent(world, client):
    topic = world.topic()
    named = r"items\[1\]\.price: must be Decimal, not str \('free'\)\. Nothing was sent"
    with pytest.raises(errors.Unencodable, match=f"topic '{topic}': the value .*{named}"):
        client.publish(topic, WRONG, value=Order)
    with client.producer(topic, value=Order) as producer:
        with pytest.raises(errors.Unencodable, match=named):
            producer.send(WRONG)
        with pytest.raises(errors.Unencodable, match=named):
            producer.send_future(WRONG)
        with pytest.raises(errors.Unencodable, match=rf"values\[1\] cannot .*{named}"):
            producer.send_many([ORDER, WRONG])
        with pytest.raises(errors.Unencodable, match="must be Order, not bytes"):
            producer.send(b"as it was before")
        with pytest.raises(errors.WrongType, match="values must be a list"):
            producer.send_many(3)
        with pytest.raises(errors.WrongKind, match="without value="):
            producer.send_arrow(None)
    with client.transaction(topic) as transaction:
        with pytest.raises(errors.Unencodable, match=named):
            transaction.send(topic, WRONG, value=Order)
        with pytest.raises(errors.Unencodable, match=rf"values\[0\] cannot .*{named}"):
            transaction.send_many(topic, [WRONG], value=Order)
    with pytest.raises(errors.Unencodable, match="its coder made str of it, not bytes"):
        client.publish(topic, "x", value=Careless())
    assert client.describe(topic).partitions[0].end == 0


class Careless:
    def encode(self, value: str) -> str:
        return value

    def decode(self, data: bytes) -> str:
        raise KeyError


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (complex, "value=complex: complex has no form in JSON here"),
        (list[complex], r"value=list: \[\]: complex has no form in JSON here"),
        ("Order", "value= takes a type or a coder, not 'Order'"),
    ],
)
def test_what_is_no_type_is_refused_before_anything_is_opened(world, client, kind, said):
    with pytest.raises(errors.WrongType, match=said):
        client.producer("never-made", value=kind)
    with pytest.raises(errors.WrongType, match=said):
        client.subscribe("never-made", value=kind)
    with pytest.raises(errors.WrongType, match=said):
        client.publish("never-made", 1, value=kind)


def test_what_cannot_be_decoded_says_where_it_is_and_the_next_message_follows(world, client):
    topic = world.topic()
    for data in (b'{"number": 1}', b'{"number": "x"}', b"{", b'{"number": 4}'):
        client.publish(topic, data)
    with client.subscribe(topic, value=Model, index="i") as subscription:
        good, bad, torn, last = take(subscription, 4)
        assert (good.value, last.value) == (Model(number=1), Model(number=4))
        for _ in range(2):  # as often as one asks
            with pytest.raises(errors.Undecodable) as caught:
                _ = bad.value
        error = caught.value
        assert (error.topic, error.partition, error.offset) == (topic, 0, 1)
        assert error.reason.startswith("number: Input should be a valid integer")
        assert f"topic {topic!r}, partition 0, offset 1: the value cannot be decoded" in str(error)
        assert bad.raw == b'{"number": "x"}'
        assert "number" in repr(bad)
        with pytest.raises(errors.Undecodable, match="offset 2"):
            _ = torn.value
        bad.ack()  # passed over
        subscription.commit()
    with client.subscribe(topic, value=Model, index="i") as subscription:
        assert subscription.receive(timeout=10).offset == 2


def test_a_loop_goes_on_behind_it(world, client):
    topic = world.topic()
    for data in (b"1", b"one", b"3"):
        client.publish(topic, data)
    found = []
    with client.subscribe(topic, value=int) as subscription:
        for message in subscription:
            try:
                found.append(message.value)
            except errors.Undecodable as error:
                found.append(error.offset * 100)
            if len(found) == 3:
                break
    assert found == [1, 100, 3]


def test_on_a_shared_index_it_is_rejected_alone(world, client):
    topic = world.topic()
    with client.producer(topic) as producer:
        producer.send_many([b"1", b"{", b"3"])
    with client.subscribe(topic, index="w", mode="shared", value=int) as workers:
        for message in take(workers, 3):
            try:
                assert message.value in (1, 3)
            except errors.Undecodable as error:
                message.reject(error.reason)
            else:
                message.ack()
        workers.commit()
    (letter,) = until(lambda: client.dead_letters(topic))
    assert letter.value == b"{"
    assert letter.reason.startswith("is not JSON")


@pytest.mark.parametrize("mode", ["own", "shared"])
def test_of_a_batch_the_good_ones_are_not_lost(world, client, mode):
    topic = world.topic()
    with client.producer(topic) as producer:
        producer.send_many([b"1", b"{", b"3"])
    with client.subscribe(topic, index="i", mode=mode, value=int) as subscription:
        batch = subscription.receive_batch(timeout=10)
        with pytest.raises(errors.Undecodable, match="offset 1"):
            batch.values()
        assert batch.raw_values() == [b"1", b"{", b"3"]
        good, bad = batch.sift()
        assert [each.value for each in good] == [1, 3]
        assert [each.offset for each in bad] == [1]
        with pytest.raises(errors.WrongKind, match="subscribe without value="):
            batch.to_arrow()
        with pytest.raises(errors.WrongKind, match="subscribe without value="):
            batch.to_pandas()
        if mode == "shared":
            bad[0].message.reject("no number")
            for each in good:
                each.ack()
            subscription.commit()
            until(lambda: len(client.dead_letters(topic)) == 1)
            until(lambda: client.lag(topic, "i") == 0)
    client.publish(topic, b"4")
    with client.subscribe(topic, value=int, start=3) as subscription:
        assert subscription.receive_batch(timeout=10).values() == [4]
    with client.subscribe(topic, start=3) as subscription:
        assert subscription.receive_batch(timeout=10).sift()[1] == []


def test_several_topics_have_values_of_one_type(world, client):
    names = [world.topic() for _ in range(3)]
    for name in names:
        client.publish(name, {"from": name}, value=dict)
    client.publish(names[0], b"[]")
    with client.subscribe([*names[:2], f"{names[2]}*"], value=dict) as subscription:
        messages = take(subscription, 4)
    good = [each for each in messages if each.raw != b"[]"]
    assert {each.topic: each.value for each in good} == {each: {"from": each} for each in names}
    (bad,) = [each for each in messages if each.raw == b"[]"]
    with pytest.raises(errors.Undecodable, match=f"topic '{names[0]}', partition 0, offset 1"):
        _ = bad.value


def test_any_error_of_a_coder_is_told_as_ours(world, client):
    topic = world.topic()
    client.publish(topic, b"x")
    with client.subscribe(topic, value=Careless()) as subscription:
        with pytest.raises(errors.Undecodable, match="KeyError") as caught:
            _ = subscription.receive(timeout=10).value
        assert isinstance(caught.value.__cause__, KeyError)


def test_no_header_is_added(world, client):
    topic = world.topic()
    client.publish(topic, ORDER, value=Order)
    with client.subscribe(topic) as subscription:
        message = subscription.receive(timeout=10)
    assert message.headers == {}
    assert json.loads(message.value)["items"] == [{"name": "tea", "price": "2.50"}]
