"""Every built-in pipeline through kill -9, of its run with Spark and of the broker.

A feeder publishes while the pipeline runs; the run, or the broker, is killed at a moment that a
seed chooses, and started again. At the end the result is compared with what was published: each
record once, in the order of its key. A part of `make test-pipelines`.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hocket import Client
from tests.support.pipelines import (
    Started,
    by_key,
    count,
    hocket,
    messages,
    publish,
    read_all,
    started,
)
from tests.support.processes.server import ServerProcess
from tests.support.threads import LONG

KILLS = int(os.environ.get("HOCKET_PIPELINE_KILLS", "4"))
SEED = int(os.environ.get("HOCKET_PIPELINE_SEED", "1"))
CHUNK = 500
EVERY = ("--every", "1s")

pytestmark = [
    pytest.mark.usefixtures("java"),
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not LONG, reason="minutes for each: make test-pipelines"),
]

Records = list[tuple[bytes, bytes]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServerProcess]:
    """One for each test, since the test kills it."""
    with ServerProcess(tmp_path / "broker") as server:
        yield server


class Feeder:
    """Publishes chunk after chunk, and remembers what; `made` makes the chunk of a number."""

    def __init__(self, client: Client, topic: str, made: Callable[[int], Records]) -> None:
        self.sent: Records = []
        self._client, self._topic, self._made = client, topic, made
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder")
        self._failure: BaseException | None = None

    def _feed(self) -> None:
        number = 0
        try:
            while not self._ended.wait(0.3):
                chunk = self._made(number)
                publish(self._client, self._topic, chunk)  # waits for a broker that is away
                self.sent += chunk
                number += 1
        except BaseException as error:
            self._failure = error

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure


@contextmanager
def killed_in_turn(
    broker: ServerProcess, cwd: Path, *args: str, progress: Callable[[], int]
) -> Iterator[Callable[[], Started]]:
    """Runs the pipeline and kills: the run three times of four, else the broker.

    Each kill waits until the pipeline has got further than at the last one, and then for a moment.
    """
    chance = random.Random(SEED)
    runs: list[Started] = []

    def begin() -> Started:
        runs.append(Started(broker.address, cwd, *args))
        return runs[-1]

    try:
        run = begin()
        for number in range(KILLS):
            before = progress()
            run.until(lambda before=before: progress() > before, "progress")  # type: ignore[misc]
            time.sleep(chance.uniform(0, 2.5))
            if number % 4 == 2:
                broker.kill()
                broker.start()
            else:
                run.kill()
                run = begin()
        yield lambda: runs[-1]
    finally:
        for each in runs:
            if each.process.poll() is None:
                each.kill()


def drained(run: Started, predicate: Callable[[], bool]) -> None:
    run.until(predicate, "all of it")
    assert run.terminate() == 0


def numbered(number: int) -> Records:
    first = number * CHUNK
    return [(b"k%d" % (each % 13), b"%d" % each) for each in range(first, first + CHUNK)]


def lake_records(lake: Path) -> list[tuple[int, int, bytes, bytes]]:
    import pyarrow.dataset as ds  # type: ignore[import-untyped]

    table = ds.dataset(lake, format="parquet", partitioning="hive").to_table()
    columns = [table[name].to_pylist() for name in ("partition", "offset", "key", "value")]
    return sorted(zip(*columns, strict=True))


def test_archive_and_replay(broker: ServerProcess, client: Client, tmp_path: Path) -> None:
    client.create_topic("sea.in", partitions=3, exist_ok=True)
    hocket(broker.address, "pipeline", "init", "sea", "--from", "archive", cwd=tmp_path)
    lake = tmp_path / "sea" / "lake"

    def archived() -> int:
        try:
            state = json.loads((lake / "_hocket" / "state.json").read_text())
        except FileNotFoundError:
            return 0
        return sum(end for _, end in state["topics"].get("sea.in", {}).values())

    with (
        Feeder(client, "sea.in", numbered) as feeder,
        killed_in_turn(broker, tmp_path, "run", "sea", *EVERY, progress=archived) as present,
    ):
        feeder.end()
        drained(present(), lambda: archived() == len(feeder.sent))
    expected = sorted(
        (message.partition, message.offset, message.key, bytes(message.value))
        for message in messages(client, "sea.in")
    )
    assert len(expected) == len(feeder.sent)
    assert lake_records(lake) == expected

    client.create_topic("sea.again", partitions=3, exist_ok=True)
    hocket(
        broker.address, "pipeline", "init", "back", "--from", "replay", "--topic", "sea.in",
        "--to", "sea.again", "--lake", str(lake), cwd=tmp_path,
    )  # fmt: skip
    again = lambda: count(client, "sea.again")  # noqa: E731
    with started(broker.address, tmp_path, "run", "back", *EVERY) as run:
        checkpoints = tmp_path / "back" / "state" / "_checkpoints"
        run.until(lambda: list(checkpoints.rglob("offsets/0")), "its only batch is planned")
        run.kill()
    with started(broker.address, tmp_path, "run", "back", *EVERY) as run:
        drained(run, lambda: again() >= len(feeder.sent))
    assert by_key(read_all(client, "sea.again")) == by_key(feeder.sent)


def test_aggregate(broker: ServerProcess, client: Client, tmp_path: Path) -> None:
    hocket(broker.address, "pipeline", "init", "sums", "--from", "aggregate", cwd=tmp_path)

    def event(each: int) -> tuple[bytes, bytes]:
        at = 1_700_000_000 + each // 10  # ten events for each second of their time
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
        value: Any = {"time": moment, "amount": each % 17}
        if each % 100 == 50:
            value["time"] = "yesterday"
        return b"k%d" % (each % 5), json.dumps(value).encode()

    def chunk(number: int) -> Records:
        return [event(each) for each in range(number * CHUNK, (number + 1) * CHUNK)]

    out = lambda: count(client, "sums.out")  # noqa: E731
    with (
        Feeder(client, "sums.in", chunk) as feeder,
        killed_in_turn(broker, tmp_path, "run", "sums", *EVERY, progress=out) as present,
    ):
        feeder.end()
        last = len(feeder.sent)
        closing = event(last + 10 * 600)  # ten minutes on: every window before is complete
        publish(client, "sums.in", [closing])
        expected = windows(feeder.sent)
        drained(present(), lambda: out() >= len(expected))
    found: dict[tuple[bytes, str], tuple[int, float]] = {}
    for key, value in read_all(client, "sums.out"):
        result = json.loads(value)
        at = (key, result["from"])
        assert at not in found, f"{at} was published twice"
        found[at] = (result["count"], result["sum"])
    assert found == expected
    bad = read_all(client, "sums.in.misfits")
    assert by_key(bad) == by_key([each for each in feeder.sent if b"yesterday" in each[1]])
    (reason,) = {
        bytes(dict(each.headers)["reason"]) for each in messages(client, "sums.in.misfits")
    }
    assert reason == b"the field time is not timestamp: yesterday"


def windows(sent: Records) -> dict[tuple[bytes, str], tuple[int, float]]:
    import calendar

    found: dict[tuple[bytes, str], tuple[int, float]] = {}
    for key, value in sent:
        event = json.loads(value)
        if event["time"] == "yesterday":
            continue
        at = calendar.timegm(time.strptime(event["time"], "%Y-%m-%dT%H:%M:%SZ"))
        start = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at - at % 60))
        rows, total = found.get((key, start), (0, 0.0))
        found[key, start] = (rows + 1, total + event["amount"])
    return found


def test_route(broker: ServerProcess, client: Client, tmp_path: Path) -> None:
    client.create_topic("way.in", partitions=2, exist_ok=True)
    hocket(broker.address, "pipeline", "init", "way", "--from", "route", cwd=tmp_path)

    def chunk(number: int) -> Records:
        first = number * CHUNK
        return [
            (b"k%d" % (each % 13), b'{"amount": %d, "n": %d}' % (each * 7 % 200, each))
            if each % 50
            else (b"k%d" % (each % 13), b"not json %d" % each)
            for each in range(first, first + CHUNK)
        ]

    topics = ("way.out.large", "way.out.small", "way.in.misfits")
    out = lambda: sum(count(client, topic) for topic in topics)  # noqa: E731
    with (
        Feeder(client, "way.in", chunk) as feeder,
        killed_in_turn(broker, tmp_path, "run", "way", *EVERY, progress=out) as present,
    ):
        feeder.end()
        drained(present(), lambda: out() >= len(feeder.sent))
    fitting = [each for each in feeder.sent if not each[1].startswith(b"not")]
    amount = lambda each: json.loads(each[1])["amount"]  # noqa: E731
    large = [each for each in fitting if amount(each) >= 100]
    small = [each for each in fitting if amount(each) < 100]
    bad = [each for each in feeder.sent if each[1].startswith(b"not")]
    for topic, expected in zip(topics, (large, small, bad), strict=True):
        assert by_key(read_all(client, topic)) == by_key(expected), topic


@pytest.mark.timeout(3600)
def test_a_million_records_are_archived_and_replayed_through_a_kill(
    broker: ServerProcess, client: Client, tmp_path: Path
) -> None:
    client.create_topic("million.in", partitions=4, exist_ok=True)
    client.create_topic("million.again", partitions=4, exist_ok=True)
    with client.producer("million.in") as producer:
        for each in range(1_000_000):
            producer.send(b"%08d" % each + bytes(92), key=b"k%d" % (each % 1000))
    expected = by_key(read_all(client, "million.in"))
    url = broker.address
    hocket(url, "pipeline", "init", "million", "--from", "archive", cwd=tmp_path)
    file = tmp_path / "million" / "transformations" / "archive.py"
    limit = 'includeHeaders="true",\n        maxOffsetsPerTrigger="200000",'
    file.write_text(file.read_text().replace('includeHeaders="true",', limit))
    lake = tmp_path / "million" / "lake"
    with started(url, tmp_path, "run", "million", *EVERY) as run:
        run.until(lambda: list(lake.glob("date=*/*.parquet")), "the first files")
        run.kill()
    hocket(url, "pipeline", "run", "million", "--once", cwd=tmp_path)
    hocket(
        url, "pipeline", "init", "back-again", "--from", "replay", "--topic", "million.in",
        "--to", "million.again", "--lake", str(lake), cwd=tmp_path,
    )  # fmt: skip
    file = tmp_path / "back-again" / "transformations" / "replay.py"
    file.write_text(
        file.read_text().replace(
            'includeHeaders="true")', 'includeHeaders="true", maxOffsetsPerTrigger="200000")'
        )
    )
    with started(url, tmp_path, "run", "back-again", *EVERY) as run:
        run.until(lambda: count(client, "million.again") > 0, "the first batch")
        run.kill()
    hocket(url, "pipeline", "run", "back-again", "--once", cwd=tmp_path)
    found = by_key(read_all(client, "million.again"))
    assert sum(map(len, found.values())) == 1_000_000
    assert found == expected
