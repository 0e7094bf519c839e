"""Pipelines as their users run them: directories, and the command `hocket pipeline`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hocket import Client
from tests.support.cli import HOCKET, environment
from tests.support.java import java_options

RUN_SECONDS = 400.0  # for Spark's start and an update, on a machine that is very busy
LOOK_SECONDS = 0.2
COMMAND = [word for word in HOCKET if word not in ("-W", "error")]  # pyspark warns of its own

QUICK = ("--conf", f"spark.driver.extraJavaOptions={java_options()}")


def hocket(url: str, *args: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    done = subprocess.run(
        [*COMMAND, *args],
        cwd=cwd,
        env=environment(HOCKET_SERVER=url),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    if check:
        assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}\n{logs(cwd)}"
    return done


class Started:
    """A run of a pipeline in a process group of its own, with its JVM in it."""

    def __init__(self, url: str, cwd: Path, *args: str) -> None:
        self.output = cwd / "run.out"
        self._cwd = cwd
        with self.output.open("a") as output:
            self.process = subprocess.Popen(
                [*COMMAND, "pipeline", *args],
                cwd=cwd,
                env=environment(HOCKET_SERVER=url, PYTHONUNBUFFERED="1"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def until(self, predicate: Any, what: str, seconds: float = RUN_SECONDS) -> Any:
        """Wait for this, while the run is alive."""
        deadline = time.monotonic() + seconds
        while not (found := predicate()):
            code = self.process.poll()
            assert code is None, f"the run ended with {code}\n{self.words()}"
            assert time.monotonic() < deadline, f"{what} did not come\n{self.words()}"
            time.sleep(LOOK_SECONDS)
        return found

    def kill(self) -> None:
        """`kill -9` of the run and of Spark, all at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def words(self) -> str:
        return f"{self.output.read_text()[-3000:]}\n{logs(self._cwd)}"


@contextmanager
def started(url: str, cwd: Path, *args: str) -> Iterator[Started]:
    run = Started(url, cwd, *args)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.kill()


def logs(cwd: Path) -> str:
    return "\n".join(
        path.read_text()[-3000:] for path in sorted(cwd.glob("*/state/logs/spark.log"))
    )


def updates(run: Started) -> list[dict[str, Any]]:
    """The updates of a run with --json."""
    lines = run.output.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"number"')]


def publish(client: Client, topic: str, values: list[tuple[bytes, bytes]]) -> None:
    """Keys and values."""
    with client.producer(topic) as producer:
        for key, value in values:
            producer.send(value, key=key)


def count(client: Client, topic: str) -> int:
    return sum(client.find_offsets(topic, "latest"))


def read_all(client: Client, topic: str) -> list[tuple[bytes, bytes]]:
    """Keys and values of all that is in the topic, in the order of each partition."""
    return [(message.key or b"", bytes(message.value)) for message in messages(client, topic)]


def messages(client: Client, topic: str) -> list[Any]:
    found: list[Any] = []
    for partition, (start, end) in enumerate(
        zip(
            client.find_offsets(topic, "earliest"),
            client.find_offsets(topic, "latest"),
            strict=True,
        )
    ):
        if start >= end:
            continue
        with client.subscribe(
            topic, partitions=[partition], positions={partition: start}
        ) as subscription:
            left = end - start
            while left:
                batch = subscription.receive_batch(30)
                found += batch.messages()[:left]
                left -= min(left, batch.count)
    return found


def by_key(records: list[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for key, value in records:
        found.setdefault(key, []).append(value)
    return found
