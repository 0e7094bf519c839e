"""What the traces of Raft do not show: settings, restarts, and what our own driver must not do."""

from __future__ import annotations

import pytest

from hocket.core.raft import events, messages
from hocket.core.raft.events import Committed, Due, Flushed, Heard, Propose, Started, Timer
from hocket.core.raft.group import Host, Saved
from hocket.core.raft.membership import Configuration, Mode
from hocket.core.raft.messages import Accepted, Entries, VoteIs
from hocket.core.raft.raft import Raft
from hocket.core.raft.roles import Role
from hocket.core.raft.settings import RaftSettings

ABC = Configuration(("a", "b", "c"))
BCD = Configuration(("b", "c", "d"))
JOINT = Configuration(("b", "c", "d"), ("a", "b", "c"))


def node(saved=None, **settings):
    return Raft(Host("a", settings=RaftSettings(**settings)), 1, saved or Saved(ABC))


def leader(saved=None, *, flush=False):
    raft = node(saved)
    raft.step(Due(Timer.ELECTION), 0)
    term = raft.group.term + 1
    for peer in "bc":
        raft.step(Heard(peer, VoteIs(term, term, True, pre=True)), 0)
        raft.step(Heard(peer, VoteIs(term, term, True)), 0)
    assert raft.leading is not None
    for peer in "bc":
        raft.step(Heard(peer, Accepted(term, raft.leading.first, raft.leading.first)), 0)
    if flush:
        raft.step(Flushed(raft.leading.first, term), 0)
    assert raft.leading.has_committed
    return raft


def kinds(effects):
    return [type(effect).__name__ for effect in effects]


def test_a_newcomer_knows_no_configuration_and_takes_what_it_is_sent():
    raft = Raft(Host("d"), 1, Saved(Configuration(())))
    raft.step(Started(), 0)
    assert kinds(raft.step(Due(Timer.ELECTION), 5_000_000)) == ["Arm"], "it has no vote"
    raft.step(Heard("a", Entries(1, 0, 0, ((2, 1),), 2, ((2, ABC),))), 5_000_000)
    assert raft.group.configuration == ABC
    assert kinds(raft.step(events.LinkLost("a", process_gone=True), 0)) == ["Follows", "Arm"]


# --- settings -------------------------------------------------------------------------------------


def test_without_pre_vote_the_term_is_taken_at_once():
    raft = node(pre_vote=False)
    effects = raft.step(Due(Timer.ELECTION), 0)
    assert effects[0] == events.PersistVote(1, "a")
    assert raft.group.role is Role.CANDIDATE


def test_without_check_quorum_a_leader_stays_and_nobody_is_bound():
    raft = node(check_quorum=False)
    raft.step(Heard("b", messages.Heartbeat(1, 0)), 0)
    assert not raft.group.is_bound(0)
    raft.step(Heard("c", messages.AskVote(2, 0, 0)), 0)
    assert raft.group.vote == "c"


def test_a_leader_stays_without_check_quorum():
    raft = leader()
    raft.group.host.settings.check_quorum = False
    for _ in range(3):
        assert raft.step(Due(Timer.QUORUM), 9_000_000) == [events.Arm(Timer.QUORUM, 2_000_000)]


# --- restarts -------------------------------------------------------------------------------------


def test_what_is_known_to_be_committed_is_said_when_a_life_begins():
    raft = node(Saved(ABC, runs=((5, 1),), committed=3))
    assert Committed(3) in raft.step(Started(), 0)
    assert raft.group.commit == 3


def test_a_configuration_that_another_one_follows_is_in_force():
    raft = node(Saved(ABC, runs=((5, 1),), changes=[(2, JOINT), (4, BCD)]))
    assert raft.group.configuration == JOINT
    assert raft.group.commit == 2
    assert raft.group.changes == ((4, BCD),)


def test_a_configuration_that_was_in_force_is_remembered():
    raft = node(Saved(ABC, runs=((5, 1),), changes=[(2, JOINT)], configured=(2, 1)))
    assert raft.group.configuration == JOINT


def test_a_configuration_whose_entry_was_lost_is_not_in_force():
    """At its index lies an entry of another term: what replaced it was not durable yet."""
    raft = node(Saved(ABC, runs=((5, 1),), changes=[(2, JOINT)], configured=(2, 7)))
    assert raft.group.configuration == ABC
    assert raft.group.commit == 0


