"""What is remembered of a shared index: changes, merged or not, logged, and the state they make."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from hocket.core.sharing.ranges import clipped, deltas, equal_runs, gaps, merged, rows_of
from hocket.core.sharing.state import (
    DOUBT,
    HELD,
    HOLDERS_MAX,
    MARK,
    SUSPECT,
    ShareChange,
    ShareSettings,
    ShareState,
    Unit,
)
from tests.support.threads import LONG

offsets = st.integers(0, 60)
ranges = st.tuples(offsets, st.integers(1, 9)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def members(some) -> set[int]:
    return {offset for start, end in some for offset in range(start, end)}


def through_the_log(change: ShareChange) -> ShareChange:
    return ShareChange.decode(json.loads(json.dumps(change.encode())))


# --- ranges --------------------------------------------------------------------------------------


@given(st.lists(ranges))
def test_merged_ranges_are_the_same_offsets_in_order_and_apart(some):
    result = merged(some)
    assert members(result) == members(some)
    assert all(first[1] < second[0] for first, second in pairwise(result))


@given(st.lists(ranges), offsets, offsets)
def test_what_is_clipped_and_the_gaps_make_the_whole(some, low, length):
    some, high = merged(some), low + length
    inside = clipped(some, low, high)
    assert members(inside) == members(some) & set(range(low, high))
    assert members(gaps(inside, low, high)) == set(range(low, high)) - members(some)


@given(st.binary(min_size=1, max_size=30), st.data())
def test_equal_runs_are_the_bytes(data, draw):
    start = draw.draw(st.integers(0, len(data) - 1))
    end = draw.draw(st.integers(start + 1, len(data)))
    runs = list(equal_runs(data, start, end))
    assert b"".join(bytes([value]) * (high - low) for low, high, value in runs) == data[start:end]
    assert all(a[2] != b[2] for a, b in pairwise(runs))


@given(st.lists(st.tuples(offsets, offsets, st.integers(0, 9))))
def test_rows_come_back_from_their_differences(rows):
    assert rows_of(deltas(rows), 3) == rows


# --- changes -------------------------------------------------------------------------------------

changes = st.builds(
    ShareChange,
    settled=st.lists(ranges, max_size=3),
    settings=st.none() | st.builds(ShareSettings, st.integers(1, 9), st.integers(1, 9)),
    reset=st.none() | st.none() | st.none() | offsets,
    clean=st.booleans(),
    lent=st.lists(ranges, max_size=2),
)


def with_details(drawn: list[tuple[ShareChange, list, list, list]]) -> list[ShareChange]:
    """Counts and deaths only of messages that are not settled, as the ledger has it; each dies
    once, and settled ones are not settled again, but that they were revived."""
    settled: set[int] = set(range(3))
    dying: set[int] = set()
    for number, (change, counts, deaths, revived, rests) in enumerate(drawn, 1):
        if change.reset is not None:
            settled, dying = set(range(change.reset)), set()
        back = members(revived) & settled
        if back:
            change.revived = merged((offset, offset + 1) for offset in back)
            change.revived_to, change.revivals = {7 + number % 2: number}, number
            settled, dying = settled - back, dying - back
        fresh = {(s, e, n) for s, e, n in counts if not members([(s, e)]) & (settled | dying)}
        change.counts = sorted(fresh)
        change.holders = [
            (s, e, b"%d" % (n % 3)) for s, e, n in change.counts if n // MARK & (HELD | DOUBT)
        ]
        change.rests = [each for each in rests if not members([each[:2]]) & (settled | dying)]
        for start, end, n in deaths:
            if not members([(start, end)]) & (settled | dying):
                change.dying.append(Unit(start, end, n, "poison", number % 3))
                dying |= members([(start, end)])
        settled |= members(change.settled)
    return [change for change, *_ in drawn]


rows = st.lists(
    st.tuples(ranges, st.integers(1, 5)).map(lambda pair: (*pair[0], pair[1])), max_size=3
)
marks = st.sampled_from([0, 0, HELD, DOUBT, SUSPECT, HELD | SUSPECT, DOUBT | SUSPECT])
marked = st.lists(
    st.tuples(ranges, st.integers(1, 5), marks).map(lambda row: (*row[0], row[1] + MARK * row[2])),
    max_size=3,
)
some_revived = st.just([]) | st.lists(ranges, max_size=2)
histories = st.lists(st.tuples(changes, marked, rows, some_revived, rows), max_size=6).map(
    with_details
)


def resting(state: ShareState) -> dict[int, int]:
    return {offset: until for s, e, until in state.rests() for offset in range(s, e)}


def held(state: ShareState) -> dict[int, bytes]:
    return {offset: who for s, e, who in state.holders() for offset in range(s, e)}


def all_of(state: ShareState) -> object:
    done, counts = state.maps()
    kept = bytes(0 if flag else count for flag, count in zip(done, counts, strict=True))
    marks = bytes(0 if flag else mark for flag, mark in zip(done, state.marks(), strict=True))
    return (
        state.start, done.rstrip(b"\0"), kept.rstrip(b"\0"), state.settings, state.clean,
        state.lent, state.dying, marks.rstrip(b"\0"), resting(state), state.revived_to,
        state.revivals, held(state),
    )  # fmt: skip


@settings(max_examples=2_000 if LONG else 30)
@given(histories)
def test_it_makes_no_difference_whether_changes_are_merged_logged_or_snapshotted(history):
    one_by_one, at_once, logged = ShareState(3), ShareState(3), ShareState(3)
    whole = ShareChange(clean=True)
    for change in history:
        one_by_one.apply(change)
        logged.apply(through_the_log(change))
        logged = ShareState.restore(json.loads(json.dumps(logged.snapshot())))
        whole.merge(through_the_log(change))
    at_once.apply(through_the_log(whole))
    assert all_of(one_by_one) == all_of(at_once) == all_of(logged)


@settings(max_examples=2_000 if LONG else 30)
@given(histories, st.lists(offsets, max_size=6))
def test_the_state_is_what_sets_and_dicts_say(history, log_starts):
    state, settled, counts, dying, rests = ShareState(3), set(range(3)), {}, {}, {}
    gone = 0
    for change, log_start in zip(history, [*log_starts, *[0] * 6], strict=False):
        if change.reset is not None:
            settled, counts, dying, rests = set(range(change.reset)), {}, {}, {}
        for offset in members(change.revived):
            settled.discard(offset)
            counts.pop(offset, None)
            dying.pop(offset, None)
            rests.pop(offset, None)
        for start, end, count in change.counts:
            counts |= dict.fromkeys(range(start, end), count)
        for start, end, count, reason, _ in change.dying:
            dying |= dict.fromkeys(range(start, end), (count, reason))
        for start, end, until in change.rests:
            rests |= dict.fromkeys(range(start, end), until)
        settled |= members(change.settled)
        state.apply(change)
        gone = max(gone, log_start)
        settled |= set(range(gone))
        state.log_start_moved(gone)
        start = next(offset for offset in range(1_000) if offset not in settled)
        done, kept = state.maps()
        assert state.start == start
        assert {start + at for at, flag in enumerate(done) if flag} == {
            offset for offset in settled if offset > start
        }
        assert state.ahead() == sum(offset > start for offset in settled)
        for at, count in enumerate(kept):
            if start + at not in settled:
                assert count + MARK * state.marks()[at] == counts.get(start + at, 0)
        assert resting(state) == {at: until for at, until in rests.items() if at not in settled}
        assert state.dying == sorted(state.dying)
        assert {
            offset: (unit.deliveries, unit.reason)
            for unit in state.dying
            for offset in range(unit.start, unit.end)
        } == {offset: why for offset, why in dying.items() if offset not in settled}


def test_an_empty_change_says_nothing_but_that_the_state_is_no_longer_clean():
    assert ShareChange().encode() == {}
    state = ShareState(5)
    state.apply(ShareChange(clean=True, lent=[(7, 9)]))
    assert (state.clean, state.lent) == (True, [(7, 9)])
    state.apply(ShareChange())
    assert (state.clean, state.lent) == (False, [])


def test_what_comes_too_late_for_the_log_start_changes_nothing():
    state = ShareState(10)
    late = ShareChange(counts=[(5, 12, 2), (3, 6, 4)], dying=[(1, 9, 5, "x"), (9, 11, 5, "y")])
    late.merge(ShareChange(settled=[(4, 8)], settings=ShareSettings(7)))
    state.apply(late)
    assert state.maps() == (b"\0\0", b"\2\2")
    assert (state.start, state.dying, state.settings.lease_us) == (10, [Unit(10, 11, 5, "y")], 7)


def test_of_merged_changes_only_what_follows_the_last_reset_counts():
    whole = ShareChange(settled=[(1, 2)], counts=[(3, 4, 1)], dying=[(5, 6, 1, "x")], clean=True)
    whole.merge(ShareChange(reset=9, settled=[(10, 11)]))
    assert whole == ShareChange(settled=[(10, 11)], reset=9)


def test_a_change_that_revives_speaks_of_nothing_before_the_start():
    change = ShareChange(settled=[(2, 4), (7, 8)], revived=[(2, 3)])
    assert change.first == 3
    assert ShareChange(settled=[(2, 3)], revived=[(2, 3)]).first == 1 << 64


def test_a_second_death_is_told_from_the_first():
    first = ShareChange(dying=[Unit(0, 1, 5, "x")])
    assert first.encode() == {"dying": [[0, 1, 5, "x"]]}
    second = ShareChange(dying=[Unit(0, 1, 5, "x", 2)])
    assert second.encode() == {"dying": [[0, 1, 5, "x", 2]]}
    assert through_the_log(second) == second


def test_what_was_said_of_a_message_before_it_was_revived_is_void():
    whole = ShareChange(settled=[(0, 6)], counts=[(0, 3, 1), (8, 9, 2)], dying=[(2, 5, 5, "x")])
    whole.merge(ShareChange(revived=[(2, 4)], revived_to={9: 7}, revivals=1, settled=[(3, 4)]))
    assert whole == ShareChange(
        settled=[(0, 2), (4, 6), (3, 4)], counts=[(0, 2, 1), (8, 9, 2)],
        dying=[Unit(4, 5, 5, "x")], revived=[(2, 4)], revived_to={9: 7}, revivals=1,
    )  # fmt: skip


def test_a_thousand_acks_make_a_small_entry():
    in_order = ShareChange(settled=[(offset, offset + 1) for offset in range(1_000_000, 1_001_000)])
    assert in_order.encode() == {"settled": [1_000_000, 1_000]}
    every_other = ShareChange(settled=[(offset, offset + 1) for offset in range(0, 2_000, 2)])
    assert len(json.dumps(every_other.encode(), separators=(",", ":"))) < 4_100


def test_a_log_that_begins_far_behind_costs_nothing():
    state = ShareState(0)
    state.apply(ShareChange(settled=[(3, 5)], dying=[(7, 9, 5, "poison")]))
    state.log_start_moved(8)
    assert (state.start, state.dying) == (8, [Unit(8, 9, 5, "poison")])
    state.log_start_moved(10**15)
    assert (state.start, state.maps(), state.dying) == (10**15, (b"", b""), [])


def test_a_dead_message_amid_others_leaves_them_dying():
    state = ShareState(0)
    state.apply(ShareChange(dying=[(2, 8, 5, "poison"), (10, 12, 1, "other")]))
    state.apply(ShareChange(settled=[(4, 5), (11, 20)]))
    assert state.dying == [
        Unit(2, 4, 5, "poison"), Unit(5, 8, 5, "poison"), Unit(10, 11, 1, "other"),
    ]  # fmt: skip


@pytest.mark.parametrize("reset", [0, 4, 90])
def test_an_index_that_is_put_elsewhere_keeps_its_settings_and_nothing_else(reset):
    state = ShareState(3, ShareSettings(1, 2, "fast"))
    state.apply(ShareChange(settled=[(5, 7)], counts=[(3, 4, 2)], dying=[(8, 9, 2, "x")]))
    state.apply(ShareChange(reset=reset))
    assert all_of(state) == (
        reset, b"", b"", ShareSettings(1, 2, "fast"), False, [], [], b"", {}, {}, 0, {},
    )  # fmt: skip


def test_who_was_given_a_message_is_known_until_it_is_with_nobody():
    state = ShareState(0)
    state.apply(ShareChange(counts=[(0, 9, 1 + MARK * DOUBT)], holders=[(0, 9, b"ada")]))
    state.apply(ShareChange(settled=[(0, 2)], counts=[(2, 3, 1 + MARK * HELD), (4, 5, 0)]))
    state.apply(ShareChange(counts=[(6, 7, 2 + MARK * HELD)], holders=[(6, 7, b"bob")]))
    assert state.holders() == [
        (2, 4, b"ada"), (5, 6, b"ada"), (6, 7, b"bob"), (7, 9, b"ada"),
    ]  # fmt: skip
    state.apply(ShareChange(reset=5))
    assert state.holders() == []


def test_of_all_leases_that_ever_were_those_of_now_are_kept():
    state = ShareState(0)
    for offset in range(5 * HOLDERS_MAX):
        rows = [(offset, offset + 2)]
        state.apply(ShareChange(counts=[(*rows[0], 1 + MARK * HELD)], holders=[(*rows[0], b"ada")]))
        state.apply(ShareChange(settled=[(offset, offset + 1)]))
        assert len(state._holders) <= HOLDERS_MAX + 1
    assert state.holders() == [(offset + 1, offset + 2, b"ada")]


def test_a_snapshot_of_a_million_messages_in_no_order_stays_small():
    state = ShareState(0)
    every_third = [(offset, offset + 1) for offset in range(1, 1_000_000, 3)]
    state.apply(ShareChange(settled=every_third))
    text = json.dumps(state.snapshot())
    assert len(text) < 100_000
    assert ShareState.restore(json.loads(text)).ahead() == len(every_third)


def test_messages_that_go_before_they_are_settled_are_lost():
    state = ShareState(0)
    state.apply(ShareChange(settled=[(1, 3), (5, 8)]))
    state.log_start_moved(6)  # of 0 to 5, three were settled
    assert state.lost == 3
    state.log_start_moved(4)
    assert state.lost == 3
    assert ShareState.restore(state.snapshot()).lost == 3
    state.log_start_moved(100)
    assert state.lost == 3 + 92
    state.apply(ShareChange(reset=50))
    assert (state.lost, ShareState.restore(state.snapshot()).lost) == (0, 0)


def test_a_broker_that_knows_no_marks_reads_the_counts():
    change = ShareChange(counts=[(0, 4, 1 + MARK * DOUBT), (0, 1, 1 + MARK * HELD), (9, 10, 3)])
    assert change.encode() == {"counts": [0, 4, 1, -4, 1, 1, 8, 1, 3], "marks": [2, 1, 1, 1, 0, 1]}
    assert through_the_log(change) == change
    assert ShareChange(counts=[(0, 4, 1)]).encode() == {"counts": [0, 4, 1]}


def test_what_was_stored_before_there_were_marks_has_none():
    state = ShareState(0)
    state.apply(ShareChange.decode({"counts": [0, 2, 3], "settled": [5, 1]}))
    assert state.marks() == bytes(6)
    taken = state.snapshot()
    assert "marks" not in taken
    assert ShareState.restore(taken).marks() == bytes(6)


def test_marks_move_with_their_messages_and_end_with_them():
    state = ShareState(0)
    state.apply(ShareChange(counts=[(0, 2, 1 + MARK * HELD), (2, 6, MARK * SUSPECT)]))
    state.apply(ShareChange(settled=[(0, 3), (4, 5)]))
    assert (state.start, state.marks()) == (3, bytes([SUSPECT, 0, SUSPECT]))
    state.log_start_moved(5)
    assert state.marks() == bytes([SUSPECT])


def test_a_broker_that_knows_no_rests_reads_the_rest():
    change = ShareChange(counts=[(3, 5, 1)], rests=[(3, 5, 7_000)])
    assert change.encode() == {"counts": [3, 2, 1], "rests": [3, 2, 7_000]}
    assert through_the_log(change) == change


def test_what_rests_among_ten_thousand_is_found_and_the_zeros_are_not():
    state = ShareState(5)
    rests = [(5_000, 5_002, 9), (10_004, 10_005, 8)]
    state.apply(ShareChange(counts=[(5, 10_005, 1)], rests=rests))
    assert state.rests() == rests
    state.apply(ShareChange(settled=[(5, 10_005)]))
    assert state.rests() == []
