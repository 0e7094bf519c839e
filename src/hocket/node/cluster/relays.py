"""Drives the relay cores of a node: one core for each partition that the node takes part in.

A core knows neither time nor the ring. Its timers run here, and its questions for a route are
answered by a lookup of the partition's key, and then by those who know who leads the partition
(`node.cluster.leaders`).

Events are worked off one after another. An event that comes up while effects are carried out, for
example the answer to a log read that came from memory at once, waits its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, ClassVar, Protocol

from hocket.core.placement.locator import KEEPERS, LocatorMessage
from hocket.core.placement.placement import key_of
from hocket.core.placement.roots import root_for
from hocket.core.relay import events
from hocket.core.relay.messages import (
    Attach,
    Fetch,
    NotAttached,
    NotRelaying,
    Piece,
    RelayMessage,
)
from hocket.core.relay.relay import Relay
from hocket.core.relay.settings import RelaySettings
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Arm, Disarm, Located, NotLocated
from hocket.model import PartitionId
from hocket.node.cluster.leaders import Found, Leaders
from hocket.node.running.committed_log import Held
from hocket.ports import Cancellable, Clock, Links, Timers

Delivered = Callable[[tuple[Piece, ...], int], None]
LostTo = Callable[[int], None]


class LogSource(Protocol):
    """What this node's log holds of the partitions that it leads, or has a copy of."""

    def read(
        self,
        partition_id: PartitionId,
        offset: int,
        end: int,
        bytes_max: int,
        done: Callable[[tuple[Piece, ...]], None],
    ) -> None:
        """Call `done`, perhaps at once, with the batches from the one that holds `offset` on.

        All of them lie before `end`. One batch comes in any case, and more within `bytes_max`. If
        the log cannot be read just now, there is none.
        """


@dataclass(slots=True)
class _Consumer:
    partition_id: PartitionId
    deliver: Delivered
    lost: LostTo | None


@dataclass(slots=True)
class _TimedCore:
    """A core, and its timers that run."""

    core: Relay
    armed: dict[events.Timer, Cancellable] = field(default_factory=dict)
    held_bytes: int = 0  # of its recent batches, when that was last looked at


