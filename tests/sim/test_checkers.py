"""Every checker can fail: it finds the state that its sentence excludes, and lets the right one be.

The states are made by hand. That the checkers find bugs in whole runs is in `test_mutants.py`.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import pytest

from hocket.core.relay.settings import RelaySettings
from hocket.core.ring.contact import Contact
from hocket.core.ring.settings import RingSettings
from hocket.model import PartitionId
from hocket.sim import checkers
from hocket.sim.checkers import CHECKERS, OF_THE_RING, Violation, all_checkers
from hocket.sim.checkers.checker import Checker
from hocket.sim.checkers.each_side_of_a_cut_becomes_a_ring import PERIODS
from hocket.sim.checkers.lookups_find_the_successor import DEAD_US
from hocket.sim.tree_view import TreeView
from tests.support.sim.rings import Ring, at, ideal, member, rings

RING = (10, 20, 30, 40, 50, 60)
PARTITION_ID = PartitionId("t", 0)


@dataclass
class Consumer:
    number: int = 1
    partition_id: PartitionId = PARTITION_ID
    log_id: PartitionId = PARTITION_ID
    diary: list = field(default_factory=list)
    deliveries: int = 0
    next_offset: int = 0
    slow: bool = False
    machine: object = None
    started_at_us: int = 0
    credit_bytes: int = 100
    outstanding_bytes: int = 0

    def get(self, *offsets: int, value: bytes = b"v") -> None:
        self.deliveries += 1
        for offset in offsets:
            self.diary.append((offset, value))
            self.next_offset = offset + 1


@dataclass
class Lookup:
    key: int
    owners: tuple
    truth: tuple = (None, None)
    asked_at_us: int = 0
    ended_at_us: int = 0
    route: tuple = ()
    machine: str = "n1"


class Cluster:
    """What checkers look at."""

    def __init__(self, members: dict | None = None, r: int = 2) -> None:
        self.cores: list[Ring] = rings((members or ideal(RING, r)).values(), r)
        self.successors = r
        self.events = 0
        self.now_us = 0
        self.deceived = False
        self.is_safety_phase = True
        self.options = SimpleNamespace(
            keyed=False,
            guarded=True,
            record_bytes_max=10,
            faults=(),
            temper="calm",
            relay=RelaySettings,
        )
        self.fails: list[tuple[int, Contact]] = []
        self.relay_crashes: list[tuple[int, Contact]] = []
        self.lookups: list[Lookup] = []
        self.consumers: list[Consumer] = []
        self.machines: list[SimpleNamespace] = []
        self.faults = SimpleNamespace(counts={})
        self.links = SimpleNamespace(
            faults={}, clogged=[], is_cut_off=lambda _address: False, encoded=0, miscoded=""
        )
        on_the_ring = SimpleNamespace(core=SimpleNamespace(is_on_the_ring=True))
        self.owner = SimpleNamespace(node=SimpleNamespace(ring=on_the_ring))
        self.workload = SimpleNamespace(
            owners={PARTITION_ID: (self.owner,)}, given_up={}, subscribers=[]
        )
        self.copies = SimpleNamespace(moved=[], stories={})
        self.records: dict[int, bytes] = {}
        self.end = 0
        self.checkers = all_checkers(self)

    def rings(self) -> list[Ring]:
        return self.cores

    def committed(self, _partition_id: PartitionId) -> dict[int, bytes]:
        return self.records

    def committed_end(self, _partition_id: PartitionId) -> int:
        return self.end

    def checker(self, name: str) -> Checker:
        return next(each for each in self.checkers if each.name == name)

    def look(self, name: str, *, after_us: int = 1_000) -> None:
        self.events += 1
        self.now_us += after_us
        self.checker(name).after_event()

    def become(self, *members, without: tuple[int, ...] = ()) -> None:
        """These members' states are these now."""
        for core in rings(members, self.successors):
            self.cores = [each for each in self.cores if each.me.node != core.me.node] + [core]
        self.cores = [each for each in self.cores if each.me.position not in without]

    def add_relay(self, node: str, parent: str | None, children: tuple[str, ...] = ()) -> None:
        relay = SimpleNamespace(
            me=named(node),
            parent=None if parent is None else named(parent),
            is_owner=parent is None,
            is_leader=parent is None,
            children=Children(children),
            consumers={},
            settings=SimpleNamespace(children_max=2),
        )
        relays = SimpleNamespace(cores={PARTITION_ID: relay})
        node_ = SimpleNamespace(relays=relays)
        self.machines.append(
            SimpleNamespace(name=node, node=node_, stalled=False, address=f"{node}:1")
        )


def named(node: str) -> Contact:
    return Contact(1, node, 1, f"{node}:1")


class Children(tuple):
    @property
    def contacts(self) -> tuple[Contact, ...]:
        return tuple(map(named, self))


