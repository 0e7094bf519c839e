"""One partition by plain calls: events in, effects out."""

from __future__ import annotations

import json

import pytest

from hocket.core.partition.cursors import Cursor
from hocket.core.partition.dedupe import NO_PRODUCER, REMEMBERED
from hocket.core.partition.events import (
    BATCH,
    CONTROL,
    CURSOR,
    Acked,
    Append,
    AttachIndex,
    CommitIndex,
    DeleteIndex,
    EndMoved,
    ExpireProducers,
    IndexFenced,
    IndexMoved,
    LogDurable,
    LogStartMoved,
    Lost,
    MoveLogStart,
    Produce,
    Refused,
    Replayed,
    SeekIndex,
    SkipIndex,
    TurnEnded,
)
from hocket.core.partition.partition import Partition
from hocket.model import EntryKind
from tests.support.core.logged import (
    ALICE,
    BOB,
    Logged,
    batch,
    origin,
    recovered,
    replayed,
    state_of,
)

PUSH = origin(handle=5)  # a producer's handle: batches have no request numbers of their own


def pushed(*counts: int) -> Logged:
    """Alice has pushed batches of so many records, and nothing is durable yet."""
    logged = Logged()
    for sequence, count in enumerate(counts):
        assert logged.produce(batch(sequence=sequence, count=count), PUSH) == []
    return logged


def attached(name: str = "billing", *, start: int = 0, records: int = 10) -> tuple[Logged, int]:
    """A partition with records and an index; its epoch."""
    logged = pushed(records)
    logged.step(AttachIndex(origin(1), name, start, False))
    logged.settle()
    return logged, logged.partition.cursors.applied[name].epoch


def test_the_kinds_of_entries_are_those_of_the_wire():
    assert (BATCH, CURSOR, CONTROL) == (EntryKind.BATCH, EntryKind.CURSOR, EntryKind.CONTROL)


# --- producing -----------------------------------------------------------------------------------


def test_a_batch_is_appended_with_the_next_offsets_and_its_bytes_untouched():
    partition = Partition("orders", 0)
    body = object()
    first = batch(sequence=0, count=3, body=body)
    assert partition.step(Produce(PUSH, first, 0)) == [Append(BATCH, 1, 0, first)]
    second = batch(sequence=1, count=2)
    assert partition.step(Produce(PUSH, second, 0)) == [Append(BATCH, 2, 3, second)]
    assert (partition.high_watermark, partition.end) == (0, 5)


def test_nothing_is_said_before_the_entry_is_durable():
    logged = pushed(3, 2, 1)
    assert logged.durable(2) == [Acked(PUSH, 1, [0, 3]), EndMoved(5)]
    assert logged.partition.high_watermark == 5
    assert logged.durable(3) == [Acked(PUSH, 2, [5]), EndMoved(6)]


def test_hearing_again_of_what_is_durable_says_nothing_new():
    logged = pushed(3)
    logged.durable(1)
    assert logged.durable(1) == []
    assert logged.step(LogDurable(0)) == []


def test_with_durability_memory_a_batch_is_committed_as_soon_as_it_is_appended():
    partition = Partition("orders", 0, durability="memory")
    appended, acked, moved = partition.step(Produce(PUSH, batch(count=3), 0))
    assert isinstance(appended, Append)
    assert (acked, moved) == (Acked(PUSH, 0, [0]), EndMoved(3))
    assert not partition.awaits_disk
    assert partition.step(LogDurable(1)) == []


def test_a_topic_altered_to_memory_still_waits_for_what_was_promised_to_be_durable():
    logged = pushed(3)
    logged.partition.durability = "memory"
    assert logged.produce(batch(sequence=1, count=2), PUSH) == []  # appended, not committed
    assert logged.partition.awaits_disk
    assert logged.durable() == [Acked(PUSH, 1, [0, 3]), EndMoved(5)]


def test_each_origin_is_answered_apart_and_in_order():
    logged = Logged()
    other = origin(handle=6)
    logged.produce(batch(ALICE, 0), PUSH)
    logged.produce(batch(BOB, 0), other)
    logged.produce(batch(ALICE, 1), PUSH)
    logged.produce(batch(NO_PRODUCER, 0), origin(77))
    assert logged.durable() == [
        Acked(PUSH, 1, [0, 2]),
        Acked(other, 0, [1]),
        Acked(origin(77), 0, [3]),
        EndMoved(4),
    ]


