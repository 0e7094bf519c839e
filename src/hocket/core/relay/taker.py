"""What comes in: from the parent, or from the owner's own log, and by the lane what is old.

Rule: what is taken in depends on offsets alone. Pieces count if the first one holds the offset that
comes next and none is missing among them, whatever else an answer says.

Two fetches at most are out. One waits at the parent for what comes next; the other asks the owner
for what a consumer wants that is older than the window.
"""

from __future__ import annotations

from hocket.core.relay import events
from hocket.core.relay.climber import Climber
from hocket.core.relay.messages import Behind, Fetch, Fetched, NotRelaying, Piece
from hocket.core.relay.window import begin_behind, fitting, follow, within
from hocket.core.ring.contact import Contact

ASK_AGAIN = 2  # ticks without an answer: the question or the answer may be lost


class Taker(Climber):
    __slots__ = ()

    # --- what comes next --------------------------------------------------------------------------

    def _wanted(self) -> int | None:
        """The lowest offset, not in the window yet, that somebody waits for."""
        end = self.window.end
        wanted = [
            each.next_offset
            for each in self.consumers.values()
            if each.is_eager and each.next_offset >= end
        ]
        wanted += [
            each.next_offset for each in self.children if each.is_eager and each.next_offset >= end
        ]
        return min(wanted, default=None)

    def _fetch(self) -> None:
        wanted = self._wanted()
        if wanted is None or self._resting:
            return
        passed_over = min(wanted, self.end)  # nobody waits for what is before it
        if passed_over > self.window.end:
            self.window.reset(passed_over)
        if self.is_owner:
            self._read_stream()
        elif self.parent is not None and not self._is_fetching():
            self._ask_parent(self.settings.fetch_bytes)

    def _is_fetching(self) -> bool:
        """What comes next is asked for already, or is not there yet."""
        if self.is_owner:
            return self._reads.stream != 0 or self.window.end >= self.end
        return bool(self._poll and self._poll_credit) and self._poll_offset == self.window.end

    def _ask_parent(self, credit_bytes: int) -> None:
        """A newer fetch takes the place of one that is out. Without credit it is a sign of life."""
        assert self.parent is not None
        self._poll = self._take_request()
        self._poll_offset = self.window.end
        self._poll_credit = credit_bytes
        fetch = Fetch(
            self._poll,
            self.place,
            self._poll_offset,
            credit_bytes,
            self.settings.wait_us,
            self.load,
        )
        self._send(self.parent, fetch)

    def _tick_parent(self) -> None:
        self._silent += 1
        if self._silent >= self._silence():
            self._parent_died()
        elif not self._poll or self._silent >= ASK_AGAIN:
            eager = self._wanted() is not None
            self._ask_parent(self.settings.fetch_bytes if eager else 0)

    def _heard_fetched(self, sender: Contact, message: Fetched) -> None:
        if self._lane.request and message.request == self._lane.request:
            self.end = max(self.end, message.end)
            self._caught_up(message.pieces)
            return
        if not self._is_parent(sender):
            return
        is_answer = self._poll != 0 and message.request == self._poll
        if is_answer:
            self._poll = 0
            self._parent_room = message.room
            self._total = message.total
            if not self._descends_from(message.ancestors, is_rooted=message.is_rooted):
                return
        self.end = max(self.end, message.end)
        if self.window.accepts(message.pieces):
            self.window.add(message.pieces)
            self.end = max(self.end, self.window.end)
        elif message.pieces:
            if is_answer and not follow(message.pieces, self._poll_offset):
                self._mistrust(sender)
                return
        elif is_answer and self.window.is_empty and self.window.end > self.end:
            self.window.reset(self.end)  # a consumer is ahead of the end; others may not be
        self._go_on()

    def _heard_behind(self, sender: Contact, message: Behind) -> None:
        if self._lane.request and message.request == self._lane.request:
            self._lose(message.first)
        elif self._is_parent(sender) and self._poll and message.request == self._poll:
            self._poll = 0
            if message.first > self.window.end:
                self.window.reset(message.first)
            else:
                self._resting = True
            self._go_on()

    def _mistrust(self, parent: Contact) -> None:
        """It sent what was not asked for. The owner knows better, unless it is the owner."""
        if self.owner is None or self.owner.node == parent.node:
            self._resting = True
        else:
            self._search.shun(parent)
            self._leave_parent((self.owner,))

    # --- the lane: what is older than the window --------------------------------------------------

    def _catch_up(self) -> None:
        if self._lane.request or self._lane.resting:
            return
        consumer = self._lane.choose(self.consumers.values(), self.window.start)
        if consumer is None:
            return
        if self.is_owner and consumer.next_offset < self.start:
            self._effects.append(events.Lost(consumer.number, self.start))
            consumer.next_offset = self.start
            self._go_on()
            return
        credit_bytes = min(consumer.credit_bytes, self.settings.fetch_bytes)
        if self.is_owner:
            token = self._read(consumer.next_offset, credit_bytes)
            self._lane.asked(consumer, token)
            self._reads.consumer = token
        elif self.owner is None:
            self._find()
        else:
            self._lane.asked(consumer, self._take_request())
            self._ask_owner(self.owner, credit_bytes)

    def _ask_owner(self, owner: Contact, credit_bytes: int) -> None:
        lane, wait_us = self._lane, self.settings.wait_us
        self._send(
            owner,
            Fetch(lane.request, self.place, lane.offset, credit_bytes, wait_us, self.load, True),
        )

    def _caught_up(self, pieces: tuple[Piece, ...]) -> None:
        consumer = self.consumers.get(self._lane.consumer)
        useful = consumer is None or follow(pieces, consumer.next_offset)
        self._lane.ended(resting=not useful)
        if consumer is not None and useful:
            fit = fitting(pieces, consumer.credit_bytes)  # it was asked for long ago
            if consumer.fits(fit):
                self._effects.append(consumer.take(fit, self.end))
        self._go_on()

    def _lose(self, first: int) -> None:
        consumer = self.consumers.get(self._lane.consumer)
        self._lane.ended()
        if consumer is not None and consumer.next_offset < first:
            self._effects.append(events.Lost(consumer.number, first))
            consumer.next_offset = first
        self._go_on()

    def _lose_owner(self, *, resting: bool = False) -> None:
        self.owner = None
        self._lane.ended(resting=resting)
        self._go_on()

    def _tick_lane(self) -> None:
        lane = self._lane
        if not lane.request or self.is_owner:
            return
        lane.silent += 1
        if lane.silent >= self._silence():
            self._lose_owner()
        elif lane.silent >= ASK_AGAIN:
            lane.request = 0

    def _heard_not_relaying(self, sender: Contact, message: NotRelaying) -> None:
        if self._is_asked(sender, message.request):
            self._ask(self._search.failed())
        elif self._lane.request and message.request == self._lane.request:
            self._lose_owner(resting=True)  # the ring may go on naming this one for a while
            self._find()

    # --- the owner's log --------------------------------------------------------------------------

    def _read_stream(self) -> None:
        if not self._reads.stream and self.window.end < self.end:
            self._reads.stream = self._read(self.window.end, self.settings.fetch_bytes)
            self._reads.stream_offset = self.window.end

    def _log_read(self, event: events.LogRead) -> None:
        pieces = within(event.pieces, self.end)
        reads = self._reads
        if event.token == reads.stream:
            reads.stream = 0
            if reads.stream_offset == self.window.end:
                self._take_from_log(pieces)
            self._go_on()
        elif event.token == reads.consumer:
            reads.consumer = 0
            if begin_behind(pieces, self._lane.offset):
                self._lose(pieces[0].start)
            else:
                self._caught_up(pieces)
        else:
            self._read_for_guest(event.token, pieces)

    def _take_from_log(self, pieces: tuple[Piece, ...]) -> None:
        if begin_behind(pieces, self.window.end):
            self.window.reset(pieces[0].start)  # who wants what was lost is older than the window
        if self.window.accepts(pieces):
            self.window.add(pieces)
        else:
            self._resting = True  # asked for at once, it would be the same again
