"""How far one peer has come: probing, streaming, installing."""

from __future__ import annotations

from hocket.core.raft.progress import Pace, Progress


def test_it_begins_by_probing_one_message_at_a_time():
    progress = Progress("b", 8)
    progress.sent(9)
    assert (progress.pace, progress.waits, progress.next) == (Pace.PROBING, True, 8)


def test_an_answer_makes_it_stream():
    progress = Progress("b", 8)
    assert progress.accepted(stored=7, flushed=5)
    assert (progress.pace, progress.next, progress.matched) == (Pace.STREAMING, 8, 5)
    progress.sent(9)
    progress.sent(12)
    assert (progress.next, list(progress.in_flight)) == (13, [9, 12])
    assert progress.accepted(stored=9, flushed=9)
    assert list(progress.in_flight) == [12]
    assert not progress.accepted(stored=12, flushed=9)
    assert not progress.in_flight


def test_an_old_answer_takes_nothing_back():
    progress = Progress("b", 8)
    progress.accepted(9, 9)
    assert not progress.accepted(5, 5)
    assert (progress.matched, progress.next) == (9, 10)


def test_only_what_is_flushed_has_matched():
    progress = Progress("b", 3)
    assert not progress.accepted(stored=2, flushed=0)
    assert progress.matched == 0
    assert progress.next == 3


def test_it_may_have_more_than_was_sent():
    progress = Progress("b", 3)
    progress.accepted(2, 2)
    progress.accepted(6, 6)
    assert progress.next == 7


def test_a_refusal_makes_it_probe_from_where_the_logs_may_agree():
    progress = Progress("b", 9)
    assert progress.rejected(previous=8, following=4)
    assert (progress.pace, progress.next, progress.waits) == (Pace.PROBING, 4, False)
    assert not progress.rejected(previous=8, following=2), "that was the question before"


def test_what_has_matched_is_not_sent_again():
    progress = Progress("b", 9)
    progress.accepted(8, 8)
    assert progress.rejected(previous=9, following=2)
    assert progress.next == 9


def test_only_an_answer_that_brings_something_new_makes_it_stream():
    progress = Progress("b", 9)
    progress.accepted(8, 8)
    assert progress.rejected(previous=12, following=9)
    progress.sent(11)
    for old in (3, 8):
        assert not progress.accepted(old, old)
        assert (progress.pace, progress.waits) == (Pace.PROBING, True)
    assert progress.accepted(9, 9), "the first part of what was sent"
    assert (progress.pace, progress.next) == (Pace.STREAMING, 10)


def test_a_probe_without_entries_is_answered_by_what_is_there():
    progress = Progress("b", 9)
    progress.sent(8)
    assert not progress.accepted(7, 0)
    assert progress.pace is Pace.PROBING
    assert progress.accepted(8, 8)
    assert progress.pace is Pace.STREAMING


def test_a_refusal_of_what_has_matched_is_out_of_date_unless_it_was_asked_for():
    progress = Progress("b", 9)
    progress.accepted(8, 8)
    assert not progress.rejected(previous=7, following=4)
    assert not progress.rejected(previous=8, following=4)
    progress.probe(9)
    assert not progress.rejected(previous=8, following=4), "nothing was asked yet"
    progress.sent(9)
    assert progress.rejected(previous=8, following=4), "it has lost what was durable"
    assert (progress.pace, progress.matched, progress.next) == (Pace.PROBING, 3, 4)
    progress.sent(9)
    assert progress.accepted(5, 5)
    assert (progress.matched, progress.next) == (5, 6)


def test_a_snapshot_is_over_when_it_is_answered():
    progress = Progress("b", 2)
    progress.install(7, now_us=5)
    assert (progress.pace, progress.next, progress.sent_us) == (Pace.INSTALLING, 8, 5)
    progress.accepted(stored=3, flushed=3)
    assert progress.pace is Pace.INSTALLING, "an answer from before"
    progress.accepted(stored=7, flushed=7)
    assert (progress.pace, progress.next) == (Pace.STREAMING, 8)