def test_batches_of_nobody_are_stored_as_they_come():
    logged = Logged()
    for request in (1, 2):
        logged.produce(batch(NO_PRODUCER, 0), origin(request))
    assert logged.durable() == [Acked(origin(1), 0, [0]), Acked(origin(2), 0, [1]), EndMoved(2)]


def test_a_retry_before_the_first_is_durable_is_answered_with_it_and_stored_once():
    logged = pushed(3, 2)
    retry = origin(handle=5, connection=2)
    assert logged.produce(batch(sequence=0, count=3), retry) == []
    assert len(logged.log) == 2
    assert logged.durable(1) == [Acked(PUSH, 0, [0]), Acked(retry, 0, [0]), EndMoved(3)]
    assert logged.durable(2) == [Acked(PUSH, 1, [3]), EndMoved(5)]


def test_a_retry_waits_for_its_own_entry_and_not_for_the_first_there_is():
    logged = pushed(3, 2)
    retry = origin(handle=5, connection=2)
    logged.produce(batch(sequence=1, count=2), retry)
    assert logged.durable(1) == [Acked(PUSH, 0, [0]), EndMoved(3)]
    assert logged.durable(2) == [Acked(PUSH, 1, [3]), Acked(retry, 1, [3]), EndMoved(5)]


def test_a_retry_after_the_first_is_durable_is_answered_at_once_with_the_same_place():
    logged = pushed(3, 2)
    logged.durable()
    assert logged.produce(batch(sequence=1, count=2), PUSH) == [Acked(PUSH, 1, [3])]
    assert logged.partition.end == 5


def refusal(effects: list) -> tuple[str, str]:
    (refused,) = effects
    assert isinstance(refused, Refused)
    return refused.code, refused.message


def test_what_is_older_than_memory_is_not_taken_for_a_retry():
    """It may be another batch, by somebody who filled the memory with as many of his own."""
    logged = pushed(*[1] * REMEMBERED)
    logged.durable()
    logged.produce(batch(sequence=REMEMBERED), PUSH)
    code, why = refusal(logged.produce(batch(sequence=0), PUSH))
    assert code == "fenced"
    assert "older than the 32" in why


def test_another_batch_with_the_same_sequence_is_refused_and_never_acknowledged():
    logged = Logged()
    logged.produce(batch(sequence=0, crc=1), PUSH)
    for _ in range(2):  # before it is durable, and after
        code, why = refusal(logged.produce(batch(sequence=0, crc=2), PUSH))
        assert code == "producerConflict"
        assert "another batch is stored as batch 0" in why
        logged.durable()
    assert logged.produce(batch(sequence=0, crc=1), PUSH) == [Acked(PUSH, 0, [0])]
    assert len(logged.log) == 1


def test_checksums_survive_replay_and_snapshot():
    logged = Logged()
    logged.produce(batch(sequence=0, crc=1), PUSH)
    logged.durable()
    snapshot = logged.snapshot()
    for taken in (None, snapshot):
        logged.crash(1, taken)
        assert refusal(logged.produce(batch(sequence=0, crc=2), PUSH))[0] == "producerConflict"
        assert logged.produce(batch(sequence=0, crc=1), PUSH) == [Acked(PUSH, 0, [0])]


def test_nothing_is_stored_behind_a_refused_batch_though_another_has_taken_its_place():
    """Or the owner's batches would stand in another order than they were sent in."""
    logged = Logged()
    logged.produce(batch(sequence=0, crc=1), PUSH)
    thief = origin(handle=9)
    logged.produce(batch(sequence=1, crc=66), thief)
    code, why = refusal(logged.produce(batch(sequence=2, crc=3), PUSH, refused=1))
    assert code == "sequenceGap"
    assert "batch 1, which was refused, must come before batch 2" in why
    assert refusal(logged.produce(batch(sequence=1, crc=2), PUSH))[0] == "producerConflict"
    logged.produce(batch(sequence=2, crc=3), PUSH, refused=3)
    assert logged.partition.end == 3


# --- whose a producer id is ----------------------------------------------------------------------


def owners_of(logged: Logged) -> dict[str, str]:
    return logged.partition.dedupe.snapshot_owners()


def test_the_first_user_of_an_id_owns_it_by_an_entry_before_the_first_batch():
    logged = Logged()
    logged.produce(batch(sequence=0), PUSH, "ann")
    logged.produce(batch(sequence=1), PUSH, "ann")
    kinds = [(entry.kind, entry.index) for entry in logged.log]
    assert kinds == [(CONTROL, 1), (BATCH, 2), (BATCH, 3)]
    assert json.loads(logged.log[0].body) == {"owners": {ALICE.hex(): "ann"}}
    assert logged.durable() == [Acked(PUSH, 1, [0, 1]), EndMoved(2)]
    assert owners_of(logged) == {ALICE.hex(): "ann"}
    assert state_of(recovered(logged.log)) == state_of(logged.partition)


