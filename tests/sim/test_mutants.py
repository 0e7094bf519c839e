"""Planted bugs are found: the checkers can fail, and the seeds are harsh enough.

By default each mutant is shown one seed that is known to find it, and that is clean without it.
HOCKET_STRESS=long shows that from seed 0 on it is found within the seeds that it states.
"""

from __future__ import annotations

from functools import cache

import pytest

from hocket.core.chord.pointers import Pointers
from hocket.core.fanout.children import Children
from hocket.core.ring import Ring
from hocket.sim.checkers import CHECKERS
from hocket.sim.mutants import MUTANTS
from hocket.sim.mutants.mutant import mutant, replaced
from hocket.sim.run import ALL_BECOMES_RIGHT, NOTHING_RAISES, run
from tests.support import LONG

FOUND_WITH = {
}  # fmt: skip
BY_NAME = {kind.name: kind.sentence for kind in CHECKERS}


@cache
def is_clean(seed: int) -> bool:
    return run(seed).ok


def test_every_mutant_has_a_seed_here_and_says_what_is_wrong():
    assert list(FOUND_WITH) == list(MUTANTS)
    assert len(MUTANTS) >= 12
    for name, each in MUTANTS.items():
        assert each.name == name
        assert each.sentence.endswith(".")
        assert 0 < each.seeds <= 100


@pytest.mark.parametrize("name", FOUND_WITH)
def test_a_mutant_is_found(name):
    seed, finder = FOUND_WITH[name]
    report = run(seed, mutant=name)
    assert report.violation is not None
    assert report.violation.sentence == BY_NAME[finder]
    assert f"--mutant {name}" in report.replay
    assert is_clean(seed)


@pytest.mark.skipif(not LONG, reason="HOCKET_STRESS=long")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_within_the_seeds_that_it_states(name):
    for seed in range(MUTANTS[name].seeds):
        report = run(seed, mutant=name)
        if not report.ok and is_clean(seed):
            return
    pytest.fail(f"{name} was not found with {MUTANTS[name].seeds} seeds")


@pytest.mark.parametrize("name", MUTANTS)
def test_what_was_planted_is_taken_out_again(name):
    before = state()
    with MUTANTS[name].plant():
        pass
    with pytest.raises(ZeroDivisionError), MUTANTS[name].plant():
        raise ZeroDivisionError
    assert state() == before


def state() -> list[dict]:
    """Of the parts that most mutants break, with the tables they are in."""
    parts = (Pointers, Ring, Children)
    tables = (Ring._handlers, Ring._messages, Ring._timers)
    return [dict(vars(part)) for part in parts] + [dict(table) for table in tables]


def test_a_function_is_replaced_also_in_tables_and_below():
    class Above:
        def act(self) -> str:
            return "right"

    class Below(Above):
        table = {"act": Above.act}

    def wrong(_self: Above) -> str:
        return "wrong"

    with replaced(Above, "act", wrong):
        assert (Below().act(), Below.table["act"](Below())) == ("wrong", "wrong")
    assert (Below().act(), Below.table["act"](Below())) == ("right", "right")


def test_a_mutant_is_made_of_a_function():
    @mutant(seeds=3)
    def nothing_at_all():
        """It does
        nothing."""
        return []

    assert (nothing_at_all.name, nothing_at_all.seeds) == ("nothing_at_all", 3)
    assert nothing_at_all.sentence == "It does nothing."


def test_the_sentences_of_a_run_itself_are_not_a_checkers():
    assert ALL_BECOMES_RIGHT not in BY_NAME.values()
    assert NOTHING_RAISES not in BY_NAME.values()
