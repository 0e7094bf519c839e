"""What callers are told when a broker refuses, is slow, or goes away; over real sockets."""

from __future__ import annotations

import asyncio

import pytest

import hocket
from hocket import frames
from hocket.client_core.producing.outgoing import Positions
from hocket.errors import (
    CorruptData,
    MessageTooLarge,
    OutcomeUnknown,
    OutOfRange,
    Timeout,
    UnknownTopic,
)
from hocket.frames import packed
from hocket.model import Limits, Position
from tests.support.client.scripted import ModelBroker, stored
from tests.support.client.sockets import ScriptedServer, usual
from tests.support.threads import Running, run, until, until_async


class Model(ModelBroker):
    """The model at a port; it can hold its tongue about what it stores."""

    silent = False
    limits = Limits()

    def __call__(self, frame, payload):
        if isinstance(frame, frames.Hello):
            return [frames.Welcome(frame.request, 1, "node", "software", (), self.limits)]
        known = (frames.OpenProducer, frames.CloseHandle, frames.Ping, frames.Push, frames.Publish)
        if not isinstance(frame, known):
            return usual(frame, payload)
        answers = self.answer(frame, payload)
        return [] if self.silent and isinstance(frame, frames.Push | frames.Publish) else answers


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def server(model):
    with ScriptedServer(model) as made:
        yield made


@pytest.fixture
def client(server):
    with hocket.connect(server.url) as made:
        yield made


# --- publishing ----------------------------------------------------------------------------------


def test_a_publish_that_is_not_answered_may_be_stored(model, client):
    client.publish("t", b"first")
    model.silent = True
    with pytest.raises(Timeout, match="may be stored") as caught:
        client.publish("t", b"second", timeout=0.05)
    assert type(caught.value) is OutcomeUnknown
    assert caught.value.may_have_happened
    assert model.logs[0].values == [b"first", b"second"]


def test_a_publish_that_waits_behind_another_is_taken_back(model, server, client):
    client.publish("t", b"first")
    model.silent = True
    with Running(client.publish, "t", b"second", timeout=20) as second:
        until(lambda: server.kinds().count("Publish") == 2)
        with pytest.raises(Timeout, match="was not sent") as caught:
            client.publish("t", b"third", timeout=0.05)
        assert type(caught.value) is Timeout
        assert not caught.value.may_have_happened
        model.silent = False
        server.cut()
        assert second.result() == Position("t", 0, 1)
    client.publish("t", b"fourth")
    assert model.logs[0].values == [b"first", b"second", b"fourth"]


def test_an_interrupted_publish_does_not_happen_later(model, server, client):
    client.publish("t", b"first")
    model.silent = True
    with Running(client.publish, "t", b"second", timeout=20) as second:
        until(lambda: server.kinds().count("Publish") == 2)

        async def publish_and_give_up():
            async with hocket.aio.connect(server.url) as other:
                one = asyncio.create_task(other.publish("t", b"x", timeout=20))
                await until_async(lambda: server.kinds().count("Publish") == 3)
                two = asyncio.create_task(other.publish("t", b"never"))
                await asyncio.sleep(0)
                two.cancel()
                await asyncio.gather(two, return_exceptions=True)
                model.silent = False
                server.cut()
                await one

        run(publish_and_give_up())
        second.result()
    assert sorted(model.logs[0].values) == [b"first", b"second", b"x"]


def test_a_publish_that_is_refused(model, client):
    client.publish("t", b"first")
    model.refuse = "corruptData"
    with pytest.raises(CorruptData, match="not now") as caught:
        client.publish("t", b"second")
    assert not caught.value.may_have_happened
    model.refuse = None
    assert client.publish("t", b"third") == Position("t", 0, 1)


# --- producing -----------------------------------------------------------------------------------


def test_an_error_is_told_to_all_who_asked_and_raised_once(model, client):
    told = []
    with client.producer("t", on_delivery=told.append) as producer:
        model.refuse = "corruptData"
        future = producer.send_future(b"bad")
        with pytest.raises(CorruptData, match="not now"):
            producer.flush(timeout=20)
        with pytest.raises(CorruptData):
            future.result(timeout=20)
        producer.flush(timeout=20)  # it was told
        model.refuse = None
        producer.send(b"good")
        producer.flush(timeout=20)
    until(lambda: len(told) == 2)
    assert isinstance(told[0], CorruptData)
    assert isinstance(told[1], Positions)
    assert model.logs[0].values == [b"good"]


