"""Dedupe by plain calls: what is new, what is a retry, and what cannot be either."""

from __future__ import annotations

import json

import pytest

from hocket.core.partition.dedupe import (
    NEW,
    NO_PRODUCER,
    REMEMBERED,
    Dedupe,
    Differs,
    Duplicate,
    Forgotten,
    Gap,
    Remembered,
    Stale,
    TooOld,
)
from hocket.model import Limits
from tests.support.core.logged import ALICE, BOB


def fed(*batches: tuple[int, int], producer_id: bytes = ALICE, first_entry: int = 1) -> Dedupe:
    """A Dedupe that has seen these (epoch, sequence), ten records and one entry each."""
    dedupe = Dedupe()
    for entry, (epoch, sequence) in enumerate(batches, first_entry):
        dedupe.appended(producer_id, epoch, Remembered(sequence, entry * 10, entry), now_us=entry)
    return dedupe


def restored(dedupe: Dedupe, entry: int) -> Dedupe:
    """Through JSON, as a partition's snapshot goes."""
    copy = Dedupe()
    copy.restore(json.loads(json.dumps(dedupe.snapshot(entry))))
    return copy


def test_a_producer_nobody_knows_begins_at_zero():
    assert Dedupe().judge(ALICE, 1, 0) == NEW
    assert Dedupe().judge(ALICE, 7, 0) == NEW
    assert Dedupe().judge(ALICE, 1, 1) == Forgotten()


def test_each_sequence_is_new_once_and_a_duplicate_with_its_place_after_that():
    dedupe = fed((1, 0), (1, 1))
    assert dedupe.judge(ALICE, 1, 0) == Duplicate(base_offset=10, entry=1)
    assert dedupe.judge(ALICE, 1, 1) == Duplicate(base_offset=20, entry=2)
    assert dedupe.judge(ALICE, 1, 2) == NEW
    assert dedupe.judge(ALICE, 1, 3) == Gap(expected=2)


def test_judging_changes_nothing():
    dedupe = fed((1, 0))
    for sequence in (1, 1, 5, 0):
        dedupe.judge(ALICE, 1, sequence)
        dedupe.judge(BOB, 1, sequence)
    assert dedupe.snapshot(9) == fed((1, 0)).snapshot(9)


def test_producers_do_not_know_of_each_other():
    assert fed((1, 0), (1, 1)).judge(BOB, 1, 0) == NEW
    assert fed((4, 0)).judge(BOB, 1, 0) == NEW


def test_a_newer_epoch_begins_at_zero_and_the_older_one_is_stale():
    dedupe = fed((1, 0), (1, 1))
    assert dedupe.judge(ALICE, 2, 2) == Gap(expected=0)
    assert dedupe.judge(ALICE, 2, 0) == NEW
    dedupe.appended(ALICE, 2, Remembered(0, 30, 3), now_us=3)
    assert dedupe.judge(ALICE, 1, 1) == Stale(epoch=2)
    assert dedupe.judge(ALICE, 1, 2) == Stale(epoch=2)
    assert dedupe.judge(ALICE, 2, 0) == Duplicate(base_offset=30, entry=3)
    assert dedupe.judge(ALICE, 2, 1) == NEW


def test_a_batch_of_nobody_is_always_new_and_leaves_no_trace():
    dedupe = Dedupe()
    for sequence in (0, 0, 9, 3):
        assert dedupe.judge(NO_PRODUCER, 0, sequence) == NEW
        dedupe.appended(NO_PRODUCER, 0, Remembered(sequence, 0, 1), now_us=1)
    assert dedupe.producers == {}


def test_a_batch_older_than_memory_cannot_be_told_from_another():
    dedupe = fed(*((1, sequence) for sequence in range(REMEMBERED + 1)))
    assert dedupe.judge(ALICE, 1, 0) == TooOld()
    assert dedupe.judge(ALICE, 1, 1) == Duplicate(base_offset=20, entry=2)
    assert dedupe.judge(ALICE, 1, REMEMBERED + 1) == NEW


def test_memory_covers_all_that_a_producer_may_have_in_flight():
    assert Limits().in_flight_max <= REMEMBERED


def test_what_is_expected_next_and_of_which_epoch():
    dedupe = fed((3, 0), (3, 1))
    assert (dedupe.epoch_of(ALICE), dedupe.next_sequence(ALICE, 3)) == (3, 2)
    assert dedupe.next_sequence(ALICE, 4) == 0
    assert (dedupe.epoch_of(BOB), dedupe.next_sequence(BOB, 1)) == (0, 0)


# --- idleness ------------------------------------------------------------------------------------