def test_while_everybody_is_the_same_nothing_is_said_of_owners():
    logged = pushed(1, 1)
    logged.produce(batch(NO_PRODUCER), PUSH, "ann")
    assert [entry.kind for entry in logged.log] == [BATCH] * 3
    assert owners_of(logged) == {}


def test_an_id_from_before_goes_to_the_first_who_uses_it():
    logged = pushed(1)
    logged.produce(batch(sequence=1), PUSH, "ann")
    assert owners_of(logged) == {ALICE.hex(): "ann"}


def test_an_owner_is_kept_by_a_snapshot_at_any_entry():
    logged = Logged()
    logged.produce(batch(sequence=0), PUSH, "ann")
    for through in (0, 1, 2):
        logged.durable(through)
        snapshot = logged.snapshot()
        assert owners_of_recovered(logged, snapshot) == {ALICE.hex(): "ann"}


def owners_of_recovered(logged: Logged, snapshot: object) -> dict[str, str]:
    return recovered(logged.log, snapshot).dedupe.snapshot_owners()  # type: ignore[arg-type]


def test_a_producer_that_comes_back_while_it_is_being_forgotten_keeps_its_owner():
    logged = Logged()
    logged.produce(batch(sequence=0), PUSH, "ann")
    logged.durable()
    logged.step(ExpireProducers(before_us=50))
    logged.now_us = 100
    logged.produce(batch(sequence=1), PUSH, "ann")
    logged.durable()
    assert owners_of(logged) == {ALICE.hex(): "ann"}
    assert state_of(recovered(logged.log)) == state_of(logged.partition)


def test_a_forgotten_producer_is_nobodys_again():
    logged = Logged()
    logged.produce(batch(sequence=0), PUSH, "ann")
    logged.durable()
    logged.step(ExpireProducers(before_us=50))
    logged.durable()
    assert owners_of(logged) == {}
    assert state_of(recovered(logged.log)) == state_of(logged.partition)


@pytest.mark.parametrize(
    ("refused", "code", "words"),
    [
        (batch(sequence=3), "sequenceGap", ["batch 3", "where 1 was expected"]),
        (batch(sequence=1, epoch=1), "fenced", ["epoch 2", "taken over from 1"]),
        (batch(BOB, 4), "unknownProducer", ["batch 4", "open a new one"]),
    ],
)
def test_what_cannot_be_stored_is_refused_at_once_and_changes_nothing(refused, code, words):
    logged = Logged()
    logged.produce(batch(sequence=0, epoch=2), PUSH)
    if code == "sequenceGap":
        refused.epoch = 2
    before = state_of(logged.partition)
    (answer,) = logged.produce(refused, PUSH)
    assert isinstance(answer, Refused)
    assert (answer.origin, answer.sequence, answer.code) == (PUSH, refused.sequence, code)
    assert all(word in answer.message for word in words)
    assert state_of(logged.partition) == before
    assert len(logged.log) == 1


def test_after_a_gap_the_missing_batch_and_its_followers_are_taken():
    logged = pushed(1)
    for sequence in (2, 3):
        (answer,) = logged.produce(batch(sequence=sequence), PUSH)
        assert isinstance(answer, Refused)
    for sequence in (1, 2, 3):
        assert logged.produce(batch(sequence=sequence), PUSH) == []
    assert logged.durable() == [Acked(PUSH, 3, [0, 1, 2, 3]), EndMoved(4)]


def test_no_batch_is_acknowledged_that_a_crash_can_still_lose():
    """However many a producer has in flight, what did not survive is stored when it retries."""
    logged = pushed(1)
    logged.durable()
    for sequence in range(1, 2 * REMEMBERED + 2):
        logged.produce(batch(sequence=sequence), PUSH)
    logged.crash(through=1, snapshot=logged.snapshot())
    logged.produce(batch(sequence=1), PUSH)
    assert len(logged.log) == 2


# --- indexes -------------------------------------------------------------------------------------


