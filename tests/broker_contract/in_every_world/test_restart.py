"""A broker that ends and comes back: what was acknowledged is there, and clients go on."""

from __future__ import annotations

import pytest

import hocket
from hocket import errors
from hocket.node.settings import NodeSettings
from tests.support.brokers.every_world import only, take, values
from tests.support.node.running import running
from tests.support.threads import Running, until

RETURN_SECONDS = 55  # in which a broker is back, were it a cluster on a busy machine


@only("embedded", "cluster")
def test_a_broker_finds_everything_again(world, tmp_path):
    path = tmp_path / "data"
    with world.life(path) as client:
        client.create_topic("kept", partitions=2, memory_retention="3m", durability="memory")
        client.create_topic("gone")
        client.delete_topic("gone")
        with client.producer("kept") as producer:
            for number in range(100):
                producer.send(b"%d" % number, key=b"k", headers={"n": b"%d" % number}, partition=1)
        with client.subscribe("kept", index="i", hold_retention=True) as messages:
            take(messages, 30)[-1].ack()
        config = client.describe("kept").config
    with world.life(path) as client:
        assert client.topics() == ["kept"]
        assert client.describe("kept").config == config
        assert [each.end for each in client.describe("kept").partitions] == [0, 100]
        (index,) = client.indexes("kept")
        assert (index.name, index.hold_retention, index.lag) == ("i", True, 70)
        with client.subscribe("kept", index="i") as messages:
            found = take(messages, 70)
        assert values(found) == [b"%d" % number for number in range(30, 100)]
        assert found[0].headers == {"n": b"30"}
        assert client.publish("kept", b"next", partition=1).offset == 100


@only("embedded", "cluster")
def test_what_is_prepared_and_what_is_dropped_outlives_the_broker(world, tmp_path):
    def prepare(client, value: bytes):
        transaction = client.transaction("job", number=7)
        transaction.send("t", value)
        return transaction.prepare()

    with world.life(tmp_path / "data") as client:
        client.create_topic("t")
        kept, dropped = prepare(client, b"kept"), prepare(client, b"dropped")
        client.drop_prepared("job", 7, dropped)
        aborted = client.transaction("job", number=7)
        aborted.send("t", b"aborted")
        aborted.abort()
        client.transaction("job", number=7).send("t", b"open when the client is closed")
    with world.life(tmp_path / "data") as client:
        with pytest.raises(errors.TransactionAborted):
            client.commit_prepared("job", 7, dropped)
        client.commit_prepared("job", 7, kept)
        with client.transaction("other", number=7) as transaction:
            transaction.send("t", b"another")
    with world.life(tmp_path / "data") as client:
        client.commit_prepared("job", 7, kept)  # done already
        with client.subscribe("t") as messages:
            assert values(take(messages, 2)) == [b"kept", b"another"]
        assert client.describe("t").partitions[0].end == 2


@only("embedded", "cluster")
def test_the_delay_of_a_nack_outlives_the_broker(world, tmp_path):
    shared = {"index": "workers", "mode": "shared", "failover": "fast"}
    with world.life(tmp_path / "data") as client:
        client.create_topic("t")
        client.publish("t", b"later")
        client.publish("t", b"now")
        with client.subscribe("t", **shared) as messages:
            later, _now = take(messages, 2)
            later.nack(delay="1h")
            messages.commit()
    with world.life(tmp_path / "data") as client, client.subscribe("t", **shared) as messages:
        (now,) = take(messages, 1)
        assert now.value == b"now", "the other one comes in an hour"


@only(
    "served",
    not_in_a_cluster="the settings of a node are not options of `hocket serve`, and the test looks"
    " into the node; tests/node/requests/test_transacting_in_hard_times.py has dropped stages",
)
def test_what_was_dropped_for_its_age_is_done_again_under_the_same_number(world, tmp_path):
    """A client that died, and comes back after the broker has given it up."""
    settings = NodeSettings(transaction_timeout_us=200_000)
    with (
        running(tmp_path / "data", settings) as (broker, (host, port)),
        world.connect(f"hocket://{host}:{port}") as client,
    ):
        client.create_topic("t")
        transaction = client.transaction("job", number=7)
        transaction.send("t", b"x")
        parts = transaction.prepare()
        stages = next(iter(broker.node._wiring.partitions)).core.stages
        until(lambda: not stages.producers)
        with pytest.raises(errors.TransactionAborted):
            client.commit_prepared("job", 7, parts)
        with client.transaction("job", number=7) as transaction:
            transaction.send("t", b"x")
        client.commit_prepared("job", 7, parts)  # as many records: done already
        assert client.describe("t").partitions[0].end == 1


@only("embedded", "cluster")
def test_again_and_again(world, tmp_path):
    for life in range(4):
        with world.life(tmp_path / "data") as client:
            client.create_topic("t", exist_ok=True)
            assert client.publish("t", b"%d" % life).offset == life
            with client.subscribe("t") as messages:
                found = values(take(messages, life + 1))
            assert found == [b"%d" % number for number in range(life + 1)]


@only("embedded", not_in_a_cluster="it is about one data directory, whoever opens it")
def test_two_brokers_cannot_have_one_directory(world, tmp_path):
    with world.embedded(tmp_path / "data") as client:
        with pytest.raises(errors.DataDirectoryInUse, match="data"):
            world.embedded(tmp_path / "data")
        client.create_topic("t")
    with world.embedded(tmp_path / "data") as client:
        assert client.topics() == ["t"]


