"""How far the messages of a partition may be leased that several nodes keep."""

from __future__ import annotations

from hocket.core.sharing import events as ev
from hocket.core.sharing.before import Before
from hocket.core.sharing.dispatcher import Dispatcher
from hocket.core.sharing.keys import LOOKAHEAD
from hocket.core.sharing.leases import GRACE_US, Leases
from hocket.core.sharing.reservation import RUN, RUN_MAX, Reservation
from hocket.core.sharing.state import HELD, MARK, ShareChange, ShareSettings, ShareState

LEASE_US = 10_000_000
SETTINGS = ShareSettings(LEASE_US)


def led(state: ShareState | None = None, *, end: int = 5_000, now_us: int = 0) -> Leases:
    """The leases of a partition that this node leads since time 0."""
    return Leases(state or ShareState(0, SETTINGS), end=end, now_us=now_us, alone_us=0)


def fetched(sharing: Dispatcher, effects: list[ev.Effect], now_us: int = 0) -> list[ev.Effect]:
    """Answer all reads; returns all that followed."""
    found = []
    todo = list(effects)
    while todo:
        effect = todo.pop(0)
        found.append(effect)
        if isinstance(effect, ev.Fetch):
            todo += sharing.step(ev.Fetched(effect.fetch, effect.end, 10, now_us))
        elif isinstance(effect, ev.Scan):
            hashes = range(effect.start + 1, effect.end + 1)
            todo += sharing.step(ev.Scanned(effect.partition, effect.start, hashes))
    return found


def joined(mode: str = "shared", *, messages: int = 20, end: int = 5_000) -> Dispatcher:
    sharing = Dispatcher(mode)
    sharing.step(ev.PartitionAdded(0, led(end=end)))
    effects = sharing.step(ev.Joined(1, b"a" * 16, (0,), 1 << 20, messages, [], 0))
    assert effects == [ev.Reserve(0, RUN)]
    return sharing


def sent(effects: list[ev.Effect]) -> list[tuple[int, int]]:
    return [
        (start, end) for e in effects if isinstance(e, ev.Send) for start, end, _ in e.ranges
    ]  # fmt: skip


def reserved(effects: list[ev.Effect]) -> list[int]:
    return [effect.high for effect in effects if isinstance(effect, ev.Reserve)]


# --- reserving -----------------------------------------------------------------------------------


def test_nothing_is_leased_before_it_is_reserved():
    sharing = joined()
    assert sharing.step(ev.Advanced(0, 0, 6_000)) == []
    assert sent(fetched(sharing, sharing.step(ev.Reserved(0, RUN)))) == [(0, 20)]