def test_a_producer_not_heard_of_since_is_idle():
    dedupe = fed((1, 0))  # last used at 1
    dedupe.appended(BOB, 1, Remembered(0, 50, 5), now_us=5)
    assert not dedupe.has_idle(before_us=1)
    assert dedupe.has_idle(before_us=2)
    assert not Dedupe().has_idle(before_us=2)


def test_a_clock_that_goes_back_makes_nobody_idle():
    dedupe = fed((1, 0))
    dedupe.appended(ALICE, 1, Remembered(1, 20, 2), now_us=100)
    dedupe.appended(ALICE, 1, Remembered(2, 30, 3), now_us=50)
    assert not dedupe.has_idle(before_us=100)


# --- rewind --------------------------------------------------------------------------------------


def test_rewind_forgets_what_stands_behind_the_entry():
    dedupe = fed((1, 0), (1, 1), (1, 2))
    dedupe.rewind(entry=1)
    assert dedupe.judge(ALICE, 1, 0) == Duplicate(base_offset=10, entry=1)
    assert dedupe.judge(ALICE, 1, 1) == NEW
    assert dedupe.judge(ALICE, 1, 2) == Gap(expected=1)


def test_rewind_to_the_newest_entry_changes_nothing():
    dedupe = fed((1, 0), (1, 1))
    dedupe.rewind(entry=2)
    assert dedupe.snapshot(2) == fed((1, 0), (1, 1)).snapshot(2)


def test_rewind_behind_the_first_batch_forgets_the_producer():
    dedupe = fed((1, 0), (1, 1))
    dedupe.rewind(entry=0)
    assert dedupe.producers == {}


def test_rewind_over_a_new_epoch_gives_the_old_one_back():
    dedupe = fed((1, 0), (1, 1), (2, 0), (3, 0))
    dedupe.rewind(entry=2)
    assert dedupe.judge(ALICE, 1, 0) == Duplicate(base_offset=10, entry=1)
    assert dedupe.judge(ALICE, 1, 1) == Duplicate(base_offset=20, entry=2)
    assert dedupe.judge(ALICE, 1, 2) == NEW


# --- snapshots -----------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", [0, 1, 2, 3])
def test_a_snapshot_holds_what_is_known_up_to_its_entry(entry):
    batches = [(1, 0), (1, 1), (1, 2)]
    copy = restored(fed(*batches), entry)
    assert list(copy.producers) == ([ALICE] if entry else [])
    for sequence in range(entry):
        assert copy.judge(ALICE, 1, sequence) == Duplicate((sequence + 1) * 10, sequence + 1)
    assert copy.judge(ALICE, 1, entry) == NEW


def test_a_snapshot_keeps_epoch_and_last_use():
    copy = restored(fed((5, 0), (5, 1)), entry=2)
    assert copy.epoch_of(ALICE) == 5
    assert not copy.has_idle(before_us=2)
    assert copy.has_idle(before_us=3)


def test_a_restored_producer_remembers_no_more_than_any_other():
    copy = restored(fed(*((1, sequence) for sequence in range(REMEMBERED))), entry=REMEMBERED)
    copy.appended(ALICE, 1, Remembered(REMEMBERED, 999, REMEMBERED + 1), now_us=99)
    assert copy.judge(ALICE, 1, 0) == TooOld()
    assert copy.judge(ALICE, 1, REMEMBERED) == Duplicate(999, REMEMBERED + 1)


def test_a_snapshot_taken_while_a_new_epoch_is_not_committed_holds_the_old_one():
    dedupe = fed((1, 0), (1, 1), (2, 0))
    copy = restored(dedupe, entry=2)
    assert copy.judge(ALICE, 1, 0) == Duplicate(base_offset=10, entry=1)
    assert copy.judge(ALICE, 1, 1) == Duplicate(base_offset=20, entry=2)
    assert dedupe.judge(ALICE, 1, 1) == Stale(epoch=2)  # taking it has changed nothing
    assert restored(dedupe, entry=3).judge(ALICE, 1, 1) == Stale(epoch=2)


def test_forgetting_whom_nobody_knows_changes_nothing():
    dedupe = Dedupe()
    dedupe.appended(ALICE, 1, Remembered(0, 0, 1), 5)
    dedupe.forget([BOB], 1)
    assert list(dedupe.producers) == [ALICE]
    dedupe.forget([ALICE, ALICE], 1)
    assert dedupe.producers == {}


# --- repetitions, and what only looks like one ---------------------------------------------------


def with_checksums(*crcs: int | None) -> Dedupe:
    dedupe = Dedupe()
    for sequence, crc in enumerate(crcs):
        dedupe.appended(ALICE, 1, Remembered(sequence, sequence * 10, sequence + 1, crc), now_us=1)
    return dedupe