class Relays:
    """All relay cores of a node, its consumers, and what it leads."""

    def __init__(
        self,
        *,
        me: Callable[[], Contact],
        clock: Clock,
        timers: Timers,
        links: Links,
        chance: Random,
        find: Callable[[int, Found], None],
        settings: RelaySettings,
        log: LogSource | None,
        replicas: Callable[[PartitionId], Sequence[Contact]] = lambda _partition_id: (),
        copy_of: Callable[[PartitionId], Held | None] = lambda _partition_id: None,
    ) -> None:
        """`replicas` gives the nodes that keep a partition, if several do, and `copy_of` this
        node's copy of one that another node leads. None: it has none, or one that may be old."""
        self.cores: dict[PartitionId, Relay] = {}
        self._me = me
        self._timers = timers
        self._links = links
        self._chance = chance
        self._ring_find = find
        self._settings = settings
        self._log = log
        self._replicas = replicas
        self._copy_of = copy_of
        self._timed: dict[PartitionId, _TimedCore] = {}
        self._consumers: dict[int, _Consumer] = {}
        self._last_consumer = 0
        # A new core, also after a restart, must not take answers to the core before it.
        self._last_request = chance.getrandbits(40)
        self.leaders = Leaders(
            me=me,
            clock=clock,
            timers=timers,
            links=links,
            chance=chance,
            find=find,
            next_request=self._next_request,
        )
        self.held_bytes = 0  # of the recent batches of all cores
        self._events: deque[tuple[PartitionId, events.Event]] = deque()
        self._busy = False
        self._soon: Cancellable | None = None  # a timer: events are worked off then at the latest
        self._closed = False

    # --- what the node calls ---------------------------------------------------------------------

    def heard(self, sender: Contact, message: RelayMessage | LocatorMessage) -> None:
        if self._closed:
            return
        if isinstance(message, LocatorMessage):
            self.leaders.heard(sender, message)
        elif message.partition_id in self._timed:
            self._step(message.partition_id, events.Heard(sender, message))
        elif isinstance(message, Attach):
            if self._roots(message.partition_id):
                self._step(message.partition_id, events.Heard(sender, message))
                return
            self._answer(sender, NotRelaying(message.request, message.partition_id))
        elif isinstance(message, Fetch):
            kind = NotRelaying if message.catching_up else NotAttached
            self._answer(sender, kind(message.request, message.partition_id))

    def consume(
        self,
        partition_id: PartitionId,
        offset: int,
        credit_bytes: int,
        deliver: Delivered,
        lost: LostTo | None = None,
    ) -> int:
        """Have `deliver` called with all from `offset` on, in order. Returns the consumer's number;
        `deliver` is not called before that.

        Credit is bytes of batches. `lost` is called when retention has passed what the consumer
        wants next, with the oldest offset that there still is; the consumer goes on there.
        """
        self._last_consumer += 1
        number = self._last_consumer
        self._consumers[number] = _Consumer(partition_id, deliver, lost)
        # Later, so that nothing is delivered to a consumer that does not know its number yet.
        self._events.append((partition_id, events.Consume(number, offset, credit_bytes)))
        if self._soon is None:
            self._soon = self._timers.after(0, self._work_off_soon)
        return number

    def credit(self, consumer: int, bytes: int) -> None:  # noqa: A002  as in the core's event
        known = self._consumers.get(consumer)
        if known is not None:
            self._step(known.partition_id, events.Credit(consumer, bytes))

    def stop(self, consumer: int) -> None:
        known = self._consumers.pop(consumer, None)
        if known is not None:
            self._step(known.partition_id, events.StopConsuming(consumer))

    def is_rooted(self, partition_id: PartitionId) -> bool:
        """Whether what comes here comes from the leader, as far as this node knows."""
        core = self.cores.get(partition_id)
        return core is not None and core.lineage.has_way_to_owner

    def own(self, partition_id: PartitionId, start: int, end: int, term: int = 0) -> None:
        """This node holds the partition, from now on."""
        if self._closed:
            return
        self.disown(partition_id)
        self.leaders.lead(partition_id, term)
        self._step(partition_id, events.Owning(start, end))
        self.leaders.publish(partition_id)

    def disown(self, partition_id: PartitionId) -> None:
        if self.leaders.resign(partition_id):
            self._step(partition_id, events.Disowned())

    def advanced(self, partition_id: PartitionId, start: int, end: int) -> None:
        if self.leaders.is_led(partition_id):
            self._step(partition_id, events.Advanced(start, end))

    def copy_advanced(self, partition_id: PartitionId, held: Held) -> None:
        """More of this node's copy of a partition is committed, or its oldest records are gone."""
        core = self.cores.get(partition_id)
        if core is not None and core.is_owner:
            self._step(partition_id, events.Advanced(held.start, held.end))

    def look_at_copies(self) -> None:
        """To be called now and then: root a tree with each copy that is up to date again, and with
        none that may not be."""
        for partition_id, core in list(self.cores.items()):
            if self.leaders.is_led(partition_id):
                continue
            held = self._copy_of(partition_id)
            if held is None and core.is_owner:
                self._step(partition_id, events.Disowned())
            elif held is not None and not core.is_owner and held.end >= core.recent.end:
                self._step(partition_id, events.Owning(*held, leads=False))

    def renewed(self) -> None:
        """This node has begun a new life on the ring: other nodes must hear of it."""
        for partition_id in list(self._timed):
            self._step(partition_id, events.Renewed(self._me()))
        self.leaders.renewed()

    def died(self, contact: Contact) -> None:
        for partition_id in list(self._timed):
            self._step(partition_id, events.Died(contact))
        self.leaders.died(contact)

    def process_gone(self, node: str) -> None:
        """Nobody listens any more where this node was: its children, and its parent, need not wait
        until it has been silent for long enough, or until the ring gives it up."""
        for partition_id, core in list(self.cores.items()):
            for contact in (core.parent, *core.children.contacts):
                if contact is not None and contact.node == node:
                    self._step(partition_id, events.Died(contact))

    def stalled(self) -> None:
        for partition_id in list(self._timed):
            self._step(partition_id, events.Stalled())

    def close(self) -> None:
        """Nothing more happens; other nodes find out by the silence of this one."""
        self._closed = True
        for timed in self._timed.values():
            self._cancel(timed)
        self.leaders.close()
        self._events.clear()
        if self._soon is not None:
            self._soon.cancel()

    # --- the turn --------------------------------------------------------------------------------

    def _step(self, partition_id: PartitionId, event: events.Event) -> None:
        self._events.append((partition_id, event))
        self._work_off()

    def _work_off_soon(self) -> None:
        self._soon = None
        self._work_off()

    def _work_off(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            while self._events and not self._closed:
                self._carry_out_one(*self._events.popleft())
        finally:
            self._busy = False

    def _carry_out_one(self, partition_id: PartitionId, event: events.Event) -> None:
        timed = self._timed.get(partition_id)
        if timed is None:
            if not isinstance(event, events.Consume | events.Owning):
                return  # the core that the event is for is gone
            timed = self._begin(partition_id)
            held = self._copy_of(partition_id) if isinstance(event, events.Consume) else None
            if held is not None:  # first, so that the consumer does not look for a parent
                self._events.appendleft((partition_id, event))
                event = events.Owning(*held, leads=False)
        carry_out = self._effects
        effects = timed.core.step(event)
        self._count_bytes(timed)
        for effect in effects:
            carry_out[type(effect)](self, timed, effect)
            if self._closed:
                return

    def _count_bytes(self, timed: _TimedCore) -> None:
        """The core may have more in memory, or less. If all of them have too much, the one that has
        the most gives up half: whoever wants that takes it from the owner's log."""
        self.held_bytes += timed.core.recent.bytes - timed.held_bytes
        timed.held_bytes = timed.core.recent.bytes
        while self.held_bytes > self._settings.node_bytes:
            most = max(self._timed.values(), key=lambda each: each.held_bytes)
            most.core.step(events.Shrink(most.held_bytes // 2))
            if most.core.recent.bytes == most.held_bytes:
                return  # one batch each: there is no less
            self.held_bytes += most.core.recent.bytes - most.held_bytes
            most.held_bytes = most.core.recent.bytes

    def _roots(self, partition_id: PartitionId) -> bool:
        """Root a tree of a partition that this node keeps a copy of, as somebody needs one; False:
        it has no copy that is up to date."""
        held = self._copy_of(partition_id)
        if held is not None:
            self._step(partition_id, events.Owning(*held, leads=False))
        return held is not None

    def _begin(self, partition_id: PartitionId) -> _TimedCore:
        core = Relay(self._me(), partition_id, self._settings, last_request=self._last_request)
        self.cores[partition_id] = core
        timed = self._timed[partition_id] = _TimedCore(core)
        return timed

    def _idle(self, timed: _TimedCore, _effect: events.Idle) -> None:
        self._cancel(timed)
        self.held_bytes -= timed.held_bytes
        partition_id = timed.core.partition_id
        # Other cores may have counted further meanwhile: new cores go on from the highest number.
        self._last_request = max(self._last_request, timed.core.last_request)
        del self._timed[partition_id], self.cores[partition_id]

    def _cancel(self, timed: _TimedCore) -> None:
        for timer in timed.armed.values():
            timer.cancel()
        timed.armed.clear()

    # --- effects ---------------------------------------------------------------------------------

    def _answer(self, to: Contact, message: RelayMessage) -> None:
        self._links.send(self._me(), to, message)

    def _send(self, _timed: _TimedCore, effect: events.Send) -> None:
        self._links.send(self._me(), effect.to, effect.message)

    def _arm(self, timed: _TimedCore, effect: Arm) -> None:
        self._disarm(timed, effect)
        delay_us = effect.after_us
        if effect.jitter_us:
            delay_us += self._chance.randrange(effect.jitter_us)
        timed.armed[effect.timer] = self._timers.after(
            delay_us, partial(self._due, timed, effect.timer)
        )

    def _disarm(self, timed: _TimedCore, effect: Arm | Disarm) -> None:
        running = timed.armed.pop(effect.timer, None)
        if running is not None:
            running.cancel()

    def _due(self, timed: _TimedCore, timer: events.Timer) -> None:
        del timed.armed[timer]
        self._step(timed.core.partition_id, events.Due(timer))

    def _deliver(self, _timed: _TimedCore, effect: events.Deliver) -> None:
        consumer = self._consumers.get(effect.consumer)
        if consumer is not None:  # it may have stopped while an effect before this was carried out
            consumer.deliver(effect.pieces, effect.end)

    def _lost(self, _timed: _TimedCore, effect: events.Lost) -> None:
        consumer = self._consumers.get(effect.consumer)
        if consumer is not None and consumer.lost is not None:
            consumer.lost(effect.first)

    def _read_log(self, timed: _TimedCore, effect: events.ReadLog) -> None:
        assert self._log is not None, "a node that owns partitions has a log"
        partition_id = timed.core.partition_id

        def done(pieces: tuple[Piece, ...]) -> None:
            self._step(partition_id, events.LogRead(effect.token, pieces))

        self._log.read(partition_id, effect.offset, effect.end, effect.bytes_max, done)

    # --- the route to the owner ------------------------------------------------------------------

    def _next_request(self) -> int:
        self._last_request += 1
        return self._last_request

    def _find_route(self, timed: _TimedCore, effect: events.FindRoute) -> None:
        partition_id = timed.core.partition_id
        self._ring_find(key_of(partition_id), partial(self._located, partition_id, effect.token))

    def _located(self, partition_id: PartitionId, token: int, found: Located | NotLocated) -> None:
        if self._closed or partition_id not in self._timed:
            return
        if isinstance(found, NotLocated):
            self._step(partition_id, events.NoRoute(token))
            return
        answered = partial(self._route_is, partition_id, token, found.route)
        self.leaders.ask(partition_id, found.owners[:KEEPERS], answered)

    def _route_is(
        self,
        partition_id: PartitionId,
        token: int,
        to_key: tuple[Contact, ...],
        leader: Contact | None,
    ) -> None:
        if leader is None:
            self._step(partition_id, events.NoRoute(token))
        else:
            route = [contact for contact in to_key if contact.node != leader.node]
            root = root_for(self._me().node, self._replicas(partition_id))
            if root is not None and root.node != leader.node:
                route = [root, *(contact for contact in route if contact.node != root.node)]
            self._step(partition_id, events.RouteIs((*route, leader), token))

    _effects: ClassVar[dict[type, Callable[[Relays, _TimedCore, Any], None]]] = {
        events.Send: _send,
        Arm: _arm,
        Disarm: _disarm,
        events.Deliver: _deliver,
        events.Lost: _lost,
        events.FindRoute: _find_route,
        events.ReadLog: _read_log,
        events.Idle: _idle,
    }
