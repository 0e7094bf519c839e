"""`hocket sim` as a user meets it. Most tests put made-up reports where the runs would be."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from hocket.sim import parallel as many_module, run as run_module
from hocket.sim.mutants import MUTANTS
from hocket.sim.report import Broken, Report
from tests.support.cli import HOCKET, Hocket, Outcome, environment, fails
from tests.support.threads import PATIENCE


def hocket(*args: str) -> Outcome:
    return Hocket("hocket://unused")("sim", *args)


def report(seed: int, *, ok: bool = True, mutant: str | None = None) -> Report:
    return Report(
        seed=seed,
        ok=ok,
        events=100,
        checks={"one": seed, "other": 3},
        faults={"loss": 2},
        trace_hash=f"{seed:032x}",
        options={"nodes": 5},
        mutant=mutant,
        simulated_us=50_000_000,
        violation=None if ok else Broken("Rings are round.", 1_500_000, "this one\nis not"),
        timeline=["  1.000000  n1    is killed"],
    )


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs take no time, and those of odd seeds above 10 fail."""
    seeds: list[int] = []

    def run(seed: int, *, mutant: str | None = None) -> Report:
        seeds.append(seed)
        return report(seed, ok=seed < 10 or seed % 2 == 0, mutant=mutant)

    monkeypatch.setattr(run_module, "run", run)
    monkeypatch.setattr(many_module, "run", run)
    return seeds


def test_one_seed(made_up: list[int]):
    outcome = hocket("--seed", "4")
    assert outcome.text() == f"seed 4: ok, 100 events in 50 s, trace {4:032x}\n"
    assert made_up == [4]


def test_a_seed_is_picked_and_named(made_up: list[int]):
    outcome = hocket()
    assert outcome.stderr.startswith(f"seed {made_up[0]}\n")


def test_a_violation_is_explained_with_the_command_that_replays_it(made_up: list[int]):
    outcome = hocket("--seed", "11")
    assert outcome.code == 1
    for line in (
        "options: nodes=5",
        "  1.000000  n1    is killed",
        "seed 11, 1.500000 s: not so: Rings are round.",
        "    is not",
        "replay: hocket sim --seed 11 --verbose",
    ):
        assert line in outcome.stderr.splitlines()
    assert b"FAILED" in outcome.stdout


def test_json_is_one_object_on_the_last_line(made_up: list[int]):
    for args, ok in ((["--seed", "4"], True), (["--seed", "11"], False)):
        outcome = hocket(*args, "--json")
        assert outcome.code == (not ok)
        value = json.loads(outcome.stdout.splitlines()[-1])
        assert value.keys() >= {"seed", "ok", "events", "checks", "faults", "trace_hash", "replay"}
        assert (value["ok"], value["seed"]) == (ok, int(args[1]))
        assert isinstance(value["trace_hash"], str)


def test_many_seeds_are_added_up(made_up: list[int]):
    outcome = hocket("--seeds", "5", "--from", "2", "--jobs", "1", "--json")
    assert outcome.code == 0
    value = json.loads(outcome.stdout.splitlines()[-1])
    assert value["seed"] == 2
    assert value["seeds"] == 5
    assert value["ok"] is True
    assert value["failed"] == []
    assert value["events"] == 500
    assert value["checks"] == {"one": 2 + 3 + 4 + 5 + 6, "other": 15}
    assert value["faults"] == {"loss": 10}
    assert isinstance(value["trace_hash"], str)
    assert value["compared"] == 1
    assert made_up == [2, 2, 3, 4, 5, 6]  # one of them twice


def test_failing_seeds_of_many_are_named_and_the_first_explained(made_up: list[int]):
    outcome = hocket("--seeds", "20", "--jobs", "1")
    assert outcome.code == 1
    assert b"failed: 11, 13, 15, 17, 19" in outcome.stdout
    assert outcome.stderr.count("replay: ") == 3


def test_runs_of_one_seed_that_differ_are_a_failure(monkeypatch: pytest.MonkeyPatch):
    hashes = iter("abcdef")

    def run(seed: int, *, mutant: str | None = None) -> Report:
        made = report(seed)
        made.trace_hash = next(hashes)
        return made

    monkeypatch.setattr(many_module, "run", run)
    outcome = hocket("--seeds", "1", "--jobs", "1")
    assert outcome.code == 1
    assert "The same seed gives the same run." in outcome.stderr


def test_a_checker_that_saw_nothing_in_many_runs_is_a_failure(monkeypatch: pytest.MonkeyPatch):
    def run(seed: int, *, mutant: str | None = None) -> Report:
        made = report(seed)
        made.checks = {"one": 1, "blind": 0}
        return made

    monkeypatch.setattr(many_module, "run", run)
    few = hocket("--seeds", "5", "--jobs", "1")
    assert few.code == 0  # it may have had no occasion
    outcome = hocket("--seeds", "60", "--jobs", "1", "--json")
    assert outcome.code == 1
    assert "blind" in outcome.stderr
    assert json.loads(outcome.stdout.splitlines()[-1])["unseen"] == ["blind"]


def test_a_mutant_that_is_found_ends_the_search(made_up: list[int]):
    name = next(iter(MUTANTS))
    outcome = hocket("--seeds", "30", "--mutant", name, "--jobs", "1", "--json")
    assert outcome.code == 1
    value = json.loads(outcome.stdout.splitlines()[-1])
    assert (value["ok"], value["failed"], value["mutant"]) == (False, [11], name)
    assert f"replay: hocket sim --seed 11 --mutant {name} --verbose" in outcome.stderr
    assert max(made_up) == 11


def test_mutants_are_listed():
    listed = hocket("mutants", "--list").text()
    for mutant in MUTANTS.values():
        assert mutant.name in listed
        assert mutant.sentence in listed
    value = hocket("mutants", "--list", "--json").json()
    assert {each["name"] for each in value} == MUTANTS.keys()
    assert all(each["seeds"] > 0 and each["sentence"] for each in value)


def test_slips_are_usage_errors():
    fails(hocket("--mutant", "none_such"), 2, "none_such", next(iter(MUTANTS)))
    fails(hocket("--seed", "1", "--seeds", "2"), 2, "--seed", "--seeds")
    assert hocket("--seed", "minus").code == 2
    fails(hocket("--seed", "1", "--jobs", "2"), 2, "--jobs", "--seeds")
    fails(hocket("--from", "5"), 2, "--from", "--seeds")
    fails(hocket("--seed", "1", "mutants", "--list"), 2, "mutants")
    fails(hocket("ring", "--picture", "no/such/place.svg"), 2, "no/such")


def test_processes_do_the_work_and_an_interrupt_ends_them():
    """A real run of real seeds; the group has all processes of the pool."""
    process = subprocess.Popen(
        # From a seed on whose runs are short: those that have begun come to their end.
        [*HOCKET, "sim", "--seeds", "100000", "--from", "7", "--jobs", "2", "--verbose"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    with process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("seed 7: ok")
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert "interrupted" in rest
