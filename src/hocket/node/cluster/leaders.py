"""Who leads a partition: this node asks other nodes, and tells them what it leads itself.

The hint who leads a partition is kept by the nodes that follow its key on the ring, the keepers
(`core.placement.locator`). What this node leads is published to the keepers again and again, soon
at first: any message may be lost, and the keepers may change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

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
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Located, NotLocated
from hocket.model import PartitionId
from hocket.ports import Cancellable, Clock, Links, Timers

ASK_US = 500_000  # keepers that have not answered by then are not waited for
PUBLISH_US_MIN = 1_000_000  # after the first time; then twice as long each time, up to PUBLISH_US

Found = Callable[[Located | NotLocated], None]
Answered = Callable[[Contact | None], None]


@dataclass(slots=True)
class _Led:
    """A partition that this node leads."""

    term: int
    next_us: int = PUBLISH_US_MIN  # until it is published again
    timer: Cancellable | None = None
    keepers: tuple[Contact, ...] = ()  # the nodes that were told last


@dataclass(slots=True)
class _Question:
    """Where the leader of a partition is; several keepers are asked."""

    partition_id: PartitionId
    answered: Answered
    open: int  # how many answers are still to come
    best: tuple[int, int] = (-1, 0)  # the newest answer's term, and the leader's incarnation
    leader: Contact | None = None
    timer: Cancellable | None = None

    def hear(self, leader: Contact | None, term: int) -> None:
        self.open -= 1
        if leader is not None and (term, leader.incarnation) > self.best:
            self.leader, self.best = leader, (term, leader.incarnation)


class Leaders:
    def __init__(
        self,
        *,
        me: Callable[[], Contact],
        clock: Clock,
        timers: Timers,
        links: Links,
        chance: Random,
        find: Callable[[int, Found], None],
        next_request: Callable[[], int],
    ) -> None:
        self.hints = LocatorStore()  # what this node keeps for others
        self._me = me
        self._clock = clock
        self._timers = timers
        self._links = links
        self._chance = chance
        self._ring_find = find
        self._next_request = next_request
        self._led: dict[PartitionId, _Led] = {}
        self._questions: dict[int, _Question] = {}  # by request
        self._closed = False

    def heard(self, sender: Contact, message: LocatorMessage) -> None:
        if isinstance(message, LeaderIs):
            self._leader_is(message)
            return
        answer = self.hints.heard(message, self._clock.now_us())
        if answer is not None:
            self._links.send(self._me(), sender, answer)

    def close(self) -> None:
        self._closed = True
        for led in self._led.values():
            if led.timer is not None:
                led.timer.cancel()
        for question in self._questions.values():
            if question.timer is not None:
                question.timer.cancel()
        self._questions.clear()

    # --- asking ----------------------------------------------------------------------------------

    def ask(
        self, partition_id: PartitionId, keepers: tuple[Contact, ...], answered: Answered
    ) -> None:
        """Ask the keepers who leads; `answered` is called once, with None if none of them knows."""
        request = self._next_request()
        question = self._questions[request] = _Question(partition_id, answered, len(keepers))
        question.timer = self._timers.after(ASK_US, partial(self._asked_long_enough, request))
        me = self._me()
        for keeper in keepers:
            if keeper.node == me.node:
                own = self.hints.heard(WhereIs(request, partition_id), self._clock.now_us())
                assert own is not None, "a question has an answer"
                self._leader_is(own)
            else:
                self._links.send(me, keeper, WhereIs(request, partition_id))

    def _leader_is(self, message: LeaderIs) -> None:
        question = self._questions.get(message.request)
        if question is None or question.partition_id != message.partition_id:
            return
        question.hear(message.leader, message.term)
        if question.open == 0:
            self._end(message.request)

    def _asked_long_enough(self, request: int) -> None:
        self._questions[request].timer = None
        self._end(request)

    def _end(self, request: int) -> None:
        question = self._questions.pop(request)
        if question.timer is not None:
            question.timer.cancel()
        question.answered(question.leader)

    # --- telling ---------------------------------------------------------------------------------

    def is_led(self, partition_id: PartitionId) -> bool:
        """Whether this node leads the partition."""
        return partition_id in self._led

    def lead(self, partition_id: PartitionId, term: int) -> None:
        """This node leads the partition. Nobody hears of it before `publish`."""
        self._led[partition_id] = _Led(term)

    def resign(self, partition_id: PartitionId) -> bool:
        """This node does not lead the partition any more; False: it has not led it."""
        led = self._led.pop(partition_id, None)
        if led is not None and led.timer is not None:
            led.timer.cancel()
        return led is not None

    def publish(self, partition_id: PartitionId) -> None:
        """Tell the keepers now, and then again and again."""
        self._publish_later(partition_id, self._led[partition_id])
        self._ring_find(key_of(partition_id), partial(self._tell_keepers, partition_id))

    def renewed(self) -> None:
        """This node has begun a new life."""
        for partition_id in list(self._led):
            self._publish_anew(partition_id)

    def died(self, contact: Contact) -> None:
        for partition_id, led in list(self._led.items()):
            if contact in led.keepers:
                self._publish_anew(partition_id)

    def _publish_anew(self, partition_id: PartitionId) -> None:
        """The keepers may be others now, and any message may be lost: more often at first."""
        self._led[partition_id].next_us = PUBLISH_US_MIN
        self.publish(partition_id)

    def _publish_later(self, partition_id: PartitionId, led: _Led) -> None:
        if led.timer is not None:
            led.timer.cancel()
        delay_us = led.next_us + self._chance.randrange(led.next_us)
        led.timer = self._timers.after(delay_us // 2 + 1, partial(self.publish, partition_id))
        led.next_us = min(PUBLISH_US, 2 * led.next_us)

    def _tell_keepers(self, partition_id: PartitionId, found: Located | NotLocated) -> None:
        led = self._led.get(partition_id)
        if self._closed or led is None:
            return
        if isinstance(found, NotLocated):  # perhaps this node is not on the ring yet
            led.next_us = PUBLISH_US_MIN
            self._publish_later(partition_id, led)
            return
        led.keepers = found.owners[:KEEPERS]
        me = self._me()
        message = PublishLeader(partition_id, me, led.term)
        for keeper in led.keepers:
            if keeper.node == me.node:
                self.hints.publish(partition_id, me, led.term, self._clock.now_us())
            else:
                self._links.send(me, keeper, message)