def test_closing_raises_what_was_not_told(model, client):
    producer = client.producer("t")
    model.refuse = "corruptData"
    producer.send(b"bad")
    with pytest.raises(CorruptData):
        producer.close()
    producer.close()
    producer = client.producer("t")
    producer.send(b"bad")
    with pytest.raises(CorruptData):
        client.close()


def test_the_error_of_the_block_hides_that_of_closing(model, client):
    def fail():
        with client.producer("t") as producer:
            model.refuse = "corruptData"
            producer.send(b"bad")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_batches_are_as_large_as_the_broker_takes(model, client):
    model.limits = Limits(batch_bytes_max=50_000)
    with hocket.connect(client._engine.session.target) as strict:
        with strict.producer("t", batch_bytes="1MiB") as producer:
            producer.send_many([bytes(1000)] * 200)
            with pytest.raises(MessageTooLarge):
                producer.send(bytes(60_000))
        with pytest.raises(MessageTooLarge):
            strict.publish("t", bytes(60_000))
    assert len(model.logs[0].values) == 200
    assert all(len(entry) <= 50_000 for _, entry in model.logs[0].entries)


def test_rows_are_split_until_the_broker_takes_them(model, client):
    pyarrow = pytest.importorskip("pyarrow")
    model.limits = Limits(batch_bytes_max=50_000)
    values = [b"%04d" % n + bytes(996) for n in range(200)]
    rows = pyarrow.RecordBatch.from_pydict({"value": values})
    with (
        hocket.connect(client._engine.session.target) as strict,
        strict.producer("t") as producer,
    ):
        producer.send_arrow(rows)
        with pytest.raises(MessageTooLarge):
            producer.send_arrow(pyarrow.RecordBatch.from_pydict({"value": [bytes(60_000)]}))
    assert model.logs[0].values == values


def test_a_gathering_that_grew_too_large_is_cut_in_two(model, client):
    """Threads that send at once may overfill a batch: `room` is a hint only."""
    with client.producer("t", linger=60) as producer:
        gathering = producer._core.sticky
        for _ in range(3):
            gathering.items.append(bytes(60 << 20))
        producer.flush(timeout=60)
    assert [len(value) for value in model.logs[0].values] == [60 << 20] * 3


def test_frames_are_few(model, server, client):
    """A thousand records are one batch, one frame and one answer."""
    with client.producer("t", linger=60) as producer:
        for n in range(1000):
            producer.send(b"%d" % n)
    assert server.kinds().count("Push") == 1


def test_asyncio_errors(model, server):
    async def main():
        async with hocket.aio.connect(server.url) as client:
            told = []
            producer = await client.producer("t", on_delivery=told.append)
            model.refuse = "corruptData"
            future = await producer.send_future(b"bad")
            with pytest.raises(CorruptData):
                await producer.flush(timeout=20)
            with pytest.raises(CorruptData):
                await future
            with pytest.raises(CorruptData):
                await client.publish("t", b"bad")
            model.refuse = None
            await producer.send(b"good")
            await producer.close()
            await producer.close()
            assert [type(each) for each in told] == [CorruptData, Positions]
            model.silent = True
            with pytest.raises(Timeout) as caught:
                await client.publish("t", b"late", timeout=0.05)
            assert type(caught.value) is OutcomeUnknown
            assert caught.value.may_have_happened

    run(main())
    assert model.logs[0].values == [b"good", b"late"]


def test_asyncio_producer_details(model, server):
    pyarrow = pytest.importorskip("pyarrow")

    async def main():
        async with hocket.aio.connect(server.url) as client:
            assert "ready" in repr(client)
            async with client.producer("t", linger=60) as producer:
                assert producer.topic == "t"
                assert "'t'" in repr(producer)
                await producer.send_arrow(pyarrow.RecordBatch.from_pydict({"value": [b"a", b"b"]}))
                await producer.send_many([b"c"])
                assert not (await producer.send_future(b"d")).done()

    run(main())
    assert model.logs[0].values == [b"a", b"b", b"c", b"d"]


