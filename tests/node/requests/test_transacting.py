"""The power fails at every point of a transaction, one after the other: all of it, or nothing.

Every point is walked once, half of them with clients that come back and half with clients that are
gone for good; with HOCKET_STRESS=long all are walked both ways. The table that comes of it is in
docs/internals/transactions.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from hocket.core.partition.events import StageAcked, StageBatch
from hocket.core.partition.partition import Partition
from hocket.core.partition.stages import Stages
from hocket.core.transactions.decider import Decider
from hocket.core.transactions.events import Answer, CommitAsked
from hocket.core.transactions.state import given_up
from hocket.log.checkpointer import Checkpointer
from tests.support.node import simulated
from tests.support.node.transacting import (
    SECOND,
    TIMEOUT_US,
    Admin,
    Log,
    Stager,
    World,
    published,
    settle,
)
from tests.support.threads import LONG

STORY = (
    ("lost attempt", 0, {"then": "vanish", "batches_each": 1, "partitions": [0]}),
    # Long enough for all that is staged to leave memory for segment files, and for the lost attempt
    # to be given up beside it.
    # And so much that it takes several commits of the write-ahead log to publish it.
    ("first", 0, {"after_us": TIMEOUT_US + SECOND, "batches_each": 3, "record_bytes": 500}),
    ("lost again", 1, {"then": "vanish", "batches_each": 1, "partitions": [0]}),
    ("second", 1, {}),
    ("third", 2, {"then": "abort", "partitions": [0, 1]}),
    # The same number again, while what was aborted is perhaps still being dropped.
    ("third again", 2, {"partitions": [1, 2]}),
)


def live(cut_at: int | None, *, survive: bool = True, story: Iterable = STORY) -> tuple:
    """Transactions of one id, one after the other; the world, and what has become of them.

    The clients come back after the power cut if they `survive` it, else they are gone for good.
    """
    world = World("points", cut_at=cut_at)
    Admin(world)
    log = Log(world, "reader")
    plain = simulated.Producer(world, "plain", batches_max=2)
    stagers: list[Stager] = []

    def are_gone() -> bool:
        return world.cut is not None and not survive

    for name, number, options in story:
        stager = Stager(world, name, number, **options)
        stagers.append(stager)
        settle(world, lambda stager=stager: stager.finished or are_gone(), name)
        if are_gone():
            break
    if are_gone():
        for stager in stagers:
            stager.vanish()
    settle(world, lambda: plain.finished, "what was produced beside it is stored")
    settle(world, lambda: world.is_at_rest, "nothing is staged, nothing is unfinished")
    settle(world, log.is_complete, "everything was read")
    return world, check(log.records(), stagers, plain, survive=survive)


def check(
    records: dict[int, list[bytes]],
    stagers: list[Stager],
    plain: simulated.Producer,
    *,
    survive: bool,
) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for stager in stagers:
        found = published(records, stager)
        outcomes[found] += 1
        if stager.outcome == "committed":
            assert found == "all", f"{stager.name} was told that it is committed"
        if stager.then != "commit" or stager.outcome == "transactionAborted":
            assert found == "nothing", f"{stager.name} must not be seen"
        if survive and stager.then == "commit":
            assert stager.outcome == "committed", stager.outcome
    sent = [made for each in plain.sent.values() for made in each]
    known = {v for values in sent for v in values}
    known |= {v for stager in stagers for values in stager.records.values() for v in values}
    assert not {v for values in records.values() for v in values} - known
    for values in records.values():
        order = [v.split(b"/")[0] for v in values if v.startswith((b"first", b"second", b"third"))]
        assert order == sorted(order), "transactions of one id are published in their order"
    return outcomes


POINTS = live(None)[0].points


def test_the_points_are_those_that_a_transaction_has():
    """And what was staged was read back from segment files, not only from memory."""
    assert set(POINTS) >= {
        "node gets OpenProducer", "node gets Push", "node gets CommitTransaction",
        "node gets AbortTransaction",
        "client gets ProducerOpened", "client gets PushAcked", "client gets Done",
        "decider hears CommitAsked", "decider hears Verified", "decider hears Applied",
        "decider hears AbortAsked", "decider hears StageFound",
        "decider says Verify", "decider says AppendDecision", "decider says Apply",
        "decider says Drop", "decider says Forget", "decider says Answer",
        "disk: write wal", "disk: sync wal", "disk: write groups", "disk: sync groups",
        "disk: rename checkpoint",
    }  # fmt: skip
    world, _ = live(None)
    assert sum(group.disk_reads for group in world.node._wiring.log._groups.values()) > 0


@pytest.mark.stress
@pytest.mark.timeout(900)
def test_the_power_may_fail_at_every_point():
    """By default at every kind of point, and at every fourth one of those that come often."""
    table: dict[str, Counter[str]] = {}
    for number, point in enumerate(POINTS):
        if not LONG and number % 4 and point in table:
            continue
        for survive in (True, False) if LONG else (number % 8 < 4,):
            world, outcomes = live(number, survive=survive)
            assert world.cut == point
            table.setdefault(point, Counter()).update(outcomes, cuts=1)
    print("\n" + shown(table))  # noqa: T201 - for whoever wants to see it: pytest -s
    assert set(table) == set(POINTS)
    for point, row in table.items():
        assert row["all"] + row["nothing"] >= row["cuts"], f"nothing was looked at: {point}"
    cuts = sum(row["cuts"] for row in table.values())
    assert sum(row["all"] for row in table.values()) > cuts
    assert sum(row["nothing"] for row in table.values()) > cuts


def shown(table: dict[str, Counter[str]]) -> str:
    lines = [f"{'the power fails when':34}{'times':>8}{'published':>11}{'dropped':>9}"]
    for point, row in sorted(table.items()):
        lines.append(f"{point:34}{row['cuts']:8}{row['all']:11}{row['nothing']:9}")
    return "\n".join(lines)


# --- planted bugs: the checks must be able to fail ------------------------------------------------


def acknowledge_a_stage_before_it_is_durable(monkeypatch):
    stage = Partition._stage

    def hasty(self, event):
        effects = stage(self, event)
        return [*effects, StageAcked(event.origin, event.batch.sequence)]

    handlers = {**Partition._handlers, StageBatch: hasty}
    monkeypatch.setattr(Partition, "_handlers", handlers)


def answer_before_it_is_applied(monkeypatch):
    became = Decider._became_decided

    def hasty(self, index, change):
        effects = became(self, index, change)
        return [*effects, *self._answer_askers(self.decided[change["id"]])]

    monkeypatch.setattr(Decider, "_became_decided", hasty)


def forget_how_far_a_roll_forward_had_come(monkeypatch):
    monkeypatch.setattr(Stages, "recognises", lambda self, batch: False)


def drop_what_others_have_staged_for_it(monkeypatch):
    def droppable(self, name, _producers):
        return [s for s in self.producers.values() if s.key.name == name and not s.leaving]

    monkeypatch.setattr(Stages, "droppable", droppable)


def use_up_the_number_that_was_aborted(monkeypatch):
    asked = Decider._commit_asked

    def strict(self, event):
        if event.number in self.dropped.of(event.transaction).values():
            return [Answer(event.origin, given_up(event.transaction, event.number))]
        return asked(self, event)

    monkeypatch.setitem(Decider._handlers, CommitAsked, strict)


def forget_what_is_staged_in_snapshots(monkeypatch):
    empty = {"stages": [], "applied": [], "forgotten": 0}
    monkeypatch.setattr(Stages, "snapshot", lambda self: empty)


MUTANTS = {  # and where to begin to look
    acknowledge_a_stage_before_it_is_durable: "node gets Push",
    answer_before_it_is_applied: "decider hears CommitAsked",
    drop_what_others_have_staged_for_it: "decider says Drop",
    use_up_the_number_that_was_aborted: "decider says Drop",
    forget_how_far_a_roll_forward_had_come: "decider says Apply",
    forget_what_is_staged_in_snapshots: "decider hears CommitAsked",
}


@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found_at_some_point(plant, monkeypatch):
    plant(monkeypatch)
    for number in range(POINTS.index(MUTANTS[plant]), len(POINTS)):
        try:
            live(number, survive=number % 2 == 0)
        except (AssertionError, KeyError):
            return
    pytest.fail(f"{plant.__name__} went unnoticed")


def test_a_planted_bug_in_retention_is_found(monkeypatch):
    """Segments with what is staged must stay, however old they are."""
    from tests.node.requests.test_transacting_in_hard_times import (
        test_retention_does_not_take_what_is_staged as story,
    )

    may_go = Checkpointer._may_go

    def careless(segment, log):
        held, log.held_index = log.held_index, None
        try:
            return may_go(segment, log)
        finally:
            log.held_index = held

    monkeypatch.setattr(Checkpointer, "_may_go", staticmethod(careless))
    with pytest.raises(AssertionError):
        story(World("retention"))
