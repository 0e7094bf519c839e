"""A slice of the assault, with every kind of input; all of it is `make test-attack`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack import hostile
from tests.attack.__main__ import FINDS
from tests.attack.assault import run
from tests.attack.kinds import EACH
from tests.attack.mutants import MUTANTS
from tests.attack.place import KINDS, Kind
from tests.support.threads import LONG

INPUTS = 150
MASSES = {"floods": {}, "slow_readers": {"many": 3}, "deaf_askers": {"many": 1},
          "many_connections": {"many": 40}}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS if LONG else [KINDS[0], KINDS[3]], ids=str)
def test_hostile_inputs_do_no_harm(kind: Kind, tmp_path: Path):
    report = run(tmp_path, kind, seed=1, inputs=INPUTS, masses=MASSES)
    assert report.found() == ""
    assert report.counts.keys() == {*EACH, *MASSES}
    assert report.inputs >= INPUTS


@pytest.mark.parametrize("mutant", MUTANTS if LONG else ["ids_belong_to_everybody"])
def test_a_planted_bug_is_found(mutant: str, tmp_path: Path):
    assert FINDS[mutant].found_in(tmp_path, mutant)


def test_every_kind_of_frame_is_among_the_hostile_ones():
    assert hostile.missing_samples() == set()


def test_every_planted_bug_is_looked_for():
    assert FINDS.keys() == MUTANTS.keys()
