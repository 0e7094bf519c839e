"""A message that kills each process that touches it, among others that only wait in that process.

Real processes die by `os._exit`, real brokers by `kill -9`. The poison alone is to become a dead
letter, however far in front of the others or behind them it lies.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import hocket
from tests.support.processes.doomed import DIED
from tests.support.processes.forked import popen
from tests.support.processes.server import ServerProcess

COUNT = 10
# topic: (where the poison is, how the index is shared)
TOPICS = {"first": (0, "shared"), "sixth": (5, "shared"), "keyed": (5, "key_shared")}


def fill(url: str, topics: list[str]) -> None:
    with hocket.connect(url) as client:
        for topic in topics:
            place, _ = TOPICS[topic]
            client.create_topic(topic)
            with client.producer(topic) as producer:
                for number in range(COUNT):
                    value = b"poison" if number == place else b"%d" % number
                    producer.send(value, key=b"%d" % (number % 2))


def consume(url: str, topic: str) -> int:
    _, mode = TOPICS[topic]
    command = [sys.executable, "-m", "tests.support.processes.doomed", url, topic, "w", mode]
    with popen(command) as process:
        return int(process.wait(60))


def deaths_until_done(url: str, topic: str) -> int:
    """Start consumers, one after the other, until one has come to the end."""
    deaths = 0
    while (code := consume(url, topic)) == DIED:
        deaths += 1
        assert deaths < 10
    assert code == 0
    return deaths


@pytest.mark.parametrize(
    ("broker_dies", "topics"), [(False, ["first", "sixth"]), (True, ["first", "keyed"])]
)
def test_only_the_message_that_kills_its_consumers_is_a_dead_letter(tmp_path, broker_dies, topics):
    with ServerProcess(tmp_path / "data") as server, ThreadPoolExecutor() as pool:
        url = server.address
        fill(url, topics)
        deaths = dict.fromkeys(topics, 0)
        if broker_dies:
            assert set(pool.map(lambda topic: consume(url, topic), topics)) == {DIED}
            deaths = dict.fromkeys(topics, 1)
            server.kill()  # before it has judged what the dead consumers had
            server.start()
        found = pool.map(lambda topic: deaths_until_done(url, topic), topics)
        for topic, more in zip(topics, found, strict=True):
            deaths[topic] += more
        with hocket.connect(url) as client:
            for topic in topics:
                (dead,) = client.dead_letters(topic)
                assert (dead.value, dead.source.offset) == (b"poison", TOPICS[topic][0])
                assert client.lag(topic, "w") == 0, "the nine others are acked"
    assert deaths["first"] == 3, "each death was counted, also across the restart"
    # Behind others, its first deaths may be taken for theirs.
    assert 3 <= deaths[topics[1]] <= 5
