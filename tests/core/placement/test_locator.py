"""Hints on who leads a partition: the newest wins in any order, and old ones go."""

from __future__ import annotations

from hypothesis import given, strategies as st

from hocket.core.placement import locator as locator_module
from hocket.core.placement.locator import KEPT_US, LeaderIs, LocatorStore, PublishLeader, WhereIs
from hocket.core.ring.contact import Contact
from hocket.model import PartitionId

PARTITION_ID, OTHER = PartitionId("t", 1), PartitionId("t", 2)


def node(name: str, incarnation: int = 1) -> Contact:
    return Contact(ord(name), name, incarnation, f"{name}:1")


def test_who_has_said_so_leads():
    store = LocatorStore()
    assert store.where(PARTITION_ID, 0) is None
    store.publish(PARTITION_ID, node("a"), 1, 0)
    assert store.where(PARTITION_ID, 1) == node("a")
    assert store.where(OTHER, 1) is None


said = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(st.lists(said, min_size=1, max_size=8))
def test_the_newest_term_wins_then_the_newest_life_whatever_the_order(hints):
    store = LocatorStore()
    for term, incarnation in hints:
        store.publish(PARTITION_ID, node("a", incarnation), term, 0)
    assert store.where(PARTITION_ID, 0) == node("a", max(hints)[1])


def test_of_two_that_claim_the_same_the_first_is_believed():
    store = LocatorStore()
    store.publish(PARTITION_ID, node("a"), 1, 0)
    store.publish(PARTITION_ID, node("b"), 1, 0)
    assert store.where(PARTITION_ID, 0) == node("a")


def test_what_is_not_said_again_is_forgotten():
    store = LocatorStore()
    store.publish(PARTITION_ID, node("a"), 2, 0)
    store.publish(OTHER, node("a"), 2, 0)
    store.publish(PARTITION_ID, node("a"), 2, 50)
    store.publish(OTHER, node("b"), 1, 50)  # older: no sign of life of the newer
    assert store.where(OTHER, KEPT_US - 1) == node("a")
    assert store.where(OTHER, KEPT_US) is None
    assert store.where(PARTITION_ID, KEPT_US + 49) == node("a")
    assert len(store) == 1
    store.publish(PARTITION_ID, node("b"), 1, KEPT_US + 50)
    assert store.where(PARTITION_ID, KEPT_US + 50) == node("b")


def test_a_clock_that_was_set_back_keeps_nothing_for_ever():
    store = LocatorStore()
    store.publish(PARTITION_ID, node("a"), 1, 100 * KEPT_US)
    assert store.where(PARTITION_ID, 100 * KEPT_US - 1) == node("a"), "a little is no matter"
    assert store.where(PARTITION_ID, KEPT_US) is None
    store.publish(PARTITION_ID, node("b"), 1, KEPT_US)
    assert store.where(PARTITION_ID, KEPT_US) == node("b")


def test_there_are_not_too_many(monkeypatch):
    monkeypatch.setattr(locator_module, "HINTS_MAX", 2)
    store = LocatorStore()
    for partition in (1, 2, 1, 3):
        store.publish(PartitionId("t", partition), node("a"), 1, 0)
    assert [store.where(PartitionId("t", partition), 0) for partition in (1, 2, 3)] == [
        node("a"), None, node("a"),
    ]  # fmt: skip


def test_messages_say_and_ask_the_same():
    store = LocatorStore()
    assert store.heard(WhereIs(7, PARTITION_ID), 0) == LeaderIs(7, PARTITION_ID, None)
    assert store.heard(PublishLeader(PARTITION_ID, node("a"), 4), 0) is None
    assert store.heard(WhereIs(8, PARTITION_ID), 0) == LeaderIs(8, PARTITION_ID, node("a"), 4)
