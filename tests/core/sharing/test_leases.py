"""The leases of one partition of a shared index, where the model test does not go: limits, spans,
requests for messages of others, and what is too large to draw at random."""

from __future__ import annotations

import pytest

from hocket.core.sharing import ledger as share_ledger
from hocket.core.sharing.leases import GRACE_US, Leases
from hocket.core.sharing.state import HELD, MARK, SUSPECT, ShareChange, ShareSettings, ShareState

ADA, BOB = 1, 2
LEASE_US = 30_000_000


def opened(end: int = 10, *changes: ShareChange, start: int = 0, **options) -> Leases:
    state = ShareState(start)
    for change in changes:
        state.apply(change)
    return Leases(state, end=end, now_us=0, **options)


def leased(leases: Leases, count: int, consumer: int = ADA, now_us: int = 0) -> list:
    return leases.lease(leases.reserve(consumer, count), now_us, identity=b"%d" % consumer)


def changed(leases: Leases) -> dict:
    change = leases.take_change()
    return {} if change is None else change.encode()


# --- what may be leased --------------------------------------------------------------------------


def test_no_more_is_in_flight_than_may_be():
    leases = opened(100, in_flight_max=7)
    assert leased(leases, 50) == [(0, 7, 1)]
    assert leases.available() == 0
    assert leases.reserve(BOB, 1) == []
    leases.settle(ADA, "ack", [(3, 5)], now_us=0)
    assert leased(leases, 50, BOB) == [(7, 9, 1)]


def test_a_full_window_moves_again_when_its_oldest_message_is_settled():
    leases = opened(1_000, span_max=10)
    assert leased(leases, 50) == [(0, 10, 1)]
    leases.settle(ADA, "ack", [(1, 10)], now_us=0)
    assert leases.available() == 0, "the oldest message holds everything up"
    leases.settle(ADA, "nack", [(0, 1)], now_us=0)
    assert leased(leases, 50, BOB) == [(0, 1, 2)]
    leases.settle(BOB, "ack", [(0, 1)], now_us=0)
    assert (leases.start, leases.available()) == (10, 10)


def test_messages_far_apart_are_not_read_together():
    leases = opened(5_000)
    leased(leases, 5_000)
    leases.settle(ADA, "nack", [(0, 1), (2_000, 2_001), (4_001, 4_002)], now_us=0)
    assert leases.reserve(BOB, 10) == [(0, 1), (2_000, 2_001)]
    assert leases.reserve(BOB, 10) == [(4_001, 4_002)]


def test_a_backlog_of_any_size_costs_nothing_until_it_is_leased():
    leases = opened(10**12, ShareChange())
    assert leases.available() == 0, "all of it may be with consumers from before"
    assert leases.lent() == [(0, 10**12)]
    assert leases.pass_time(GRACE_US) == []
    assert leases.available() == leases._in_flight_max
    assert leased(leases, 3) == [(0, 3, 1)]
    leases.advanced(10**12 - 5, 10**12)
    assert (leases.start, leases.leased, leases.held_by(ADA)) == (10**12 - 5, 0, 0)
    assert leased(leases, 10) == [(10**12 - 5, 10**12, 1)]


def test_what_was_lent_beyond_the_span_stays_withheld_after_an_orderly_restart():
    first = opened(10**9, ShareChange(), span_max=100)
    state = ShareState(0)
    state.apply(ShareChange(clean=True, lent=first.lent()))
    second = Leases(state, end=10**9, now_us=0, span_max=100)
    assert (second.available(), second.lent()) == (0, [(0, 10**9)])
    second.pass_time(GRACE_US)
    assert second.available() == 100


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["ack", "nack", "extend", "reject", "release"])
def test_what_one_does_not_hold_is_refused_by_range_and_nothing_changes(action):
    leases = opened(100)
    leased(leases, 4)
    leased(leases, 2, BOB)
    leases.settle(ADA, "ack", [(0, 1)], now_us=0)
    leases.take_change()
    asked = [(0, 1), (4, 6), (6, 7), (500, 10**18)]
    assert leases.settle(ADA, action, asked, now_us=1, reason="x") == [
        (0, 1),
        (4, 7),
        (500, 10**18),
    ]
    assert changed(leases) == {}
    assert (leases.held_by(ADA), leases.held_by(BOB)) == (3, 2)


