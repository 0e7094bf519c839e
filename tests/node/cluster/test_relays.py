"""The driver of relay cores, on several nodes of an ideal ring in virtual time."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from hocket.core.placement.locator import LeaderIs, PublishLeader, WhereIs
from hocket.core.placement.placement import key_of
from hocket.core.relay import messages
from hocket.core.relay.messages import Attach, Detach, Fetch, NotAttached, NotRelaying, Piece
from hocket.core.relay.settings import RelaySettings
from hocket.core.ring.circle import position_of
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Located, NotLocated
from hocket.model import PartitionId
from hocket.node.cluster.relays import Relays
from hocket.sim.scheduler import Scheduler

PARTITION_ID = PartitionId("news", 0)
SECOND = 1_000_000


class Log:
    """One partition's batches; answers at once, or a little later."""

    def __init__(self, scheduler):
        self.pieces = []
        self.scheduler = scheduler
        self.at_once = True

    def read(self, partition_id, offset, end, bytes_max, done):
        pieces = [each for each in self.pieces if offset < each.end <= end]
        size = 0
        for count, each in enumerate(pieces):
            size += len(each.data)
            if count and size > bytes_max:
                pieces = pieces[:count]
                break
        if self.at_once:
            done(tuple(pieces))
        else:
            self.scheduler.after(500, lambda: done(tuple(pieces)))


class World:
    def __init__(self, count=6, settings=None):
        self.scheduler = Scheduler(7)
        self.chance = self.scheduler.random("delay")
        self.contacts = {}
        self.relays = {}
        self.sent = []
        self.dead = set()
        self.is_lost = False  # the ring finds nothing
        self.log = Log(self.scheduler)
        for number in range(count):
            name = f"node-{number}"
            self.contacts[name] = Contact(position_of(name), name, 1, name)
            self.relays[name] = self.make(name, settings or RelaySettings())

    def make(self, name, settings):
        return Relays(
            me=lambda: self.contacts[name],
            clock=self.scheduler,
            timers=self.scheduler,
            links=self,
            chance=self.scheduler.random(name),
            find=lambda key, done: self.find(name, key, done),
            settings=settings,
            log=self.log,
        )

    def send(self, sender, to, message):
        assert sender == self.contacts[sender.node]
        self.sent.append((sender.node, to.node, message))

        def arrive():
            if to.node not in self.dead and sender.node not in self.dead:
                self.relays[to.node].heard(sender, message)

        self.scheduler.after(self.chance.randint(200, 900), arrive)

    def find(self, name, key, done):
        if self.is_lost:
            done(NotLocated(0, key))
            return
        ring = sorted(self.contacts.values())
        at = bisect_left(ring, (key,))
        owners = tuple((ring + ring)[at : at + 4])
        route = tuple(each for each in ring[:2] if each.node != name)
        self.scheduler.after(1_000, lambda: done(Located(0, key, owners, route)))

    def own(self, name, term=0):
        end = self.log.pieces[-1].end if self.log.pieces else 0
        self.relays[name].own(PARTITION_ID, 0, end, term)
        self.owner = name

    def publish(self, size=100):
        end = self.log.pieces[-1].end if self.log.pieces else 0
        self.log.pieces.append(Piece(end, end + 2, bytes([end % 256]) * size))
        self.relays[self.owner].advanced(PARTITION_ID, 0, end + 2)

    def keepers(self):
        ring = sorted(self.contacts.values())
        at = bisect_left(ring, (key_of(PARTITION_ID),))
        return [each.node for each in (ring + ring)[at : at + 3]]

    def others(self):
        return [name for name in self.relays if name not in self.keepers()]

    def run(self, seconds):
        self.scheduler.run_for(round(seconds * SECOND))


class Reader:
    def __init__(self, world, name, offset=0, credit=1_000):
        self.relays = world.relays[name]
        self.got = []
        self.lost_to = []
        self.stop_after = None
        self.number = self.relays.consume(
            PARTITION_ID, offset, credit, self.deliver, self.lost_to.append
        )

    def deliver(self, pieces, end):
        self.got += [each.start for each in pieces]
        if self.stop_after is not None and len(self.got) >= self.stop_after:
            self.relays.stop(self.number)
        self.relays.credit(self.number, sum(len(each.data) for each in pieces))


