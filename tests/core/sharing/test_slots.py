"""Slots are spread evenly, and only those move that have to."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from hocket.core.sharing.ranges import length
from hocket.core.sharing.slots import NOBODY, SLOTS, Slots

FREE = 255


def owners(slots: Slots) -> bytes:
    """The owner of each slot; a byte each, since there are many slots."""
    found = bytearray([FREE]) * SLOTS
    for owner, ranges in slots.ranges().items():
        for start, end in ranges:
            assert found.count(FREE, start, end) == end - start, "a slot with two owners"
            found[start:end] = bytes([owner]) * (end - start)
    return bytes(found)


def differing(a: bytes, b: bytes) -> int:
    """In how many places they differ."""
    both = int.from_bytes(a) ^ int.from_bytes(b)
    return SLOTS - both.to_bytes(SLOTS).count(0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(1, 9), unique=True, max_size=9), min_size=1, max_size=6))
def test_slots_are_spread_evenly_and_only_those_move_that_have_to(histories):
    slots = Slots()
    before = owners(slots)
    for consumers in histories:
        slots.spread(consumers)
        after = owners(slots)
        sizes = [after.count(consumer) for consumer in consumers]
        assert set(after) == set(consumers or [NOBODY])
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
        had = [before.count(consumer) for consumer in consumers]
        gained = sum(now - then for now, then in zip(sizes, had, strict=True) if now > then)
        moved = gained if consumers else SLOTS - before.count(NOBODY)
        assert differing(before, after) == moved
        assert slots.owner(0) == after[0]
        assert slots.owner(SLOTS - 1) == after[-1]
        before = after


def test_the_keys_of_one_partition_of_many_are_spread_too():
    slots = Slots()
    slots.spread([1, 2, 3])
    of_partition = [owner for slot, owner in enumerate(owners(slots)) if slot % 16 == 5]
    assert all(abs(of_partition.count(consumer) - 4_096 / 3) < 2 for consumer in (1, 2, 3))
    assert length(slots.ranges()[1]) in (21_845, 21_846)