@pytest.mark.parametrize("action", ["ack", "nack", "extend", "reject", "release"])
def test_a_request_that_is_partly_refused_is_done_for_the_rest(action):
    leases = opened(100)
    leased(leases, 2)
    leased(leases, 2, BOB)
    leased(leases, 2)
    assert leases.settle(ADA, action, [(0, 10**18)], now_us=1) == [(2, 4), (6, 10**18)]
    assert leases.held_by(ADA) == (4 if action == "extend" else 0)
    assert leases.held_by(BOB) == 2


def test_twice_in_one_request_is_once_too_often():
    leases = opened()
    leased(leases, 5)
    assert leases.settle(ADA, "ack", [(1, 2), (1, 2), (0, 3)], now_us=0) == [(1, 2), (1, 2)]


def test_reasons_are_cut_and_the_dead_go_in_units():
    leases = opened(1_000)
    leased(leases, 250)
    leases.settle(ADA, "reject", [(0, 250)], now_us=0, reason="x" * 10_000)
    dying = changed(leases)["dying"]
    assert [unit[:3] for unit in dying] == [[0, 100, 1], [100, 200, 1], [200, 250, 1]]
    assert {len(unit[3]) for unit in dying} == {500}


def test_claims_do_not_exceed_what_may_be_in_flight():
    leases = opened(1_000, ShareChange(), in_flight_max=5)
    leases.welcome(ADA, b"%d" % ADA, None, [(2, 4), (10, 900)], now_us=0)
    assert leases.leased == 5
    leases.welcome(BOB, b"%d" % BOB, None, [(500, 510)], now_us=0)
    assert (leases.held_by(ADA), leases.held_by(BOB)) == (5, 0)


def test_a_suspect_that_is_claimed_with_others_is_one_still():
    leases = opened(5, ShareChange(counts=[(1, 2, 1 + MARK * SUSPECT)]))
    leases.welcome(ADA, b"%d" % ADA, None, [(0, 3)], now_us=0)
    leases.welcome(BOB, b"%d" % BOB, None, [(3, 5)], now_us=0)
    assert leases.suspects == 1
    assert (leases.has_suspect(ADA), leases.has_suspect(BOB)) == (True, False)
    leases.settle(ADA, "ack", [(1, 2)], now_us=0)
    assert not leases.has_suspect(ADA)


# --- counts --------------------------------------------------------------------------------------


def test_an_immortal_message_is_delivered_without_limit_and_its_count_stays_at_the_top():
    leases = opened(1, immortal=True)
    for _ in range(300):
        ((_, _, count),) = leased(leases, 1)
        leases.settle(ADA, "nack", [(0, 1)], now_us=0)
    assert count == 255
    assert opened(1, ShareChange(counts=[(0, 1, 255)]), immortal=True).available() == 0
    assert opened(1, ShareChange(counts=[(0, 1, 255)], clean=True), immortal=True).available() == 1


@pytest.mark.parametrize(
    "change",
    [ShareChange(settings=ShareSettings(failover="fast")), ShareChange(clean=True)],
    ids=["fast", "clean"],
)
def test_what_was_delivered_often_enough_before_a_restart_is_not_delivered_again(change):
    change.counts = [(2, 4, 5), (6, 7, 4), (8, 9, 7)]
    leases = opened(10, change)
    assert changed(leases) == {
        "dying": [
            [2, 4, 5, "5 deliveries, the last one not acknowledged before the broker restarted"],
            [8, 9, 7, "7 deliveries, the last one not acknowledged before the broker restarted"],
        ]
    }
    assert leases.available() == 7


def test_a_message_that_rests_while_the_limit_is_lowered_dies_when_it_wakes():
    leases = opened(1)
    for delay_us in (0, 10):
        leased(leases, 1)
        leases.settle(ADA, "nack", [(0, 1)], now_us=0, duration_us=delay_us)
    leases.settings = ShareSettings(max_deliveries=2)
    leases.take_change()
    leases.pass_time(10)
    assert changed(leases)["dying"] == [
        [0, 1, 2, "2 deliveries, the last one refused by its consumer"]
    ]


