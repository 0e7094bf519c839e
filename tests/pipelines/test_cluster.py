"""One pipeline's directory, run locally and then on Spark's standalone cluster, unchanged.

The broker is a cluster of three nodes. In the middle a worker of Spark's is killed, then the node
that leads what the pipeline reads. A part of `make test-pipelines`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.kills.brokers import ThreeNodes
from tests.support.pipelines import by_key, count, hocket, publish, read_all, started
from tests.support.threads import LONG

CHUNK = 2000

pytestmark = [
    pytest.mark.usefixtures("java"),
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not LONG, reason="minutes, and six JVMs: make test-pipelines"),
]


def chunk(number: int) -> list[tuple[bytes, bytes]]:
    first = number * CHUNK
    return [(b"k%d" % (each % 13), b"%d" % each) for each in range(first, first + CHUNK)]


def test_a_worker_and_a_broker_node_die_in_the_middle(tmp_path: Path) -> None:
    from tests.support.standalone import HOSTS, Standalone

    nodes = ThreeNodes(tmp_path)
    try:
        nodes.start()
        with nodes.client() as client, Standalone(tmp_path) as spark:
            for topic in ("wide.in", "wide.out"):
                client.create_topic(topic, partitions=3, replication=3)
            nodes.know("wide.in", "wide.out")
            out = lambda: count(client, "wide.out")  # noqa: E731
            hocket(nodes.servers, "pipeline", "init", "wide", cwd=tmp_path)
            publish(client, "wide.in", chunk(0))
            hocket(nodes.servers, "pipeline", "run", "wide", "--once", cwd=tmp_path)
            assert out() == CHUNK

            command = ("submit", "wide", "--master", spark.master, "--every", "1s")
            memory = ("--conf", "spark.executor.memory=512m")
            with started(nodes.servers, tmp_path, *command, *memory) as run:
                publish(client, "wide.in", chunk(1))
                run.until(lambda: out() == 2 * CHUNK, "what the cluster read")
                shipped = list(spark.work(HOSTS[1]).glob("*/*/hocket-shipped/hocket/__init__.py"))
                assert shipped, "Hocket was sent along"

                publish(client, "wide.in", chunk(2))
                spark.kill(HOSTS[1])
                publish(client, "wide.in", chunk(3))
                run.until(lambda: out() == 4 * CHUNK, "what one worker read")

                publish(client, "wide.in", chunk(4))
                nodes.kill_leader("wide.in")
                publish(client, "wide.in", chunk(5))
                run.until(lambda: out() == 6 * CHUNK, "what two nodes served")
                nodes.bring_back()
                publish(client, "wide.in", chunk(6))
                run.until(lambda: out() == 7 * CHUNK, "the end")
                assert run.terminate() == 0
            sent = [each for number in range(7) for each in chunk(number)]
            assert by_key(read_all(client, "wide.out")) == by_key(sent)
    finally:
        nodes.close()


def test_a_master_that_dies_is_said_and_the_next_run_goes_on(tmp_path: Path) -> None:
    import hocket as package
    from tests.support.processes.server import ServerProcess
    from tests.support.standalone import HOSTS, Standalone

    with (
        ServerProcess(tmp_path / "data") as broker,
        package.connect(broker.address) as client,
    ):
        hocket(broker.address, "pipeline", "init", "lost", cwd=tmp_path)
        publish(client, "lost.in", chunk(0))
        with Standalone(tmp_path) as spark:
            command = ("submit", "lost", "--master", spark.master, "--every", "1s")
            memory = ("--conf", "spark.executor.memory=512m", "--retries", "1")
            with started(broker.address, tmp_path, *command, *memory) as run:
                run.until(lambda: count(client, "lost.out") == CHUNK, "what the cluster read")
                for name in ("master", *HOSTS):
                    spark.kill(name)
                publish(client, "lost.in", chunk(1))
                assert run.process.wait(400) == 1
                words = run.output.read_text()
            assert "master" in words.lower(), words
        hocket(broker.address, "pipeline", "run", "lost", "--once", cwd=tmp_path)
        assert by_key(read_all(client, "lost.out")) == by_key([*chunk(0), *chunk(1)])