def begun(members: dict | None = None, r: int = 2) -> Cluster:
    """A cluster whose ring has been ideal, so that the invariants are demanded."""
    cluster = Cluster(members, r)
    for checker in cluster.checkers:
        if checker.looks_at in ("ring", "tree"):
            checker.after_event()
    return cluster


# For each invariant: what the ring turns into, and what it may turn into.
BROKEN_RINGS = {
    "every_member_has_a_live_successor": [member(10, [15, 25], 60)],
    "there_are_enough_principals": [member(10, [60, 20], 60)],
    "successor_lists_are_ordered": [member(10, [30, 20], 60)],
    "successor_lists_have_no_duplicates": [member(10, [20, 20], 60)],
    "principals_are_on_the_ring": [member(60, [], 50)],
    "there_is_one_ordered_ring": [member(30, [10, 20], 20), member(60, [40, 50], 50)],
    "appendages_are_connected": [member(25, [], 20)],
    "only_a_failure_loses_a_principal": [member(10, [30, 40], 60)],
    "a_ring_that_is_not_ideal_can_move": [
        member(10, [30, 50], 50), member(30, [50, 10], 10), member(50, [10, 30], 30),
        member(20, [], None), member(40, [], None), member(60, [], None),
    ],
}  # fmt: skip
FINE_RINGS = {
    "every_member_has_a_live_successor": [member(10, [15, 30], 60)],
    "there_are_enough_principals": [member(10, [30, 40], 60)],
    "successor_lists_are_ordered": [member(50, [60, 20], 40)],
    "successor_lists_have_no_duplicates": [member(10, [], 60)],
    "principals_are_on_the_ring": [member(15, [20, 30], 10)],
    "there_is_one_ordered_ring": [member(15, [20, 30], 10)],
    "appendages_are_connected": [member(25, [30, 40], 20), member(24, [25, 30], 20)],
    "only_a_failure_loses_a_principal": [member(25, [30, 40], 20)],
    "a_ring_that_is_not_ideal_can_move": [member(25, [30, 40], 20)],
}


@pytest.mark.parametrize("name", BROKEN_RINGS)
def test_an_invariant_of_the_ring_can_be_broken(name):
    cluster = begun()
    cluster.become(*BROKEN_RINGS[name])
    with pytest.raises(Violation) as caught:
        cluster.look(name)
    assert caught.value.sentence == cluster.checker(name).sentence


@pytest.mark.parametrize("name", FINE_RINGS)
def test_a_ring_that_only_changes_breaks_no_invariant(name):
    cluster = begun()
    cluster.become(*FINE_RINGS[name])
    seen = cluster.checker(name).seen
    cluster.look(name)
    assert cluster.checker(name).seen == seen + 1


@pytest.mark.parametrize("name", BROKEN_RINGS)
def test_nothing_is_demanded_of_those_who_were_deceived(name):
    for spoil in ("deceived", "unguarded", "small"):
        cluster = begun()
        cluster.become(*BROKEN_RINGS[name])
        if spoil == "deceived":
            cluster.deceived = True
        elif spoil == "unguarded":
            cluster.options.guarded = False
        else:
            cluster.cores.append(Ring(at(70), standing="small"))
        seen = cluster.checker(name).seen
        cluster.look(name)
        assert cluster.checker(name).seen == seen


def test_the_invariants_are_demanded_from_the_first_ideal_ring_on():
    name = "every_member_has_a_live_successor"
    cluster = Cluster(ideal(RING, 2) | {10: member(10, [15], 60)})
    cluster.look(name)
    assert cluster.checker(name).seen == 0
    cluster.become(member(10, [20, 30], 60))
    cluster.look(name)
    assert cluster.checker(name).seen == 1
    few = begun(ideal((10, 20), 2))  # fewer than the proof begins with
    assert few.checker(name).seen == 0


def test_a_principal_that_fails_is_no_loss_but_one_that_is_only_gone_is():
    name = "only_a_failure_loses_a_principal"
    cluster = begun()
    cluster.fails.append((1, at(30)))
    cluster.become(without=(30,))
    cluster.look(name)
    cluster.become(without=(40,))
    with pytest.raises(Violation, match="n40/1 is no member any more"):
        cluster.look(name)


def test_principals_are_compared_only_when_nobody_is_asking():
    name = "only_a_failure_loses_a_principal"
    cluster = begun()
    cluster.become(member(10, [30, 40], 60, asking=True))
    cluster.look(name)
    assert cluster.checker(name).seen == 0
    cluster.cores.append(Ring(at(70), standing="joining", asking=True))
    cluster.become(member(10, [30, 40], 60))
    cluster.look(name)
    del cluster.cores[-2]
    with pytest.raises(Violation, match="n20/1 is skipped by n10/1"):
        cluster.look(name)


def test_nobody_is_given_up_without_a_reason():
    name = "the_living_are_not_given_up"
    cluster = Cluster()
    cluster.look(name)
    assert cluster.checker(name).seen == 1
    cluster.deceived = True
    with pytest.raises(Violation):
        cluster.look(name)
    cluster.options.temper = "wild"  # a reason
    cluster.look(name)
    assert cluster.checker(name).seen == 2


