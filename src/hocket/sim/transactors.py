"""Those who publish by transactions, over all partitions of a topic that three machines keep.

Each has an id of its own, and commits one number after the other. Some are aborted, and their
number is used again; some are asked for once more when they are committed, with as many records or
with others. They speak through the cores of the real client, like all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from hocket import frames
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.producing.outgoing import Stamp
from hocket.client_core.producing.staging import Deciding, StagingCore, abort_of, participants_of
from hocket.errors import (
    Closed,
    HocketError,
    NoConnection,
    TransactionAborted,
    TransactionConflict,
    UnknownTopic,
)
from hocket.sim.client import RETRY_US, Client, Unexpected
from hocket.sim.producers import FOREVER_US
from hocket.wire import batch as batches

if TYPE_CHECKING:
    from hocket.client_core.producing.gathering import Gathering
    from hocket.sim.client import SimLink
    from hocket.sim.machine import Machine
    from hocket.sim.site import Site

TOPIC = "transacted"
PARTITIONS = 2
REPLICAS = 3
LOOK_US = 20_000  # until it looks again whether all is staged, or decided
PAUSE_US = 400_000  # between two transactions, on the average
PREPARED_US = 3_000_000  # at most, between what is staged and its commit, of one in five
RECORDS_MAX = 4  # in each partition

# What an attempt is for: to be committed, aborted, or to find that its number is committed already,
# with as many records or with others.
KINDS = ("commit",) * 6 + ("prepare", "prepare", "abort", "again", "other")


@dataclass(eq=False)
class Attempt:
    """One attempt at a transaction, and what its client was told."""

    transaction: str
    number: int
    serial: int  # of the attempt, over all of the client's
    kind: str
    records: int  # in each partition
    told: str = ""  # "committed", "aborted", "done before", "conflict"; empty: nothing yet
    values: dict[int, list[bytes]] = field(default_factory=dict)  # by partition

    @property
    def name(self) -> str:
        return f"{self.transaction} {self.number} ({self.serial}, {self.kind})"


class Transactor(Client):
    def __init__(self, site: Site, machine: Machine, number: int) -> None:
        self.transaction = f"transactor-{number}"
        self.attempts: list[Attempt] = []
        self.stopped = False
        self._next = 0  # the number of the next transaction
        self._records = 0  # of the last one that is committed
        self._core: StagingCore | None = None
        self._deciding: Deciding | None = None
        super().__init__(site, machine, self.transaction)
        self._later()

    def look_at(self, link: SimLink, frame: frames.Frame) -> None:
        """A leadership that goes home ends what is open there, and nothing has failed then."""
        if not isinstance(frame, frames.HandleEnded):
            super().look_at(link, frame)

    @property
    def finished(self) -> bool:
        return bool(self.attempts) and bool(self.attempts[-1].told)

    def _later(self) -> None:
        self.site.scheduler.after(round(self.chance.expovariate(1 / PAUSE_US)), self._begin_one)

    def _begin_one(self) -> None:
        if self.stopped and self.attempts:
            return
        kind = self.chance.choice(KINDS)
        if kind in ("again", "other") and not self._next:
            kind = "commit"
        records = self.chance.randint(1, RECORDS_MAX)
        number = self._next
        if kind in ("again", "other"):
            number -= 1
            records = self._records + (kind == "other")
        attempt = Attempt(self.transaction, number, len(self.attempts), kind, records)
        for partition in range(PARTITIONS):
            attempt.values[partition] = [
                f"{attempt.transaction}/{number}/{attempt.serial}/{partition}/{each}".encode()
                for each in range(records)
            ]
        self.attempts.append(attempt)
        self._stage(attempt)

    # --- staging -----------------------------------------------------------------------------

    def _stage(self, attempt: Attempt) -> None:
        """Under new producer ids each time: what an earlier core has staged counts for nothing."""
        options = ProducerOptions(linger_us=0, delivery_us=FOREVER_US)
        core = StagingCore(
            self.router.first, TOPIC, options, attempt.transaction, attempt.number
        )  # fmt: skip
        try:
            self.turn(core.open)
        except HocketError:  # its first machine was down
            self.site.scheduler.after(RETRY_US, partial(self._stage, attempt))
            return
        self._core = core
        self._fill(attempt, core)

    def _fill(self, attempt: Attempt, core: StagingCore) -> None:
        if core.failure is not None:
            self._begin_again(attempt, core.failure)
        elif not core.is_open:
            self.site.scheduler.after(LOOK_US, partial(self._fill, attempt, core))
        else:
            for gathering in core.gatherings:
                values = attempt.values[gathering.partition]
                self.turn(partial(self._send_batch, core, gathering, values))
            self._wait_until_staged(attempt, core)

    def _begin_again(self, attempt: Attempt, failure: HocketError) -> None:
        """The topic is not there yet, or the session is over: its first machine was down."""
        if not isinstance(failure, UnknownTopic | NoConnection | Closed):
            raise Unexpected(f"{attempt.name} cannot be staged: {failure!r}")
        self.site.scheduler.after(RETRY_US, partial(self._stage, attempt))

    def _send_batch(self, core: StagingCore, gathering: Gathering, values: list[bytes]) -> None:
        def encoded(stamp: Stamp) -> bytes:
            return batches.encode(
                values, timestamps=self.site.now_us, producer_id=stamp.producer_id,
                epoch=stamp.epoch, sequence=stamp.sequence,
            )  # fmt: skip

        if not core.offer_entry(gathering, encoded, len(values)):
            raise Unexpected(f"{self.name} has no room for {values!r}")

    def _wait_until_staged(self, attempt: Attempt, core: StagingCore) -> None:
        try:
            is_staged = core.failure is None and core.is_staged()
        except TransactionAborted:
            # The number is committed, so that a new leader has had this dropped. A user is told to
            # send it again.
            if attempt.kind not in ("again", "other"):
                raise
            self.mend("staged again")
            self.turn(partial(core.end, Closed("it was dropped")))
            self._stage(attempt)
            return
        if core.failure is not None:
            self._begin_again(attempt, core.failure)
        elif not is_staged:
            again = partial(self._wait_until_staged, attempt, core)
            self.site.scheduler.after(LOOK_US, again)
        else:
            wait_us = self.chance.randrange(PREPARED_US) if attempt.kind == "prepare" else 0
            frame: frames.CommitTransaction | frames.AbortTransaction | None
            if attempt.kind == "abort":
                frame = abort_of(attempt.transaction, attempt.number, core.producer_ids)
                assert frame is not None
            else:
                named = participants_of([core])
                frame = frames.CommitTransaction(0, attempt.transaction, attempt.number, named)
            self.site.scheduler.after(wait_us, partial(self._decide, attempt, core, frame))

    # --- deciding ----------------------------------------------------------------------------

    def _decide(
        self, attempt: Attempt, core: StagingCore,
        frame: frames.CommitTransaction | frames.AbortTransaction,
    ) -> None:  # fmt: skip
        def ask() -> None:
            self._deciding = Deciding(self.router.first, frame, TOPIC)

        self.turn(ask)
        self._wait_until_decided(attempt, core, frame)

    def _wait_until_decided(
        self, attempt: Attempt, core: StagingCore,
        frame: frames.CommitTransaction | frames.AbortTransaction,
    ) -> None:  # fmt: skip
        assert self._deciding is not None
        answer = self._deciding.reply.get()
        if answer is None:
            again = partial(self._wait_until_decided, attempt, core, frame)
            self.site.scheduler.after(LOOK_US, again)
        elif isinstance(answer, NoConnection | Closed):  # the session is over: it is asked anew
            again = partial(self._decide, attempt, core, frame)
            self.site.scheduler.after(RETRY_US, again)
        else:
            attempt.told = self._outcome(attempt, answer)
            self.turn(partial(core.end, Closed("the transaction is over")))
            self.site.clients_moved = True
            self._later()

    def _outcome(self, attempt: Attempt, answer: frames.Frame | HocketError) -> str:
        if attempt.kind == "other" and isinstance(answer, TransactionConflict):
            return "conflict"
        if isinstance(answer, HocketError) or attempt.kind == "other":
            raise Unexpected(f"{attempt.name} was answered {answer!r}")
        if attempt.kind == "abort":
            return "aborted"
        if attempt.kind == "again":
            return "done before"
        self._next, self._records = attempt.number + 1, attempt.records
        return "committed"