@pytest.mark.parametrize("failover", ["safe", "fast"])
def test_the_delay_of_a_nack_outlives_the_broker(failover):
    before = opened(3)
    leased(before, 3)
    before.settle(ADA, "ack", [(0, 1)], now_us=100)
    before.settle(ADA, "nack", [(1, 2)], now_us=100, duration_us=10 * GRACE_US)
    before.settle(ADA, "nack", [(2, 3)], now_us=100, duration_us=1)
    state = ShareState(0, ShareSettings(failover=failover))
    state.apply(before.take_change())
    state = ShareState.restore(state.snapshot())
    after = Leases(state, end=3, now_us=200)
    after.pass_time(200 + GRACE_US)
    assert after.reserve(BOB, 3) == [(2, 3)], "of this one the delay is over"
    after.pass_time(99 + 10 * GRACE_US)
    assert after.available() == 0
    after.pass_time(100 + 10 * GRACE_US)
    assert leased(after, 3, BOB) == [(1, 2, 2)]


@pytest.mark.parametrize("restarts", ["in good order", "killed"])
def test_an_entry_of_an_older_broker_that_names_no_holder_is_understood(restarts):
    entry = {"counts": [0, 3, 1], "marks": [HELD, 1]}
    if restarts == "in good order":
        entry |= {"clean": True, "lent": [0, 3]}
    leases = opened(3, ShareChange.decode(entry))
    leases.welcome(ADA, b"ada", None, [(0, 1)], now_us=0)
    assert (leases.leased, leases.available()) == (1, 0), "whose the others are nobody knows"
    leases.pass_time(GRACE_US)
    assert leases.suspects == 2


def test_what_a_consumer_claims_and_cannot_have_yet_is_not_taken_from_it():
    held = ShareChange(counts=[(0, 4, 1 + MARK * HELD)], holders=[(0, 4, b"ada")])
    leases = opened(4, held, in_flight_max=2)
    leases.welcome(ADA, b"ada", None, [(0, 3)], now_us=0)
    assert leases.leased_by(ADA) == [(0, 2)]
    leases.settle(ADA, "ack", [(0, 2)], now_us=0)
    assert leases.reserve(BOB, 2) == [(3, 4)], "it did not name this one, and may have the third"


def test_a_message_that_dies_by_a_nack_does_not_rest():
    leases = opened(2, ShareChange(settings=ShareSettings(max_deliveries=1), clean=True))
    leased(leases, 1)
    leases.settle(ADA, "nack", [(0, 1)], now_us=0, duration_us=9)
    assert "rests" not in changed(leases)


# --- time ----------------------------------------------------------------------------------------


def test_extending_over_and_over_does_not_pile_up_timers(monkeypatch):
    monkeypatch.setattr(share_ledger, "TIMERS_MAX", 100)
    leases = opened(50)
    leased(leases, 50)
    for now in range(10_000):
        leases.settle(ADA, "extend", [(now % 50, now % 50 + 1)], now_us=now)
    assert len(leases._timers) < 500
    assert leases.pass_time(10_000 - 51 + LEASE_US) == []
    assert len(leases.pass_time(10_000 + LEASE_US)) == 50


def test_a_lease_ends_at_its_deadline_and_not_before():
    leases = opened(2)
    leased(leases, 2, now_us=7)
    leases.settle(ADA, "extend", [(1, 2)], now_us=9, duration_us=5)
    assert leases.pass_time(13) == []
    assert leases.pass_time(14) == [(ADA, 14)]
    assert leases.pass_time(7 + LEASE_US - 1) == []
    assert leases.pass_time(7 + LEASE_US) == [(ADA, 7 + LEASE_US)]


def test_a_vanished_consumer_keeps_what_it_has_for_a_little_while_but_never_longer_than_leased():
    leases = opened(2)
    leased(leases, 2)
    leases.settle(ADA, "extend", [(1, 2)], now_us=0, duration_us=5)
    leases.vanish(ADA, now_us=1)
    assert leases.pass_time(5) == [(ADA, 5)]
    assert leases.pass_time(GRACE_US) == []
    assert leases.pass_time(1 + GRACE_US) == [(ADA, 1 + GRACE_US)]


# --- keys ----------------------------------------------------------------------------------------


def keyed(hashes: list[int], *changes: ShareChange, consumers=(ADA, BOB)) -> Leases:
    leases = opened(len(hashes), *changes)
    leases.order_keys()
    leases.spread(list(consumers))
    assert leases.scan(0, hashes)
    return leases


