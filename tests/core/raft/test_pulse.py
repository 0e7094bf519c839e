"""The beat of all groups of a node, and groups that fall quiet: three nodes with real cores."""

from __future__ import annotations

import pytest

from hocket.core.raft import events, messages
from hocket.core.raft.events import OfGroup, SendToNode, Timer
from hocket.core.raft.group import LONG_AGO, Host, Saved
from hocket.core.raft.membership import Configuration
from hocket.core.raft.messages import Beat, BeatAnswer, Heartbeat
from hocket.core.raft.pulse import REMEMBERED, Pulse
from hocket.core.raft.raft import Raft
from hocket.core.raft.settings import SECOND, RaftSettings
from tests.support.core.raft_node import GROUP, Disk, Node, Numbers

HALF = SECOND // 2


class Cluster:
    """Nodes that hear each other at once, and disks that flush at once."""

    def __init__(self, names="abc"):
        self.now_us = 10 * SECOND
        self.flight = []
        self.beats = []
        self.numbers = Numbers()
        self.deaf = set()
        self.disks = {name: Disk(Configuration(tuple(names))) for name in names}
        self.nodes = {}
        for name in names:
            self.begin(name)

    def begin(self, name):
        self.nodes[name] = Node(
            name, self.disks[name], RaftSettings(), self.numbers, self.flight.append, self.now_us
        )
        return self.nodes[name]

    def settle(self):
        while self.flight:
            envelope = self.flight.pop(0)
            if isinstance(envelope.message, Beat):
                self.beats.append(envelope)
            if envelope.to in self.nodes and not {envelope.to, envelope.sender} & self.deaf:
                self.nodes[envelope.to].heard(envelope, self.now_us)
            for node in self.nodes.values():
                node.flush(self.now_us)

    def tell(self, name, event):
        self.nodes[name].step(event, self.now_us)
        self.nodes[name].flush(self.now_us)
        self.settle()

    def elect(self, name):
        self.now_us += 5 * SECOND
        self.tell(name, events.Due(Timer.ELECTION))
        assert self.nodes[name].leads
        return self.nodes[name]

    def append(self, name):
        self.nodes[name].append(1, self.now_us)
        self.nodes[name].flush(self.now_us)
        self.settle()

    def pass_time(self, seconds):
        for _ in range(2 * seconds):
            self.now_us += HALF
            for node in self.nodes.values():
                node.beat(self.now_us)
            self.settle()

    def group(self, name):
        return self.nodes[name].raft.group


@pytest.fixture
def cluster():
    found = Cluster()
    found.elect("a")
    found.pass_time(1)
    return found


def test_followers_learn_by_the_beat_what_is_committed(cluster):
    cluster.append("a")
    assert cluster.group("a").commit == 2
    assert cluster.group("b").commit == 1
    cluster.pass_time(1)
    assert [cluster.group(name).commit for name in "abc"] == [2, 2, 2]


def test_who_hears_beats_does_not_campaign_when_its_timer_runs_out(cluster):
    cluster.pass_time(2)
    cluster.tell("b", events.Due(Timer.ELECTION))
    assert cluster.nodes["a"].leads


def test_who_answers_beats_keeps_its_leader_in_office(cluster):
    for _ in range(3):
        cluster.pass_time(2)
        cluster.tell("a", events.Due(Timer.QUORUM))
    assert cluster.nodes["a"].leads
    cluster.deaf = {"b", "c"}
    for _ in range(2):
        cluster.pass_time(2)
        cluster.tell("a", events.Due(Timer.QUORUM))
    assert not cluster.nodes["a"].leads


def test_one_message_for_all_groups():
    host = Host("a")
    pulse = Pulse(host)
    for number, peers in [(1, "bc"), (2, "bd"), (3, "bc")]:
        pulse.add(leader(host, number, peers))
    beats = pulse.beat(SECOND)
    assert [(send.to, send.message.lines) for send in beats] == [
        ("b", [(1, 1, 0), (3, 1, 0), (2, 1, 0)]),
        ("c", [(1, 1, 0), (3, 1, 0)]),
        ("d", [(2, 1, 0)]),
    ]
    pulse.remove(2)
    assert [send.to for send in pulse.beat(SECOND)] == ["b", "c"]


