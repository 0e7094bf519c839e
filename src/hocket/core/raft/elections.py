"""Elections: asking for votes, counting them, and giving one's own (paper 5.2 and 5.4.1).

A candidacy has one or two stages. First it asks whether a majority would vote for it, which changes
nobody's term or vote (pre-vote, dissertation 9.6): so a node that was cut off, or has an old log,
disturbs nobody. Then it takes the next term and asks for votes.
"""

from __future__ import annotations

from hocket.core.raft import quorum
from hocket.core.raft.events import Effect, Send
from hocket.core.raft.group import Group
from hocket.core.raft.messages import AskVote, VoteIs


class Candidacy:
    """One stage of a candidacy: what is asked for, and what was answered."""

    __slots__ = ("_handed_over", "_pre", "term", "votes")

    def __init__(self, group: Group, *, pre: bool, handed_over: bool = False) -> None:
        self._pre = pre
        self._handed_over = handed_over
        self.term = group.term + 1 if pre else group.term
        self.votes = {group.host.me: True}

    def ask(self, group: Group) -> list[Effect]:
        outline = group.outline
        question = AskVote(self.term, outline.last, outline.last_term, self._pre, self._handed_over)
        return [
            Send(voter, question)
            for voter in group.configuration.all_voters
            if voter != group.host.me
        ]

    def count(self, sender: str, answer: VoteIs) -> None:
        if (answer.pre, answer.asked) == (self._pre, self.term):
            self.votes.setdefault(sender, answer.granted)

    def outcome(self, group: Group) -> bool | None:
        return quorum.outcome(group.configuration.halves, self.votes)


def answer(group: Group, sender: str, question: AskVote) -> tuple[bool, list[Effect]]:
    """Whether the vote is given for good; and the answer, to a question of our term or a later one.

    Who has a vote is the candidate's business: its configuration may be newer than ours. Within a
    term a vote is given once, and not against a leader that is known.
    """
    tried = question.pre and question.term > group.term
    free = group.vote == sender or (not group.vote and not group.leader)
    granted = (tried or free) and group.is_behind(question.last, question.last_term)
    for_good = granted and not question.pre
    if for_good:
        group.give_vote(sender)
    term = question.term if granted else group.term
    said = VoteIs(term, question.term, granted, question.pre)
    return for_good, [Send(sender, said)]


def rank(group: Group, gone: str) -> int:
    """How many voters are to campaign before this node, when all see that the leader is gone."""
    waiting = [voter for voter in group.configuration.all_voters if voter != gone]
    me = group.host.me
    return waiting.index(me) if me in waiting else len(waiting)
