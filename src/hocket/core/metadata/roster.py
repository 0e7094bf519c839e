"""Who may do what: users have roles, roles have grants, and nothing else gives a right.

Rule 1: while there is no user, access control is off and everybody may do everything.
Rule 2: while there is a user, there is one with the role `admin`, or nobody could change anything.

A request that concerns no single index (deleting a topic, reading without an index) concerns them
all: it is judged as one for the index `*`, which only a pattern of stars matches. In the same way
the topic `*` stands for the whole broker.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from hocket.errors import (
    LimitExceeded,
    NameInUse,
    NotAllowed,
    OutOfRange,
    UnknownRole,
    UnknownUser,
)
from hocket.model import (
    NAME_BYTES_MAX,
    Action,
    Decision,
    Grant,
    check_name,
    check_pattern,
    matches,
)

ADMIN = "admin"  # the role that is built in
EVERYTHING = "*"
ACTIONS: tuple[Action, ...] = get_args(Action)
OF_NAMES: tuple[Action, ...] = ("bind", "connect")  # actions on names of brokers, not on topics
WITHOUT_INDEX: tuple[Action, ...] = ("publish", "create", *OF_NAMES)  # they concern no index
USERS_MAX = 10_000
ROLES_MAX = 1_000
ROLES_OF_USER_MAX = 100
GRANTS_MAX = 1_000  # of one role

Kind = Literal[
    "createUser", "setToken", "deleteUser", "setRoles",
    "createRole", "deleteRole", "addGrant", "removeGrant",
]  # fmt: skip


_OF_USERS = ("createUser", "setToken", "deleteUser", "setRoles")


@dataclass(frozen=True, slots=True)
class User:
    name: str
    roles: tuple[str, ...]
    token_hash: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the log. `name` is a user's or a role's, as the kind says."""

    kind: Kind
    name: str
    roles: tuple[str, ...] = ()
    grant: Grant | None = None
    token_hash: str = field(default="", repr=False)

    def encode(self) -> bytes:
        return json.dumps({name: value for name, value in asdict(self).items() if value}).encode()

    @staticmethod
    def decode(body: bytes) -> Change:
        fields: dict[str, Any] = json.loads(body)
        grant = Grant(**fields["grant"]) if "grant" in fields else None
        return Change(
            fields["kind"], fields["name"], tuple(fields.get("roles", ())), grant,
            fields.get("token_hash", ""),
        )  # fmt: skip