def test_a_repetition_has_the_same_checksum():
    dedupe = with_checksums(111, 222)
    assert dedupe.judge(ALICE, 1, 0, 111) == Duplicate(base_offset=0, entry=1)
    assert dedupe.judge(ALICE, 1, 1, 111) == Differs()
    assert dedupe.judge(ALICE, 1, 0, 0) == Differs()
    assert dedupe.judge(ALICE, 1, 2, 111) == NEW


def test_what_is_changed_before_it_is_stored_is_compared_with_what_was_sent():
    dedupe = with_checksums(111)  # read back from the log
    dedupe.appended(ALICE, 1, Remembered(1, 10, 2, 222, as_sent=True), now_us=1)
    assert dedupe.judge(ALICE, 1, 0, 999, changeable=True) == Duplicate(0, 1)
    assert dedupe.judge(ALICE, 1, 1, 999, changeable=True) == Differs()
    assert dedupe.judge(ALICE, 1, 1, 222, changeable=True) == Duplicate(10, 2)
    copy = restored(dedupe, 2)
    assert copy.judge(ALICE, 1, 1, 999, changeable=True) == Duplicate(10, 2)
    assert copy.judge(ALICE, 1, 1, 222) == Duplicate(10, 2)


def test_checksums_are_remembered_by_snapshots_and_rewinds():
    dedupe = with_checksums(111, 222, 333)
    copy = restored(dedupe, 2)
    assert copy.judge(ALICE, 1, 1, 222) == Duplicate(base_offset=10, entry=2)
    assert copy.judge(ALICE, 1, 1, 223) == Differs()
    assert copy.judge(ALICE, 1, 2, 999) == NEW
    dedupe.rewind(2)
    assert dedupe.judge(ALICE, 1, 0, 112) == Differs()


def test_without_a_checksum_on_both_sides_the_sequence_decides():
    """A snapshot of an earlier version has none, and the broker's own batches bring none."""
    old = Dedupe()
    old.restore({ALICE.hex(): [1, 2, 5, [[0, 0, 1], [1, 10, 2]]]})
    assert old.judge(ALICE, 1, 1, 222) == Duplicate(base_offset=10, entry=2)
    assert with_checksums(111).judge(ALICE, 1, 0) == Duplicate(base_offset=0, entry=1)


# --- whose an id is ------------------------------------------------------------------------------


def owned(*claims: tuple[bytes, str, int]) -> Dedupe:
    dedupe = Dedupe()
    for producer_id, user, entry in claims:
        dedupe.own(producer_id, user, entry)
    return dedupe


def test_an_id_belongs_to_whom_an_entry_names():
    dedupe = owned((ALICE, "ann", 1))
    assert (dedupe.owner_of(ALICE), dedupe.owner_of(BOB)) == ("ann", "")
    assert [dedupe.lacks_owner(each) for each in (ALICE, BOB)] == [False, True]


def test_the_id_of_nobody_belongs_to_nobody():
    assert not Dedupe().lacks_owner(NO_PRODUCER)


def test_an_entry_that_is_committed_after_it_was_appended_changes_nothing():
    dedupe = owned((ALICE, "ann", 1))
    dedupe.forgetting([ALICE])
    dedupe.own(ALICE, "ann", 1)
    assert dedupe.lacks_owner(ALICE)


def test_owners_are_in_the_snapshot_and_old_snapshots_have_none():
    copy = Dedupe()
    copy.restore_owners(json.loads(json.dumps(owned((ALICE, "ann", 7)).snapshot_owners())))
    assert copy.owner_of(ALICE) == "ann"
    copy.forget([ALICE], 1)
    assert copy.owner_of(ALICE) == ""


def test_rewind_takes_an_id_from_whom_an_entry_behind_has_given_it():
    dedupe = owned((ALICE, "ann", 1), (BOB, "bob", 5))
    dedupe.forgetting([ALICE])
    dedupe.rewind(4)
    assert (dedupe.owner_of(ALICE), dedupe.owner_of(BOB)) == ("ann", "")
    assert not dedupe.lacks_owner(ALICE)  # the entry that was to forget it stood behind, too


def test_a_forgotten_producer_has_no_owner_but_one_that_came_back_has():
    """Replay forgets the owner with the producer, so who comes back is named once more."""
    dedupe = owned((ALICE, "ann", 1), (BOB, "bob", 2))
    dedupe.forgetting([ALICE, BOB, b"c" * 16])
    assert dedupe.owner_of(ALICE) == "ann"  # until that is committed
    assert dedupe.lacks_owner(ALICE)
    dedupe.own(ALICE, "ann", 11)
    dedupe.forget([ALICE, BOB], 10)
    assert (dedupe.owner_of(ALICE), dedupe.owner_of(BOB)) == ("ann", "")
