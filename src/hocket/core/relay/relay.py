"""What one node does in the relay tree of one partition.

Rule 1: what is taken in depends on offsets alone (`intake`).
Rule 2: only what is committed is handed on (`intake`).
Rule 3: nothing is sent without credit, and no more than the credit; a batch that is larger comes
        alone (`consumers`, `downstream`).
Rule 4: the recent batches move on, whoever has read them. A consumer that has fallen behind takes
        the older batches from the owner (`recent`, `catch_up`).
Rule 5: silence is counted in ticks, and a tick is all that is known of time.

The tree is pulled: a child asks for what comes from an offset on, and the answer waits for it. The
root is the owner, which reads its log; of a partition with several copies each node that keeps one
may root a tree. A node takes part while it has consumers or children. It
looks for its parent on its own route to the owner (Scribe, JSAC 2002, section III). A node that
stands deeper than the number of consumers demands sends a newcomer to the owner instead, so the
tree is filled from the root, and a quiet partition has no relays at all; a node without room sends
the newcomer down. If the parent is silent, a child goes to the grandparent and further up, and goes
on at the same offset: nothing is lost and nothing comes twice.

The core consists of components, each of which owns its state, and whose modules import each other
in this order only:

    outbox, lineage, committed, recent   what all components share
    consumers                            the consumers at this node
    downstream, guests                   the children; at the owner, those that read its log
    upstream                             the parent, and the search for it
    intake, catch_up                     what comes next; what is older
    shrinking                            when this node is not needed

Nothing below `Relay` knows `Relay`. A component that has changed something that others may act on
says so by what it returns (`Turn`), and `Relay` takes a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from hocket.core.relay import events, messages
from hocket.core.relay.catch_up import CatchUp
from hocket.core.relay.children import Children
from hocket.core.relay.committed import Committed
from hocket.core.relay.consumers import Consumer, Consumers
from hocket.core.relay.downstream import Downstream
from hocket.core.relay.events import Effect, Event, Timer
from hocket.core.relay.guests import Guests
from hocket.core.relay.intake import Intake
from hocket.core.relay.lineage import Lineage
from hocket.core.relay.outbox import Outbox, Turn
from hocket.core.relay.recent import RecentBatches, within
from hocket.core.relay.settings import RelaySettings
from hocket.core.relay.shrinking import Shrinking
from hocket.core.relay.upstream import RETRY, Upstream
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Arm
from hocket.model import PartitionId

TICK: Timer = ("tick", 0)


class Relay:
    """Wires the components, and dispatches events to them. Others only read its attributes."""

    __slots__ = (
        "_catch_up", "_downstream", "_guests", "_intake", "_outbox", "_shrinking", "_ticking",
        "_upstream", "committed", "consumers", "is_over", "lineage", "partition_id", "recent",
        "settings",
    )  # fmt: skip

    def __init__(
        self,
        me: Contact,
        partition_id: PartitionId,
        settings: RelaySettings,
        *,
        last_request: int = 0,
    ) -> None:
        self.partition_id = partition_id
        self.settings = settings
        self.is_over = False  # it has said Idle
        self._ticking = False  # the timer TICK runs
        self._outbox = outbox = Outbox(last_request)
        self.lineage = lineage = Lineage(me)
        self.recent = recent = RecentBatches(settings.window_bytes)
        self.committed = committed = Committed()
        self.consumers = consumers = Consumers(outbox, recent, committed)
        self._downstream = downstream = Downstream(
            partition_id, settings, outbox, lineage, recent, committed, consumers
        )
        self._guests = Guests(partition_id, settings, outbox, lineage, committed, downstream)
        self._upstream = upstream = Upstream(
            partition_id, settings, outbox, lineage, recent, downstream
        )
        self._intake = Intake(
            settings, outbox, lineage, recent, committed, consumers, downstream, upstream
        )
        self._catch_up = CatchUp(
            partition_id,
            settings,
            outbox,
            lineage,
            recent,
            committed,
            consumers,
            downstream,
            upstream,
        )
        self._shrinking = Shrinking(settings, lineage, consumers, downstream, upstream)

    @property
    def me(self) -> Contact:
        return self.lineage.me

    @property
    def is_owner(self) -> bool:
        return self.lineage.is_owner

    @property
    def is_leader(self) -> bool:
        return self.lineage.is_leader

    @property
    def parent(self) -> Contact | None:
        return self.lineage.parent

    @property
    def ancestors(self) -> tuple[Contact, ...]:
        """The parent first, the owner last."""
        return self.lineage.ancestors

    @property
    def children(self) -> Children:
        return self._downstream.children

    @property
    def sent_bytes(self) -> int:
        """Of batches, to other nodes."""
        return self._downstream.sent_bytes

    @property
    def last_request(self) -> int:
        return self._outbox.last_request

    def step(self, event: Event) -> list[Effect]:
        if self.is_over:
            return []
        effects = self._outbox.begin()
        if self._handlers[type(event)](self, event):
            self._take_turn()
        return effects

    # --- the turn ---------------------------------------------------------------------------------

    def _take_turn(self) -> None:
        """Whatever has happened: hand on what can be handed on, and ask for what is wanted."""
        self.consumers.serve()
        self._downstream.serve()
        if self.lineage.is_owner:
            self._guests.serve()
        if self._catch_up.ask():
            self._take_turn()
        self._intake.ask()
        self._upstream.seek()
        if not self._ticking and self._is_needed():
            self._ticking = True
            tick_us = self.settings.tick_us
            self._outbox.add(Arm(TICK, tick_us, tick_us // 16))

    def _is_needed(self) -> bool:
        """The leader may stay for ever; all other nodes count the time until they may go."""
        return not self.lineage.is_leader or not self._downstream.is_empty or bool(self._guests)

    # --- consumers --------------------------------------------------------------------------------

    def _consume(self, event: events.Consume) -> Turn:
        if self._downstream.is_empty and not self.lineage.is_owner:
            self._intake.begin_at(event.offset)
        self.consumers.put(Consumer(event.consumer, event.offset, event.credit_bytes))
        return True

    def _credit(self, event: events.Credit) -> Turn:
        """Only this consumer may go on. That is not a whole turn: there may be thousands of other
        consumers here, and each of them gives credit for each batch."""
        consumer = self.consumers.get(event.consumer)
        if consumer is None:
            return False
        consumer.credit(event.bytes)
        self.consumers.serve_one(consumer)
        if consumer.next_offset < self.recent.start:
            return self._catch_up.ask()
        if not self._intake.is_asking():
            self._intake.ask()
        return False

    def _stop_consuming(self, event: events.StopConsuming) -> Turn:
        self.consumers.drop(event.consumer)
        return False

    def _shrink(self, event: events.Shrink) -> Turn:
        self._intake.shrink(event.bytes)
        return False

    # --- ownership --------------------------------------------------------------------------------

    def _owning(self, event: events.Owning) -> Turn:
        self._intake.own(event.start, event.end)
        self._catch_up.end()
        self._upstream.own(leads=event.leads)
        return True

    def _disowned(self, _event: events.Disowned) -> Turn:
        self._intake.disown()
        self._catch_up.disown()
        self._guests.clear()
        self._upstream.disown()
        return True

    def _advanced(self, event: events.Advanced) -> Turn:
        if not self.lineage.is_owner:
            return False
        self._intake.advance(event.start, event.end)
        return True

    def _log_read(self, event: events.LogRead) -> Turn:
        pieces = within(event.pieces, self.committed.end)
        if self._intake.is_reading(event.token):
            return self._intake.log_read(pieces)
        if self._catch_up.is_reading(event.token):
            return self._catch_up.log_read(pieces)
        return self._guests.log_read(event.token, pieces)

    # --- time -------------------------------------------------------------------------------------

    def _due(self, event: events.Due) -> Turn:
        if event.timer == TICK:
            self._tick()
            return False
        if event.timer == RETRY:
            self._upstream.retry_is_due()
            return True
        return self._upstream.attach_is_due()

    def _tick(self) -> None:
        self._intake.begin_tick()
        self._downstream.tick()
        self._guests.tick()
        if self._catch_up.tick():
            self._take_turn()
        if self.lineage.parent is not None and self._intake.tick_parent():
            self._take_turn()
        if self._shrinking.tick():
            self._upstream.end()
            self._outbox.add(events.Idle())
            self.is_over = True
            return
        self._ticking = False
        self._take_turn()
        if self.lineage.is_leader and not self._ticking:
            self._intake.forget()

    # --- what the ring says -----------------------------------------------------------------------

    def _route_is(self, event: events.RouteIs) -> Turn:
        return self._upstream.route_is(event)

    def _no_route(self, event: events.NoRoute) -> Turn:
        self._upstream.no_route(event)
        return False

    def _died(self, event: events.Died) -> Turn:
        self._downstream.died(event.contact)
        if self._upstream.died(event.contact):
            self._take_turn()
        if event.contact == self.lineage.owner and not self.lineage.is_owner:
            return self._catch_up.lose_owner()
        return False

    def _stalled(self, _event: events.Stalled) -> Turn:
        self._upstream.stalled()
        self._catch_up.stalled()
        self._downstream.stalled()
        return False

    def _renewed(self, event: events.Renewed) -> Turn:
        self._upstream.renew(event.me)
        return False

    # --- what other nodes say ---------------------------------------------------------------------

    def _heard(self, event: events.Heard) -> Turn:
        return self._listeners[type(event.message)](self, event.sender, event.message)

    def _heard_attach(self, sender: Contact, message: messages.Attach) -> Turn:
        return self._downstream.attach(sender, message)

    def _heard_detach(self, sender: Contact, _message: messages.Detach) -> Turn:
        self._downstream.detach(sender)
        return False

    def _heard_fetch(self, sender: Contact, message: messages.Fetch) -> Turn:
        if message.catching_up:
            return self._guests.ask(sender, message)
        child = self._downstream.fetch(sender, message)
        if child is not None:
            self._take_turn()
            if child.waiting is not None and message.wait_us <= 0:
                self._downstream.answer(child, message)
        return False

    def _heard_attached(self, sender: Contact, message: messages.Attached) -> Turn:
        return self._upstream.attached(sender, message)

    def _heard_redirect(self, sender: Contact, message: messages.Redirect) -> Turn:
        return self._upstream.redirect(sender, message)

    def _heard_not_attached(self, sender: Contact, message: messages.NotAttached) -> Turn:
        return self._upstream.not_attached(sender, message)

    def _heard_move_up(self, sender: Contact, message: messages.MoveUp) -> Turn:
        return self._upstream.move_up(sender, message)

    def _heard_not_relaying(self, sender: Contact, message: messages.NotRelaying) -> Turn:
        if self._upstream.is_asking(sender, message.request):
            return self._upstream.ask_next()
        if self._catch_up.is_asking(message.request):
            # The ring may go on naming this node as the owner for a while: rest.
            self._catch_up.lose_owner(resting=True)
            self._take_turn()
            self._upstream.find()
        return False

    def _heard_fetched(self, sender: Contact, message: messages.Fetched) -> Turn:
        if self._catch_up.is_asking(message.request):
            self._intake.hear_of(message.end)
            return self._catch_up.got(message.pieces)
        return self._intake.fetched(sender, message)

    def _heard_behind(self, sender: Contact, message: messages.Behind) -> Turn:
        if self._catch_up.is_asking(message.request):
            return self._catch_up.lost(message.first)
        return self._intake.behind(sender, message)

    _handlers: ClassVar[dict[type, Callable[[Relay, Any], Turn]]] = {
        events.Consume: _consume,
        events.Credit: _credit,
        events.StopConsuming: _stop_consuming,
        events.Heard: _heard,
        events.Due: _due,
        events.RouteIs: _route_is,
        events.NoRoute: _no_route,
        events.Owning: _owning,
        events.Advanced: _advanced,
        events.Disowned: _disowned,
        events.Renewed: _renewed,
        events.LogRead: _log_read,
        events.Died: _died,
        events.Stalled: _stalled,
        events.Shrink: _shrink,
    }
    _listeners: ClassVar[dict[type, Callable[[Relay, Contact, Any], Turn]]] = {
        messages.Attach: _heard_attach,
        messages.Attached: _heard_attached,
        messages.Redirect: _heard_redirect,
        messages.NotRelaying: _heard_not_relaying,
        messages.Detach: _heard_detach,
        messages.Fetch: _heard_fetch,
        messages.Fetched: _heard_fetched,
        messages.Behind: _heard_behind,
        messages.NotAttached: _heard_not_attached,
        messages.MoveUp: _heard_move_up,
    }
