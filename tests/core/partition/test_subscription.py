"""One subscription by plain calls: reads within its credit, one per partition, in turns."""

from __future__ import annotations

from hypothesis import given, strategies as st

from hocket.core.partition.subscription import (
    READ_BYTES_MAX,
    Advanced,
    CreditGiven,
    MoveHeard,
    Progress,
    Read,
    ReadDone,
    Send,
    Sought,
    Subscription,
    TellMoved,
)


def subscription(*progress: Progress, credit: int = 100) -> Subscription:
    return Subscription(enumerate(progress), credit)


def test_reading_begins_where_each_partition_is_to_begin():
    subject = subscription(Progress(3, 9), Progress(5, 6), credit=3 * READ_BYTES_MAX)
    assert subject.begin() == [
        Read(0, 3, READ_BYTES_MAX, 9, 0),
        Read(1, 5, READ_BYTES_MAX, 6, 0),
    ]


def test_where_there_is_nothing_to_read_nothing_is_read():
    subject = subscription(Progress(9, 9))
    assert subject.begin() == []
    assert subject.step(Advanced(0, 0, 10)) == [Read(0, 9, 100, 10, 0)]


def test_what_was_read_is_sent_paid_for_and_followed_by_the_next_read():
    subject = subscription(Progress(0, 9))
    subject.begin()
    assert subject.step(ReadDone(0, 0, 4, 60)) == [Send(0, 0), Read(0, 4, 40, 9, 0)]
    assert subject.step(ReadDone(0, 0, 9, 10)) == [Send(0, 4)]
    assert subject.credit == 30


def test_while_a_partition_is_read_it_is_not_read_again():
    subject = subscription(Progress(0, 9))
    subject.begin()
    assert subject.step(Advanced(0, 0, 20)) == []
    assert subject.step(CreditGiven(1_000)) == []
    assert subject.step(ReadDone(0, 0, 9, 10)) == [Send(0, 0), Read(0, 9, 1_090, 20, 0)]


def test_without_credit_nothing_is_read():
    subject = subscription(Progress(0, 9), credit=0)
    assert subject.begin() == []
    assert subject.step(Advanced(0, 0, 20)) == []
    assert subject.step(CreditGiven(7)) == [Read(0, 0, 7, 20, 0)]


def test_a_batch_larger_than_the_credit_is_sent_whole_and_its_debt_paid_first():
    subject = subscription(Progress(0, 9), credit=10)
    subject.begin()
    assert subject.step(ReadDone(0, 0, 1, 1_000)) == [Send(0, 0)]
    assert subject.credit == -990
    assert subject.step(CreditGiven(990)) == []
    assert subject.step(CreditGiven(5)) == [Read(0, 1, 5, 9, 0)]


def test_credit_is_shared_out_between_the_reads_of_one_moment():
    progress = [Progress(0, 9) for _ in range(3)]
    subject = subscription(*progress, credit=READ_BYTES_MAX + 10)
    assert subject.begin() == [Read(0, 0, READ_BYTES_MAX, 9, 0), Read(1, 0, 10, 9, 0)]


def test_credit_that_a_read_under_way_may_take_is_not_given_to_another():
    subject = subscription(Progress(0, 9), Progress(0, 0), credit=100)
    assert subject.begin() == [Read(0, 0, 100, 9, 0)]
    assert subject.step(Advanced(1, 0, 9)) == []
    assert subject.step(CreditGiven(20)) == [Read(1, 0, 20, 9, 0)]


def test_credit_that_a_read_did_not_need_is_there_for_the_next_one():
    subject = subscription(Progress(0, 1), Progress(0, 9), credit=100)
    assert subject.begin() == [Read(0, 0, 100, 1, 0)]
    assert subject.step(ReadDone(0, 0, 1, 30)) == [Send(0, 0), Read(1, 0, 70, 9, 0)]