@pytest.mark.parametrize("at_once", [True, False])
def test_a_consumer_anywhere_gets_all_there_is_and_all_that_comes(at_once):
    world = World()
    world.log.at_once = at_once
    world.own("node-0")
    for _ in range(30):
        world.publish()
    world.run(1)
    readers = [Reader(world, name) for name in world.relays]
    world.run(2)
    world.publish()
    world.run(1)
    for reader in readers:
        assert reader.got == list(range(0, 62, 2))


def test_before_anybody_leads_it_consumers_look_again_and_again():
    world = World()
    reader = Reader(world, "node-1")
    world.run(5)
    assert reader.got == []
    world.own("node-3")
    world.publish()
    world.run(4)
    assert reader.got == [0]


def test_the_ring_finds_nothing_for_a_while():
    world = World()
    world.is_lost = True
    world.own("node-0")
    reader = Reader(world, "node-1")
    world.publish()
    world.run(5)
    assert reader.got == []
    world.is_lost = False
    world.run(40)
    assert reader.got == [0]


def test_the_newest_leader_is_believed():
    world = World()
    first, second, *_ = world.others()
    world.own(first, term=1)
    reader = Reader(world, world.keepers()[0])
    world.publish()
    world.run(2)
    world.relays[first].disown(PARTITION_ID)
    world.own(second, term=2)
    for keeper in world.keepers()[1:]:  # these have missed it
        world.relays[keeper].leaders.hints.publish(PARTITION_ID, world.contacts[first], 1, 0)
    world.publish()
    world.run(8)
    assert reader.got == [0, 2]
    core = world.relays[world.keepers()[0]].cores[PARTITION_ID]
    assert core.ancestors[-1].node == second
    world.relays[first].disown(PARTITION_ID)  # a second time means nothing


def test_keepers_that_do_not_answer_are_not_waited_for():
    world = World()
    owner, at, *_ = world.others()
    world.own(owner)
    world.run(1)
    world.dead.update(world.keepers()[:2])
    reader = Reader(world, at)
    world.publish()
    world.run(3)
    assert reader.got == [0]


def test_what_is_led_is_said_again_and_again():
    world = World()
    world.own("node-0")
    world.run(300)
    said = [message for _, _, message in world.sent if isinstance(message, PublishLeader)]
    assert 3 * 10 <= len(said) <= 3 * 30
    world.sent.clear()
    stranger = Contact(1, "stranger", 1, "stranger")
    world.relays["node-0"].died(stranger)
    world.run(0.1)
    assert not [message for _, _, message in world.sent if isinstance(message, PublishLeader)]
    world.relays["node-0"].died(world.contacts[world.keepers()[1]])
    world.run(0.1)
    assert [message for _, _, message in world.sent if isinstance(message, PublishLeader)]


def test_a_node_that_is_not_on_the_ring_tries_again_soon():
    world = World()
    world.own("node-0")
    relays = world.relays["node-0"]
    world.run(100)  # by now it is said twice a minute
    find, asked = relays.leaders._ring_find, []

    def not_on_the_ring(key, done):
        asked.append(world.scheduler.now_us())
        done(NotLocated(0, key))

    relays.leaders._ring_find = not_on_the_ring
    relays.renewed()
    world.run(10)
    assert 6 <= len(asked) <= 22
    relays.leaders._ring_find = find


def test_a_node_in_a_new_life_says_so():
    world = World()
    world.own("node-0")
    reader = Reader(world, "node-1")
    world.publish()
    world.run(2)
    world.contacts["node-0"] = world.contacts["node-0"]._replace(incarnation=2)
    world.relays["node-0"].renewed()
    world.publish()
    world.run(3)
    assert reader.got == [0, 2]
    assert world.relays["node-1"].cores[PARTITION_ID].ancestors[-1].incarnation == 2
    keeper = world.relays[world.keepers()[1]]
    assert keeper.leaders.hints.where(PARTITION_ID, world.scheduler.now_us()).incarnation == 2


