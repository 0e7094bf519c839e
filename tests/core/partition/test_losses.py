"""A partition whose log has lost entries: what they changed is as before, and it goes on."""

from __future__ import annotations

import pytest

from hocket.core.partition.dedupe import NO_PRODUCER, Duplicate, Forgotten, Gap, New
from hocket.core.partition.events import (
    Acked,
    AttachIndex,
    ChangeShare,
    CommitIndex,
    DeleteIndex,
    Lost,
    MoveLogStart,
    Refused,
    SeekIndex,
)
from hocket.core.partition.partition import Partition
from hocket.core.sharing.state import ShareChange, ShareSettings
from tests.support.core.logged import (
    ALICE,
    BOB,
    Logged,
    Snapshot,
    batch,
    origin,
    recovered,
    state_of,
)

PUSH = origin(handle=5)
SETTINGS = ShareSettings(lease_us=1_000_000, max_deliveries=3)


def pushed(*counts: int) -> Logged:
    logged = Logged()
    for sequence, count in enumerate(counts):
        logged.produce(batch(sequence=sequence, count=count), PUSH)
    logged.durable()
    return logged


def again(partition: Partition) -> Partition:
    """From its own snapshot."""
    return recovered([], Snapshot(*partition.snapshot()))


def go_on(logged: Logged, lost: set[int]) -> None:
    logged.partition = recovered(logged.log, lost=lost)
    logged.durable_index = len(logged.log)


# --- records and producers -------------------------------------------------------------------


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_the_next_record_comes_behind_those_that_are_lost(lost):
    logged = pushed(3, 2, 1)
    go_on(logged, {lost})
    assert logged.produce(batch(BOB), PUSH) == []
    assert logged.durable()[0] == Acked(PUSH, 0, [6])


def test_a_batch_that_is_lost_is_no_repetition_when_it_comes_again():
    logged = pushed(1, 1, 1)
    go_on(logged, {2})
    for partition in (logged.partition, again(logged.partition)):
        assert partition.dedupe.is_holed(ALICE, 1)
        assert not partition.dedupe.is_holed(ALICE, 2)
        assert partition.dedupe.judge(ALICE, 1, 0) == Duplicate(0, 1)
        assert partition.dedupe.judge(ALICE, 1, 1) == Forgotten()
        assert partition.dedupe.judge(ALICE, 1, 2) == Duplicate(2, 3)
        assert partition.dedupe.judge(ALICE, 1, 3) == New()
        assert partition.dedupe.judge(ALICE, 2, 0) == New()
    (refused,) = logged.produce(batch(sequence=1), PUSH)
    assert isinstance(refused, Refused)
    assert refused.code == "unknownProducer"


def test_the_last_batch_lost_is_new_when_it_comes_again_and_later_ones_wait_for_it():
    logged = pushed(1, 1, 1)
    go_on(logged, {3})
    assert not logged.partition.dedupe.holed
    assert logged.partition.dedupe.judge(ALICE, 1, 3) == Gap(2)
    assert logged.produce(batch(sequence=2), PUSH) == []
    assert logged.durable()[0] == Acked(PUSH, 2, [3])


def test_a_producer_whose_beginning_is_lost_is_holed_and_forgotten_as_others_are():
    logged = pushed(1, 1)
    partition = recovered(logged.log, lost={1})
    assert partition.dedupe.holed == {ALICE: 1}
    partition.dedupe.forget([ALICE], 2)
    assert not partition.dedupe.holed
    assert partition.dedupe.judge(ALICE, 1, 0) == New()


def test_batches_without_a_producer_have_no_holes():
    logged = Logged()
    for sequence in (0, 0, 7):
        logged.produce(batch(NO_PRODUCER, sequence), PUSH)
    logged.durable()
    assert not recovered(logged.log, lost={2}).dedupe.holed


def test_nothing_may_be_lost_at_all():
    """The end of the log is not known, and it is where it was."""
    logged = pushed(1, 1)
    partition = recovered(logged.log)
    before = state_of(partition)
    assert partition.step(Lost(3, 2)) == []
    assert state_of(partition) == before


def test_the_log_start_is_the_log_s_own():
    logged = pushed(3, 2)
    logged.step(MoveLogStart(3))
    logged.durable()
    for known, start in ((0, 0), (3, 3), (9, 5)):
        partition = recovered(logged.log, lost={3}, log_start=known)
        assert partition.start == start


# --- indexes ---------------------------------------------------------------------------------


