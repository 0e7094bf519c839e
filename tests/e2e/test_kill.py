"""`kill -9` under load, again and again: nothing acknowledged is lost, nothing twice, all in order.

Eight rounds by default; fifty with HOCKET_STRESS=long (make test-kill).
"""

from __future__ import annotations

import random
import threading
import time

import pytest

import hocket
from tests.support.processes.server import ServerProcess
from tests.support.threads import LONG, Running

ROUNDS = 50 if LONG else 4
PARTITIONS = 3
PRODUCERS = 2
TOPIC = "load"


class Load:
    """Producers that go on through every death of the broker, and remember what was promised."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stop = threading.Event()
        self.acknowledged: dict[bytes, hocket.Position] = {}
        self.sent = [0] * PRODUCERS
        self.published: list[hocket.Position] = []

    def produce(self, number: int) -> None:
        with (
            hocket.connect(self.url, timeout=60) as client,
            client.producer(TOPIC, linger=0.001, batch_bytes=20_000) as producer,
        ):
            while not self.stop.is_set():
                futures = []
                for _ in range(200):
                    value = b"%d:%d" % (number, self.sent[number])
                    key = b"%d" % (self.sent[number] % 7)
                    futures.append((value, producer.send_future(value, key=key)))
                    self.sent[number] += 1
                for value, future in futures:
                    self.acknowledged[value] = future.result(timeout=90)

    def publish(self) -> None:
        with hocket.connect(self.url, timeout=60) as client:
            count = 0
            while not self.stop.is_set():
                value = b"one-off:%d" % count
                self.acknowledged[value] = client.publish(TOPIC, value, key=b"k", timeout=90)
                count += 1

    def consume(self, seen: dict[int, list[bytes]]) -> None:
        """Through one index, acknowledging: what it sees must have no gap and no repetition."""
        with (
            hocket.connect(self.url, timeout=60) as client,
            client.subscribe(TOPIC, index="watcher") as messages,
        ):
            while True:
                try:
                    message = messages.receive(timeout=1)
                except hocket.errors.Timeout:
                    if self.stop.is_set():
                        return
                    continue
                log = seen.setdefault(message.partition, [])
                assert message.offset == len(log), f"at {len(log)} came {message.offset}"
                log.append(message.value)
                message.ack()


@pytest.mark.timeout(900)
def test_kill_9_under_load_loses_nothing_acknowledged(tmp_path):
    chance = random.Random("kill")
    watched: dict[int, list[bytes]] = {}
    with ServerProcess(tmp_path / "data") as server:
        with hocket.connect(server.address) as client:
            client.create_topic(TOPIC, partitions=PARTITIONS, segment_bytes="1MiB")
        load = Load(server.address)
        with (
            Running(load.produce, 0),
            Running(load.produce, 1),
            Running(load.publish),
            Running(load.consume, watched),
        ):
            try:
                for round_number in range(ROUNDS):
                    before = len(load.acknowledged)
                    deadline = time.monotonic() + 60
                    # Killed under load, not before it: something must have been acknowledged.
                    while len(load.acknowledged) < before + 50:
                        assert time.monotonic() < deadline, f"no progress in round {round_number}"
                        time.sleep(0.01)
                    time.sleep(chance.uniform(0, 0.2))
                    server.kill()
                    server.start()
            finally:
                load.stop.set()
        logs = read_everything(server.address)
    check(load, logs, watched)


def read_everything(url: str) -> dict[int, list[bytes]]:
    logs: dict[int, list[bytes]] = {}
    with hocket.connect(url) as client:
        ends = {p.partition: p.end for p in client.describe(TOPIC).partitions}
        with client.subscribe(TOPIC) as messages:
            while any(len(logs.get(number, [])) < end for number, end in ends.items()):
                message = messages.receive(timeout=30)
                log = logs.setdefault(message.partition, [])
                assert message.offset == len(log)
                log.append(message.value)
    return logs


def check(load: Load, logs: dict[int, list[bytes]], watched: dict[int, list[bytes]]) -> None:
    assert len(load.acknowledged) > 50 * ROUNDS
    for value, position in load.acknowledged.items():
        assert logs[position.partition][position.offset] == value, f"lost or moved: {value!r}"
    everything = [value for log in logs.values() for value in log]
    assert len(set(everything)) == len(everything), "something was stored twice"
    for log in logs.values():
        by_sender: dict[bytes, list[int]] = {}
        for value in log:
            sender, number = value.split(b":")
            by_sender.setdefault(sender, []).append(int(number))
        for sender, numbers in by_sender.items():
            assert numbers == sorted(numbers), f"out of order: {sender!r}"
    for partition, seen in watched.items():
        assert seen == logs[partition][: len(seen)], "the consumer saw another log"
    assert sum(map(len, watched.values())) > 0