def test_a_busy_partition_lets_the_others_have_their_turn():
    subject = subscription(Progress(0, 99), Progress(0, 99), Progress(0, 99), credit=10)
    served = [subject.begin()[0].partition]
    for _ in range(5):
        assert subject.step(ReadDone(served[-1], 0, 1, 10)) == [Send(served[-1], 0)]
        subject.partitions[served[-1]].next = 0
        (read,) = subject.step(CreditGiven(10))
        served.append(read.partition)
    assert served == [0, 1, 2, 0, 1, 2]


def test_a_partition_that_is_added_has_its_turn():
    subject = subscription(Progress(0, 9), credit=0)
    subject.add(1, Progress(0, 5))
    assert subject.step(CreditGiven(2 * READ_BYTES_MAX)) == [
        Read(0, 0, READ_BYTES_MAX, 9, 0),
        Read(1, 0, READ_BYTES_MAX, 5, 0),
    ]


def test_a_read_that_finds_nothing_costs_nothing_and_is_not_repeated_before_the_end_moves():
    subject = subscription(Progress(5, 9))
    subject.begin()
    assert subject.step(ReadDone(0, 0, 5, 0)) == []
    assert subject.credit == 100
    assert subject.step(CreditGiven(10)) == []
    assert subject.step(Advanced(0, 0, 12)) == [Read(0, 5, 110, 12, 0)]


def test_a_read_that_finds_nothing_is_repeated_if_the_end_has_moved_meanwhile():
    subject = subscription(Progress(5, 9))
    subject.begin()
    assert subject.step(Advanced(0, 0, 12)) == []
    assert subject.step(ReadDone(0, 0, 5, 0)) == [Read(0, 5, 100, 12, 0)]


def test_where_a_read_found_nothing_a_seek_may_find_something():
    subject = subscription(Progress(5, 9))
    subject.begin()
    subject.step(ReadDone(0, 0, 5, 0))
    assert subject.step(Sought(0, 7)) == [TellMoved(0, 7, 0), Read(0, 7, 100, 9, 1)]


# --- moves ---------------------------------------------------------------------------------------


def test_after_a_seek_reading_goes_on_there():
    subject = subscription(Progress(7, 9))
    subject.begin()
    subject.step(ReadDone(0, 0, 9, 10))
    assert subject.step(Sought(0, 2)) == [TellMoved(0, 2, 0), Read(0, 2, 90, 9, 1)]


def test_a_read_that_a_seek_overtakes_is_dropped_and_costs_nothing():
    subject = subscription(Progress(7, 9))
    subject.begin()
    assert subject.step(Sought(0, 2)) == [TellMoved(0, 2, 0)]
    assert subject.step(Sought(0, 3)) == [TellMoved(0, 3, 0)]
    assert subject.step(ReadDone(0, 0, 9, 60)) == [Read(0, 3, 100, 9, 2)]
    assert subject.step(ReadDone(0, 2, 9, 60)) == [Send(0, 3)]


def test_a_seek_is_told_even_without_credit():
    subject = subscription(Progress(7, 9), credit=0)
    assert subject.step(Sought(0, 2)) == [TellMoved(0, 2, 0)]


def test_what_retention_took_is_counted_and_told():
    subject = subscription(Progress(3, 9), credit=0)
    assert subject.step(Advanced(0, 5, 9)) == []
    assert subject.step(Advanced(0, 8, 9)) == []
    assert subject.step(CreditGiven(10)) == [TellMoved(0, 8, 5), Read(0, 8, 10, 9, 1)]


def test_what_retention_took_while_it_was_being_read_is_sent_and_the_rest_counted():
    subject = subscription(Progress(0, 9))
    subject.begin()
    assert subject.step(Advanced(0, 8, 9)) == []
    assert subject.step(ReadDone(0, 0, 5, 10)) == [
        Send(0, 0),
        TellMoved(0, 8, 3),
        Read(0, 8, 90, 9, 1),
    ]


