"""A key keeps its messages in order, however they leave and come back."""

from __future__ import annotations

from hypothesis import given, strategies as st

from hocket.core.sharing.keys import Key, KeyOrder
from hocket.core.sharing.maps import Maps


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


def test_what_is_settled_when_it_is_scanned_waits_for_nobody():
    order = KeyOrder(Maps(0, b"\1\0\1\0", bytes(4)))
    order.spread([1])
    assert order.scan(0, [7, 7, 8, 9])
    assert order.take(1, 4) == [(1, 2), (3, 4)]
