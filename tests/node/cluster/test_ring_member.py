"""The driver of the ring core: timers, chance, lives, and the news that we stood still."""

from __future__ import annotations

from functools import partial
from random import Random

from hocket.core.ring.circle import position_of
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Located, NotLocated
from hocket.core.ring.messages import Beacon, Gone, Ping, Pong, RegistryIs
from hocket.core.ring.pointers import Standing
from hocket.core.ring.settings import RingSettings
from hocket.node.cluster.ring_member import STALL_US, MemberSettings, RingMember
from hocket.node.cluster.ring_memory import VolatileMemory
from hocket.sim.clock import SimClock
from hocket.sim.scheduler import Scheduler

SECOND = 1_000_000
SETTINGS = RingSettings(
    successors=2,
    stabilize_us=SECOND,
    finger_us=2 * SECOND,
    suspicion_us_min=SECOND,
    beacon_us=SECOND,
    beacon_stale_us=5 * SECOND,
    rejoin_jitter_us=SECOND,
)


class Book:
    """A registry that is durable at once."""

    def __init__(self) -> None:
        self.version = 0
        self.entries: dict[str, Contact] = {}

    def members(self):
        return self.version, tuple(sorted(self.entries.values()))

    def enrol(self, who, done):
        self.version += 1
        self.entries[who.node] = who
        done(*self.members())

    def strike(self, who, done):
        self.version += 1
        self.entries.pop(who.node, None)
        done(*self.members())


class World:
    """Members on a network without faults, but for what a test takes away."""

    def __init__(self, *names: str) -> None:
        self.scheduler = Scheduler("ring member")
        self.clock = SimClock(self.scheduler)
        self.book = Book()
        self.memories = {name: VolatileMemory() for name in names}
        self.members: dict[str, RingMember] = {}
        self.sent: list[tuple[Contact, Contact, object]] = []
        self.cut: set[str] = set()
        for name in names:
            self.start(name)

    def start(self, name: str) -> RingMember:
        is_root = name == "a"
        member = self.members[name] = RingMember(
            MemberSettings(name, name, position_of(name), is_root=is_root, ring=SETTINGS),
            clock=self.clock,
            timers=self.scheduler,
            links=self,
            chance=Random(name),
            memory=self.memories[name],
            registrar=self.book if is_root else None,
        )
        return member

    def send(self, sender: Contact, to: Contact, message: object) -> None:
        self.sent.append((sender, to, message))
        if (sender.address in self.cut) == (to.address in self.cut):
            self.scheduler.after(1000, partial(self.arrive, sender, to, message))

    def arrive(self, sender: Contact, to: Contact, message: object) -> None:
        member = self.members.get(to.address)
        if member is not None:
            member.heard(sender, to.incarnation, message)

    def grow(self) -> World:
        self.members["a"].begin((self.members["a"].core.me,), "a")
        for name, member in self.members.items():
            if name != "a":
                member.join(["a"])
                self.run(3)
        self.run(20)
        return self

    def run(self, seconds: float) -> None:
        self.scheduler.run_for(round(seconds * SECOND))

    def order(self) -> list[str]:
        """Round the ring along the first successors, from a."""
        core = self.members["a"].core
        names = ["a"]
        while core.successors[0].node not in names:
            core = self.members[core.successors[0].node].core
            names.append(core.me.node)
        return names


def by_position(names: str) -> list[str]:
    found = sorted(names, key=position_of)
    first = found.index("a")
    return found[first:] + found[:first]


def test_nodes_join_one_after_another_to_one_ring_in_order():
    world = World(*"abcdefg").grow()
    assert world.order() == by_position("abcdefg")
    assert {member.core.standing for member in world.members.values()} == {Standing.MEMBER}
    assert sorted(world.book.entries) == list("abcdefg")


def test_a_key_is_found_by_everybody_at_the_same_node():
    world = World(*"abcdefg").grow()
    found: list[Located | NotLocated] = []
    for member in world.members.values():
        member.find(position_of("some key"), found.append)
    world.run(2)
    owner = min(
        world.members, key=lambda name: (position_of(name) - position_of("some key")) % 2**64
    )
    assert len(found) == 7
    assert {each.owners[0].node for each in found if isinstance(each, Located)} == {owner}


def test_a_node_that_dies_is_given_up_and_told():
    world = World(*"abcdefg").grow()
    died: list[str] = []
    world.members["a"].on_died.append(lambda contact: died.append(contact.node))
    after_a = world.order()[1]
    world.members.pop(after_a).close()
    world.run(10)
    assert died == [after_a]
    assert world.order() == [name for name in by_position("abcdefg") if name != after_a]


