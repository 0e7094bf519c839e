"""Planted bugs are found: the checkers can fail, and the seeds are harsh enough.

Each mutant is shown the seeds that are known to find it, and are clean without it; by default one
of each part, with HOCKET_STRESS=long (make test-sim) all. One that few seeds find has a world
of its own, in which many seeds do: the search for such a seed costs more than all other mutants
together, and begins anew with every change of the code. HOCKET_STRESS=long also shows that from
seed 0 on each of the others is found within the seeds that it states, in the worlds that the seeds
decide.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from hocket.core.relay.children import Children
from hocket.core.ring.pointers import Pointers
from hocket.core.ring.ring import Ring
from hocket.sim.checkers import CHECKERS
from hocket.sim.mutants import MUTANTS
from hocket.sim.mutants.mutant import mutant, replaced
from hocket.sim.mutants.of_transactions import OF_TRANSACTIONS
from hocket.sim.run import ALL_BECOMES_RIGHT, NOTHING_RAISES, run
from hocket.sim.swarm import SECOND, options_of
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
ROOT_LED = "group_0_has_one_leader_in_a_term"
RAISES = "nothing raises"  # not a checker either
IN_ORDER = "subscribers_get_every_message_in_order"
FOR_GOOD = "what_is_acked_for_good_is_not_handed_out_again"
MENDS = "clients_mend_nothing_before_anything_fails"
TREE = "children_are_bounded_and_trees_have_no_cycle"
MAJORITY = "what_is_committed_is_durable_at_a_majority"
KEPT = "terms_votes_and_flushed_entries_are_kept"
COMPLETE = "a_leader_has_all_that_is_committed"
CHANGED = "what_is_committed_never_changes"
ALIKE = "copies_that_have_applied_the_same_are_the_same"
LED = "every_group_is_led_when_faults_are_over"
STARTS = "log_starts_move_by_committed_entries"
ACKED = "acknowledged_records_are_at_their_offsets"
WHOLE = "transactions_are_whole_or_absent"
READ = "who_is_told_of_a_commit_can_read_all_of_it"
LEASED = "no_message_is_leased_twice"
IN_KEYS = "messages_of_a_key_are_handed_out_in_order"
BURIED = "each_message_that_dies_has_one_dead_letter"

# For each who is to find it, and seeds with which it was found, the quickest first.
FOUND_WITH: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "adopt_a_pointer_that_has_not_answered": ((PRINCIPALS, LOST, LOOKUPS), (0, 4, 10, 2)),
    "defer_when_busy": ((IDEAL,), (3, 10, 1)),
    "forget_to_recheck": ((PRINCIPALS, LOST), (0, 1, 4, 2)),
    "skip_the_notify": ((IDEAL,), (2, 3, 1, 10)),
    "go_on_with_the_last_when_the_head_dies": ((PRINCIPALS, LOST, LOOKUPS), (0, 6, 4, 10)),
    "begin_again_without_successors": (("each_side_of_a_cut_becomes_a_ring",), (11, 27, 59)),
    "trust_an_older_incarnation": ((IDEAL, LIVE), (8, 2, 0, 4)),
    "convict_at_the_first_silence": (("the_living_are_not_given_up",), (2, 10, 4, 9)),
    "never_look_for_another_ring": ((IDEAL,), (11, 27, 59)),
    "lookup_stops_short": ((LOOKUPS,), (1, 2, 0, 8)),
    "keep_a_dead_predecessor": ((IDEAL,), (8, 2, 0, 1)),
    "rectify_with_anybody": (("predecessors_only_come_nearer",), (6, 0, 10, 16)),
    "name_the_dead_of_a_small_ring": ((LOOKUPS,), (17, 81)),
    "never_register_late": ((RIGHT,), (7, 2, 0, 35)),
    "leave_one_out_of_a_small_ring": (("small_rings_follow_the_registry",), (13, 14, 19, 8)),
    "serve_past_the_committed_end": (("only_committed_batches_are_relayed",), (13, 5)),
    "a_copy_hands_on_what_it_stores": (("only_committed_batches_are_relayed",), (9,)),
    "more_children_than_allowed": ((TREE,), (14, 10, 3, 9, 11)),
    "resume_at_the_newest": ((OFFSETS,), (8, 3)),
    "accept_a_gap": ((OFFSETS,), (2, 1, 8, 3)),
    "ignore_a_silent_parent": ((OFFSETS, RESUMES), (5, 0, 11, 7)),
    "send_without_credit": (("credit_is_never_exceeded",), (11, 0, 3, 1)),
    "forget_the_credit": ((OFFSETS, RESUMES), (4, 0, 11, 1)),
    "no_cycle_check": ((TREE,), (52, 7)),
    "forget_a_field_of_a_message": ((ENCODED,), (8, 2, 10, 0)),
    "do_a_request_twice": ((TWICE, RAISES), (0, 1, 2)),
    "forget_what_was_done_in_snapshots": ((SAME,), (0, 1, 2)),
    "answer_before_it_is_applied": ((RAISES,), (3, 0, 1, 2)),
    "serve_changes_before_the_first_entry": ((RAISES,), (13,)),
    "keep_what_was_proposed_when_deposed": ((RAISES,), (1, 12)),
    "tell_what_is_not_committed": ((SAME, RAISES), (3, 7)),
    "forget_the_members_in_snapshots": ((IDEAL, RIGHT, ROOT_LED), (0,)),
    "forget_who_was_stopped_in_order": ((IDEAL,), (5,)),
    "forget_a_commit": ((IN_ORDER,), (0, 1, 3)),
    "forget_acks_in_the_log": ((FOR_GOOD,), (0, 1)),
    "skip_a_message_when_opened_again": ((IN_ORDER,), (0,)),
    "hang_up_when_shown_the_way": ((MENDS,), (0, 1, 4, 5)),
    "begin_a_feed_too_far": ((RAISES, IN_ORDER), (0, 1)),
    "stay_when_the_feeder_is_lost": ((RIGHT, IN_ORDER), (1, 2)),
    "forget_to_stop_a_feed": (("who_is_not_needed_is_forgotten",), (0, 1)),
    "count_what_is_not_on_the_own_disk": ((MAJORITY,), (6, 7)),
    "accept_before_it_is_durable": ((MAJORITY,), (6, 7)),
    "vote_before_it_is_durable": ((KEPT,), (6, 7)),
    "forget_the_vote": ((KEPT,), (6, 7)),
    "forget_the_term": ((KEPT,), (6, 7)),
    "vote_for_who_is_behind": ((COMPLETE, CHANGED), (13, 25, 22)),
    "vote_twice": ((KEPT, "each_term_has_one_leader"), (12, 13)),
    "vote_with_a_damaged_log": (("who_is_damaged_neither_votes_nor_leads",), (2, 4, 5, 7)),
    "serve_before_the_first_entry": ((RIGHT, RAISES, LED), (6, 7)),
    "keep_what_was_proposed": ((RAISES, ALIKE), (0, 1)),
    "acknowledge_when_stepping_down": ((ALIKE, ACKED), (0, 1)),
    "keep_the_handles_of_a_deposed_leader": ((RAISES, RIGHT), (9, 12)),
    "lose_what_was_proposed": ((RAISES, ALIKE), (0, 1)),
    "commit_entries_of_older_terms": ((RAISES, OFFSETS, CHANGED, RIGHT), (6, 7)),
    "apply_what_is_not_committed": ((ALIKE,), (6, 7)),
    "keep_a_tail_that_was_cut_off": ((ALIKE, RAISES), (12, 14)),
    "pass_over_an_entry": ((RAISES, ALIKE), (6, 7)),
    "apply_again_what_a_state_has": ((RAISES, ALIKE), (13, 29, 12)),
    "store_what_is_sent_again": (("no_batch_is_stored_twice",), (7, 9)),
    "forget_producers_in_snapshots": ((ALIKE,), (6, 7)),
    "forget_indexes_in_snapshots": ((ALIKE,), (6, 7)),
    "remove_old_records_without_an_entry": ((STARTS,), (12, 13)),
    "tell_durable_before_it_is_synced": ((RAISES, KEPT), (6, 7)),
    "go_on_behind_a_hole": ((RAISES, ALIKE, CHANGED), (2, 7)),
    "acknowledge_a_stage_before_a_majority_has_it": ((RIGHT, RAISES, WHOLE), (2,)),
    "forget_stages_in_snapshots": ((ALIKE, RAISES, WHOLE), (0, 1)),
    "drop_stages_when_the_leader_changes": ((RAISES, WHOLE), (0,)),
    "forget_how_far_a_roll_forward_was": ((ALIKE, WHOLE), (0,)),
    "forget_what_was_applied_in_snapshots": ((RAISES, RIGHT, WHOLE), (7, 2)),
    "answer_before_it_is_applied_everywhere": ((READ, WHOLE), (0, 2)),
    "take_other_content_for_the_same": ((RAISES,), (0,)),
    "a_new_decider_forgets_what_was_decided": ((RAISES, WHOLE), (0,)),
    "answer_when_the_first_partition_shows_it": ((READ,), (0,)),
    "publish_before_the_decision_is_durable": ((RAISES, WHOLE), (39, 7, 18)),
    "publish_what_is_to_be_dropped": ((WHOLE,), (1, 0, 3)),
    "lease_what_is_not_reserved": ((LEASED,), (7, 1)),
    "lease_what_a_former_leader_may_have_leased": ((LEASED,), (1,)),
    "answer_acks_before_they_are_committed": ((FOR_GOOD,), (10,)),
    "forget_counts_that_others_have_logged": ((ALIKE,), (0,)),
    "bury_as_another_producer_in_each_term": ((BURIED,), (43, 10)),
    "lease_a_key_that_another_one_has": ((IN_KEYS,), (11,)),
    "forget_own_indexes_that_others_have_logged": ((ALIKE, IN_ORDER), (0,)),
}
# A client that reads something else than it was told, or is told what cannot be, raises.
BY_NAME = {kind.name: kind.sentence for kind in CHECKERS}
SENTENCES = {**BY_NAME, RIGHT: ALL_BECOMES_RIGHT, RAISES: NOTHING_RAISES}
# In these messages are late, or come twice: what was handed on to the root, say.
_SNAPSHOTS = {
    "temper": "calm", "guarded": True,
    "faults": ("duplication", "reordering", "tails", "crash", "join"),
    "duplication": 0.3, "reordering": 0.3, "tails": 0.2, "tail_us_max": 400_000,
    "fault_every_us": SECOND, "safety_us": 20 * SECOND, "nodes": 3, "nodes_max": 4, "successors": 2,
    "topics": 1, "partitions": 1, "producers": 1, "batches": 5, "consumers": 1,
    "slow_consumers": 0.0, "lookups_every_us": 2 * SECOND, "changes_every_us": SECOND // 10,
    "raft_entries": 2,
}  # fmt: skip
# In these disks of three copies are damaged, and who leads changes often.
_DAMAGE = {
    "temper": "wild", "guarded": False,
    "faults": ("bit_flip", "lost_write", "leader_crash", "crash"),
    "loss": 0.0, "duplication": 0.0, "reordering": 0.0, "tails": 0.0, "skew_us_max": 0,
    "drift_ppm_max": 0, "nodes": 3, "nodes_max": 3, "successors": 2, "replicas": (3,), "holders": 3,
    "topics": 1, "partitions": 1, "producers": 2, "publishers": 1, "batches": 60,
    "record_bytes_max": 60, "consumers": 1, "slow_consumers": 0.0, "subscribers": 2, "workers": 0,
    "changes_every_us": 0, "lookups_every_us": 2 * SECOND, "fault_every_us": SECOND,
    "safety_us": 20 * SECOND, "kept_bytes": None, "beyond": False,
}  # fmt: skip
# In these leaders are cut off, and take what they cannot commit.
_CUTS = {**_DAMAGE, "faults": ("leader_cut", "slow_disk", "breaks")}
# In these there is little else than transactions, and those who take part in them come and go.
_TRANSACTIONS = {
    **_DAMAGE, "faults": ("leader_crash", "crash", "leader_cut", "slow_disk", "breaks"),
    "producers": 1, "publishers": 0, "batches": 5, "subscribers": 1, "transactors": 4,
}  # fmt: skip
# In these leaders are killed, cut off and stand still while workers share an index.
_SHARING = {
    **_DAMAGE, "faults": ("leader_crash", "leader_stall", "leader_cut", "crash"), "subscribers": 1,
    "workers": 3,
}  # fmt: skip
# In these every subscriber is fed by another node than the leader, and nodes crash.
_FEEDS = {
    **_DAMAGE, "temper": "calm", "guarded": True, "faults": ("crash",), "popular": 0,
    "replicas": (), "holders": 0, "nodes": 5, "nodes_max": 5, "publishers": 0, "producers": 1,
}  # fmt: skip
# In these all nodes are stopped at once and started again.
_STOPPED = {
    **_DAMAGE, "temper": "stopped", "faults": ("shutdown", "crash"), "replicas": (), "holders": 0,
    "publishers": 0, "producers": 1, "batches": 10, "subscribers": 1, "nodes": 4, "nodes_max": 4,
    "successors": 3, "fault_every_us": 4 * SECOND,
}  # fmt: skip
WORLDS = {
    "forget_who_was_stopped_in_order": _STOPPED,
    "begin_a_feed_too_far": _FEEDS,
    "stay_when_the_feeder_is_lost": _FEEDS,
    "forget_to_stop_a_feed": _FEEDS,
    "do_a_request_twice": _SNAPSHOTS,
    "vote_with_a_damaged_log": _DAMAGE,
    "go_on_behind_a_hole": _DAMAGE,
    "keep_what_was_proposed": _CUTS,
    "acknowledge_when_stepping_down": _CUTS,
    "lose_what_was_proposed": _CUTS,
    **dict.fromkeys((each.name for each in OF_TRANSACTIONS), _TRANSACTIONS),
    "lease_what_is_not_reserved": _SHARING,
    "lease_what_a_former_leader_may_have_leased": _SHARING,
    "answer_acks_before_they_are_committed": _SHARING,
    "forget_counts_that_others_have_logged": _SHARING,
    "bury_as_another_producer_in_each_term": _SHARING,
    "lease_a_key_that_another_one_has": {**_SHARING, "keyed": True},
    "forget_own_indexes_that_others_have_logged": _SHARING,
}


def test_every_mutant_has_a_seed_here_and_says_what_is_wrong():
    assert list(FOUND_WITH) == list(MUTANTS)
    assert len(MUTANTS) >= 12
    for name, each in MUTANTS.items():
        assert each.name == name
        assert each.sentence.endswith(".")
        assert 0 < each.seeds <= 200


# By default a quick one of each part; the others take minutes, and are for `make test-sim`.
BY_DEFAULT = (
    "trust_an_older_incarnation", "accept_a_gap", "accept_before_it_is_durable",
    "forget_stages_in_snapshots", "lease_a_key_that_another_one_has", "forget_to_stop_a_feed",
)  # fmt: skip


@pytest.mark.parametrize("name", FOUND_WITH if LONG else BY_DEFAULT)
def test_a_mutant_is_found(name):
    finders, known = FOUND_WITH[name]
    world = WORLDS.get(name, {})
    sentences = [SENTENCES[finder] for finder in finders]
    # A run changes with the code, and the seed that finds a bug with it: then the others do.
    for seed in dict.fromkeys((*known, *range(MUTANTS[name].seeds))):
        options = replace(options_of(seed), **world)
        report = run(seed, mutant=name, options=options)
        found = report.violation
        if found is None or found.sentence not in sentences:
            continue
        if (run(seed, options=options) if world else report_of(seed)).ok:
            assert f"--mutant {name}" in report.replay
            return
    pytest.fail(f"{name} was not found with {MUTANTS[name].seeds} seeds")


@pytest.mark.skipif(not LONG, reason="HOCKET_STRESS=long")
@pytest.mark.parametrize("name", [name for name in MUTANTS if name not in WORLDS])
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