@only("embedded", not_in_a_cluster="it is about a broker that ends with its client")
def test_closing_the_client_of_an_embedded_broker_ends_everything(world, tmp_path):
    client = world.embedded(tmp_path / "data")
    client.create_topic("t")
    producer = client.producer("t", linger=60)
    producer.send(b"x")
    messages = client.subscribe("t", index="i")
    client.close()
    for late in (
        lambda: client.publish("t", b"y"),
        client.topics,
        lambda: client.subscribe("t"),
        lambda: client.producer("t"),
        lambda: producer.send(b"y"),
        lambda: messages.receive(1),
    ):
        with pytest.raises(errors.Closed):
            late()
    client.close()
    with world.embedded(tmp_path / "data") as client:
        assert client.describe("t").partitions[0].end == 1


@pytest.fixture
def server(world, tmp_path):
    with world.server(tmp_path / "data") as server:
        yield server


def restart(server) -> None:
    assert server.terminate() == 0
    server.start()


@only("served", "cluster")
def test_clients_go_on_by_themselves(world, server):
    with world.connect(server.address) as client:
        client.create_topic("t", partitions=2)
        with (
            client.producer("t", linger=0.001) as producer,
            client.subscribe("t", index="i") as indexed,
            client.subscribe("t") as plain,
        ):
            told = {}
            for life in range(3):
                futures = {}
                for number in range(40):
                    value = b"%d:%d" % (life, number)
                    futures[value] = producer.send_future(value, key=value)
                producer.flush(30)
                told |= {value: future.result(30) for value, future in futures.items()}
                value = b"one-off %d" % life
                told[value] = client.publish("t", value)
                for messages in (indexed, plain):
                    found = take(messages, 41)
                    assert len(set(values(found))) == 41
                    for message in found:
                        position = told[message.value]
                        assert (message.partition, message.offset) == position[1:]
                        if messages is indexed:
                            message.ack()
                indexed.commit()
                if life < 2:
                    restart(server)
        assert client.lag("t", "i") == 0
        assert sum(each.end for each in client.describe("t").partitions) == len(told) == 123


@only("served", "cluster")
def test_what_is_sent_while_the_broker_is_away_is_delivered_when_it_is_back(world, server):
    with world.connect(server.address) as client:
        client.create_topic("t")
        client.publish("t", b"before")
        with client.producer("t") as producer, client.subscribe("t") as messages:
            assert server.terminate() == 0
            for number in range(100):
                producer.send(b"%d" % number)
            with (
                Running(client.publish, "t", b"published", timeout=RETURN_SECONDS) as publishing,
                Running(producer.flush, RETURN_SECONDS) as flushing,
            ):
                server.start()
                flushing.result(RETURN_SECONDS)
                publishing.result(RETURN_SECONDS)
            found = values(take(messages, 102))
        sent = [b"%d" % number for number in range(100)]
        assert found[0] == b"before"
        assert [value for value in found if value in set(sent)] == sent
        assert found.count(b"published") == 1


@only("served", "cluster")
def test_whoever_waits_for_a_message_waits_on(world, server):
    with world.connect(server.address) as client, world.connect(server.address) as other:
        client.create_topic("t")
        with (
            client.subscribe("t", index="i") as messages,
            Running(messages.receive, 30) as waiting,
        ):
            restart(server)
            other.publish("t", b"x", timeout=30)
            assert waiting.result().value == b"x"


@only("served", "cluster")
def test_acks_that_were_not_confirmed_are_sent_again(world, server):
    with world.connect(server.address) as client:
        client.create_topic("t")
        for number in range(5):
            client.publish("t", b"%d" % number)
        with client.subscribe("t", index="i") as messages:
            found = take(messages, 5)
            assert server.terminate() == 0
            found[3].ack()
            server.start()
            messages.commit(30)
            assert client.lag("t", "i", timeout=30) == 1


@only(
    "served",
    not_in_a_cluster="nobody but a cluster can open the data of a cluster meanwhile; readers"
    " that are away while a topic grows are in tests/cluster/test_spread.py",
)
def test_partitions_that_came_while_a_reader_was_away_are_read_from_their_beginning(world, server):
    """A subscription that began at the end still sees every message that came afterwards."""
    with world.connect(server.address) as client:
        client.create_topic("t")
        with client.subscribe("t", start="latest") as messages:
            assert server.terminate() == 0
            with hocket.embedded(server.data) as meanwhile:
                meanwhile.alter_topic("t", partitions=2)
                meanwhile.publish("t", b"new", partition=1)
            server.start()
            assert messages.receive(5).value == b"new"


@only("served", "cluster")
def test_with_the_broker_away_every_call_ends_in_its_time(world, server):
    with world.connect(server.address) as client:
        client.create_topic("t")
        client.publish("t", b"x")
        assert server.terminate() == 0
        with pytest.raises((errors.Timeout, errors.NoConnection)) as unpublished:
            client.publish("t", b"x", timeout=0.2)
        for call in (
            lambda: client.describe("t", timeout=0.2),
            lambda: client.create_topic("u", timeout=0.2),
            lambda: client.subscribe("t", timeout=0.2),
            lambda: client.producer("t", timeout=0.2),
        ):
            with pytest.raises((errors.Timeout, errors.NoConnection, errors.ReplyLost)) as caught:
                call()
            assert "0.2" in str(caught.value) or "connection" in str(caught.value)
        server.start()
        assert client.topics(timeout=30) == ["t"]
        client.publish("t", b"behind it", timeout=30)
        with client.subscribe("t") as messages:
            found = values(take(messages, client.describe("t").partitions[0].end))
        if unpublished.value.may_have_happened:  # it had left before the loss was noticed
            assert found in ([b"x", b"behind it"], [b"x", b"x", b"behind it"])
        else:
            assert found == [b"x", b"behind it"]
