"""Runs of the whole cluster: the same every time, and honest about what went wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from hocket.core.ring.ring import Ring
from hocket.sim.cluster import Cluster
from hocket.sim.regressions import REGRESSIONS
from hocket.sim.report import Report
from hocket.sim.run import NOTHING_RAISES, run
from hocket.sim.swarm import options_of
from tests.support.threads import LONG

SAME = (8, 9)  # seeds that are compared between processes


def short(seed: int):
    """The seed's options, in a quarter of the time."""
    return replace(options_of(seed), safety_us=6_000_000)


def test_a_seed_gives_the_same_run_under_any_hash_seed():
    program = (
        "import json\nfrom hocket.sim.run import run\nfrom tests.sim.test_run import short\n"
        f"print(json.dumps([run(each, options=short(each)).to_json() for each in {SAME}]))"
    )
    outcomes = []
    for hash_seed in ("0", "4242"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, check=True
        )
        outcomes.append(json.loads(done.stdout))
    assert outcomes[0] == outcomes[1]
    assert [each["seed"] for each in outcomes[0]] == list(SAME)
    hashes = {each["trace_hash"] for each in outcomes[0]}
    assert len(hashes) == len(SAME)


def test_other_options_give_another_run():
    options = short(8)
    once = run(8, options=options).trace_hash
    assert run(8, options=options).trace_hash == once
    lossy = replace(options, loss=0.01)
    assert run(8, options=lossy).trace_hash != once


def test_an_error_of_the_production_code_is_a_violation(monkeypatch: pytest.MonkeyPatch):
    def broken(self: object, event: object, now_us: int) -> list[object]:
        raise KeyError("planted")

    monkeypatch.setattr(Ring, "step", broken)
    report = run(1, options=short(1))
    assert not report.ok
    assert report.violation is not None
    assert report.violation.sentence == NOTHING_RAISES
    assert "planted" in report.violation.detail


def test_a_report_can_be_sent_as_json():
    report = run(3, options=short(3))
    value = json.loads(json.dumps(report.to_json()))
    assert value["options"]["safety_us"] == 6_000_000
    assert value["counts"]["lookups"] > 0
    assert value["counts"]["mended"] >= 0
    assert isinstance(report, Report)


# By default every third; all of them with HOCKET_STRESS=long (make test-sim).
@pytest.mark.parametrize("name", list(REGRESSIONS)[:: 1 if LONG else 3])
def test_what_once_failed_does_not_fail_again(name: str):
    seed, options = REGRESSIONS[name]
    report = run(seed, options=options)
    assert report.ok, report.explain()


# --- the world itself -----------------------------------------------------------------------------


def quiet_cluster(nodes: int = 6, **changes: object) -> Cluster:
    options = replace(
        options_of(0), faults=(), nodes=nodes, nodes_max=16, successors=2, topics=1, consumers=2,
        loss=0.0, duplication=0.0, reordering=0.0, tails=0.0, skew_us_max=0, drift_ppm_max=0,
        **changes,
    )  # fmt: skip
    cluster = Cluster(0, options)
    cluster.begin()
    return cluster


def test_a_stalled_machine_does_nothing_and_then_everything():
    cluster = quiet_cluster()
    cluster.scheduler.run_for(2_000_000)
    machine = cluster.machines[1]
    assert machine.node is not None
    turns: list[int] = []
    machine.stall()
    machine.time.after(1_000, lambda: turns.append(1))
    cancelled = machine.time.after(2_000, lambda: turns.append(2))
    machine.time.after(3_000, lambda: turns.append(3))
    cluster.scheduler.run_for(150_000)
    assert turns == []
    assert not machine.reachable
    cancelled.cancel()
    machine.resume()
    cluster.scheduler.run_for(1)
    assert turns == [1, 3]
    assert machine.reachable


def test_a_crash_ends_a_life_and_the_next_has_the_same_disk():
    cluster = quiet_cluster()
    cluster.scheduler.run_for(2_000_000)
    machine = cluster.machines[2]
    life = machine.me
    assert life is not None
    turns: list[int] = []
    machine.time.after(1_000, lambda: turns.append(1))
    cluster.faults.crash(machine, power=True)
    assert not machine.up
    assert cluster.fails[-1][1] == life
    cluster.scheduler.run_for(10_000)
    machine.start(cluster.seeds(but=machine))
    cluster.scheduler.run_for(10_000_000)
    assert turns == []
    assert machine.is_member
    assert machine.me is not None
    assert machine.me.incarnation > life.incarnation
    assert not cluster.deceived


def test_giving_up_a_living_node_is_a_deception_and_a_dead_one_is_not():
    cluster = quiet_cluster()
    cluster.scheduler.run_for(2_000_000)
    witness, victim = cluster.machines[1], cluster.machines[2]
    dead = victim.me
    assert dead is not None
    cluster.faults.crash(victim, power=False)
    cluster.convicted(witness, dead)
    assert not cluster.deceived
    assert witness.me is not None
    cluster.convicted(cluster.machines[3], witness.me)
    assert cluster.deceived


def test_who_leaves_says_goodbye_and_is_gone():
    cluster = quiet_cluster()
    cluster.scheduler.run_for(2_000_000)
    machine = cluster.machines[3]
    left: list[bool] = []
    machine.leave(lambda: left.append(True))
    cluster.scheduler.run_for(6_000_000)
    assert left == [True]
    assert not machine.up
    for ring in cluster.rings():
        assert machine.name not in [each.node for each in ring.successors]


def test_guarded_crashes_spare_whom_the_proof_needs():
    cluster = quiet_cluster(nodes=4, guarded=True)  # r = 2: one more than three principals
    cluster.scheduler.run_for(2_000_000)
    assert cluster.faults.may_stop(cluster.machines[1])
    cluster.faults.crash(cluster.machines[1], power=False)
    assert not any(cluster.faults.may_stop(each) for each in cluster.machines if each.up)