class TestTheRingBecomesIdealAndStays:
    name = "the_ring_becomes_ideal_and_stays"

    def test_it_must_be_ideal_at_the_end(self):
        cluster = begun()
        cluster.checker(self.name).at_end()
        cluster.events += 1
        cluster.become(member(10, [20], 60))
        with pytest.raises(Violation, match="the successors should be n20/1 n30/1"):
            cluster.checker(self.name).at_end()

    def test_all_who_live_must_be_in_it(self):
        cluster = begun()
        cluster.events += 1
        cluster.cores.append(Ring(at(70), standing="joining"))
        with pytest.raises(Violation, match="n70/1 is joining"):
            cluster.checker(self.name).at_end()

    def test_a_small_ring_is_small_everywhere(self):
        cluster = begun()
        for core in cluster.cores:
            core.standing = "small"
        cluster.events += 1
        cluster.checker(self.name).at_end()
        cluster.cores[0].standing = "member"
        cluster.events += 1
        with pytest.raises(Violation, match="n10/1 is member"):
            cluster.checker(self.name).at_end()

    def test_it_does_not_change_again_when_faults_are_over(self):
        cluster = begun()
        cluster.is_safety_phase = False
        cluster.look(self.name)
        cluster.become(member(10, [20], 60))
        with pytest.raises(Violation):
            cluster.look(self.name)

    def test_who_comes_in_may_change_it(self):
        cluster = begun()
        cluster.is_safety_phase = False
        cluster.look(self.name)
        cluster.become(member(25, [30, 40], 20))
        cluster.look(self.name)
        cluster.cores.append(Ring(at(70), standing="joining"))
        cluster.look(self.name)
        del cluster.cores[-1]
        cluster.look(self.name)

    def test_while_faults_strike_it_may_be_anything(self):
        cluster = begun()
        cluster.become(member(10, [20], 60))
        cluster.look(self.name)
        assert cluster.checker(self.name).seen == 0


class TestEachSideOfACutBecomesARing:
    name = "each_side_of_a_cut_becomes_a_ring"
    LONG_US = PERIODS * RingSettings().stabilize_us

    def cut(self, *sides: tuple[int, ...]) -> tuple[Cluster, Checker]:
        """Each of them a ring of its own, long after the cut."""
        cluster = Cluster({place: each for side in sides for place, each in ideal(side, 2).items()})
        cluster.options.temper, cluster.options.ring = "split", RingSettings
        links = cluster.links
        links.is_cut, links.cut_since_us = True, 0
        here = [at(position).address for position in sides[0]]
        links.reaches = lambda one, other: (one in here) == (other in here)
        cluster.now_us = self.LONG_US
        return cluster, cluster.checker(self.name)

    def test_two_rings_are_right_and_one_ring_soon_after(self):
        cluster, checker = self.cut((10, 20, 40), (30, 50, 60))
        checker.before_healing()
        assert checker.seen == 1
        cluster.look(self.name)
        cluster.become(*ideal(RING, 2).values())
        cluster.look(self.name, after_us=self.LONG_US - 1_000)
        cluster.look(self.name, after_us=self.LONG_US)  # it was in time
        checker.at_end()

    def test_a_side_of_one_is_a_ring_of_one(self):
        cluster, checker = self.cut((10,), (20, 30, 40, 50, 60))
        checker.before_healing()
        cluster.become(member(10, [], 60))
        with pytest.raises(Violation, match="the predecessor should be nobody"):
            checker.before_healing()

    @pytest.mark.parametrize("side", [10, 30])
    def test_nobody_may_wait_off_the_ring(self, side):
        cluster, checker = self.cut((10, 20, 40), (30, 50, 60))
        core = next(each for each in cluster.cores if each.me == at(side))
        core.standing = "joining"
        with pytest.raises(Violation, match=f"n{side}/1 is joining"):
            checker.before_healing()

    def test_both_become_one_in_time(self):
        cluster, checker = self.cut((10, 20, 40), (30, 50, 60))
        checker.before_healing()
        cluster.look(self.name)
        with pytest.raises(Violation, match="they never became one"):
            checker.at_end()
        cluster.become(*ideal(RING, 2).values())
        cluster.look(self.name, after_us=self.LONG_US)
        with pytest.raises(Violation, match="one ring only"):
            checker.at_end()

    @pytest.mark.parametrize("why", ["another temper", "no cut", "too short"])
    def test_nothing_is_demanded_of(self, why):
        cluster, checker = self.cut((10, 20, 40), (30, 50, 60))
        cluster.cores[0].standing = "joining"
        if why == "another temper":
            cluster.options.temper = "wild"
        elif why == "no cut":
            cluster.links.is_cut = False
        else:
            cluster.links.cut_since_us = 1
        checker.before_healing()
        cluster.look(self.name)
        checker.at_end()
        assert checker.seen == 0