def leader(host, number, peers, now_us=0):
    voters = tuple(sorted((host.me, *peers)))
    raft = Raft(host, number, Saved(Configuration(voters)))
    raft.step(events.Due(Timer.ELECTION), now_us)
    for peer in peers:
        raft.step(events.Heard(peer, messages.VoteIs(1, 1, True, pre=True)), now_us)
        raft.step(events.Heard(peer, messages.VoteIs(1, 1, True)), now_us)
    assert raft.leading is not None
    return raft


def test_groups_that_are_not_as_the_sender_thinks_are_named():
    host = Host("b")
    pulse = Pulse(host)
    newer = Raft(host, 2, Saved(Configuration(("a", "b", "c")), term=5))
    pulse.add(newer)
    pulse.add(Raft(host, 3, Saved(Configuration(("a", "b", "c")), term=1)))
    beat = Beat(1, 7, [(1, 1, 0), (2, 1, 0), (3, 1, 4)], [])
    *_, answer = pulse.heard("a", beat, 0)
    assert answer == SendToNode("a", BeatAnswer(1, 7, [(1, 0), (2, 5)], [3], []))


def test_a_newer_term_in_an_answer_ends_a_leadership():
    host = Host("a", life=1)
    pulse = Pulse(host)
    pulse.add(leader(host, 1, "bc"))
    pulse.beat(SECOND)
    (effects,) = pulse.answered("b", BeatAnswer(1, 1, [(1, 4), (9, 2)], [1], []), SECOND)
    assert effects.group == 1
    assert effects.effects[0] == events.PersistVote(4, "")
    assert pulse.groups[1].leading is None
    # An answer that comes still later finds no leadership any more.
    assert pulse.answered("c", BeatAnswer(1, 1, [], [1], []), SECOND) == []


def test_an_answer_to_an_unknown_beat_says_nothing():
    host = Host("a", life=2)
    pulse = Pulse(host)
    pulse.add(leader(host, 1, "bc"))
    for _ in range(REMEMBERED + 1):
        pulse.beat(SECOND)
    progress = pulse.groups[1].leading.peers["b"]
    for answer in (BeatAnswer(1, 5, [], [], []), BeatAnswer(2, 1, [], [], [])):
        assert pulse.answered("b", answer, SECOND) == []
        assert progress.heard_us < 0
    pulse.answered("b", BeatAnswer(2, 2, [], [], []), SECOND)
    assert progress.heard_us == SECOND
    # Who is no member any more has nothing to say either.
    del pulse.groups[1].leading.peers["b"]
    assert pulse.answered("b", BeatAnswer(2, 3, [], [1], []), SECOND) == []


def test_lost_entries_are_asked_for_with_the_beat(cluster):
    cluster.deaf = {"b"}
    cluster.append("a")
    cluster.deaf = set()
    assert cluster.group("b").outline.last == 1
    cluster.pass_time(2)
    assert cluster.group("b").outline.last == 2
    assert cluster.group("b").commit == 2


def test_a_probe_that_was_lost_is_repeated():
    cluster = Cluster()
    cluster.deaf = {"c"}
    cluster.elect("a")
    cluster.deaf = set()
    cluster.pass_time(1)
    assert cluster.group("c").commit == 1


def test_reads_that_were_not_confirmed_are_asked_for_again(cluster):
    cluster.deaf = {"b", "c"}
    cluster.tell("a", events.ReadAsked("x"))
    assert cluster.nodes["a"].answers == []
    cluster.deaf = set()
    cluster.pass_time(1)
    assert cluster.nodes["a"].answers == [events.ReadReady("x", 1)]


def test_a_follower_that_has_begun_anew_is_told_what_is_committed(cluster):
    """It has everything, so nothing is sent to it; but it does not know that it has."""
    cluster.begin("b")
    assert cluster.group("b").commit == 0
    cluster.pass_time(1)
    assert cluster.group("b").commit == 1


# --- snapshots that get lost ----------------------------------------------------------------------


def lagging(cluster):
    cluster.deaf = {"c"}
    for _ in range(3):
        cluster.append("a")
    cluster.nodes["a"].compact(cluster.now_us)
    cluster.deaf = set()


