"""The way up: this node seeks a parent, finds it, watches it, asks it for batches, and leaves it.

A node without a parent takes no children, nor does any node below it: it might come to hang on
itself. A cycle can come about nevertheless, as news of a move takes time. Every answer names the
ancestors, and a node that finds itself among its ancestors leaves, and begins at the owner.
"""

from __future__ import annotations

from collections.abc import Iterable

from hocket.core.relay.downstream import Downstream
from hocket.core.relay.events import FindRoute, NoRoute, RouteIs, Timer
from hocket.core.relay.lineage import Lineage, names
from hocket.core.relay.messages import (
    Attach,
    Attached,
    Detach,
    Fetch,
    Fetched,
    MoveUp,
    NotAttached,
    Redirect,
)
from hocket.core.relay.outbox import Outbox, Turn
from hocket.core.relay.recent import RecentBatches
from hocket.core.relay.search import Search
from hocket.core.relay.settings import ASK_AGAIN, DEPTH_MAX, RelaySettings
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Arm, Disarm
from hocket.model import PartitionId

ATTACH: Timer = ("attach", 0)
RETRY: Timer = ("retry", 0)


class Upstream:
    """Only this class changes the lineage."""

    __slots__ = (
        "_downstream", "_fetch", "_finding", "_lineage", "_outbox", "_partition_id", "_recent",
        "_retrying", "_search", "_settings", "_silent", "parent_room",
    )  # fmt: skip

    def __init__(
        self,
        partition_id: PartitionId,
        settings: RelaySettings,
        outbox: Outbox,
        lineage: Lineage,
        recent: RecentBatches,
        downstream: Downstream,
    ) -> None:
        self._partition_id = partition_id
        self._settings = settings
        self._outbox = outbox
        self._lineage = lineage
        self._recent = recent
        self._downstream = downstream
        self._search = Search(lineage.me, settings.redirects_max)
        self._finding = 0  # the token of the FindRoute that is out; 0: none is
        self._retrying = False  # the timer RETRY runs: do not ask for a route before it is due
        self._fetch: Fetch | None = None  # the fetch that is out at the parent
        self._silent = 0  # ticks since the parent was heard
        self.parent_room = 0  # how many more children the parent could take, as it has told

    # --- the ring says where the owner is ---------------------------------------------------------

    def seek(self) -> None:
        """Look for a parent, unless there is one, or nobody needs one, or a search is under way."""
        lineage = self._lineage
        if lineage.is_owner or lineage.parent is not None or self._search.asked is not None:
            return
        if not self._downstream.is_empty:
            self.find()

    def find(self) -> None:
        """Ask for the route to the owner, unless that question is out."""
        if not self._finding and not self._retrying:
            self._finding = self._outbox.next_request()
            self._outbox.add(FindRoute(self._finding))

    def route_is(self, event: RouteIs) -> Turn:
        lineage = self._lineage
        if event.token != self._finding or lineage.is_owner:
            return False
        self._finding = 0
        route = [each for each in event.route if each.node != lineage.me.node]
        if not route:
            self._retry()
            return False
        lineage.owner = route[-1]
        # Who has just been silent is passed over; but the leader may be back, and is asked last.
        shunned = self._search.avoid
        route = [*(each for each in route[:-1] if not names(shunned, each)), route[-1]]
        if lineage.parent is None and self._search.asked is None:
            self._ask(self._search.begin(route, by_route=True))
        return True

    def no_route(self, event: NoRoute) -> None:
        if event.token == self._finding:
            self._finding = 0
            self._retry()

    def _retry(self) -> None:
        self._retrying = True
        self._outbox.add(Arm(RETRY, self._settings.retry_us, self._settings.retry_us))

    def retry_is_due(self) -> None:
        self._retrying = False

    # --- a candidate is asked ---------------------------------------------------------------------

    def _ask(self, candidate: Contact | None) -> Turn:
        """Ask the candidate to take this node as its child; None: the search has found nobody."""
        outbox, search = self._outbox, self._search
        if candidate is None:
            outbox.add(Disarm(ATTACH))
            if search.by_route:
                self._retry()
                return False
            return True
        search.request = outbox.next_request()
        outbox.add(Arm(ATTACH, self._settings.attach_us))
        attach = Attach(
            search.request,
            self._partition_id,
            self._recent.end,
            self._downstream.load,
            search.redirects,
            search.avoid,
        )
        outbox.send(candidate, attach)
        return False

    def is_asking(self, sender: Contact, request: int) -> bool:
        asked = self._search.asked
        return asked is not None and sender.node == asked.node and request == self._search.request

    def ask_next(self, *, silent: bool = False) -> Turn:
        """The candidate that was asked does not take this node: ask another one."""
        return self._ask(self._search.failed(silent=silent))

    def attach_is_due(self) -> Turn:
        """The candidate has not answered in time."""
        return self._search.asked is not None and self.ask_next(silent=True)

    def attached(self, sender: Contact, message: Attached) -> Turn:
        lineage = self._lineage
        if not self.is_asking(sender, message.request):
            if lineage.parent is None or sender.node != lineage.parent.node:
                self._outbox.send(sender, Detach(self._partition_id))  # this node asks it no more
            return False
        if not message.ancestors or names(message.ancestors, lineage.me):
            return self.ask_next()
        self._end_search()
        self._search.found()
        lineage.parent = sender
        lineage.is_rooted = True
        self.parent_room = 0
        self._silent = 0
        self._fetch = None
        self._take_ancestors(message.ancestors)
        return True

    def redirect(self, sender: Contact, message: Redirect) -> Turn:
        if not self.is_asking(sender, message.request):
            return False
        to = self._search.redirected(message.to)
        if to == message.to and self._downstream.children.get(to) is not None:
            to = self._search.failed()  # the sender cannot know that this one hangs on us
        return self._ask(to)

    def _end_search(self) -> None:
        if self._search.asked is not None:
            self._search.end()
            self._outbox.add(Disarm(ATTACH))

    # --- the parent is asked ----------------------------------------------------------------------

    def fetch(self, credit_bytes: int) -> None:
        """Ask the parent for what comes next.

        A newer fetch replaces one that is out. A fetch without credit is only a sign of life.
        """
        parent = self._lineage.parent
        assert parent is not None
        self._fetch = Fetch(
            self._outbox.next_request(),
            self._partition_id,
            self._recent.end,
            credit_bytes,
            self._settings.wait_us,
            self._downstream.load,
        )
        self._outbox.send(parent, self._fetch)

    def is_fetching(self) -> bool:
        """The parent was asked for what comes next, and has not answered yet."""
        fetch = self._fetch
        return fetch is not None and fetch.credit_bytes > 0 and fetch.offset == self._recent.end

    def answered(self, request: int) -> Fetch | None:
        """The fetch that this request answers, which is out no more; None: it is not out."""
        fetch = self._fetch
        if fetch is None or fetch.request != request:
            return None
        self._fetch = None
        return fetch

    # --- the parent is watched --------------------------------------------------------------------

    def is_parent(self, sender: Contact) -> bool:
        """If the sender is the parent, then the parent lives, in whichever life."""
        parent = self._lineage.parent
        if parent is None or sender.node != parent.node:
            return False
        self._silent = 0
        return True

    def learn(self, message: Fetched) -> bool:
        """Take over what the parent says about the tree.

        False: this node is among its own ancestors, or the ancestors run in a circle.
        """
        lineage = self._lineage
        ancestors, is_rooted = message.ancestors, message.is_rooted
        self.parent_room = message.room
        lineage.total = message.total
        if ancestors == lineage.ancestors and is_rooted == lineage.is_rooted:
            return True
        if not 0 < len(ancestors) < DEPTH_MAX or names(ancestors, lineage.me):
            return False
        lineage.is_rooted = is_rooted
        self._take_ancestors(ancestors)
        return True

    def _take_ancestors(self, ancestors: tuple[Contact, ...]) -> None:
        self._lineage.ancestors = ancestors
        self._lineage.owner = ancestors[-1]
        self._downstream.wake()

    def is_silent(self) -> bool:
        """Count a tick. The parent was silent for so long that it counts as dead."""
        self._silent += 1
        return self._silent >= self._settings.silent_ticks

    def has_to_ask(self) -> bool:
        """No fetch is out, or the fetch or its answer may be lost."""
        return self._fetch is None or self._silent >= ASK_AGAIN

    def stalled(self) -> None:
        self._silent = 0
        if self._search.asked is not None:
            self._outbox.add(Arm(ATTACH, self._settings.attach_us))

    # --- the parent is left -----------------------------------------------------------------------

    def not_attached(self, sender: Contact, message: NotAttached) -> Turn:
        """The parent has forgotten this node, perhaps in a new life; but it lives: ask it first."""
        if self.is_parent(sender) and self.answered(message.request) is not None:
            return self.leave((sender, *self._lineage.ancestors[1:]))
        return False

    def move_up(self, sender: Contact, message: MoveUp) -> Turn:
        if self.is_parent(sender):
            return self.leave((message.to, *self._lineage.ancestors[1:]))
        return False

    def died(self, contact: Contact) -> Turn:
        if contact == self._lineage.parent:
            return self.parent_died()
        if contact == self._search.asked:
            return self.ask_next(silent=True)
        return False

    def parent_died(self) -> Turn:
        parent = self._lineage.parent
        assert parent is not None
        self._search.shun(parent)
        return self.leave(self._lineage.ancestors[1:])

    def leave_for_owner(self) -> Turn:
        owner = self._lineage.owner
        return self.leave((owner,) if owner is not None else ())

    def mistrust(self, parent: Contact) -> Turn:
        """The parent sent what nobody asked for: the owner shall not name it again."""
        self._search.shun(parent)
        return self.leave_for_owner()

    def leave(self, candidates: Iterable[Contact]) -> Turn:
        """Leave the parent, and ask the candidates. This node goes on at the same offset."""
        lineage = self._lineage
        self._detach()
        lineage.is_rooted = False
        self._fetch = None
        lineage.ancestors = (lineage.owner,) if lineage.owner is not None else ()
        first = self._search.begin(candidates, by_route=False)
        self._downstream.wake()
        return self._ask(first)

    def _detach(self) -> None:
        parent = self._lineage.parent
        if parent is not None:
            self._outbox.send(parent, Detach(self._partition_id))
            self._lineage.parent = None

    def end(self) -> None:
        """This node leaves the tree."""
        self._detach()
        self._outbox.add(Disarm(ATTACH))
        self._outbox.add(Disarm(RETRY))

    # --- ownership, and the life of this node -----------------------------------------------------

    def own(self, *, leads: bool) -> None:
        """This node is the root of the tree."""
        lineage = self._lineage
        self._end_search()
        self._detach()
        lineage.is_owner, lineage.is_leader = True, leads
        lineage.is_rooted = False
        lineage.owner = lineage.me
        lineage.ancestors = ()
        self._fetch = None
        self._finding = 0
        self._downstream.wake()

    def disown(self) -> None:
        """Those that hang on this node stay; this node becomes one of the others."""
        self._lineage.is_owner = self._lineage.is_leader = False
        self._lineage.owner = None
        self._downstream.wake()

    def forget_owner(self) -> None:
        self._lineage.owner = None

    def renew(self, me: Contact) -> None:
        """This node has begun a new life."""
        self._lineage.me = me
        if self._lineage.is_owner:
            self._lineage.owner = me
        self._downstream.wake()
