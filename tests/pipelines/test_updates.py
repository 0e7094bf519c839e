"""Update after update, with a real broker and without Spark: what ends a run, and what does not."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from hocket import Client
from hocket.errors import HocketError

pytest.importorskip("pyspark.pipelines")
pytest.importorskip("grpc")

from hocket.pipelines import running as running_module
from hocket.pipelines.declared import Declared
from hocket.pipelines.faults import PipelineFault, Places
from hocket.pipelines.running import MasterLost, Running, Update
from hocket.pipelines.runs import TOPIC, LiveRun


class Engine:
    """In Spark's place: an update is a call of the test's."""

    def __init__(self, folder: Path, update: Any) -> None:
        self._folder, self._update = folder, update
        self.ended = ""  # why Spark is gone

    def graph(self) -> tuple[str, Declared]:
        return "graph", Declared(Places(self._folder))

    def update(self, *_: object, dry: bool = False, say: object) -> None:
        del say
        if not dry:
            self._update()

    def problem(self, seconds: float = 0.0) -> str:
        del seconds
        return self.ended


class Seen:
    def __init__(self) -> None:
        self.updates: list[int] = []
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, update: Update) -> None:
        pass

    def updated(self, update: Update) -> None:
        self.updates.append(update.number)


def test_a_run_goes_on_while_the_topic_of_runs_is_away(client: Client, tmp_path: Path) -> None:
    seen = Seen()

    def update() -> None:
        if not seen.updates:
            client.delete_topic(TOPIC)

    live = LiveRun(client, "lonely", 1.0)
    live.begin(directory=str(tmp_path), master="local")
    engine: Any = Engine(tmp_path, update)
    running = Running(engine, client, seen, 1.0, 0.0, lambda: len(seen.updates) >= 2)
    running.run(live)
    assert seen.updates == [1, 2]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(running_module, "MASTER_LOOK_SECONDS", 0.0)


@pytest.mark.usefixtures("watched")
def test_an_update_that_does_not_end_without_a_master_ends_the_run(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_module, "MASTER_LOST_SECONDS", 0.1)
    ended, seen = threading.Event(), Seen()
    live = LiveRun(client, "orphan", 1.0)
    live.begin(directory=str(tmp_path), master="spark://gone:7077")
    engine: Any = Engine(tmp_path, ended.wait)
    running = Running(
        engine, client, seen, 1.0, 0.0, lambda: False, master_problem=lambda: "no master answers"
    )
    try:
        with pytest.raises(MasterLost, match=r"no master answers\. Spark's master was lost"):
            running.run(live)
    finally:
        ended.set()
    assert seen.updates == []
    assert seen.lines == [
        "no master answers; the update may end without the master, or is given up"
    ]


@pytest.mark.usefixtures("watched")
def test_an_update_may_end_without_a_master(client: Client, tmp_path: Path) -> None:
    asked, seen = threading.Event(), Seen()

    def problem() -> str:
        asked.set()
        return "no master answers"

    live = LiveRun(client, "bereft", 1.0)
    live.begin(directory=str(tmp_path), master="spark://gone:7077")
    engine: Any = Engine(tmp_path, asked.wait)
    running = Running(engine, client, seen, 1.0, None, lambda: False, master_problem=problem)
    running.run(live)
    assert seen.updates == [1]


@pytest.mark.parametrize("asked", [False, True])
def test_a_spark_that_is_gone_is_not_asked_again_and_ends_the_run(
    client: Client, tmp_path: Path, asked: bool
) -> None:
    """Who tells all processes of a service to end has stopped the run, and it did not fail."""
    stopped, seen = threading.Event(), Seen()

    def update() -> None:
        engine.ended = "Spark's JVM was killed by signal 15"
        if asked:
            stopped.set()
        raise HocketError("UNAVAILABLE")

    live = LiveRun(client, f"beheaded-{asked}", 1.0)
    live.begin(directory=str(tmp_path), master="local")
    engine: Any = Engine(tmp_path, update)
    running = Running(engine, client, seen, 1.0, 0.0, stopped.is_set)
    if asked:
        running.run(live)
        assert running.state() == "stopped"
    else:
        with pytest.raises(PipelineFault, match="was killed by signal 15"):
            running.run(live)
    assert (seen.updates, [line for line in seen.lines if "tried again" in line]) == ([], [])
