"""Logins: which user a client is, by the token or the certificate that it shows with its Hello.

Rule 1: a right token gets in at once, whatever came from its address before.
Rule 2: an unknown user and a wrong secret get the same answer after the same time.
Rule 3: an address that has sent too many wrong tokens waits before anything slow is done for it.
Rule 4: nobody who shows who it is is taken for nobody, or refused, by a node that has not heard yet
        of its user: the node asks the root before (`catch_up`). If there is no root to ask, it
        goes by what it knows, and whoever it took for nobody is hung up on once there are users.

To look at a token is a matter of microseconds (see `tokens`), so it is done before anything else.
Only while there are users with a hash of an earlier version, which is slow on purpose, tokens that
are not right at first sight are verified on another thread, one at a time. Of these rule 1 is true
once a token was verified: then it is recognised by its SHA-256, until its user changes. Where the
extra that verifies them is not installed, such tokens are refused, and so that rule 2 stays true,
whoever is refused is told that this may be why.
"""

from __future__ import annotations

import hmac
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from hocket.core.metadata.access import Access
from hocket.core.session.session import Demand, Session, failure
from hocket.core.session.throttle import Throttle
from hocket.deadline import in_seconds
from hocket.errors import Busy, HocketError, NotAllowed, TooManyAttempts
from hocket.frames import Hello
from hocket.model import SECOND_US
from hocket.node.identity import audit, tokens
from hocket.node.wiring import Wiring
from hocket.ports import Executor

log = logging.getLogger("hocket.node")

WORKER = "access"
WAITING_MAX = 1_000  # logins whose token is not looked at yet
_SHOWN_MAX = 20  # names in one line of the log
WRONG_TOKEN = (
    "the token is not that of a user of this broker; an admin makes a new one with: "
    "hocket user token NAME"
)
RENEW_OR_INSTALL = "renew the token with `hocket user token NAME`, or install hocket[argon2]"
WRONG_TOKEN_OR_OLD = (
    "the token is not that of a user of this broker, or it is of an earlier version, whose hashes "
    f"this broker cannot read; an admin can mend that: {RENEW_OR_INSTALL} where the broker runs"
)


@dataclass(slots=True, eq=False)
class Login:
    """A Hello that shows who it is, and is not verified yet."""

    connection: int
    session: Session
    request: int
    user: str | None  # the user that the token names; None if it is no token at all
    token: str = field(repr=False)  # empty: there is a certificate alone
    vouched: str = ""  # the user whose token it is, as a plug-in says; there may be none here yet


