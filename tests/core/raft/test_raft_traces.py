"""Plays the traces of Raft; see tests/support/core/traces.py for how they are read.

Each is tied to sentences of the paper (Ongaro and Ousterhout, In Search of an Understandable
Consensus Algorithm, extended version) or of Ongaro's dissertation (Consensus: Bridging Theory and
Practice), which stand above the commands that they are about.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.core.raft import group
from hocket.core.raft.roles import TABLE, follows
from tests.support.core import traces
from tests.support.core.raft_script import Script

FOLDER = Path(__file__).parents[1] / "traces" / "raft"
SITUATIONS = sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_trace(situation):
    traces.play(FOLDER / f"{situation}.txt", Script().carry_out)


def test_the_traces_were_found():
    assert {"own_term_only", "joint_change", "whose_log_is_newer"} <= set(SITUATIONS)


def test_every_change_of_roles_in_the_table_happens_in_some_trace(monkeypatch):
    happened = set()

    def noted(role, cause):
        happened.add((role, cause))
        return follows(role, cause)

    monkeypatch.setattr(group, "follows", noted)
    for situation in SITUATIONS:
        script = Script()
        for step in traces.read((FOLDER / f"{situation}.txt").read_text()):
            script.carry_out(step.command)
    assert set(TABLE) - happened == set()
