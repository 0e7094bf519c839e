"""Deciders that three nodes keep: from one copy to three, and through the death of who leads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hocket.errors import HocketError, StorageFull
from hocket.log.store import LogStore
from hocket.model import DECIDERS, DECISIONS
from hocket.node.node import Node
from hocket.node.replication.deciders import DeciderCopies
from tests.support.node.cluster import SECOND
from tests.support.node.spread import Attempt, Spread


def voters(nodes: Spread) -> set[int]:
    """How many nodes vote in the groups of the deciders, as each that keeps a copy knows."""
    return {
        len(kept.replica.raft.group.configuration.voters)
        for machine in nodes.machines
        if machine.node is not None
        for kept in machine.node.node._decider_copies._kept.values()
        if kept.replica is not None
    }


def states(nodes: Spread, group: int) -> set[str]:
    """What the copies of a decider know; those that have applied the same know the same."""
    return {
        str(kept.seat.core.snapshot())
        for machine in nodes.machines
        if machine.node is not None
        for kept in machine.node.node._decider_copies._kept.values()
        if kept.seat.group == group
    }


def commit(nodes: Spread, transaction: str, number: int, serial: int, *at: int) -> Attempt:
    attempt = Attempt(nodes, transaction, number, 1, at, serial=serial).stage()
    return attempt.commit()


def test_from_one_copy_to_three_when_the_third_node_comes():
    nodes = Spread(nodes=2)
    assert commit(nodes, "job", 3, 1, 0, 1).outcome == "committed"
    stores = nodes.root.node.node.topics[DECIDERS].replicas  # type: ignore[union-attr]
    assert {len(each) for each in stores} == {1}
    assert voters(nodes) == set()  # without others there is no Raft
    nodes.grow(1)
    nodes.until(nodes.deciders_are_spread, 60, "three vote in each")
    stores = nodes.root.node.node.topics[DECIDERS].replicas  # type: ignore[union-attr]
    assert {len(set(each)) for each in stores} == {3}
    assert voters(nodes) == {3}
    again = commit(nodes, "job", 3, 2, 0, 1)  # what was decided before stays known
    assert again.outcome == "committed"
    assert commit(nodes, "job", 4, 3, 0, 1).outcome == "committed"
    nodes.until(nodes.is_at_rest, 60, "all is applied and forgotten")
    assert [nodes.hosted(partition).core.high_watermark for partition in (0, 1)] == [2, 2]
    nodes.run(3 * SECOND)
    assert all(len(states(nodes, DECISIONS + each)) == 1 for each in range(1, 9))


def test_a_dead_decider_stops_nobody():
    nodes = Spread()
    for number in (1, 2):  # the root decides on topics: its death is another matter
        transaction = nodes.id_decided_at(number, f"job{number}-")
        others = [nodes.one_each()[each] for each in range(3) if each != number]
        assert commit(nodes, transaction, 0, 10 * number, *others).outcome == "committed"
        attempt = Attempt(nodes, transaction, 1, 1, others, serial=10 * number + 1).stage()
        nodes.crash(number)
        since = nodes.now_us
        # Any other node may be asked; it says who decides, as soon as somebody does.
        attempt.commit(at=0)
        assert attempt.outcome == "committed"
        assert nodes.now_us - since < 6 * SECOND
        again = Attempt(nodes, transaction, 1, 1, others, serial=10 * number + 2).stage()
        assert again.commit(at=0).outcome == "committed"  # it is done already
        nodes.start(number)
        nodes.until(nodes.deciders_are_spread, 60, "it is back")
    nodes.until(nodes.is_at_rest, 60, "nothing is left")


def test_a_decision_is_rolled_forward_by_the_next_leader():
    """Who decides dies when the decision is committed, and nobody was told to apply it."""
    nodes = Spread()
    transaction = nodes.id_decided_at(1)
    others = [nodes.one_each()[each] for each in (0, 2)]
    attempt = Attempt(nodes, transaction, 0, 1, others, serial=1).stage()
    deciding = nodes.machines[1].node.node.transactions  # type: ignore[union-attr]
    deciding._apply = lambda seat, effect: nodes.scheduler.after(0, die)  # type: ignore[method-assign]

    def die() -> None:
        if nodes.machines[1].node is not None:
            nodes.crash(1)

    attempt.commit()
    assert attempt.outcome == "committed"
    assert nodes.machines[1].node is None
    assert [nodes.hosted(partition).core.high_watermark for partition in others] == [1, 1]


def test_deciders_survive_the_loss_of_power_of_all():
    nodes = Spread()
    assert commit(nodes, "job", 0, 1, *nodes.one_each()).outcome == "committed"
    for _ in range(2):
        for number in range(3):
            nodes.crash(number)
        for number in range(3):
            nodes.start(number)
        nodes.settle()
        nodes.until(nodes.deciders_are_spread, 60, "all are back")
    assert commit(nodes, "job", 0, 2, *nodes.one_each()).outcome == "committed"
    assert commit(nodes, "job", 1, 3, *nodes.one_each()).outcome == "committed"
    nodes.until(nodes.is_at_rest, 60, "nothing is left")
    assert [nodes.hosted(each).core.high_watermark for each in nodes.one_each()] == [2, 2, 2]


def test_a_log_without_raft_becomes_one_of_raft_at_a_restart(monkeypatch):
    nodes = Spread(nodes=2)
    assert commit(nodes, "job", 3, 1, 0, 1).outcome == "committed"
    with monkeypatch.context() as patch:
        patch.setattr(DeciderCopies, "tick", lambda self: None)  # no time is left for it
        nodes.grow(1)
        nodes.settle_deciders()
        assert commit(nodes, "job", 4, 2, 0, 1).outcome == "committed"
        assert voters(nodes) == {1}  # of those who are new, as far as they know
        for number in range(3):
            nodes.crash(number)
    for number in range(3):
        nodes.start(number)
    nodes.until(nodes.deciders_are_spread, 60, "three vote in each")
    assert commit(nodes, "job", 4, 3, 0, 1).outcome == "committed"  # as it was before
    assert commit(nodes, "job", 5, 4, 0, 1).outcome == "committed"
    nodes.until(nodes.is_at_rest, 60, "nothing is left")
    assert [nodes.hosted(partition).core.high_watermark for partition in (0, 1)] == [3, 3]


def test_a_log_of_raft_waits_until_its_node_knows_what_it_is_for(monkeypatch):
    """A node that starts may know less of the catalogue than its logs are about."""
    nodes = Spread(nodes=2)
    assert commit(nodes, "job", 3, 1, 0, 1).outcome == "committed"
    with monkeypatch.context() as patch:
        patch.setattr(Node, "found_deciders", lambda self: None)
        nodes.grow(1)
        nodes.run(3 * SECOND)
    new = nodes.machines[2].node
    assert new is not None
    checkpointed: list[None] = []
    new.node.store.checkpoint_now(lambda error: checkpointed.append(error))  # type: ignore[arg-type]
    nodes.until(lambda: checkpointed == [None], 10, "it knows that each decider has one store")
    monkeypatch.setattr(new.node.store, "_start_checkpoint", lambda: None)

    def has_terms() -> bool:
        kept = new.node._decider_copies._kept.values()
        return len(kept) == 8 and all(
            each.replica is not None and each.replica.leader for each in kept
        )

    nodes.until(has_terms, 30, "it follows who leads them")
    nodes.run(SECOND)
    nodes.crash(2)
    nodes.start(2)
    back = nodes.machines[2].node
    assert back is not None
    assert not any(each.is_replicated for each in back.node.topics.values())
    assert len(back.node._wiring.unclaimed) == 8
    nodes.until(nodes.deciders_are_spread, 60, "three vote in each")
    assert not back.node._wiring.unclaimed
    assert commit(nodes, "job", 3, 2, 0, 1).outcome == "committed"  # as it was before
    assert commit(nodes, "job", 4, 3, 0, 1).outcome == "committed"
    nodes.until(nodes.is_at_rest, 60, "nothing is left")
    nodes.run(3 * SECOND)
    assert all(len(states(nodes, DECISIONS + each)) == 1 for each in range(1, 9))


def test_a_change_of_members_waits_for_room_on_the_disk():
    """What a node says after such a change must not be forgotten in a crash."""
    nodes = Spread(nodes=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "found_deciders", lambda self: None)
        nodes.grow(1)
        nodes.run(3 * SECOND)
    refused = 0
    checkpoint = LogStore.checkpoint_now

    def full(store: LogStore, done: Callable[[HocketError | None], None]) -> None:
        nonlocal refused
        refused += 1
        nodes.scheduler.after(0, lambda: done(StorageFull("no room")))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogStore, "checkpoint_now", full)
        nodes.run(10 * SECOND)
        assert refused > 16, "each is tried again"
        assert 3 not in voters(nodes), "nobody has gone on"
    assert LogStore.checkpoint_now is checkpoint
    nodes.until(nodes.deciders_are_spread, 60, "three vote in each")
    assert commit(nodes, "job", 0, 1, 0, 1).outcome == "committed"