class Authentication:
    def __init__(
        self,
        wiring: Wiring,
        access: Access,
        executor: Executor,
    ) -> None:
        self._wiring = wiring
        self._access = access
        self._executor = executor
        self._throttle = Throttle()
        self._verified: dict[str, bytes] = {}  # user -> SHA-256 of the token
        self._waiting: deque[Login] = deque()
        self._is_at_work = False
        # Calls what it is given when this node has what the root has: the user may be new.
        self.catch_up: Callable[[Callable[[], None]], None] | None = None

    def hello(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, Hello)
        user = tokens.user_of(frame.token)
        login = Login(connection, session, frame.request, user, frame.token)
        if self._is_right(login):
            self._throttle.was_right(self._address(login))
            self._welcome(login, user)
            return
        authenticate, address = self._wiring.hooks.authenticate, self._address(login)
        is_asked = authenticate is not None and bool(frame.token)
        if authenticate is None or not is_asked or self._has_to_wait(login):
            self._go_on(login)
        else:
            authenticate(frame.token, address, partial(self._vouched, login))

    def _vouched(self, login: Login, user: str | HocketError | None) -> None:
        """A plug-in says whose token it is, if it knows."""
        if self._is_gone(login):
            return
        if isinstance(user, HocketError):
            self._wiring.hang_up(login.connection, failure(login.request, user))
            return
        login.vouched = user or ""
        if login.vouched in self._access.in_force.users:
            self._throttle.was_right(self._address(login))
            self._welcome(login, login.vouched)
        else:
            self._go_on(login)

    def _go_on(self, login: Login) -> None:
        if self.catch_up is None or self._has_to_wait(login):
            self._look_at(login)
        else:
            self.catch_up(partial(self._look_at, login))

    def _has_to_wait(self, login: Login) -> bool:
        """Too many wrong tokens came from there."""
        return bool(self._throttle.wait_us(self._address(login), self._wiring.clock.now_us()))

    def _look_at(self, login: Login) -> None:
        if self._is_gone(login):
            return
        certified = login.session.caller.certified
        if not self._access.is_on:
            self._welcome(login, "")
            return
        if certified in self._access.in_force.users:
            self._welcome(login, certified)
            return
        if login.vouched in self._access.in_force.users:  # now: the user was not known here before
            self._throttle.was_right(self._address(login))
            self._welcome(login, login.vouched)
            return
        if not login.token:
            self._refuse(login, _not_certified(certified))
            return
        if len(self._waiting) >= WAITING_MAX:
            error = Busy(f"{WAITING_MAX} tokens wait to be looked at; try again a little later")
            self._wiring.hang_up(login.connection, failure(login.request, error))
            return
        self._waiting.append(login)
        self._look_at_next()

    def started(self) -> None:
        """Say which users cannot log in here, if there are any."""
        users = self._access.committed.users
        old = sorted(name for name, user in users.items() if tokens.is_slow(user.token_hash))
        if old and not tokens.can_verify_slow():
            shown = ", ".join(old[:_SHOWN_MAX]) + (", ..." if len(old) > _SHOWN_MAX else "")
            log.warning(
                "%d users cannot log in by their tokens, whose hashes are of an earlier version: "
                "%s; %s", len(old), shown, RENEW_OR_INSTALL,
            )  # fmt: skip

    def forget(self, user: str) -> None:
        """Do not recognise the user's token any more: it may have another from now on."""
        self._verified.pop(user, None)

    def _look_at_next(self) -> None:
        while self._waiting and not self._is_at_work:
            login = self._waiting.popleft()
            if self._is_gone(login):
                continue
            if self._is_right(login):  # now: it was verified, or made, while this one waited
                self._welcome(login, login.user)
                continue
            wait_us = self._throttle.wait_us(self._address(login), self._wiring.clock.now_us())
            if wait_us:
                self._refuse(login, _wait(self._address(login), wait_us))
            elif not self._may_be_slow():
                self._was_wrong(login)
            elif not tokens.can_verify_slow():
                self._was_wrong(login, WRONG_TOKEN_OR_OLD)
            elif login.user is None:
                self._was_wrong(login)
            else:
                self._verify(login, login.user)

    def _verify(self, login: Login, user: str) -> None:
        known = self._access.in_force.users.get(user)
        token_hash = None if known is None else known.token_hash
        job = partial(
            tokens.is_slow_token_of, login.token, token_hash, self._wiring.settings.argon2
        )
        self._is_at_work = True
        self._executor.submit(WORKER, job, partial(self._looked_at, login, user, token_hash))

    def _looked_at(
        self,
        login: Login,
        user: str,
        token_hash: str | None,
        outcome: bool | BaseException,
    ) -> None:
        self._is_at_work = False
        if isinstance(outcome, BaseException):
            # Only the type of the error: its text may quote the token.
            log.error("a token of %r cannot be verified: %s", user, type(outcome).__name__)
        known = self._access.in_force.users.get(user)
        # The user may have been deleted meanwhile, or have another token.
        if outcome is True and known is not None and known.token_hash == token_hash:
            self._throttle.was_right(self._address(login))
            self._verified[user] = tokens.digest_of(login.token)
            self._welcome(login, user)
        else:
            self._was_wrong(login)
        self._look_at_next()

    def _is_right(self, login: Login) -> bool:
        """Whether the token is known to be right, without anything slow."""
        known = self._access.in_force.users.get(login.user or "")
        if tokens.is_token_of(login.token, None if known is None else known.token_hash):
            return True
        digest = self._verified.get(login.user or "")
        return digest is not None and hmac.compare_digest(digest, tokens.digest_of(login.token))

    def _may_be_slow(self) -> bool:
        """Whether there is a user with a hash of an earlier version. Then all that is wrong takes
        as long as such a hash does, or the time would tell who these users are."""
        users = self._access.committed.users.values()
        return any(tokens.is_slow(user.token_hash) for user in users)

    def _welcome(self, login: Login, user: str | None) -> None:
        if not self._is_gone(login):
            assert user is not None
            reply = login.session.welcome(login.request, user)
            self._wiring.network.send(login.connection, reply.frame)

    def _was_wrong(self, login: Login, words: str = WRONG_TOKEN) -> None:
        self._throttle.was_wrong(self._address(login), self._wiring.clock.now_us())
        self._refuse(login, NotAllowed(words))

    def _refuse(self, login: Login, error: HocketError) -> None:
        audit.wrong_token(login.session, login.user, str(error))
        if not self._is_gone(login):
            self._wiring.hang_up(login.connection, failure(login.request, error))

    def _is_gone(self, login: Login) -> bool:
        return self._wiring.sessions.get(login.connection) is not login.session

    @staticmethod
    def _address(login: Login) -> str:
        return login.session.caller.address


def _not_certified(certified: str) -> NotAllowed:
    return NotAllowed(
        f"the certificate names {certified[:80]!r}, and there is no user of that name here; an "
        "admin can make one with: hocket user create NAME"
    )


def _wait(address: str, wait_us: int) -> TooManyAttempts:
    wait = in_seconds(-(-wait_us // SECOND_US))
    return TooManyAttempts(
        f"too many wrong tokens came from {address or 'this address'}; try again in {wait}"
    )
