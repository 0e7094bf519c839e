"""A job of one shape, its brokers, its kills, and at the end the judgement of its output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hocket import Client
from hocket.spark.offsets import from_json
from tests.spark.kills import stages
from tests.spark.kills.brokers import OneBroker, ThreeNodes
from tests.spark.kills.checking import Ends, Input, Values, Verdict, compare, expected
from tests.spark.kills.control import Control
from tests.spark.kills.processes import Session
from tests.support.threads import until

ROOT = Path(__file__).parents[3]
INPUT, OUTPUT = "input", "output"
PARTITIONS = 3
KEYS = 30
ROWS_PER_BATCH = 300
ROWS_PER_KILL = 450  # more than one batch of it
REACH_SECONDS = 300.0  # a driver has to start, on a machine that may be busy
STARTS_MAX = 4  # in a row, until a job that ends by itself counts as broken


@dataclass(frozen=True)
class Kill:
    shape: str
    stage: str
    victim: str


class Run:
    """One shape from its first record to its last; use it as a context manager."""

    def __init__(
        self,
        folder: Path,
        shape: str,
        *,
        planted: str = "",
        slow: bool = False,
        replicated: bool = False,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.config = dict(config or {})
        self.slow = slow
        self.shape = shape
        self.planted = planted
        self.control = Control(folder / "control")
        self.brokers: OneBroker | ThreeNodes
        self.brokers = ThreeNodes(folder) if replicated else OneBroker(folder)
        self.checkpoint = folder / "checkpoint"
        self.log = folder / "job.log"
        self.kills: list[Kill] = []
        self.lives = 0  # of the job
        self.ended_by_itself = 0
        self.job: Session | None = None
        self._fed = 0

    def __enter__(self) -> Run:
        self.brokers.start()
        with self._client() as client:
            for topic in (INPUT, OUTPUT):
                client.create_topic(
                    topic, partitions=PARTITIONS, replication=self.brokers.replication
                )
        if isinstance(self.brokers, ThreeNodes):
            self.brokers.know(INPUT, OUTPUT)
        config = {
            "shape": self.shape,
            "servers": self.brokers.servers,
            "input": INPUT,
            "output": OUTPUT,
            "checkpoint": str(self.checkpoint),
            "rows_per_batch": ROWS_PER_BATCH,
            **self.config,
        }
        (self.folder / "config.json").write_text(json.dumps(config))
        return self

    def __exit__(self, *_error: object) -> None:
        if self.job is not None and not self.job.has_ended():
            self.job.kill()
        self.brokers.close()

    def _client(self) -> Client:
        return self.brokers.client()

    # --- disturbing -------------------------------------------------------------------------------

    def kill(self, stage: str, victim: str) -> None:
        """Stop the job at a stage of its next batch, then kill."""
        if stage == stages.DECIDED:  # seen by the output growing, and a batch done again adds none
            self._keep_running_until(self._nothing_to_be_done_again, "every batch is committed")
        self.control.arm(stage)
        self.feed(ROWS_PER_KILL)
        self._keep_running_until(lambda: self.control.is_reached(stage), f"{stage} is reached")
        if stage == stages.DECIDED:
            before = self.control.size_before()
            until(lambda: self._output_size() > before, what="the batch is published")
        assert self.job is not None
        if victim == stages.DRIVER:
            self.job.kill()
        elif victim == stages.LEADER:
            self._kill_leader(stage)
        else:
            assert isinstance(self.brokers, OneBroker)
            self.brokers.kill()
            self.control.release(stage)  # so that the job meets a broker that is not there
            self.brokers.start()
        self.kills.append(Kill(self.shape, stage, victim))

    def _kill_leader(self, stage: str) -> None:
        """It comes back when Spark has done without it what it was about to do, and the rest."""
        assert isinstance(self.brokers, ThreeNodes)
        reads = stage in (stages.ASKING, stages.PLANNING)
        done = len(_numbers(self.checkpoint / "commits"))
        self.brokers.kill_leader(INPUT if reads else OUTPUT)
        self.control.release(stage)

        def has_gone_on() -> bool:
            is_more = len(_numbers(self.checkpoint / "commits")) > done
            return is_more and self._nothing_to_be_done_again()

        self._keep_running_until(has_gone_on, "Spark goes on without a node")
        self.brokers.bring_back()

    def _nothing_to_be_done_again(self) -> bool:
        """Spark has committed every batch that it has begun."""
        begun, committed = (self.checkpoint / name for name in ("offsets", "commits"))
        return _numbers(begun) == _numbers(committed)

    def feed(self, rows: int) -> None:
        """The keys stay in their partitions, so that the order of each is that of its numbers."""
        numbers = range(self._fed, self._fed + rows)
        keys = [b"key %d" % (number % KEYS) for number in numbers]
        with self._client() as client, client.producer(INPUT) as producer:
            producer.send_many([b"%d" % number for number in numbers], keys=keys)
        self._fed += rows

    def _output_size(self) -> int:
        with self._client() as client:
            return sum(client.find_offsets(OUTPUT, "latest"))

    def _keep_running_until(self, condition: Callable[[], bool], what: str) -> None:
        starts = 0
        deadline = time.monotonic() + REACH_SECONDS
        while not condition():
            if self.job is None or self.job.has_ended():
                if self.job is not None and self.job.process.returncode != -signal.SIGKILL:
                    self.ended_by_itself += 1
                starts += 1
                assert starts <= STARTS_MAX, f"the job ends by itself:\n{self._tail()}"
                self._start()
            assert time.monotonic() < deadline, f"not within time: {what}\n{self._tail()}"
            time.sleep(0.005)

    def _start(self) -> None:
        self.lives += 1
        probe = {
            "HOCKET_PROBE": str(self.control.folder),
            "HOCKET_PROBE_PLANTED": self.planted,
            "HOCKET_PROBE_LIFE": str(self.lives),
            "HOCKET_PROBE_SLOW": "yes" if self.slow else "",
        }
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.kills.job", str(self.folder / "config.json")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **probe},
                start_new_session=True,
            )
        self.job = Session(process)

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]

    # --- judging ----------------------------------------------------------------------------------

    def finish(self) -> Verdict:
        """Let the job run to the end undisturbed, and compare."""
        self.control.finish()
        self._keep_running_until(self._has_finished, "the job has done everything")
        with self._client() as client:
            records = read_all(client, INPUT)
            wanted = expected(self.shape, records, self._batches())
            assert (
                self.shape not in ("map", "shuffle") or sum(map(len, wanted.values())) == self._fed
            )
            return compare(wanted, by_key(read_all(client, OUTPUT)))

    def _has_finished(self) -> bool:
        return self.job is not None and self.job.process.poll() == 0

    def _batches(self) -> list[Ends]:
        """The ends of all micro-batches as Spark logged them; it must have committed each."""
        logged = _numbers(self.checkpoint / "offsets")
        assert logged == _numbers(self.checkpoint / "commits") == list(range(len(logged)))
        ends = []
        for number in logged:
            *_, line = (self.checkpoint / "offsets" / str(number)).read_text().splitlines()
            offsets, _ = from_json(json.loads(line))
            ends.append(offsets[INPUT])
        return ends


def _numbers(folder: Path) -> list[int]:
    if not folder.exists():
        return []
    return sorted(int(name) for name in os.listdir(folder) if name.isdigit())


def read_all(client: Client, topic: str) -> Input:
    found: Input = {}
    for partition, end in enumerate(client.find_offsets(topic, "latest")):
        records: list[tuple[str, str]] = []
        with client.subscribe(topic, partitions=[partition]) as messages:
            while len(records) < end:
                batch = messages.receive_batch(timeout=30)
                pairs = zip(batch.keys(), batch.values(), strict=True)
                records += [(key.decode(), value.decode()) for key, value in pairs]
        found[partition] = records
    return found


def by_key(records: Input) -> Values:
    found: Values = defaultdict(list)
    for partition in sorted(records):
        for key, value in records[partition]:
            found[key].append(value)
    return dict(found)
