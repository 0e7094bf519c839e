"""What goes down: the children of this node, and what they are sent.

Rule: nothing is sent without credit, and no more than the credit; a batch that is larger comes
alone.
"""

from __future__ import annotations

from hocket.core.relay.children import Child, Children
from hocket.core.relay.committed import Committed
from hocket.core.relay.consumers import Consumers
from hocket.core.relay.lineage import Lineage, names
from hocket.core.relay.messages import (
    Attach,
    Attached,
    Behind,
    Fetch,
    Fetched,
    MoveUp,
    NotAttached,
    NotRelaying,
    Piece,
    Redirect,
)
from hocket.core.relay.outbox import Outbox, Turn
from hocket.core.relay.recent import RecentBatches, size_of
from hocket.core.relay.settings import RelaySettings
from hocket.core.ring.contact import Contact
from hocket.model import PartitionId

SUSPECT = 2  # ticks: a child that is silent for so long, and that others cannot reach, is dropped


class Downstream:
    """Only this class changes the children."""

    __slots__ = (
        "_committed", "_consumers", "_lineage", "_outbox", "_partition_id", "_recent", "_settings",
        "children", "sent_bytes",
    )  # fmt: skip

    def __init__(
        self,
        partition_id: PartitionId,
        settings: RelaySettings,
        outbox: Outbox,
        lineage: Lineage,
        recent: RecentBatches,
        committed: Committed,
        consumers: Consumers,
    ) -> None:
        self._partition_id = partition_id
        self._settings = settings
        self._outbox = outbox
        self._lineage = lineage
        self._recent = recent
        self._committed = committed
        self._consumers = consumers
        self.children = Children(settings.children_max)
        self.sent_bytes = 0  # of batches, to all nodes that are or were fed

    @property
    def load(self) -> int:
        """How many consumers there are at this node and below it."""
        return len(self._consumers) + self.children.load

    @property
    def is_empty(self) -> bool:
        """There is neither a consumer nor a child."""
        return not self._consumers and not self.children

    # --- children come and go ---------------------------------------------------------------------

    def attach(self, sender: Contact, message: Attach) -> Turn:
        request, outbox = message.request, self._outbox
        if not self._lineage.has_way_to_owner:
            outbox.send(sender, NotRelaying(request, self._partition_id))
            return False
        child = self.children.get(sender)
        if child is not None and child.is_newer_than(sender, request):
            return False  # late
        if names(self._lineage.ancestors, sender):
            self._refuse_ancestor(sender, request)
            return False
        if child is None:
            self.children.drop_if_silent(message.avoid, SUSPECT)
            to = self._sent_on(sender, message)
            if to is not None:
                outbox.send(sender, Redirect(request, self._partition_id, to))
                return False
        self.children.put(Child(sender, request, message.next_offset, message.consumers))
        outbox.send(sender, Attached(request, self._partition_id, self._lineage.of_a_child))
        return True

    def _sent_on(self, sender: Contact, message: Attach) -> Contact | None:
        """Whom the newcomer should ask instead; None: it may stay.

        That is the owner, if the newcomer would be deeper here than the tree has to be, and a
        child, if there is no room here.
        """
        lineage = self._lineage
        if not lineage.is_owner and message.redirects == 0:
            deep = len(lineage.ancestors) >= self._settings.depth_for(lineage.total + 1)
            owner = lineage.ancestors[-1]
            if deep and not names(message.avoid, owner):
                return owner
        if self.children.room:
            return None
        return self.children.choose(sender, message.consumers, message.avoid)

    def _refuse_ancestor(self, sender: Contact, request: int) -> None:
        owner = self._lineage.ancestors[-1]
        if owner.node == sender.node:
            self._outbox.send(sender, NotRelaying(request, self._partition_id))
        else:
            self._outbox.send(sender, Redirect(request, self._partition_id, owner))

    def detach(self, sender: Contact) -> None:
        child = self.children.get(sender)
        if child is not None and child.contact.incarnation <= sender.incarnation:
            self.children.drop(sender)

    def died(self, contact: Contact) -> None:
        child = self.children.get(contact)
        if child is not None and child.contact == contact:
            self.children.drop(contact)

    def release(self) -> None:
        """The children find out by the silence of this node."""
        self.children.clear()

    def send_up(self, parent: Contact) -> None:
        """All children shall attach to the parent of this node instead."""
        for child in self.children:
            self._outbox.send(child.contact, MoveUp(self._partition_id, parent))
        self.children.clear()

    # --- what children get ------------------------------------------------------------------------

    def fetch(self, sender: Contact, message: Fetch) -> Child | None:
        """Returns the child that waits for an answer now; None: nobody does."""
        child = self.children.get(sender)
        if child is None:
            self._outbox.send(sender, NotAttached(message.request, self._partition_id))
            return None
        child.silent = 0
        if child.is_newer_than(sender, message.request):
            return None  # late: the child has asked anew since, perhaps in a new life
        child.contact = sender
        child.request = message.request
        child.load = message.consumers
        child.next_offset = message.offset
        child.credit_bytes = message.credit_bytes
        child.waiting = message
        return child

    def serve(self) -> None:
        """Answer every child that wants something that is here, or that was here."""
        recent = self._recent
        for child in self.children:
            fetch = child.waiting
            if fetch is None or fetch.credit_bytes <= 0 or fetch.offset >= recent.end:
                continue
            if fetch.offset < recent.start:
                child.waiting = None
                behind = Behind(fetch.request, self._partition_id, recent.start)
                self._outbox.send(child.contact, behind)
            else:
                credit_bytes = self._settings.capped(fetch.credit_bytes)
                self.answer(child, fetch, recent.take(fetch.offset, credit_bytes))

    def answer(self, child: Child, fetch: Fetch, pieces: tuple[Piece, ...] = ()) -> None:
        child.waiting = None
        if pieces:
            child.next_offset = pieces[-1].end
            child.sent_bytes += self.count(pieces)
        self._outbox.send(child.contact, self.fetched(fetch.request, pieces))

    def count(self, pieces: tuple[Piece, ...]) -> int:
        """These are sent to another node; how many bytes they have."""
        size = size_of(pieces)
        self.sent_bytes += size
        return size

    def fetched(self, request: int, pieces: tuple[Piece, ...]) -> Fetched:
        lineage = self._lineage
        return Fetched(
            request,
            self._partition_id,
            pieces,
            self._committed.end,
            lineage.of_a_child,
            self.children.room,
            self.load if lineage.is_owner else lineage.total,
            lineage.has_way_to_owner,
        )

    def wake(self) -> None:
        """Children must know at once that their ancestors are others: a cycle may hang on it."""
        for child in self.children:
            if child.waiting is not None:
                self.answer(child, child.waiting)

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Answer all children that wait: that this node lives is news too. Drop silent children."""
        limit = self._settings.ticks(self._settings.child_us)
        for child in list(self.children):
            child.silent += 1
            if child.silent >= limit:
                self.children.drop(child.contact)
            elif child.waiting is not None:
                self.answer(child, child.waiting)

    def stalled(self) -> None:
        for child in self.children:
            child.silent = 0
