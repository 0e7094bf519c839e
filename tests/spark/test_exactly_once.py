"""Exactly once under `kill -9`: a slice of the table that `make test-spark-kills` fills."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hocket.spark import java
from tests.spark.kills import stages
from tests.spark.kills.checking import compare, expected
from tests.spark.kills.stages import BROKER, DRIVER, LEADER, STAGES, VICTIMS
from tests.support.threads import LONG

if TYPE_CHECKING:
    from tests.spark.kills.harness import Kill

PLAN = (
    (stages.ASKED, BROKER),
    (stages.TASK, BROKER),
    (stages.DECIDED, DRIVER),
)


@pytest.mark.timeout(600)
def test_a_job_that_is_killed_and_whose_broker_is_killed_writes_everything_once(tmp_path):
    if problem := java.problem():
        pytest.skip(problem)
    from tests.spark.kills.harness import Run

    with Run(tmp_path / "run", "shuffle") as job:
        for stage, victim in PLAN:
            job.kill(stage, victim)
        verdict = job.finish()
    assert verdict.is_exact, str(verdict)
    assert [(kill.stage, kill.victim) for kill in job.kills] == list(PLAN)
    assert job.lives >= 2
    assert job.control.failures() > 0, "no task was made to fail"


@pytest.mark.skipif(not LONG, reason="HOCKET_STRESS=long (make test-spark-long)")
@pytest.mark.timeout(600)
def test_a_job_goes_on_with_two_nodes_of_three_and_writes_everything_once(tmp_path):
    if problem := java.problem():
        pytest.skip(problem)
    from tests.spark.kills.harness import Run

    with Run(tmp_path / "run", "map", replicated=True) as job:
        for stage in (stages.PLANNING, stages.TASK, stages.ASKED, stages.DECIDED):
            job.kill(stage, LEADER)
        verdict = job.finish()
    assert verdict.is_exact, str(verdict)
    assert job.lives == 1, "it has ended meanwhile"


# --- the checker can fail -------------------------------------------------------------------------

INPUT = {
    0: [("a", "1"), ("a", "2"), ("b", "3"), ("a", "4")],
    1: [("c", "5"), ("c", "6")],
}
BATCHES = [{0: 2}, {0: 3, 1: 2}, {0: 4, 1: 2}]


def test_what_each_shape_must_write():
    mapped = {"a": ["out 1", "out 2", "out 4"], "b": ["out 3"], "c": ["out 5", "out 6"]}
    assert expected("map", INPUT, BATCHES) == expected("shuffle", INPUT, BATCHES) == mapped
    assert expected("stateful", INPUT, BATCHES) == {
        "a": ["count 2", "count 2", "count 3"],
        "b": ["count 1", "count 1"],
        "c": ["count 2", "count 2"],
    }
    assert expected("update", INPUT, BATCHES) == {
        "a": ["count 2", "count 3"],
        "b": ["count 1"],
        "c": ["count 2"],
    }


WANTED = {"a": ["1", "2", "3"], "b": ["4"]}


def test_an_exact_output_is_exact():
    verdict = compare(WANTED, {"a": ["1", "2", "3"], "b": ["4"]})
    assert verdict.is_exact
    assert str(verdict) == "4 records: each exactly once, in order"


@pytest.mark.parametrize(
    ("output", "kind", "found"),
    [
        ({"a": ["1", "2", "3"]}, "lost", [("b", "4")]),  # a participant was left out
        ({"a": ["1", "2", "3"] * 2, "b": ["4"]}, "doubled", [("a", n) for n in "123"]),
        ({"a": ["1", "3", "2"], "b": ["4"]}, "misordered", ["a"]),
        ({"a": ["1", "2", "3"], "b": ["4", "9"]}, "unexpected", [("b", "9")]),
        ({}, "lost", [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4")]),
    ],
)
def test_the_checker_finds(output, kind, found):
    verdict = compare(WANTED, output)
    assert not verdict.is_exact
    assert getattr(verdict, kind) == found
    others = {"lost", "doubled", "misordered", "unexpected"} - {kind}
    assert not any(getattr(verdict, other) for other in others)


def test_nothing_looked_at_is_not_exact():
    assert not compare({}, {}).is_exact


def test_the_table_shows_every_stage_and_which_are_empty():
    from tests.spark.kills.harness import Kill
    from tests.spark.kills.table import as_markdown, empty_stages

    kills: list[Kill] = [Kill("map", stages.BEFORE, DRIVER), Kill("map", stages.BEFORE, DRIVER)]
    assert f"| {stages.BEFORE} | {DRIVER} | 2 | 2 |" in as_markdown(kills)
    assert "| all | | 2 | 2 |" in as_markdown(kills)
    assert (stages.BEFORE, DRIVER) not in empty_stages(kills)
    assert len(empty_stages(kills)) == len(STAGES) * len(VICTIMS) - 1