def test_the_next_run_is_asked_for_when_half_of_it_is_used():
    sharing = joined(messages=RUN + 1)
    effects = fetched(sharing, sharing.step(ev.Reserved(0, RUN)))
    assert sent(effects) == [(0, RUN)]
    assert reserved(effects) == [3 * RUN]  # it was used up at once, so the run is doubled
    for end, high in ((RUN // 2, []), (RUN // 2 + 1, [RUN // 2 + 1 + RUN])):
        sharing = joined(messages=RUN, end=end)
        effects = fetched(sharing, sharing.step(ev.Reserved(0, RUN)))
        assert sent(effects) == [(0, end)]
        assert reserved(effects) == high


def test_messages_that_are_yet_to_come_are_reserved_ahead():
    sharing = joined(end=0)
    sharing.step(ev.Reserved(0, RUN))
    effects = fetched(sharing, sharing.step(ev.Advanced(0, 0, 1)))
    assert sent(effects) == [(0, 1)]
    assert reserved(effects) == []


def test_what_cannot_be_logged_is_asked_for_after_the_next_tick():
    sharing = joined()
    assert sharing.step(ev.Reserved(0, 0)) == []
    assert sharing.step(ev.Advanced(0, 0, 6_000)) == []
    assert reserved(sharing.step(ev.Tick(1))) == [RUN]


def test_a_run_grows_up_to_its_bound():
    reservation = Reservation(0)
    high = 0
    for _ in range(10):
        high = reservation.ask(high, starved=True)
        reservation.answered(high)
    assert reservation.run == RUN_MAX
    assert reservation.ask(0, starved=True) == 0


def test_what_is_in_flight_bounds_what_is_reserved():
    sharing = Dispatcher("shared")
    leases = Leases(ShareState(0, SETTINGS), end=9, now_us=0, alone_us=0, in_flight_max=2)
    sharing.step(ev.PartitionAdded(0, leases))
    sharing.step(ev.Joined(1, b"a" * 16, (0,), 1 << 20, 5, [], 0))
    effects = fetched(sharing, sharing.step(ev.Reserved(0, 2)))
    assert sent(effects) == [(0, 2)]
    assert reserved(effects) == []


def test_keys_are_read_as_far_as_is_reserved():
    sharing = joined("key_shared")
    effects = fetched(sharing, sharing.step(ev.Reserved(0, RUN)))
    assert next(e.end for e in effects if isinstance(e, ev.Scan)) == RUN
    assert sent(effects) == [(0, 20)]
    leases = sharing._leases[0]
    assert leases.available() == RUN - 20
    assert leases.reservation_wanted() == 0  # enough can be leased
    assert leases.reservation is not None
    leases.reservation.run = 4 * RUN
    assert leases.reservation_wanted() == 5 * RUN


def test_keys_that_are_withheld_are_not_read_without_end():
    state = ShareState(0, SETTINGS)
    state.apply(ShareChange(high=LOOKAHEAD))
    sharing = Dispatcher("key_shared")
    sharing.step(ev.PartitionAdded(0, led(state, end=10 * LOOKAHEAD)))
    effects = fetched(sharing, sharing.step(ev.Joined(1, b"a" * 16, (0,), 1 << 20, 5, [], 0)))
    assert reserved(effects) == []
    assert sent(effects) == []
    effects = fetched(sharing, sharing.step(ev.Tick(LEASE_US)), LEASE_US)
    assert sent(effects) == [(0, 5)]


# --- the next leader -----------------------------------------------------------------------------


def test_the_next_leader_withholds_what_was_reserved_for_the_time_of_a_lease():
    state = ShareState(0, SETTINGS)
    state.apply(ShareChange(high=100, settled=[(0, 3)]))
    leases = led(state)
    assert leases.available() == 0
    assert leases.lent() == [(3, 100)]
    leases.pass_time(LEASE_US - 1)
    assert leases.available() == 0
    leases.pass_time(LEASE_US)
    assert leases.available() == 97


def test_what_comes_later_was_with_nobody():
    state = ShareState(0, SETTINGS)
    state.apply(ShareChange(high=100))
    leases = led(state, end=7)
    assert leases.lent() == [(0, 7)]
    leases.advanced(0, 9)
    assert leases.reserve(1, 5) == [(7, 9)]


def test_what_is_behind_is_free_as_soon_as_it_is_reserved():
    state = ShareState(0, SETTINGS)
    state.apply(ShareChange(high=100))
    leases = led(state)
    assert leases.reservation_wanted() == 100 + RUN
    leases.is_reserved(100 + RUN)
    assert leases.reserve(1, 5) == [(100, 105)]


def test_with_failover_fast_nothing_is_withheld():
    state = ShareState(0, SETTINGS._replace(failover="fast"))
    state.apply(ShareChange(high=100))
    assert led(state).available() == 100


def test_after_an_orderly_end_only_what_was_lent_is_withheld():
    state = ShareState(0, SETTINGS)
    state.apply(ShareChange(high=100, clean=True, lent=[(4, 6)]))
    leases = led(state)
    assert leases.lent() == [(4, 6)]
    leases.pass_time(GRACE_US)
    assert leases.lent() == [(4, 6)]


def test_who_leads_for_long_withholds_as_after_a_broken_link():
    state = ShareState(0, SETTINGS)
    state.apply(ShareChange(high=100))
    leases = led(state, now_us=2 * LEASE_US)
    leases.pass_time(2 * LEASE_US + GRACE_US)
    assert leases.available() == 100


def test_the_longest_lease_that_may_be_left_is_waited_for():
    state = ShareState(0, SETTINGS)
    state.apply(ShareChange(high=9, settings=SETTINGS._replace(lease_us=1_000)))
    assert state.longest_us == LEASE_US
    assert ShareState.restore(state.snapshot()).longest_us == LEASE_US
    leases = led(state)
    leases.pass_time(LEASE_US - 1)
    assert leases.available() == 0
    state.apply(ShareChange(clean=True))
    assert state.longest_us == 1_000
    state.apply(ShareChange(reset=0, settings=SETTINGS))
    assert state.longest_us == LEASE_US


def test_a_lease_that_was_extended_is_waited_for():
    state = ShareState(0, SETTINGS)
    leases = led(state)
    leases.is_reserved(RUN)
    leases.reserve(1, 2)
    leases.lease([(0, 2)], 0, identity=b"a")
    assert leases.settle(1, "extend", [(0, 1)], now_us=0, duration_us=5 * LEASE_US) == []
    assert leases.settle(1, "extend", [(1, 2)], now_us=0) == []
    assert leases.all_leases() == [(0, 1, 1, 5 * LEASE_US), (1, 2, 1, LEASE_US)]
    change = leases.take_change()
    assert change is not None
    assert change.extended == [(0, 1, 5 * LEASE_US)]
    change.high = RUN
    state.apply(ShareChange.decode(change.encode()))
    assert ShareState.restore(state.snapshot()).extended() == [(0, 1, 5 * LEASE_US)]
    following = led(ShareState.restore(state.snapshot()))
    following.pass_time(4 * LEASE_US)
    assert following.lent() == [(0, 1)]
    following.pass_time(5 * LEASE_US)
    assert following.lent() == []


def test_a_lease_that_was_extended_for_a_short_while_is_waited_for_like_the_others():
    state = ShareState(0, SETTINGS)
    extended(state)  # its first message, until 5 * LEASE_US
    alone_us = 5 * LEASE_US - 1
    following = Leases(state, end=2, now_us=alone_us, alone_us=alone_us)
    following.pass_time(5 * LEASE_US)
    assert following.lent() == [(0, 2)]
    following.pass_time(alone_us + LEASE_US)
    assert following.lent() == []


def test_an_extension_alone_is_logged_and_one_of_a_message_with_nobody_is_void():
    leases = led()
    leases.is_reserved(RUN)
    leases.reserve(1, 1)
    leases.lease([(0, 1)], 0, identity=b"a")
    leases.take_change()
    leases.settle(1, "extend", [(0, 1)], now_us=0, duration_us=5 * LEASE_US)
    change = leases.take_change()
    assert change is not None
    state = ShareState(0, SETTINGS)
    state.apply(ShareChange(counts=[(0, 1, 1 + MARK * HELD)]))
    state.apply(change)
    assert state.extended() == [(0, 1, 5 * LEASE_US)]
    state.apply(ShareChange(counts=[(0, 1, 1)]))
    assert state.extended() == []


def test_the_extension_of_a_message_that_is_settled_says_nothing():
    state = ShareState(0, SETTINGS)
    state.apply(ShareChange(counts=[(0, 2, 1 + MARK * HELD)], extended=[(0, 1, 7), (1, 2, 9)]))
    assert state.extended() == [(0, 1, 7), (1, 2, 9)]
    state.apply(ShareChange(settled=[(0, 1)]))
    assert state.extended() == [(1, 2, 9)]


def test_void_extensions_are_forgotten(monkeypatch):
    monkeypatch.setattr("hocket.core.sharing.state.HOLDERS_MAX", 2)
    state = ShareState(0, SETTINGS)
    for offset in range(9):
        state.apply(ShareChange(counts=[(offset, offset + 1, 1 + MARK * HELD)]))
        state.apply(ShareChange(extended=[(offset, offset + 1, 5)]))
        state.apply(ShareChange(counts=[(offset, offset + 1, 1)]))
    assert len(state._extended) <= 3


def extended(state: ShareState) -> Leases:
    """A leader of whose two messages the first was extended, and whose log the state has."""
    leases = led(state)
    leases.is_reserved(RUN)
    leases.reserve(1, 2)
    leases.lease([(0, 2)], 0, identity=b"a")
    leases.settle(1, "extend", [(0, 1)], now_us=0, duration_us=5 * LEASE_US)
    logged(state, leases)
    return leases


def logged(state: ShareState, leases: Leases) -> None:
    change = leases.take_change()
    assert change is not None
    change.high = RUN
    state.apply(ShareChange.decode(change.encode()))


def test_an_extension_is_void_when_another_consumer_has_the_message():
    state = ShareState(0, SETTINGS)
    leases = extended(state)
    leases.settle(1, "nack", [(0, 1)], now_us=1)
    logged(state, leases)
    leases.committed(leases.awaited)
    # The next leader finds it with nobody; what the log has of it must not come back to life.
    following = led(ShareState.restore(state.snapshot()))
    following.pass_time(LEASE_US)
    for leader in (leases, led(state)):
        leader.is_reserved(RUN)
        leader.pass_time(LEASE_US)
        copy = ShareState.restore(state.snapshot())
        copy._extended = list(state._extended)  # as a replica that has taken no snapshot since
        if leader is not leases:
            logged(copy, leader)
            leader.committed(leader.awaited)
        (run,) = leader.reserve(2, 1)
        assert run == (0, 1)
        leader.lease([run], LEASE_US, identity=b"b")
        logged(copy, leader)
        assert copy.extended() == []


def test_an_extension_that_is_taken_back_is_void():
    state = ShareState(0, SETTINGS)
    leases = extended(state)
    leases.settle(1, "extend", [(0, 2)], now_us=1)
    change = leases.take_change()
    assert change is not None
    assert change.extended == [(0, 1, 0)]
    state.apply(change)
    assert state.extended() == []
    leases.settle(1, "extend", [(0, 2)], now_us=2)  # that needs no entry
    assert leases.take_change() is None


def test_whoever_claims_a_message_keeps_its_extension():
    state = ShareState(0, SETTINGS)
    extended(state)
    following = led(state)
    following.welcome(7, b"a", None, [(0, 2)], 1)
    assert following.all_leases() == [(0, 1, 7, 5 * LEASE_US), (1, 2, 7, LEASE_US + 1)]


def test_a_message_that_is_extended_again_and_again_takes_the_room_of_one(monkeypatch):
    monkeypatch.setattr("hocket.core.sharing.state.HOLDERS_MAX", 2)
    state = ShareState(0, SETTINGS)
    state.apply(ShareChange(counts=[(0, 2, 1 + MARK * HELD)]))
    for until in range(1, 50):
        state.apply(ShareChange(extended=[(0, 2, until)]))
    assert len(state._extended) <= 3
    assert state.extended() == [(0, 2, 49)]
    assert ShareState.restore(state.snapshot()).extended() == [(0, 2, 49)]


# --- the log -------------------------------------------------------------------------------------


def test_reservations_and_extensions_are_merged_and_reset():
    change = ShareChange(high=5, extended=[(0, 1, 9)])
    change.merge(ShareChange(high=3, extended=[(1, 2, 8)]))
    assert (change.high, change.extended) == (5, [(0, 1, 9), (1, 2, 8)])
    change.merge(ShareChange(reset=7))
    assert (change.high, change.extended) == (0, [])
    state = ShareState(0, SETTINGS)
    state.apply(ShareChange(high=50))
    state.apply(ShareChange(high=40))
    assert state.high == 50
    state.apply(ShareChange(reset=7))
    assert state.high == 0


def test_an_index_that_is_put_elsewhere_is_reserved_anew():
    leases = led()
    leases.is_reserved(RUN)
    leases.reset(2_000)
    assert leases.available() == 0
    assert leases.reservation_wanted() == 2_000 + RUN


def test_revived_messages_are_reserved_with_their_revival():
    leases = led()
    leases.reset(50)  # all before is settled, and nothing is reserved
    assert leases.revive([(10, 0)], 7) == [(10, 11)]
    change = leases.take_change()
    assert change is not None
    assert change.high == 50
    assert leases.reserve(1, 1) == [], "the next leader might not know of it"
    leases.committed(leases.awaited)
    assert leases.reserve(1, 1) == [(10, 11)]
    assert Before(5, b"\0\1").without([(2, 3), (6, 9)]) == Before(2, b"\0\1\1\0\0")


# --- partitions that another node leads ----------------------------------------------------------


def test_a_partition_that_is_led_elsewhere_is_forgotten():
    sharing = Dispatcher("shared")
    for number in (0, 1):
        sharing.step(ev.PartitionAdded(number, led(end=4)))
    sharing.step(ev.Joined(1, b"a" * 16, (0, 1), 1 << 20, 20, [], 0, tells=True))
    sharing.step(ev.Joined(2, b"b" * 16, (1,), 1 << 20, 20, [], 0))
    fetched(sharing, sharing.step(ev.Reserved(0, RUN)))
    (fetch,) = [
        e for e in sharing.step(ev.Reserved(1, 2)) if isinstance(e, ev.Fetch) and e.consumer == 1
    ]
    assert sharing.leased(0) == 4
    sharing.step(ev.Left(2, False, 0))
    sharing.step(ev.PartitionRemoved(0))
    effects = sharing.step(ev.Settle(1, 7, "ack", [(0, 0, 1)], 0, "", 0))
    assert ev.Answer(1, 7, [(0, 0, 1)], 0) in effects
    assert sharing.step(ev.Fetched(fetch.fetch, fetch.end, 10, 0))
    sharing.step(ev.PartitionRemoved(1))
    assert sharing.step(ev.Fetched(fetch.fetch, fetch.end, 10, 0)) == []
    sharing.step(ev.PartitionAdded(1, led(end=4)))
    effects = sharing.step(ev.Joined(3, b"b" * 16, (1,), 1 << 20, 20, [], 0))
    assert reserved(effects) == [RUN]


def test_who_consumes_other_partitions_keeps_what_it_has_when_one_is_led_elsewhere():
    sharing = Dispatcher("shared")
    for number in (0, 1):
        sharing.step(ev.PartitionAdded(number, led(end=4)))
    sharing.step(ev.Joined(1, b"a" * 16, (0, 1), 1 << 20, 2, [], 0, tells=True))
    sharing.step(ev.Joined(2, b"b" * 16, (1,), 1 << 20, 2, [], 0, tells=True))
    fetched(sharing, sharing.step(ev.Reserved(0, RUN)))
    assert sent(fetched(sharing, sharing.step(ev.Reserved(1, RUN)))) == [(0, 2)]
    sharing.step(ev.PartitionRemoved(0))
    # That it hands out the first one next is still known: its delivery is not logged again.
    assert sharing.step(ev.CreditGiven(2, 0, 0, 0, [(1, 1, 0)])) == []
    effects = sharing.step(ev.Settle(2, 7, "ack", [(1, 0, 1)], 0, "", 0))
    assert [e.refused for e in effects if isinstance(e, ev.Answer)] == [[]]
    assert sent(fetched(sharing, sharing.step(ev.CreditGiven(2, 0, 2, 0, [])))) == [(2, 4)]


def test_who_was_at_another_leader_was_not_here_before():
    """So an ack that is told again holds only if the message was settled when this one began."""
    sharing = Dispatcher("shared")
    sharing.step(ev.PartitionAdded(0, led(end=4)))
    sharing.step(ev.PartitionAdded(1, led(end=4)))
    sharing.step(ev.Joined(1, b"a" * 16, (0, 1), 1 << 20, 1, [], 0))
    sharing.step(ev.Left(1, False, 0))
    sharing.step(ev.PartitionRemoved(0))
    state = ShareState(0, SETTINGS)
    state.apply(ShareChange(settled=[(0, 1)], high=4))
    sharing.step(ev.PartitionAdded(0, led(state, end=4)))
    sharing.step(ev.Joined(2, b"b" * 16, (0,), 1 << 20, 9, [(0, 1, 2)], 0))
    sharing.step(ev.Settle(2, 8, "ack", [(0, 1, 2)], 0, "", 0))
    sharing.step(ev.Joined(3, b"a" * 16, (0, 1), 1 << 20, 1, [], 0))
    effects = sharing.step(ev.Settle(3, 9, "ack", [(0, 0, 1), (0, 1, 2)], 0, "", 0, again=True))
    (answer,) = [effect for effect in effects if isinstance(effect, ev.Answer)]
    assert answer.refused == [(0, 1, 2)]
