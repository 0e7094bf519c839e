"""Who belongs to a group: voters and learners, and how one configuration follows another.

Rule 1: a configuration is in force at a node when the node knows its entry to be committed, not
        when the entry is appended. At most one change is under way, so two configurations that are
        in force at the same time follow one another, and their majorities meet.
Rule 2: more than one voter at a time is changed through a joint configuration only (paper 6).

Rule 1 differs from the dissertation (4.1), where a configuration counts as soon as it is in the
log. Then a node would have to fall back to the older one whenever its log is cut. What rule 1 needs
instead: whoever has a configuration entry in its log knows the entry before it to be committed. A
leader appends the second one only when the first is in force, and every message with the second
says so; and a node that has been restarted finds it in its own log (`in_force`). That is for
safety. To make progress, too, a node must not forget what is in force (`events.Configured`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Mode(Enum):
    """How a change of the membership is gone about."""

    SIMPLE = "simple"  # one voter comes, goes, or becomes a learner; not joint
    AUTO = "auto"  # joint; the leader leaves the joint configuration by itself
    EXPLICIT = "explicit"  # joint, until it is told to leave


def _sorted(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(ids)))


@dataclass(slots=True, frozen=True)
class Configuration:
    """Voters, learners, and, while it is joint, what is being left. All in the order of their ids.

    Ids are store ids, which are never used again.
    """

    voters: tuple[str, ...]  # while joint: of the half that is coming
    outgoing: tuple[str, ...] = ()  # the half that is being left; empty unless joint
    learners: tuple[str, ...] = ()
    next_learners: tuple[str, ...] = ()  # voters of the outgoing half that become learners
    leaves_by_itself: bool = False

    @property
    def is_joint(self) -> bool:
        return bool(self.outgoing)

    @property
    def halves(self) -> tuple[tuple[str, ...], ...]:
        return (self.voters, self.outgoing) if self.outgoing else (self.voters,)

    @property
    def members(self) -> tuple[str, ...]:
        return _sorted((*self.voters, *self.outgoing, *self.learners))

    @property
    def all_voters(self) -> tuple[str, ...]:
        return _sorted((*self.voters, *self.outgoing))

    def has_vote(self, peer: str) -> bool:
        return peer in self.voters or peer in self.outgoing

    # --- what follows ----------------------------------------------------------------------------

    def changed(
        self, voters: Iterable[str], learners: Iterable[str], mode: Mode
    ) -> Configuration | str:
        """The configuration that leads to these members; or why there is none."""
        wanted, taught = _sorted(voters), _sorted(learners)
        both = sorted(set(wanted) & set(taught))
        if self.is_joint:
            return "the configuration is joint: leave it before the next change"
        if not wanted:
            return "a group needs a voter: name at least one"
        if both:
            return f"{', '.join(both)} cannot be voter and learner: name each once"
        if mode is Mode.SIMPLE:
            if len(set(wanted) ^ set(self.voters)) > 1:
                return "a simple change is of one voter: change more by a joint configuration"
            return Configuration(wanted, learners=taught)
        return Configuration(
            wanted,
            outgoing=self.voters,
            learners=_sorted(set(taught) - set(self.voters)),
            next_learners=_sorted(set(taught) & set(self.voters)),
            leaves_by_itself=mode is Mode.AUTO,
        )

    def left(self) -> Configuration | str:
        """The configuration behind the joint one; or why there is none."""
        if not self.is_joint:
            return "the configuration is not joint: there is nothing to leave"
        return Configuration(self.voters, learners=_sorted((*self.learners, *self.next_learners)))


def in_force(
    base: Configuration, changes: Sequence[tuple[int, Configuration]], committed: int
) -> tuple[Configuration, int]:
    """What is in force in a log that was read again, and the index up to which that is certain.

    `changes` are the configuration entries behind `base`, in order. Each but the last is committed,
    whatever else is known: its successor was appended because of that.
    """
    for at, (index, configuration) in enumerate(changes):
        if index > committed and at == len(changes) - 1:
            break
        base, committed = configuration, max(committed, index)
    return base, committed
