"""What is measured of the broker: a real `hocket serve` in its own process, over loopback."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep

import hocket
import hocket.aio
from benchmarks.report import family_seconds
from hocket import Client, Producer

_names = itertools.count()
READY_SECONDS = 30
SETTLED_SECONDS_MAX = 15.0
LOOK_SECONDS = 0.2
IDLE_CORES = 0.4  # that this process and its brokers use at most when nothing is left to write


@contextmanager
def serving(directory: Path, *options: str) -> Iterator[str]:
    """A broker with an empty data directory; its address."""
    with tempfile.TemporaryDirectory(dir=directory, prefix=".bench-") as data:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "hocket.cli",
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--data",
                data,
                *options,
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(READY_SECONDS)
            assert process.stdout is not None
            process.stdout.close()


def wait_settled() -> None:
    """Until brokers have written what they owe to segments, and the kernel to the disk.

    They do so for seconds after records were acknowledged, and a row that reads would measure that
    work and not its own: three nodes write at the same time what one node writes bit by bit.
    """
    os.sync()
    began, spent = perf_counter(), family_seconds()
    while perf_counter() - began < SETTLED_SECONDS_MAX:
        sleep(LOOK_SECONDS)
        before, spent = spent, family_seconds()
        if spent - before < IDLE_CORES * LOOK_SECONDS:
            return


class Bench:
    """One broker for all rows; a new topic for each measurement, deleted afterwards.

    `partitions`: every topic has so many, whatever the measurement would give it. `replication`:
    every topic has so many replicas; None: as many as a broker gives it by itself.
    """

    def __init__(
        self,
        url: str,
        value: bytes,
        partitions: int | None = None,
        replication: int | None = None,
    ) -> None:
        self.url = url
        self.value = value
        self._partitions = partitions
        self._replication = replication

    @contextmanager
    def topic(self, client: Client, partitions: int = 1) -> Iterator[str]:
        name = f"bench-{next(_names)}"
        partitions = self._partitions or partitions
        client.create_topic(
            name, partitions=partitions, memory_bytes="1GiB", replication=self._replication
        )
        try:
            yield name
        finally:
            client.delete_topic(name)

    @contextmanager
    def producer(self, *, partitions: int) -> Iterator[Producer]:
        with (
            hocket.connect(self.url) as client,
            self.topic(client, partitions) as topic,
            client.producer(topic) as producer,
        ):
            yield producer

    def produce(self, count: int) -> float:
        """`send` in a loop, until every record is acknowledged, and so on disk."""
        value = self.value
        with self.producer(partitions=1) as producer:
            send = producer.send
            start = perf_counter()
            for _ in range(count):
                send(value)
            producer.flush()
            return perf_counter() - start

    def produce_keyed(self, count: int) -> float:
        value = self.value
        keys = [b"key-%d" % number for number in range(1000)]
        with self.producer(partitions=4) as producer:
            send = producer.send
            start = perf_counter()
            for key in itertools.islice(itertools.cycle(keys), count):
                send(value, key)
            producer.flush()
            return perf_counter() - start

    def produce_lists(self, count: int) -> float:
        values = [self.value] * 10_000
        with self.producer(partitions=1) as producer:
            start = perf_counter()
            for _ in range(max(1, count // len(values))):
                producer.send_many(values)
            producer.flush()
            elapsed = perf_counter() - start
        return elapsed * count / (max(1, count // len(values)) * len(values))

    def _filled(self, client: Client, topic: str, count: int) -> None:
        with client.producer(topic) as producer:
            producer.send_many([self.value] * count)
        wait_settled()

    def consume(self, count: int) -> float:
        """`for m in sub`, the value of every message looked at."""
        with hocket.connect(self.url) as client, self.topic(client) as topic:
            self._filled(client, topic, count)
            with client.subscribe(topic) as messages:
                size = 0
                start = perf_counter()
                for message in itertools.islice(messages, count):
                    size += len(message.value)
                elapsed = perf_counter() - start
        assert size == count * len(self.value)
        return elapsed

    def consume_arrow(self, count: int) -> float:
        with hocket.connect(self.url) as client, self.topic(client) as topic:
            self._filled(client, topic, count)
            with client.subscribe(topic) as messages:
                received = 0
                start = perf_counter()
                for batch in messages.batches():
                    received += batch.to_arrow().num_rows
                    if received >= count:
                        break
                return perf_counter() - start

    def consume_shared(self, count: int) -> float:
        """One consumer of a shared index, each message acknowledged by itself, all durable."""
        with hocket.connect(self.url) as client, self.topic(client) as topic:
            self._filled(client, topic, count)
            with client.subscribe(topic, index="workers", mode="shared") as messages:
                start = perf_counter()
                for message in itertools.islice(messages, count):
                    message.ack()
                messages.commit()
                return perf_counter() - start

    def transact(self, count: int) -> float:
        """One transaction over two topics, until all of it can be read."""
        values = [self.value] * (count // 2)
        with (
            hocket.connect(self.url) as client,
            self.topic(client) as one,
            self.topic(client) as two,
        ):
            start = perf_counter()
            with client.transaction(f"bench-{next(_names)}") as transaction:
                transaction.send_many(one, values)
                transaction.send_many(two, values)
            return perf_counter() - start

    def publish(self, count: int, keys: int = 0) -> list[float]:
        """One at a time, each waiting for its position; with so many keys, or with none."""
        latencies = []
        chosen = [b"key-%d" % number for number in range(keys)] or [None]
        with hocket.connect(self.url) as client, self.topic(client) as topic:
            for key in chosen:
                client.publish(topic, self.value, key=key)
            for key in itertools.islice(itertools.cycle(chosen), count):
                start = perf_counter()
                client.publish(topic, self.value, key=key)
                latencies.append(perf_counter() - start)
        return latencies

    def first_messages(self, count: int) -> list[float]:
        """Of clients that have done nothing but connect: until the first message is stored.

        Each goes to the next partition, so a client may first have to find who leads it.
        """
        latencies = []
        with hocket.connect(self.url) as admin, self.topic(admin) as topic:
            partitions = len(admin.describe(topic).partitions)
            for number in range(count):
                with hocket.connect(self.url) as client:
                    client.ping()
                    start = perf_counter()
                    client.publish(topic, self.value, partition=number % partitions)
                    latencies.append(perf_counter() - start)
        return latencies

    def publish_together(self, count: int) -> float:
        """So many coroutines at once, each awaiting its own position."""

        async def run(topic: str) -> float:
            async with hocket.aio.connect(self.url) as client:
                await client.publish(topic, self.value)
                start = perf_counter()
                await asyncio.gather(*(client.publish(topic, self.value) for _ in range(count)))
                return perf_counter() - start

        with hocket.connect(self.url) as client, self.topic(client) as topic:
            return asyncio.run(run(topic))