def test_everything_may_be_lost():
    subject = subscription(Progress(0, 9))
    subject.begin()
    subject.step(ReadDone(0, 0, 9, 10))
    assert subject.step(Advanced(0, 20, 20)) == [TellMoved(0, 20, 11)]
    assert subject.step(Advanced(0, 20, 21)) == [Read(0, 20, 90, 21, 1)]


def test_records_that_are_given_up_are_counted_and_the_consumer_is_told_before_what_follows():
    subject = subscription(Progress(0, 9))
    subject.begin()
    assert subject.step(ReadDone(0, 0, 7, 60, start=4)) == [
        TellMoved(0, 4, 4),
        Send(0, 4),
        Read(0, 7, 40, 9, 0),
    ]


def test_records_that_are_given_up_with_nothing_behind_them_are_counted_too():
    subject = subscription(Progress(0, 9))
    subject.begin()
    assert subject.step(ReadDone(0, 0, 9, 0)) == [TellMoved(0, 9, 9)]


def test_after_a_seek_nothing_is_read_before_the_consumer_has_heard_of_it():
    subject = subscription(Progress(0, 9))
    assert subject.step(Sought(0, 5, hold=True)) == [TellMoved(0, 5, 0)]
    assert subject.step(CreditGiven(10)) == []
    assert subject.step(MoveHeard(0)) == [Read(0, 5, 110, 9, 1)]


def test_all_is_sent_when_no_partition_has_more():
    subject = subscription(Progress(0, 9), Progress(3, 3))
    assert not subject.is_done
    subject.begin()
    subject.step(ReadDone(0, 0, 4, 10))
    assert not subject.is_done, "it is being read"
    subject.step(ReadDone(0, 0, 9, 10))
    assert subject.is_done
    subject.step(Advanced(0, 0, 10))
    subject.step(ReadDone(0, 0, 9, 0))
    assert subject.is_done, "there is an entry without records"


# --- what was read for another one ---------------------------------------------------------------


SELDOM = st.sampled_from([False] * 7 + [True])


@given(
    at=st.integers(5, 8),
    grown=st.integers(-1, 3),
    trimmed=st.integers(-6, 1),
    was_behind=st.integers(0, 2),
    size=st.integers(0, 30),
    more_credit=st.integers(-3, 9),
    reading=SELDOM,
    held=SELDOM,
    empty=SELDOM,
    before=SELDOM,
    short=SELDOM,
)
def test_to_follow_is_to_read_what_another_one_has_read(
    at, grown, trimmed, was_behind, size, more_credit, reading, held, empty, before, short
):
    start, end = max(0, at + trimmed), at + grown
    found_from, found_to = at - before, end - short

    def subject() -> Subscription:
        progress = Progress(at, end - was_behind, reading=reading, held=held, empty=empty)
        return Subscription([(0, progress)], size + more_credit)

    follower, reader = subject(), subject()
    advanced = Advanced(0, start, end)
    if not follower.follow(advanced, found_from, found_to, size):
        assert vars_of(follower) == vars_of(subject())
        return
    (read,) = reader.step(advanced)
    assert isinstance(read, Read)
    assert (read.offset, read.end) == (found_from, found_to)
    assert read.bytes_max >= size
    sent = reader.step(ReadDone(0, read.moves, found_to, size, found_from))
    assert sent == [Send(0, found_from)]
    assert vars_of(follower) == vars_of(reader)


def vars_of(subject: Subscription) -> tuple[object, ...]:
    (progress,) = subject.partitions.values()
    return (
        subject.credit, progress.next, progress.start, progress.end, progress.reading,
        progress.held, progress.empty, progress.moves,
    )  # fmt: skip


def test_a_follower_needs_nothing_more():
    subject = Subscription([(0, Progress(5, 5))], 100)
    assert subject.follow(Advanced(0, 0, 7), 5, 7, 60)
    assert subject.is_done
    assert not subject.follow(Advanced(0, 0, 9), 7, 9, 60)  # so much credit is not left
    assert subject.step(Advanced(0, 0, 9)) == [Read(0, 7, 40, 9, 0)]
