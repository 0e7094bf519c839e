"""What nodes say about groups is believed of members only, and only if it is whole.

Everything else is dropped and counted, and said once; the group goes on.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hocket import frames
from hocket.core.raft import messages as raft
from hocket.core.relay.messages import Piece
from hocket.core.ring.contact import Contact
from hocket.model import DECISIONS
from hocket.node import raft_mail as mails
from hocket.node.raft_mail import Letter, RaftMail, ReplicationMessage
from hocket.node.replication.replicas import Replicas
from tests.node.replication.test_failover import contents, leader_of, publish
from tests.support.cluster.stranger import HIGH, entries, entry, mail, snapshot
from tests.support.node.cluster import SECOND, Asking, Nodes


class World:
    """Four nodes, three of which keep a partition."""

    def __init__(self) -> None:
        self.nodes = Nodes(nodes=4)
        self.nodes.put_on(0, 1, 2)
        Asking(self.nodes, 0).create("orders", replication=3, disk_retention_us=None)
        self.leader = leader_of(self.nodes)
        self.follower = next(number for number in range(3) if number != self.leader)
        assert isinstance(publish(self.nodes, self.leader, b"one"), frames.Published)
        self.nodes.run(SECOND)

    def replicas(self, number: int) -> Replicas:
        node = self.nodes.machines[number].node
        assert node is not None
        return node.replicas

    @property
    def group(self) -> int:
        return next(g for g in (r.group for r in self.replicas(self.leader)) if 0 < g < DECISIONS)

    def contact(self, number: int) -> Contact:
        node = self.nodes.machines[number].node
        assert node is not None
        return node.ring.core.me

    def say(self, sender: int, to: int, message: ReplicationMessage) -> None:
        self.replicas(to).heard(self.contact(sender), message)
        self.nodes.run(SECOND)

    def check_goes_on(self) -> None:
        """The same node leads, in its old term, and stores."""
        replica = self.replicas(self.leader).get(self.group)
        assert replica is not None
        assert replica.serves
        assert replica.raft.group.term < HIGH
        assert isinstance(publish(self.nodes, self.leader, b"two"), frames.Published)
        assert contents(self.nodes, self.leader) == [b"one", b"two"]


@pytest.fixture
def world() -> World:
    return World()


STRANGE: dict[str, Callable[[int], ReplicationMessage]] = {
    "a vote is asked for": lambda group: mail(
        Letter(group, raft.AskVote(HIGH, 99, HIGH, False, True))
    ),
    "a vote": lambda group: mail(Letter(group, raft.VoteIs(HIGH, HIGH, True, False))),
    "entries": lambda group: entries(group, entry(3, HIGH)),
    "an answer": lambda group: mail(Letter(group, raft.Accepted(HIGH, 99, 99))),
    "a state": snapshot,
    "a call to stand": lambda group: mail(Letter(group, raft.CampaignNow(HIGH))),
    "a beat": lambda group: mails.packed_beat(raft.Beat(1, 1, [(group, HIGH, 99)], [])),
    "a quiet beat": lambda group: mails.packed_beat(raft.Beat(1, 1, [], [(group, HIGH, 99)])),
}


@pytest.mark.parametrize("what", STRANGE)
def test_who_is_no_member_has_no_say(world, caplog, what):
    stranger = 3
    for to in (world.leader, world.follower):
        for _ in range(3):
            world.say(stranger, to, STRANGE[what](world.group))
        why = f"it is no member of group {world.group}"
        assert world.replicas(to).refused[why] == 3
    assert caplog.text.count(f"refused what node n3 says: {why}") == 2, "once at each of the two"
    world.check_goes_on()


def test_who_is_a_member_of_another_group_has_no_say_in_this_one(world, caplog):
    """It is beaten to, for the other group; so its answers are listened to."""
    stranger = 3
    world.nodes.put_on(world.leader, stranger, world.follower)
    Asking(world.nodes, 0).create("others", replication=3)
    world.nodes.settle()
    world.nodes.run(3 * SECOND)
    pulse = world.replicas(world.leader)._pulse
    beat, _sent_us = pulse._neighbour(f"n{stranger}").sent[-1]
    answer = raft.BeatAnswer(beat.life, beat.sequence, [(world.group, HIGH)], [], [])
    world.say(stranger, world.leader, mails.packed_beat(answer))
    assert world.replicas(world.leader).refused[f"it is no member of group {world.group}"] == 1
    world.check_goes_on()


DAMAGED: dict[str, tuple[Callable[[int], ReplicationMessage], str]] = {
    "rows that are cut short": (lambda _group: RaftMail(b"\1" * 55), "are not whole"),
    "an unknown kind": (lambda _group: RaftMail(b"\x63" + bytes(55)), "unknown kind 99"),
    "no payload": (lambda group: RaftMail(entries(group, entry(3, 1)).rows), "lacks its payload"),
    "a body under a wrong checksum": (
        lambda group: entries(group, entry(3, 1, b"12345678")[:-1] + b"?", 1),
        "entry 3 does not match its checksum",
    ),
    "a header under a wrong checksum": (
        lambda group: entries(group, b"?" + entry(3, 1)[1:], 1),
        "entries of another node",
    ),
    "an entry of another place": (lambda group: entries(group, entry(9, 1), 1), "entry 9 of term"),
    "an entry of a later term": (lambda group: entries(group, entry(3, 5), 1), "of a term between"),
    "a state under a wrong checksum": (
        lambda group: RaftMail(
            snapshot(group).rows, (Piece(0, 1, b"?" + snapshot(group).pieces[0].data[1:]),)
        ),
        "a state does not match its checksum",
    ),
    "a beat that is cut short": (lambda _g: mails.RaftBeat(1, 1, b"123", b""), "is not whole"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_not_whole_is_dropped_whoever_sends_it(world, caplog, what):
    make, why = DAMAGED[what]
    for _ in range(3):
        world.say(world.leader, world.follower, make(world.group))
    assert [n for text, n in world.replicas(world.follower).refused.items() if why in text] == [3]
    assert caplog.text.count(why) == 1
    world.check_goes_on()


def test_a_group_that_is_not_here_is_counted_and_said_once(world, caplog):
    caplog.set_level("DEBUG")
    stranger = 3
    for _ in range(3):
        world.say(stranger, world.follower, entries(77, entry(3, 1)))
    why = "it speaks of a group that is not here"
    assert world.replicas(world.follower).refused[why] >= 3
    assert caplog.text.count(f"refused what node n3 says: {why}") == 1
    world.check_goes_on()


def test_a_member_of_an_older_term_is_told_so(world):
    """That is no fault: it was cut off, say. Nothing that it says counts."""
    other = next(n for n in range(3) if n not in (world.leader, world.follower))
    before = world.replicas(world.follower).refused.copy()
    world.say(other, world.follower, entries(world.group, b"", 0))
    assert world.replicas(world.follower).refused == before
    world.check_goes_on()


def test_reasons_are_counted_by_themselves_up_to_a_number(world, monkeypatch):
    monkeypatch.setattr("hocket.node.replication.replicas.REASONS_MAX", 2)
    world.replicas(world.follower).refused.clear()
    for kind in (91, 92, 93, 94, 91):
        world.say(world.leader, world.follower, RaftMail(bytes([kind]) + bytes(55)))
    assert [*world.replicas(world.follower).refused.values()] == [2, 1, 2]
