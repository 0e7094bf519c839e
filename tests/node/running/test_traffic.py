"""What a broker says of itself: what it holds, and what it has taken and given."""

from __future__ import annotations

import logging
from pathlib import Path

from hocket.cli.serve_report import ServeReport
from hocket.client.connection.embedded import EmbeddedConnector
from hocket.client.faces.blocking.client import Client
from hocket.node.broker import Broker
from hocket.node.running.traffic import Traffic


def test_every_way_in_and_out_is_counted_and_only_once(tmp_path: Path):
    broker = Broker(tmp_path / "data")
    broker.start()
    try:
        with Client(EmbeddedConnector(broker)) as client:
            assert broker.node.traffic == Traffic()
            client.create_topic("t", partitions=2)
            client.publish("t", b"one")
            with client.producer("t") as producer:
                producer.send_many([b"two", b"three"])
            with client.transaction("id") as transaction:  # staged first, and counted once
                transaction.send("t", b"four")
            done = broker.node.traffic
            assert done.records_taken == 4
            assert done.bytes_taken > len(b"onetwothreefour")
            with client.subscribe("t", index="own", start="earliest") as subscription:
                for _ in range(4):
                    subscription.receive(timeout=10)
            assert (done.records_given, done.bytes_given) == (4, done.bytes_taken)
            with client.subscribe(
                "t", index="shared", mode="shared", start="earliest"
            ) as subscription:
                for _ in range(4):
                    subscription.receive(timeout=10).ack()
            assert (done.records_given, done.bytes_given) == (8, 2 * done.bytes_taken)
            client.create_topic("later", delayed=True)  # where its messages wait is no partition
            held = broker.node.holdings()
            assert (held.topics, held.partitions, held.durability) == (2, 3, {"quorum": 2})
            assert held.memory_bytes >= done.bytes_taken
    finally:
        broker.close()
    assert broker.connections_total == 1


def test_a_broker_that_an_error_stops_says_so_too(tmp_path: Path, caplog):
    broker = Broker(tmp_path / "data")
    broker.close()
    with caplog.at_level(logging.INFO, "hocket.serve"):
        ServeReport(broker, tmp_path / "data", 0.0, 1.0).stopped("an error", None)
    assert "stopped by an error after " in caplog.text
    assert caplog.text.rstrip().endswith("closed in 0 ms")
