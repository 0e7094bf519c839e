"""Drives the relay cores of a node, one for each partition it takes part in, and finds owners.

A core knows neither time nor the ring. Its timers are run here, its questions for a route are
answered by a lookup of the partition's key, and then by those who keep the hint who leads it
(`core.placement.locator`). What this node leads is published to them again and again, soon at
first.

Events are worked off one after another. One that comes up while another is carried out, as a log
read that is answered from memory does, waits its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, ClassVar, Protocol

from hocket.core.placement.locator import (
    KEEPERS,
    PUBLISH_US,
    LeaderIs,
    LocatorMessage,
    LocatorStore,
    PublishLeader,
    WhereIs,
)
from hocket.core.placement.placement import key_of
from hocket.core.relay import events
from hocket.core.relay.messages import (
    Attach,
    Fetch,
    NotAttached,
    NotRelaying,
    Piece,
    Place,
    RelayMessage,
)
from hocket.core.relay.relay import Relay
from hocket.core.relay.settings import RelaySettings
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Arm, Disarm, Located, NotLocated
from hocket.ports import Cancellable, Clock, Links, Timers

ASK_US = 500_000  # those who keep the hint have so long to answer
PUBLISH_US_MIN = (
    1_000_000  # after the first time, and then twice as long each time: any may be lost
)

Found = Callable[[Located | NotLocated], None]
Delivered = Callable[[tuple[Piece, ...], int], None]
LostTo = Callable[[int], None]


class LogSource(Protocol):
    """What this node's log holds of the partitions it owns."""

    def read(
        self,
        place: Place,
        offset: int,
        end: int,
        bytes_max: int,
        done: Callable[[tuple[Piece, ...]], None],
    ) -> None:
        """Batches from the one that holds `offset` on, all before `end`; one at least, then within
        `bytes_max`. None if it cannot be read. `done` may be called at once."""


@dataclass(slots=True)
class _Consumer:
    place: Place
    deliver: Delivered
    lost: LostTo | None


@dataclass(slots=True)
class _Owned:
    term: int
    next_us: int = PUBLISH_US_MIN  # until it is published again
    timer: Cancellable | None = None
    keepers: tuple[Contact, ...] = ()  # who were told last


@dataclass(slots=True)
class _Asking:
    """Where a partition's leader is, of those who may know."""

    place: Place
    token: int  # of the core's FindRoute
    route: tuple[Contact, ...]
    open: int  # answers that are still to come
    best: tuple[int, int] = (-1, 0)  # the newest answer's term, and the leader's incarnation
    leader: Contact | None = None
    timer: Cancellable | None = None

    def hear(self, leader: Contact | None, term: int) -> None:
        self.open -= 1
        if leader is not None and (term, leader.incarnation) > self.best:
            self.leader, self.best = leader, (term, leader.incarnation)


@dataclass(slots=True)
class _Part:
    """One core, and its timers that run."""

    core: Relay
    armed: dict[events.Timer, Cancellable] = field(default_factory=dict)


