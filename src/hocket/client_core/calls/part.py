"""A request on its way to one node: the whole of it, or what it asks of that node's partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hocket import frames
from hocket.client_core.session.answers import is_read_only, points_elsewhere
from hocket.client_core.session.router import Router
from hocket.client_core.session.session import Request, Route, Session
from hocket.errors import HocketError, RootAway, SeveralNodes
from hocket.frames import Frame
from hocket.timers import Timer

# About a topic, and answered by any node: from the catalogue, or by handing it on to the root.
_ANYWHERE = (
    frames.CreateTopic,
    frames.AlterTopic,
    frames.DeleteTopic,
    frames.DescribeTopic,
    frames.FindLeaders,
)


class Part:
    __slots__ = (
        "_exposed", "_frame", "_put", "_repeatable", "_request", "_route", "_router", "_timer",
        "refusal", "session",
    )  # fmt: skip

    def __init__(
        self,
        router: Router,
        frame: Frame,
        route: Route,
        put: Callable[[Frame | HocketError], None],
        *,
        repeatable: bool,
    ) -> None:
        self.session = router.first
        if route.topic and not isinstance(frame, _ANYWHERE):
            self.session = router.where(route)
        self._route = route
        self._router = router
        self._frame = frame
        self._put = put
        self._repeatable = repeatable
        self._exposed = False  # it was sent by a session that is over
        self._timer: Timer | None = None  # of a pause
        self._request: Request | None = None
        self.refusal: RootAway | None = None  # the last word: nobody decides on changes just now

    def ask(self) -> None:
        """Raises if the client is closed."""
        self._ask(self.session, self._frame)

    @property
    def may_have_happened(self) -> bool:
        """It was sent, and whoever does it does more than to answer."""
        exposed = self._exposed or (self._request is not None and self._request.exposed)
        return exposed and not is_read_only(self._frame)

    @property
    def left(self) -> bool:
        """It was sent, and whoever got it may be about to answer."""
        return self._timer is None and self._request is not None and self._request.left

    def cancel(self) -> None:
        if self._request is not None:
            self.session.cancel(self._request)
        if self._timer is not None:
            self._timer.cancel()
        self._forget_refusal()

    def _forget_refusal(self) -> None:
        if self.refusal is not None:
            self.refusal = None
            self._router.served(self._route)

    def _ask(self, session: Session, frame: Frame) -> None:
        self._timer = None
        self.session = session
        self._request = session.request(frame, self._answered, repeatable=self._repeatable)

    def _ask_at(self, session: Session) -> None:
        try:
            self._ask(session, replace(self._frame))  # a copy: each session numbers its own
        except HocketError as error:  # the client was closed
            self._put(error)

    def _answered(self, answer: Frame | HocketError) -> None:
        if isinstance(answer, RootAway) and (self._repeatable or not answer.may_have_happened):
            self._wait_for_root(answer)
            return
        self._forget_refusal()
        if not self._route.topic or not points_elsewhere(answer):
            if self._route.topic and not isinstance(answer, SeveralNodes):
                self._router.served(self._route)
            self._put(answer)
            return
        self._exposed |= answer.may_have_happened
        session = self._router.misplaced(self.session, self._route, answer)
        if session is not None:
            self._ask_at(session)
        else:
            self._timer = self._router.pause(self._route, self._ask_again)

    def _wait_for_root(self, refusal: RootAway) -> None:
        """One is being elected, or this node is cut off from it: see rule 3 of the router."""
        self._exposed |= refusal.may_have_happened
        self._request = None  # whoever had it has done nothing else
        self.refusal = refusal
        self._router.root_is_away(self.session, self._route, refusal)
        self._timer = self._router.pause(self._route, self._ask_again)

    def _ask_again(self) -> None:
        self._ask_at(self._router.where(self._route))  # others may have found it meanwhile
