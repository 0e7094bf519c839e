"""A message that comes back is leased again when the log has it that it came back."""

from __future__ import annotations

import pytest

from hocket.core.sharing import events as ev
from hocket.core.sharing.dispatcher import Dispatcher
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.state import ShareChange, ShareSettings, ShareState

LEASE_US = 10_000_000
SETTINGS = ShareSettings(LEASE_US)
HIGH = 100
ANN, BOB = 1, 2


class Leader:
    """Leads a partition of three messages. `state` is what the log has, committed."""

    def __init__(self, state: ShareState | None = None, now_us: int = 0) -> None:
        self.state = state or ShareState(0, SETTINGS)
        self.leases = Leases(self.state, end=3, now_us=now_us, alone_us=now_us)
        self.state.apply(ShareChange(high=HIGH))
        self.leases.is_reserved(HIGH)

    def lease(self, consumer: int, now_us: int = 0, count: int = 1) -> list[tuple[int, int]]:
        runs = self.leases.reserve(consumer, count)
        self.leases.lease(runs, now_us, identity=bytes([consumer]))
        return runs

    def take(self) -> tuple[ShareChange, int]:
        change = self.leases.take_change()
        assert change is not None
        return change, self.leases.awaited

    def commit(self, taken: tuple[ShareChange, int] | None = None) -> None:
        change, number = taken or self.take()
        self.state.apply(ShareChange.decode(change.encode()))
        if number:
            self.leases.committed(number)


def of_ann() -> Leader:
    """All messages are with Ann, and the log says so."""
    leader = Leader()
    assert leader.lease(ANN, count=3) == [(0, 3)]
    leader.commit()
    return leader


def give_back(leader: Leader, how: str) -> int:
    """Ann has the first message no more; returns the time."""
    leases = leader.leases
    if how == "its lease is over":
        leases.settle(ANN, "ack", [(1, 3)], now_us=0)
        leases.pass_time(LEASE_US)
        return LEASE_US
    if how == "she came back without it":
        leases.welcome(3, bytes([ANN]), ANN, [(1, 3)], 0)
    elif how == "she closed":
        leases.settle(ANN, "ack", [(1, 3)], now_us=0)
        leases.leave(ANN)
    else:
        leases.settle(ANN, how, [(0, 1)], now_us=0)
    return 0


@pytest.mark.parametrize(
    "how", ["nack", "release", "its lease is over", "she came back without it", "she closed"]
)
def test_what_comes_back_is_leased_when_the_log_has_it(how: str):
    leader = of_ann()
    now_us = give_back(leader, how)
    taken = leader.take()
    assert leader.lease(BOB, now_us) == []
    assert not leader.leases.is_idle
    leader.commit(taken)
    assert leader.lease(BOB, now_us) == [(0, 1)]


@pytest.mark.parametrize("is_committed", [False, True])
def test_who_comes_to_the_next_leader_without_a_message_takes_it_from_nobody(is_committed: bool):
    """Ann has given it back, and perhaps Bob has it by now: the log never hears of Bob."""
    leader = of_ann()
    leader.leases.settle(ANN, "nack", [(0, 1)], now_us=0)
    taken = leader.take()
    if is_committed:
        leader.commit(taken)
    of_bob = leader.lease(BOB)
    following = Leader(leader.state)
    following.leases.welcome(3, bytes([ANN]), None, [(1, 3)], 0)
    following.commit()
    assert following.lease(4) == ([] if of_bob else [(0, 1)])
    following.leases.welcome(5, bytes([BOB]), None, of_bob, 0)
    assert following.leases.leased_by(5) == of_bob


def test_what_nobody_claims_is_leased_when_the_log_has_it():
    following = Leader(of_ann().state)
    following.leases.welcome(3, bytes([ANN]), None, [(0, 2)], 0)
    taken = following.take()
    assert following.lease(BOB) == []
    following.commit(taken)
    assert following.lease(BOB) == [(2, 3)]


def test_what_nobody_had_by_the_log_need_not_wait():
    leader = Leader()
    leader.state.apply(ShareChange(settled=[(0, 1)]))
    following = Leader(leader.state)
    following.leases.pass_time(LEASE_US)
    assert following.lease(BOB, LEASE_US, count=3) == [(1, 3)]


def test_a_short_rest_does_not_end_before_the_log_knows_of_it():
    leader = of_ann()
    leader.leases.settle(ANN, "nack", [(0, 1)], now_us=0, duration_us=5)
    taken = leader.take()
    leader.leases.pass_time(5)
    assert leader.lease(BOB, 5) == []
    leader.commit(taken)
    assert leader.lease(BOB, 5) == [(0, 1)]
    leader.leases.settle(ANN, "nack", [(1, 2)], now_us=5, duration_us=5)
    leader.commit()
    leader.leases.pass_time(10)
    assert leader.lease(BOB, 10) == [(1, 2)]


def test_a_revived_message_is_leased_when_its_revival_is_committed():
    leader = of_ann()
    leader.leases.settle(ANN, "ack", [(0, 3)], now_us=0)
    leader.commit()
    assert leader.leases.revive([(1, 0)], 7) == [(1, 2)]
    taken = leader.take()
    assert leader.lease(BOB) == []
    leader.commit(taken)
    assert leader.lease(BOB) == [(1, 2)]


def test_what_is_gone_meanwhile_does_not_come_back():
    leader = of_ann()
    leader.leases.settle(ANN, "nack", [(0, 3)], now_us=0)
    taken = leader.take()
    leader.leases.advanced(2, 3)
    leader.commit(taken)
    assert leader.lease(BOB, count=3) == [(2, 3)]
    leader.leases.settle(BOB, "nack", [(2, 3)], now_us=0)
    taken = leader.take()
    leader.leases.reset(1)
    leader.leases.is_reserved(HIGH)
    leader.commit(taken)
    assert leader.lease(BOB, count=3) == [(1, 3)]


def test_a_key_waits_with_its_message_and_others_go_on():
    sharing = Dispatcher("key_shared")
    leases = Leases(ShareState(0, SETTINGS), end=3, now_us=0, alone_us=0)
    sharing.step(ev.PartitionAdded(0, leases))
    sharing.step(ev.Joined(ANN, b"a" * 16, (0,), 1 << 20, 1, [], 0))
    sharing.step(ev.Reserved(0, HIGH))
    (fetch,) = sharing.step(ev.Scanned(0, 0, [7, 7, 8]))
    assert isinstance(fetch, ev.Fetch)
    sharing.step(ev.Fetched(fetch.fetch, 1, 10, 0))
    record, *_ = sharing.step(ev.Settle(ANN, 9, "nack", [(0, 0, 1)], 0, "", 0))
    assert isinstance(record, ev.Record)
    (other,) = sharing.step(ev.CreditGiven(ANN, 100, 2, 0))
    assert isinstance(other, ev.Fetch)
    assert (other.start, other.end) == (2, 3)
    sharing.step(ev.Fetched(other.fetch, 3, 10, 0))
    (same,) = sharing.step(ev.Recorded(0, record.awaited))
    assert isinstance(same, ev.Fetch)
    assert (same.start, same.end) == (0, 1)
