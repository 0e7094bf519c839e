"""What all sides of a relay core share: its state, and how it says something.

The core is one class in four files, each standing on the one before: `Part`, the state; `Feeder`,
what goes down; `Climber`, the way up; `Taker`, what comes in. `Relay` puts them together.
"""

from __future__ import annotations

from collections.abc import Iterable

from hocket.core.relay.children import Children
from hocket.core.relay.consumers import Consumer, Lane
from hocket.core.relay.events import Effect, Send, Timer
from hocket.core.relay.log_reads import LogReads
from hocket.core.relay.messages import Fetched, Piece, Place, RelayMessage
from hocket.core.relay.search import Search
from hocket.core.relay.settings import DEPTH_MAX, RelaySettings
from hocket.core.relay.window import Window
from hocket.core.ring.contact import Contact

TICK: Timer = ("tick", 0)
ATTACH: Timer = ("attach", 0)
RETRY: Timer = ("retry", 0)


class Part:
    """The attributes without underscore are for others to read."""

    __slots__ = (
        "_collapsing", "_effects", "_finding", "_idle", "_is_rooted", "_lane", "_orphaned",
        "_parent_room", "_poll", "_poll_credit", "_poll_offset", "_reads", "_resting",
        "_retrying", "_search", "_silent",
        "_ticking", "_total", "ancestors", "children", "consumers", "end", "is_over", "is_owner",
        "last_request", "me", "owner", "parent", "place", "settings", "start", "window",
    )  # fmt: skip

    def __init__(
        self, me: Contact, place: Place, settings: RelaySettings, *, last_request: int = 0
    ) -> None:
        self.me = me
        self.place = place
        self.settings = settings
        self.is_owner = False
        self.is_over = False  # it has said Idle
        self.owner: Contact | None = None  # as far as we know
        self.parent: Contact | None = None
        self.ancestors: tuple[Contact, ...] = ()  # the parent first, the owner last
        self.children = Children(settings.children_max)
        self.consumers: dict[int, Consumer] = {}
        self.window = Window(settings.window_bytes)
        self.start = 0  # at the owner: what is before it is gone
        self.end = 0  # committed, as far as we know
        self.last_request = last_request  # one count for requests and tokens
        self._search = Search(me, settings.redirects_max)
        self._reads = LogReads()
        self._lane = Lane()
        self._finding = 0  # the token of a FindRoute
        self._retrying = False
        self._ticking = False
        self._poll = 0  # the fetch that is out at the parent
        self._poll_offset = 0
        self._poll_credit = 0
        self._parent_room = 0
        self._is_rooted = False  # all the way up to the owner, as far as we know
        self._total = 0  # consumers of the whole tree
        self._silent = 0  # ticks since the parent was heard
        self._resting = False  # what came was of no use: not before the next tick
        self._orphaned = 0  # ticks without a parent
        self._idle = 0  # ticks without anybody to serve
        self._collapsing = 0  # ticks in which we were superfluous
        self._effects: list[Effect] = []

    @property
    def next_offset(self) -> int:
        return self.window.end

    @property
    def load(self) -> int:
        """Consumers here and below."""
        return len(self.consumers) + self.children.load

    def _go_on(self) -> None: ...  # by Relay

    def _has_way_to_owner(self) -> bool:
        """One whose tree has no root takes no children: it might become its own ancestor."""
        return self.is_owner or self._is_rooted

    def _lineage(self) -> tuple[Contact, ...]:
        return (self.me, *self.ancestors[: DEPTH_MAX - 1])

    def _fetched(self, request: int, pieces: tuple[Piece, ...]) -> Fetched:
        total = self.load if self.is_owner else self._total
        return Fetched(
            request,
            self.place,
            pieces,
            self.end,
            self._lineage(),
            self.children.room,
            total,
            self._has_way_to_owner(),
        )

    def _take_request(self) -> int:
        self.last_request += 1
        return self.last_request

    def _send(self, to: Contact, message: RelayMessage) -> None:
        self._effects.append(Send(to, message))


def names(contacts: Iterable[Contact], who: Contact) -> bool:
    """Whether that node is among them, in whichever life."""
    return any(contact.node == who.node for contact in contacts)
