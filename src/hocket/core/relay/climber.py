"""The way up: a parent is sought, found, watched and left.

A node without a parent takes no children, nor does anybody below it: it might come to hang on
itself. A cycle can come about nevertheless, as news of a move takes time. Every answer names the
ancestors, and who finds itself among them leaves, and begins at the owner.
"""

from __future__ import annotations

from collections.abc import Iterable

from hocket.core.relay import events
from hocket.core.relay.feeder import Feeder
from hocket.core.relay.messages import Attach, Attached, Detach, MoveUp, NotAttached, Redirect
from hocket.core.relay.part import ATTACH, RETRY, names
from hocket.core.relay.settings import DEPTH_MAX
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Arm, Disarm


class Climber(Feeder):
    __slots__ = ()

    # --- the ring says where ----------------------------------------------------------------------

    def _seek(self) -> None:
        """A parent, unless there is one, or somebody is being asked."""
        if self.is_owner or self.parent is not None or self._search.asked is not None:
            return
        if self.consumers or len(self.children):
            self._find()

    def _find(self) -> None:
        if not self._finding and not self._retrying:
            self._finding = self._take_request()
            self._effects.append(events.FindRoute(self._finding))

    def _route_is(self, event: events.RouteIs) -> None:
        route = [each for each in event.route if each.node != self.me.node]
        if event.token != self._finding or self.is_owner:
            return
        self._finding = 0
        if not route:
            self._retry()
            return
        self.owner = route[-1]
        if self.parent is None and self._search.asked is None:
            self._ask(self._search.begin(route, by_route=True))
        self._go_on()

    def _no_route(self, event: events.NoRoute) -> None:
        if event.token == self._finding:
            self._finding = 0
            self._retry()

    def _retry(self) -> None:
        self._retrying = True
        self._effects.append(Arm(RETRY, self.settings.retry_us, self.settings.retry_us))

    # --- somebody is asked ------------------------------------------------------------------------

    def _ask(self, candidate: Contact | None) -> None:
        """Whether it takes us as a child; None: the search has found nobody."""
        if candidate is None:
            self._effects.append(Disarm(ATTACH))
            if self._search.by_route:
                self._retry()
            else:
                self._go_on()
            return
        search = self._search
        search.request = self._take_request()
        self._effects.append(Arm(ATTACH, self.settings.attach_us))
        self._send(
            candidate,
            Attach(
                search.request,
                self.place,
                self.next_offset,
                self.load,
                search.redirects,
                search.avoid,
            ),
        )

    def _is_asked(self, sender: Contact, request: int) -> bool:
        asked = self._search.asked
        return asked is not None and sender.node == asked.node and request == self._search.request

    def _heard_attached(self, sender: Contact, message: Attached) -> None:
        if not self._is_asked(sender, message.request):
            if self.parent is None or sender.node != self.parent.node:
                self._send(sender, Detach(self.place))  # we have given up asking it
            return
        if not message.ancestors or names(message.ancestors, self.me):
            self._ask(self._search.failed())
            return
        self._end_search()
        self._search.found()
        self.parent = sender
        self._is_rooted = True
        self._parent_room = 0
        self._silent = 0
        self._poll = 0
        self._take_ancestors(message.ancestors)
        self._go_on()

    def _heard_redirect(self, sender: Contact, message: Redirect) -> None:
        if not self._is_asked(sender, message.request):
            return
        to = self._search.redirected(message.to)
        if to == message.to and self.children.get(to) is not None:
            to = self._search.failed()  # it cannot know that this one hangs on us
        self._ask(to)

    def _end_search(self) -> None:
        if self._search.asked is not None:
            self._search.end()
            self._effects.append(Disarm(ATTACH))

    # --- there is a parent ------------------------------------------------------------------------

    def _is_parent(self, sender: Contact) -> bool:
        """If so it lives, in whichever life."""
        if self.parent is None or sender.node != self.parent.node:
            return False
        self._silent = 0
        return True

    def _descends_from(self, ancestors: tuple[Contact, ...], *, is_rooted: bool) -> bool:
        """As the parent says. False: we are among them, or they run in a circle; we are gone."""
        if ancestors == self.ancestors and is_rooted == self._is_rooted:
            return True
        if not 0 < len(ancestors) < DEPTH_MAX or names(ancestors, self.me):
            self._leave_parent((self.owner,) if self.owner is not None else ())
            return False
        self._is_rooted = is_rooted
        self._take_ancestors(ancestors)
        return True

    def _take_ancestors(self, ancestors: tuple[Contact, ...]) -> None:
        self.ancestors = ancestors
        self.owner = ancestors[-1]
        self._wake_children()

    def _heard_not_attached(self, sender: Contact, message: NotAttached) -> None:
        """It has forgotten us, in a new life perhaps; but it lives, so it is asked first."""
        if self._is_parent(sender) and message.request == self._poll:
            self._leave_parent((sender, *self.ancestors[1:]))

    def _heard_move_up(self, sender: Contact, message: MoveUp) -> None:
        if self._is_parent(sender):
            self._leave_parent((message.to, *self.ancestors[1:]))

    def _parent_died(self) -> None:
        assert self.parent is not None
        self._search.shun(self.parent)
        self._leave_parent(self.ancestors[1:])

    def _leave_parent(self, candidates: Iterable[Contact]) -> None:
        """Go on elsewhere, at the same offset."""
        assert self.parent is not None
        self._send(self.parent, Detach(self.place))
        self.parent = None
        self._is_rooted = False
        self._poll = 0
        self.ancestors = (self.owner,) if self.owner is not None else ()
        first = self._search.begin(candidates, by_route=False)
        self._wake_children()
        self._ask(first)

    def _silence(self) -> int:
        return self.settings.ticks(self.settings.wait_us + self.settings.silent_us)
