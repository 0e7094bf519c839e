"""What is staged in a partition, by plain calls: staged, verified, applied, dropped, recovered."""

from __future__ import annotations

import json

import pytest

from hocket.core.origin import Origin
from hocket.core.partition.events import (
    BATCH,
    CONTROL,
    OWN_DECIDER,
    STAGE,
    Acked,
    Append,
    ApplyStaged,
    DropStages,
    Effect,
    EndMoved,
    ForgetApplied,
    Refused,
    StageAcked,
    StageBatch,
    Staged,
    StageKey,
    StagesMoved,
    TransactionApplied,
)
from hocket.core.partition.stages import Stages, by_name, crc_of
from hocket.errors import Busy, TransactionConflict
from hocket.model import EntryKind, Participant
from tests.support.core.logged import ALICE, BOB, Logged, batch, origin, recovered, state_of

CAROL = b"carol".ljust(16, b".")
PUSH = origin(handle=5)
NAME = ("job", 7)
MIB = 1 << 20


def key(producer_id: bytes = ALICE, number: int = 7) -> StageKey:
    return StageKey("job", number, producer_id)


def stage(
    logged: Logged,
    sequence: int,
    *,
    by: bytes = ALICE,
    number: int = 7,
    count: int = 1,
    crc: int | None = None,
    asker: Origin = PUSH,
) -> list[Effect]:
    crc = sequence + 100 if crc is None else crc
    staged = batch(by, sequence, count=count, body=(10, crc))
    return logged.step(StageBatch(asker, key(by, number), staged, 10, crc, logged.now_us))


def staged(*counts: int, by: bytes = ALICE, logged: Logged | None = None) -> Logged:
    """So many records in each batch, all durable."""
    logged = logged or Logged()
    for sequence, count in enumerate(counts):
        stage(logged, sequence, by=by, count=count)
    logged.durable()
    return logged


def named(*counts: int, by: bytes = ALICE, crc: int | None = None) -> Participant:
    crcs = range(100, 100 + len(counts))
    return Participant(
        "orders", 0, by, len(counts), sum(counts), crc_of(crcs) if crc is None else crc
    )


def apply(
    logged: Logged, *producers: tuple[bytes, int], decision: int = 3, step: int = MIB
) -> list:
    """As the driver does it: what comes next, with its bytes; the effects of the last step."""
    stages = logged.partition.stages
    effects: list[Effect] = []
    while True:
        following = stages.next_of(NAME, producers, step)
        if stages.is_over(NAME, decision):
            following = []
        batches = [batch(s.key.producer_id, at, count=s.batches[at].records) for s, at in following]
        effects += logged.step(ApplyStaged(NAME, decision, producers, batches))
        if stages.is_over(NAME, decision):
            return effects


def test_the_kind_is_that_of_the_wire():
    assert STAGE == EntryKind.STAGE


# --- staging -------------------------------------------------------------------------------------


def test_a_staged_batch_takes_no_offset_and_is_acknowledged_when_it_is_durable():
    logged = Logged()
    moved = stage(logged, 0, count=3)
    assert moved == [StagesMoved(first_index=1, bytes=10)]
    assert [(each.kind, each.index, each.base_offset) for each in logged.log] == [(STAGE, 1, 0)]
    assert logged.log[0].stage == key()
    assert logged.durable() == [StageAcked(PUSH, 0)]
    assert logged.partition.high_watermark == logged.partition.end == 0


def test_one_acknowledgement_covers_all_that_became_durable_at_once():
    logged = Logged()
    for sequence in range(3):
        stage(logged, sequence)
    stage(logged, 0, by=BOB, asker=origin(handle=6))
    assert logged.durable() == [StageAcked(PUSH, 2), StageAcked(origin(handle=6), 0)]


def test_staging_waits_for_the_disk_even_if_the_topic_is_kept_in_memory():
    logged = Logged(durability="memory")
    stage(logged, 0)
    assert logged.produce(batch(BOB), PUSH) == []  # behind it, and so with it
    assert logged.durable() == [Acked(PUSH, 0, [0]), StageAcked(PUSH, 0), EndMoved(1)]
    assert logged.produce(batch(BOB, 1), PUSH) == [Acked(PUSH, 1, [1]), EndMoved(2)]


def test_the_same_batch_again_is_acknowledged_again_and_not_staged_twice():
    logged = Logged()
    logged.produce(batch(BOB), origin(1))
    stage(logged, 0)
    assert stage(logged, 0, asker=origin(handle=9)) == []
    assert logged.durable() == [
        Acked(origin(1), 0, [0]),
        StageAcked(PUSH, 0),
        StageAcked(origin(handle=9), 0),
        EndMoved(1),
    ]
    assert stage(logged, 0, asker=origin(handle=10)) == [StageAcked(origin(handle=10), 0)]
    assert len(logged.log) == 2


