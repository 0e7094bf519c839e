"""The scenes of level 3: a broker in this process, and a served one that dies under load."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import hocket
from hocket.demo.outcome import Outcome, check

PATIENCE_SECONDS = 60


def two_indexes(progress: Callable[[float], None]) -> Outcome:
    """Every index gets every message, each key's messages in order."""
    total = 200_000
    with hocket.embedded() as client:
        client.create_topic("orders", partitions=4)
        with client.producer("orders") as producer:
            for number in range(total):
                producer.send(b"%d" % number, b"customer %d" % (number % 100))
        progress(0.4)
        for part, index in ((0.7, "billing"), (1.0, "audit")):
            last: dict[bytes | None, int] = {}
            with client.subscribe("orders", index=index) as orders:
                for batch in orders.batches():
                    for order in batch.messages():
                        number = int(order.value)
                        check(last.get(order.key, -1) < number, "each key stays in order")
                        last[order.key] = number
                    batch.ack()
                    seen = sum(orders.position(partition) for partition in range(4))
                    if seen == total:
                        break
            check(client.lag("orders", index) == 0, "each index has everything")
            progress(part)
    return Outcome(1, total, total * 5, "100 keys on 4 partitions; billing and audit each got all")


def memory_then_disk() -> Outcome:
    """After the memory retention everything is still there, read from disk."""
    total = 20_000
    with hocket.embedded() as client:
        client.create_topic("short", memory_retention="300ms")
        with client.producer("short") as producer:
            producer.send_many([b"%d" % number for number in range(total)])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while client.describe("short").partitions[0].memory_bytes:
            check(time.monotonic() < deadline, "the memory tier empties")
            time.sleep(0.05)
        received = 0
        with client.subscribe("short") as messages:
            for batch in messages.batches():
                received += batch.count
                if received == total:
                    break
        reads = client.describe("short").partitions[0].disk_reads
    check(reads > 0, "they came from disk")
    return Outcome(1, total, total * 5, f"memory empty after 300 ms; disk reads: {reads}")


def killed_under_load(progress: Callable[[float], None]) -> Outcome:
    """`kill -9` of the broker under load: what was acknowledged is there, once, in order."""
    rounds, per_round = 3, 20_000
    with tempfile.TemporaryDirectory(prefix="hocket-demo-") as data:
        with serving(data, "127.0.0.1:0") as (address, process):
            with hocket.connect(address) as client:
                client.create_topic("load")
            client = hocket.connect(address)
            producer = client.producer("load")
            producer.send_many([b"%d" % number for number in range(per_round)])
            process.kill()
        for number in range(1, rounds + 1):
            with serving(data, address.removeprefix("hocket://")) as (_, process):
                first = number * per_round
                producer.send_many([b"%d" % n for n in range(first, first + per_round)])
                if number < rounds:
                    process.kill()
                else:
                    producer.close(timeout=PATIENCE_SECONDS)
                    with client.subscribe("load") as messages:
                        received = [
                            int(messages.receive(timeout=PATIENCE_SECONDS).value)
                            for _ in range((rounds + 1) * per_round)
                        ]
                    ends = client.describe("load").partitions[0].end
                    client.close()
            progress(number / rounds)
    total = (rounds + 1) * per_round
    check(received == list(range(total)) and ends == total, "everything is there once, in order")
    return Outcome(1, total, total * 5, f"killed {rounds} times; all there once, in order")


@contextmanager
def serving(data: str, listen: str, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`hocket serve` in a process of its own: its address, and the process."""
    command = [sys.executable, "-m", "hocket.cli", "serve", "--listen", listen, "--data", data]
    command += options
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what it logs is not part of the show
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        check(bool(ready), "the broker starts")
        try:
            yield ready.split()[-1], process
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)
