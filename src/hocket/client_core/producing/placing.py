"""Which pusher has which partitions of a producer: one has all, or there is one for each node.

A producer begins with one pusher, for the whole topic. That is all while one node has the topic. As
soon as a node says `severalNodes`, the router finds out who leads each partition, and they are
placed: each goes to a pusher at the node that leads it. A pusher whose node cannot be reached, or
does not lead its partitions any more, is placed again; the others do not notice.

Rule 1: a partition of which something may be stored keeps its producer id wherever it goes, so that
what is pushed again is known there. So it may need a pusher of its own at a node that has one.
Rule 2: a partition of which nothing may be stored may be pushed under any id: it joins the pusher
that is there, and is numbered as the node says.
"""

from __future__ import annotations

from hocket.client_core.producing.delivery import Pusher
from hocket.client_core.producing.fates import Fates, ProducerOptions, Settle
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.session.session import Route, Routing, Session
from hocket.errors import HocketError, StorageFull
from hocket.model import BATCH_BYTES_MAX, MESSAGE_BYTES_MAX

FRAMING_BYTES = 1024  # an entry adds less than this to its records


class Placing(Fates):
    pusher_kind: type[Pusher] = Pusher

    def __init__(
        self,
        session: Session,
        topic: str,
        options: ProducerOptions,
        settle: Settle | None = None,
    ) -> None:
        super().__init__(session, topic, options, settle)
        self.is_open = False  # it was opened once: from then on it takes records, link or no link
        self.batch_bytes = options.batch_bytes
        self.message_bytes_max = MESSAGE_BYTES_MAX
        self.entry_bytes_max = BATCH_BYTES_MAX
        self.pushers: list[Pusher] = [self.pusher_kind(self, session)]

    @property
    def session(self) -> Session:
        """Where it is, or where one of its pushers is that is not open."""
        pushers = self.pushers
        return next((each for each in pushers if each.handle is None), pushers[0]).session

    @property
    def full_disk(self) -> StorageFull | None:
        """The last word of a node whose disk is full."""
        return next((each.full_disk for each in self.pushers if each.full_disk is not None), None)

    # --- opening and ending ----------------------------------------------------------------------

    def open(self) -> None:
        (pusher,) = self.pushers
        router = pusher.session.router
        leaders = None if router is None else router.leaders(self.topic)
        if router is not None and leaders:
            router.first.check_open()
            pusher.session = router.first
            pusher.session.adopt(pusher)
            if all(leaders):
                self.place(pusher)
            else:  # somebody was asked in vain lately
                router.locate_for(pusher)
        else:
            pusher.session = pusher.session.place_of(Route(self.topic))
            pusher.session.add(pusher)

    def pusher_opened(self, pusher: Pusher, partitions: int) -> None:
        self.is_open = True
        self._take_limits(pusher.session)
        self.grew(pusher, partitions)

    def _take_limits(self, session: Session) -> None:
        """The smallest of this node's and of those that it is open at: a record may go to any."""
        limits = [each.session.limits for each in self.pushers if each.handle is not None]
        self.entry_bytes_max = min(
            min(each.batch_bytes_max, each.frame_bytes_max) for each in (session.limits, *limits)
        )
        largest = self.entry_bytes_max - FRAMING_BYTES
        self.message_bytes_max = min(MESSAGE_BYTES_MAX, largest)
        self.batch_bytes = min(self.options.batch_bytes, largest)

    def begins_anew(self) -> bool:
        """The topic has fewer partitions than was known: it was made anew. Look once more.

        False: the producer has records for partitions that there are no more.
        """
        router = self.pushers[0].session.router
        if self.is_open or router is None:
            return False
        for pusher in self.pushers:
            pusher.let_go()
        self.gatherings.clear()
        self.pushers = [self.pusher_kind(self, router.first)]
        router.first.adopt(self.pushers[0])
        router.locate_for(self.pushers[0])
        return True

    def end(self, error: HocketError) -> None:
        """Take no more records; report what is not acknowledged as failed."""
        if self.failure is not None:
            return
        self.failure = error
        for gathering in self.gatherings:
            gathering.close()
            while gathering.queue:
                self.fail(gathering.queue.popleft(), error)
            self._fail_gathered(gathering, error)
        for pusher in self.pushers:
            pusher.let_go()
        if self._expiry_timer is not None:  # else it would keep all this for minutes
            self._expiry_timer.cancel()
        self.changed.wake_all()
        self.settled.wake_all()

    def _fail_gathered(self, gathering: Gathering, error: HocketError) -> None:
        """Report records that are not part of a batch yet as failed, too."""

    def forked(self, error: HocketError) -> None:
        self.failure = error
        for gathering in self.gatherings:
            gathering.close()

    def deliver(self) -> bool:
        return not self.unacked_bytes

    def remains_of(self, pusher: Pusher) -> str:
        """What one of its pushers leaves, in words; empty: nothing."""
        count = sum(gathering.count() for gathering in pusher.gatherings)
        return (
            f"{count} message{'s' if count > 1 else ''} for topic {self.topic!r}" if count else ""
        )

    # --- partitions ------------------------------------------------------------------------------

    def grew(self, pusher: Pusher, partitions: int) -> None:
        """The topic has so many partitions, as one of the pushers was told."""
        known = len(self.gatherings)
        if partitions <= known:
            return
        if not pusher.is_part:
            # If some are elsewhere, the node says so when something is pushed to them.
            self._grow(partitions, pusher)
            return
        router = pusher.session.router
        assert router is not None  # or nobody would have been asked who leads what
        finder = self._new_pusher(router)
        self._grow(partitions, finder)
        router.locate_for(finder)

    def _grow(self, partitions: int, pusher: Pusher) -> None:
        new = [
            Gathering(number, self.batch_bytes)
            for number in range(len(self.gatherings), partitions)
        ]
        pusher.take(new)
        self.gatherings += new

    def _new_pusher(self, router: Routing) -> Pusher:
        pusher = self.pusher_kind(self, router.first)
        pusher.is_part = True
        router.first.adopt(pusher)
        self.pushers.append(pusher)
        return pusher

    def place(self, pusher: Pusher) -> None:
        """Who leads what is known: have the partitions of the pusher pushed to these nodes."""
        router = pusher.session.router
        assert router is not None
        leaders = router.leaders(self.topic)
        assert leaders is not None
        if not pusher.is_part:
            pusher.is_part = True
            if len(leaders) > len(self.gatherings):
                self._take_limits(router.first)
                self._grow(len(leaders), pusher)
        groups: dict[str, list[Gathering]] = {}
        for gathering in pusher.gatherings:
            at = gathering.partition
            groups.setdefault(leaders[at] if at < len(leaders) else "", []).append(gathering)
        pusher.gatherings = []
        for node, gatherings in groups.items():
            self._place_at(node, gatherings, pusher, router)
        if not pusher.gatherings:
            pusher.let_go()
            self.pushers.remove(pusher)

    def _place_at(
        self, node: str, gatherings: list[Gathering], former: Pusher, router: Routing
    ) -> None:
        there = [each for each in self.pushers if each.node == node and each is not former]
        if node and there and not any(map(former.is_bound, gatherings)):
            there[0].join(gatherings)
            return
        pusher = former
        if former.gatherings:  # it is for other partitions by now
            pusher = self._new_pusher(router)
            pusher.producer_id, pusher.epoch = former.producer_id, former.epoch
            pusher.renewing = former.renewing
        pusher.node = node
        pusher.take(gatherings)
        router.open_at_leader(pusher)

    def missing(self) -> str:
        """Of which partitions something is not acknowledged, and why, in words."""
        found = []
        for pusher in self.pushers:
            late = [str(each.partition) for each in pusher.gatherings if each.queue]
            if late:
                many = f"partition{'s' if len(late) > 1 else ''} {', '.join(late)}"
                found.append(f"{many}: {pusher.trouble()}")
        return "; ".join(found)
