"""With durability "memory" nobody waits for the disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import hocket
from hocket.adapters.disk import DirectoryFile
from hocket.errors import Timeout
from hocket.node.broker import Broker


class Gate:
    """Holds every synced write while it is shut."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.held = threading.Event()  # a write waits at the gate

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def pass_through(self) -> None:
        if not self._open.is_set():
            self.held.set()
        self._open.wait()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    write = DirectoryFile.write

    def held(self: DirectoryFile, buffers, position, *, sync=False):
        if sync:
            gate.pass_through()
        write(self, buffers, position, sync=sync)

    monkeypatch.setattr(DirectoryFile, "write", held)
    yield gate
    gate.open()


@pytest.fixture
def client(tmp_path: Path, gate: Gate) -> Iterator[hocket.Client]:
    """Of a broker at a port, so that answers have a way to go."""
    broker = Broker(tmp_path / "data")
    host, port = broker.listen("127.0.0.1", 0)
    broker.start()
    try:
        with hocket.connect(f"hocket://{host}:{port}") as client:
            yield client
            gate.open()
    finally:
        gate.open()
        broker.close()


def test_a_publish_is_acknowledged_and_read_while_the_disk_is_busy(client, gate):
    client.create_topic("quick", durability="memory")
    client.publish("quick", b"0")
    gate.shut()
    for number in range(1, 20):
        assert client.publish("quick", b"%d" % number, timeout=10).offset == number
    assert gate.held.wait(10), "it is written all the same"
    with client.subscribe("quick") as messages:
        assert [messages.receive(10).value for _ in range(20)] == [b"%d" % n for n in range(20)]
    with client.producer("quick") as producer:
        producer.send(b"20")
        producer.flush(10)


def test_where_it_is_to_be_durable_it_waits(client, gate):
    client.create_topic("safe")
    client.publish("safe", b"0")
    gate.shut()
    with pytest.raises(Timeout):
        client.publish("safe", b"1", timeout=0.3)


def test_a_transaction_waits_for_the_disk_in_memory_topics_too(client, gate):
    client.create_topic("quick", durability="memory")
    transaction = client.transaction("job")
    transaction.send("quick", b"0")
    gate.shut()
    with pytest.raises(Timeout):
        transaction.commit(timeout=0.3)
    gate.open()
    transaction.commit(timeout=10)
