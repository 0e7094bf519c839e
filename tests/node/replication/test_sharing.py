"""Shared indexes of partitions that three nodes keep: who leads next leases nothing twice."""

from __future__ import annotations

import pytest

from hocket import frames
from hocket.core.sharing.reservation import RUN
from hocket.frames import packed
from tests.support.node.cluster import SECOND, Asking, Nodes
from tests.support.node.replicated import Sharing, leader_of, publish

LEASE = 5 * SECOND
ELECTION = 400_000  # the least timeout of these nodes


@pytest.fixture
def nodes() -> Nodes:
    nodes = Nodes()
    Asking(nodes, 0).create("orders", replication=3, disk_retention_us=None)
    nodes.settle()
    leader_of(nodes)
    return nodes


def consumer(nodes: Nodes, identity: int = 1, **more: object) -> Sharing:
    found = Sharing(nodes, leader_of(nodes), identity)
    opened = found.open(**more)
    assert isinstance(opened, frames.SubscriptionOpened), opened
    return found


def node_of(nodes: Nodes, number: int):  # type: ignore[no-untyped-def]
    member = nodes.machines[number].node
    assert member is not None
    return member.node


def hosted_at(nodes: Nodes, number: int):  # type: ignore[no-untyped-def]
    of_node = node_of(nodes, number)._copies._hosted.values()
    (hosted,) = [each for each in of_node if each.core.topic == "orders"]
    return hosted


def replica_of(nodes: Nodes, number: int):  # type: ignore[no-untyped-def]
    return hosted_at(nodes, number).copy


def state_of(nodes: Nodes, number: int):  # type: ignore[no-untyped-def]
    """What a copy has applied of the index."""
    return hosted_at(nodes, number).core.shares["i"]


def fail_over(nodes: Nodes) -> int:
    first = leader_of(nodes)
    nodes.crash(first)
    second = leader_of(nodes)
    assert second != first
    return first


def test_messages_are_leased_and_acked_and_all_copies_know_it(nodes):
    publish(nodes, 3)
    one = consumer(nodes)
    assert one.until_leased(3) == [0, 1, 2]
    settled = one.settle("ack", 0, 1)
    assert isinstance(settled, frames.Settled)
    assert not settled.refused
    nodes.run(SECOND)
    for number in range(3):
        state = state_of(nodes, number)
        assert (state.start, state.high) == (2, RUN)
        assert state.maps() == (b"\0", b"\1")


def test_what_was_acked_is_not_leased_by_the_next_leader(nodes):
    publish(nodes, 5)
    one = consumer(nodes)
    one.until_leased(5)
    one.settle("ack", 1, 3)
    fail_over(nodes)
    assert consumer(nodes, 2).work(3) == [0, 2, 4]


def test_the_next_leader_withholds_what_may_be_leased_and_nothing_behind(nodes):
    publish(nodes, RUN + 5)
    one = consumer(nodes)
    one.until_leased(10)
    one.settle("ack", *range(10))  # so that all that follows is leased to nobody
    assert one.ask(frames.CloseHandle, handle=one.handle)
    first = leader_of(nodes)
    high = state_of(nodes, first).high
    assert high == RUN
    fail_over(nodes)
    began_us = nodes.now_us
    two = consumer(nodes, 2)
    assert two.until_leased(5) == list(range(high, RUN + 5))
    assert nodes.now_us - began_us < LEASE // 2
    two.settle("ack", *range(high, RUN + 5))
    two.begin(frames.Credit, handle=two.handle, bytes=0, messages=5)
    assert two.until_leased(10)[5:10] == [10, 11, 12, 13, 14]
    # The former leader may have lived on for a while, and leased until its authority was over.
    assert nodes.now_us - began_us >= LEASE + ELECTION - SECOND // 20


def test_who_gives_up_the_wait_has_no_wait(nodes):
    publish(nodes, 5)
    one = consumer(nodes, failover="fast")
    one.until_leased(5)
    fail_over(nodes)
    began_us = nodes.now_us
    two = consumer(nodes, 2, failover="fast")
    assert two.until_leased(5) == [0, 1, 2, 3, 4]
    assert nodes.now_us - began_us < LEASE // 2


