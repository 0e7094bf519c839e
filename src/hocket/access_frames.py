"""The frames about users, roles and grants. Others find them in `hocket.frames`, with the rest."""

from __future__ import annotations

from dataclasses import dataclass, field

from hocket.model import Action, Grant, RoleDescription, UserDescription


@dataclass(slots=True)
class CreateUser:
    """Answered by TokenIssued. The first user turns access control on, and must be an admin."""

    request: int
    name: str
    roles: tuple[str, ...]


@dataclass(slots=True)
class RenewToken:
    """The old token is void from now on. Answered by TokenIssued."""

    request: int
    name: str


@dataclass(slots=True)
class TokenIssued:
    request: int
    token: str = field(repr=False)


@dataclass(slots=True)
class DeleteUser:
    request: int
    name: str


@dataclass(slots=True)
class SetRoles:
    """Give a user these roles, in place of those that it has."""

    request: int
    name: str
    roles: tuple[str, ...]


@dataclass(slots=True)
class CreateRole:
    request: int
    name: str


@dataclass(slots=True)
class DeleteRole:
    request: int
    name: str


@dataclass(slots=True)
class AddGrant:
    request: int
    role: str
    grant: Grant


@dataclass(slots=True)
class RemoveGrant:
    request: int
    role: str
    grant: Grant


@dataclass(slots=True)
class DescribeAccess:
    request: int
    paged: bool = False
    after: str = ""


@dataclass(slots=True)
class Access:
    """Answer to DescribeAccess. Without users access control is off."""

    request: int
    users: tuple[UserDescription, ...]
    roles: tuple[RoleDescription, ...]
    next: str = ""


@dataclass(slots=True)
class ExplainAccess:
    """Ask whether a user may do something. Every user may ask about itself."""

    request: int
    user: str
    action: Action
    topic: str
    index: str = ""


@dataclass(slots=True)
class Explained:
    request: int
    allowed: bool
    reason: str
