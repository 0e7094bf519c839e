"""What other topics notice while a plug-in apart raises, sleeps, spins or eats memory.

With HOCKET_STRESS=long each lasts for seconds, and the figures are printed: they are in
docs/guide/plugins.md.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import hocket
from hocket.errors import HocketError
from hocket.plugins.testing import BrokerWith, broker_with
from tests.plugins.wild import Wild

LONG = os.environ.get("HOCKET_STRESS") == "long"
SECONDS = 2.0 if LONG else 0.3
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is watched on Linux only")


def published(client: hocket.Client, seconds: float) -> tuple[float, float]:
    """How many messages a second one after the other, and the 99th of a hundred, in ms."""
    took = []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        before = time.perf_counter()
        client.publish("other", b"x" * 100)
        took.append(time.perf_counter() - before)
    took.sort()
    return len(took) / seconds, took[len(took) * 99 // 100] * 1e3


@contextmanager
def wild(broker: BrokerWith, word: bytes) -> Iterator[list[str]]:
    """Messages that the plug-in runs wild at, one after the other."""
    said: list[str] = []
    stop = threading.Event()

    def send() -> None:
        with hocket.connect(broker.listen()) as client:
            while not stop.is_set():
                try:
                    client.publish("t", word)
                except HocketError as error:
                    said.append(error.code)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield said
    finally:
        stop.set()
        thread.join(60)


@pytest.mark.parametrize("word", ["raise", "sleep", "spin", "eat"] if LONG else ["spin"])
def test_other_topics_go_on(word: str, capsys: pytest.CaptureFixture[str]):
    with (
        broker_with(
            Wild, apart=[Wild], topics={"wild": ["t"]}, deadline_ms=200, memory_max="128MiB"
        ) as broker,
        hocket.connect(broker.listen()) as client,
    ):
        client.create_topic("t")
        client.create_topic("other")
        published(client, SECONDS / 5)
        rate, p99 = published(client, SECONDS)
        with wild(broker, word.encode()) as said:
            while not said:  # it has run wild once, at least
                published(client, SECONDS / 5)
            rate_then, p99_then = published(client, SECONDS)
        process = broker.plugin("wild").apart
        assert process is not None
        assert set(said) == {"rejected"}
        assert rate_then > 0
        assert bool(process.ends) == (word != "raise")
        with capsys.disabled():
            if LONG:
                sys.stdout.write(
                    f"\n{word}: before {rate:.0f}/s, p99 {p99:.1f} ms; during {rate_then:.0f}/s, "
                    f"p99 {p99_then:.1f} ms; refused {len(said)}, killed {process.kills}, ended "
                    f"{process.ends}\n"
                )