class TestPredecessorsOnlyComeNearer:
    name = "predecessors_only_come_nearer"

    def test_one_that_lies_nearer_may_take_the_place(self):
        cluster = begun()
        cluster.look(self.name)
        cluster.become(member(15, [20, 30], 10), member(20, [30, 40], 15))
        cluster.look(self.name)
        assert cluster.checker(self.name).seen == 1

    @pytest.mark.parametrize("other", [60, None])
    def test_nobody_else_may(self, other):
        cluster = begun()
        cluster.look(self.name)
        cluster.become(member(20, [30, 40], other))
        with pytest.raises(Violation, match="n10/1 was the predecessor of n20/1"):
            cluster.look(self.name)

    def test_the_dead_are_replaced_by_anybody(self):
        cluster = begun()
        cluster.look(self.name)
        cluster.become(member(20, [30, 40], 60), without=(10,))
        cluster.look(self.name)
        assert cluster.checker(self.name).seen == 0

    def test_what_was_before_a_deception_is_forgotten(self):
        cluster = begun()
        cluster.look(self.name)
        cluster.deceived = True
        cluster.become(member(20, [30, 40], 60))
        cluster.look(self.name)


class TestLookupsFindTheSuccessor:
    name = "lookups_find_the_successor"

    def test_on_an_ideal_ring_the_answer_is_exact(self):
        cluster = begun()
        cluster.lookups.append(Lookup(15, (at(20), at(30)), (at(20), at(20)), 10))
        cluster.look(self.name)
        assert cluster.checker(self.name).seen
        cluster.lookups.append(Lookup(15, (at(10),), (at(20), at(20)), 10))
        with pytest.raises(Violation, match="the ring is ideal"):
            cluster.look(self.name)

    def test_who_was_deceived_passes_the_living_by_for_two_more_periods(self):
        cluster = begun()
        cluster.deceived, cluster.is_safety_phase = True, False
        cluster.look(self.name)
        calm_since_us = cluster.now_us
        wrong = partial(Lookup, 15, (at(10),), (at(20), at(20)))
        cluster.lookups.append(wrong(calm_since_us + 1_900_000))
        cluster.look(self.name)
        cluster.lookups.append(wrong(calm_since_us + 2_100_000))
        with pytest.raises(Violation, match="the ring is ideal"):
            cluster.look(self.name)

    def test_a_failure_nobody_has_noticed_excuses_it(self):
        cluster = begun()
        cluster.fails.append((5, at(20)))
        cluster.become(without=(20,))
        cluster.lookups.append(Lookup(15, (at(20),), (at(30), at(30)), 10))
        cluster.look(self.name)

    def test_no_principal_is_passed_by(self):
        cluster = begun()
        cluster.become(member(25, [30, 40], 20))
        cluster.look(self.name)
        cluster.lookups.append(Lookup(15, (at(20),), (at(20), at(20)), 2_000))
        cluster.lookups.append(Lookup(22, (at(30),), (at(25), at(25)), 2_000))  # lags behind
        cluster.look(self.name)
        assert cluster.checker(self.name).seen == 2
        cluster.lookups.append(Lookup(15, (at(30),), (at(20), at(20)), 2_000))
        with pytest.raises(Violation, match="n20/1 was passed by"):
            cluster.look(self.name)

    def test_one_that_has_failed_may_be_passed_by(self):
        cluster = begun()
        cluster.fails.append((2_000, at(20)))
        cluster.become(without=(20,))
        cluster.lookups.append(Lookup(15, (at(30),), (at(20), at(30)), 1_500))
        cluster.look(self.name)

    def test_one_that_began_before_anything_was_known_is_not_judged(self):
        cluster = begun()
        cluster.become(member(25, [30, 40], 20))
        cluster.lookups.append(Lookup(15, (at(60),), (at(20), at(20)), -1))
        cluster.look(self.name)
        assert cluster.checker(self.name).seen == 0

    def test_where_every_message_arrives_in_time_everything_is_found(self):
        cluster = begun()
        cluster.lookups.append(Lookup(15, (), asked_at_us=10))
        with pytest.raises(Violation, match="nothing was found"):
            cluster.look(self.name)

    def test_when_faults_are_over_everything_is_found(self):
        cluster = begun()
        cluster.options.faults = ("loss",)
        cluster.lookups.append(Lookup(15, (), asked_at_us=10))
        cluster.look(self.name)
        cluster.is_safety_phase = False
        cluster.look(self.name)
        cluster.lookups.append(Lookup(15, (), asked_at_us=cluster.now_us))
        with pytest.raises(Violation, match="nothing was found"):
            cluster.checker(self.name).at_end()


