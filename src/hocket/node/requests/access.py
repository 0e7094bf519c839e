"""Users, roles and grants on request: made, changed, listed, explained; and what follows from it.

Rule 1: a change is in effect everywhere in the turn in which it is committed. Before the next frame
        of any client is looked at, handles whose user has lost the right are ended, and users whose
        token is void are hung up on.
Rule 2: a token is sent to the client that asked for it, and kept nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from hocket import frames
from hocket.core.metadata.access import Access, Changed
from hocket.core.metadata.metadata import GROUP
from hocket.core.metadata.roster import ADMIN, EVERYTHING, Change
from hocket.core.origin import Origin
from hocket.core.session.session import Demand, OpenedProducer, Session, failure
from hocket.errors import NotAllowed, UnknownUser
from hocket.frames import Frame
from hocket.model import EntryKind, RoleDescription, UserDescription, check_name
from hocket.node.identity import audit, tokens
from hocket.node.identity.authentication import Authentication
from hocket.node.requests.pages import Page, role_bytes, user_bytes
from hocket.node.running.own_requests import OPERATOR
from hocket.node.wiring import Servant, Wiring
from hocket.ports import Executor

USERS, ROLES = "1", "2"  # kinds in the place of a user or role in a listing, in this order
ONLY_ADDS = ("createRole", "addGrant")  # changes that take no right from anybody


@dataclass(slots=True)
class Asked:
    """Who asked for a change that is not durable yet, and the token to answer with."""

    who: str
    token: str = field(default="", repr=False)
    change: Change | None = None  # that was proposed here


class Guarding:
    def __init__(
        self,
        wiring: Wiring,
        access: Access,
        executor: Executor,
    ) -> None:
        self._wiring = wiring
        self._access = access
        self._authentication = Authentication(wiring, access, executor)
        self._asked: dict[Origin, Asked] = {}

    def catch_up_by(self, catch_up: Callable[[Callable[[], None]], None]) -> None:
        """Before it is said that a token is wrong, have this call when all users are known."""
        self._authentication.catch_up = catch_up

    def started(self) -> None:
        """Users are known."""
        self._authentication.started()

    def servants(self) -> dict[type, Servant]:
        return {
            frames.Hello: self._authentication.hello,
            frames.CreateUser: self._with_token,
            frames.RenewToken: self._with_token,
            frames.DeleteUser: self._without_token,
            frames.SetRoles: self._without_token,
            frames.CreateRole: self._without_token,
            frames.DeleteRole: self._without_token,
            frames.AddGrant: self._without_token,
            frames.RemoveGrant: self._without_token,
            frames.DescribeAccess: self._describe,
            frames.ExplainAccess: self._explain,
        }

    # --- changes ---------------------------------------------------------------------------------

    def _without_token(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        change = _change_of(demand.frame)
        self._append(connection, session, demand.frame.request, change)

    def _with_token(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.CreateUser | frames.RenewToken)
        token_hash, token = self._wiring.asked_hash, ""
        if not token_hash:  # else the node that has handed it on keeps the token for its client
            token = tokens.make_token(frame.name, self._wiring.entropy)
            token_hash = tokens.hash_token(token)
        self._append(connection, session, frame.request, _change_of(frame, token_hash), token)

    def _append(
        self, connection: int, session: Session, request: int, change: Change, token: str = ""
    ) -> None:
        # Who takes a right away must not be kept from it by a full disk.
        if change.kind in ("createUser", *ONLY_ADDS):
            self._wiring.partitions.admit(GROUP)
        else:
            self._wiring.partitions.admit_progress(GROUP)
        origin = Origin(connection, 0, request)
        append = self._access.change(origin, change)
        self._asked[origin] = Asked(audit.who(session), token, change)
        self._wiring.append_metadata(EntryKind.ACCESS, append.index, append.body)

    def make_first_admin(self, token: str) -> None:
        """The operator's own token: its user is the first admin, and turns access control on."""
        user = tokens.user_of(token)
        assert user is not None
        change = Change("createUser", user, (ADMIN,), token_hash=tokens.hash_token(token))
        self._wiring.partitions.admit(GROUP)
        origin = Origin(OPERATOR, 0, 0)
        append = self._access.change(origin, change)
        self._asked[origin] = Asked("(the operator of this broker)")
        self._wiring.append_metadata(EntryKind.ACCESS, append.index, append.body)

    def handed_on(self, origin: Origin, session: Session, token: str) -> None:
        """The request was handed on to the root; who asked gets this token when it is done."""
        self._asked[origin] = Asked(audit.who(session), token)

    def forget(self, origin: Origin) -> None:
        """Who asked is told something else, and gets no token."""
        asked = self._asked.pop(origin, None)
        if asked is not None and asked.change is not None:
            audit.may_have_changed(asked.who, asked.change)

    def answer_to(self, origin: Origin, *, is_done: bool) -> Frame:
        """The answer to a request that was handed on, and took effect in a snapshot, or failed."""
        asked = self._asked.pop(origin, None)
        if is_done and asked is not None and asked.token:
            return frames.TokenIssued(origin.request, asked.token)
        return frames.Done(origin.request)

    # --- what follows ----------------------------------------------------------------------------

    def changed(self, changed: Changed) -> None:
        change, origin = changed.change, changed.origin
        asked = None if origin is None else self._asked.pop(origin, None)
        if asked is not None:  # else another node has been asked, and has written it down
            audit.changed(asked.who, change)
        if asked is not None and asked.token:
            self._wiring.answer(origin, partial(frames.TokenIssued, token=asked.token))
        else:
            self._wiring.answer(origin, frames.Done)
        if change.kind in ("createUser", "setToken", "deleteUser"):
            self._authentication.forget(change.name)
        spared = None if origin is None else origin.connection
        if change.kind == "createUser":
            self._end_unknown(spared)
        if change.kind == "setToken":
            self._end_sessions(change.name, "has a new token", spared=spared)
        elif change.kind == "deleteUser":
            self._end_sessions(change.name, "was deleted")
        elif change.kind not in ONLY_ADDS:
            self._end_handles()

    def _end_sessions(self, user: str, why: str, *, spared: int | None = None) -> None:
        error = NotAllowed(f"user {user!r} {why}")
        for connection, session in list(self._wiring.sessions.items()):
            if session.rights.user == user and connection != spared:
                audit.hung_up(session, str(error))
                self._wiring.hang_up(connection, failure(0, error))

    def _end_unknown(self, spared: int | None) -> None:
        """Whoever has shown who it is while there were no users comes again, and is known."""
        for connection, session in list(self._wiring.sessions.items()):
            is_nobody = session.greeted and not session.rights.user
            if session.has_shown and is_nobody and connection != spared:
                audit.hung_up(session, "there are users from now on")
                self._wiring.hang_up(connection, None)

    def _end_handles(self) -> None:
        for connection, session in list(self._wiring.sessions.items()):
            for handle, error in session.without_right():
                audit.ended(session, session.handles[handle], str(error))
                self._end_handle(connection, session, handle, error)

    def _end_handle(
        self, connection: int, session: Session, handle: int, error: NotAllowed
    ) -> None:
        opened = session.handles[handle]
        if isinstance(opened, OpenedProducer):
            del session.handles[handle]
            ended = frames.HandleEnded(0, handle, error.code, str(error))
            self._wiring.network.send(connection, ended)
        else:
            self._wiring.end_subscription((connection, handle), error.code, str(error))

    # --- questions -------------------------------------------------------------------------------

    def _describe(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.DescribeAccess)
        page: Page[UserDescription | RoleDescription] = Page(paged=frame.paged)
        next_ = last = ""
        for place, each, size in self._described(frame.after):
            if not page.takes(each, size):
                next_ = last
                break
            last = place
        users = tuple(each for each in page.items if isinstance(each, UserDescription))
        roles = tuple(each for each in page.items if isinstance(each, RoleDescription))
        answer = frames.Access(frame.request, users, roles, next_)
        self._wiring.network.send(connection, answer)

    def _described(
        self, after: str
    ) -> Iterator[tuple[str, UserDescription | RoleDescription, int]]:
        """Users and then roles behind a place, each with its own place and size.

        A place is a kind and a name. So what is made or deleted between two parts of an answer
        moves nothing else: each user and each role that stays is described once, as it is then.
        """
        roster = self._access.committed
        for name in sorted(roster.users):
            if (place := f"{USERS}/{name}") > after:
                user = UserDescription(name, roster.users[name].roles)
                yield place, user, user_bytes(user)
        for name in sorted(roster.roles):
            if (place := f"{ROLES}/{name}") > after:
                role = RoleDescription(name, roster.roles[name])
                yield place, role, role_bytes(role)

    def _explain(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.ExplainAccess)
        if frame.topic != EVERYTHING:
            check_name(frame.topic)
        if frame.index not in ("", EVERYTHING):
            check_name(frame.index, "an index's name")
        if self._access.is_on and frame.user not in self._access.committed.users:
            check_name(frame.user, "a user's name")
            raise UnknownUser(f"there is no user {frame.user!r}; see: hocket user list")
        index = frame.index or EVERYTHING
        decision = self._access.judge(frame.user, frame.action, frame.topic, index)
        self._wiring.network.send(connection, frames.Explained(frame.request, *decision))


def _change_of(frame: Frame, token_hash: str = "") -> Change:
    match frame:
        case frames.CreateUser():
            return Change("createUser", frame.name, frame.roles, token_hash=token_hash)
        case frames.RenewToken():
            return Change("setToken", frame.name, token_hash=token_hash)
        case frames.DeleteUser():
            return Change("deleteUser", frame.name)
        case frames.SetRoles():
            return Change("setRoles", frame.name, frame.roles)
        case frames.CreateRole():
            return Change("createRole", frame.name)
        case frames.DeleteRole():
            return Change("deleteRole", frame.name)
        case frames.AddGrant():
            return Change("addGrant", frame.role, grant=frame.grant)
        case _:
            assert isinstance(frame, frames.RemoveGrant)
            return Change("removeGrant", frame.role, grant=frame.grant)