def test_an_own_index_is_where_it_was_before_what_is_lost():
    logged = pushed(10)
    logged.step(AttachIndex(origin(1), "billing", 0, False))
    logged.settle()
    for position in (4, 6, 8):
        logged.step(CommitIndex(origin(1), "billing", 1, position))
        logged.settle()
    positions = [
        recovered(logged.log, lost={lost}).cursors.applied["billing"].position for lost in (3, 4, 5)
    ]
    assert positions == [8, 8, 6]


def shared(mode: str = "shared") -> Logged:
    """Ten records; entry 2 makes the index."""
    logged = pushed(10)
    attach(logged, mode)
    return logged


def attach(logged: Logged, mode: str = "shared", start: int = 0) -> None:
    logged.step(AttachIndex(origin(1), "workers", start, False, mode, SETTINGS))
    logged.settle()


def settle(logged: Logged, *ranges: tuple[int, int]) -> None:
    logged.step(ChangeShare(None, "workers", ShareChange(settled=list(ranges))))
    logged.settle()


def test_a_shared_index_delivers_again_what_was_settled_by_what_is_lost():
    logged = shared()
    settle(logged, (0, 3))
    settle(logged, (3, 5))
    for lost, start, ahead in ((3, 0, 2), (4, 3, 0)):
        partition = recovered(logged.log, lost={lost})
        share = partition.shares["workers"]
        assert (share.start, share.ahead()) == (start, ahead)
        assert partition.cursors.applied["workers"].position == start


def test_what_was_revived_since_a_loss_takes_the_index_back_no_further():
    logged = shared()
    settle(logged, (0, 8))
    logged.produce(batch(sequence=1), PUSH)
    logged.durable()
    revived = ShareChange(revived=[(2, 3)], revived_to={9: 4}, revivals=1, settled=[(8, 9)])
    logged.step(ChangeShare(None, "workers", revived))
    logged.settle()
    settle(logged, (2, 3))
    lost = recovered(logged.log, lost={4}).shares["workers"]
    assert (lost.start, lost.ahead()) == (9, 0)


def test_after_a_loss_any_message_may_be_with_a_consumer():
    logged = shared()
    logged.step(ChangeShare(None, "workers", ShareChange(clean=True, lent=[(1, 2)])))
    logged.settle()
    logged.produce(batch(sequence=1), PUSH)
    logged.durable()
    assert recovered(logged.log).shares["workers"].clean
    share = recovered(logged.log, lost={4}).shares["workers"]
    assert (share.clean, share.lent) == (False, [])


def test_a_shared_index_whose_beginning_is_lost_begins_where_its_next_consumer_found_it():
    logged = shared()
    settle(logged, (0, 3), (5, 6))
    attach(logged)
    partition = recovered(logged.log, lost={2})
    share = partition.shares["workers"]
    assert (share.start, share.ahead(), share.clean) == (3, 0, False)
    assert partition.cursors.applied["workers"].position == 3
    assert not recovered(logged.log[:3], lost={2}).shares, "and there is none before that"


def test_an_index_that_became_an_own_one_is_shared_no_more():
    logged = shared()
    logged.step(DeleteIndex(origin(1), "workers"))
    logged.settle()
    logged.step(AttachIndex(origin(1), "workers", 1, False))
    logged.settle()
    partition = recovered(logged.log, lost={3})
    assert partition.shares == {}
    assert partition.cursors.applied["workers"].position == 1


def sought_back(then: str) -> Partition:
    """The index was at 8 and put to 2, by an entry that is lost."""
    logged = shared()
    logged.step(MoveLogStart(1))
    settle(logged, (1, 8))
    logged.step(SeekIndex(origin(1), "workers", 2))
    logged.settle()
    if then == "attached":
        attach(logged)
    elif then == "settled":
        settle(logged, (3, 4))
    return recovered(logged.log, lost={5})


def test_a_seek_back_that_is_lost_does_not_make_the_index_jump():
    assert sought_back("nothing").shares["workers"].start == 8, "nobody can know"
    partition = sought_back("attached")
    assert partition.shares["workers"].start == 2
    assert partition.cursors.applied["workers"].position == 2
    partition = sought_back("settled")
    share = partition.shares["workers"]
    assert (share.start, share.ahead()) == (1, 1), "all is delivered again but what is settled"
    assert partition.cursors.applied["workers"].position == 1


def test_a_seek_that_is_there_counts_whatever_was_lost_before_it():
    logged = shared()
    settle(logged, (0, 8))
    settle(logged, (8, 9))
    logged.step(SeekIndex(origin(1), "workers", 2))
    logged.settle()
    partition = recovered(logged.log, lost={4})
    assert partition.shares["workers"].start == 2