def test_a_snapshot_comes_to_whoever_lacks_what_is_gone(cluster):
    lagging(cluster)
    cluster.pass_time(2)
    assert cluster.group("c").outline.start == 4
    assert cluster.nodes["c"].entries == cluster.nodes["a"].entries
    assert cluster.group("c").commit == 4


def test_a_snapshot_that_was_lost_is_sent_again_when_the_link_is_known_to_be_lost(cluster):
    lagging(cluster)
    a = cluster.nodes["a"]
    progress = a.raft.leading.peers["c"]
    progress.install(4, cluster.now_us)
    cluster.tell("a", events.LinkLost("c"))
    cluster.pass_time(1)
    assert cluster.group("c").commit == 4


def test_a_snapshot_that_was_lost_is_sent_again_after_a_time(cluster):
    lagging(cluster)
    progress = cluster.nodes["a"].raft.leading.peers["c"]
    progress.install(4, cluster.now_us)
    cluster.pass_time(50)
    assert cluster.group("c").commit == 1
    cluster.pass_time(12)
    assert cluster.group("c").commit == 4


def test_a_newer_snapshot_replaces_one_that_was_lost(cluster):
    lagging(cluster)
    a = cluster.nodes["a"]
    progress = a.raft.leading.peers["c"]
    progress.install(2, cluster.now_us)
    cluster.pass_time(50)
    assert cluster.group("c").commit == 1
    cluster.pass_time(12)
    assert cluster.group("c").commit == 4


# --- quiet groups ---------------------------------------------------------------------------------


@pytest.fixture
def quiet(cluster):
    cluster.pass_time(7)
    assert [cluster.group(name).is_quiet for name in "abc"] == [True, True, True]
    cluster.beats.clear()
    return cluster


def test_a_quiet_group_costs_no_line_and_no_timer(quiet):
    quiet.pass_time(3)
    assert {beat.to for beat in quiet.beats} == {"b", "c"}
    assert all(not beat.message.lines and not beat.message.quiet for beat in quiet.beats)
    for name in "abc":
        for timer in Timer:
            quiet.tell(name, events.Due(timer))
        quiet.tell(name, events.Stalled(9 * SECOND))
    assert [quiet.group(name).is_quiet for name in "abc"] == [True, True, True]
    assert quiet.nodes["a"].leads


def test_a_group_with_a_member_that_lags_stays_awake(cluster):
    cluster.deaf = {"c"}
    cluster.append("a")
    cluster.pass_time(9)
    assert not cluster.group("a").is_quiet


def test_a_member_that_does_not_agree_keeps_its_leader_awake(cluster):
    """It has begun anew, and does not know yet that it has everything."""
    cluster.pass_time(3)
    cluster.begin("c")
    cluster.now_us += SECOND
    cluster.nodes["a"].beat(cluster.now_us)
    cluster.settle()
    assert [cluster.group(name).is_quiet for name in "abc"] == [False, True, False]
    cluster.pass_time(1)
    assert [cluster.group(name).is_quiet for name in "abc"] == [True, True, True]


def test_agreement_from_before_the_last_entry_counts_for_nothing(cluster):
    cluster.deaf = {"c"}
    cluster.pass_time(7)
    assert [cluster.group(name).is_quiet for name in "abc"] == [False, True, False]
    cluster.deaf = set()
    cluster.append("a")
    cluster.pass_time(2)
    assert [cluster.group(name).is_quiet for name in "abc"] == [False, False, False]
    cluster.pass_time(7)
    assert [cluster.group(name).is_quiet for name in "abc"] == [True, True, True]


@pytest.mark.parametrize(
    "wake",
    [
        lambda cluster: cluster.append("a"),
        lambda cluster: cluster.tell("a", events.ReadAsked("x")),
        lambda cluster: cluster.tell("a", events.Propose(("a", "b", "c"), ("d",))),
        lambda cluster: cluster.tell("a", events.LinkLost("b")),
        lambda cluster: cluster.tell("b", events.ReadAsked("x")),
    ],
)
def test_anything_wakes_a_group(quiet, wake):
    wake(quiet)
    assert not quiet.group("a").is_quiet
    quiet.pass_time(1)
    assert not quiet.group("b").is_quiet
    assert not quiet.group("c").is_quiet
    quiet.tell("a", events.Due(Timer.QUORUM))
    assert quiet.nodes["a"].leads


