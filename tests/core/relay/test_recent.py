"""The recent batches against a list of all pieces that were ever added."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from hocket.core.relay.messages import Piece
from hocket.core.relay.recent import RecentBatches, fitting, follow, within

sizes = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 40)), min_size=1, max_size=60)


def pieces_from(start, shapes):
    pieces = []
    for records, size in shapes:
        pieces.append(Piece(start, start + records, bytes(size)))
        start += records
    return pieces


@given(start=st.integers(0, 100), shapes=sizes, bytes_max=st.integers(0, 200), data=st.data())
def test_it_keeps_the_newest_and_finds_every_offset(start, shapes, bytes_max, data):
    pieces = pieces_from(start, shapes)
    recent = RecentBatches(bytes_max)
    recent.reset(data.draw(st.integers(start, pieces[0].end - 1)))
    at = 0
    while at < len(pieces):
        count = data.draw(st.integers(1, 5))
        recent.add(pieces[at : at + count])
        at += count
        kept = min(at, len(pieces))
        while kept > 1 and sum(len(each.data) for each in pieces[:at][-kept:]) > bytes_max:
            kept -= 1
        held = pieces[:at][-kept:]
        assert len(recent) == kept
        assert (recent.start, recent.end) == (held[0].start, held[-1].end)
        assert recent.bytes == sum(len(each.data) for each in held)
        assert recent.bytes <= bytes_max or len(recent) == 1
        offset = data.draw(st.integers(recent.start, recent.end - 1))
        credit = data.draw(st.integers(0, 100))
        taken = recent.take(offset, credit)
        assert taken[0].start <= offset < taken[0].end
        assert list(taken) == held[held.index(taken[0]) :][: len(taken)]
        assert len(taken) == 1 or sum(len(each.data) for each in taken) <= credit


def test_many_pieces_fall_out_and_the_list_stays_short():
    recent = RecentBatches(30)
    for piece in pieces_from(0, [(1, 10)] * 2_000):
        recent.add([piece])
    assert (recent.start, recent.end, len(recent), recent.bytes) == (1_997, 2_000, 3, 30)
    assert len(recent._pieces) < 600


def test_only_what_follows_is_accepted():
    recent = RecentBatches(1_000)
    recent.reset(10)
    assert not recent.accepts([])
    assert not recent.accepts(pieces_from(11, [(2, 1)]))
    assert not recent.accepts(pieces_from(5, [(5, 1)]))
    assert recent.accepts(pieces_from(8, [(3, 1)])), "a batch is whole, so it may begin before"
    recent.add(pieces_from(8, [(3, 1)]))
    assert not recent.accepts(pieces_from(8, [(4, 1)])), "batches do not overlap"
    assert recent.accepts(pieces_from(11, [(1, 1), (2, 1)]))
    with pytest.raises(AssertionError):
        recent.add(pieces_from(12, [(1, 1)]))


def test_pieces_follow_on_each_other():
    first, second, third = pieces_from(0, [(2, 1), (2, 1), (2, 1)])
    assert follow([first, second, third], 1)
    assert not follow([first, third], 1), "a gap"
    assert not follow([first, first], 1), "twice"
    assert not follow([first, Piece(2, 2, b"")], 1), "nothing in it"
    assert not follow([second], 1)
    assert not follow([], 0)


def test_what_is_past_the_end_is_not_within():
    pieces = pieces_from(0, [(2, 1), (2, 1), (2, 1)])
    assert within(pieces, 4) == tuple(pieces[:2])
    assert within(pieces, 5) == tuple(pieces[:2])


@pytest.mark.parametrize(("credit", "count"), [(0, 1), (9, 1), (10, 1), (19, 1), (20, 2), (99, 3)])
def test_as_much_as_the_credit_is_good_for(credit, count):
    pieces = pieces_from(0, [(1, 10)] * 3)
    assert len(fitting(pieces, credit)) == count
