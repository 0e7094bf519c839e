"""Each step of a message of a shared index, and who dies then: the table, on real processes.

Three nodes keep each topic, and that of its dead letters. A consumer stands still at a step; then a
node is killed, or the consumer itself. What it was told is durable must be so, what it has goes to
nobody else before its lease is over, all that is left goes to another consumer, and each message
that was rejected has one dead letter (`tests.support.cluster.tables`). By default one cell, with
HOCKET_STRESS=long all of them, HOCKET_TIMES times (2).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import hocket
from hocket.errors import Timeout
from tests.cluster.test_replication import NAMES, nodes_in, tell
from tests.support.cluster.clients import buried
from tests.support.cluster.history import Buried
from tests.support.cluster.holder import HALF, LEASE_SECONDS, STEPS
from tests.support.cluster.processes import Cluster, root_of, wait_for
from tests.support.cluster.tables import Sharing, as_markdown, judge_sharing
from tests.support.processes.forked import popen
from tests.support.threads import LONG

COUNT = 20
VICTIMS = ("leader", "follower", "its node", "root", "dead letters' leader", "consumer")
TIMES = int(os.environ.get("HOCKET_TIMES", "2"))
CELLS = (
    [(step, victim) for step in STEPS for victim in VICTIMS] * TIMES
    if LONG
    else [("dying", "dead letters' leader")]
)
PATIENCE = 60.0
SOON = LEASE_SECONDS / 2  # a lease is counted from when a message was read, and not handed out
# Beyond a lease, and what a new leader withholds: what is not extended is given to others by then.
LATE = 3.0 * LEASE_SECONDS


@contextmanager
def holder(url: str, topic: str, step: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.support.cluster.holder", url, topic, step]
    with popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the consumer has ended"
    found: dict[str, Any] = json.loads(line)
    return found


class Table:
    def __init__(self, cluster: Cluster, client: hocket.Client) -> None:
        self.cluster = cluster
        self.client = client
        self.kills: Counter[tuple[str, str]] = Counter()
        self._names = {cluster[name].node: name for name in NAMES[:3]}  # by the ids of their stores

    def make_topics(self) -> None:
        """While all nodes are there: later the root may not know yet that one is back."""
        for number in range(len(CELLS)):
            for name in (f"t{number}", f"t{number}.dlq"):
                self.client.create_topic(name, replication=3)

    def cell(self, number: int, step: str, victim: str) -> None:
        topic = f"t{number}"
        with self.client.producer(topic, timeout=PATIENCE) as producer:
            producer.send_many([b"%d" % each for each in range(COUNT)])
            producer.flush(PATIENCE)
        entry = NAMES[number % 3]
        with holder(self.cluster[entry].url, topic, step) as consumer:
            held = told(consumer)["held"]
            half = held[:HALF]
            seen = Sharing(COUNT, held)
            since = time.monotonic()
            killed = self._kill(victim, topic, entry, consumer)
            self.kills[step, victim] += 1
            is_extended = step == "extended"
            for offset, at in self._rest(topic, LATE if is_extended else SOON):
                seen.given = [*seen.given, offset]
                leased = half if is_extended and at - since > SOON else held
                if victim != "consumer" and offset in leased:
                    seen.early = [*seen.early, offset]
            seen.done = set(half) if step == "acked" else set()
            if victim != "consumer":
                assert consumer.stdin is not None
                consumer.stdin.write("\n")
                consumer.stdin.flush()
                seen.done |= set(told(consumer)["done"])
                seen.kept = half if is_extended else ()
        seen.given = [*seen.given, *(offset for offset, _ in self._rest(topic))]
        seen.rejected = half if step in ("dying", "dead-lettered") else ()
        seen.sure = step == "dead-lettered"
        letters = [each for each in buried(self.client, topic) if isinstance(each, Buried)]
        seen.letters = [each.offset for each in letters]
        wrong = judge_sharing(seen)
        assert not wrong, f"{step}, {victim}: {wrong}; {seen}"
        if killed:
            self.cluster.restart(killed)

    def _kill(self, victim: str, topic: str, entry: str, consumer: subprocess.Popen[str]) -> str:
        """The name of the node that was killed, if one was."""
        if victim == "consumer":
            consumer.kill()
            return ""
        name = entry if victim == "its node" else root_of(self.cluster)
        if victim not in ("its node", "root"):
            of = topic + ".dlq" if victim == "dead letters' leader" else topic
            wait_for(lambda: self._leader(of) in self._names, PATIENCE, self.cluster.logs)
            name = leader = self._names[self._leader(of)]
            if victim == "follower":
                name = next(each for each in NAMES[:3] if each != leader)
        self.cluster[name].kill()
        return name

    def _leader(self, topic: str) -> str:
        return self.client.describe(topic, timeout=PATIENCE).partitions[0].leader

    def _rest(self, topic: str, seconds: float = 0.0) -> list[tuple[int, float]]:
        """Take and ack all that comes, for so long, or until nothing is left; with the times."""
        found: list[tuple[int, float]] = []
        deadline = time.monotonic() + (seconds or PATIENCE)
        with self.client.subscribe(topic, index="i", mode="shared", timeout=PATIENCE) as messages:
            while time.monotonic() < deadline:
                try:
                    message = messages.receive(0.5)
                except Timeout:
                    if seconds or self.client.lag(topic, "i", timeout=PATIENCE):
                        continue
                    break
                found.append((message.offset, time.monotonic()))
                message.ack()
                messages.commit(PATIENCE)
        return found


@pytest.mark.timeout(3600 if LONG else 300)
def test_each_step_and_who_dies(tmp_path: Path):
    with nodes_in(tmp_path / "nodes", 3, None) as cluster:
        urls = ",".join(cluster[name].address for name in NAMES[:3])
        with hocket.connect(f"hocket://{urls}", timeout=PATIENCE) as client:
            table = Table(cluster, client)
            table.make_topics()
            for number, (step, victim) in enumerate(CELLS):
                began = time.monotonic()
                table.cell(number, step, victim)
                tell(f"{step}, {victim} dies: exact, in {time.monotonic() - began:.1f} s")
    tell(as_markdown(STEPS, VICTIMS, table.kills))
    tell(f"{table.kills.total()} kills")
