"""The network between machines, and each thing that can go wrong on it."""

from __future__ import annotations

import pytest

from hocket.core.ring.contact import Contact
from hocket.core.ring.messages import Beacon, Ping, RegistryIs
from hocket.errors import WrongType
from hocket.sim import links as sim_links
from hocket.sim.links import MessageChanged, SimLinks, Weather
from hocket.sim.mutants import MUTANTS
from hocket.sim.scheduler import Scheduler
from hocket.sim.trace import Trace

MANY = 1_000


class Ear:
    """A machine that only listens."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard_: list[object] = []
        self.lost: list[Contact] = []
        self.gone: list[Contact] = []

    def heard(self, sender: Contact, to_incarnation: int, message: object) -> None:
        self.heard_.append((sender.node, to_incarnation, message.request))

    def link_lost(self, contact: Contact) -> None:
        self.lost.append(contact)

    def process_gone(self, contact: Contact) -> None:
        self.gone.append(contact)


class World:
    def __init__(self, count: int = 3, **weather: object) -> None:
        self.scheduler = Scheduler("links")
        trace = Trace(self.scheduler.now_us())
        self.links = SimLinks(self.scheduler, Weather(**weather), trace)
        self.ears = [Ear(f"n{number}") for number in range(count)]
        self.contacts = [
            Contact(number, ear.name, 7, f"{ear.name}:1") for number, ear in enumerate(self.ears)
        ]
        for ear, contact in zip(self.ears, self.contacts, strict=True):
            self.links.open(contact.address, ear)

    def send(self, sender: int, to: int, request: int = 1) -> None:
        self.links.send(self.contacts[sender], self.contacts[to], Ping(request))

    def run(self) -> None:
        self.scheduler.run_for(10_000_000)

    def requests(self, to: int) -> list[int]:
        return [request for _, _, request in self.ears[to].heard_]


def test_left_alone_everything_arrives_once_in_order_with_its_envelope():
    world = World()
    for request in range(MANY):
        world.send(0, 1, request)
    assert world.requests(1) == []  # not before time has passed
    world.run()
    assert world.ears[1].heard_ == [("n0", 7, request) for request in range(MANY)]
    assert world.ears[2].heard_ == []
    assert world.links.faults == {}


def test_loss_duplication_and_reordering_strike_their_share():
    world = World(loss=0.1)
    for request in range(MANY):
        world.send(0, 1, request)
    world.run()
    assert MANY - len(world.requests(1)) == world.links.faults["loss"]
    assert 50 < world.links.faults["loss"] < 200

    world = World(duplication=0.1)
    for request in range(MANY):
        world.send(0, 1, request)
    world.run()
    assert sorted(set(world.requests(1))) == list(range(MANY))
    assert len(world.requests(1)) - MANY == world.links.faults["duplication"] > 50

    world = World(reordering=0.1)
    for request in range(MANY):
        world.send(0, 1, request)
    world.run()
    assert sorted(world.requests(1)) == list(range(MANY)) != world.requests(1)


def test_a_tail_is_much_later_than_the_rest():
    world = World(tails=1.0, tail_us_max=2_000_000)
    world.send(0, 1)
    world.scheduler.run_for(2_000)
    assert world.requests(1) == []
    world.run()
    assert world.requests(1) == [1]


def test_a_fault_switched_on_leaves_the_others_as_they_were():
    def lost(**weather: float) -> list[int]:
        world = World(loss=0.3, **weather)
        for request in range(MANY):
            world.send(0, 1, request)
        world.run()
        arrived = set(world.requests(1))
        return [request for request in range(MANY) if request not in arrived]

    assert lost() == lost(duplication=0.5) == lost(reordering=0.5) == lost(tails=0.5)


def test_a_cut_is_both_ways_unless_it_is_one_way_and_strikes_what_is_under_way():
    world = World()
    world.send(0, 1, 1)
    world.links.cut(["n0:1"], ["n1:1"])
    world.send(0, 1, 2)
    world.send(1, 0, 3)
    world.send(2, 1, 4)
    world.run()
    assert (world.requests(0), world.requests(1)) == ([], [4])
    assert world.links.is_cut_off("n0:1")
    assert not world.links.is_cut_off("n2:1")
    world.links.heal()
    assert not world.links.is_cut_off("n0:1")
    world.links.cut(["n0:1"], ["n1:1"], one_way=True)
    world.send(0, 1, 5)
    world.send(1, 0, 6)
    world.run()
    assert (world.requests(0), world.requests(1)) == ([6], [4])
    assert world.links.faults == {"cuts": 3}


def test_what_is_clogged_waits_and_then_comes_in_order():
    world = World()
    world.links.clog("n1:1")
    world.links.clog("n0:1")
    for request in range(5):
        world.send(0, 1, request)
    world.send(1, 2, 9)
    world.run()
    assert world.requests(1) == world.requests(2) == []
    world.links.unclog("n0:1")
    world.run()
    assert world.requests(1) == []  # the other end is clogged still
    world.links.unclog("n1:1")
    world.run()
    assert world.requests(1) == [0, 1, 2, 3, 4]
    assert world.requests(2) == [9]
    assert world.links.clogged == []


def test_everything_to_and_from_a_slow_machine_takes_longer():
    world = World()
    world.links.slow("n1:1", 1_000_000)
    world.send(0, 1)
    world.send(1, 2)
    world.send(0, 2, 5)
    world.scheduler.run_for(900_000)
    assert (world.requests(1), world.requests(2)) == ([], [5])
    world.run()
    assert (world.requests(1), world.requests(2)) == ([1], [5, 1])
    world.links.slow("n1:1", 0)
    world.send(0, 1, 2)
    world.scheduler.run_for(900_000)
    assert world.requests(1) == [1, 2]


def test_who_is_connected_learns_that_a_process_died_but_not_that_the_power_failed():
    world = World()
    world.send(0, 1)
    world.links.shut("n1:1", silently=False)
    world.send(2, 1)
    world.run()
    assert world.ears[0].lost == world.ears[0].gone == [world.contacts[1]]
    assert world.ears[2].lost == []  # it only then began to speak to nobody
    assert world.ears[1].heard_ == []

    world = World()
    world.send(0, 1)
    world.links.shut("n1:1", silently=True)
    world.run()
    assert world.ears[0].lost == []


def test_a_connection_that_breaks_is_noticed_at_both_ends_that_used_it():
    world = World(count=2)
    assert not world.links.break_one()  # there is none yet
    world.send(0, 1)
    world.send(1, 0)
    assert world.links.break_one()
    world.run()
    assert world.ears[0].lost == [world.contacts[1]]
    assert world.ears[1].lost == [world.contacts[0]]
    assert not world.links.break_one()


def test_a_new_life_at_an_address_gets_what_was_meant_for_the_old_one():
    """With the incarnation it was meant for: to tell is the node's business."""
    world = World(count=2)
    world.send(0, 1)
    world.links.shut("n1:1", silently=True)
    again = Ear("n1")
    world.links.open("n1:1", again)
    world.run()
    assert again.heard_ == [("n0", 7, 1)]