def test_a_transfer_wakes_a_group(quiet):
    quiet.tell("a", events.Transfer("c"))
    assert quiet.nodes["c"].leads


def test_the_link_to_a_stranger_wakes_nobody(quiet):
    for name in "abc":
        quiet.tell(name, events.LinkLost("x", process_gone=True))
    assert [quiet.group(name).is_quiet for name in "abc"] == [True, True, True]


def test_who_is_quiet_is_bound_to_its_leader(quiet):
    question = messages.AskVote(9, 99, 9, pre=True)
    quiet.now_us += 60 * SECOND
    quiet.tell("b", events.Heard("c", question))
    assert not quiet.group("b").is_quiet
    assert quiet.group("b").leader == "a"
    assert not any(envelope.message == messages.VoteIs for envelope in quiet.flight)


def test_a_silent_leader_wakes_those_who_follow_it(quiet):
    quiet.deaf = {"a"}
    quiet.pass_time(2)
    assert quiet.group("b").is_quiet
    assert not quiet.nodes["b"].pulse.is_silent("a")
    quiet.pass_time(1)
    assert quiet.nodes["b"].pulse.is_silent("a")
    assert not quiet.group("b").is_quiet
    assert not quiet.group("a").is_quiet, "and the leader, that hears nobody"
    quiet.tell("b", events.Due(Timer.ELECTION))
    assert quiet.nodes["b"].leads
    quiet.pass_time(2)
    quiet.tell("a", events.Due(Timer.QUORUM))
    assert not quiet.nodes["a"].leads


def test_who_stood_still_holds_nobody_for_silent(quiet):
    quiet.now_us += 30 * SECOND
    for node in quiet.nodes.values():
        node._of_node(node.pulse.stalled(30 * SECOND, quiet.now_us), quiet.now_us)
        assert [each for each in node.pulse.beat(quiet.now_us) if isinstance(each, OfGroup)] == []
    assert [quiet.group(name).is_quiet for name in "abc"] == [True, True, True]


def test_when_a_node_was_last_heard_of_is_known():
    cluster = Cluster()
    cluster.elect("a")
    pulse = cluster.nodes["b"].pulse
    cluster.pass_time(1)
    assert pulse.heard_us("a") > LONG_AGO
    assert pulse.heard_us("nobody") == LONG_AGO


def test_nobody_is_silent_who_was_never_heard():
    host = Host("a")
    pulse = Pulse(host)
    pulse.add(leader(host, 1, "bc"))
    pulse.beat(SECOND)
    pulse.stalled(1, SECOND)
    assert pulse.is_silent("b"), "but nothing is known of it either"
    assert all(isinstance(each, SendToNode) for each in pulse.beat(99 * SECOND))


def test_a_leader_in_a_new_life_leads_no_more(quiet):
    """Its process was gone, and is back before anybody has missed it: it asks for votes itself."""
    quiet.begin("a")
    assert quiet.group("b").leader == "a"
    quiet.elect("a")
    assert quiet.group("b").term == 2


def test_a_beat_of_a_new_life_says_that_the_process_was_gone(quiet):
    a = quiet.begin("a")
    a.raft = leader(
        a.host, GROUP + 1, "bc", quiet.now_us
    )  # it leads another group, in its new life
    a.pulse.add(a.raft)
    a.beat(quiet.now_us)
    quiet.settle()
    for rank, name in enumerate("bc"):
        assert not quiet.group(name).is_quiet
        assert quiet.group(name).leader == ""
        due_us, _ = quiet.nodes[name].timers[Timer.ELECTION]
        assert due_us == quiet.now_us + rank * RaftSettings().stagger_us
    quiet.tell("b", events.Due(Timer.ELECTION))
    assert quiet.nodes["b"].leads


def test_a_beat_of_an_earlier_life_is_merely_late(cluster):
    late = next(each for each in cluster.beats if each.sender == "a")
    cluster.begin("a")
    cluster.elect("a")
    cluster.pass_time(1)
    cluster.nodes["b"].heard(late, cluster.now_us)
    cluster.settle()
    assert cluster.group("b").leader == "a", "nobody's process is gone"
    assert cluster.nodes["b"].pulse._neighbour("a").life == cluster.nodes["a"].host.life