def test_more_is_not_committed_than_there_is():
    raft = node(Saved(ABC, runs=((5, 1),), committed=9))
    assert raft.group.commit == 5


# --- the log --------------------------------------------------------------------------------------


def test_configurations_that_are_cut_off_are_forgotten():
    raft = node(Saved(ABC, term=2, runs=((2, 1),)))
    entries = Entries(2, 2, 1, ((4, 2),), 0, ((3, JOINT),))
    raft.step(Heard("b", entries), 0)
    assert raft.group.changes == ((3, JOINT),)
    effects = raft.step(Heard("c", Entries(3, 2, 1, ((3, 3),), 0)), 0)
    assert "Truncate" in kinds(effects)
    assert raft.group.changes == ()


def test_two_configurations_may_come_into_force_at_once():
    raft = node()
    changes = ((1, JOINT), (2, BCD))
    effects = raft.step(Heard("b", Entries(1, 0, 0, ((2, 1),), 2, changes)), 0)
    assert [each for each in effects if isinstance(each, events.Configured)] == [
        events.Configured(1, 1, JOINT),
        events.Configured(2, 1, BCD),
    ]
    assert raft.group.configuration == BCD


def test_entries_that_are_committed_are_not_looked_at_again():
    """They may be gone here, and the message may begin before the log does."""
    raft = node(Saved(ABC, term=1, start=5, start_term=1, runs=((7, 1),)))
    effects = raft.step(Heard("b", Entries(1, 2, 1, ((8, 1),), 0)), 0)
    assert events.Store(8, 8) in effects


def test_only_what_is_new_of_a_message_is_stored():
    raft = node(Saved(ABC, term=2, runs=((2, 1),)))
    effects = raft.step(Heard("b", Entries(2, 0, 0, ((2, 1), (4, 2)), 0)), 0)
    assert effects == [events.Follows(2, "b"), events.Store(3, 4)]
    assert raft.group.outline.runs(1, 4) == ((2, 1), (4, 2))


def test_a_flush_says_nothing_to_nobody():
    raft = node(Saved(ABC, term=1))
    raft.step(Heard("b", Entries(1, 0, 0, ((2, 1),), 0)), 0)
    raft.step(Heard("c", messages.AskVote(2, 9, 9, handed_over=True)), 0)
    assert raft.step(Flushed(2, 1), 0) == []
    assert raft.group.outline.flushed == 2


def test_only_a_leader_appends():
    with pytest.raises(AssertionError, match="only a leader"):
        node().step(events.Appended(1), 0)


def test_only_what_is_committed_is_compacted():
    with pytest.raises(AssertionError):
        node().step(events.Compacted(1, ABC), 0)


def test_of_entries_that_are_gone_nobody_is_asked_whether_they_have_come():
    raft = leader(flush=True)
    for index in range(2, 6):
        raft.step(events.Appended(index), 0)
    raft.step(Flushed(5, 1), 0)
    raft.step(Heard("b", Accepted(1, 5, 5)), 0)
    assert raft.group.commit == 5
    raft.step(events.Compacted(5, ABC), 0)
    leading = raft.leading
    assert leading is not None
    progress = leading.peers["c"]
    progress.next, progress.answered = 4, progress.matched  # what was sent was lost
    effects = leading.beat_answered(progress, 1_000_000)
    assert [type(each.message) for each in effects] == [messages.Snapshot]


# --- membership and handing over ------------------------------------------------------------------


def test_an_explicit_joint_configuration_is_left_when_that_is_asked_for():
    raft = leader()
    raft.step(Propose(("b", "c", "d"), mode=Mode.EXPLICIT), 0)
    for peer in "bc":
        raft.step(Heard(peer, Accepted(1, 2, 2)), 0)
    assert raft.group.configuration == JOINT
    (refused,) = raft.step(Propose(("a",)), 0)
    assert "leave it" in refused.reason
    effects = raft.step(Propose(None), 0)
    assert events.Enter(3, 1, BCD) in effects


def test_a_transfer_to_one_who_is_told_to_go_is_given_up():
    raft = leader()
    raft.step(Propose(("a", "b"), mode=Mode.SIMPLE), 0)
    raft.step(events.Transfer("c"), 0)
    assert not raft.takes_entries
    raft.step(Heard("b", Accepted(1, 2, 2)), 0)
    raft.step(Flushed(2, 1), 0)
    assert raft.group.configuration.voters == ("a", "b")
    assert raft.takes_entries


