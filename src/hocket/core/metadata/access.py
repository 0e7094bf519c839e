"""Users, roles and grants, kept in the metadata's log: state is what replay of the changes gives.

Rule: a change takes effect when it is committed, and is judged as if the changes on their way
before it had been.

Hence two rosters: the committed one, by which requests are judged, and the leading one, which has
the changes on their way already, and by which changes are judged. Two admins who delete each other
at once must not both succeed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hocket.core.metadata.flat import flat
from hocket.core.metadata.metadata import AppendChange, Indexes, Proposer
from hocket.core.metadata.roster import ADMIN, EVERYTHING, Change, Roster, User, differences
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

    @property
    def is_on(self) -> bool:
        return bool(self.committed.users)

    def decide(self, user: str, action: Action, topic: str, index: str = EVERYTHING) -> Decision:
        """What the committed roster says; remembered until the roster changes."""
        question = (user, action, topic, index)
        decision = self._decisions.get(question)
        if decision is None:
            decision = self.committed.explain(*question)
            # Nothing has a name longer than the limit: to remember it would only cost memory.
            if max(map(len, question)) <= NAME_BYTES_MAX:
                if len(self._decisions) >= DECISIONS_MAX:
                    self._decisions.clear()
                self._decisions[question] = decision
        return decision

    def has_grant(self, user: str, topic: str) -> bool:
        """Whether the user has any grant on this topic, even if for some of its indexes only."""
        return not self.is_on or any(
            matches(grant.topic, topic) for _role, grant in self.committed.grants_of(user)
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
        self._decisions.clear()
        return [Changed(index, origin, change)]

    def _go_back(self) -> None:
        self.leading = Roster()
        self.leading.users |= self.committed.users
        self.leading.roles |= self.committed.roles

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
        return [Changed(index, None, change) for change in differences(before, self.committed)]
