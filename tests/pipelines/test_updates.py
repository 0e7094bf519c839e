"""Update after update, with a real broker and without Spark: what ends a run, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hocket import Client

pytest.importorskip("pyspark.pipelines")
pytest.importorskip("grpc")

from hocket.pipelines.declared import Declared
from hocket.pipelines.faults import Places
from hocket.pipelines.running import Running, Update
from hocket.pipelines.runs import TOPIC, LiveRun


class Engine:
    """In Spark's place: an update is a call of the test's."""

    def __init__(self, folder: Path, update: Any) -> None:
        self._folder, self._update = folder, update

    def graph(self) -> tuple[str, Declared]:
        return "graph", Declared(Places(self._folder))

    def update(self, *_: object, dry: bool = False, say: object) -> None:
        del say
        if not dry:
            self._update()


class Seen:
    def __init__(self) -> None:
        self.updates: list[int] = []

    def line(self, text: str) -> None:
        pass

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