# --- subscriptions -------------------------------------------------------------------------------


def subscribed(frame, payload):
    if isinstance(frame, frames.OpenSubscription):
        return [frames.SubscriptionOpened(frame.request, 7, packed([0, 0]))]
    return usual(frame, payload)


def test_a_subscription_that_ends_tells_those_who_wait():
    with ScriptedServer(subscribed) as server, hocket.connect(server.url) as client:
        sub = client.subscribe("t", index="i")
        with Running(list, sub) as reading:
            reading.parked()
            server.answer = lambda frame, payload: [
                frames.HandleEnded(0, 7, "unknownTopic", "gone"),
                *usual(frame, payload),
            ]
            client.ping()
            reading.failure(UnknownTopic)
        sub.close()


def test_a_commit_that_is_not_confirmed():
    def answer(frame, payload):
        if isinstance(frame, frames.Commit):
            return []
        return subscribed(frame, payload)

    with ScriptedServer(answer) as server:
        client = hocket.connect(server.url)
        sub = client.subscribe("t", index="i")
        (link,) = client._engine.links
        frame = frames.Deliver(0, 7, 0, 0, 1), memoryview(stored([b"a"], 0))
        link._owner.received(link, [frame])
        sub.receive(timeout=5).ack()
        with pytest.raises(Timeout, match="not confirmed") as caught:
            sub.commit(timeout=0.05)
        assert type(caught.value) is OutcomeUnknown
        assert caught.value.may_have_happened
        with pytest.raises(Timeout):
            client.close(timeout=0.05)


# --- several requests at once --------------------------------------------------------------------


class Seeks:
    """Answers seeks only when there are so many of them, the last one first."""

    def __init__(self, number: int, refused: tuple[int, ...] = ()) -> None:
        self.number = number
        self.refused = refused
        self.asked: list[frames.SeekIndex] = []

    def __call__(self, frame, payload):
        if not isinstance(frame, frames.SeekIndex):
            return usual(frame, payload)
        self.asked.append(frame)
        if len(self.asked) < self.number:
            return []
        return [self.answer(each) for each in reversed(self.asked)]

    def answer(self, frame: frames.SeekIndex):
        if frame.partition in self.refused:
            return frames.Failure(frame.request, "outOfRange", f"not in {frame.partition}")
        return frames.Offsets(frame.request, packed([frame.start.value]))


PLACES = {2: 7, 0: 5, 1: 6}


@pytest.mark.parametrize("refused", [(), (0,), (1, 0), (0, 1, 2)])
def test_seeks_of_several_partitions_are_under_way_together(refused):
    seeks = Seeks(3, refused)
    with ScriptedServer(seeks) as server, hocket.connect(server.url) as client:
        if refused:
            with pytest.raises(OutOfRange, match=r"not in [02]") as caught:
                client.seek("t", "i", PLACES, timeout=20)
            assert caught.value.may_have_happened == (len(refused) < 3)  # the others have moved
        else:
            assert client.seek("t", "i", PLACES, timeout=20) == PLACES
    assert {each.partition: each.start.value for each in seeks.asked} == PLACES


@pytest.mark.parametrize("refused", [(), (0,), (1, 0), (0, 1, 2)])
def test_seeks_of_several_partitions_are_awaited_together(refused):
    seeks = Seeks(3, refused)

    async def main(url: str) -> None:
        async with hocket.aio.connect(url) as client:
            if refused:
                with pytest.raises(OutOfRange, match=r"not in [02]") as caught:
                    await client.seek("t", "i", PLACES, timeout=20)
                assert caught.value.may_have_happened == (len(refused) < 3)  # the others have moved
            else:
                assert await client.seek("t", "i", PLACES, timeout=20) == PLACES

    with ScriptedServer(seeks) as server:
        run(main(server.url))
    assert {each.partition: each.start.value for each in seeks.asked} == PLACES


def test_seeks_that_are_not_all_answered_in_time():
    seeks = Seeks(4)
    with ScriptedServer(seeks) as server, hocket.connect(server.url) as client:
        with pytest.raises(OutcomeUnknown, match=r"SeekIndex was not answered within 0\.05 s"):
            client.seek("t", "i", PLACES, timeout=0.05)
        assert client.topics() == []  # it goes on