class Roster:
    """The users and roles after some entry of the log."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.roles: dict[str, tuple[Grant, ...]] = {ADMIN: (Grant("admin"),)}

    # --- questions -------------------------------------------------------------------------------

    def explain(self, user: str, action: Action, topic: str, index: str = EVERYTHING) -> Decision:
        """Whether this user may do this, and by which grant."""
        if not self.users:
            return Decision(True, "access control is off: there is no user yet")
        if user not in self.users:
            return Decision(False, f"there is no user {user[:NAME_BYTES_MAX]!r}")
        for role, grant in self.grants_of(user):
            if permits(grant, action, topic, index):
                return Decision(True, f"the role {role!r} grants {in_words(grant)}")
        wanted = Grant(action, topic[:NAME_BYTES_MAX], index[:NAME_BYTES_MAX])
        return Decision(False, self._missing(user, wanted))

    def grants_of(self, user: str) -> Iterator[tuple[str, Grant]]:
        known = self.users.get(user)
        if known is not None:
            for role in known.roles:
                for grant in self.roles.get(role, ()):  # not there: what created it was lost
                    yield role, grant

    def _missing(self, user: str, wanted: Grant) -> str:
        roles = self.users[user].roles
        which = f"the roles of user {user!r} ({', '.join(roles)})"
        if len(roles) == 1:
            which = f"the only role of user {user!r}, {roles[0]!r},"
        elif not roles:
            which = f"user {user!r} has no roles, and nothing"
        asks = f"hocket grant add {roles[0] if len(roles) == 1 else 'ROLE'} {in_command(wanted)}"
        does = "do not grant" if len(roles) > 1 else "does not grant" if roles else "grants"
        return f"{which} {does} {in_words(wanted)}; an admin can change that with: {asks}"

    # --- changes ---------------------------------------------------------------------------------

    def check(self, change: Change) -> None:
        """Raises if the change cannot be made."""
        _CHECKS[change.kind](self, change)

    def apply(self, change: Change) -> None:
        """Make a change that was checked, here or when it was logged.

        It changes nothing if it is of a user or role that is not there: the entry that made it was
        lost. Nobody gets a right by that.
        """
        name = change.name
        known = self.users if change.kind in _OF_USERS else self.roles
        if name not in known and change.kind not in ("createUser", "createRole"):
            return
        if change.kind == "createUser":
            self.users[name] = User(name, change.roles, change.token_hash)
        elif change.kind == "setToken":
            self.users[name] = replace(self.users[name], token_hash=change.token_hash)
        elif change.kind == "deleteUser":
            del self.users[name]
        elif change.kind == "setRoles":
            self.users[name] = replace(self.users[name], roles=change.roles)
        elif change.kind == "createRole":
            self.roles[name] = ()
        elif change.kind == "deleteRole":
            del self.roles[name]
            for user in self.users.values():
                if name in user.roles:
                    kept = tuple(role for role in user.roles if role != name)
                    self.users[user.name] = replace(user, roles=kept)
        else:
            assert change.grant is not None
            others = tuple(grant for grant in self.roles[name] if grant != change.grant)
            added = (change.grant,) if change.kind == "addGrant" else ()
            self.roles[name] = (*others, *added)

    def _check_create_user(self, change: Change) -> None:
        check_name(change.name, "a user's name")
        if change.name in self.users:
            raise NameInUse(f"there is a user {change.name!r} already")
        if len(self.users) >= USERS_MAX:
            raise LimitExceeded(f"there are {USERS_MAX} users already")
        self._check_roles(change.roles)
        if not self.users and ADMIN not in change.roles:
            raise NotAllowed(
                f"the first user turns access control on and must have the role {ADMIN!r}, or "
                f"nobody could change anything afterwards: hocket user create {change.name} "
                f"--role {ADMIN}"
            )

    def _check_user(self, change: Change) -> None:
        if change.name not in self.users:
            check_name(change.name, "a user's name")
            raise UnknownUser(f"there is no user {change.name!r}; see: hocket user list")

    def _check_delete_user(self, change: Change) -> None:
        self._check_user(change)
        self._check_admin_stays(change.name)

    def _check_set_roles(self, change: Change) -> None:
        self._check_user(change)
        self._check_roles(change.roles)
        if ADMIN not in change.roles:
            self._check_admin_stays(change.name)

    def _check_create_role(self, change: Change) -> None:
        check_name(change.name, "a role's name")
        if change.name in self.roles:
            raise NameInUse(f"there is a role {change.name!r} already")
        if len(self.roles) >= ROLES_MAX:
            raise LimitExceeded(f"there are {ROLES_MAX} roles already")

    def _check_role(self, change: Change) -> None:
        self._check_known(change.name)
        if change.name == ADMIN:
            raise NotAllowed(
                f"the role {ADMIN!r} is built in and cannot be changed or deleted; make another "
                "with: hocket role create NAME"
            )

    def _check_add_grant(self, change: Change) -> None:
        self._check_role(change)
        grant = change.grant
        assert grant is not None
        if grant.action not in ACTIONS:
            raise OutOfRange(f"an action is one of {', '.join(ACTIONS)}, not {grant.action!r}")
        check_pattern(grant.topic, "a pattern of topics")
        check_pattern(grant.index, "a pattern of indexes")
        if grant.action in WITHOUT_INDEX and grant.index.strip(EVERYTHING):
            raise OutOfRange(
                f"{grant.action} has to do with no index, so that a pattern of indexes "
                f"({grant.index!r}) would change nothing; leave it out"
            )
        if len(self.roles[change.name]) >= GRANTS_MAX and grant not in self.roles[change.name]:
            raise LimitExceeded(f"the role {change.name!r} has {GRANTS_MAX} grants already")

    def _check_remove_grant(self, change: Change) -> None:
        self._check_role(change)
        assert change.grant is not None
        if change.grant not in self.roles[change.name]:
            raise OutOfRange(
                f"the role {change.name!r} has no grant {in_words(change.grant)}; see: "
                f"hocket grant list {change.name}"
            )

    def _check_roles(self, roles: tuple[str, ...]) -> None:
        if len(roles) > ROLES_OF_USER_MAX:
            raise LimitExceeded(f"a user has at most {ROLES_OF_USER_MAX} roles, not {len(roles)}")
        for role in roles:
            self._check_known(role)
        if len(set(roles)) < len(roles):
            raise OutOfRange(f"a role is named twice: {', '.join(roles)}")

    def _check_known(self, role: str) -> None:
        if role not in self.roles:
            check_name(role, "a role's name")
            raise UnknownRole(f"there is no role {role!r}; make it with: hocket role create {role}")

    def _check_admin_stays(self, leaver: str) -> None:
        admins = [user.name for user in self.users.values() if ADMIN in user.roles]
        if admins == [leaver]:
            raise NotAllowed(
                f"user {leaver!r} is the last one with the role {ADMIN!r}, and without it nobody "
                "could change anything; give the role to somebody else first"
            )


_CHECKS = {
    "createUser": Roster._check_create_user,
    "setToken": Roster._check_user,
    "deleteUser": Roster._check_delete_user,
    "setRoles": Roster._check_set_roles,
    "createRole": Roster._check_create_role,
    "deleteRole": Roster._check_role,
    "addGrant": Roster._check_add_grant,
    "removeGrant": Roster._check_remove_grant,
}


def differences(before: Roster, after: Roster) -> list[Change]:
    """Changes that lead from one roster to another; what is taken away comes first."""
    changes: list[Change] = []
    for name in before.users:
        if name not in after.users:
            changes.append(Change("deleteUser", name))
    for name, grants in before.roles.items():
        if name not in after.roles:
            changes.append(Change("deleteRole", name))
        else:
            gone = (grant for grant in grants if grant not in after.roles[name])
            changes += (Change("removeGrant", name, grant=grant) for grant in gone)
    for name, grants in after.roles.items():
        if name not in before.roles:
            changes.append(Change("createRole", name))
        new = (grant for grant in grants if grant not in before.roles.get(name, ()))
        changes += (Change("addGrant", name, grant=grant) for grant in new)
    for name, user in after.users.items():
        known = before.users.get(name)
        if known is None:
            changes.append(Change("createUser", name, user.roles, token_hash=user.token_hash))
            continue
        if known.token_hash != user.token_hash:
            changes.append(Change("setToken", name, token_hash=user.token_hash))
        if known.roles != user.roles:
            changes.append(Change("setRoles", name, user.roles))
    return changes


def common(one: Roster, other: Roster) -> Roster:
    """What both rosters permit. A user whose token is another one in one of them is in neither."""
    found = Roster()
    found.roles = {
        name: tuple(grant for grant in grants if grant in other.roles[name])
        for name, grants in one.roles.items()
        if name in other.roles
    }
    for name, user in one.users.items():
        known = other.users.get(name)
        if known is not None and known.token_hash == user.token_hash:
            roles = tuple(role for role in user.roles if role in known.roles)
            found.users[name] = replace(user, roles=roles)
    return found


def permits(grant: Grant, action: Action, topic: str, index: str = EVERYTHING) -> bool:
    return (
        grant.action in (action, "admin")
        and matches(grant.topic, topic)
        and matches(grant.index, index)
    )


def in_words(grant: Grant) -> str:
    what = "name" if grant.action in OF_NAMES else "topic"
    topic = "everything" if grant.topic == EVERYTHING else f"{what} {grant.topic!r}"
    index = "" if grant.index == EVERYTHING else f", index {grant.index!r}"
    return f"{grant.action} on {topic}{index}"


def in_command(grant: Grant) -> str:
    """The grant as the arguments of `hocket grant add ROLE`."""
    topic = "" if grant.topic == EVERYTHING else f" {_quoted(grant.topic)}"
    index = "" if grant.index == EVERYTHING else f" --index {_quoted(grant.index)}"
    return f"{grant.action}{topic}{index}"


def _quoted(name: str) -> str:
    """Quoted, since the user who was refused chose the name, and an admin may paste it."""
    return shlex.quote(name) if name.isprintable() else shlex.quote(repr(name))
