"""Rendezvous: one accept and one connect meet, once, whichever comes first."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from hocket.errors import BusyResource, Closed, OutOfRange, Timeout, WrongKind, WrongType
from hocket.local import Broker, BrokerManager, Channel, EventPump, QueueBroker, Rendezvous
from tests.local.test_broker import assert_joined, waiting
from tests.support.threads import Running, run, settle, until

SIDES = ["accept", "connect"]


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    manager = BrokerManager()
    with Broker("alice", manager) as alice, Broker("bob", manager) as bob:
        yield alice, bob


def other(side: str) -> str:
    return SIDES[1 - SIDES.index(side)]


@pytest.mark.parametrize("first", SIDES)
def test_whoever_shares_a_rendezvous_meets_there_without_a_port(first: str, brokers: Any):
    alice, bob = brokers
    rendezvous = Rendezvous[Broker]()
    assert (rendezvous.side, rendezvous.broker, rendezvous.port) == (None, None, None)
    assert "nobody" in repr(rendezvous)
    with Running(getattr(rendezvous, first), alice) as early:
        early.parked()
        assert (rendezvous.side, rendezvous.broker) == (first, alice)
        assert "alice" in repr(rendezvous)
        late = getattr(rendezvous, other(first))(bob)
        assert_joined(late, early.result())
    assert "over" in repr(rendezvous)
    assert alice.rendezvous == bob.rendezvous == []


@pytest.mark.parametrize("first", SIDES)
def test_coroutines_meet_at_a_rendezvous_too(first: str, brokers: Any):
    alice, bob = brokers

    async def meet() -> tuple[Channel, Channel]:
        rendezvous = Rendezvous[Broker]()
        early = asyncio.ensure_future(getattr(rendezvous, f"{first}_async")(alice))
        await settle()
        late = await getattr(rendezvous, f"{other(first)}_async")(bob, timeout=10)
        return await early, late

    assert_joined(*run(meet()))


@pytest.mark.parametrize("first", SIDES)
def test_a_side_that_waits_at_a_broker_is_met_through_its_rendezvous(first: str, brokers: Any):
    alice, bob = brokers
    call = (bob.accept, 80) if first == "accept" else (alice.connect, "bob", 80)
    with Running(*call) as early:
        (rendezvous,) = until(lambda: bob.rendezvous)
        late = rendezvous.accept(bob) if first == "connect" else rendezvous.connect(alice)
        assert_joined(late, early.result())
    assert bob.rendezvous == []
    with pytest.raises(Closed, match="over"):
        rendezvous.connect(alice)


def test_a_second_one_of_the_same_side_is_refused_and_the_first_is_unharmed(brokers: Any):
    alice, bob = brokers
    rendezvous = Rendezvous[Broker]()
    for side in SIDES:
        rendezvous = Rendezvous[Broker]()
        with Running(getattr(rendezvous, side), alice) as early:
            early.parked()
            with pytest.raises(BusyResource, match="alice"):
                getattr(rendezvous, side)(bob)
            assert_joined(getattr(rendezvous, other(side))(bob), early.result())


def test_only_the_accepting_broker_accepts_on_its_port(brokers: Any):
    alice, bob = brokers
    with Running(alice.connect, "bob", 80) as early:
        (rendezvous,) = until(lambda: bob.rendezvous)
        with pytest.raises(WrongKind, match="alice"):
            rendezvous.accept(alice)
        assert waiting(bob) == [(80, "connect", "alice")]
        assert_joined(rendezvous.accept(bob), early.result())


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("timeout", [0, 0.005])
def test_a_rendezvous_that_was_given_up_is_over(side: str, timeout: float, brokers: Any):
    alice, bob = brokers
    rendezvous = Rendezvous[Broker]()
    with pytest.raises(Timeout):
        getattr(rendezvous, side)(alice, timeout)
    with pytest.raises(Closed, match="over"):
        getattr(rendezvous, other(side))(bob)
    assert alice._elsewhere == {}


def test_a_closed_broker_calls_its_rendezvous_off_wherever_it_waits(brokers: Any):
    alice, bob = brokers
    rendezvous = Rendezvous[Broker]()
    with Running(rendezvous.accept, alice) as early:
        early.parked()
        alice.close()
        assert "'alice' was closed" in str(early.failure(Closed))
    with pytest.raises(Closed):
        rendezvous.connect(bob)
    with pytest.raises(Closed, match="'alice' is closed"):
        Rendezvous[Broker]().accept(alice)


def test_what_is_not_a_thread_broker_does_not_meet(brokers: Any):
    alice, _bob = brokers
    rendezvous: Any = Rendezvous()
    with (
        EventPump() as pump,
        QueueBroker("events", pump, alice.manager) as events,
        pytest.raises(WrongKind, match="events"),
    ):
        rendezvous.accept(events)
    with pytest.raises(WrongType, match="str"):
        rendezvous.connect("alice")
    with pytest.raises(OutOfRange):
        rendezvous.connect(alice, -1)
    assert rendezvous.side is None


def test_brokers_of_two_managers_meet():
    rendezvous = Rendezvous[Broker]()
    with (
        Broker("a", BrokerManager()) as here,
        Broker("a", BrokerManager()) as there,
        Running(rendezvous.accept, here) as early,
    ):
        early.parked()
        assert_joined(rendezvous.connect(there), early.result())


# --- settled by another thread, at any moment of the partner's look ------------------------------


@pytest.mark.parametrize("line", range(4))
def test_an_error_that_comes_during_a_look_is_raised_now_or_at_the_next(line):
    with Broker("b", BrokerManager()) as broker:
        rendezvous = Rendezvous[Broker]()
        assert rendezvous.arrive("accept", broker) is None
        lines_left = [line]

        def trace(frame: FrameType, event: str, _argument: Any) -> Any:
            if frame.f_code is not Rendezvous.outcome.__code__:
                return None
            if event == "line":
                if not lines_left[0]:
                    rendezvous.call_off(Closed("gone"))
                lines_left[0] -= 1
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            found = rendezvous.outcome()
        except Closed:
            found = None
        finally:
            sys.settrace(before)
        assert found is None
        if lines_left[0] < 0:
            with pytest.raises(Closed):
                rendezvous.outcome()
