"""What comes in next: from the parent, or at the owner from its own log.

Rule 1: what is taken in depends on offsets alone. Pieces count if the first one holds the offset
        that comes next and none is missing among them, whatever else an answer says.
Rule 2: only what is committed is handed on. The owner stops at the committed end; all other nodes
        have only what came from the owner.
"""

from __future__ import annotations

from hocket.core.relay.committed import Committed
from hocket.core.relay.consumers import Consumers
from hocket.core.relay.downstream import Downstream
from hocket.core.relay.lineage import Lineage
from hocket.core.relay.messages import Behind, Fetched, Piece
from hocket.core.relay.outbox import Outbox, Turn
from hocket.core.relay.recent import RecentBatches, begin_behind, follow
from hocket.core.relay.settings import RelaySettings
from hocket.core.relay.upstream import Upstream
from hocket.core.ring.contact import Contact


class Intake:
    """Only this class changes the recent batches and the committed range."""

    __slots__ = (
        "_committed", "_consumers", "_downstream", "_lineage", "_outbox", "_reading",
        "_reading_offset", "_recent", "_resting", "_settings", "_upstream",
    )  # fmt: skip

    def __init__(
        self,
        settings: RelaySettings,
        outbox: Outbox,
        lineage: Lineage,
        recent: RecentBatches,
        committed: Committed,
        consumers: Consumers,
        downstream: Downstream,
        upstream: Upstream,
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._lineage = lineage
        self._recent = recent
        self._committed = committed
        self._consumers = consumers
        self._downstream = downstream
        self._upstream = upstream
        self._reading = 0  # at the owner: the token of the log read that is under way; 0: none is
        self._reading_offset = 0  # where that read begins
        self._resting = False  # what came was of no use: do not ask before the next tick

    # --- asking -----------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask for what comes next, if anybody waits for it, unless that question is out."""
        wanted = self._wanted()
        if wanted is None or self._resting:
            return
        passed_over = min(wanted, self._committed.end)  # nobody waits for what is before it
        if passed_over > self._recent.end:
            self._recent.reset(passed_over)
        if self.is_asking():
            return
        if self._lineage.is_owner:
            self._reading_offset = self._recent.end
            self._reading = self._outbox.read_log(
                self._recent.end, self._committed.end, self._settings.fetch_bytes
            )
        elif self._lineage.parent is not None:
            self._upstream.fetch(self._settings.fetch_bytes)

    def is_asking(self) -> bool:
        """What comes next is asked for already, or is not there yet."""
        if self._lineage.is_owner:
            return self._reading != 0 or self._recent.end >= self._committed.end
        return self._upstream.is_fetching()

    def _wanted(self) -> int | None:
        """The lowest offset, past the recent batches, that somebody waits for."""
        end = self._recent.end
        wanted = [
            each.next_offset
            for each in self._consumers
            if each.next_offset >= end and each.is_eager
        ]
        wanted += [
            each.next_offset
            for each in self._downstream.children
            if each.next_offset >= end and each.is_eager
        ]
        return min(wanted, default=None)

    def begin_tick(self) -> None:
        self._resting = False

    def tick_parent(self) -> Turn:
        """There is a parent: find it dead, ask it again, or leave it alone."""
        upstream = self._upstream
        if upstream.is_silent():
            return upstream.parent_died()
        if upstream.has_to_ask():
            upstream.fetch(0 if self._wanted() is None else self._settings.fetch_bytes)
        return False

    # --- the parent answers -----------------------------------------------------------------------

    def fetched(self, sender: Contact, message: Fetched) -> Turn:
        upstream, recent, committed = self._upstream, self._recent, self._committed
        if not upstream.is_parent(sender):
            return False
        fetch = upstream.answered(message.request)
        if fetch is not None and not upstream.learn(message):
            return upstream.leave_for_owner()
        self.hear_of(message.end)
        if recent.accepts(message.pieces):
            recent.add(message.pieces)
            self.hear_of(recent.end)
        elif message.pieces:
            if fetch is not None and not follow(message.pieces, fetch.offset):
                return self._mistrust(sender)
        elif fetch is not None and recent.is_empty and recent.end > committed.end:
            recent.reset(committed.end)  # a consumer is ahead of the end; others may not be
        return True

    def hear_of(self, end: int) -> None:
        """The partition is committed up to `end`, or further."""
        if end > self._committed.end:
            self._committed.end = end

    def behind(self, sender: Contact, message: Behind) -> Turn:
        upstream = self._upstream
        if not upstream.is_parent(sender) or upstream.answered(message.request) is None:
            return False
        if message.first > self._recent.end:
            self._recent.reset(message.first)
        else:
            self._resting = True
        return True

    def _mistrust(self, parent: Contact) -> Turn:
        """The parent sent what nobody asked for. Begin at the owner, unless the parent is that."""
        owner = self._lineage.owner
        if owner is None or owner.node == parent.node:
            self._resting = True
            return False
        return self._upstream.mistrust(parent)

    # --- the owner's log --------------------------------------------------------------------------

    def is_reading(self, token: int) -> bool:
        return token == self._reading

    def log_read(self, pieces: tuple[Piece, ...]) -> Turn:
        self._reading = 0
        if self._reading_offset == self._recent.end:
            self._take_from_log(pieces)
        return True

    def _take_from_log(self, pieces: tuple[Piece, ...]) -> None:
        recent = self._recent
        if begin_behind(pieces, recent.end):
            recent.reset(pieces[0].start)  # those that want what was lost are told by `catch_up`
        if recent.accepts(pieces):
            recent.add(pieces)
        else:
            self._resting = True  # the same question would bring the same answer at once

    def own(self, start: int, end: int) -> None:
        if self._recent.is_empty or self._recent.end > end:
            self._recent.reset(end)
        self.advance(start, end)

    def advance(self, start: int, end: int) -> None:
        """At the owner: the log can be read from `start` up to `end`."""
        self._committed.start, self._committed.end = start, end
        if self._recent.end < start:
            # Retention has passed what nobody has asked for yet. It cannot be read any more; those
            # that want it are older than the recent batches, and so are told by `catch_up`.
            self._recent.reset(start)

    def disown(self) -> None:
        self._reading = 0
        self._reading_offset = 0

    # --- nobody is there --------------------------------------------------------------------------

    def begin_at(self, offset: int) -> None:
        """The first consumer begins at this offset."""
        if self._recent.is_empty:
            self._recent.reset(offset)

    def shrink(self, bytes_max: int) -> None:
        self._recent.shrink(bytes_max)

    def forget(self) -> None:
        """At the owner: nobody is there to read the recent batches."""
        self._recent.reset(self._committed.end)
