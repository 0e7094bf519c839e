"""Tells the broker what was said about messages of a shared index, and hears its answers.

`Settlements` holds what is told; here it becomes requests. What the broker refuses for the moment
is told again after a while; what it refuses for good is raised by the next commit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hocket import frames
from hocket.client_core.consuming.attachment import RETRYABLE, Attachment
from hocket.client_core.session.backoff import Backoff
from hocket.client_core.sharing.leases import Leases
from hocket.client_core.sharing.progress import SharedProgress
from hocket.client_core.sharing.ranges import Run, triples
from hocket.client_core.sharing.settlements import Settlements, Telling
from hocket.client_core.sharing.verdict import RENEWAL
from hocket.core.sharing.ranges import without
from hocket.errors import HocketError, NotHere, ProtocolError, ReplyLost
from hocket.frames import Frame

KEPT = RETRYABLE | {"storageFull"}  # a verdict that is refused with one of these is told again
NO_WORD = RETRYABLE | {NotHere.code}  # of these, a commit does not hear


class Teller:
    def __init__(
        self,
        core: Attachment,
        inbound: Leases,
        settlements: Settlements,
        release_behind: Callable[[SharedProgress, dict[int, int]], None],
    ) -> None:
        self._core = core
        self._inbound = inbound
        self._settlements = settlements
        self._release_behind = release_behind
        self._backoff = Backoff(core.session.outbox.random)
        self._error: HocketError | None = None  # a refusal for good that no commit has raised yet

    def put_together(self) -> None:
        """Make tellings of what was said so far, also if there is no link to tell them on."""
        self._settlements.put_together(self._inbound.deliveries)

    def tell(self) -> None:
        """Send what was said and not sent yet, if there is a link."""
        handle = self._core.handle
        if handle is None:
            return
        self.put_together()
        for telling in self._settlements.to_send():
            telling.waits = False
            telling.sent_us = self._core.session.outbox.now_us
            action, duration_us, reason = telling.verdict
            frame = frames.Settle(
                0, handle, action, telling.triples(), duration_us, reason, telling.doubtful
            )
            self._core.session.request(frame, partial(self._answered, telling))

    def tell_renewals(self) -> None:
        renewals, self._inbound.renewals = self._inbound.renewals, []
        for progress, offsets in renewals:
            self._settlements.add(RENEWAL, progress, offsets, quiet=True)
        if renewals:
            self.tell()

    def take_error(self) -> HocketError | None:
        """What was refused for good since this was last asked."""
        error, self._error = self._error, None
        return error

    def _answered(self, telling: Telling, answer: Frame | HocketError) -> None:
        if not self._settlements.is_open(telling) or isinstance(answer, ReplyLost):
            return  # void, or to be told again on the next link
        if isinstance(answer, HocketError):
            self._not_settled(telling, answer)
        elif isinstance(answer, frames.Settled):
            self._settled(telling, triples(answer.refused))
        else:
            raise ProtocolError(f"{type(answer).__name__} came in answer to Settle")
        self._core.commits.wake_all()

    def _settled(self, telling: Telling, refused: list[Run]) -> None:
        self._backoff.reset()
        now_us = self._core.session.outbox.now_us
        self._settlements.answered(telling, refused, now_us, awaited=bool(self._core.commits))
        telling.let_keys_go_on()
        if telling.quiet and telling.verdict == RENEWAL:
            by_partition = telling.by_partition()
            for partition, start, end in refused:  # somebody else has these messages, or will
                if partition in by_partition:
                    self._drop(by_partition[partition], range(start, end), telling.delivery)
            for partition, progress in by_partition.items():
                lost = [(start, end) for at, start, end in refused if at == partition]
                told = [(start, end) for each, start, end in telling.ranges if each is progress]
                self._inbound.renewed(
                    progress, without(told, lost), telling.sent_us, telling.delivery
                )

    def _drop(self, progress: SharedProgress, lapsed: range, delivery: int) -> None:
        """Where keys keep their order, what waits here behind a message that is gone is given back:
        else it would overtake that one, which comes again."""
        withdrawn = self._inbound.withdraw(progress, lapsed, delivery=delivery)
        firsts: dict[int, int] = {}
        for offset, hash_ in withdrawn.items():
            firsts[hash_] = min(offset, firsts.get(hash_, offset))
        firsts.pop(0, None)  # of no key, or of no matter
        if firsts:
            self._release_behind(progress, firsts)

    def _not_settled(self, telling: Telling, error: HocketError) -> None:
        core = self._core
        if telling.waits or core.failure is not None:  # it will be told again, or never
            return
        # A release is told again, too: the message is not here, and what comes of its key meanwhile
        # would overtake it. A renewal is not; the next one is due soon.
        is_kept = telling.gives_back or not telling.quiet
        if isinstance(error, NotHere) and is_kept:
            telling.waits = True  # until this is opened where the partitions are
        elif error.code in KEPT and is_kept:
            telling.waits = True
            core.session.after(self._backoff.next_us(), self.tell)
        else:
            self._settlements.drop(telling)
            telling.let_keys_go_on()
        if error.code not in NO_WORD and not telling.quiet:
            self._error = error
            core.session.report(
                "warning", "settling messages of topic %r was refused: %s", core.topic, error
            )