def test_a_consumer_keeps_what_it_claims_at_the_next_leader(nodes):
    publish(nodes, 4)
    one = consumer(nodes)
    one.until_leased(4)
    one.settle("ack", 0)
    fail_over(nodes)
    again = Sharing(nodes, leader_of(nodes))
    again.open(held=(1, 2))
    assert again.until_leased(1) == [3]  # it had not claimed that, so it was lost on the way
    settled = again.settle("ack", 1)
    assert not settled.refused
    extended = again.settle("extend", 2, duration_us=4 * LEASE)
    assert not extended.refused
    nodes.run(2 * LEASE)
    assert not again.settle("ack", 2).refused


def test_an_extended_lease_outlives_the_leader(nodes):
    publish(nodes, 2)
    one = consumer(nodes, prefetch=1)
    assert one.until_leased(1) == [0]
    assert not one.settle("extend", 0, duration_us=4 * LEASE).refused
    fail_over(nodes)
    began_us = nodes.now_us
    two = consumer(nodes, 2)
    assert two.work(2) == [1, 0]
    assert nodes.now_us - began_us > 3 * LEASE


def test_counts_are_those_of_before(nodes):
    publish(nodes, 1)
    one = consumer(nodes)
    one.until_leased(1)
    one.settle("nack", 0)
    one.until_leased(2)
    assert one.leased == [(0, 1), (0, 2)]
    fail_over(nodes)
    two = consumer(nodes, 2)
    two.until_leased(1)
    assert two.leased == [(0, 3)]


def test_a_nack_with_a_delay_is_waited_for_by_the_next_leader(nodes):
    publish(nodes, 2)
    one = consumer(nodes)
    one.until_leased(2)
    one.settle("nack", 0, duration_us=20 * SECOND)
    nacked_us = nodes.now_us
    one.settle("ack", 1)
    fail_over(nodes)
    two = consumer(nodes, 2)
    assert two.until_leased(1, 40) == [0]
    assert nodes.now_us - nacked_us >= 20 * SECOND


def test_a_leader_that_stood_still_leases_nothing(nodes):
    """Nor answers it for anything: its consumers are told to look for another node."""
    publish(nodes, 5)
    first = leader_of(nodes)
    one = consumer(nodes, prefetch=2)
    assert one.until_leased(2) == [0, 1]
    nodes.machines[first].stall()
    one.begin(frames.Credit, handle=one.handle, bytes=0, messages=3)
    acked = one.begin_settling("ack", 0)
    nodes.run(3 * SECOND)
    assert leader_of(nodes) != first
    two = consumer(nodes, 2, prefetch=5)
    nodes.machines[first].resume()
    nodes.run(SECOND)
    assert one.offsets == [0, 1]
    if one.is_answered(acked):
        assert isinstance(one.answer_to(acked), frames.Failure)
    assert any(isinstance(frame, frames.HandleEnded) for frame in one.told) or one.is_lost
    assert sorted(two.work(5)) == [0, 1, 2, 3, 4]


def test_a_leader_that_wakes_in_the_middle_of_a_turn_leases_and_extends_nothing(nodes, monkeypatch):
    """It has yet to find out that it stood still, and another one leads."""
    publish(nodes, 5)
    first = leader_of(nodes)
    one = consumer(nodes, prefetch=2)
    assert one.until_leased(2) == [0, 1]
    machine = nodes.machines[first]
    assert machine.node is not None
    node = machine.node.node
    sent: list[frames.Frame] = []
    monkeypatch.setattr(node._wiring.network, "send", lambda _to, frame, *_more: sent.append(frame))
    credit = frames.Credit(0, one.handle, 0, 1)
    node.received(one.connection, credit, memoryview(b""))
    assert [type(frame) for frame in sent] == [frames.Lease]
    machine.stall()
    nodes.run(4 * SECOND)
    assert leader_of(nodes) != first
    sent.clear()
    node.received(one.connection, credit, memoryview(b""))
    extend = frames.Settle(9, one.handle, "extend", packed([0, 0, 1]))
    node.received(one.connection, extend, memoryview(b""))
    assert sent == []


