"""Users, roles and grants, kept in the metadata's log: state is what replay of the changes gives.

Rule: a change takes effect when it is committed, and is judged as if the changes on their way
before it had been.

Hence two rosters: the committed one, by which requests are judged, and the leading one, which has
the changes on their way already, and by which changes are judged. Two admins who delete each other
at once must not both succeed.

A node of a cluster that starts again has entries in its log of which it does not know whether they
are committed; in its last life it knew that of some. Until it knows it again, a right is in force
if it is one after each of these entries: none comes back that was taken away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hocket.core.metadata.flat import flat
from hocket.core.metadata.metadata import AppendChange, Indexes, Proposer
from hocket.core.metadata.roster import (
    ADMIN,
    EVERYTHING,
    OF_NAMES,
    Change,
    Roster,
    User,
    common,
    differences,
)
from hocket.core.origin import Origin
from hocket.model import NAME_BYTES_MAX, Action, Decision, Grant, matches

DECISIONS_MAX = 100_000  # that are remembered


@dataclass(slots=True)
class Changed:
    """The change is committed and in effect."""

    index: int
    origin: Origin | None  # None: nobody at this node waits for it
    change: Change


class Access(Proposer):
    """The machine of the metadata's log; see `core.metadata.metadata`."""

    def __init__(self, indexes: Indexes | None = None) -> None:
        super().__init__(indexes)
        self.committed = Roster()
        self.leading = Roster()
        self._decisions: dict[tuple[str, Action, str, str], Decision] = {}
        # While entries are in doubt: the roster after the last of them, and what is in force.
        self._doubted: Roster | None = None
        self._certain = Roster()
        self._may_be_on = False  # there is a user after one of these entries
        # What a plug-in has against something that is allowed, by user, action, topic and index;
        # empty: nothing. It may take rights, and gives none.
        self.veto: Callable[[str, Action, str, str], str] | None = None

    @property
    def is_on(self) -> bool:
        return bool(self.committed.users) or self._may_be_on

    @property
    def is_in_doubt(self) -> bool:
        return self._doubted is not None

    @property
    def in_force(self) -> Roster:
        """The roster by which requests are judged."""
        return self.committed if self._doubted is None else self._certain

    def decide(self, user: str, action: Action, topic: str, index: str = EVERYTHING) -> Decision:
        """What the committed roster says; remembered until the roster changes."""
        question = (user, action, topic, index)
        decision = self._decisions.get(question)
        if decision is None:
            decision = self._explain(*question)
            # Nothing has a name longer than the limit: to remember it would only cost memory.
            if max(map(len, question)) <= NAME_BYTES_MAX:
                if len(self._decisions) >= DECISIONS_MAX:
                    self._decisions.clear()
                self._decisions[question] = decision
        return decision

    def judge(self, user: str, action: Action, topic: str, index: str = EVERYTHING) -> Decision:
        """What the roster says, and plug-ins that may be against it."""
        decision = self.decide(user, action, topic, index)
        if decision.allowed and self.veto is not None:
            reason = self.veto(user, action, topic, index)
            return Decision(False, reason) if reason else decision
        return decision

    def _explain(self, user: str, action: Action, topic: str, index: str) -> Decision:
        if self.is_on and not self.in_force.users:
            return Decision(False, "this node does not know yet who its users are; try again")
        return self.in_force.explain(user, action, topic, index)

    def has_grant(self, user: str, topic: str, *, of_names: bool = False) -> bool:
        """Whether the user has any grant on this topic, even if for some of its indexes only; or,
        with `of_names`, on the broker's name."""
        return not self.is_on or any(
            matches(grant.topic, topic)
            and (grant.action == "admin" or (grant.action in OF_NAMES) == of_names)
            for _role, grant in self.in_force.grants_of(user)
        )

    def change(self, origin: Origin, change: Change) -> AppendChange:
        """Raises, and changes nothing, if the change cannot follow those on their way."""
        self.leading.check(change)
        self.leading.apply(change)
        return self._propose(origin, change.encode())

    def _lead(self, body: bytes) -> None:
        self.leading.apply(Change.decode(body))

    def _take_effect(self, index: int, body: bytes, origin: Origin | None) -> list[Changed]:
        self.applied_index = index
        change = Change.decode(body)
        self.committed.apply(change)
        self._certain = common(self._certain, self.committed)
        self._decisions.clear()
        return [Changed(index, origin, change)]

    def in_doubt(self, body: bytes) -> None:
        if self._doubted is None:
            self._doubted = _copy_of(self.committed)
            self._certain = _copy_of(self.committed)
        self._doubted.apply(Change.decode(body))
        self._certain = common(self._certain, self._doubted)
        self._may_be_on = self._may_be_on or bool(self._doubted.users)
        self._decisions.clear()

    def no_doubt(self) -> None:
        self._doubted, self._certain, self._may_be_on = None, Roster(), False
        self._decisions.clear()

    def _go_back(self) -> None:
        self.leading = _copy_of(self.committed)

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        roster = self.committed
        state = {
            "users": [flat(user) for user in roster.users.values()],
            "roles": {
                name: [flat(grant) for grant in grants]
                for name, grants in roster.roles.items()
                if name != ADMIN
            },
        }
        return self.applied_index, state

    def restore(self, index: int, state: dict[str, Any]) -> None:
        self._indexes.last = self.applied_index = index
        for roster in (self.committed, self.leading):
            for fields in state["users"]:
                user = User(fields["name"], tuple(fields["roles"]), fields["token_hash"])
                roster.users[user.name] = user
            for name, grants in state["roles"].items():
                roster.roles[name] = tuple(Grant(**fields) for fields in grants)

    def replace(self, index: int, state: dict[str, Any]) -> list[Changed]:
        before = self.committed
        self.committed, self.leading = Roster(), Roster()
        self._decisions.clear()
        self.restore(index, state)
        self._certain = common(self._certain, self.committed)
        return [Changed(index, None, change) for change in differences(before, self.committed)]


def _copy_of(roster: Roster) -> Roster:
    copy = Roster()
    copy.users |= roster.users
    copy.roles |= roster.roles
    return copy