def test_a_new_index_begins_at_its_start_once_that_is_durable():
    logged = pushed(10)
    assert logged.step(AttachIndex(origin(1), "billing", 4, True)) == []
    assert len(logged.log) == 1
    assert logged.step(TurnEnded()) == []
    assert (logged.log[1].kind, logged.log[1].base_offset) == (CURSOR, 10)
    assert logged.durable(1) == [Acked(PUSH, 0, [0]), EndMoved(10)]
    (moved,) = logged.durable(2)
    assert moved == IndexMoved(origin(1), "billing", Cursor(4, 1, True), "attach")


def test_a_turn_makes_one_entry_of_all_its_changes_and_none_of_none():
    logged, epoch = attached()
    assert logged.partition.step(TurnEnded()) == []
    before = len(logged.log)
    logged.step(CommitIndex(origin(2), "billing", epoch, 3))
    logged.step(CommitIndex(origin(3), "billing", epoch, 5))
    logged.step(AttachIndex(origin(4), "audit", 0, False))
    logged.step(TurnEnded())
    assert len(logged.log) == before + 1
    assert logged.step(TurnEnded()) == []
    assert len(logged.log) == before + 1
    moves = logged.durable()
    assert [(each.origin.request, each.name, each.by) for each in moves] == [
        (2, "billing", "commit"),
        (3, "billing", "commit"),
        (4, "audit", "attach"),
    ]
    assert [each.cursor.position for each in moves] == [3, 5, 0]
    assert recovered(logged.log).cursors.applied["billing"].position == 5


def test_another_consumer_takes_an_index_over_and_the_first_is_fenced():
    logged, first = attached()
    logged.step(AttachIndex(origin(2), "billing", 0, False))
    assert logged.step(CommitIndex(origin(3), "billing", first, 5)) == [
        IndexFenced(origin(3), "billing")
    ]
    (moved,) = logged.settle()
    assert moved.cursor.epoch > first
    assert moved.cursor.position == 0


def test_a_commit_beyond_what_is_committed_is_refused():
    logged, epoch = attached(records=10)
    logged.produce(batch(sequence=1, count=5), PUSH)
    (answer,) = logged.step(CommitIndex(origin(2), "billing", epoch, 11))
    assert isinstance(answer, Refused)
    assert (answer.origin, answer.code) == (origin(2), "outOfRange")
    assert "'billing' cannot be put at 11: partition 0 ends at 10" in answer.message
    assert logged.step(CommitIndex(origin(3), "billing", epoch, 10)) == []


def test_a_seek_moves_the_index_back_and_fences_commits_on_their_way():
    logged, epoch = attached(start=8)
    assert logged.step(SeekIndex(origin(2), "billing", 2)) == []
    assert logged.step(CommitIndex(origin(3), "billing", epoch, 9)) == [
        IndexFenced(origin(3), "billing")
    ]
    (moved,) = logged.settle()
    assert (moved.by, moved.cursor.position) == ("seek", 2)


def test_a_deleted_index_is_gone_when_its_entry_is_durable():
    logged, epoch = attached()
    assert logged.step(DeleteIndex(origin(2), "billing")) == []
    assert logged.step(CommitIndex(origin(3), "billing", epoch, 5)) == [
        IndexFenced(origin(3), "billing")
    ]
    assert "billing" in logged.partition.cursors.applied
    assert logged.settle() == [IndexMoved(origin(2), "billing", None, "delete")]
    assert logged.partition.cursors.applied == {}
    assert recovered(logged.log).cursors.applied == {}


def test_an_index_that_never_was_can_be_deleted():
    logged = Logged()
    answers = [*logged.step(DeleteIndex(origin(2), "billing")), *logged.settle()]
    assert answers == [IndexMoved(origin(2), "billing", None, "delete")]


def test_whoever_deletes_an_index_again_hears_of_it_only_when_it_is_durably_gone():
    logged, _ = attached()
    logged.step(DeleteIndex(origin(2), "billing"))
    assert logged.step(DeleteIndex(origin(3), "billing")) == []
    logged.step(TurnEnded())
    assert logged.step(DeleteIndex(origin(4), "billing")) == []
    answers = logged.settle()
    assert [answer.origin.request for answer in answers] == [2, 3, 4]


# --- the log's start, and producers --------------------------------------------------------------


def test_the_log_start_moves_when_its_entry_is_durable_and_never_back():
    logged = pushed(10)
    logged.durable()
    assert logged.step(MoveLogStart(4)) == []
    assert (logged.log[-1].kind, logged.partition.start) == (CONTROL, 0)
    assert logged.durable() == [LogStartMoved(4)]
    assert logged.partition.start == 4
    for offset in (4, 3, 0):
        assert logged.step(MoveLogStart(offset)) == []
    assert len(logged.log) == 2


