from __future__ import annotations

import threading

import pytest

import hocket
from hocket.errors import Closed, DataDirectoryInUse, HocketError
from tests.support.brokers.worlds import new_name
from tests.support.threads import Running


def test_closing_a_client_delivers_commits_and_ends_everything(world):
    name = new_name()
    client = world.connect()
    client.create_topic(name)
    producer = client.producer(name, linger=60)
    producer.send(b"0")
    producer.flush()
    producer.send(b"1")
    sub = client.subscribe(name, index="i")
    sub.receive(timeout=20).ack()
    client.close()
    client.close()
    for call in (
        lambda: producer.send(b"late"),
        producer.flush,
        sub.receive,
        lambda: client.publish(name, b"late"),
        lambda: client.topics(),
        lambda: client.producer(name),
        lambda: client.subscribe(name),
        client.ping,
    ):
        with pytest.raises(Closed):
            call()
    assert "closed" in repr(client)
    with world.connect() as again:
        assert again.describe(name).partitions[0].end == 2
        assert again.lag(name, "i") == 1


def test_those_who_wait_are_told(world):
    name = new_name()
    client = world.connect()
    client.create_topic(name)
    sub = client.subscribe(name)
    with Running(sub.receive) as waiting:
        waiting.parked()
        client.close()
        waiting.failure(Closed)


def test_the_error_of_a_block_is_the_one_that_is_seen(world):
    def fail():
        with world.connect() as client:
            client.ping()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_closing_twice_at_once(world):
    client = world.connect()
    barrier = threading.Barrier(2)

    def close():
        barrier.wait()
        client.close()

    with Running(close), Running(close):
        pass


@pytest.mark.usefixtures("nothing_at_all_left_behind")
def test_an_embedded_broker_keeps_its_data_and_its_directory_for_itself(tmp_path):
    path = tmp_path / "data"
    with hocket.embedded(path) as client:
        client.create_topic("t")
        client.publish("t", b"kept")
        with pytest.raises(DataDirectoryInUse):
            hocket.embedded(path)
    with hocket.embedded(path) as client, client.subscribe("t") as sub:
        assert sub.receive(timeout=20).value == b"kept"


@pytest.mark.usefixtures("nothing_at_all_left_behind")
def test_a_temporary_embedded_broker_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with hocket.embedded() as client:
        client.create_topic("t")
        assert list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("nothing_at_all_left_behind")
def test_a_path_that_cannot_be_used(tmp_path):
    taken = tmp_path / "file"
    taken.write_text("not a directory")
    with pytest.raises((HocketError, OSError)):
        hocket.embedded(taken)