def test_a_key_that_waits_makes_the_scan_go_further_than_usual():
    """One key is stuck in front of all others, which lie further ahead than is looked usually."""
    leases = opened(50_000)
    leases.order_keys()
    leases.spread([ADA])
    assert leases.scan_wanted() == (0, 20_000)
    assert leases.scan(0, [7] * 20_000)
    leased(leases, 20_000)
    leases.settle(ADA, "nack", [(0, 20_000)], now_us=0, duration_us=1_000)
    assert leases.available() == 0
    assert leases.scan_wanted() == (20_000, 25_000)
    assert leases.scan(20_000, [7] * 4_000 + [8] * 1_000)
    assert leases.available() == 1_000
    assert leases.scan_wanted() is None
    assert leased(leases, 1) == [(24_000, 24_001, 1)]
    assert leases.scan_wanted() == (25_000, 30_000)


def test_what_a_scan_brings_twice_or_too_much_of_does_no_harm():
    leases = opened(6)
    leases.order_keys()
    leases.spread([ADA])
    assert not leases.scan(2, [1, 2]), "there is a gap before it"
    assert not leases.scan(0, [])
    assert leases.scan(0, [1, 2, 3])
    assert not leases.scan(0, [1, 2])
    assert leases.scan(1, [2, 3, 4, 5, 6, 7, 8, 9])
    assert leased(leases, 10) == [(0, 6, 1)]


def test_messages_of_a_key_come_back_in_order_though_they_end_in_none():
    leases = keyed([7] * 6, consumers=[ADA])
    leased(leases, 6)
    for offset in (4, 1, 5, 0, 3):
        leases.settle(ADA, "release", [(offset, offset + 1)], now_us=0)
    leases.settle(ADA, "ack", [(2, 3)], now_us=0)
    assert leases.reserve(ADA, 10) == [(0, 2), (3, 6)]


def test_a_dead_message_blocks_its_key_until_it_is_buried():
    leases = keyed([7, 8, 7], consumers=[ADA])
    leased(leases, 1)
    leases.settle(ADA, "reject", [(0, 1)], now_us=0, reason="x")
    assert leased(leases, 5) == [(1, 2, 1)]
    leases.dead_lettered(0, 1)
    assert leased(leases, 5) == [(2, 3, 1)]


def test_whoever_has_no_slot_still_gets_what_has_no_key():
    leases = keyed([7, 0, 7, 0], consumers=[ADA])
    assert leases.reserve(BOB, 5) == [(1, 2), (3, 4)]
    assert leases.reserve(ADA, 5) == [(0, 1), (2, 3)]


def test_without_consumers_nothing_is_scanned():
    leases = opened(5)
    assert leases.scan_wanted() is None, "it has no keys to know"
    leases.order_keys()
    assert leases.scan_wanted() is None
    leases.spread([ADA])
    assert leases.scan_wanted() == (0, 5)


def test_a_message_that_is_claimed_after_its_key_was_read_takes_its_key_with_it():
    leases = opened(4, ShareChange())  # after a crash: all of it is withheld
    leases.order_keys()
    leases.spread([ADA])
    assert leases.scan(0, [7, 7, 8, 0])
    leases.welcome(ADA, b"%d" % ADA, None, [(0, 1)], 0)
    leases.pass_time(GRACE_US)
    assert leases.reserve(ADA, 10) == [(1, 4)]
    leases.spread([BOB])
    leases.give_back([(1, 4)])
    assert leases.reserve(BOB, 10) == [(2, 4)], "the other key, and what has none"


# --- what is said again --------------------------------------------------------------------------


def test_what_a_first_telling_has_settled_is_not_refused_when_it_is_said_again():
    leases = opened(10)
    leased(leases, 6)
    leases.settle(ADA, "ack", [(0, 2), (3, 4)], now_us=0)
    leases.settle(ADA, "reject", [(4, 5)], now_us=0, reason="bad")
    changed(leases)
    everything = [(0, 10)]
    assert leases.settle(BOB, "ack", everything, now_us=0) == everything, "nothing is held"
    assert changed(leases) == {}
    again = {"now_us": 0, "again": True, "lost": []}  # it is Ada, under a new number
    assert leases.settle(BOB, "ack", everything, **again) == [(2, 3), (4, 10)]
    assert changed(leases) == {"settled": [0, 2, 1, 1]}, "so that the answer waits for the log"
    assert leases.settle(BOB, "reject", everything, **again) == [(2, 3), (5, 10)]
    assert changed(leases) == {"settled": [0, 2, 1, 1], "counts": [4, 1, 1], "marks": [1, 1]}
    for action in ("nack", "extend", "release"):
        assert leases.settle(BOB, action, everything, **again) == everything
    assert changed(leases) == {}


