"""What a node knows of one of its groups, whatever its role there.

Rule 1: term and vote change by `take_term` and `give_vote` only, which mark them unsaved; `Raft`
        then puts `PersistVote` before everything else that it wants done.
Rule 2: the commit index never goes back, and entries at or below it are never cut off.
Rule 3: nothing here is sent.

A node hosts thousands of groups, most of them idle, so what only a leader or a candidate needs is
in objects of their own, and what all groups of a node share is in one `Host`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hocket.core.raft.events import Committed, Configured, Effect
from hocket.core.raft.membership import Configuration, in_force
from hocket.core.raft.outline import Outline, Run
from hocket.core.raft.roles import Cause, Role, follows
from hocket.core.raft.settings import RaftSettings

NOBODY = ""
LONG_AGO = -(1 << 62)  # microseconds


@dataclass(slots=True)
class Host:
    """What all groups of one node share."""

    me: str  # the store id of this node
    life: int = 0  # the number of this life of its process; every life has a greater one
    settings: RaftSettings = field(default_factory=RaftSettings)
    # The groups that this node leads: `Leading`, a type that is not known here, by group. `Raft`
    # enters and removes them; `Pulse` walks them.
    leading: dict[int, Any] = field(default_factory=dict)
    leading_quietly: dict[int, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Saved:
    """What a group finds in its log when its life at this node begins."""

    configuration: Configuration  # in force behind the entry `start`
    term: int = 0
    vote: str = NOBODY
    start: int = 0  # the entry that the snapshot is behind; 0: there is none
    start_term: int = 0
    runs: Sequence[Run] = ()  # of the entries behind it, all durable
    changes: Sequence[tuple[int, Configuration]] = ()  # which of these are configurations
    configured: tuple[int, int] = (0, 0)  # index and term of the last `Configured`
    committed: int = 0  # what is known to be committed, and durable; more may be


class Group:
    """See the head of the file."""

    __slots__ = (
        "changes",
        "commit",
        "configuration",
        "heard_us",
        "host",
        "id",
        "is_quiet",
        "is_unsaved",
        "leader",
        "outline",
        "role",
        "snapshot_configuration",
        "stored",
        "term",
        "vote",
    )

    def __init__(self, host: Host, group_id: int, saved: Saved) -> None:
        self.host = host
        self.id = group_id
        self.term = saved.term
        self.vote = saved.vote
        self.is_unsaved = False
        self.role = Role.FOLLOWER
        self.leader = NOBODY
        self.heard_us = LONG_AGO  # when the leader was last heard
        self.is_quiet = False  # nothing to do: no beat, and no timer runs
        self.outline = outline = Outline(saved.start, saved.start_term)
        for last, term in saved.runs:
            outline.add(last, term)
        outline.flushed = outline.last
        self.stored = 0  # up to here the log is known to be that of the leader of this term
        self.snapshot_configuration = saved.configuration
        known = max(saved.start, min(saved.committed, outline.last))
        index, term = saved.configured
        if index > known and outline.term_of(index) == term:
            known = index  # else its entry was not durable, and comes again
        self.configuration, self.commit = in_force(saved.configuration, saved.changes, known)
        # Configurations behind the commit index; hardly ever more than one.
        self.changes: tuple[tuple[int, Configuration], ...] = tuple(
            change for change in saved.changes if change[0] > self.commit
        )

    # --- roles -----------------------------------------------------------------------------------

    def become(self, cause: Cause) -> None:
        self.role = follows(self.role, cause)

    def take_term(self, term: int) -> None:
        assert term > self.term, (term, self.term)
        self.term = term
        self.vote = NOBODY
        self.stored = 0
        self.is_unsaved = True

    def give_vote(self, peer: str) -> None:
        assert self.vote in (NOBODY, peer), (self.vote, peer)
        if self.vote != peer:
            self.vote = peer
            self.is_unsaved = True

    @property
    def has_vote(self) -> bool:
        """Whether this node is a voter, as far as it knows."""
        return self.configuration.has_vote(self.host.me)

    def is_bound(self, now_us: int) -> bool:
        """Whether this node hears a leader (or leads), and therefore helps nobody to replace it."""
        settings = self.host.settings
        if not settings.check_quorum or not self.leader:
            return False
        if self.is_quiet or self.leader == self.host.me:
            return True
        return now_us < self.heard_us + settings.election_us

    def knows(self, node: str) -> bool:
        """Whether it is a member, or will be by a change that is under way: others have no say."""
        return node in self.configuration.members or any(
            node in each.members for _, each in self.changes
        )

    # --- the log ---------------------------------------------------------------------------------

    def is_behind(self, last: int, last_term: int) -> bool:
        """Whether a log that ends like this is at least as up to date as ours (paper 5.4.1)."""
        outline = self.outline
        return (last_term, last) >= (outline.last_term, outline.last)

    def flushed(self, index: int, term: int) -> bool:
        """Whether more of the log is durable than was known."""
        outline = self.outline
        if index <= outline.flushed or outline.term_of(index) != term:
            return False
        outline.flushed = index
        return True

    def cut(self, first: int) -> None:
        assert first > self.commit, (first, self.commit)
        self.outline.cut(first)
        self.changes = tuple(change for change in self.changes if change[0] < first)

    def commit_through(self, index: int, effects: list[Effect]) -> bool:
        """Whether another configuration came into force."""
        assert index <= self.outline.last, (index, self.outline.last)
        self.commit = index
        effects.append(Committed(index))
        changed = False
        while self.changes and self.changes[0][0] <= index:
            (at, self.configuration), *rest = self.changes
            self.changes = tuple(rest)
            effects.append(Configured(at, self.outline.term_of(at), self.configuration))
            changed = True
        return changed
