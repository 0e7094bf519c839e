"""One node's part in the relay tree of one partition.

Rule 1: what is taken in depends on offsets alone. Pieces count if the first one holds the offset
        that comes next and none is missing among them, whatever else an answer says.
Rule 2: only what is committed is handed on. The owner stops at the committed end; all others have
        only what came from the owner.
Rule 3: nothing is sent without credit, and no more than it; a batch that is larger comes alone.
Rule 4: the window moves on whoever has read it. Who has fallen behind takes it from the owner.
Rule 5: silence is counted in ticks, and a tick is all that is known of time.

The tree is pulled: a child asks for what comes from an offset on, and the answer waits for it. The
root is the owner, which reads its log. A node takes part while it has consumers or children. It
looks for its parent on its own route to the owner (Scribe, JSAC 2002, section III). One that stands
deeper than so many consumers need sends a newcomer to the owner instead, so the tree is filled from
the root, and a quiet partition has no relays at all; one without room sends it down. If the parent
is silent, a child goes to the grandparent and further up, and goes on at the same offset: nothing
is lost and nothing comes twice.
"""

from __future__ import annotations

from typing import ClassVar

from hocket.core.relay import events, messages
from hocket.core.relay.consumers import Consumer
from hocket.core.relay.events import Effect, Event
from hocket.core.relay.log_reads import LogReads
from hocket.core.relay.messages import Detach, MoveUp
from hocket.core.relay.part import ATTACH, RETRY, TICK
from hocket.core.relay.taker import Taker
from hocket.core.ring.events import Arm, Disarm