def test_a_late_timer_tells_the_core_that_we_stood_still():
    world = World(*"abcdefg").grow()
    member = world.members["b"]
    told: list[int] = []
    member.on_stalled.append(lambda: told.append(1))
    world.run(2)
    assert member.stalls == 0
    world.clock.skew_us += STALL_US + SECOND  # as if this moment had lasted so long
    world.run(2)
    assert member.stalls == len(told) >= 1


def test_a_closed_member_neither_speaks_nor_hears():
    world = World(*"abcdefg").grow()
    member = world.members["b"]
    member.close()
    world.sent.clear()
    member.heard(world.members["a"].core.me, 0, Ping(1))
    member.find(7, lambda found: pytest_fail())
    world.run(5)
    assert [each for each in world.sent if each[0].node == "b"] == []


def pytest_fail() -> None:
    raise AssertionError("nobody is told by a closed member")


def test_after_a_cut_the_two_rings_become_one_and_nobody_begins_a_new_life():
    world = World(*"abcdefghij").grow()
    renewed: list[str] = []
    cut = by_position("abcdefghij")[3:7]
    for name, member in world.members.items():
        member.on_renewed.append(partial(renewed.append, name))
    world.cut = set(cut)
    world.run(40)
    assert sorted(world.order()) == sorted(set("abcdefghij") - world.cut)
    world.cut = set()
    world.run(20)
    assert world.order() == by_position("abcdefghij")
    assert renewed == []


def test_a_find_of_a_life_that_is_over_is_answered():
    world = World(*"abc").grow()
    member = world.members["b"]
    found: list[object] = []
    member.find(position_of("some key"), found.append)
    world.run(1)
    renewed: list[str] = []
    member.on_renewed.append(partial(renewed.append, "b"))
    world.cut = {"b"}
    # The ring has outgrown its registry, and this node is not among those that it began with.
    members = tuple(Contact(number, f"n{number}", 1, f"n{number}") for number in range(5))
    grown = RegistryIs(0, Beacon(1, 99, 99, "a"), len(members), members, ())
    member._finds[7] = found.append
    member.heard(world.members["a"].core.me, 0, grown)
    assert [type(each) for each in found] == [Located, NotLocated]
    assert renewed == ["b"]
    assert member.core.me.incarnation == 2


def test_who_keeps_coming_back_has_to_wait():
    world = World(*"abcdefg").grow()
    waits = []
    for _ in range(5):
        world.members.pop("b").close()
        member = world.start("b")
        member.join(["a"])
        began = world.scheduler.now_us()
        assert world.scheduler.run_until_true(
            lambda member=member: member.core.standing is Standing.MEMBER, within_us=60 * SECOND
        )
        waits.append(world.scheduler.now_us() - began)
    assert waits == sorted(waits)
    assert waits[0] < SECOND  # to return once is nothing unusual
    assert waits[-1] > 8 * SECOND


def test_who_is_stopped_in_order_does_not_flap():
    world = World(*"abcdefg").grow()
    for _ in range(4):
        world.members["b"].leave()
        world.run(5)
        world.members.pop("b").close()
        member = world.start("b")
        member.join(["a"])
        assert world.scheduler.run_until_true(
            lambda member=member: member.core.standing is Standing.MEMBER, within_us=SECOND
        )


def test_a_former_life_is_answered_that_it_is_over():
    world = World(*"abcdefg").grow()
    old = world.members["b"].core.me
    world.members.pop("b").close()
    world.start("b").join(["a"])
    world.run(20)
    world.sent.clear()
    world.send(world.members["a"].core.me, old, Ping(99))
    world.run(0.01)
    answers = [message for sender, _to, message in world.sent if sender.node == "b"]
    assert Gone(99, old, world.members["b"].core.beacon) in answers
    assert not any(isinstance(each, Pong) and each.request == 99 for each in answers)


def test_leaving_tells_the_neighbours_and_the_registry():
    world = World(*"abcdefg").grow()
    world.members["c"].leave()
    world.run(3)
    assert "c" not in world.book.entries
    assert world.order() == [name for name in by_position("abcdefg") if name != "c"]


def test_a_clock_that_is_set_back_does_not_keep_the_dead_on_the_ring():
    world = World(*"abcdefg").grow()
    member = world.members["a"]
    died: list[str] = []
    member.on_died.append(lambda contact: died.append(contact.node))
    after_a = world.order()[1]
    world.members.pop(after_a).close()
    assert world.scheduler.run_until_true(
        lambda: member.core.pointers.suspicions.cases, within_us=5 * SECOND
    )
    world.clock.skew_us -= 3_600 * SECOND
    world.run(5)
    assert died == [after_a]
    assert member.stalls == 0
