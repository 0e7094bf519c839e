"""The scenes with Spark: a topic, an aggregate over it, a topic with what came out; a pipeline.

Spark runs in a process of its own, which keeps its JVM, and what that says, out of the demo's. It
is started once for both scenes, since its start takes longer than all that they do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hocket
from hocket import environment
from hocket.demo.outcome import Outcome, check
from hocket.demo.topics import PATIENCE_SECONDS, serving
from hocket.spark import java

if TYPE_CHECKING:
    from hocket.pipelines.running import Update

READINGS = 200_000
SENSORS = 100
SPARK_SECONDS = 180  # far more than it takes

PIPELINE = "minutes"
MINUTES = 24  # of the events' own time
WAVES = 2  # in which they are published
PER_MINUTE = 2_000
KEYS = ("north", "south", "west")
PICTURE = Path("demo.png")

# Short jobs: a compiler that is quick to begin counts for more than fast code. An archive of
# classes halves Spark's start, if the tests have left one.
ARCHIVE = Path(sys.prefix) / "spark.jsa"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds*=off"


def what_is_missing() -> str | None:
    """One line on what to install for these scenes, or None."""
    if find_spec("pyspark") is None:
        return "Spark for Python is missing: pip install 'hocket[spark]'"
    return java.problem()


class SparkScenes:
    """Both scenes, on one broker and one Spark; `with` ends them."""

    def __init__(self) -> None:
        self._ends = ExitStack()
        self._client: hocket.Client | None = None
        self._process: subprocess.Popen[str] | None = None
        self._errors = Path()

    def __enter__(self) -> SparkScenes:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def topic_to_topic(self, progress: Callable[[float], None]) -> Outcome:
        """Every reading is counted once, in the total of its sensor."""
        missing = what_is_missing()
        if missing is not None:
            return Outcome(0, 0, 0, f"left out. {missing}")
        client = self._start()
        with client.producer("readings") as producer:
            for number in range(READINGS):
                producer.send(b"%d" % number, b"sensor %d" % (number % SENSORS))
        progress(0.1)
        self._said("started")
        self._tell("add up")
        self._said("added up")
        progress(0.9)
        with client.subscribe("totals") as totals:
            received = [totals.receive(timeout=PATIENCE_SECONDS) for _ in range(SENSORS)]
        found = {total.key: int(total.value) for total in received}
        published = client.describe("totals").partitions[0].end
        expected = {
            b"sensor %d" % sensor: sum(range(sensor, READINGS, SENSORS))
            for sensor in range(SENSORS)
        }
        check(found == expected and published == SENSORS, "every reading is in one total, once")
        size = sum(len(b"%d" % number) for number in range(READINGS))
        return Outcome(1, READINGS + SENSORS, size, f"{SENSORS} totals, each reading counted once")

    def pipeline(self, progress: Callable[[float], None]) -> Outcome:
        """The built-in pipeline `aggregate`: every event is in the sum of its minute, once."""
        if self._process is None or self._client is None:
            return Outcome(0, 0, 0, "left out, as above")
        client, size = self._client, 0
        expected: dict[tuple[str, str], tuple[int, float]] = {}
        self._tell("run")
        updates = []
        for wave in range(WAVES):
            with client.producer(f"{PIPELINE}.in") as producer:
                for number in range(wave * MINUTES // WAVES * PER_MINUTE,
                                    (wave + 1) * MINUTES // WAVES * PER_MINUTE):  # fmt: skip
                    key, event = _event(number)
                    value = json.dumps(event).encode()
                    producer.send(value, key.encode())
                    size += len(value)
                    at = (key, event["time"][:16])
                    count, total = expected.get(at, (0, 0.0))
                    expected[at] = (count + 1, total + event["amount"])
            while True:  # the next wave comes when this one is through
                updates.append(json.loads(self._said('{"number"')))
                if updates[-1]["rows"] and not any(updates[-1]["lag"].values()):
                    break
            progress((wave + 1) / (WAVES + 1))
        _, late = _event((MINUTES + 60) * PER_MINUTE)  # an hour on: every window is complete
        client.publish(f"{PIPELINE}.in", json.dumps(late).encode(), key=b"late")
        found: dict[tuple[str, str], tuple[int, float]] = {}
        with client.subscribe(f"{PIPELINE}.out") as sums:
            while len(found) < len(expected):
                message = sums.receive(timeout=SPARK_SECONDS)
                each = json.loads(message.value)
                at = ((message.key or b"").decode(), each["from"][:16])
                check(at not in found, "each window is published once")
                found[at] = (each["count"], each["sum"])
        check(found == expected, "every event is in the sum of its minute, once")
        self._tell("stop")
        self._said("stopped")
        events = sum(count for count, _ in found.values())
        drawn = draw(updates, {at: total for at, (_, total) in found.items()})
        return Outcome(1, events + len(found), size, f"{len(found)} windows complete; {drawn}")

    def _start(self) -> hocket.Client:
        folder = self._ends.enter_context(tempfile.TemporaryDirectory(prefix="hocket-demo-"))
        servers, _ = self._ends.enter_context(serving(f"{folder}/data", "127.0.0.1:0"))
        client = self._client = self._ends.enter_context(hocket.connect(servers))
        client.create_topic("readings", partitions=2)
        client.create_topic("totals")
        self._errors = Path(folder, "spark.err")
        with self._errors.open("w") as errors:
            process = self._process = subprocess.Popen(
                [sys.executable, "-m", "hocket.demo.spark", servers, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
                env={**os.environ, "PYTHONUNBUFFERED": "1", environment.SERVER: servers},
            )
        self._ends.callback(_end, process)
        return client

    def _tell(self, command: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")

    def _said(self, beginning: str) -> str:
        """The next line of the other process that begins so."""
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(beginning):
                return line
        words = self._errors.read_text()[-2000:]
        raise SystemExit(f"demo failed: Spark does its part; it said:\n{words}")


def _end(process: subprocess.Popen[str]) -> None:
    """A process whose input has ended stops by itself, and its JVM with it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _event(number: int) -> tuple[str, dict[str, Any]]:
    """What a sensor says; the amounts of a minute rise and fall, each key at its own pace."""
    minute, place = divmod(number, PER_MINUTE)
    at = time.gmtime(1_767_225_600 + minute * 60 + place * 60 // PER_MINUTE)
    which = number % len(KEYS)
    phase = minute * (which + 1) % MINUTES
    amount = 10 * (which + 1) + min(phase, MINUTES - phase)
    return KEYS[which], {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", at), "amount": amount}


def draw(updates: list[dict[str, Any]], sums: dict[tuple[str, str], float]) -> str:
    """The picture of the updates' throughput and of the sums; says where it is."""
    if find_spec("matplotlib") is None:
        return "no picture, for want of matplotlib: pip install 'hocket[demo]'"
    import matplotlib  # only here: it takes a second

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(9, 7), layout="constrained")
    busy = [each for each in updates if each["rows"]]
    above.bar([str(each["number"]) for each in busy], [each["rows_per_second"] for each in busy])
    above.set(title="Throughput of the pipeline", xlabel="update", ylabel="records read per second")
    for key in KEYS:
        minutes = sorted(at for name, at in sums if name == key)
        below.plot(
            [minute[11:] for minute in minutes],
            [sums[key, minute] for minute in minutes],
            marker=".",
            label=key,
        )
    below.set(title="What it aggregates", xlabel="minute (UTC)", ylabel="sum of the amounts")
    below.tick_params(axis="x", rotation=60)
    below.set_ylim(bottom=0)
    below.legend()
    for axes in (above, below):
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter("{x:,.0f}")
    figure.savefig(PICTURE, dpi=110)
    pyplot.close(figure)
    return f"picture: {PICTURE}"


class _Lines:
    """Each update as a line of JSON, for the demo's process."""

    def line(self, text: str) -> None:
        pass

    def progress(self, update: Update) -> None:
        pass

    def updated(self, update: Update) -> None:
        from dataclasses import asdict

        print(json.dumps(asdict(update)), flush=True)


def apart(servers: str, folder: str) -> None:
    """Spark's process: it does what it is told, a line for each thing, until its input ends."""
    from hocket.pipelines import making, project
    from hocket.pipelines.engine import Engine

    directory, topics = making.make(
        PIPELINE, Path(folder), kind="aggregate", topic=None, to=None, lake=None
    )
    options = f"{QUICK} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else QUICK
    quick = {"spark.driver.extraJavaOptions": options}
    with (
        hocket.connect(servers) as client,
        Engine(project.load(directory), master="local[2]", config=quick) as engine,
    ):
        for topic in topics:
            client.create_topic(topic)
        print("started", flush=True)
        for command in sys.stdin:
            if command == "add up\n":
                add_up(engine.spark, servers)
                print("added up", flush=True)
            elif command == "run\n":
                run(engine, client)
                print("stopped", flush=True)


def add_up(spark: Any, servers: str) -> None:
    messages = spark.read.format("hocket").options(
        servers=servers, subscribe="readings", columns="key,value"
    )
    readings = messages.load().selectExpr("key", "cast(cast(value as string) as long) as reading")
    totals = readings.groupBy("key").sum("reading").toDF("key", "total")
    totals.selectExpr("key", "cast(total as string) as value").write.format("hocket").options(
        servers=servers, topic="totals"
    ).mode("append").save()


def run(engine: Any, client: hocket.Client) -> None:
    """Update after update, until the next line comes."""
    import select

    from hocket.pipelines.running import Running
    from hocket.pipelines.runs import LiveRun

    live = LiveRun(client, PIPELINE)
    live.begin(directory=str(engine.project.directory), master=engine.master)
    stopped = lambda: bool(select.select([sys.stdin], [], [], 0)[0])  # noqa: E731
    running = Running(engine, client, _Lines(), PATIENCE_SECONDS, 0.0, stopped)
    running.run(live)
    live.end(running.state())


if __name__ == "__main__":
    apart(*sys.argv[1:])
