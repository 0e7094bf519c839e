"""Who is remembered as dropped, and for how long."""

from __future__ import annotations

import pytest

from hocket.core.transactions import dropped as dropped_core
from hocket.core.transactions.dropped import Dropped

A, B, C, D = (bytes([letter]) * 16 for letter in b"abcd")


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setattr(dropped_core, "OF_ONE_ID_MAX", 3)
    monkeypatch.setattr(dropped_core, "MAX", 5)


def test_the_last_of_an_id_are_known():
    dropped = Dropped()
    dropped.add("job", 1, [A, B])
    dropped.add("job", 2, [B, C, D])
    assert dropped.of("job") == {B: 2, C: 2, D: 2}
    assert dropped.of("other") == {}


def test_beyond_the_limit_the_id_whose_last_abort_is_longest_ago_goes_first():
    dropped = Dropped()
    dropped.add("one", 0, [A])
    dropped.add("two", 0, [A, B])
    dropped.add("one", 0, [B])
    dropped.add("three", 0, [A, B])
    assert dropped.of("two") == {}
    assert dropped.of("one") == {A: 0, B: 0}
    assert dropped.of("three") == {A: 0, B: 0}


def test_a_single_id_keeps_its_own(monkeypatch):
    monkeypatch.setattr(dropped_core, "MAX", 1)
    dropped = Dropped()
    dropped.add("job", 0, [A, B])
    assert dropped.of("job") == {A: 0, B: 0}


def test_a_commit_ends_those_up_to_its_number():
    dropped = Dropped()
    dropped.add("job", 1, [A])
    dropped.add("job", 2, [B])
    dropped.add("other", 1, [A])
    dropped.committed("job", 1)
    assert dropped.of("job") == {B: 2}
    dropped.committed("job", 5)
    dropped.committed("unknown", 5)
    assert dropped.snapshot() == {"other": [[A.hex(), 1]]}


def test_the_highest_number_counts():
    dropped = Dropped()
    dropped.add("job", 7, [A])
    dropped.add("job", 3, [A, B])
    dropped.committed("job", 5)
    assert dropped.of("job") == {A: 7}


def test_a_snapshot_gives_the_same_limits_included():
    dropped = Dropped()
    dropped.add("one", 1, [A, B])
    dropped.add("two", 2, [C])
    again = Dropped()
    again.restore(dropped.snapshot())
    assert again.snapshot() == dropped.snapshot()
    for each in (dropped, again):
        each.add("three", 3, [A, B, C])
        assert each.of("one") == {}
        assert each.of("two") == {C: 2}