class TestConsumersGetEveryOffsetOnce:
    name = "consumers_get_every_offset_once"

    def cluster(self) -> tuple[Cluster, Consumer]:
        cluster = Cluster()
        consumer = Consumer()
        cluster.consumers.append(consumer)
        return cluster, consumer

    def test_in_order_is_right(self):
        cluster, consumer = self.cluster()
        consumer.get(0, 1)
        cluster.look(self.name)
        consumer.get(2)
        cluster.look(self.name)
        cluster.records = dict.fromkeys(range(3), b"v")
        cluster.checker(self.name).at_end()
        assert cluster.checker(self.name).seen == 3

    @pytest.mark.parametrize("offsets", [(1,), (0, 2), (0, 0), (1, 0)])
    def test_a_gap_or_a_second_time_is_not(self, offsets):
        cluster, consumer = self.cluster()
        consumer.get(*offsets)
        with pytest.raises(Violation):
            cluster.look(self.name)

    def test_a_delivery_with_nothing_new_is_not(self):
        cluster, consumer = self.cluster()
        consumer.get(0)
        consumer.get()
        with pytest.raises(Violation, match="was given what it had"):
            cluster.look(self.name)

    def test_two_consumers_get_the_same(self):
        cluster, consumer = self.cluster()
        other = Consumer(2)
        cluster.consumers.append(other)
        consumer.get(0)
        other.get(0, value=b"w")
        with pytest.raises(Violation, match="is not the same for all"):
            cluster.look(self.name)

    def test_and_what_was_published(self):
        cluster, consumer = self.cluster()
        consumer.get(0)
        cluster.records = {0: b"w"}
        with pytest.raises(Violation, match="offset 0 is b'w', and was given as b'v'"):
            cluster.checker(self.name).at_end()

    def test_at_the_end_all_of_it(self):
        cluster, consumer = self.cluster()
        consumer.get(0)
        cluster.consumers.append(Consumer(2))
        cluster.records = {0: b"v"}
        with pytest.raises(Violation, match="consumer 2 has not got offset 0"):
            cluster.checker(self.name).at_end()


def test_only_what_is_committed_is_given_out():
    name = "only_committed_batches_are_relayed"
    cluster = Cluster()
    consumer = Consumer()
    cluster.consumers.append(consumer)
    cluster.end = 2
    consumer.get(0, 1)
    cluster.look(name)
    assert cluster.checker(name).seen == 1
    consumer.get(2)
    with pytest.raises(Violation, match="committed up to 2"):
        cluster.look(name)


class TestChildrenAreBoundedAndTreesHaveNoCycle:
    name = "children_are_bounded_and_trees_have_no_cycle"

    def test_so_many_children_and_no_more(self):
        cluster = Cluster()
        cluster.machines.append(SimpleNamespace(node=None))  # it is down
        cluster.add_relay("a", None, ("b", "c"))
        cluster.look(self.name)
        assert cluster.checker(self.name).seen == 1
        cluster.add_relay("b", "a", ("d", "e", "f"))
        with pytest.raises(Violation, match="b has d e f"):
            cluster.look(self.name)

    def test_a_cycle_may_be_there_but_not_stay(self):
        cluster = Cluster()
        cluster.add_relay("a", None)
        for node, parent in (("b", "d"), ("c", "b"), ("d", "c")):
            cluster.add_relay(node, parent)
        cluster.look(self.name)
        cluster.look(self.name, after_us=4_000_000)
        with pytest.raises(Violation, match="b -> d -> c"):
            cluster.look(self.name, after_us=4_000_000)

    def test_another_cycle_has_its_own_time(self):
        cluster = Cluster()
        cluster.add_relay("b", "c")
        cluster.add_relay("c", "b")
        cluster.look(self.name)
        cluster.look(self.name, after_us=4_000_000)
        moved = cluster.machines.pop()
        cluster.look(self.name)
        cluster.machines.append(moved)
        cluster.look(self.name, after_us=4_000_000)


