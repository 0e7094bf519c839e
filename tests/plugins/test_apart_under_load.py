"""What other topics notice while a plug-in raises, sleeps, spins or eats memory.

With HOCKET_STRESS=long each lasts for seconds, also within the node, as far as what it does ends;
and the figures are printed: they are in docs/guide/plugins.md.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

import hocket
from hocket.errors import HocketError
from hocket.plugins.testing import BrokerWith, broker_with
from tests.plugins.wild import Wild

LONG = os.environ.get("HOCKET_STRESS") == "long"
SECONDS = 4.0 if LONG else 0.3
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is watched on Linux only")


class Figures(NamedTuple):
    rate: float  # messages a second, one after the other
    p50: float  # ms
    p99: float

    def __str__(self) -> str:
        return f"{self.rate:.0f}/s, p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms"


def published(client: hocket.Client, seconds: float) -> Figures:
    took = []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        before = time.perf_counter()
        client.publish("other", b"x" * 100)
        took.append(time.perf_counter() - before)
    took.sort()
    return Figures(
        len(took) / seconds, took[len(took) // 2] * 1e3, took[len(took) * 99 // 100] * 1e3
    )


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
        before, during, after, said = measured(broker, client, word)
        process = broker.plugin("wild").apart
        assert process is not None
        assert set(said) == {"rejected"}
        assert during.rate > 0
        assert bool(process.ends) == (word != "raise")
        tell(capsys, f"apart, {word}", before, during, after,
             f"refused {len(said)}, killed {process.kills}, ended {process.ends}")  # fmt: skip


@pytest.mark.skipif(not LONG, reason="figures alone: what it does is tested in test_containment")
@pytest.mark.parametrize("word", ["raise", "wait 0.05", "spin 0.05", "eat 100"])
def test_within_the_node_all_wait_for_it_and_go_on_behind_it(
    word: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    with (
        broker_with(Wild, topics={"wild": ["t"]}) as broker,
        hocket.connect(broker.listen()) as client,
    ):
        before, during, after, said = measured(broker, client, word)
        timing = broker.plugin("wild").timings["on_publish"]
        assert set(said) == ({"rejected"} if word == "raise" else set())
        assert during.rate > 0
        assert bool(timing.slow) == (word != "raise")
        assert "plug-in 'wild'" in caplog.text
        tell(capsys, f"inline, {word}", before, during, after,
             f"called {timing.calls}, failed {timing.failures}, slow {timing.slow}")  # fmt: skip


def measured(
    broker: BrokerWith, client: hocket.Client, word: str
) -> tuple[Figures, Figures, Figures, list[str]]:
    """Before the plug-in runs wild, while it does, and afterwards."""
    client.create_topic("t")
    client.create_topic("other")
    published(client, SECONDS / 5)
    before = published(client, SECONDS)
    with wild(broker, word.encode()) as said:
        timing = broker.plugin("wild").timings["on_publish"]
        while not said and not timing.calls:  # it has run wild once, at least
            published(client, SECONDS / 5)
        during = published(client, SECONDS)
    return before, during, published(client, SECONDS), said


def tell(capsys: pytest.CaptureFixture[str], what: str, *figures: object) -> None:
    if LONG:
        with capsys.disabled():
            sys.stdout.write(f"\n{what}: " + "; ".join(map(str, figures)) + "\n")
