"""One root and some learners over a network that loses, doubles and reorders, with crashes of both.

Each learner's log is a list; a crash takes what is not durable. Whatever happens, a learner's log
is a beginning of the root's, and in the end it is all of it.
"""

from __future__ import annotations

import json
from random import Random

import pytest

from hocket.core.group0 import events
from hocket.core.group0.leader import Leader
from hocket.core.group0.learner import Learner
from hocket.core.group0.messages import Entry, Follow, Followed
from hocket.core.group0.settings import Group0Settings
from hocket.core.ring.contact import Contact
from tests.support.threads import LONG

SETTINGS = Group0Settings(
    tail_entries_max=5, run_entries_max=2, runs_in_flight_max=2, piece_bytes=30, heartbeat_ticks=4,
    resend_ticks=2, silent_ticks=12, retry_ticks_min=2, retry_ticks_max=8,
)  # fmt: skip
SEEDS = 2000 if LONG else 150


class Node:
    """The state is the sum of all bodies, so that a skipped or repeated entry shows."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.me = Contact(1, name, 0, name)
        self.durable: list[int] = []  # the terms of the entries that the log has, and more:
        self.base = (0, 0, 0)  # index, term and state of the snapshot below them
        self.begin()

    def begin(self) -> None:
        self.me = self.me._replace(incarnation=self.me.incarnation + 1)
        self.log = list(self.durable)
        self.installs: events.Install | None = None
        self.state = self.base[2] + sum(
            body(self.base[0] + at) for at in range(1, len(self.log) + 1)
        )
        index = self.base[0] + len(self.log)
        self.core = Learner("c", index, self.log[-1] if self.log else self.base[1], SETTINGS)
        self.caught_up = False

    @property
    def applied(self) -> int:
        return self.base[0] + len(self.durable)

    def step(self, event: events.Event) -> None:
        for effect in self.core.step(event):
            match effect:
                case events.Send():
                    self.world.send(self.me, effect.to, effect.message)
                case events.Store():
                    for entry in effect.entries:
                        assert entry.index == self.base[0] + len(self.log) + 1
                        assert entry.body == str(body(entry.index)).encode()
                        self.log.append(entry.term)
                case events.Install():
                    assert len(self.log) == len(self.durable), "entries are on their way"
                    assert effect.index >= self.applied, "a stale snapshot"
                    self.installs = effect
                case events.CaughtUp():
                    assert not self.caught_up
                    self.caught_up = True

    def disk(self) -> None:
        """What is on its way becomes durable."""
        if self.installs is not None:
            installed, self.installs = self.installs, None
            self.state = json.loads(installed.data)["state"]
            self.base = (installed.index, installed.term, self.state)
            self.log, self.durable = [], []
            self.step(events.Installed())
        elif len(self.durable) < len(self.log):
            self.durable.append(self.log[len(self.durable)])
            self.state += body(self.applied)
            self.step(events.Stored(self.applied))


def body(index: int) -> int:
    return index * index % 97


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.terms: list[int] = []  # of the root's committed entries
        self.net: list[tuple[Contact, Contact, object]] = []
        self.root = Contact(9, "r", 0, "r")
        self.loss = self.random.choice([0.0, 0.1, 0.3])
        self.life = 0
        self.begin_root()
        self.nodes = {name: Node(self, name) for name in "abc"}

    def begin_root(self) -> None:
        self.life += 1
        self.root = self.root._replace(incarnation=self.life)
        kept = self.random.randrange(4)
        entries = [Entry(t, 3, at, str(body(at)).encode()) for at, t in enumerate(self.terms, 1)]
        tail = entries[len(entries) - min(kept, len(entries)) :]
        before = len(entries) - len(tail)
        self.leader = Leader("c", (before, self.terms[before - 1] if before else 0), tail, SETTINGS)

    def send(self, sender: Contact, to: Contact, message: object) -> None:
        if self.random.random() >= self.loss:
            self.net.append((sender, to, message))
            if self.random.random() < self.loss:
                self.net.append((sender, to, message))

    def lead(self, event: events.Event) -> None:
        for effect in self.leader.step(event):
            if isinstance(effect, events.Send):
                self.send(self.root, effect.to, effect.message)
            else:
                state = sum(body(at) for at in range(1, len(self.terms) + 1))
                self.lead(events.SnapshotIs(json.dumps({"state": state, "pad": "x" * 50}).encode()))

    def deliver(self) -> None:
        if not self.net:
            return
        at = self.random.randrange(min(3, len(self.net)))  # reordered a little
        sender, to, message = self.net.pop(at)
        if isinstance(message, Follow | Followed):
            if to.incarnation in (0, self.root.incarnation):
                self.lead(events.Heard(sender, message))
        elif self.nodes[to.node].me == to:
            self.nodes[to.node].step(events.Heard(sender, message))

    def commit(self) -> None:
        self.terms.append(self.life)
        index = len(self.terms)
        self.lead(events.Committed((Entry(self.life, 3, index, str(body(index)).encode()),)))

    def tick(self) -> None:
        self.lead(events.Tick())
        for node in self.nodes.values():
            node.step(events.RootIs("r", self.root.incarnation))
            node.step(events.Tick(self.random.random()))

    def check(self) -> None:
        for node in self.nodes.values():
            assert node.applied <= len(self.terms)
            assert node.state == sum(body(at) for at in range(1, node.applied + 1))
            terms = self.terms[node.base[0] : node.applied]
            assert node.durable == terms

    def play(self, steps: int) -> None:
        for _ in range(steps):
            node = self.nodes[self.random.choice("abc")]
            match self.random.choices(range(7), (30, 12, 12, 12, 1, 1, 2))[0]:
                case 0:
                    self.deliver()
                case 1:
                    node.disk()
                case 2:
                    self.tick()
                case 3:
                    self.commit()
                case 4:
                    node.begin()
                case 5:
                    self.begin_root()
                case 6:
                    node.step(events.RootLost())
            self.check()

    def heal(self) -> None:
        self.loss = 0.0
        for _ in range(60):
            self.tick()
            while self.net:
                self.deliver()
                for node in self.nodes.values():
                    node.disk()
            for node in self.nodes.values():
                for _ in range(20):
                    node.disk()
        self.check()
        for node in self.nodes.values():
            assert node.applied == len(self.terms)
            assert node.core.caught_up


def test_every_log_is_a_beginning_of_the_root_s_and_becomes_all_of_it():
    for seed in range(SEEDS):
        world = World(seed)
        try:
            world.play(250)
            world.heal()
        except BaseException as error:
            error.add_note(f"replay: World({seed})")
            raise


def play_all(worlds):
    for world in worlds:
        world.play(250)


def skip_the_check(learner, message):
    new = tuple(entry for entry in message.entries if entry.index > learner.index)
    if not new:
        return [learner._acknowledgement()]
    learner.index, learner.term = new[-1].index, new[-1].term
    return [events.Store(new)]


def test_the_world_finds_a_gap(monkeypatch):
    monkeypatch.setattr(Learner, "_entries", skip_the_check)
    worlds = [World(seed) for seed in range(20)]
    with pytest.raises(AssertionError):
        play_all(worlds)
