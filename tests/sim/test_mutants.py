"""Planted bugs are found: the checkers can fail, and the seeds are harsh enough.

By default each mutant is shown the seeds that are known to find it, and are clean without it.
HOCKET_STRESS=long shows that from seed 0 on it is found within the seeds that it states.
"""

from __future__ import annotations

import pytest

from hocket.core.relay.children import Children
from hocket.core.ring.pointers import Pointers
from hocket.core.ring.ring import Ring
from hocket.sim.checkers import CHECKERS
from hocket.sim.mutants import MUTANTS
from hocket.sim.mutants.mutant import mutant, replaced
from hocket.sim.run import ALL_BECOMES_RIGHT, NOTHING_RAISES, run
from tests.support.sim.seeds import report_of
from tests.support.threads import LONG

IDEAL = "the_ring_becomes_ideal_and_stays"
PRINCIPALS = "there_are_enough_principals"
LOST = "only_a_failure_loses_a_principal"
RIGHT = "all becomes right"  # not a checker: a run itself demands it at its end
LIVE = "every_member_has_a_live_successor"
LOOKUPS = "lookups_find_the_successor"
OFFSETS = "consumers_get_every_offset_once"
RESUMES = "delivery_resumes_after_a_crash"
ENCODED = "encoded_messages_come_back_as_they_were"
SAME = "metadata_is_the_same_everywhere"
TWICE = "no_request_is_done_twice"
RAISES = "nothing raises"  # not a checker either
TREE = "children_are_bounded_and_trees_have_no_cycle"

# For each who is to find it, and seeds with which it was found, the quickest first.
FOUND_WITH: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "adopt_a_pointer_that_has_not_answered": ((PRINCIPALS, LOST, LOOKUPS), (0, 4, 10, 2)),
    "defer_when_busy": ((IDEAL,), (11, 10, 3, 1)),
    "forget_to_recheck": ((PRINCIPALS, LOST), (0, 1, 4, 2)),
    "skip_the_notify": ((IDEAL,), (2, 3, 1, 10)),
    "go_on_with_the_last_when_the_head_dies": ((PRINCIPALS, LOST, LOOKUPS), (0, 6, 4, 10)),
    "trust_an_older_incarnation": ((IDEAL, LIVE), (8, 2, 0, 4)),
    "convict_at_the_first_silence": (("the_living_are_not_given_up",), (2, 10, 4, 9)),
    "never_look_for_another_ring": ((IDEAL,), (11, 27, 59)),
    "lookup_stops_short": ((LOOKUPS,), (1, 2, 0, 8)),
    "keep_a_dead_predecessor": ((IDEAL,), (8, 2, 0, 1)),
    "rectify_with_anybody": (("predecessors_only_come_nearer",), (6, 0, 10, 16)),
    "name_the_dead_of_a_small_ring": ((LOOKUPS,), (103,)),
    "never_register_late": ((RIGHT,), (8, 2, 0, 35)),
    "leave_one_out_of_a_small_ring": (("small_rings_follow_the_registry",), (13, 14, 19, 8)),
    "serve_past_the_committed_end": (("only_committed_batches_are_relayed",), (13, 16, 5)),
    "more_children_than_allowed": ((TREE,), (9, 10, 3, 11)),
    "resume_at_the_newest": ((OFFSETS,), (8, 3)),
    "accept_a_gap": ((OFFSETS,), (2, 1, 8, 3)),
    "ignore_a_silent_parent": ((OFFSETS, RESUMES), (11, 5, 0, 7)),
    "send_without_credit": (("credit_is_never_exceeded",), (11, 0, 3, 1)),
    "forget_the_credit": ((OFFSETS, RESUMES), (11, 0, 4, 1)),
    "no_cycle_check": ((TREE,), (30, 52, 48, 7)),
    "forget_a_field_of_a_message": ((ENCODED,), (8, 2, 10, 0)),
    "install_a_stale_snapshot": ((SAME, RAISES), (90, 95)),
    "skip_an_entry_after_a_reconnect": ((SAME,), (0, 1, 2)),
    "do_a_request_twice": ((TWICE, RAISES), (2, 3, 11)),
    "forget_what_was_done_in_snapshots": ((SAME,), (0, 1, 2)),
    "answer_before_it_is_applied": ((RAISES,), (0, 1, 2)),
    "tell_what_is_not_committed": ((SAME, RAISES), (0, 2, 6)),
}
# An administrator that reads something else than it was told, or is told what cannot be, raises.
BY_NAME = {kind.name: kind.sentence for kind in CHECKERS}
SENTENCES = {**BY_NAME, RIGHT: ALL_BECOMES_RIGHT, RAISES: NOTHING_RAISES}


def test_every_mutant_has_a_seed_here_and_says_what_is_wrong():
    assert list(FOUND_WITH) == list(MUTANTS)
    assert len(MUTANTS) >= 12
    for name, each in MUTANTS.items():
        assert each.name == name
        assert each.sentence.endswith(".")
        assert 0 < each.seeds <= 200


@pytest.mark.parametrize("name", FOUND_WITH)
def test_a_mutant_is_found(name):
    finders, known = FOUND_WITH[name]
    sentences = [SENTENCES[finder] for finder in finders]
    # A run changes with the code, and the seed that finds a bug with it: then the others do.
    for seed in dict.fromkeys((*known, *range(MUTANTS[name].seeds))):
        report = run(seed, mutant=name)
        found = report.violation
        if found is not None and found.sentence in sentences and report_of(seed).ok:
            assert f"--mutant {name}" in report.replay
            return
    pytest.fail(f"{name} was not found with {MUTANTS[name].seeds} seeds")


@pytest.mark.skipif(not LONG, reason="HOCKET_STRESS=long")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_within_the_seeds_that_it_states(name):
    for seed in range(MUTANTS[name].seeds):
        report = run(seed, mutant=name)
        if not report.ok and report_of(seed).ok:
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
