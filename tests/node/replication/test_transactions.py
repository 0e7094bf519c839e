"""Transactions on topics that three nodes keep: whole or not there, whichever node dies when.

A node that dies stays dead until the transactions are over: the others do not need it.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from hocket import frames
from hocket.core.partition.events import MoveLogStart, Replayed
from hocket.node.replication.partition_machine import PartitionMachine
from hocket.wire import batch as batches
from tests.support.node.cluster import SECOND, Asking
from tests.support.node.spread import Attempt, Spread

LONG = os.environ.get("HOCKET_STRESS") == "long"
PARTITIONS = 3


def replicated(seed: str = "replicated", **options: object) -> Spread:
    return Spread(seed, partitions=PARTITIONS, replication=3, **options)  # type: ignore[arg-type]


def ends(nodes: Spread) -> list[int]:
    """How far each partition is, as its leader says."""
    nodes.until(lambda: nodes.is_led("t"), 30, "all partitions are led")
    return [nodes.hosted(partition).core.high_watermark for partition in range(PARTITIONS)]


def copies(nodes: Spread, partition: int) -> list[bytes]:
    """What each node that is up has applied of the partition."""
    found = []
    for machine in nodes.machines:
        if machine.node is not None:
            node = machine.node.node
            group = node._wiring.catalogue.topics["t"].groups[partition]
            found.append(b"%d %b" % node._copies._hosted[group].core.snapshot())
    return found


def holds(nodes: Spread, partition: int) -> list[tuple[int | None, int]]:
    """What each node keeps of the partition's log for what is staged: from where, and the room."""
    found = []
    for machine in nodes.machines:
        assert machine.node is not None
        node = machine.node.node
        log = node.store._groups[node._wiring.catalogue.topics["t"].groups[partition]]
        found.append((log.held_index, log.reserved_bytes))
    return found


def story(nodes: Spread, transaction: str) -> list[Attempt]:
    """A commit, an abort, and its number again; each has a digit of its own in the ends."""
    made = []
    for serial, (number, then, records) in enumerate(
        [(0, "commit", 1), (1, "abort", 10), (1, "commit", 100)]
    ):
        attempt = Attempt(nodes, transaction, number, records, range(PARTITIONS), serial=serial)
        attempt.stage()
        made.append(attempt.commit() if then == "commit" else attempt.abort())
    return made


