"""A request that has one answer, on its way to the node or the nodes that can give it.

A request about a topic goes to the node that leads it. If the node that is asked names another one,
or cannot be reached any more, the request goes on to the next, as the router says. What had left on
a link that broke, and must not be done twice, is not asked again: its answer is ReplyLost.

If the partitions that are meant are on several nodes, each of these is asked for its own, and their
answers are made one (`spread`).
"""

from __future__ import annotations

from collections.abc import Callable

from hocket.client_core.calls.part import Part
from hocket.client_core.calls.spread import Spread, Spreadable
from hocket.client_core.session.router import Router
from hocket.client_core.session.session import Route, Session
from hocket.errors import HocketError, RootAway, SeveralNodes
from hocket.frames import Frame


class Asking:
    __slots__ = ("_frame", "_put", "_repeatable", "_router", "_way", "topic")

    def __init__(
        self,
        router: Router,
        frame: Frame,
        put: Callable[[Frame | HocketError], None],
        *,
        repeatable: bool,
    ) -> None:
        self.topic: str = getattr(frame, "topic", "")
        self._router = router
        self._frame = frame
        self._put = put
        self._repeatable = repeatable
        partition = getattr(frame, "partition", -1)
        self._way: Part | Spread
        if isinstance(frame, Spreadable) and partition == -1 and router.leaders(self.topic):
            self._spread(frame)
        else:
            route = Route(self.topic, partition)
            self._way = Part(router, frame, route, self._answered, repeatable=repeatable)
            self._way.ask()

    @property
    def name(self) -> str:
        return type(self._frame).__name__

    @property
    def session(self) -> Session:
        """By which it is asked, or would be."""
        return self._way.session

    @property
    def may_have_happened(self) -> bool:
        """It was sent, and whoever does it does more than to answer."""
        return self._way.may_have_happened

    @property
    def left(self) -> bool:
        """It was sent, and whoever got it may be about to answer."""
        return self._way.left

    @property
    def refusal(self) -> RootAway | None:
        """The last word of whoever was asked, if it is asked again for that reason."""
        return self._way.refusal

    @property
    def missing(self) -> str:
        """Of several nodes: what has not been answered, in words."""
        return self._way.missing if isinstance(self._way, Spread) else ""

    def cancel(self) -> None:
        self._way.cancel()

    def _answered(self, answer: Frame | HocketError) -> None:
        frame = self._frame
        if isinstance(answer, SeveralNodes) and isinstance(frame, Spreadable):
            self._spread(frame)
        else:
            self._put(answer)

    def _spread(self, frame: Spreadable) -> None:
        self._way = Spread(self._router, frame, self._put, repeatable=self._repeatable)
        self._way.ask()