class TestWhoIsNotNeededIsForgotten:
    name = "who_is_not_needed_is_forgotten"

    def test_a_relay_that_serves_nobody_has_some_time_to_go(self):
        cluster = Cluster()
        cluster.machines.append(SimpleNamespace(node=None))  # it is down
        cluster.add_relay("a", None)
        cluster.add_relay("b", "a", ("c",))
        cluster.add_relay("d", "a")
        cluster.look(self.name)
        cluster.now_us += 9_000_000
        cluster.checker(self.name).at_end()
        assert cluster.checker(self.name).seen == 3
        cluster.now_us += 1
        with pytest.raises(Violation, match="d serves nobody"):
            cluster.checker(self.name).at_end()

    def test_nor_does_a_copy_stay_for_nobody(self):
        cluster = Cluster()
        cluster.add_relay("a", None)
        cluster.machines[0].node.relays.cores[PARTITION_ID].is_leader = False
        cluster.look(self.name)
        cluster.now_us += 9_000_001
        with pytest.raises(Violation, match="a serves nobody"):
            cluster.checker(self.name).at_end()

    def test_one_that_was_needed_meanwhile_has_it_again(self):
        cluster = Cluster()
        cluster.add_relay("d", "a")
        cluster.look(self.name)
        relay = cluster.machines[0].node.relays.cores[PARTITION_ID]
        relay.consumers = {1: None}
        cluster.look(self.name, after_us=9_000_000)
        relay.consumers = {}
        cluster.look(self.name)
        cluster.checker(self.name).at_end()

    def test_a_consumer_that_stopped_is_not_known_any_more(self):
        cluster = Cluster()
        cluster.add_relay("b", "a")
        cluster.machines[0].node.relays.cores[PARTITION_ID].consumers = {1: None, 2: None}
        cluster.consumers += [Consumer(each, machine=cluster.machines[0]) for each in (1, 2)]
        cluster.checker(self.name).at_end()
        cluster.consumers.pop()
        with pytest.raises(Violation, match="b has 2 consumers where there are 1"):
            cluster.checker(self.name).at_end()
        cluster.workload.subscribers.append(SimpleNamespace(fed_at=lambda _machine: 1))
        cluster.checker(self.name).at_end()


def test_a_view_of_a_tree_knows_depths_and_cycles():
    relays = [
        SimpleNamespace(me=named(node), parent=parent and named(parent), is_owner=node == "a")
        for node, parent in (
            ("a", None), ("b", "a"), ("c", "b"), ("d", None), ("e", "d"), ("f", "g"), ("g", "f"),
            ("h", "g"),
        )
    ]  # fmt: skip
    tree = TreeView(relays)
    assert [tree.depth(node) for node in "abcdefgh"] == [0, 1, 2] + [None] * 5
    assert tree.cycles() == [("f", "g")]


def test_no_consumer_is_given_more_than_its_credit():
    name = "credit_is_never_exceeded"
    cluster = Cluster()
    consumer = Consumer(credit_bytes=20_000)
    cluster.consumers.append(consumer)
    consumer.get(0)
    consumer.outstanding_bytes = 20_000
    cluster.look(name)
    cluster.look(name)
    assert cluster.checker(name).seen == 1
    consumer.get(1)
    consumer.outstanding_bytes = 20_001
    with pytest.raises(Violation, match="for a credit of 20000"):
        cluster.look(name)


def test_one_batch_larger_than_the_credit_comes_alone():
    name = "credit_is_never_exceeded"
    cluster = Cluster()
    consumer = Consumer(credit_bytes=1)
    cluster.consumers.append(consumer)
    consumer.get(0)
    consumer.outstanding_bytes = 100
    cluster.look(name)
    consumer.get(1)
    consumer.outstanding_bytes = 1_000
    with pytest.raises(Violation):
        cluster.look(name)


