"""All stages, all victims, all shapes: the table of kills.

python -m tests.spark.kills [--shapes map,update] [--part PART] [--folder DIR] [--results DIR]

The parts are `alone`, with one broker, and `replicated`, with three nodes. Of parts and shapes that
are not run, what was seen when they were run last stays in the results.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from hocket.spark import java
from tests.spark.kills import speculation
from tests.spark.kills.harness import ROOT, Kill, Run
from tests.spark.kills.probe import NUMBER_CHANGES
from tests.spark.kills.stages import AFTER, BROKER, DRIVER, LEADER, STAGES
from tests.spark.kills.table import as_markdown, empty_stages

SHAPES = ("map", "shuffle", "stateful", "update")
ALONE, REPLICATED = "alone", "replicated"
# Of each stage the broker first, since the job outlives that, then the driver.
VICTIMS = {ALONE: (BROKER, DRIVER), REPLICATED: (LEADER,)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--part", choices=tuple(VICTIMS))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "internals")
    parser.add_argument("--without-speculation", action="store_true")
    arguments = parser.parse_args()
    problem = java.problem()
    if problem is not None:
        say(problem)
        return 1
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="hocket-kills-"))
    kills: list[Kill] = []
    lines: list[str] = []
    parts = (arguments.part,) if arguments.part else tuple(VICTIMS)
    shapes = arguments.shapes.split(",")
    for part in parts:
        for shape in shapes:
            kills += run(folder / part / shape, shape, part, lines)
    if ALONE in parts:
        plant(folder / "planted", lines)
        if not arguments.without_speculation:
            lines.append(speculation.run(folder / "speculation"))
            say(lines[-1])
    recall(arguments.results, kills, lines)
    table = as_markdown(kills)
    say(table)
    missing = empty_stages(kills)
    assert not missing, f"nobody was killed at {missing}"
    save(arguments.results, table, kills, lines)
    if arguments.folder is None:
        shutil.rmtree(folder)
    return 0


def run(folder: Path, shape: str, part: str, lines: list[str]) -> list[Kill]:
    began = time.monotonic()
    where = "" if part == ALONE else f", {part}"
    with Run(folder, shape, replicated=part == REPLICATED) as job:
        for stage in STAGES:
            for victim in VICTIMS[part]:
                job.kill(stage, victim)
                say(f"{time.monotonic() - began:6.1f} s  {shape}: {victim} killed, {stage}")
        verdict = job.finish()
    failures = job.control.failures()
    assert verdict.is_exact, f"{shape}: {verdict}"
    assert failures, "no task was made to fail"
    lines.append(
        f"{shape}{where}: {len(job.kills)} kills, {job.lives} lives of the job "
        f"({job.ended_by_itself} ended by themselves), {failures} tasks made to fail; {verdict}"
    )
    say(f"{time.monotonic() - began:6.1f} s  {lines[-1]}")
    return job.kills


def recall(folder: Path, kills: list[Kill], lines: list[str]) -> None:
    """What was seen when that which was not run now was run last."""
    known = json.loads((folder / "spark_kills.json").read_text())
    are_run = {(each.shape, each.victim) for each in kills}
    before = [Kill(**each) for each in known["kills"]]
    kills += (each for each in before if (each.shape, each.victim) not in are_run)
    subjects = {each.partition(": ")[0] for each in lines}
    lines += (each for each in known["results"] if each.partition(": ")[0] not in subjects)


def plant(folder: Path, lines: list[str]) -> None:
    """A sink that takes a batch done again for another one: the harness must find it."""
    with Run(folder, "map", planted=NUMBER_CHANGES) as job:
        job.kill(AFTER, DRIVER)
        verdict = job.finish()
    assert verdict.doubled, f"a planted bug was not found: {verdict}"
    assert not verdict.lost
    lines.append(f"planted: a transaction with another name after a restart; found: {verdict}")
    say(lines[-1])


def save(folder: Path, table: str, kills: list[Kill], lines: list[str]) -> None:
    subjects = [*SHAPES, "planted", "speculation", *(f"{each}, {REPLICATED}" for each in SHAPES)]
    lines.sort(key=lambda line: subjects.index(line.partition(": ")[0]))
    text = "\n".join(f"- {line}" for line in lines)
    heading = (
        "# Spark: where it was killed\n\n"
        "Written by `make test-spark-kills`; see [inside](spark.md). One broker, and three nodes\n"
        "with three replicas, are two parts; of each this is what was seen when it was run last.\n"
    )
    (folder / "spark_kills.md").write_text(f"{heading}\n{table}\n{text}\n")
    results = {"kills": [asdict(kill) for kill in kills], "results": lines}
    (folder / "spark_kills.json").write_text(json.dumps(results, indent=1) + "\n")


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
