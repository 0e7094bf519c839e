"""What deciders and participants of different nodes say to each other, as bytes and back."""

from __future__ import annotations

from dataclasses import replace

from hocket.core.transactions.messages import (
    ApplyStages,
    AskStages,
    counts_of,
    decider_of,
    is_whole,
    joined,
    parted,
    participants_of,
)
from hocket.frames import packed
from hocket.model import Participant, partition_of

NAMED = (Participant("t", 3, b"a" * 16, 2, 30, 7), Participant("t", 3, b"b" * 16, 1, 2**40, 2**32))
PRODUCERS = tuple(each.producer_id for each in NAMED)


def test_participants_come_back_as_they_were():
    asked = AskStages(100, 5, "t", 3, "job", 1, 9, joined(PRODUCERS), counts_of(NAMED))
    assert is_whole(asked)
    assert participants_of(asked) == NAMED
    assert parted(asked.producers) == PRODUCERS
    assert parted(b"") == ()


def test_numbers_that_do_not_match_the_producers_are_noticed():
    asked = AskStages(100, 5, "t", 3, "job", 1, 9, joined(PRODUCERS), counts_of(NAMED))
    assert not is_whole(replace(asked, producers=b"a" * 16))
    assert not is_whole(replace(asked, producers=asked.producers[:-1]))
    assert not is_whole(replace(asked, counts=asked.counts[:-1]))
    apply = ApplyStages(100, 5, "job", 1, 4, joined(PRODUCERS), packed([2, 1]))
    assert is_whole(apply)
    assert not is_whole(replace(apply, counts=packed([2, 1, 1])))


def test_an_id_has_one_decider_whoever_its_user_is():
    assert decider_of("job", 8) == decider_of("alice/job", 8) == partition_of(b"job", 8)
    assert len({decider_of(f"job{n}", 8) for n in range(100)}) == 8