def test_whoever_changes_a_message_on_its_way_is_found_out():
    world = World(count=2)
    members: list[Contact] = []
    for _ in range(MANY):  # a share of them is compared
        message = RegistryIs(1, Beacon(), 0, members)  # type: ignore[arg-type]
        world.links.send(world.contacts[0], world.contacts[1], message)
    members.append(world.contacts[0])
    with pytest.raises(MessageChanged):
        world.run()


def test_a_share_of_the_messages_goes_through_the_encoding_and_moves_nothing_else(monkeypatch):
    def outcome(share: float) -> tuple[list[object], int]:
        monkeypatch.setattr(sim_links, "ENCODED_SHARE", share)
        world = World(loss=0.1, duplication=0.1, reordering=0.1, tails=0.1)
        for request in range(MANY):
            world.send(0, 1, request)
        world.run()
        assert world.links.miscoded == ""
        return world.ears[1].heard_, world.links.encoded

    usual, encoded = outcome(sim_links.ENCODED_SHARE)
    assert 2 <= encoded <= 30
    assert outcome(0.0) == (usual, 0)
    all_of_them, encoded = outcome(1.0)
    assert (all_of_them, encoded > 800) == (usual, True)


def test_what_the_codec_loses_is_seen_and_what_it_does_not_know_cannot_be_sent(monkeypatch):
    monkeypatch.setattr(sim_links, "ENCODED_SHARE", 1.0)
    world = World(count=2)
    message = RegistryIs(1, Beacon(5, 6, 7, "root"), 0, ())
    with MUTANTS["forget_a_field_of_a_message"].plant():
        world.links.send(world.contacts[0], world.contacts[1], message)
    assert world.links.miscoded.startswith("sent as RegistryIs(request=1, beacon=Beacon(epoch=5")
    assert "decoded as RegistryIs(request=1, beacon=Beacon(epoch=0" in world.links.miscoded
    with pytest.raises(WrongType, match="no node understands a str"):
        world.links.send(world.contacts[0], world.contacts[1], "gossip")
