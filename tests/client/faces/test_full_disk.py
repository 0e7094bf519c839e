"""Whoever writes to a broker whose disk is full hears of the disk, and soon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

import hocket
from hocket.adapters.disk import DirectoryDisk
from hocket.client_core.producing import delivery, staging
from hocket.errors import StorageFull


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[hocket.Client]:
    """Of a broker in this process, that is tried again for a shorter time than usual."""
    monkeypatch.setattr(delivery, "FULL_US", 300_000)
    monkeypatch.setattr(staging, "FULL_US", 300_000)
    with hocket.embedded() as client:
        client.create_topic("t")
        yield client


@pytest.fixture
def full(client: hocket.Client) -> Iterator[pytest.MonkeyPatch]:
    """The disk has no room, until this is undone."""
    client.publish("t", b"before")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectoryDisk, "free_bytes", lambda _disk: 0)
        refuse_soon(client)
        yield patch


def refuse_soon(client: hocket.Client) -> None:
    """The broker looks at its disk every 100 ms; what it admits until then is stored."""
    with suppress(StorageFull):
        while True:
            client.publish("t", b"x", timeout=10)


def test_publish_says_it_and_goes_on_when_there_is_room(client, full):
    with pytest.raises(StorageFull, match=r"the disk of .* is full .* goes on by itself") as raised:
        client.publish("t", b"refused")
    assert not raised.value.may_have_happened
    with pytest.raises(StorageFull, match="the disk of"):
        client.publish("t", b"refused", timeout=0.2)
    full.undo()
    assert client.publish("t", b"after").offset > 0


def test_a_producer_says_it_by_flush_futures_and_the_next_send(client, full):
    with client.producer("t") as producer:
        future = producer.send_future(b"refused")
        with pytest.raises(StorageFull, match="the disk of"):
            producer.flush(timeout=10)
        with pytest.raises(StorageFull):
            future.result(timeout=10)
        producer.send(b"refused too")
        with pytest.raises(StorageFull, match="the disk of"):
            producer.flush(timeout=0.1)  # sooner than the producer gives up
        with pytest.raises(StorageFull):  # whoever only sends hears of it as well
            producer.send_many([bytes(100_000)] * 1000)
        full.undo()
        with suppress(StorageFull):  # of what was taken before `send_many` raised
            producer.flush(timeout=10)
        producer.send(b"after")
        producer.flush(timeout=10)


def test_a_transaction_says_it_when_it_stages_and_when_it_commits(client, full):
    with pytest.raises(StorageFull, match="the disk of"), client.transaction("job") as transaction:
        transaction.send("t", b"refused")
    full.undo()
    with client.transaction("job", number=1) as transaction:
        transaction.send("t", b"staged")
        transaction.prepare()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectoryDisk, "free_bytes", lambda _disk: 0)
        refuse_soon(client)
        with pytest.raises(StorageFull, match="the disk of") as raised:
            client.commit_prepared("job", 1, transaction.prepared, timeout=10)
        assert not raised.value.may_have_happened
    client.commit_prepared("job", 1, transaction.prepared, timeout=10)


def test_topics_can_be_deleted_and_changed_and_indexes_move(client, full):
    with client.subscribe("t", index="reader") as messages:
        messages.receive(timeout=5).ack()
        messages.commit(timeout=5)
    client.delete_index("t", "reader")
    client.alter_topic("t", disk_retention="1d")
    client.delete_topic("t")
    assert client.topics() == []