class TestDeliveryResumesAfterACrash:
    name = "delivery_resumes_after_a_crash"

    def crashed(self) -> tuple[Cluster, Consumer]:
        """A relay has died, and a record is committed that the consumer has not got yet."""
        cluster = Cluster()
        relay = SimpleNamespace(ancestors=(at(20), at(10)))
        relays = SimpleNamespace(cores={PARTITION_ID: relay})
        node = SimpleNamespace(relays=relays)
        machine = SimpleNamespace(stalled=False, address="m:1", node=node)
        cluster.machines.append(machine)
        consumer = Consumer(machine=machine)
        cluster.consumers.append(consumer)
        cluster.look(self.name)
        cluster.end = 5
        consumer.get(0)
        cluster.look(self.name)
        self.crash(cluster)
        return cluster, consumer

    def crash(self, cluster: Cluster) -> None:
        cluster.relay_crashes.append((cluster.now_us, at(20)))
        cluster.look(self.name, after_us=0)

    def test_who_gets_nothing_for_five_seconds_was_forgotten(self):
        cluster, _ = self.crashed()
        cluster.look(self.name, after_us=5_000_000)
        with pytest.raises(Violation, match="consumer 1 has waited for offset 1"):
            cluster.look(self.name)

    def test_another_crash_gives_five_seconds_more(self):
        cluster, _ = self.crashed()
        cluster.look(self.name, after_us=4_000_000)
        self.crash(cluster)
        cluster.look(self.name, after_us=4_000_000)
        with pytest.raises(Violation):
            cluster.look(self.name, after_us=1_000_001)

    def test_who_gets_something_was_not_forgotten(self):
        cluster, consumer = self.crashed()
        cluster.look(self.name, after_us=4_000_000)
        consumer.get(1)
        cluster.look(self.name)
        assert cluster.checker(self.name).seen == 0, "it was on its way before the crash"
        consumer.machine.node.relays.cores[PARTITION_ID].ancestors = (at(30), at(10))
        consumer.get(2)
        cluster.look(self.name)
        assert cluster.checker(self.name).seen == 1
        cluster.look(self.name, after_us=5_000_000)
        with pytest.raises(Violation):
            cluster.look(self.name)

    def test_only_those_below_it_have_something_to_resume(self):
        cluster, consumer = self.crashed()
        consumer.machine.node.relays.cores[PARTITION_ID].ancestors = (at(30), at(20))  # the owner
        consumer.get(1)
        cluster.look(self.name)
        assert cluster.checker(self.name).seen == 1, "that was the crash of its relay"
        self.crash(cluster)
        consumer.get(2)
        cluster.look(self.name)
        consumer.machine.node.relays.cores.clear()
        self.crash(cluster)
        consumer.get(3)
        cluster.look(self.name)
        assert cluster.checker(self.name).seen == 1

    def test_who_has_all_waits_for_nothing(self):
        cluster, consumer = self.crashed()
        consumer.get(1, 2, 3, 4)
        cluster.look(self.name)
        cluster.look(self.name, after_us=9_000_000)
        cluster.end = 6
        cluster.look(self.name, after_us=4_000_000)
        with pytest.raises(Violation):
            cluster.look(self.name, after_us=2_000_000)

    @pytest.mark.parametrize(
        "excuse",
        [
            "slow",
            "moved",
            "nowhere",
            "owner",
            "joining",
            "fault",
            "deceived",
            "stalled",
            "cut",
            "clog",
        ],
    )
    def test_what_excuses_it(self, excuse):
        cluster, consumer = self.crashed()
        if excuse == "slow":
            consumer.slow = True
        elif excuse == "moved":
            consumer.started_at_us = cluster.now_us
        elif excuse == "nowhere":
            consumer.machine = None
        elif excuse == "owner":
            cluster.owner.node = None
        elif excuse == "joining":
            cluster.owner.node.ring.core.is_on_the_ring = False
        elif excuse == "fault":
            cluster.faults.counts["cut"] = 1
        elif excuse == "deceived":
            cluster.deceived = True
        elif excuse == "stalled":
            cluster.machines[0].stalled = True
        elif excuse == "cut":
            cluster.links.is_cut_off = lambda address: address == "m:1"
        else:
            cluster.links.clogged = ["m:1"]
        cluster.look(self.name, after_us=4_000_000)
        cluster.look(self.name, after_us=4_000_000)
        assert cluster.checker(self.name).seen == 0


class TestSmallRingsFollowTheRegistry:
    name = "small_rings_follow_the_registry"

    def cluster(self) -> Cluster:
        cluster = Cluster(ideal((10, 20, 30), 2))
        for core in cluster.cores:
            core.standing = "small"
            core.small.version = 3
            core.small.members = (at(10), at(20), at(30))
        return cluster

    def test_the_order_of_the_registry_is_right(self):
        cluster = self.cluster()
        cluster.cores.append(Ring(at(40)))
        cluster.look(self.name)
        assert cluster.checker(self.name).seen == 3
        alone = Cluster({10: member(10, [])})
        alone.cores[0].standing = "small"
        alone.cores[0].small.members = (at(10),)
        alone.look(self.name)

    def test_anything_else_is_not(self):
        cluster = self.cluster()
        cluster.cores[0].successors.reverse()
        with pytest.raises(Violation, match="n10/1 has n30/1 n20/1, not n20/1 n30/1"):
            cluster.look(self.name)
        cluster = self.cluster()
        cluster.cores[0].predecessor = None
        with pytest.raises(Violation, match="has the predecessor None"):
            cluster.look(self.name)

    def test_everybody_is_in_its_own_registry(self):
        cluster = self.cluster()
        cluster.cores[0].small.members = (at(10, 2), at(20), at(30))
        with pytest.raises(Violation, match="n10/1 is not in version 3"):
            cluster.look(self.name)

    def test_a_version_is_the_same_for_all(self):
        cluster = self.cluster()
        cluster.look(self.name)
        cluster.cores[0].small.members = (at(10), at(20))
        cluster.cores[0].successors = [at(20)]
        cluster.cores[0].predecessor = at(20)
        with pytest.raises(Violation, match="version 3 is n10/1 n20/1 for n10/1"):
            cluster.look(self.name)

    def test_lookups_there_pass_only_the_dead_by(self):
        name = "lookups_find_the_successor"
        cluster = self.cluster()
        cluster.look(name)
        cluster.lookups.append(Lookup(5, (at(20),), (at(20), at(20)), 2_000))
        cluster.look(name)
        assert cluster.checker(name).seen == 1
        cluster.lookups.append(Lookup(5, (at(20),), (at(10), at(10)), 2_000))
        with pytest.raises(Violation, match="n10/1 was passed by"):
            cluster.look(name)
        cluster.lookups.append(Lookup(5, (at(40),), (None, None), 2_000))
        with pytest.raises(Violation, match="n40/1 is not in the registry"):
            cluster.look(name)

    def test_lookups_there_do_pass_by_who_has_been_dead_for_long(self):
        name = "lookups_find_the_successor"
        cluster = self.cluster()
        cluster.look(name)
        cluster.fails.append((1_000, at(10)))
        cluster.become(without=(10,))
        cluster.look(name)
        cluster.lookups.append(Lookup(5, (at(10),), (at(20), at(20)), DEAD_US))
        cluster.look(name)
        cluster.lookups.append(Lookup(5, (at(10),), (at(20), at(20)), DEAD_US + 1_001))
        with pytest.raises(Violation, match="n10/1 has been dead for long"):
            cluster.look(name)