def check(nodes: Spread, made: list[Attempt]) -> Counter[str]:
    found: Counter[str] = Counter()
    expected = 0
    for attempt in made:
        digits = [end // attempt.records % 10 for end in ends(nodes)]
        assert digits in ([0] * PARTITIONS, [1] * PARTITIONS), f"{attempt.outcome}: {digits}"
        if attempt.outcome in ("committed", "aborted"):
            assert digits[0] == (attempt.outcome == "committed"), (attempt.outcome, digits)
        expected += attempt.records * digits[0]
        found[f"{attempt.outcome} {digits[0]}"] += 1
    assert ends(nodes) == [expected] * PARTITIONS, "nothing else is there"
    return found


def check_copies(nodes: Spread) -> None:
    """When all is over, all copies have applied the same, and keep nothing for stages."""
    nodes.until(lambda: nodes.is_at_rest(), 60, "nothing is staged, nothing is unfinished")
    for partition in range(PARTITIONS):
        nodes.until(lambda p=partition: len(set(copies(nodes, p))) == 1, 30, "the same everywhere")
        assert holds(nodes, partition) == [(None, 0)] * len(nodes.machines)


def test_a_transaction_is_staged_decided_and_applied_on_all_copies():
    nodes = replicated()
    for number in range(3):
        transaction = nodes.id_decided_at(number, f"job{number}-")
        attempt = Attempt(nodes, transaction, 0, 1, range(PARTITIONS), serial=number).stage()
        nodes.run(2 * SECOND)
        assert ends(nodes) == [number] * PARTITIONS, "nobody sees what is staged"
        for partition in range(PARTITIONS):
            assert len(set(copies(nodes, partition))) == 1
            assert transaction.encode() in copies(nodes, partition)[0]
            held = holds(nodes, partition)
            assert held[0][0], "what is staged is kept"
            assert len(set(held)) == 1, "with room for it, and by all"
        assert attempt.commit().outcome == "committed"
        assert ends(nodes) == [number + 1] * PARTITIONS
    check_copies(nodes)


@pytest.mark.parametrize("decided_at", [0, 1, 2])
def test_only_who_still_leads_says_that_something_is_not_staged(decided_at: int):
    """An old leader that does not know of the next one does not know what was staged there."""
    nodes = replicated()
    attempt = Attempt(nodes, nodes.id_decided_at(decided_at), 0, 1, range(PARTITIONS), serial=0)
    attempt.stage()
    hosted = nodes.hosted(0)
    stages, authority = hosted.core.stages, hosted.copy.authority
    known, stages.producers = stages.producers, {}
    confirm = authority.confirm

    def confirmed(answered):
        stages.producers = known  # by the time that a majority has answered, all of it is known
        confirm(answered)

    authority.confirm = confirmed
    assert attempt.commit().outcome == "committed"
    assert ends(nodes) == [1] * PARTITIONS
    check_copies(nodes)


def steps() -> list[str]:
    nodes = replicated()
    nodes.begin_points()
    check(nodes, story(nodes, nodes.id_decided_at(1)))
    return nodes.points


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_transaction_is_whole_or_not_there_whichever_node_dies_at_whichever_step(victim: int):
    """The id is decided at node 1; node 0 is the root, too; each leads a partition."""
    count = len(steps())
    outcomes: Counter[str] = Counter()
    for kill_at in range(0 if LONG else victim, count, 1 if LONG else 11):
        nodes = replicated(f"replicated/{kill_at}", victim=victim, down_us=30 * SECOND)
        nodes.begin_points()
        nodes.kill_at = kill_at
        try:
            made = story(nodes, nodes.id_decided_at(1))
            outcomes += check(nodes, made)
            nodes.until(lambda n=nodes: all(m.node for m in n.machines), 60, "it is back")
            check_copies(nodes)
            check(nodes, made)
        except AssertionError as error:
            raise AssertionError(f"node {victim} dies when {nodes.killed} ({kill_at})") from error
    assert outcomes["committed 1"] > 2, outcomes


def test_what_is_prepared_outlives_everybody():
    """Its client is gone, and each node dies, one by one and all at once."""
    nodes = replicated()
    attempt = Attempt(nodes, "job", 0, 7, range(PARTITIONS), serial=1).stage()
    given_up = Attempt(nodes, "job", 1, 3, range(PARTITIONS), serial=2).stage()
    for number in range(3):
        nodes.crash(number)
        nodes.run(3 * SECOND)
        nodes.start(number)
        nodes.until(lambda: nodes.is_led("t"), 60, "all is led")
        nodes.run(SECOND)
    for number in range(3):
        nodes.crash(number)
    for number in range(3):
        nodes.start(number)
    nodes.until(lambda: nodes.is_led("t"), 60, "all is led")
    nodes.run(70 * SECOND)  # meanwhile the decider is asked about what is left over
    assert ends(nodes) == [0] * PARTITIONS
    assert attempt.commit().outcome == "committed"
    assert given_up.abort().outcome == "aborted"
    assert ends(nodes) == [7] * PARTITIONS
    check_copies(nodes)


def test_a_new_leader_goes_on_with_a_roll_forward_where_the_old_one_was(monkeypatch):
    """It has appended some of the batches, in steps, when it dies."""
    monkeypatch.setattr("hocket.node.background.roll_forward.STEP_BYTES", 1)
    nodes = replicated()
    transaction = nodes.id_decided_at(0)
    leader = nodes.homes("t")[2]
    serials = range(1, 9)
    one = Attempt(nodes, transaction, 0, 1, [2], serial=0).stage()
    for serial in serials:
        another = Attempt(nodes, transaction, 0, 1, [2], serial=serial).stage()
        one.named[10 + serial] = another.named[2]
    hosted = nodes.hosted(2)
    rolling = nodes.machines[leader].node.node.transactions._rolling  # type: ignore[union-attr]
    append, appended = rolling._append, []

    def append_some(job, hosted, following):
        if len(appended) == 4:
            nodes.scheduler.after(50_000, lambda: nodes.machines[leader].node and
                                  nodes.crash(leader))  # fmt: skip
            return False
        appended.append(following)
        return append(job, hosted, following)

    rolling._append = append_some
    assert one.commit().outcome == "committed"
    assert hosted.core.high_watermark == 4
    assert nodes.homes("t")[2] != leader
    assert nodes.hosted(2).core.high_watermark == 9
    nodes.start(leader)
    nodes.until(lambda: nodes.is_led("t"), 60, "all is led")
    check_copies(nodes)
    assert nodes.hosted(2).core.high_watermark == 9


def test_a_number_that_was_applied_is_not_applied_again():
    """Another client stages the same once more, when the partition is led by another node."""
    nodes = replicated()
    leader = nodes.homes("t")[0]
    transaction = nodes.id_decided_at((leader + 1) % 3)
    attempt = Attempt(nodes, transaction, 0, 5, [0], serial=1).stage()
    assert attempt.commit().outcome == "committed"
    nodes.crash(leader)
    again = Attempt(nodes, transaction, 0, 5, [0], serial=2).stage()
    assert again.commit().outcome == "committed"
    other = Attempt(nodes, transaction, 0, 6, [0], serial=3).stage()
    assert other.commit().outcome == "transactionConflict"
    assert nodes.hosted(0).core.high_watermark == 5, "done once"
    nodes.start(leader)


def publish_and_remove(nodes: Spread, count: int) -> None:
    """So many records, in segments of every node that is up; then retention removes them."""
    leader = nodes.homes("t")[0]
    for number in range(count):
        record = batches.encode([b"%d" % number * 100], timestamps=5)
        published = Asking(nodes, leader).ask(frames.Publish, record, topic="t", partition=0)
        assert isinstance(published, frames.Published)
        checkpoint_all(nodes)
    node = nodes.machines[leader].node
    assert node is not None
    hosted = nodes.hosted(0)
    start = MoveLogStart(hosted.core.high_watermark)
    nodes.machines[leader].turn(lambda: node.node._wiring.partitions.step(hosted, start))
    nodes.run(2 * SECOND)
    checkpoint_all(nodes)


def checkpoint_all(nodes: Spread) -> None:
    up = [each.node for each in nodes.machines if each.node is not None]
    done: list[object] = []
    for each in up:
        each.node.store.checkpoint_now(done.append)
    nodes.until(lambda: len(done) == len(up), 10, "all have a checkpoint")


def retention_and_another_leader() -> None:
    """What is staged stays, wherever it may have to be published."""
    nodes = replicated(seed="retention", segment_bytes=1024)
    attempt = Attempt(nodes, "job", 0, 3, [0], serial=1).stage()
    publish_and_remove(nodes, 20)
    first = nodes.homes("t")[0]
    for number in {0, 1, 2} - {first}:  # so that they have it on their disks alone
        nodes.crash(number)
        nodes.start(number)
        nodes.until(lambda: nodes.is_led("t"), 60, "all is led")
        nodes.until(lambda: len(set(copies(nodes, 0))) == 1, 60, "it has come as far")
    first = nodes.homes("t")[0]
    nodes.crash(first)
    nodes.until(lambda: nodes.is_led("t"), 60, "another node leads")
    assert attempt.commit().outcome == "committed"
    assert nodes.hosted(0).core.high_watermark == 23
    nodes.start(first)
    nodes.until(lambda: nodes.is_led("t"), 60, "all is led")
    check_copies(nodes)


def test_retention_removes_nothing_that_is_staged_from_any_copy():
    retention_and_another_leader()


def test_a_copy_that_keeps_nothing_for_stages_is_noticed(monkeypatch):
    """The planted bug to rule 5: only who leads keeps what is staged."""
    monkeypatch.setattr(PartitionMachine, "apply", applied_and_nothing_held)
    with pytest.raises(AssertionError):
        retention_and_another_leader()


def applied_and_nothing_held(machine: PartitionMachine, entry: Replayed) -> None:
    machine.core.step(entry)
    machine._log.set_log_start(machine._hosted.group, machine.core.start)


def test_a_copy_that_lacks_much_is_sent_what_is_staged_with_the_state():
    """Retention has removed what it lacks of the log, but for what is staged there."""
    nodes = replicated(seed="far behind", segment_bytes=1024)
    leader = nodes.homes("t")[0]
    away = (leader + 1) % 3
    nodes.crash(away)
    nodes.until(lambda: nodes.is_led("t"), 60, "all is led")
    attempt = Attempt(nodes, "job", 0, 3, [0], serial=1).stage()
    publish_and_remove(nodes, 20)
    leader = nodes.homes("t")[0]
    nodes.start(away)
    nodes.until(lambda: nodes.is_led("t"), 60, "all is led")
    nodes.until(lambda: len(set(copies(nodes, 0))) == 1, 60, "it has come as far")
    assert len(set(holds(nodes, 0))) == 1
    nodes.crash(leader)
    nodes.until(lambda: nodes.is_led("t"), 60, "one of the others leads")
    assert attempt.commit().outcome == "committed"
    assert nodes.hosted(0).core.high_watermark == 23
    nodes.start(leader)
    nodes.until(lambda: nodes.is_led("t"), 60, "all is led")
    check_copies(nodes)
