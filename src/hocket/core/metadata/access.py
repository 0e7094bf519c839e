"""Users, roles and grants, kept in the metadata's log: state is what replay of the changes gives.

Rule: a change takes effect when it is committed, and is judged as if the changes on their way
before it had been.

Hence two rosters: the committed one, by which requests are judged, and the leading one, which has
the changes on their way already, and by which changes are judged. Two admins who delete each other
at once must not both succeed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from hocket.core.metadata.metadata import AppendChange, Indexes
from hocket.core.metadata.roster import ADMIN, EVERYTHING, Change, Roster, User
from hocket.core.origin import Origin
from hocket.model import NAME_BYTES_MAX, Action, Decision, Grant, matches

DECISIONS_MAX = 100_000  # that are remembered


@dataclass(slots=True)
class Changed:
    """The change is committed and in effect."""

    index: int
    origin: Origin
    change: Change


class Access:
    """The machine of the metadata's log; see `core.metadata.metadata`."""

    def __init__(self, indexes: Indexes | None = None) -> None:
        self.committed = Roster()
        self.leading = Roster()
        self.applied_index = 0
        self._indexes = indexes or Indexes()
        self._pending: deque[tuple[int, Origin, Change]] = deque()
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
        index = self._indexes.take()
        self._pending.append((index, origin, change))
        return AppendChange(index, change.encode())

    def durable(self, index: int) -> list[Changed]:
        done = []
        while self._pending and self._pending[0][0] <= index:
            entry, origin, change = self._pending.popleft()
            self.applied_index = entry
            self.committed.apply(change)
            self._decisions.clear()
            done.append(Changed(entry, origin, change))
        return done

    def replayed(self, index: int, body: bytes) -> None:
        assert index == self._indexes.last + 1
        self._indexes.last = self.applied_index = index
        change = Change.decode(body)
        self.committed.apply(change)
        self.leading.apply(change)

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        roster = self.committed
        state = {
            "users": [asdict(user) for user in roster.users.values()],
            "roles": {
                name: [asdict(grant) for grant in grants]
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
