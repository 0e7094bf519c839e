"""A request that has one answer, on its way to the node that can give it.

A request about a topic goes to the node that leads it. If the node that is asked names another one,
or cannot be reached any more, the request goes on to the next, as the router says. What had left on
a link that broke, and must not be done twice, is not asked again: its answer is ReplyLost.

Any node describes a topic, but only its leader knows what the partitions hold. So the leader is
asked too; if it does not answer soon, what the first node said is the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hocket import frames
from hocket.client_core.session.router import Router
from hocket.client_core.session.session import Request, Session, is_read_only, points_elsewhere
from hocket.errors import HocketError
from hocket.frames import Frame
from hocket.model import SECOND_US
from hocket.timers import Timer

# About a topic, and answered by any node: from the catalogue, or by handing it on to the root.
_ANYWHERE = (frames.CreateTopic, frames.AlterTopic, frames.DeleteTopic, frames.DescribeTopic)


LEADER_US = SECOND_US  # so long the leader of a topic may take to describe it


class Asking:
    __slots__ = (
        "_described", "_exposed", "_frame", "_put", "_repeatable", "_router", "_timer", "request",
        "session", "topic",
    )  # fmt: skip

    def __init__(
        self,
        router: Router,
        frame: Frame,
        put: Callable[[Frame | HocketError], None],
        *,
        repeatable: bool,
    ) -> None:
        self.topic: str = getattr(frame, "topic", "")
        self.session = router.first
        if self.topic and not isinstance(frame, _ANYWHERE):
            self.session = router.where(self.topic)
        self._router = router
        self._frame = frame
        self._put = put
        self._repeatable = repeatable
        self._exposed = False  # it was sent by a session that is over
        self._timer: Timer | None = None  # of a pause
        self._described: frames.Topics | None = None  # by a node that does not lead the topic
        self.request: Request = self._ask(self.session, frame)

    @property
    def may_have_happened(self) -> bool:
        """It was sent, and whoever does it does more than to answer."""
        return (self._exposed or self.request.exposed) and not is_read_only(self._frame)

    @property
    def left(self) -> bool:
        """It was sent, and whoever got it may be about to answer."""
        return (self._timer is None or self._described is not None) and self.request.left

    def cancel(self) -> None:
        self.session.cancel(self.request)
        if self._timer is not None:
            self._timer.cancel()

    def _ask(self, session: Session, frame: Frame) -> Request:
        self._timer = None
        self.session = session
        self.request = session.request(frame, self._answered, repeatable=self._repeatable)
        return self.request

    def _ask_again(self, session: Session) -> None:
        try:
            self._ask(session, replace(self._frame))  # a copy: each session numbers its own
        except HocketError as error:  # the client was closed
            self._put(error)

    def _answered(self, answer: Frame | HocketError) -> None:
        if self._described is not None:
            self._leader_described(answer)
            return
        if isinstance(answer, frames.Topics) and self._asks_leader(answer):
            return
        if not self.topic or not points_elsewhere(answer):
            if self.topic:
                self._router.served(self.topic)
            self._put(answer)
            return
        self._exposed |= answer.may_have_happened
        session = self._router.misplaced(self.session, self.topic, answer)
        if session is not None:
            self._ask_again(session)
        else:
            again = partial(self._ask_again, self._router.first)
            self._timer = self._router.pause(self.topic, again)

    # --- descriptions ----------------------------------------------------------------------------

    def _asks_leader(self, answer: frames.Topics) -> bool:
        """Whether the leader is asked too, since this node is not the one."""
        if not isinstance(self._frame, frames.DescribeTopic) or not self.session.node_id:
            return False
        leaders = [part.leader for each in answer.topics for part in each.partitions[:1]]
        if not leaders or leaders[0] in ("", self.session.node_id):
            return False
        session = self._router.session_to(leaders[0])
        if session is None or session is self.session:
            return False
        self._described = answer
        self._ask(session, replace(self._frame))
        self._timer = self._router.outbox.arm(LEADER_US, self._leader_is_late)
        return True

    def _leader_described(self, answer: Frame | HocketError) -> None:
        assert self._described is not None
        if self._timer is not None:
            self._timer.cancel()
        self._put(answer if isinstance(answer, frames.Topics) else self._described)

    def _leader_is_late(self) -> None:
        assert self._described is not None
        self.session.cancel(self.request)
        self._put(self._described)