def test_a_message_that_the_codec_has_changed_is_a_violation():
    name = "encoded_messages_come_back_as_they_were"
    cluster = begun()
    assert cluster.checker(name).seen == 0
    cluster.links.encoded = 3
    cluster.look(name)
    cluster.checker(name).at_end()
    assert cluster.checker(name).seen == 3
    cluster.links.miscoded = "sent as one, decoded as another"
    with pytest.raises(Violation, match="decoded as another"):
        cluster.look(name)
    with pytest.raises(Violation, match="decoded as another"):
        cluster.checker(name).at_end()


class TestTheMetadata:
    """States as machines have them, made by hand."""

    def machine(self, name: str, index: int, *, seen: int = -1, **parts: object):
        snapshot = json.dumps(parts).encode()
        texts = {part: json.dumps(state) for part, state in parts.items()}
        node = SimpleNamespace(
            metadata_index=index,
            metadata_snapshot=lambda: (index, snapshot),
            metadata_parts=lambda *, anew: texts,
        )
        held = SimpleNamespace(node=node)
        return SimpleNamespace(name=name, node=held, lives=1, seen_metadata=seen)

    def look(self, cluster: Cluster, name: str, machine) -> None:
        cluster.metadata_moved = machine
        cluster.checker(name).after_event()

    def test_it_is_the_same_behind_the_same_entry(self):
        cluster, name = Cluster(), "metadata_is_the_same_everywhere"
        self.look(cluster, name, self.machine("n0", 5, catalogue={"topics": ["a", "b"]}))
        self.look(cluster, name, self.machine("n1", 5, catalogue={"topics": ["b", "a"]}))
        self.look(cluster, name, self.machine("n1", 6, catalogue={"topics": ["b"]}))
        assert cluster.checker(name).seen == 3
        with pytest.raises(Violation, match="behind entry 6, catalogue is for n2"):
            self.look(cluster, name, self.machine("n2", 6, catalogue={"topics": []}))

    def test_nobody_goes_back_and_nobody_stays_behind(self):
        cluster, name = Cluster(), "metadata_is_the_same_everywhere"
        with pytest.raises(Violation, match="n1 went back from 6 to 5"):
            self.look(cluster, name, self.machine("n1", 5, seen=6))
        cluster.root = self.machine("n0", 7)
        cluster.machines = [cluster.root, self.machine("n1", 6)]
        with pytest.raises(Violation, match="n1 has entry 6, the root 7"):
            cluster.checker(name).at_end()
        cluster.root.node = None
        cluster.checker(name).at_end()

    def test_what_was_acknowledged_is_there(self):
        cluster, name = Cluster(), "acknowledged_changes_are_kept"
        users = {"users": [{"name": "ann", "roles": ["admin"]}]}
        cluster.machines = [SimpleNamespace(node=None), self.machine("n1", 5, access=users)]
        things = {"user ann": {("user", "admin")}, "topic t": {None, ("topic", "7")}}
        cluster.workload.administrators = [SimpleNamespace(things=things)]
        cluster.checker(name).after_event()
        cluster.checker(name).at_end()
        assert cluster.checker(name).seen == 2
        things["topic t"] = {("topic", "7")}
        with pytest.raises(Violation, match="topic t is None at n1"):
            cluster.checker(name).at_end()

    def test_a_request_is_carried_out_by_one_entry(self):
        cluster, name = Cluster(), "no_request_is_done_twice"
        number = (3 << 32) + 1
        self.look(cluster, name, self.machine("n0", 5, done={"n1": [[number, 5]]}))
        self.look(cluster, name, self.machine("n2", 6, done={"n1": [[number, 5]]}))
        with pytest.raises(Violation, match="by entry 5, and again by 7"):
            self.look(cluster, name, self.machine("n0", 7, done={"n1": [[number, 7]]}))


def test_a_violation_crosses_to_another_process():
    violation = pickle.loads(pickle.dumps(Violation("All is well.", "it is not")))
    assert (violation.sentence, violation.detail) == ("All is well.", "it is not")
    assert "not so: All is well.\nit is not" in str(violation)


def test_the_list_of_checkers_is_complete():
    names = [kind.name for kind in CHECKERS]
    assert len(names) == len(set(names))
    assert [each.name for each in Cluster().checkers] == names
    assert all(kind.looks_at == "ring" for kind in OF_THE_RING)
    assert checkers.Checker is Checker