@pytest.mark.parametrize(
    ("sequence", "how", "code"),
    [
        (0, {"crc": 1}, "transactionConflict"),
        (2, {}, "sequenceGap"),
        (0, {"number": 8}, "fenced"),
        (3, {"by": BOB}, "transactionAborted"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(sequence, how, code):
    logged = staged(1)
    before = state_of(logged.partition)
    [refused] = stage(logged, sequence, **how)
    assert isinstance(refused, Refused)
    assert (refused.origin, refused.sequence, refused.code) == (PUSH, sequence, code)
    assert refused.message
    assert state_of(logged.partition) == before


def test_who_stages_cannot_publish_beside_it():
    """Or replay could not tell the one from the other."""
    logged = staged(1)
    [refused] = logged.produce(batch(ALICE, 0), PUSH)
    assert isinstance(refused, Refused)
    assert refused.code == "producerConflict"


def test_what_was_published_before_somebody_staged_under_the_id_is_still_known():
    logged = Logged()
    logged.produce(batch(ALICE, 0, crc=1), PUSH)
    logged.durable()
    stage(logged, 0)
    logged.durable()
    assert logged.produce(batch(ALICE, 0, crc=1), PUSH) == [Acked(PUSH, 0, [0])]


def test_the_next_sequence_is_that_of_this_transaction():
    logged = staged(1, 1)
    stages = logged.partition.stages
    assert stages.next_sequence(key()) == 2
    assert stages.next_sequence(key(number=8)) == 0
    assert stages.next_sequence(key(BOB)) == 0


# --- verifying -----------------------------------------------------------------------------------


def test_what_is_staged_is_verified():
    logged = staged(3, 2)
    staged(4, by=BOB, logged=logged)
    assert logged.partition.stages.verify(NAME, [named(3, 2), named(4, by=BOB)]) is None


@pytest.mark.parametrize(
    "wrong",
    [
        named(3),
        named(3, 1),
        named(3, 2, 1),
        named(3, 2, crc=5),
        named(3, 2, by=BOB),
    ],
    ids=["batches missing", "another count", "more batches", "another crc", "another producer"],
)
def test_what_is_not_staged_like_that_is_a_conflict(wrong):
    error = staged(3, 2).partition.stages.verify(NAME, [wrong])
    assert isinstance(error, TransactionConflict)
    assert "partition 0 of topic 'orders'" in str(error)


def test_another_transaction_is_a_conflict():
    error = staged(3, 2).partition.stages.verify(("job", 8), [named(3, 2)])
    assert isinstance(error, TransactionConflict)


def test_what_is_not_durable_yet_is_not_verified():
    logged = staged(3)
    stage(logged, 1, count=2)
    assert isinstance(logged.partition.stages.verify(NAME, [named(3, 2)]), Busy)
    logged.durable()
    assert logged.partition.stages.verify(NAME, [named(3, 2)]) is None


def test_what_is_being_dropped_is_not_verified():
    logged = staged(3)
    logged.step(DropStages(NAME, (ALICE,)))
    assert isinstance(logged.partition.stages.verify(NAME, [named(3)]), Busy)


# --- applying ------------------------------------------------------------------------------------


def test_applied_it_gets_its_offsets_side_by_side_and_says_so_when_durable():
    logged = staged(3, 2)
    logged.produce(batch(BOB), PUSH)
    assert apply(logged, (ALICE, 2)) == []
    assert [(each.kind, each.base_offset) for each in logged.log[2:]] == [
        (BATCH, 0), (BATCH, 1), (BATCH, 4), (CONTROL, 6),
    ]  # fmt: skip
    assert logged.durable() == [
        Acked(PUSH, 0, [0]),
        TransactionApplied(NAME, 3),
        StagesMoved(None, 0),
        EndMoved(6),
    ]
    assert not logged.partition.stages


def test_several_producers_come_in_the_order_that_the_decision_names():
    logged = staged(1, 1)
    staged(2, by=BOB, logged=logged)
    apply(logged, (BOB, 1), (ALICE, 2))
    applied = [each.batch.producer_id for each in logged.log if each.kind == BATCH]
    assert applied == [BOB, ALICE, ALICE]


def test_a_large_one_is_applied_in_several_steps():
    logged = staged(1, 1, 1)
    assert len(logged.partition.stages.next_of(NAME, ((ALICE, 3),), 20)) == 2
    apply(logged, (ALICE, 3), step=20)
    assert [each.kind for each in logged.log[3:]] == [BATCH, BATCH, BATCH, CONTROL]


def test_what_others_had_staged_for_it_is_dropped():
    logged = staged(1)
    staged(5, by=BOB, logged=logged)
    apply(logged, (ALICE, 1))
    assert StagesMoved(None, 0) in logged.durable()
    assert logged.partition.high_watermark == 1
    assert not logged.partition.stages


def test_what_was_staged_behind_that_is_not_part_of_it():
    logged = staged(1, 1)
    apply(logged, (ALICE, 1))
    logged.durable()
    assert logged.partition.high_watermark == 1
    assert not logged.partition.stages


def test_told_twice_it_is_applied_once():
    logged = staged(1)
    assert apply(logged, (ALICE, 1)) == []
    assert apply(logged, (ALICE, 1)) == []  # who asked hears of it when it is durable
    logged.durable()
    assert apply(logged, (ALICE, 1)) == [TransactionApplied(NAME, 3)]
    assert logged.partition.high_watermark == 1


def test_the_same_staged_anew_is_not_published_by_a_decision_of_before():
    logged = staged(1)
    apply(logged, (ALICE, 1))
    logged.durable()
    staged(1, logged=logged)
    assert apply(logged, (ALICE, 1)) == [TransactionApplied(NAME, 3)]
    assert logged.step(ForgetApplied(3)) == []
    logged.durable()
    assert logged.partition.stages.applied == {}
    assert apply(logged, (ALICE, 1)) == [TransactionApplied(NAME, 3)]
    assert logged.partition.end == 1


def test_a_partition_that_has_none_of_it_only_says_so():
    logged = Logged()
    apply(logged, (ALICE, 2))
    assert [each.kind for each in logged.log] == [CONTROL]
    assert logged.durable()[0] == TransactionApplied(NAME, 3)


def test_while_it_ends_nothing_more_is_staged():
    logged = staged(1)
    apply(logged, (ALICE, 1))
    [refused] = stage(logged, 1)
    assert isinstance(refused, Refused)
    assert refused.code == "busy"


# --- dropping and forgetting ---------------------------------------------------------------------


def test_dropped_it_is_gone_when_that_is_durable():
    logged = staged(1, 1)
    assert logged.step(DropStages(NAME, (ALICE,))) == []
    assert logged.step(DropStages(NAME, (ALICE,))) == []  # once is enough
    assert len(logged.log) == 3
    assert logged.partition.stages.bytes == 20
    assert logged.durable() == [StagesMoved(None, 0)]
    assert not logged.partition.stages
    assert logged.step(DropStages(NAME, (ALICE,))) == []


def test_what_is_staged_by_others_while_it_is_dropped_stays():
    logged = staged(1)
    logged.step(DropStages(NAME, (ALICE,)))
    stage(logged, 0, by=BOB)
    logged.durable()
    assert list(logged.partition.stages.producers) == [BOB]
    assert state_of(recovered(logged.log)) == state_of(logged.partition)


def test_the_log_keeps_the_first_entry_that_is_needed():
    """Also while the stage that began first is being applied, and others began before it ended."""
    logged = staged(1, 1, 1)
    staged(1, by=BOB, logged=logged)
    staged(1, by=CAROL, logged=logged)
    stages = logged.partition.stages
    seen = [stages.moved().first_index]
    for _ in range(3):
        following = stages.next_of(NAME, ((ALICE, 3), (BOB, 1)), 1)
        batches = [batch(s.key.producer_id, at) for s, at in following]
        logged.step(ApplyStaged(NAME, 3, ((ALICE, 3), (BOB, 1)), batches))
        logged.durable()
        seen.append(stages.moved().first_index)
    assert seen == [1, 2, 3, 4]
    again = recovered(logged.log, logged.snapshot()).stages
    assert again.moved() == recovered(logged.log).stages.moved() == stages.moved()


def test_only_what_is_named_is_dropped():
    """A drop that comes late must not hit another attempt."""
    logged = staged(1)
    staged(1, by=BOB, logged=logged)
    assert logged.step(DropStages(NAME, (CAROL,))) == []
    assert logged.step(DropStages(("job", 8), (ALICE,))) == []  # of another number
    assert len(logged.log) == 2
    logged.step(DropStages(NAME, (CAROL, BOB)))
    assert json.loads(logged.log[2].body) == {"dropped": ["job", 7, [BOB.hex()]]}
    logged.durable()
    assert list(logged.partition.stages.producers) == [ALICE]
    assert state_of(recovered(logged.log)) == state_of(logged.partition)


def test_an_entry_of_older_versions_drops_all_that_was_staged_for_it():
    logged = staged(1)
    staged(1, by=BOB, logged=logged)
    stage(logged, 0, by=CAROL, number=8)
    logged.step(DropStages(NAME, (ALICE,)))
    logged.log[-1].body = b'{"dropped": ["job", 7]}'
    assert list(recovered(logged.log).stages.producers) == [CAROL]


def test_who_is_named_twice_is_dropped_once():
    logged = staged(1)
    logged.step(DropStages(NAME, (ALICE, ALICE)))
    assert json.loads(logged.log[1].body) == {"dropped": ["job", 7, [ALICE.hex()]]}
    logged.durable()
    assert not logged.partition.stages
    logged.log[1].body = json.dumps({"dropped": ["job", 7, [ALICE.hex()] * 2]}).encode()
    assert state_of(recovered(logged.log)) == state_of(logged.partition)  # if it stands there


def test_what_is_applied_ends_whatever_lower_numbers_had_staged():
    logged = staged(1)
    stage(logged, 0, by=BOB, number=6)
    stage(logged, 0, by=CAROL, number=8)
    apply(logged, (ALICE, 1))
    logged.durable()
    assert list(logged.partition.stages.producers) == [CAROL]
    assert state_of(recovered(logged.log)) == state_of(logged.partition)


def test_each_decider_counts_its_own_decisions():
    """A cluster has several, and what is history for one of them is none for another."""
    logged = staged(1)
    logged.step(ApplyStaged(NAME, 5, ((ALICE, 1),), [batch(ALICE, 0)], 77))
    assert TransactionApplied(NAME, 5, 77) in logged.durable()
    stages = logged.partition.stages
    assert stages.deciders == [77]
    assert logged.step(ForgetApplied(9)) == []
    assert stages.applied == {NAME: (5, 77)}
    assert state_of(recovered(logged.log)) == state_of(logged.partition)
    logged.step(ForgetApplied(4, 77))
    logged.step(ForgetApplied(5, 77))
    logged.durable()
    assert (stages.applied, stages.forgotten, stages.deciders) == ({}, {77: 5}, [])
    assert stages.is_over(NAME, 5, 77)
    assert not stages.is_over(NAME, 5)
    assert state_of(recovered(logged.log)) == state_of(logged.partition)
    again = Stages()
    again.restore(json.loads(json.dumps(stages.snapshot())))
    assert again.forgotten == {77: 5}


def test_what_another_decider_has_decided_stays_when_one_has_forgotten():
    logged = staged(1)
    stage(logged, 0, by=BOB, number=8)
    logged.durable()
    logged.step(ApplyStaged(NAME, 5, ((ALICE, 1),), [batch(ALICE, 0)], 77))
    logged.step(ApplyStaged(("job", 8), 5, ((BOB, 1),), [batch(BOB, 0)], 78))
    logged.durable()
    logged.step(ForgetApplied(5, 77))
    logged.durable()
    assert logged.partition.stages.applied == {("job", 8): (5, 78)}


def test_only_what_is_applied_is_forgotten_and_only_once():
    logged = staged(1)
    assert logged.step(ForgetApplied(9)) == []
    assert len(logged.log) == 1
    apply(logged, (ALICE, 1), decision=9)
    logged.durable()
    logged.step(ForgetApplied(8))
    assert len(logged.log) == 3
    logged.step(ForgetApplied(9))
    logged.step(ForgetApplied(9))
    assert len(logged.log) == 4
    logged.durable()
    assert logged.partition.stages.applied == {}
    assert logged.partition.stages.forgotten == {OWN_DECIDER: 9}


def test_what_is_idle_and_what_is_open():
    logged = Logged()
    logged.now_us = 5
    stage(logged, 0)
    logged.now_us = 9
    stage(logged, 0, by=BOB, number=8)
    stage(logged, 0, by=CAROL)
    stages = logged.partition.stages
    assert [each.key for each in stages.idle(9)] == [key()]
    assert by_name(stages.producers.values()) == {NAME: (ALICE, CAROL), ("job", 8): (BOB,)}


# --- recovery ------------------------------------------------------------------------------------


def whole_life() -> Logged:
    logged = staged(2, 1)
    staged(1, by=BOB, logged=logged)
    logged.produce(batch(CAROL), PUSH)
    apply(logged, (ALICE, 2))
    stage(logged, 0, by=BOB, number=9)
    logged.durable()
    logged.step(ForgetApplied(3))
    logged.step(DropStages(("job", 9), (BOB,)))
    logged.durable()
    return logged


@pytest.mark.parametrize("through", range(len(whole_life().log) + 1))
def test_replay_gives_the_same_from_a_snapshot_at_any_entry(through):
    log = whole_life().log[:through]
    at_once = recovered(log)
    for snapshot_at in range(through + 1):
        before = Logged()
        before.log = log[:snapshot_at]
        before.partition = recovered(before.log)
        again = recovered(log, before.snapshot())
        assert state_of(again) == state_of(at_once)
        assert again.stages.moved() == at_once.stages.moved()


def test_replay_gives_what_was_there():
    life = whole_life()
    assert state_of(recovered(life.log)) == state_of(life.partition)


def test_a_roll_forward_that_was_cut_short_goes_on_where_it_was():
    for survived in range(4, 8):
        logged = staged(1, 1, 1)
        apply(logged, (ALICE, 3))
        logged.durable_index = 3
        logged.crash(min(survived, len(logged.log)))
        apply(logged, (ALICE, 3))
        assert TransactionApplied(NAME, 3) in [*logged.durable(), *apply(logged, (ALICE, 3))]
        applied = [each.batch.sequence for each in logged.log if each.kind == BATCH]
        assert applied == [0, 1, 2]


def test_nobody_is_idle_because_we_were_away():
    logged = staged(1)
    partition = recovered(logged.log, logged.snapshot())
    partition.stages.recovered(50)
    assert [each.key for each in partition.stages.idle(51)] == [key()]
    assert partition.stages.idle(50) == []


def test_only_what_is_durable_stands_in_a_snapshot():
    logged = staged(1)
    snapshot = logged.snapshot()
    stage(logged, 1)
    stage(logged, 0, by=BOB)
    apply(logged, (ALICE, 1))
    assert logged.snapshot() == snapshot


def test_stages_that_damage_has_torn_keep_what_comes_before_it():
    logged = staged(1, 1, 1)
    stages = recovered(logged.log, lost={2}).stages
    assert stages.producers[ALICE].batches == [Staged(1, 0, 10, 1, 100)]
    assert isinstance(stages.verify(NAME, [named(1, 1, 1)]), TransactionConflict)
    assert stages.lost_of(NAME, ((ALICE, 3),)) == 2
    assert stages.lost_of(NAME, ((ALICE, 1), (BOB, 2))) == 2
    assert stages.lost_of(("other", 1), ((ALICE, 1),)) == 1


@pytest.mark.parametrize("lost", [4, 5, 6])
def test_a_batch_that_was_published_and_lost_is_not_published_again_behind_others(lost):
    logged = staged(1, 1, 1)
    apply(logged, (ALICE, 3))
    logged.durable()
    assert [each.kind for each in logged.log] == [STAGE] * 3 + [BATCH] * 3 + [CONTROL]
    logged.partition = recovered(logged.log[:6], lost={lost})
    del logged.log[6:]
    logged.durable_index = 6
    stage = logged.partition.stages.producers[ALICE]
    # The last one is appended once more: nobody can tell that it had been.
    assert (stage.applied, stage.appended) == ((2, 2) if lost == 6 else (3, 3))
    assert logged.partition.stages.bytes == (10 if lost == 6 else 0)
    apply(logged, (ALICE, 3))
    assert TransactionApplied(NAME, 3) in logged.durable()
    numbers = [each.batch.sequence for each in logged.log if each.kind == BATCH]
    assert numbers == ([0, 1, 2, 2] if lost == 6 else [0, 1, 2])


def test_a_batch_beyond_what_is_staged_is_no_staged_one():
    """The entries that staged it are lost."""
    logged = staged(1, 1)
    apply(logged, (ALICE, 2))
    logged.durable()
    partition = recovered(logged.log[:4], lost={2})
    assert partition.stages.producers[ALICE].applied == 1
    assert partition.dedupe.next_sequence(ALICE, 1) == 2


def test_a_snapshot_from_before_there_were_transactions_is_read():
    logged = Logged()
    logged.produce(batch(), PUSH)
    logged.durable()
    index, state = logged.partition.snapshot()
    old = state.replace(b', "transactions": ', b', "unused": ')
    assert old != state
    partition = Logged().partition
    partition.restore(index, old)
    assert not partition.stages


def test_entries_name_what_they_are():
    logged = staged(1)
    apply(logged, (ALICE, 1))
    logged.step(ForgetApplied(3))
    assert [type(each) for each in logged.log] == [Append] * len(logged.log)
    assert logged.log[2].body == b'{"applied": ["job", 7, 3]}'