def test_what_another_consumer_has_settled_is_refused():
    leases = opened(10)
    leased(leases, 6)
    leases.settle(ADA, "ack", [(0, 3)], now_us=0)
    again = {"now_us": 0, "again": True}
    assert leases.settle(BOB, "ack", [(0, 3)], lost=[(1, 2)], **again) == [(1, 2)]
    assert leases.settle(BOB, "ack", [(0, 3)], lost=None, **again) == [(0, 3)]


def test_after_a_restart_only_what_was_settled_before_it_can_hold():
    before = ShareChange(settled=[(0, 2), (4, 6)])
    leases = opened(10, before)
    leases.welcome(ADA, b"%d" % ADA, None, [(2, 4)], 0)
    leases.settle(ADA, "ack", [(2, 3)], now_us=0)
    again = {"now_us": 0, "again": True, "lost": None}
    assert leases.settle(BOB, "ack", [(0, 10)], **again) == [(2, 4), (6, 10)]
    assert leases.settle(BOB, "ack", [(1, 2), (3, 5)], **again) == [(3, 4)]
    leases.reset(8)  # what lies before it is behind this index, for everybody
    assert leases.settle(BOB, "ack", [(0, 10)], **again) == [(8, 10)]


def test_a_reject_that_was_said_before_a_restart_holds_when_the_message_is_in_the_dead_letters():
    dying = ShareChange(dying=[(0, 2, 1, "no", 0)], counts=[(0, 2, 1)])
    leases = opened(4, dying)
    leases.dead_lettered(0, 1)
    changed(leases)
    for action, refused in (("ack", [(0, 3)]), ("reject", [(2, 3)])):
        assert leases.settle(ADA, action, [(0, 3)], now_us=0, again=True) == refused
    change = leases.take_change()
    assert change is not None
    assert change.settled == [(0, 1)], "the other one is on its way still"
    leases.dead_lettered(1, 2)
    leases.revive([(1, 0)], 7)
    assert leases.settle(ADA, "reject", [(0, 2)], now_us=0, again=True) == [(1, 2)]


def test_what_was_revived_is_not_settled_by_what_was_said_before_a_restart():
    again = {"now_us": 0, "again": True, "lost": None}
    leases = opened(10, ShareChange(settled=[(0, 5), (6, 8)]), in_flight_max=0)
    assert leases.revive([(2, 0), (7, 1), (5, 2)], 9) == [(2, 3), (7, 8)]
    changed(leases)
    assert leases.settle(BOB, "ack", [(0, 10)], **again) == [(2, 3), (5, 6), (7, 10)]
    assert changed(leases) == {"settled": [0, 2, 1, 2, 1, 1]}


def test_what_was_revived_is_as_if_it_had_never_been_delivered():
    leases = opened(10, ShareChange(settled=[(0, 5)], clean=True))
    leased(leases, 3)
    leases.settle(ADA, "ack", [(6, 7)], now_us=0)
    assert leases.revive([(6, 0), (1, 1)], 9) == [(1, 2), (6, 7)]
    assert leased(leases, 10, BOB) == [(1, 2, 1), (6, 7, 1), (8, 10, 1)]
    assert leases.revive([(9, 2)], 9) == [], "it is not settled"


def test_what_lies_too_far_back_cannot_be_revived():
    leases = opened(100, span_max=10)
    leased(leases, 10)
    leases.settle(ADA, "ack", [(0, 10)], now_us=0)
    leased(leases, 5)
    assert [leases.reaches(offset) for offset in (4, 5, 9)] == [False, True, True]


def test_only_what_dies_is_dying():
    leases = opened(10)
    leased(leases, 3)
    leases.settle(ADA, "reject", [(1, 2)], now_us=0)
    assert [leases.is_dying(offset) for offset in (0, 1, 2, 9)] == [False, True, False, False]
    leases.settle(ADA, "ack", [(0, 1)], now_us=0)
    assert not leases.is_dying(0)


def test_what_is_said_again_is_done_where_it_was_not_heard():
    leases = opened(10)
    leased(leases, 3)
    leases.settle(ADA, "ack", [(0, 1)], now_us=0)
    changed(leases)
    assert leases.settle(ADA, "ack", [(0, 3)], now_us=0, again=True, lost=[]) == []
    assert leases.start == 3
    assert changed(leases) == {"settled": [0, 3]}
