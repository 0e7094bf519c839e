"""Cursors by plain calls: who may move an index, and from when on it counts."""

from __future__ import annotations

from hocket.core.partition.cursors import Cursor, Cursors


def attached(start: int = 0, *, hold_retention: bool = False) -> Cursors:
    cursors = Cursors()
    cursors.attach("billing", start, hold_retention=hold_retention)
    return cursors


def test_a_new_index_begins_where_it_is_told():
    cursor = Cursors().attach("billing", 7, hold_retention=True)
    assert (cursor.position, cursor.hold_retention, cursor.mode) == (7, True, "own")
    assert cursor.epoch > 0


def test_a_known_index_goes_on_where_it_was_and_fences_its_former_consumer():
    cursors = attached(start=7)
    first = cursors.leading["billing"]
    cursors.commit("billing", first.epoch, 9)
    second = cursors.attach("billing", 0, hold_retention=True)
    assert second.position == 9
    assert second.epoch > first.epoch
    assert second.hold_retention
    assert cursors.commit("billing", first.epoch, 11) is None
    assert cursors.leading["billing"].position == 9


def test_a_commit_moves_the_index_forward_only():
    cursors = attached(start=2)
    epoch = cursors.leading["billing"].epoch
    for position, expected in ((5, 5), (4, 5), (0, 5), (6, 6)):
        moved = cursors.commit("billing", epoch, position)
        assert moved is not None
        assert (moved.position, moved.epoch) == (expected, epoch)


def test_a_commit_to_no_index_is_fenced():
    assert Cursors().commit("billing", 1, 5) is None


def test_a_commit_with_a_later_epoch_than_there_ever_was_is_fenced():
    cursors = attached()
    assert cursors.commit("billing", cursors.leading["billing"].epoch + 1, 5) is None


def test_a_seek_goes_anywhere_and_fences_too():
    cursors = attached(start=5, hold_retention=True)
    before = cursors.leading["billing"]
    after = cursors.seek("billing", 2)
    assert (after.position, after.hold_retention) == (2, True)
    assert after.epoch > before.epoch
    assert cursors.commit("billing", before.epoch, 9) is None
    assert cursors.commit("billing", after.epoch, 9) == after._replace(position=9)


def test_a_seek_makes_an_index_that_was_not_there():
    cursors = Cursors()
    assert cursors.seek("billing", 4).position == 4
    assert cursors.attach("billing", 0, hold_retention=False).position == 4


def test_indexes_do_not_know_of_each_other():
    cursors = attached(start=5)
    audit = cursors.attach("audit", 1, hold_retention=False)
    cursors.commit("audit", audit.epoch, 3)
    assert cursors.leading["billing"].position == 5


def test_a_deleted_index_is_gone_once():
    cursors = attached()
    assert cursors.delete("billing")
    assert not cursors.delete("billing")
    assert cursors.leading == {}


def test_the_consumer_of_a_deleted_index_is_fenced_from_a_new_one_by_the_same_name():
    cursors = attached()
    before = cursors.leading["billing"].epoch
    cursors.delete("billing")
    cursors.attach("billing", 0, hold_retention=False)
    assert cursors.commit("billing", before, 100) is None


def test_epochs_of_a_deleted_index_are_not_given_again_after_replay_either():
    cursors = attached()
    before = cursors.leading["billing"]
    replayed = Cursors()
    replayed.replay({"billing": before})
    replayed.replay({"billing": None})
    assert replayed.attach("billing", 0, hold_retention=False).epoch > before.epoch


def test_what_is_appended_counts_for_requests_and_what_is_committed_for_others():
    cursors = Cursors()
    cursor = cursors.attach("billing", 3, hold_retention=True)
    assert cursors.applied == {}
    assert cursors.held_from() == 3  # it is about to hold back; better too early than too late
    cursors.apply({"billing": cursor})
    assert cursors.applied == {"billing": cursor}
    assert cursors.held_from() == 3
    cursors.delete("billing")
    assert cursors.held_from() == 3
    cursors.apply({"billing": None})
    assert cursors.applied == {}
    cursors.apply({"billing": None})
    assert cursors.applied == {}


def test_replay_makes_both_states_alike():
    cursors = Cursors()
    cursors.replay({"billing": Cursor(3, 1, False), "audit": Cursor(5, 2, True)})
    cursors.replay({"billing": None})
    assert cursors.applied == cursors.leading == {"audit": Cursor(5, 2, True)}
    cursors.attach("audit", 0, hold_retention=True)
    assert cursors.applied == {"audit": Cursor(5, 2, True)}


def test_retention_is_held_by_the_slowest_of_those_that_ask_for_it():
    cursors = Cursors()
    cursors.replay(
        {
            "slowest": Cursor(1, 1, False),
            "slow": Cursor(4, 1, True),
            "quick": Cursor(9, 1, True),
        }
    )
    assert cursors.held_from() == 4


# --- losses --------------------------------------------------------------------------------------


def test_what_a_consumer_misses_is_counted_once_and_moves_the_index():
    cursors = attached(start=5)
    skipped = cursors.skip("billing", 20, 12)  # three were sent before they went
    assert skipped is not None
    assert (skipped.position, skipped.lost) == (20, 12)
    assert cursors.skip("billing", 20, 12) is None
    again = cursors.skip("billing", 22, 15)  # a later consumer knew less than the index
    assert again is not None
    assert (again.position, again.lost) == (22, 14)
    assert cursors.skip("other", 20, 12) is None


def test_a_loss_stays_with_the_index_until_it_is_put_elsewhere():
    cursors = attached()
    cursors.skip("billing", 9, 9)
    assert cursors.attach("billing", 0, hold_retention=True).lost == 9
    moved = cursors.commit("billing", cursors.leading["billing"].epoch, 11)
    assert moved is not None
    assert moved.lost == 9
    assert Cursor(*moved.encode()) == moved
    assert cursors.seek("billing", 10).lost == 0
    assert len(cursors.leading["billing"].encode()) == 4  # as earlier versions wrote it
