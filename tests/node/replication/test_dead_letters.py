"""Dead letters of topics that three nodes keep: one for each message, whoever dies when."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from hocket import frames
from hocket.frames import packed, unpacked
from hocket.node.background import dead_letters
from hocket.wire import batch as batches
from tests.support.node.cluster import SECOND, Asking, Nodes
from tests.support.node.replicated import Sharing, leader_of, publish

LONG = os.environ.get("HOCKET_STRESS") == "long"
DEAD = "orders.dlq"
COUNT = 5
# How long after a reject was told somebody dies: a commit, and a message, take about a millisecond.
MOMENTS = range(0, 60_000, 1_500) if LONG else (0, 6_000, 30_000)


def make() -> Nodes:
    nodes = Nodes()
    Asking(nodes, 0).create("orders", replication=3, disk_retention_us=None)
    nodes.settle()
    publish(nodes, COUNT)
    return nodes


def there_is(nodes: Nodes, topic: str) -> bool:
    """Also while nodes are down, and whoever is up may not be the root."""
    return any(
        topic in machine.node.node.topics for machine in nodes.machines if machine.node is not None
    )


def letters(nodes: Nodes) -> Counter[int]:
    """How many dead letters there are of each message."""
    client = Asking(nodes, leader_of(nodes, DEAD))
    found: Counter[int] = Counter()
    received = client.received

    def take(frame: frames.Frame, payload: memoryview) -> None:
        received(frame, payload)
        if isinstance(frame, frames.Deliver):
            for info in batches.whole_batches(payload):
                for headers in batches.parse(payload, info.position).headers():
                    found[int(headers["hocket-dlq-offset"] or b"")] += 1

    client.received = take  # type: ignore[method-assign]
    opened = client.ask(frames.OpenSubscription, topic=DEAD, credit_bytes=1 << 20)
    assert isinstance(opened, frames.SubscriptionOpened), opened
    nodes.run(SECOND)
    return found


def settled(nodes: Nodes) -> int:
    """Up to where all messages are settled, as their leader knows it."""
    node = nodes.machines[leader_of(nodes)].node
    assert node is not None
    (hosted,) = [each for each in node.node._wiring.partitions if each.core.topic == "orders"]
    return hosted.core.shares["i"].start


def reject_the_rest(nodes: Nodes, identity: int) -> None:
    nodes.run(6 * SECOND)  # what may be leased is withheld
    one = Sharing(nodes, leader_of(nodes), identity)
    one.open(max_deliveries=9)
    while settled(nodes) < COUNT:
        known = len(one.leased)
        nodes.run(SECOND // 5)
        if one.offsets[known:]:
            one.settle("reject", *one.offsets[known:])


def fill(nodes: Nodes) -> Sharing:
    one = Sharing(nodes, leader_of(nodes))
    one.open()
    one.until_leased(COUNT)
    return one


def test_a_topic_of_dead_letters_has_the_replicas_of_its_topic():
    nodes = make()
    one = fill(nodes)
    one.settle("reject", *range(COUNT))
    nodes.until(lambda: settled(nodes) == COUNT, 20, "all are among the dead letters")
    assert nodes.root.node is not None
    assert nodes.root.node.node.topics[DEAD].replication == 3
    assert letters(nodes) == dict.fromkeys(range(COUNT), 1)


@pytest.mark.stress
@pytest.mark.parametrize("victim", ["the topic's leader", "the dead letters' leader"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_each_message_that_dies_makes_one_dead_letter(victim, moment):
    nodes = make()
    Asking(nodes, leader_of(nodes)).create(DEAD, replication=3)
    nodes.settle()
    nodes.run(SECOND)
    one = fill(nodes)
    one.begin_settling("reject", *range(COUNT))
    nodes.run(moment)
    died = leader_of(nodes, "orders" if victim == "the topic's leader" else DEAD)
    nodes.crash(died)
    reject_the_rest(nodes, 2)
    nodes.start(died)
    nodes.run(5 * SECOND)
    assert letters(nodes) == dict.fromkeys(range(COUNT), 1)


@pytest.mark.parametrize("piece_bytes", [1, 1 << 20])
def test_retention_that_cuts_what_dies_doubles_no_dead_letter(monkeypatch, piece_bytes):
    """They are stored, and their leader dies before it can say so; meanwhile some are deleted."""
    monkeypatch.setattr(dead_letters, "PIECE_BYTES", piece_bytes)
    nodes = make()
    first = leader_of(nodes)
    Asking(nodes, first).create(DEAD, replication=3)
    nodes.settle()
    nodes.run(SECOND)
    one = fill(nodes)
    node = nodes.machines[first].node
    assert node is not None
    monkeypatch.setattr(node.node._wiring.shares, "dead_lettered", lambda *_about: None)
    one.settle("reject", *range(COUNT))
    nodes.run(SECOND)
    assert letters(nodes) == dict.fromkeys(range(COUNT), 1)
    one.done(frames.DeleteMessages, topic="orders", offsets=packed([3]))
    nodes.run(SECOND)
    nodes.crash(first)
    nodes.until(lambda: settled(nodes) == COUNT, 20, "all are among the dead letters")
    assert letters(nodes) == dict.fromkeys(range(COUNT), 1)


def test_dead_letters_are_given_back_at_the_next_leader():
    nodes = make()
    one = fill(nodes)
    one.settle("reject", 1, 3)
    one.settle("ack", 0, 2, 4)
    nodes.until(lambda: settled(nodes) == COUNT, 20, "all are among the dead letters")
    nodes.crash(leader_of(nodes))
    client = Asking(nodes, leader_of(nodes))
    asked = {
        "topic": "orders", "index": "i", "partition": 0, "dead_partition": 0,
        "offsets": packed([1, 3]), "letters": packed([0, 1]),
    }  # fmt: skip
    revived = client.ask(frames.Revive, **asked)
    assert isinstance(revived, frames.Offsets), revived
    assert unpacked(revived.offsets) == [1, 3]
    again = client.ask(frames.Revive, **asked)
    assert isinstance(again, frames.Offsets), again
    assert unpacked(again.offsets) == []
    two = Sharing(nodes, leader_of(nodes), 2)
    two.open()
    assert two.work(2) == [1, 3]