def test_of_two_moves_on_their_way_the_farther_one_counts():
    logged = pushed(10)
    logged.durable()
    logged.step(MoveLogStart(6))
    logged.step(MoveLogStart(4))
    assert logged.durable() == [LogStartMoved(6)]
    assert recovered(logged.log).start == 6


def test_an_index_that_is_new_loses_nothing_by_a_move_that_is_on_its_way():
    logged = pushed(10)
    logged.durable()
    logged.step(MoveLogStart(4))
    logged.step(AttachIndex(origin(1), "billing", 0, True))
    logged.settle()
    assert logged.partition.cursors.applied["billing"].position == 4


def test_the_log_start_never_passes_what_is_committed():
    logged = pushed(10)
    with pytest.raises(AssertionError):
        logged.step(MoveLogStart(1))


def test_producers_are_forgotten_when_that_is_durable():
    logged = pushed(1)
    logged.now_us = 100
    logged.produce(batch(BOB, 0), PUSH)
    logged.durable()
    logged.step(ExpireProducers(before_us=50))
    assert set(logged.partition.dedupe.producers) == {ALICE, BOB}
    assert logged.durable() == []
    assert set(logged.partition.dedupe.producers) == {BOB}


@pytest.mark.parametrize("clock_of_the_producer", [-1_000, 0, 1_000])
def test_the_same_producers_are_forgotten_by_replay_whatever_their_clocks_say(
    clock_of_the_producer,
):
    logged = Logged()
    for name, now_us in ((ALICE, 2_000), (BOB, 2_200)):
        logged.now_us = now_us
        logged.produce(batch(name, 0, timestamp=now_us + clock_of_the_producer), PUSH)
    logged.durable()
    logged.step(ExpireProducers(before_us=2_100))
    logged.durable()
    assert set(logged.partition.dedupe.producers) == {BOB}
    assert state_of(recovered(logged.log)) == state_of(logged.partition)


def test_a_producer_that_comes_back_while_it_is_being_forgotten_is_the_same_after_replay():
    logged = pushed(1)
    logged.durable()
    logged.step(ExpireProducers(before_us=50))
    logged.now_us = 100
    logged.produce(batch(sequence=1, timestamp=100), PUSH)
    logged.durable()
    assert state_of(recovered(logged.log)) == state_of(logged.partition)


def test_a_producer_that_comes_back_too_late_is_forgotten_whatever_the_snapshot():
    logged = pushed(1)
    logged.durable()
    logged.step(ExpireProducers(before_us=50))
    logged.now_us = 100
    logged.produce(batch(sequence=1, timestamp=100), PUSH)
    logged.durable(2)
    assert state_of(recovered(logged.log[:2], logged.snapshot())) == state_of(
        recovered(logged.log[:2])
    )


# --- recovery ------------------------------------------------------------------------------------


def busy() -> Logged:
    """A bit of everything, all of it durable."""
    logged, epoch = attached()
    logged.produce(batch(BOB, 0, epoch=3, count=2), PUSH)
    logged.step(CommitIndex(origin(2), "billing", epoch, 4))
    logged.step(AttachIndex(origin(3), "audit", 1, True))
    logged.settle()
    logged.step(MoveLogStart(3))
    logged.step(DeleteIndex(origin(4), "audit"))
    logged.settle()
    return logged


def test_replay_of_the_whole_log_gives_the_same_partition():
    logged = busy()
    assert state_of(recovered(logged.log)) == state_of(logged.partition)


def test_a_snapshot_and_the_rest_of_the_log_give_the_same_partition():
    logged = busy()
    snapshot = logged.snapshot()
    assert snapshot.index == len(logged.log)
    json.loads(snapshot.state)
    assert state_of(recovered(logged.log, snapshot)) == state_of(logged.partition)
    logged.produce(batch(BOB, 1, epoch=3), PUSH)
    logged.settle()
    assert state_of(recovered(logged.log, snapshot)) == state_of(logged.partition)


def test_a_snapshot_holds_nothing_that_is_not_committed():
    logged, epoch = attached()
    before = logged.snapshot()
    logged.produce(batch(sequence=1), PUSH)
    logged.step(CommitIndex(origin(2), "billing", epoch, 4))
    logged.step(AttachIndex(origin(3), "audit", 1, True))
    logged.step(MoveLogStart(2))
    logged.step(TurnEnded())
    after = logged.snapshot()
    assert after.index == before.index
    assert state_of(recovered(logged.log[:2], after)) == state_of(recovered(logged.log[:2], before))


