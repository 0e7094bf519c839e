"""A real Kafka broker: one KRaft node on loopback, as it comes, started and stopped by the run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.spark import jars
from benchmarks.spark.jars import NoKafka

HEAP = "-Xmx1g"  # what Kafka's own start script gives it
READY_SECONDS = 60


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    """A broker with an empty data directory under `directory`; its address. Raises NoKafka."""
    java = shutil.which("java")
    if java is None:
        raise NoKafka("there is no Java")
    classpath = os.pathsep.join(str(jar) for jar in jars.broker_jars())
    home = directory / "kafka"
    home.mkdir()
    address, settings = f"127.0.0.1:{free_port()}", home / "server.properties"
    settings.write_text(properties(address, f"127.0.0.1:{free_port()}", home / "data"))
    with (home / "log").open("wb") as log:

        def started(name: str, *arguments: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [java, HEAP, "-cp", classpath, name, *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatting = started(
            "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)
        )
        if formatting.wait(READY_SECONDS):
            raise NoKafka(f"its storage could not be formatted: {tail(home / 'log')}")
        broker = started("kafka.Kafka", str(settings))
        try:
            wait_until_it_listens(address, broker, home / "log")
            yield address
        finally:
            broker.terminate()
            try:
                broker.wait(READY_SECONDS)
            except subprocess.TimeoutExpired:
                broker.kill()
                broker.wait()
            shutil.rmtree(home, ignore_errors=True)


def properties(address: str, controller: str, data: Path) -> str:
    """As Kafka's own server.properties for one node has it, on loopback."""
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_until_it_listens(address: str, broker: subprocess.Popen[bytes], log: Path) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and broker.poll() is None:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise NoKafka(f"it did not start: {tail(log)}")


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-500:].strip()