class Relay(Taker):
    """See the head of the file, and `core.relay.part` for its attributes."""

    __slots__ = ()

    def step(self, event: Event) -> list[Effect]:
        if self.is_over:
            return []
        effects: list[Effect] = []
        self._effects = effects
        getattr(self, self._handlers[type(event)])(event)
        return effects

    def _heard(self, event: events.Heard) -> None:
        getattr(self, self._listeners[type(event.message)])(event.sender, event.message)

    # --- the turn ---------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Whatever has happened: hand on what can be handed on, and ask for what is wanted."""
        self._serve_consumers()
        self._serve_children()
        if self.is_owner:
            self._serve_guests()
        self._catch_up()
        self._fetch()
        self._seek()
        if not self._ticking and self._is_needed():
            self._ticking = True
            self._arm_tick()

    def _is_needed(self) -> bool:
        """An owner may stay for ever; all others count the time until they may go."""
        if not self.is_owner:
            return True
        return bool(self.consumers or len(self.children) or self._reads.guests)

    def _serve_consumers(self) -> None:
        for consumer in self.consumers.values():
            self._serve(consumer)

    def _serve(self, consumer: Consumer) -> None:
        window = self.window
        while consumer.is_eager and window.start <= consumer.next_offset < window.end:
            pieces = window.take(consumer.next_offset, consumer.credit_bytes)
            if consumer.fits(pieces):
                self._effects.append(consumer.take(pieces, self.end))

    # --- consumers --------------------------------------------------------------------------------

    def _consume(self, event: events.Consume) -> None:
        alone = not self.consumers and not len(self.children)
        consumer = Consumer(event.consumer, event.offset, event.credit_bytes)
        self.consumers[event.consumer] = consumer
        if alone and not self.is_owner and self.window.is_empty:
            self.window.reset(event.offset)
        self._go_on()

    def _credit(self, event: events.Credit) -> None:
        """Only this one may go on. Not the whole turn: there may be thousands of others here, and
        each of them gives credit for each batch."""
        consumer = self.consumers.get(event.consumer)
        if consumer is None:
            return
        consumer.credit(event.bytes)
        self._serve(consumer)
        if consumer.next_offset < self.window.start:
            self._catch_up()
        elif not self._is_fetching():
            self._fetch()

    def _stop_consuming(self, event: events.StopConsuming) -> None:
        self.consumers.pop(event.consumer, None)

    # --- ownership --------------------------------------------------------------------------------

    def _owning(self, event: events.Owning) -> None:
        self._end_search()
        if self.parent is not None:
            self._send(self.parent, Detach(self.place))
            self.parent = None
        self.is_owner = True
        self._is_rooted = False
        self.owner = self.me
        self.ancestors = ()
        self.start, self.end = event.start, event.end
        self._poll = self._finding = 0
        self._lane.ended()
        if self.window.is_empty or self.window.end > event.end:
            self.window.reset(event.end)
        self._pass_over_what_is_gone()
        self._wake_children()
        self._go_on()

    def _disowned(self, _event: events.Disowned) -> None:
        """Those who hang on us stay; we become one of the others."""
        self.is_owner = False
        self.owner = None
        self._reads = LogReads()
        self._lane.ended()
        self._wake_children()
        self._go_on()

    def _advanced(self, event: events.Advanced) -> None:
        if self.is_owner:
            self.start, self.end = event.start, event.end
            self._pass_over_what_is_gone()
            self._go_on()

    def _pass_over_what_is_gone(self) -> None:
        """Retention has passed what nobody has asked for yet. It cannot be read any more: who wants
        it has to be told, and that is for those who are older than the window."""
        if self.window.end < self.start:
            self.window.reset(self.start)

    # --- time -------------------------------------------------------------------------------------

    def _due(self, event: events.Due) -> None:
        if event.timer == TICK:
            self._tick()
        elif event.timer == RETRY:
            self._retrying = False
            self._go_on()
        elif self._search.asked is not None:
            self._ask(self._search.failed(silent=True))

    def _tick(self) -> None:
        self._resting = self._lane.resting = False
        self._tick_children()
        self._tick_lane()
        if self.parent is not None:
            self._tick_parent()
        self._release_children()
        self._collapse()
        if self._is_idle():
            self._end()
            return
        self._ticking = False
        self._go_on()
        if self.is_owner and not self._ticking:
            self.window.reset(self.end)  # nobody is there who would read it

    def _arm_tick(self) -> None:
        tick_us = self.settings.tick_us
        self._effects.append(Arm(TICK, tick_us, tick_us // 16))

    def _release_children(self) -> None:
        """Perhaps only we cannot reach the owner: after a while each child may try for itself."""
        self._orphaned = self._orphaned + 1 if self._is_orphan() else 0
        if self._orphaned >= self.settings.ticks(self.settings.child_us):
            self.children.clear()

    def _is_orphan(self) -> bool:
        return self.parent is None and not self.is_owner

    def _collapse(self) -> None:
        """A relay that saves its parent little is not worth a step of the way."""
        children = len(self.children)
        if (
            not children
            or self.parent is None
            or 2 * (children + len(self.consumers)) >= self.settings.children_max
            or self._parent_room < children
        ):
            self._collapsing = 0
            return
        self._collapsing += 1
        if self._collapsing >= self.settings.ticks(self.settings.collapse_us):
            for child in self.children:
                self._send(child.contact, MoveUp(self.place, self.parent))
            self.children.clear()
            self._idle = self.settings.ticks(self.settings.idle_us)

    def _is_idle(self) -> bool:
        if self.is_owner or self.consumers or len(self.children):
            self._idle = 0
            return False
        self._idle += 1
        return self._idle >= self.settings.ticks(self.settings.idle_us)

    def _end(self) -> None:
        if self.parent is not None:
            self._send(self.parent, Detach(self.place))
            self.parent = None
        self.is_over = True
        self._effects += [Disarm(ATTACH), Disarm(RETRY), events.Idle()]

    # --- what the ring says -----------------------------------------------------------------------

    def _died(self, event: events.Died) -> None:
        contact = event.contact
        child = self.children.get(contact)
        if child is not None and child.contact == contact:
            self.children.drop(contact)
        if contact == self.parent:
            self._parent_died()
        elif contact == self._search.asked:
            self._ask(self._search.failed(silent=True))
        if contact == self.owner and not self.is_owner:
            self._lose_owner()

    def _stalled(self, _event: events.Stalled) -> None:
        self._silent = self._lane.silent = 0
        for child in self.children:
            child.silent = 0
        if self._search.asked is not None:
            self._effects.append(Arm(ATTACH, self.settings.attach_us))

    def _renewed(self, event: events.Renewed) -> None:
        self.me = event.me
        if self.is_owner:
            self.owner = event.me
        self._wake_children()

    # Names, since most of them stand in the files below this one.
    _handlers: ClassVar[dict[type, str]] = {
        events.Consume: "_consume",
        events.Credit: "_credit",
        events.StopConsuming: "_stop_consuming",
        events.Heard: "_heard",
        events.Due: "_due",
        events.RouteIs: "_route_is",
        events.NoRoute: "_no_route",
        events.Owning: "_owning",
        events.Advanced: "_advanced",
        events.Disowned: "_disowned",
        events.Renewed: "_renewed",
        events.LogRead: "_log_read",
        events.Died: "_died",
        events.Stalled: "_stalled",
    }
    _listeners: ClassVar[dict[type, str]] = {
        messages.Attach: "_heard_attach",
        messages.Attached: "_heard_attached",
        messages.Redirect: "_heard_redirect",
        messages.NotRelaying: "_heard_not_relaying",
        messages.Detach: "_heard_detach",
        messages.Fetch: "_heard_fetch",
        messages.Fetched: "_heard_fetched",
        messages.Behind: "_heard_behind",
        messages.NotAttached: "_heard_not_attached",
        messages.MoveUp: "_heard_move_up",
    }