def test_settlements_that_wait_are_told_that_they_may_have_happened(nodes):
    publish(nodes, 1)
    one = consumer(nodes)
    one.until_leased(1)
    first = leader_of(nodes)
    for number in range(3):
        if number != first:
            nodes.machines[number].stall()
    acked = one.begin_settling("ack", 0)
    nodes.run(4 * SECOND)
    answer = one.answer_to(acked)
    assert isinstance(answer, frames.Failure)
    assert (answer.code, answer.may_have_happened) == ("notHere", True)
    (ended,) = [frame for frame in one.told if isinstance(frame, frames.HandleEnded)]
    assert ended.code == "notHere"


def test_settlements_of_who_has_gone_are_forgotten_with_the_leadership(nodes):
    publish(nodes, 1)
    one = consumer(nodes)
    one.until_leased(1)
    first = leader_of(nodes)
    for number in range(3):
        if number != first:
            nodes.machines[number].stall()
    one.begin_settling("ack", 0)
    nodes.run(SECOND // 10)
    settlements = node_of(nodes, first)._wiring.shares._settlements
    assert len(settlements._waiting) == 1
    node_of(nodes, first).disconnected(one.connection)
    nodes.run(4 * SECOND)
    assert settlements._waiting == {}


def test_who_hands_over_extends_no_lease_and_says_so(nodes):
    """To one that cannot take over just now: until that is known, the consumer asks again."""
    publish(nodes, 1)
    one = consumer(nodes)
    one.until_leased(1)
    first = leader_of(nodes)
    heir = (first + 1) % 3
    nodes.machines[heir].stall()
    nodes.run(SECOND // 10)
    replica_of(nodes, first).hand_over(f"n{heir}")
    extended = one.settle("extend", 0)
    assert isinstance(extended, frames.Failure)
    assert extended.code == "busy"
    nodes.run(SECOND)
    assert not one.settle("extend", 0).refused


def test_who_cannot_hand_over_leases_on(nodes):
    first = leader_of(nodes)
    one = consumer(nodes)
    for nobody in (f"n{first}", "n77"):
        replica_of(nodes, first).hand_over(nobody)
        publish(nodes, 1)
    assert one.until_leased(2) == [0, 1]
    assert replica_of(nodes, first).leader == f"n{first}"


def test_keys_keep_their_order_across_the_leaders(nodes):
    publish(nodes, 4, keys=2)
    one = consumer(nodes, mode="key_shared", prefetch=1)
    assert one.until_leased(1) == [0]
    fail_over(nodes)
    two = consumer(nodes, 2, mode="key_shared")
    nodes.run(LEASE // 2)
    again = Sharing(nodes, leader_of(nodes))
    again.open(mode="key_shared", prefetch=1, held=(0,))
    nodes.run(LEASE // 2)
    assert two.offsets in ([], [1], [1, 3])  # 0, of the same key as 2, is with the other consumer
    assert not again.settle("ack", 0).refused
    nodes.until(lambda: 2 in two.offsets + again.offsets, 20, "the next one of the key is leased")


def test_a_deleted_index_is_gone_at_the_next_leader(nodes):
    publish(nodes, 1)
    one = consumer(nodes)
    one.until_leased(1)
    one.done(frames.DeleteIndex, topic="orders", index="i", partitions=packed([0]))
    fail_over(nodes)
    two = consumer(nodes, 2, start=frames.Start("latest"))
    publish(nodes, 1)
    assert two.until_leased(1) == [1]


def test_an_index_that_is_put_back_is_reserved_anew(nodes):
    publish(nodes, 3)
    one = consumer(nodes)
    one.until_leased(3)
    one.settle("ack", 0, 1, 2)
    put = one.ask(
        frames.SeekIndex, topic="orders", index="i", start=frames.Start("offset", 1), partition=0
    )
    assert isinstance(put, frames.Offsets)
    (moved,) = [frame for frame in one.told if isinstance(frame, frames.Moved)]
    assert moved.offset == 1
    one.until_leased(5)
    assert one.offsets[3:] == [1, 2]
    assert state_of(nodes, leader_of(nodes)).high >= RUN


def test_with_one_replica_nothing_is_reserved():
    nodes = Nodes()
    Asking(nodes, 0).create("orders", replication=1)
    nodes.settle()
    publish(nodes, 3)
    one = consumer(nodes)
    assert one.until_leased(3) == [0, 1, 2]
    node = nodes.machines[leader_of(nodes)].node
    assert node is not None
    (hosted,) = [h for h in node.node._wiring.partitions if h.core.topic == "orders"]
    assert hosted.core.shares["i"].high == 0