def test_an_empty_snapshot_only_says_where_the_log_begins():
    partition = Partition("orders", 0)
    partition.restore(7, b"")
    assert (partition.last_index, partition.applied_index, partition.end) == (7, 7, 0)


def test_entries_of_other_kinds_count_and_change_nothing_else():
    partition = Partition("orders", 0)
    assert partition.step(Replayed(EntryKind.NOOP, 1, 0, None, b"", 0)) == []
    assert partition.last_index == 1
    assert partition.step(Produce(PUSH, batch(), 0)) == [Append(BATCH, 2, 0, batch())]


def test_no_entry_is_passed_over_unless_it_is_said_to_be_lost():
    logged = pushed(3, 2, 1)
    partition = Partition("orders", 0)
    partition.step(replayed(logged.log[0]))
    with pytest.raises(AssertionError):
        partition.step(replayed(logged.log[2]))
    assert partition.step(Lost(3, 5)) == []
    assert (partition.last_index, partition.end, partition.high_watermark) == (2, 5, 5)
    partition.step(replayed(logged.log[2]))
    assert (partition.last_index, partition.end) == (3, 6)
    for backwards in (Lost(2, 6), Lost(4, 5)):
        with pytest.raises(AssertionError):
            partition.step(backwards)


def test_a_batch_that_did_not_survive_is_new_again_and_one_that_did_is_not():
    logged = pushed(3, 2)
    logged.durable(1)
    logged.crash(through=1)
    assert logged.produce(batch(sequence=0, count=3), PUSH) == [Acked(PUSH, 0, [0])]
    assert logged.produce(batch(sequence=1, count=2), PUSH) == []
    assert logged.durable() == [Acked(PUSH, 1, [3]), EndMoved(5)]


def test_a_snapshot_taken_while_a_new_epoch_is_on_its_way_still_knows_the_old_one():
    logged = pushed(3, 2)
    logged.durable()
    logged.produce(batch(sequence=0, epoch=2), PUSH)
    logged.crash(through=2, snapshot=logged.snapshot())
    assert logged.produce(batch(sequence=0, count=3), PUSH) == [Acked(PUSH, 0, [0])]
    assert logged.produce(batch(sequence=1, count=2), PUSH) == [Acked(PUSH, 1, [3])]
    assert len(logged.log) == 2


def test_a_partition_is_settled_when_nothing_waits_for_its_log():
    logged = pushed(3, 1)
    partition = logged.partition
    assert (partition.is_settled, partition.waiting()) == (False, [PUSH, PUSH])
    partition.step(LogDurable(partition.last_index))
    assert (partition.is_settled, partition.waiting()) == (True, [])
    partition.step(AttachIndex(origin(1), "billing", 0, False))
    assert not partition.is_settled, "the change is not even appended"


# --- losses --------------------------------------------------------------------------------------


def test_what_an_index_has_lost_survives_a_crash_and_a_snapshot():
    logged = pushed(3)
    logged.durable()
    logged.step(AttachIndex(PUSH, "billing", 0, False))
    logged.settle()
    assert logged.step(SkipIndex(PUSH, "billing", 2, 2)) == []
    (moved,) = logged.settle()
    assert isinstance(moved, IndexMoved)
    assert moved.by == "skip"
    for snapshot in (None, logged.snapshot()):
        logged.crash(len(logged.log), snapshot)
        cursor = logged.partition.cursors.applied["billing"]
        assert (cursor.position, cursor.lost) == (2, 2)
    assert logged.step(SkipIndex(PUSH, "billing", 2, 2)) == []
    assert logged.settle() == []


def test_a_log_start_that_is_on_its_way_is_not_asked_for_again():
    logged = pushed(3)
    logged.durable()
    logged.step(MoveLogStart(2))
    appended = len(logged.log)
    assert logged.step(MoveLogStart(2)) == []
    assert len(logged.log) == appended
    assert LogStartMoved(2) in logged.durable()


def test_who_waits_for_a_change_of_an_index_can_be_told():
    partition = Partition("t", 0)
    asked = origin(request=3)
    partition.step(AttachIndex(asked, "billing", 0, False))
    assert partition.waiting_for_indexes() == [asked]  # gathered, and not appended yet
    partition.step(TurnEnded())
    assert partition.waiting_for_indexes() == [asked]  # appended, and not committed yet
    partition.step(LogDurable(partition.last_index))
    assert partition.waiting_for_indexes() == []