def test_a_late_agreement_to_be_quiet_is_to_what_was_then():
    """Else a group is led quietly that one member has not fallen quiet in."""
    host = Host("a", settings=RaftSettings(idle_us=SECOND))
    pulse = Pulse(host)
    raft = leader(host, 1, "bc")
    pulse.add(raft)
    for peer in "bc":
        raft.step(events.Heard(peer, messages.Accepted(1, 1, 1)), 0)
    raft.step(events.Flushed(1, 1), 0)
    pulse.beat(2 * SECOND)
    raft.step(events.Appended(2), 2 * SECOND + 1)
    for peer in "bc":
        raft.step(events.Heard(peer, messages.Accepted(1, 2, 2)), 2 * SECOND + 2)
    for peer in "bc":
        pulse.answered(peer, BeatAnswer(0, 1, [], [], []), 2 * SECOND + 3)
    pulse.beat(4 * SECOND)
    pulse.answered("b", BeatAnswer(0, 2, [], [], []), 4 * SECOND)
    assert not raft.group.is_quiet, "c has not agreed"
    pulse.answered("c", BeatAnswer(0, 2, [], [], []), 4 * SECOND)
    assert raft.group.is_quiet


def test_who_waits_for_the_answer_to_a_read_does_not_fall_quiet(cluster):
    cluster.deaf = {"b"}
    cluster.tell("b", events.ReadAsked("x"))
    cluster.deaf = set()
    cluster.pass_time(9)
    assert not any(cluster.group(name).is_quiet for name in "ab")
    cluster.tell("b", events.Due(Timer.ELECTION))
    assert cluster.nodes["b"].answers == [events.ReadReady("x", 1)]
    cluster.pass_time(9)
    assert all(cluster.group(name).is_quiet for name in "abc")


def test_who_has_lost_what_was_durable_gets_it_again(cluster):
    """Its disk is damaged: for Raft the log ends before that (what a driver owes)."""
    for _ in range(3):
        cluster.append("a")
    cluster.pass_time(1)
    del cluster.disks["b"].entries[2:]
    cluster.begin("b")
    cluster.pass_time(2)
    assert cluster.nodes["b"].entries == cluster.nodes["a"].entries
    assert cluster.group("b").commit == 4


def test_a_group_that_is_not_here_does_not_agree():
    pulse = Pulse(Host("b"))
    *_, answer = pulse.heard("a", Beat(1, 1, [], [(5, 1, 1)]), 0)
    assert answer.message == BeatAnswer(1, 1, [(5, 0)], [], [5])
    assert pulse.link_lost("a", 0) == []


def test_an_answer_for_a_group_that_is_led_no_more_changes_nothing(cluster):
    cluster.pass_time(5)
    a = cluster.nodes["a"]
    beats = [each.message for each in cluster.beats if each.sender == "a" and each.message.quiet]
    assert beats or a.raft.group.is_quiet
    cluster.tell("a", events.Heard("b", Heartbeat(9, 1)))
    for beat, _ in a.pulse._neighbour("b").sent:
        answer = BeatAnswer(a.host.life, beat.sequence, [], [], [])
        assert a.pulse.answered("b", answer, cluster.now_us) == []


def test_who_is_no_member_deposes_nobody_by_a_beat():
    host = Host("b")
    pulse = Pulse(host)
    pulse.add(Raft(host, 2, Saved(Configuration(("a", "b", "c")))))
    (answer,) = pulse.heard("x", Beat(1, 1, [(2, 9, 0)], []), SECOND)
    assert isinstance(answer, SendToNode)
    assert answer.message == BeatAnswer(1, 1, [(2, 0)], [], [])
    assert pulse.strange == [2]
    assert (pulse.groups[2].group.term, pulse.groups[2].group.leader) == (0, "")


def test_who_is_a_member_of_one_group_has_no_say_in_another():
    host = Host("a")
    pulse = Pulse(host)
    pulse.add(leader(host, 1, "bx"))
    pulse.add(leader(host, 2, "bc"))
    pulse.beat(SECOND)
    beat, _sent_us = pulse._neighbour("x").sent[-1]
    answer = BeatAnswer(beat.life, beat.sequence, [(2, 9)], [], [])
    effects = pulse.answered("x", answer, SECOND)
    assert [each.group for each in effects] == [1]
    assert pulse.strange == [2]
    assert pulse.groups[2].leading is not None