def test_who_hangs_on_a_process_that_is_gone_does_not_wait():
    world = World(settings=RelaySettings(children_max=1))
    world.own("node-0")
    readers = {name: Reader(world, name) for name in list(world.relays)[1:]}
    world.publish()
    world.run(3)
    victim = next(iter(world.relays["node-0"].cores[PARTITION_ID].children)).contact
    below = [
        name
        for name in readers
        if (parent := world.relays[name].cores[PARTITION_ID].parent) and parent == victim
    ]
    assert below
    world.dead.add(victim.node)
    for name, relays in world.relays.items():
        if name != victim.node:
            relays.process_gone(victim.node)
            relays.process_gone("stranger")
    world.run(0.5)
    for name in below:
        assert world.relays[name].cores[PARTITION_ID].parent not in (None, victim)


def test_a_relay_dies_and_the_ring_says_so():
    world = World(settings=RelaySettings(children_max=1))
    world.own("node-0")
    readers = {name: Reader(world, name) for name in list(world.relays)[1:]}
    world.publish()
    world.run(3)
    victim = next(iter(world.relays["node-0"].cores[PARTITION_ID].children)).contact
    world.dead.add(victim.node)
    world.relays[victim.node].close()
    for name in readers:
        world.relays[name].died(victim)
    world.relays["node-0"].died(victim)
    world.publish()
    world.run(1.5)
    for name, reader in readers.items():
        assert reader.got == ([0] if name == victim.node else [0, 2])


def test_one_that_stood_still_does_not_blame_others():
    world = World()
    world.own("node-0")
    reader = Reader(world, "node-1")
    world.run(2)
    core = world.relays["node-1"].cores[PARTITION_ID]
    core._upstream._silent = 3
    world.relays["node-1"].stalled()
    assert core._upstream._silent == 0
    world.publish()
    world.run(1)
    assert reader.got == [0]


def test_a_consumer_stops_while_it_is_served():
    world = World()
    world.own("node-0")
    for _ in range(10):
        world.publish()
    reader = Reader(world, "node-0", credit=100)
    reader.stop_after = 3
    other = Reader(world, "node-0", credit=100)
    world.run(3)
    assert reader.got == [0, 2, 4]
    assert len(other.got) == 10
    reader.relays.stop(reader.number)
    reader.relays.credit(reader.number, 50)


@pytest.mark.parametrize("name", ["node-0", "node-3"])
def test_a_gap_in_the_log_is_told_and_does_not_hold_up_the_node(name):
    world = World()
    reads = []
    read = world.log.read

    def count(*arguments):
        reads.append(arguments)
        assert len(reads) < 100, "the same again and again"
        read(*arguments)

    world.log.read = count
    world.own("node-0")
    old = Reader(world, name)
    for _ in range(3):
        world.publish()
    world.run(3)
    world.log.pieces.append(Piece(20, 22, bytes(100)))  # 6 to 20: a loss that was accepted
    world.relays["node-0"].advanced(PARTITION_ID, 0, 22)
    new = Reader(world, name, offset=8)
    world.run(5)
    assert (old.got, old.lost_to) == ([0, 2, 4, 20], [20])
    assert (new.got, new.lost_to) == ([20], [20])


def test_what_retention_has_taken_is_told():
    world = World()
    for _ in range(10):
        world.log.pieces.append(Piece(len(world.log.pieces), len(world.log.pieces) + 1, b"x"))
    world.relays["node-0"].own(PARTITION_ID, 6, 10)
    world.run(1)
    reader = Reader(world, "node-1")
    got = []
    world.relays["node-2"].consume(PARTITION_ID, 0, 100, lambda pieces, end: got.extend(pieces))
    world.run(2)
    assert reader.lost_to == [6]
    assert reader.got == [6, 7, 8, 9]
    assert len(got) == 4


def test_what_nobody_wants_is_forgotten_and_may_come_again():
    world = World()
    world.own("node-0")
    world.publish()
    reader = Reader(world, "node-1")
    world.run(2)
    relays = world.relays["node-1"]
    assert PARTITION_ID in relays.cores
    first = relays.cores[PARTITION_ID].last_request
    relays.stop(reader.number)
    world.run(8)
    assert relays.cores == {}
    again = Reader(world, "node-1", offset=2)
    world.publish()
    world.run(2)
    assert again.got == [2]
    assert relays.cores[PARTITION_ID].last_request > first, (
        "answers to the one before are not taken"
    )


