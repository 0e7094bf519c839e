"""The bytes of a popular subscription, taken at the node that its leader has named.

The subscription itself stays open at the leader, with its index, its commits and its seeks. A feed
is begun when the leader names a node, and is over with anything that is unexpected: then the
subscription is opened anew at the leader, from behind the last message that is here, and the leader
says where to go on. So nothing is lost and nothing comes twice, whatever happens to the feed.

Like all cores of the client it does no I/O, waits for nothing and logs nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from hocket import frames
from hocket.client_core.session.session import Route, Session
from hocket.cluster_model import NodeAddress
from hocket.errors import HocketError, ProtocolError
from hocket.frames import Frame, packed
from hocket.model import SECOND_US
from hocket.timers import Timer

OPEN_US = 2 * SECOND_US  # a feed that is not open by then is given up


class Fed(Protocol):
    """The subscription that a feed is for."""

    @property
    def topic(self) -> str: ...

    def feed_places(self) -> tuple[list[tuple[int, int]], int]:
        """Partitions with the offset that comes next, and how many bytes may come."""

    def feed_is_open(self) -> None: ...

    def feed_delivered(self, frame: frames.Deliver, payload: memoryview) -> None: ...

    def feed_is_over(self, node: str, *, lost: bool) -> None:
        """It is to be opened anew at the leader. `lost`: because retention has removed what comes
        next, which the leader tells; else because of the node."""


class Feed:
    """An owner of the session to its node."""

    def __init__(
        self, fed: Fed, node: NodeAddress, groups: dict[int, int], index: str, session: Session
    ) -> None:
        self.session = session
        self._fed = fed
        self._node = node.node
        self._groups = groups  # partition -> group
        self._index = index
        self._handle: int | None = None
        self._opens = 0  # how often it was asked for; answers to former ones do not count
        self._is_over = False
        self._timer: Timer | None = session.after(OPEN_US, self._is_late)

    @property
    def topic(self) -> str:
        return self._fed.topic

    @property
    def route(self) -> Route:
        return Route(self.topic)

    @property
    def partitions(self) -> list[int]:
        return list(self._groups)

    @property
    def is_open(self) -> bool:
        return self._handle is not None

    @property
    def is_asked_for(self) -> bool:
        return True  # it is over as soon as it is not

    def begin(self) -> None:
        self.session.add(self)

    # --- opening ---------------------------------------------------------------------------------

    def link_up(self) -> None:
        places, credit_bytes = self._fed.feed_places()
        self._opens += 1
        frame = frames.OpenFeed(
            0,
            self.topic,
            self._index,
            packed(n for number, at in places for n in (number, self._groups[number], at)),
            max(0, credit_bytes),
        )
        self.session.request(frame, partial(self._answered, self._opens))

    open_again = link_up  # nobody opens it but its session, as soon as there is a link

    def _answered(self, number: int, answer: Frame | HocketError) -> None:
        is_wanted = number == self._opens and not self._is_over
        if isinstance(answer, frames.SubscriptionOpened):
            if not is_wanted:
                self.session.close_handle(answer.handle)
                return
            self._stop_timer()
            self._handle = answer.handle
            self.session.handles[answer.handle] = self
            self._fed.feed_is_open()
        elif is_wanted:
            self._give_up()

    def anew(self) -> None:
        """Go on elsewhere in the log: what the feed has sent so far is void."""
        if self._handle is not None:
            self.session.close_handle(self._handle)
            self._handle = None
        if self.session.state == "ready":
            self.link_up()

    def _is_late(self) -> None:
        self._timer = None
        self._give_up()

    # --- while it is open ------------------------------------------------------------------------

    def give(self, credit_bytes: int) -> None:
        assert self._handle is not None
        self.session.send(frames.Credit(0, self._handle, credit_bytes))

    def received(self, frame: Frame, payload: memoryview) -> None:
        if isinstance(frame, frames.Deliver):
            self._fed.feed_delivered(frame, payload)
        elif isinstance(frame, frames.Moved):
            self._give_up(lost=True)
        elif isinstance(frame, frames.HandleEnded):
            self._handle = None
            self._give_up()
        else:
            raise ProtocolError(f"{type(frame).__name__} came for a feed")

    # --- the end ---------------------------------------------------------------------------------

    def link_down(self) -> None:
        """The node is gone, or was never reached."""
        self._handle = None
        self._give_up()

    def end(self, _error: HocketError) -> None:
        """The session is over; whoever ends the whole client ends the subscription, too."""
        self._handle = None
        self._give_up()

    def _give_up(self, *, lost: bool = False) -> None:
        if not self._is_over:
            self.leave()
            self._fed.feed_is_over(self._node, lost=lost)

    def leave(self) -> None:
        """Nobody wants it any more."""
        self._is_over = True
        self._stop_timer()
        self.session.remove(self)
        handle, self._handle = self._handle, None
        if handle is not None and self.session.state == "ready":
            self.session.close_handle(handle)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- what owners are asked -------------------------------------------------------------------

    def located(self, error: HocketError | None) -> None:
        """Nobody looks for it: its node was named."""

    def deliver(self) -> bool:
        return True

    def remains(self) -> str:
        return ""

    def forked(self, _error: HocketError) -> None:
        self._is_over, self._handle, self._timer = True, None, None
