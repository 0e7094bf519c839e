"""Mistakes planted in the Raft core, one at a time: the world of nodes has to find every one.

With each stands a seed whose run finds it. Seeds are searched from 0 on, so that it is also the
number of runs that found nothing before. `python -m tests.support.core.raft_mutants` searches anew,
which is to be done when the core or the world changes, and prints what it finds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from hocket.core.raft import elections, following, group, leading
from hocket.core.raft.elections import Candidacy
from hocket.core.raft.events import PersistVote, Send
from hocket.core.raft.group import Group
from hocket.core.raft.leading import Leading
from hocket.core.raft.membership import Configuration, Mode
from hocket.core.raft.messages import Accepted, AskVote, Entries, VoteIs
from hocket.core.raft.outline import Outline
from hocket.core.raft.progress import Progress
from hocket.core.raft.raft import Raft
from hocket.core.raft.reading import Forwarded, Reads
from tests.support.core.raft_runs import run
from tests.support.core.raft_world import Breach

Plant = Callable[[pytest.MonkeyPatch], None]


# --- votes and terms ------------------------------------------------------------------------------


def a_vote_is_not_saved(patch: pytest.MonkeyPatch) -> None:
    def give_vote(self: Group, peer: str) -> None:
        self.vote = peer

    patch.setattr(Group, "give_vote", give_vote)


def a_term_is_not_saved(patch: pytest.MonkeyPatch) -> None:
    def take_term(self: Group, term: int) -> None:
        self.term, self.vote, self.stored = term, "", 0

    patch.setattr(Group, "take_term", take_term)


def a_vote_is_saved_after_it_is_sent(patch: pytest.MonkeyPatch) -> None:
    step = Raft.step

    def late(self: Raft, event: Any, now_us: int) -> list[Any]:
        effects = step(self, event, now_us)
        if effects and isinstance(effects[0], PersistVote):
            effects.append(effects.pop(0))
        return effects

    patch.setattr(Raft, "step", late)


def a_vote_is_given_twice(patch: pytest.MonkeyPatch) -> None:
    answer = elections.answer

    def generous(group: Group, sender: str, question: AskVote) -> Any:
        if not question.pre:
            group.vote = ""
            group.leader = ""
        return answer(group, sender, question)

    patch.setattr(elections, "answer", generous)


def a_pre_vote_counts_as_a_vote(patch: pytest.MonkeyPatch) -> None:
    def count(self: Candidacy, sender: str, answer: VoteIs) -> None:
        self.votes.setdefault(sender, answer.granted)

    patch.setattr(Candidacy, "count", count)


def a_pre_vote_takes_the_term(patch: pytest.MonkeyPatch) -> None:
    answer = elections.answer

    def eager(group: Group, sender: str, question: AskVote) -> Any:
        if question.term > group.term:
            group.take_term(question.term)
        return answer(group, sender, question)

    patch.setattr(elections, "answer", eager)


def any_log_is_up_to_date(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Group, "is_behind", lambda *_: True)


def the_longer_log_is_up_to_date(patch: pytest.MonkeyPatch) -> None:
    def is_behind(self: Group, last: int, last_term: int) -> bool:
        return last >= self.outline.last

    patch.setattr(Group, "is_behind", is_behind)


def an_old_leader_is_obeyed(patch: pytest.MonkeyPatch) -> None:
    of_another_term = Raft._of_another_term

    def obedient(self: Raft, sender: str, message: Any, now_us: int) -> Any:
        if isinstance(message, Entries) and message.term < self.group.term:
            return True, []
        return of_another_term(self, sender, message, now_us)

    patch.setattr(Raft, "_of_another_term", obedient)


# --- commits --------------------------------------------------------------------------------------


def an_older_term_is_committed_by_counting(patch: pytest.MonkeyPatch) -> None:
    advance = Leading._advance

    def hasty(self: Leading, effects: list[Any], now_us: int) -> None:
        first, self.first = self.first, 0
        advance(self, effects, now_us)
        self.first = first

    patch.setattr(Leading, "_advance", hasty)


def a_follower_answers_before_its_flush(patch: pytest.MonkeyPatch) -> None:
    take = following.take_entries

    def hasty(group: Group, message: Any) -> list[Any]:
        effects = take(group, message)
        answer = Accepted(group.term, group.stored, group.stored)
        return [*effects, Send(group.leader, answer)]

    patch.setattr(following, "take_entries", hasty)


def a_leader_counts_what_is_stored(patch: pytest.MonkeyPatch) -> None:
    accepted = Progress.accepted

    def hasty(self: Progress, stored: int, flushed: int) -> bool:
        return accepted(self, stored, stored)

    patch.setattr(Progress, "accepted", hasty)


def a_leader_counts_itself_before_its_flush(patch: pytest.MonkeyPatch) -> None:
    appended = Leading.appended

    def hasty(self: Leading, last: int, now_us: int) -> list[Any]:
        effects = appended(self, last, now_us)
        self.own.matched = last
        return effects

    patch.setattr(Leading, "appended", hasty)


def a_flush_of_what_was_cut_off_counts(patch: pytest.MonkeyPatch) -> None:
    def flushed(self: Group, index: int, term: int) -> bool:
        index = min(index, self.outline.last)
        more = index > self.outline.flushed
        self.outline.flushed = max(index, self.outline.flushed)
        return more

    patch.setattr(Group, "flushed", flushed)


def a_cut_leaves_the_flushed_index(patch: pytest.MonkeyPatch) -> None:
    cut = Outline.cut

    def forgetful(self: Outline, first: int) -> None:
        flushed = self.flushed
        cut(self, first)
        self.flushed = flushed

    patch.setattr(Outline, "cut", forgetful)


def what_agrees_is_cut_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outline, "difference", lambda self, first, runs: first)


def committed_entries_are_cut_off(patch: pytest.MonkeyPatch) -> None:
    take = following.take_entries

    def reckless(group: Group, message: Any) -> list[Any]:
        commit, group.commit = group.commit, min(group.commit, message.previous)
        effects = take(group, message)
        group.commit = max(commit, group.commit) if not message.runs else group.commit
        return effects

    patch.setattr(following, "take_entries", reckless)
    patch.setattr(Outline, "difference", lambda self, first, runs: first)


def a_follower_commits_its_own_tail(patch: pytest.MonkeyPatch) -> None:
    commit = following.commit

    def trusting(group: Group, told: int) -> list[Any]:
        stored, group.stored = group.stored, group.outline.last
        effects = commit(group, told)
        group.stored = stored
        return effects

    patch.setattr(following, "commit", trusting)


def an_old_snapshot_is_installed(patch: pytest.MonkeyPatch) -> None:
    take = following.take_snapshot

    def eager(group: Group, message: Any) -> list[Any]:
        group.commit = min(group.commit, message.index - 1)
        group.outline.reset(0, 0)
        return take(group, message)

    patch.setattr(following, "take_snapshot", eager)


# --- membership -----------------------------------------------------------------------------------


def one_half_decides_a_joint_configuration(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Configuration, "halves", property(lambda self: (self.voters,)))


def a_learner_counts(patch: pytest.MonkeyPatch) -> None:
    def halves(self: Configuration) -> Any:
        return tuple((*half, *self.learners) for half in (self.voters, self.outgoing) if half)

    patch.setattr(Configuration, "halves", property(halves))
    voters = property(lambda self: self.members)
    patch.setattr(Configuration, "all_voters", voters)


def a_second_change_before_the_first_is_in_force(patch: pytest.MonkeyPatch) -> None:
    propose = Leading.propose

    def hasty(self: Leading, asked: Any, now_us: int) -> list[Any]:
        changes, self.group.changes = self.group.changes, ()
        effects = propose(self, asked, now_us)
        self.group.changes = changes + self.group.changes
        return effects

    patch.setattr(Leading, "propose", hasty)


def a_change_before_an_entry_of_the_own_term(patch: pytest.MonkeyPatch) -> None:
    propose = Leading.propose

    def hasty(self: Leading, asked: Any, now_us: int) -> list[Any]:
        first, self.first = self.first, 0
        effects = propose(self, asked, now_us)
        self.first = first
        return effects

    patch.setattr(Leading, "propose", hasty)


def many_voters_are_changed_at_once(patch: pytest.MonkeyPatch) -> None:
    changed = Configuration.changed

    def hasty(self: Configuration, voters: Any, learners: Any, mode: Mode) -> Any:
        if mode is Mode.SIMPLE and voters and not self.is_joint:
            return Configuration(tuple(sorted(voters)), learners=tuple(sorted(learners)))
        return changed(self, voters, learners, mode)

    patch.setattr(Configuration, "changed", hasty)


def what_is_in_force_is_forgotten_in_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group, "in_force", lambda base, changes, committed: (base, committed))


# --- reads and handing over -----------------------------------------------------------------------


def a_read_before_an_entry_of_the_own_term(patch: pytest.MonkeyPatch) -> None:
    read = Leading.read

    def hasty(self: Leading, asked: Any, now_us: int) -> list[Any]:
        first, self.first = self.first, 0
        effects = read(self, asked, now_us)
        self.first = first
        return effects

    patch.setattr(Leading, "read", hasty)


def a_read_is_confirmed_by_an_old_round(patch: pytest.MonkeyPatch) -> None:
    begin = Reads.begin

    def same(self: Reads) -> bool:
        begun = begin(self)
        self.round = min(self.round, 1)
        return begun

    patch.setattr(Reads, "begin", same)


def a_read_is_not_confirmed(patch: pytest.MonkeyPatch) -> None:
    begin = Reads.begin

    def unasked(self: Reads) -> bool:
        begun = begin(self)
        self.round = 0
        return begun

    patch.setattr(Reads, "begin", unasked)


def read_numbers_begin_anew_in_every_life(patch: pytest.MonkeyPatch) -> None:
    begin = Forwarded.__init__
    patch.setattr(Forwarded, "__init__", lambda self, life: begin(self, 0))


def a_read_that_is_lost_is_not_asked_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Raft, "_ask_again", lambda self: [])


def what_a_peer_has_lost_is_not_sent_again(patch: pytest.MonkeyPatch) -> None:
    rejected = Progress.rejected

    def proud(self: Progress, previous: int, following: int) -> bool:
        return previous > self.matched and rejected(self, previous, following)

    patch.setattr(Progress, "rejected", proud)


def the_successor_is_called_before_it_has_everything(patch: pytest.MonkeyPatch) -> None:
    def call(self: Leading, effects: list[Any]) -> None:
        effects.append(Send(self.successor, leading.CampaignNow(self.group.term)))

    patch.setattr(Leading, "_call_successor", call)


# Each with the seed of the first run that finds it.
MUTANTS: dict[Plant, int] = {
    a_vote_is_not_saved: 18,
    a_term_is_not_saved: 0,
    a_vote_is_saved_after_it_is_sent: 0,
    a_vote_is_given_twice: 1,
    a_pre_vote_counts_as_a_vote: 1,
    a_pre_vote_takes_the_term: 0,
    any_log_is_up_to_date: 1,
    the_longer_log_is_up_to_date: 212,
    an_older_term_is_committed_by_counting: 2,
    a_follower_answers_before_its_flush: 0,
    a_leader_counts_what_is_stored: 5,
    a_leader_counts_itself_before_its_flush: 6,
    a_flush_of_what_was_cut_off_counts: 74,
    a_cut_leaves_the_flushed_index: 3,
    what_agrees_is_cut_off: 3,
    committed_entries_are_cut_off: 3,
    a_follower_commits_its_own_tail: 77,
    an_old_snapshot_is_installed: 88,
    one_half_decides_a_joint_configuration: 8,
    a_learner_counts: 86,
    a_second_change_before_the_first_is_in_force: 8,
    many_voters_are_changed_at_once: 43,
    what_is_in_force_is_forgotten_in_a_restart: 4,
    a_read_before_an_entry_of_the_own_term: 13,
    a_read_is_confirmed_by_an_old_round: 124,
    a_read_is_not_confirmed: 124,
    the_successor_is_called_before_it_has_everything: 3,
    an_old_leader_is_obeyed: 212,
    a_change_before_an_entry_of_the_own_term: 22,
    read_numbers_begin_anew_in_every_life: 375,
    a_read_that_is_lost_is_not_asked_again: 12,
    what_a_peer_has_lost_is_not_sent_again: 19,
}

RUNS_MAX = 1_000  # what a search for one mutant may take


def found_by(plant: Plant, seed: int) -> str:
    """The breach that the run of this seed finds; empty if it finds none."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        try:
            run(seed)
        except Breach as breach:
            return str(breach)
    return ""


def search(plant: Plant) -> tuple[int, str]:
    for seed in range(RUNS_MAX):
        breach = found_by(plant, seed)
        if breach:
            return seed, breach
    return RUNS_MAX, ""


if __name__ == "__main__":
    for mutant in MUTANTS:
        sys.stdout.write(f"    {mutant.__name__}: %d,  # %s\n" % search(mutant))
        sys.stdout.flush()
