"""Requests about users, roles and grants: what to send, and what the answer means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from hocket import frames
from hocket.client_core.calls.call import Call, PagedCall
from hocket.errors import OutOfRange, WrongType
from hocket.frames import Frame
from hocket.model import (
    Action,
    Decision,
    Grant,
    RoleDescription,
    UserDescription,
    check_name,
    check_pattern,
)

EVERYTHING = "*"


def create_user(name: str, roles: Iterable[str]) -> Call[str]:
    return _token(frames.CreateUser(0, _user(name), _roles(roles)))


def renew_token(name: str) -> Call[str]:
    return _token(frames.RenewToken(0, _user(name)))


def delete_user(name: str) -> Call[None]:
    return _change(frames.DeleteUser(0, _user(name)))


def set_roles(name: str, roles: Iterable[str]) -> Call[None]:
    return _change(frames.SetRoles(0, _user(name), _roles(roles)))


def create_role(name: str) -> Call[None]:
    return _change(frames.CreateRole(0, _role(name)))


def delete_role(name: str) -> Call[None]:
    return _change(frames.DeleteRole(0, _role(name)))


def grant(role: str, action: str, topic: str, index: str) -> Call[None]:
    return _change(frames.AddGrant(0, _role(role), _grant(action, topic, index)))


def revoke(role: str, action: str, topic: str, index: str) -> Call[None]:
    return _change(frames.RemoveGrant(0, _role(role), _grant(action, topic, index)))


def access() -> PagedCall[tuple[list[UserDescription], list[RoleDescription]]]:
    return PagedCall(
        lambda after: frames.DescribeAccess(0, paged=True, after=after),
        frames.Access,
        lambda answers: (
            [user for answer in answers for user in answer.users],
            [role for answer in answers for role in answer.roles],
        ),
    )


def can(user: str, action: str, topic: str, index: str | None) -> Call[Decision]:
    if topic != EVERYTHING:
        check_name(topic)
    if index is not None and index != EVERYTHING:
        check_name(index, "an index's name")
    return Call(
        frames.ExplainAccess(0, _user(user), _action(action), topic, index or ""),
        lambda answer: Decision(answer.allowed, answer.reason),
        frames.Explained,
    )


def _change(frame: Frame) -> Call[None]:
    return Call(frame, lambda _answer: None, frames.Done, changes=True)


def _token(frame: Frame) -> Call[str]:
    return Call(frame, lambda answer: str(answer.token), frames.TokenIssued, changes=True)


def _user(name: str) -> str:
    return check_name(name, "a user's name")


def _role(name: str) -> str:
    return check_name(name, "a role's name")


def _roles(roles: Iterable[str]) -> tuple[str, ...]:
    if isinstance(roles, str) or not isinstance(roles, Iterable):
        raise WrongType(f"roles must be a list of names, not {roles!r}")
    return tuple(map(_role, roles))


def _grant(action: str, topic: str, index: str) -> Grant:
    check_pattern(topic, "a pattern of topics")
    return Grant(_action(action), topic, check_pattern(index, "a pattern of indexes"))


def _action(action: str) -> Action:
    known: tuple[Action, ...] = get_args(Action)
    for each in known:
        if each == action:
            return each
    raise OutOfRange(f"an action is one of {', '.join(known)}, not {action!r}")
