"""Workers that share an index, in processes of their own, and what the death of one brings."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import hocket
from tests.support.processes.forked import popen
from tests.support.processes.server import ServerProcess
from tests.support.threads import until

MESSAGES = 40


class WorkerProcess:
    def __init__(self, url: str, how: str) -> None:
        self.process = popen(
            [sys.executable, "-m", "tests.support.processes.worker", url, "jobs", "workers", how],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.took: list[tuple[str, int]] = []
        self.done: list[str] = []
        self.ready = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            match line.split():
                case ["took", place, count]:
                    self.took.append((place, int(count)))
                case ["done", place]:
                    self.done.append(place)
                case ["ready"]:
                    self.ready = True

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def workers(url: str, *how: str) -> Iterator[list[WorkerProcess]]:
    processes = [WorkerProcess(url, each) for each in how]
    try:
        until(lambda: all(each.ready for each in processes), timeout=30)
        yield processes
    finally:
        for each in processes:
            each.kill()


def produce(url: str) -> None:
    with hocket.connect(url) as client, client.producer("jobs") as producer:
        for number in range(MESSAGES):
            producer.send(b"%d" % number)


def test_three_share_the_work_and_what_a_dead_one_had_is_done_by_the_others(tmp_path):
    with ServerProcess(tmp_path / "data") as server:
        with hocket.connect(server.address) as client:
            client.create_topic("jobs", partitions=2)
        with workers(server.address, "works", "works", "hangs") as (one, two, hanging):
            produce(server.address)
            until(lambda: len(hanging.took) == 4, timeout=20)  # as many as it may have at a time
            until(lambda: len(one.done) + len(two.done) == MESSAGES - 4, timeout=20)
            held = {place for place, _ in hanging.took}
            assert held.isdisjoint(one.done + two.done), "nobody else has what it holds"
            died = time.monotonic()
            hanging.kill()
            until(lambda: len(one.done) + len(two.done) == MESSAGES, timeout=20)
            assert time.monotonic() - died < 8, "its lease of 4 s is over by then"
            again = dict(one.took + two.took)
            assert {again[place] for place in held} == {2}, "the second delivery of each"
            assert len(set(one.done) | set(two.done)) == MESSAGES, "each was done once"
            assert one.done
            assert two.done


@pytest.mark.parametrize("gently", [True, False])
def test_nothing_that_was_done_comes_back_after_the_broker_has_died(tmp_path, gently):
    with ServerProcess(tmp_path / "data") as server:
        with hocket.connect(server.address) as client:
            client.create_topic("jobs", partitions=2)
        with workers(server.address, "works", "works", "hangs") as (one, two, hanging):
            produce(server.address)
            until(lambda: len(one.done) + len(two.done) >= 10, timeout=20)
            if gently:
                assert server.terminate() == 0
            else:
                server.kill()
            done_before = set(one.done) | set(two.done)
            took_before = len(one.took), len(two.took)
            server.start()
            until(lambda: len(hanging.took) >= 4, timeout=20)
            until(lambda: len(set(one.done) | set(two.done)) >= MESSAGES - 8, timeout=30)
            hanging.kill()
            until(lambda: len(set(one.done) | set(two.done)) == MESSAGES, timeout=30)
            later = one.took[took_before[0] + 1 :] + two.took[took_before[1] + 1 :]
            assert done_before.isdisjoint(place for place, _ in later), "it was done already"


def test_what_waited_in_a_worker_that_outlives_the_broker_was_never_delivered(tmp_path):
    with ServerProcess(tmp_path / "data") as server, hocket.connect(server.address) as client:
        client.create_topic("jobs")
        with (
            client.producer("jobs") as producer,
            client.subscribe("jobs", index="workers", mode="shared", prefetch=6) as jobs,
        ):
            for stop in (server.terminate, server.kill):
                producer.send_many([b"first", b"next", b"last"])
                producer.flush(30)
                jobs.receive(30).ack()
                jobs.commit(30)  # so the broker knows which one is next
                stop()
                server.start()
                waited = jobs.receive_batch(30)
                assert len(waited) == 2, "they come together: none of them is suspect"
                assert waited.delivery_count == 1
                waited.ack()