def test_a_joint_configuration_is_left_when_a_transfer_is_given_up():
    raft = leader()
    raft.step(Propose(("b", "c", "d")), 0)
    raft.step(events.Transfer("b"), 0)
    for peer in "bc":
        effects = raft.step(Heard(peer, Accepted(1, 2, 2)), 0)
    assert raft.group.configuration.is_joint
    assert "Enter" not in kinds(effects)
    assert events.Enter(3, 1, BCD) in raft.step(Due(Timer.TRANSFER), 0)


def test_a_new_leader_leaves_for_the_old_one():
    joint = Configuration(("a", "b", "c"), ("a", "b"), leaves_by_itself=True)
    raft = leader(Saved(joint, term=1, runs=((1, 1),)), flush=True)
    assert raft.group.changes == ((3, Configuration(("a", "b", "c"))),)


def test_reads_are_answered_when_those_who_did_not_answer_are_gone():
    raft = leader()
    raft.step(Flushed(1, 1), 0)
    raft.step(Propose(("a", "b"), mode=Mode.SIMPLE), 0)
    raft.step(Flushed(2, 1), 0)
    raft.step(Heard("c", Accepted(1, 2, 2)), 0)
    raft.step(Propose(("a",), mode=Mode.SIMPLE), 0)
    raft.step(events.ReadAsked("x"), 0)
    raft.step(Flushed(3, 1), 0)
    effects = raft.step(Heard("b", Accepted(1, 3, 3)), 0)
    assert events.ReadReady("x", 2) in effects


def test_a_confirmation_that_comes_twice_counts_once():
    raft = leader()
    raft.step(events.ReadAsked("x"), 0)
    assert raft.step(Heard("b", messages.Confirmed(1, 1)), 0) == [events.ReadReady("x", 1)]
    raft.step(events.ReadAsked("y"), 0)
    assert raft.step(Heard("b", messages.Confirmed(1, 1)), 0) == []
    assert raft.step(Heard("c", messages.Confirmed(1, 2)), 0) == [events.ReadReady("y", 1)]


def test_an_answer_to_a_read_is_true_whatever_the_term():
    raft = node(Saved(ABC, term=3))
    raft.step(Heard("b", messages.Heartbeat(3, 0)), 0)
    (sent,) = raft.step(events.ReadAsked("x"), 0)
    answer = messages.ReadIs(9, sent.message.number, 4)
    assert raft.step(Heard("b", answer), 0) == [events.ReadReady("x", 4)]
    assert raft.group.term == 3


def test_a_read_whose_question_was_lost_is_asked_again():
    raft = node(Saved(ABC, term=3))
    raft.step(Heard("b", messages.Heartbeat(3, 0)), 0)
    (sent,) = raft.step(events.ReadAsked("x"), 0)
    _, again = raft.step(Due(Timer.ELECTION), 1)
    assert again == sent


def test_a_learner_whose_leader_is_silent_has_nobody_wait():
    raft = node(Saved(Configuration(("b", "c"), learners=("a",)), term=3))
    raft.step(Heard("b", messages.Heartbeat(3, 0)), 0)
    raft.step(events.ReadAsked("x"), 0)
    _, refused = raft.step(Due(Timer.ELECTION), 9_000_000)
    assert refused == events.Refused(events.ReadAsked("x"), "the leader is silent: ask again")


def test_one_who_pretends_to_lead_in_our_term_is_not_heard():
    raft = leader()
    rival = Entries(1, 0, 0, ((5, 1),), 5)
    for message in (rival, messages.Heartbeat(1, 9), messages.CampaignNow(1)):
        assert raft.step(Heard("c", message), 0) == []
    assert raft.leading is not None


def test_a_link_that_was_lost_costs_the_next_entry_nothing():
    raft = leader()
    raft.step(events.LinkLost("b"), 0)
    effects = raft.step(events.Appended(2), 0)
    assert [effect.to for effect in effects] == ["b", "c"]


def test_a_lost_link_of_a_stranger_changes_nothing():
    raft = leader()
    assert raft.step(events.LinkLost("x"), 0) == []
    raft.leading.link_lost("x")
    assert raft.leading.is_behind("x", 0) == []


def test_a_peer_that_lacks_entries_is_not_asked_twice():
    raft = leader()
    raft.step(events.Appended(2), 0)
    assert raft.leading.is_behind("b", 0) == []
