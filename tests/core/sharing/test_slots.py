"""Slots are spread evenly, and only those move that have to."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.core.sharing.key import Key
from hocket.core.sharing.ranges import length
from hocket.core.sharing.slots import NOBODY, SLOTS, Slots


def owners(slots: Slots) -> list[int]:
    found = [-1] * SLOTS
    for owner, ranges in slots.ranges().items():
        for start, end in ranges:
            assert set(found[start:end]) == {-1}, "a slot with two owners"
            found[start:end] = [owner] * (end - start)
    return found


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(1, 9), unique=True, max_size=9), min_size=1, max_size=6))
def test_slots_are_spread_evenly_and_only_those_move_that_have_to(histories):
    slots = Slots()
    before = owners(slots)
    for members in histories:
        slots.spread(members)
        after = owners(slots)
        sizes = [after.count(member) for member in members]
        assert set(after) == set(members or [NOBODY])
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
        had = [before.count(member) for member in members]
        gained = sum(now - then for now, then in zip(sizes, had, strict=True) if now > then)
        moved = sum(a != b for a, b in zip(before, after, strict=True))
        assert moved == (gained if members else SLOTS - before.count(NOBODY))
        assert slots.owner(0) == after[0]
        assert slots.owner(SLOTS - 1) == after[-1]
        before = after


def test_the_keys_of_one_partition_of_many_are_spread_too():
    slots = Slots()
    slots.spread([1, 2, 3])
    of_partition = [owner for slot, owner in enumerate(owners(slots)) if slot % 16 == 5]
    assert all(abs(of_partition.count(member) - 4_096 / 3) < 2 for member in (1, 2, 3))
    assert length(slots.ranges()[1]) in (21_845, 21_846)


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans())))
def test_a_key_hands_its_messages_out_from_the_oldest_to_the_newest(steps):
    key, waiting = Key(7, 1), set()
    for offset, is_head in steps:
        if offset not in waiting:
            key.add(offset)
            waiting.add(offset)
        else:
            gone = min(waiting) if is_head else offset
            key.remove(gone)
            waiting.remove(gone)
        assert len(key) == len(waiting)
        if waiting:
            assert key.head == min(waiting)
    for offset in sorted(waiting):
        assert key.head == offset
        key.remove(offset)
    assert not key