def test_messages_about_what_is_not_here():
    world = World()
    relays, sender = world.relays["node-1"], world.contacts["node-2"]
    relays.heard(sender, Attach(1, PARTITION_ID, 0, 1))
    relays.heard(sender, Fetch(2, PARTITION_ID, 0, 1, 1, 1))
    relays.heard(sender, Fetch(3, PARTITION_ID, 0, 1, 1, 1, True))
    relays.heard(sender, Detach(PARTITION_ID))
    relays.heard(sender, LeaderIs(77, PARTITION_ID, sender))
    relays.advanced(PARTITION_ID, 0, 5)
    assert [message for _, _, message in world.sent] == [
        NotRelaying(1, PARTITION_ID),
        NotAttached(2, PARTITION_ID),
        NotRelaying(3, PARTITION_ID),
    ]


def test_hints_are_kept_for_others():
    world = World()
    relays, leader = world.relays["node-1"], world.contacts["node-2"]
    relays.heard(leader, PublishLeader(PARTITION_ID, leader, 4))
    relays.heard(leader, WhereIs(9, PARTITION_ID))
    assert world.sent == [("node-1", "node-2", LeaderIs(9, PARTITION_ID, leader, 4))]


def test_an_answer_about_another_partition_is_no_answer():
    world = World()
    Reader(world, "node-1")
    world.run(0.0015)
    relays = world.relays["node-1"]
    (number,) = relays.leaders._questions
    open_before = relays.leaders._questions[number].open
    relays.heard(
        world.contacts["node-2"], LeaderIs(number, PartitionId("x", 1), world.contacts["node-2"])
    )
    assert relays.leaders._questions[number].open == open_before


def test_a_core_that_went_while_its_route_was_sought():
    world = World(settings=RelaySettings(idle_us=1))
    reader = Reader(world, "node-1")
    relays = world.relays["node-1"]
    relays.stop(reader.number)
    waiting = []
    relays._ring_find = lambda key, done: waiting.append(done)
    world.run(3)
    assert relays.cores == {}
    relays._located(PARTITION_ID, 1, NotLocated(0, 0))


@pytest.mark.parametrize("seconds", [0, 0.0015, 2])
def test_after_close_nothing_happens(seconds):
    world = World()
    world.own("node-0")
    readers = [Reader(world, name) for name in world.relays]
    world.run(seconds)
    for relays in world.relays.values():
        relays.close()
    world.publish()
    world.sent.clear()
    world.run(60)
    assert world.sent == []
    assert all(reader.got == [] for reader in readers)
    relays = world.relays["node-0"]
    relays.heard(world.contacts["node-1"], messages.Attach(1, PARTITION_ID, 0, 1))
    relays.own(PARTITION_ID, 0, 0)
    assert world.sent == []
    assert world.scheduler.timers.next_due() is None


def test_a_consumer_that_closes_the_node_is_the_last_to_be_served():
    world = World()
    world.own("node-0")
    got = []

    def close(pieces, end):
        got.append(pieces)
        world.relays["node-0"].close()

    for _ in range(2):
        world.relays["node-0"].consume(PARTITION_ID, 0, 1_000, close)
    world.publish()
    world.run(1)
    assert len(got) == 1


def test_the_memory_of_all_relays_of_a_node_is_bounded():
    world = World(2, RelaySettings(window_bytes=10_000, node_bytes=1_500))
    world.own("node-0")
    here, there = Reader(world, "node-1"), Reader(world, "node-0")
    for _ in range(40):
        world.publish()
        world.run(0.1)
    for relays in world.relays.values():
        held = sum(core.recent.bytes for core in relays.cores.values())
        assert relays.held_bytes == held
        assert 0 < held <= 1_500
    late = Reader(world, "node-1")  # what is gone from memory comes from the owner's log
    world.run(3)
    for reader in (here, there, late):
        assert reader.got == list(range(0, 80, 2))
    for reader in (here, late):
        reader.relays.stop(reader.number)
    world.run(10)
    assert world.relays["node-1"].held_bytes == 0


def test_one_batch_of_each_partition_is_kept_however_large():
    world = World(2, RelaySettings(window_bytes=10_000, node_bytes=50))
    world.own("node-0")
    reader = Reader(world, "node-1")
    for _ in range(5):
        world.publish()
        world.run(0.1)
    assert world.relays["node-1"].held_bytes == 100
    assert reader.got == [0, 2, 4, 6, 8]
