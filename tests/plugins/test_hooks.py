"""What each hook sees, and what comes of its answer, in a whole broker."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hocket
from hocket import frames
from hocket.errors import NotAllowed, OutOfRange, Rejected
from hocket.frames import Frame
from hocket.plugins import Delivery, Publish, hook
from hocket.plugins.testing import BrokerWith, broker_with
from hocket.wire.batch import encode


class Stamp:
    """Gives each message a header that is never the same twice, and its value in capitals."""

    api = 1

    @hook
    def on_publish(self, batch: Publish) -> None:
        batch.add_header("received", str(time.time_ns()).encode())
        batch.values = [value.upper() for value in batch.values]


class Small:
    api = 1

    @hook
    def on_publish(self, batch: Publish) -> None:
        for number, value in enumerate(batch.values):
            if len(value) > 10:
                raise Rejected(f"message {number} has {len(value)} bytes, more than 10")


class Last:
    """Sees what the ones before it have made."""

    api = 1

    @hook
    def on_publish(self, batch: Publish) -> None:
        batch.values = [value + b" by " + (batch.keys[0] or b"nobody") for value in batch.values]


class Book:
    """Writes down what it is told."""

    api = 1

    def __init__(self) -> None:
        self.entries = entries
        entries.clear()

    @hook
    def on_topic_created(self, topic: str, config: Any) -> None:
        self.entries.append(("created", topic, config.partitions))

    @hook
    def on_topic_altered(self, topic: str, config: Any) -> None:
        self.entries.append(("altered", topic, config.partitions))

    @hook
    def on_topic_deleted(self, topic: str) -> None:
        self.entries.append(("deleted", topic))

    @hook
    def on_deliver(self, delivery: Delivery) -> None:
        values = [value for batch in delivery.batches() for value in batch.values()]
        self.entries.append((delivery.topic, delivery.index, delivery.records, values))

    @hook
    def on_close(self) -> None:
        self.entries.append("closed")


entries: list[object] = []


def all_values(client: hocket.Client, topic: str, count: int) -> list[bytes]:
    with client.subscribe(topic, start="earliest") as subscription:
        return [subscription.receive(10).value for _ in range(count)]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_batch_is_changed_by_its_columns(codec: str):
    with broker_with(Stamp, Last) as broker:
        client = broker.client
        client.create_topic("t")
        with client.producer("t", codec=codec) as producer:
            producer.send(b"a" * 100, key=b"k", headers={"own": b"1"})
            producer.send(b"b", key=b"l")
        with client.subscribe("t", start="earliest") as subscription:
            first, second = subscription.receive(10), subscription.receive(10)
        assert first.value == b"A" * 100 + b" by k"
        assert first.key == b"k"
        assert first.headers["own"] == b"1"
        assert first.headers["received"].isdigit()
        assert second.value == b"B by k"
        assert set(second.headers) == {"received"}


def test_a_batch_is_rejected_and_the_next_one_is_not():
    with broker_with(Small) as broker:
        client = broker.client
        client.create_topic("t")
        client.publish("t", b"before")
        with pytest.raises(Rejected, match="message 0 has 20 bytes"):
            client.publish("t", b"x" * 20)
        producer = client.producer("t").__enter__()
        assert isinstance(producer.send_future(b"y" * 20).exception(10), Rejected)
        assert producer.send_future(b"behind").result(10).offset == 1
        with pytest.raises(Rejected):  # once more at its end, as for all that is not delivered
            producer.close()
        assert all_values(client, "t", 2) == [b"before", b"behind"]
        assert broker.plugin("small").timings["on_publish"].rejections >= 2
        assert broker.plugin("small").is_on


def test_a_repeated_batch_is_stored_once_though_it_would_be_changed_otherwise():
    with broker_with(Stamp) as broker:
        broker.client.create_topic("t")
        with Raw(broker) as raw:
            raw.send(frames.OpenProducer(2, "t"))
            opened = raw.next(frames.ProducerOpened)
            for sequence in (0, 0, 1, 0):
                batch = encode(
                    [b"%d" % sequence], timestamps=7, producer_id=opened.producer_id,
                    sequence=sequence,
                )  # fmt: skip
                raw.send(frames.Push(0, opened.handle, 0), [batch])
                acked = raw.next(frames.PushAcked)
                assert (acked.sequence, acked.offsets) == (sequence, frames.packed([sequence]))
        assert all_values(broker.client, "t", 2) == [b"0", b"1"]
        assert broker.client.describe("t").partitions[0].end == 2


@pytest.mark.parametrize("apart", [(), (Stamp,)])
def test_another_batch_is_no_repetition_though_both_would_be_changed(apart: tuple[type, ...]):
    with broker_with(Stamp, apart=apart) as broker:
        broker.client.create_topic("t")
        with Raw(broker) as raw:
            raw.send(frames.OpenProducer(2, "t"))
            opened = raw.next(frames.ProducerOpened)

            def push(value: bytes, kind: type) -> frames.Frame:
                batch = encode([value], timestamps=7, producer_id=opened.producer_id, sequence=0)
                raw.send(frames.Push(0, opened.handle, 0), [batch])
                return raw.next(kind)

            push(b"one", frames.PushAcked)
            assert push(b"two", frames.PushRefused).code == "producerConflict"
            push(b"one", frames.PushAcked)
        assert all_values(broker.client, "t", 1) == [b"ONE"]


def test_after_a_restart_a_changed_batch_is_known_by_its_sequence(tmp_path: Path):
    batch = encode([b"one"], timestamps=7, producer_id=b"a producer of 16", sequence=0)
    for _ in range(2):
        with broker_with(Stamp, path=tmp_path) as broker:
            broker.client.create_topic("t", exist_ok=True)
            with Raw(broker) as raw:
                raw.send(frames.Publish(2, "t", 0), [batch])
                assert raw.next(frames.Published).offset == 0
            assert broker.client.describe("t").partitions[0].end == 1


def test_records_cannot_be_added():
    class Doubles:
        api = 1

        @hook
        def on_publish(self, batch: Publish) -> None:
            with pytest.raises(OutOfRange, match="as many values"):
                batch.values = [*batch.values, *batch.values]
            seen.append(len(batch))

    seen: list[int] = []
    with broker_with(Doubles) as broker:
        broker.client.create_topic("t")
        broker.client.publish("t", b"v")
        assert all_values(broker.client, "t", 1) == [b"v"]
    assert seen == [1]


def test_a_transaction_may_be_rejected_and_not_changed():
    with broker_with(Small) as broker:
        broker.client.create_topic("t")
        with broker.client.transaction("job") as transaction:
            transaction.send("t", b"fits")
        with pytest.raises(Rejected), broker.client.transaction("job") as transaction:
            transaction.send("t", b"x" * 20)
        assert all_values(broker.client, "t", 1) == [b"fits"]
    with broker_with(Stamp) as broker:
        broker.client.create_topic("t")
        with (
            pytest.raises(Rejected, match="without a transaction"),
            broker.client.transaction("job") as transaction,
        ):
            transaction.send("t", b"v")


def test_a_delayed_message_is_shown_once_when_it_is_published():
    with broker_with(Stamp) as broker:
        client = broker.client
        client.create_topic("t", delayed=True)
        with client.producer("t") as producer:
            producer.send(b"late", delay=0.2)
        with client.subscribe("t", start="earliest") as subscription:
            message = subscription.receive(10)
        assert message.value == b"LATE"
        assert broker.plugin("stamp").timings["on_publish"].calls == 1


def test_it_is_told_of_topics_and_deliveries():
    with broker_with(Book) as broker:
        client = broker.client
        client.create_topic("t")
        client.publish("t", b"one")
        with client.subscribe("t", index="own", start="earliest") as subscription:
            subscription.receive(10)
        with client.subscribe("t", index="shared", mode="shared", start="earliest") as subscription:
            subscription.receive(10).ack()
        client.alter_topic("t", partitions=2)
        client.delete_topic("t")
    assert entries == [
        ("created", "t", 1),
        ("t", "own", 1, [b"one"]),
        ("t", "shared", 1, [b"one"]),
        ("altered", "t", 2),
        ("deleted", "t"),
        "closed",
    ]


class Door:
    """Lets in whoever says a name backwards; nobody may touch topics of the night."""

    api = 1

    @hook
    def authenticate(self, token: str) -> str | None:
        return token[::-1] if token.startswith("eci") or token == "ydobon" else None

    @hook
    def authorize(self, user: str, topic: str) -> str | None:
        return f"{user} sleeps at night" if topic.startswith("night") and user else None


def test_users_are_known_by_a_token_of_another_kind_and_have_their_roles():
    with broker_with(Door) as broker:
        client = broker.client
        client.create_topic("day")
        client.create_topic("night")
        client.create_user("alice", roles=["admin"])
        url = broker.listen()
        with hocket.connect(url, token="ecila") as alice:
            alice.publish("day", b"v")
            with pytest.raises(NotAllowed, match="alice sleeps at night"):
                alice.publish("night", b"v")
            assert alice.can("alice", "publish", "day").allowed
            assert alice.can("alice", "publish", "night").reason == "alice sleeps at night"
        with pytest.raises(NotAllowed, match="not that of a user"):
            hocket.connect(url, token="ydobon")  # whom the plug-in knows, and the broker does not
        with pytest.raises(NotAllowed, match="not that of a user"):
            hocket.connect(url, token="nothing")


def test_a_user_whom_a_plugin_names_may_be_new_to_the_node():
    with broker_with(Door) as broker:
        client = broker.client
        client.create_user("root", roles=["admin"])
        guarding = broker._broker.node._guarding

        def catch_up(again: Callable[[], None]) -> None:
            """As a node of a cluster does that hears of the user while the login waits."""

            def make() -> None:
                client.create_user("alice", roles=["admin"])
                broker._broker.post(again)

            threading.Thread(target=make).start()

        broker.on_its_thread(lambda: guarding.catch_up_by(catch_up))
        with hocket.connect(broker.listen(), token="ecila") as alice:
            alice.create_topic("t")


class Raw:
    """A connection by frames, without a client that would know better."""

    def __init__(self, broker: BrokerWith) -> None:
        self._frames: queue.Queue[Frame] = queue.Queue()
        self._link = broker._broker.open_link(
            lambda frame, _payload: self._frames.put(frame), lambda _error: None
        )
        self.send(frames.Hello(1, client="raw"))
        self.next(frames.Welcome)

    def send(self, frame: Frame, payload: Any = ()) -> None:
        self._link.send(frame, payload)

    def next(self, kind: type) -> Any:
        while True:
            frame = self._frames.get(timeout=10)
            assert isinstance(frame, kind) or not isinstance(
                frame, frames.Failure | frames.PushRefused
            ), frame
            if isinstance(frame, kind):
                return frame

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_error: object) -> None:
        self._link.close()


class Verbose:
    """Says why at length, and quotes what was published."""

    api = 1

    @hook
    def on_publish(self, batch: Publish) -> None:
        said = batch.values[0].decode()
        if said == "long":
            raise Rejected("x" * 2_000_000)
        if said == "half":
            raise Rejected("\ud83d is half a character")


@pytest.mark.parametrize("apart", [False, True])
def test_a_reason_that_fits_no_frame_is_told_in_part_and_the_connection_goes_on(
    apart: bool,
) -> None:
    with broker_with(Verbose, apart=[Verbose] if apart else [], deadline_ms=10_000) as broker:
        broker.client.create_topic("notes")
        with hocket.connect(broker.listen()) as client:
            for said, told in (("long", "x" * 9_997 + "..."), ("half", "? is half a character")):
                with pytest.raises(Rejected) as caught:
                    client.publish("notes", said.encode(), timeout=10)
                assert str(caught.value) == told
                with pytest.raises(Rejected) as caught, client.producer("notes") as producer:
                    producer.send(said.encode())
                assert str(caught.value) == told
            client.publish("notes", b"short", timeout=10)
