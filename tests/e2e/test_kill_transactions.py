"""`kill -9` of a real broker under transactions: each is there whole or not at all, and once.

Two rounds by default; thirty with HOCKET_STRESS=long.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest

import hocket
from hocket import errors
from tests.support.processes.server import ServerProcess
from tests.support.threads import LONG, Running, until

ROUNDS = 30 if LONG else 2
TOPICS = {"one": 2, "two": 1}  # partitions


class Load:
    """Streams of transactions that go on through every death of the broker."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stop = threading.Event()
        self.committed: Counter[str] = Counter()  # numbers of each stream, from 0 on
        self.aborted: set[tuple[str, int, int]] = set()  # the attempt at a number, too

    def run(self, name: str) -> None:
        chance = random.Random(name)
        with hocket.connect(self.url, timeout=60) as client:
            number = attempt = 0
            while not self.stop.is_set():
                with client.transaction(name, number=number, batch_bytes=2000) as transaction:
                    for topic, partitions in TOPICS.items():
                        for n in range(40 * partitions):
                            value = b"%s:%d:%d:%d" % (name.encode(), number, attempt, n)
                            transaction.send(topic, value, partition=n % partitions)
                    if chance.random() < 0.1:
                        transaction.abort(timeout=90)
                        self.aborted.add((name, number, attempt))
                        attempt += 1  # the same number again
                        continue
                    transaction.commit(timeout=90)
                    self.committed[name] += 1
                number, attempt = number + 1, 0

    @property
    def total(self) -> int:
        return self.committed.total()


@pytest.mark.timeout(600)
def test_kill_9_under_transactions_leaves_none_in_part(tmp_path):
    chance = random.Random("kill")
    with ServerProcess(tmp_path / "data") as server:
        with hocket.connect(server.address) as client:
            for topic, partitions in TOPICS.items():
                client.create_topic(topic, partitions=partitions, segment_bytes="256KiB")
        load = Load(server.address)
        with Running(load.run, "a"), Running(load.run, "b"):
            try:
                for _ in range(ROUNDS):
                    before = load.total
                    until(lambda before=before: load.total > before + 3)
                    time.sleep(chance.uniform(0, 0.1))  # at any moment of a transaction
                    server.kill()
                    server.start()
            finally:
                load.stop.set()
        check(load, server.address)


def check(load: Load, url: str) -> None:
    assert load.total > 3 * ROUNDS
    seen: dict[tuple[str, int], Counter[str]] = {}
    attempts: set[tuple[str, int, int]] = set()
    with hocket.connect(url) as client:
        for topic in TOPICS:
            last: dict[tuple[int, str], int] = {}
            ends = sum(each.end for each in client.describe(topic).partitions)
            with client.subscribe(topic) as messages:
                values = Counter[bytes]()
                for _ in range(ends):
                    message = messages.receive(timeout=30)
                    name, number, attempt, _ = message.value.decode().split(":")
                    values[message.value] += 1
                    attempts.add((name, int(number), int(attempt)))
                    seen.setdefault((name, int(number)), Counter())[topic] += 1
                    assert last.get((message.partition, name), -1) <= int(number), "out of order"
                    last[message.partition, name] = int(number)
                assert set(values.values()) == {1}, "something was published twice"
                with pytest.raises(errors.Timeout):
                    messages.receive(timeout=0.2)
    whole = {topic: 40 * partitions for topic, partitions in TOPICS.items()}
    assert all(dict(topics) == whole for topics in seen.values()), "published in part"
    assert len(seen) == load.total, "what was committed is what is there"
    assert len(attempts) == len(seen), "two attempts at one number"
    assert not load.aborted & attempts
