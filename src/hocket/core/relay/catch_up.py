"""How consumers that are far behind get batches that are older than the recent ones.

One question at a time goes to the owner, for one consumer, and the consumers take turns. At the
owner the question is a read of the log. So two fetches at most are out: this one, and the one that
waits at the parent (`intake`).
"""

from __future__ import annotations

from hocket.core.relay.committed import Committed
from hocket.core.relay.consumers import Consumer, Consumers
from hocket.core.relay.downstream import Downstream
from hocket.core.relay.lineage import Lineage
from hocket.core.relay.messages import Fetch, Piece
from hocket.core.relay.outbox import Outbox, Turn
from hocket.core.relay.recent import RecentBatches, begin_behind, fitting, follow
from hocket.core.relay.settings import ASK_AGAIN, RelaySettings
from hocket.core.relay.upstream import Upstream
from hocket.model import PartitionId


class CatchUp:
    __slots__ = (
        "_committed", "_consumer", "_consumers", "_downstream", "_lineage", "_offset", "_outbox",
        "_partition_id", "_reading", "_recent", "_request", "_resting", "_settings", "_silent",
        "_upstream",
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
        downstream: Downstream,
        upstream: Upstream,
    ) -> None:
        self._partition_id = partition_id
        self._settings = settings
        self._outbox = outbox
        self._lineage = lineage
        self._recent = recent
        self._committed = committed
        self._consumers = consumers
        self._downstream = downstream
        self._upstream = upstream
        self._consumer = 0  # the number of the consumer that the last question was for
        self._offset = 0  # the offset that the last question was about
        self._request = 0  # the request, or the token, of the question that is out; 0: none is
        self._reading = 0  # at the owner: the token of the log read that is under way
        self._silent = 0  # ticks that the owner did not answer, however often it was asked
        self._resting = False  # the last answer was of no use: do not ask before the next tick

    def ask(self) -> Turn:
        """Ask for the consumer whose turn it is, unless a question is out."""
        if self._request or self._resting:
            return False
        consumer = self._choose()
        if consumer is None:
            return False
        lineage = self._lineage
        credit_bytes = self._settings.capped(consumer.credit_bytes)
        if lineage.is_owner:
            if consumer.next_offset < self._committed.start:
                self._consumers.lose(consumer, self._committed.start)
                return True
            end = self._committed.end
            token = self._outbox.read_log(consumer.next_offset, end, credit_bytes)
            self._asked(consumer, token)
            self._reading = token
        elif lineage.owner is None:
            self._upstream.find()
        else:
            self._asked(consumer, self._outbox.next_request())
            fetch = Fetch(
                self._request,
                self._partition_id,
                self._offset,
                credit_bytes,
                self._settings.wait_us,
                self._downstream.load,
                catching_up=True,
            )
            self._outbox.send(lineage.owner, fetch)
        return False

    def _choose(self) -> Consumer | None:
        """The next one in turn of the consumers that have credit and are behind."""
        start, last = self._recent.start, self._consumer
        behind = [each for each in self._consumers if each.next_offset < start and each.is_eager]
        if not behind:
            return None
        return min(behind, key=lambda each: (each.number <= last, each.number))

    def _asked(self, consumer: Consumer, request: int) -> None:
        self._consumer = consumer.number
        self._offset = consumer.next_offset
        self._request = request

    def end(self, *, resting: bool = False) -> None:
        """Whatever comes as an answer to the last question is no answer any more."""
        self._request = 0
        self._silent = 0
        self._resting = resting

    # --- the answer -------------------------------------------------------------------------------

    def is_asking(self, request: int) -> bool:
        return self._request != 0 and request == self._request

    def is_reading(self, token: int) -> bool:
        return token == self._reading

    def log_read(self, pieces: tuple[Piece, ...]) -> Turn:
        self._reading = 0
        if begin_behind(pieces, self._offset):
            return self.lost(pieces[0].start)
        return self.got(pieces)

    def got(self, pieces: tuple[Piece, ...]) -> Turn:
        consumer = self._consumers.get(self._consumer)
        useful = consumer is None or follow(pieces, consumer.next_offset)
        self.end(resting=not useful)
        if consumer is not None and useful:
            # The consumer may have less credit now than it had when the question went out.
            self._consumers.give(consumer, fitting(pieces, consumer.credit_bytes))
        return True

    def lost(self, first: int) -> Turn:
        """What there still is begins at offset `first`."""
        consumer = self._consumers.get(self._consumer)
        self.end()
        if consumer is not None and consumer.next_offset < first:
            self._consumers.lose(consumer, first)
        return True

    # --- the owner does not answer ----------------------------------------------------------------

    def tick(self) -> Turn:
        self._resting = False
        if not self._request or self._lineage.is_owner:
            return False
        self._silent += 1
        if self._silent >= self._settings.silent_ticks:
            return self.lose_owner()
        if self._silent >= ASK_AGAIN:
            self._request = 0
        return False

    def stalled(self) -> None:
        self._silent = 0

    def lose_owner(self, *, resting: bool = False) -> Turn:
        self._upstream.forget_owner()
        self.end(resting=resting)
        return True

    def disown(self) -> None:
        self._reading = 0
        self.end()