class Relays:
    """All of a node's part in relay trees."""

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
    ) -> None:
        self.cores: dict[Place, Relay] = {}
        self.locator = LocatorStore()
        self._me = me
        self._clock = clock
        self._timers = timers
        self._links = links
        self._chance = chance
        self._ring_find = find
        self._settings = settings
        self._log = log
        self._parts: dict[Place, _Part] = {}
        self._consumers: dict[int, _Consumer] = {}
        self._last_consumer = 0
        # A core that is made anew, also after a restart, is not to take answers to its forerunner.
        self._last_request = chance.getrandbits(40)
        self._owned: dict[Place, _Owned] = {}
        self._asking: dict[int, _Asking] = {}
        self._events: deque[tuple[Place, events.Event]] = deque()
        self._busy = False
        self._soon: Cancellable | None = None  # then they are worked off at the latest
        self._closed = False

    # --- what the node calls ---------------------------------------------------------------------

    def heard(self, sender: Contact, message: RelayMessage | LocatorMessage) -> None:
        if self._closed:
            return
        if isinstance(message, LeaderIs):
            self._leader_is(message)
        elif isinstance(message, PublishLeader | WhereIs):
            answer = self.locator.heard(message, self._clock.now_us())
            if answer is not None:
                self._links.send(self._me(), sender, answer)
        elif message.place in self._parts:
            self._step(message.place, events.Heard(sender, message))
        elif isinstance(message, Attach):
            self._answer(sender, NotRelaying(message.request, message.place))
        elif isinstance(message, Fetch):
            kind = NotRelaying if message.catching_up else NotAttached
            self._answer(sender, kind(message.request, message.place))

    def consume(
        self,
        place: Place,
        offset: int,
        credit_bytes: int,
        deliver: Delivered,
        lost: LostTo | None = None,
    ) -> int:
        """Have `deliver` called with all from `offset` on, in order; returns the consumer's number.
        It is not called before that.

        Credit is bytes of batches. `lost` is called with the first offset there still is when
        retention has passed what was wanted next; then it goes on there.
        """
        self._last_consumer += 1
        number = self._last_consumer
        self._consumers[number] = _Consumer(place, deliver, lost)
        # Later, so that nothing is delivered to somebody who does not know its number yet.
        self._events.append((place, events.Consume(number, offset, credit_bytes)))
        if self._soon is None:
            self._soon = self._timers.after(0, self._work_off_soon)
        return number

    def credit(self, consumer: int, bytes: int) -> None:  # noqa: A002  as in the core's event
        known = self._consumers.get(consumer)
        if known is not None:
            self._step(known.place, events.Credit(consumer, bytes))

    def stop(self, consumer: int) -> None:
        known = self._consumers.pop(consumer, None)
        if known is not None:
            self._step(known.place, events.StopConsuming(consumer))

    def own(self, place: Place, start: int, end: int, term: int = 0) -> None:
        """This node holds the partition, from now on."""
        if self._closed:
            return
        self.disown(place)
        self._owned[place] = _Owned(term)
        self._step(place, events.Owning(start, end))
        self._publish(place)

    def disown(self, place: Place) -> None:
        owned = self._owned.pop(place, None)
        if owned is None:
            return
        if owned.timer is not None:
            owned.timer.cancel()
        self._step(place, events.Disowned())

    def advanced(self, place: Place, start: int, end: int) -> None:
        if place in self._owned:
            self._step(place, events.Advanced(start, end))

    def renewed(self) -> None:
        """This node has begun a new life on the ring: others must hear of it."""
        for place in list(self._parts):
            self._step(place, events.Renewed(self._me()))
        for place in list(self._owned):
            self._publish_anew(place)

    def died(self, contact: Contact) -> None:
        for place in list(self._parts):
            self._step(place, events.Died(contact))
        for place, owned in list(self._owned.items()):
            if contact in owned.keepers:
                self._publish_anew(place)

    def stalled(self) -> None:
        for place in list(self._parts):
            self._step(place, events.Stalled())

    def close(self) -> None:
        """Nothing more happens; others find out by our silence."""
        self._closed = True
        for part in self._parts.values():
            self._cancel(part)
        for owned in self._owned.values():
            if owned.timer is not None:
                owned.timer.cancel()
        for asking in self._asking.values():
            if asking.timer is not None:
                asking.timer.cancel()
        self._asking.clear()
        self._events.clear()
        if self._soon is not None:
            self._soon.cancel()

    # --- the turn --------------------------------------------------------------------------------

    def _step(self, place: Place, event: events.Event) -> None:
        self._events.append((place, event))
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

    def _carry_out_one(self, place: Place, event: events.Event) -> None:
        part = self._parts.get(place)
        if part is None:
            if not isinstance(event, events.Consume | events.Owning):
                return  # it is about a core that is gone
            part = self._begin(place)
        carry_out = self._effects
        for effect in part.core.step(event):
            carry_out[type(effect)](self, part, effect)
            if self._closed:
                return

    def _begin(self, place: Place) -> _Part:
        core = Relay(self._me(), place, self._settings, last_request=self._last_request)
        self.cores[place] = core
        part = self._parts[place] = _Part(core)
        return part

    def _idle(self, part: _Part, _effect: events.Idle) -> None:
        self._cancel(part)
        place = part.core.place
        # Others may have counted on in the meantime: the highest number is the one to go on from.
        self._last_request = max(self._last_request, part.core.last_request)
        del self._parts[place], self.cores[place]

    def _cancel(self, part: _Part) -> None:
        for timer in part.armed.values():
            timer.cancel()
        part.armed.clear()

    # --- effects ---------------------------------------------------------------------------------

    def _answer(self, to: Contact, message: RelayMessage) -> None:
        self._links.send(self._me(), to, message)

    def _send(self, _part: _Part, effect: events.Send) -> None:
        self._links.send(self._me(), effect.to, effect.message)

    def _arm(self, part: _Part, effect: Arm) -> None:
        self._disarm(part, effect)
        delay_us = effect.after_us
        if effect.jitter_us:
            delay_us += self._chance.randrange(effect.jitter_us)
        part.armed[effect.timer] = self._timers.after(
            delay_us, partial(self._due, part, effect.timer)
        )

    def _disarm(self, part: _Part, effect: Arm | Disarm) -> None:
        running = part.armed.pop(effect.timer, None)
        if running is not None:
            running.cancel()

    def _due(self, part: _Part, timer: events.Timer) -> None:
        del part.armed[timer]
        self._step(part.core.place, events.Due(timer))

    def _deliver(self, _part: _Part, effect: events.Deliver) -> None:
        consumer = self._consumers.get(effect.consumer)
        if consumer is not None:  # it may have stopped while something before this was delivered
            consumer.deliver(effect.pieces, effect.end)

    def _lost(self, _part: _Part, effect: events.Lost) -> None:
        consumer = self._consumers.get(effect.consumer)
        if consumer is not None and consumer.lost is not None:
            consumer.lost(effect.first)

    def _read_log(self, part: _Part, effect: events.ReadLog) -> None:
        assert self._log is not None, "one that owns partitions has a log"
        place = part.core.place

        def done(pieces: tuple[Piece, ...]) -> None:
            self._step(place, events.LogRead(effect.token, pieces))

        self._log.read(place, effect.offset, effect.end, effect.bytes_max, done)

    # --- who leads a partition -------------------------------------------------------------------

    def _find_route(self, part: _Part, effect: events.FindRoute) -> None:
        place = part.core.place
        self._ring_find(key_of(place), partial(self._found, place, effect.token))

    def _found(self, place: Place, token: int, found: Located | NotLocated) -> None:
        if self._closed or place not in self._parts:
            return
        if isinstance(found, NotLocated):
            self._step(place, events.NoRoute(token))
            return
        keepers = found.owners[:KEEPERS]
        asking = _Asking(place, token, found.route, len(keepers))
        self._last_request += 1
        number = self._last_request
        self._asking[number] = asking
        asking.timer = self._timers.after(ASK_US, partial(self._asked_long_enough, number))
        me = self._me()
        for keeper in keepers:
            if keeper.node == me.node:
                now_us = self._clock.now_us()
                own = self.locator.heard(WhereIs(number, place), now_us)
                assert own is not None, "a question has an answer"
                self._leader_is(own)
            else:
                self._links.send(me, keeper, WhereIs(number, place))

    def _leader_is(self, message: LeaderIs) -> None:
        asking = self._asking.get(message.request)
        if asking is None or asking.place != message.place:
            return
        asking.hear(message.leader, message.term)
        if asking.open == 0:
            self._end_asking(message.request)

    def _asked_long_enough(self, number: int) -> None:
        self._asking[number].timer = None
        self._end_asking(number)

    def _end_asking(self, number: int) -> None:
        asking = self._asking.pop(number)
        if asking.timer is not None:
            asking.timer.cancel()
        if asking.leader is None:
            self._step(asking.place, events.NoRoute(asking.token))
        else:
            leader = asking.leader
            route = [contact for contact in asking.route if contact.node != leader.node]
            self._step(asking.place, events.RouteIs((*route, leader), asking.token))

    def _publish_anew(self, place: Place) -> None:
        """Those who keep it may be others now, and any message may be lost: more often at first."""
        self._owned[place].next_us = PUBLISH_US_MIN
        self._publish(place)

    def _publish(self, place: Place) -> None:
        """Now, and again and again."""
        self._publish_later(place, self._owned[place])
        self._ring_find(key_of(place), partial(self._tell_keepers, place))

    def _publish_later(self, place: Place, owned: _Owned) -> None:
        if owned.timer is not None:
            owned.timer.cancel()
        delay_us = owned.next_us + self._chance.randrange(owned.next_us)
        owned.timer = self._timers.after(delay_us // 2 + 1, partial(self._publish, place))
        owned.next_us = min(PUBLISH_US, 2 * owned.next_us)

    def _tell_keepers(self, place: Place, found: Located | NotLocated) -> None:
        owned = self._owned.get(place)
        if self._closed or owned is None:
            return
        if isinstance(found, NotLocated):  # we are not on the ring, say, and soon will be
            owned.next_us = PUBLISH_US_MIN
            self._publish_later(place, owned)
            return
        owned.keepers = found.owners[:KEEPERS]
        me = self._me()
        message = PublishLeader(place, me, owned.term)
        for keeper in owned.keepers:
            if keeper.node == me.node:
                self.locator.publish(place, me, owned.term, self._clock.now_us())
            else:
                self._links.send(me, keeper, message)

    _effects: ClassVar[dict[type, Callable[[Relays, _Part, Any], None]]] = {
        events.Send: _send,
        Arm: _arm,
        Disarm: _disarm,
        events.Deliver: _deliver,
        events.Lost: _lost,
        events.FindRoute: _find_route,
        events.ReadLog: _read_log,
        events.Idle: _idle,
    }
