"""`format("hocket")` through Spark Connect, in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hocket import Client
from hocket.spark import java
from tests.spark.programs.running import run
from tests.support.processes.server import ServerProcess

SECONDS = 240  # far more than it takes, also on a busy machine


@pytest.mark.timeout(SECONDS + 30)
def test_a_batch_and_a_stream_are_read_and_written(
    broker: ServerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    if problem := java.problem():
        pytest.skip(problem)
    target = f"{topic}-copies"
    client.create_topic(topic, partitions=2)
    client.create_topic(target)
    with client.producer(topic) as producer:
        for number in range(1000):
            producer.send(b"%d" % number, key=b"k%d" % (number % 3))
    printed, _ = run(
        "connect_job",
        broker.address,
        topic,
        target,
        str(tmp_path / "checkpoint"),
        scratch=tmp_path,
        timeout=SECONDS,
    )
    assert json.loads(printed) == {"connect": True, "count": 1000, "keys": ["k0", "k1", "k2"]}
    with client.subscribe(target) as copies:
        found = sorted(int(copies.receive(timeout=10).value) for _ in range(2000))
    assert found == sorted([*range(1000), *range(1000)])  # once by the batch, once by the stream
    assert client.describe(target).partitions[0].end == 2000
