"""Reads: rounds of confirmations, and the numbers of reads that are handed on."""

from __future__ import annotations

from hocket.core.raft.events import ReadAsked
from hocket.core.raft.reading import Forwarded, Read, Reads


def test_reads_that_come_during_a_round_share_the_next_one():
    reads = Reads()
    reads.take(Read("", "first"), 4)
    assert reads.begin()
    assert (reads.round, reads.is_waiting) == (1, True)
    reads.take(Read("", "second"), 5)
    reads.take(Read("", "third"), 6)
    assert not reads.begin()
    assert [(read.token, read.index) for read in reads.confirmed()] == [("first", 4)]
    assert reads.begin()
    assert reads.round == 2
    assert [(read.token, read.index) for read in reads.confirmed()] == [("second", 5), ("third", 6)]
    assert not reads.begin()


def test_what_was_asked_too_early_waits_apart():
    reads = Reads()
    reads.postpone(Read("", "early"))
    assert not reads.begin()
    assert [read.token for read in reads.drop()] == ["early"]
    assert [read.token for read in reads.take_early()] == ["early"]
    assert reads.take_early() == []


def test_numbers_are_never_used_again_by_a_later_life():
    former, later = Forwarded(3), Forwarded(4)
    old = former.add(ReadAsked("x"))
    assert later.take(old) is None
    assert later.add(ReadAsked("x")) != old


def test_the_same_token_asked_twice_is_two_reads():
    forwarded = Forwarded(1)
    first, second = forwarded.add(ReadAsked("x")), forwarded.add(ReadAsked("x"))
    assert first != second
    assert forwarded.take(first) == ReadAsked("x")
    assert forwarded.take(first) is None
    assert forwarded.drop() == [ReadAsked("x")]
    assert forwarded.take(second) is None
