"""What is left to do for a session that nobody will close: its client was dropped, or the process
ends.

What was sent is delivered and what was acknowledged is committed, as closing would have done. A
transaction that is still open is aborted: nobody said that it was complete. What could not be done
is said in words, each with its count.

`step` is called again and again, by whoever may touch the cores then, until it returns True or
there is no time left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hocket.client_core.producing.staging import (
    Deciding,
    StagingCore,
    StagingPusher,
    abort_of,
    producers_of,
)
from hocket.client_core.session.answers import closed
from hocket.client_core.session.router import Router
from hocket.client_core.session.session import Owner
from hocket.errors import HocketError


@dataclass(slots=True)
class Abort:
    """An open transaction that is being dropped."""

    transaction: str
    number: int
    count: int  # of messages
    deciding: Deciding | None  # None: the broker has never heard of it

    @property
    def is_over(self) -> bool:
        return self.deciding is None or self.deciding.reply.get() is not None

    def __str__(self) -> str:
        what = f"transaction {self.transaction!r} number {self.number} was not committed"
        answer = self.deciding.reply.get() if self.deciding else None
        if isinstance(answer, HocketError):
            return f"{what} here, and could not be aborted: {answer}"
        if not self.is_over:
            return f"{what}; {_messages(self.count)} will be dropped by the broker, after a day"
        return f"{what}, so it was aborted: {_messages(self.count)} dropped"


class Departure:
    def __init__(self, router: Router) -> None:
        self._router = router
        self._aborts: list[Abort] = []

    def has_work(self) -> bool:
        """Whether there is anything to deliver or to abort. Sends nothing."""
        owners = self._router.owners()
        return any(_is_staging(each) or each.remains() for each in owners)

    def step(self) -> bool:
        """Send what there is to send; True once nothing is on its way any more."""
        router = self._router
        if router.first.failure is not None:
            return True
        self._abort_transactions()
        delivered = router.deliver()
        decided = all(abort.is_over for abort in self._aborts)
        return delivered and decided and not any(map(_is_staging, router.owners()))

    def _abort_transactions(self) -> None:
        cores: dict[tuple[str, int], list[StagingCore]] = {}
        for core in _staging_of(self._router.owners()):
            # One that takes no more is being decided just now, by somebody who waits for that.
            if core.is_taking:
                cores.setdefault(core.name, []).append(core)
        for name, of_one in cores.items():
            count = sum(core.count() for core in of_one)
            frame = abort_of(*name, producers_of(of_one))
            for core in of_one:
                core.end(closed("the transaction"))
            deciding = (
                None if frame is None else Deciding(self._router.first, frame, of_one[0].topic)
            )
            self._aborts.append(Abort(*name, count, deciding))

    def lines(self) -> list[str]:
        """What was lost, or may be, and what was aborted."""
        remains = ((owner, owner.remains()) for owner in self._router.owners())
        return [
            *(
                f"{text} could not be delivered to {owner.session.target}: {self._why(owner)}"
                for owner, text in remains
                if text
            ),
            *(str(abort) for abort in self._aborts),
            *self._router.losses.values(),
        ]

    def _why(self, owner: Owner) -> str:
        session = owner.session
        if session.link is None:
            return f"there is no connection ({session.last_error})"
        tried = self._router.tried(owner.topic)
        return f"no node answers for it ({tried})" if tried else "the broker has not answered"


def _is_staging(owner: object) -> bool:
    return isinstance(owner, StagingPusher)


def _staging_of(owners: Iterable[Owner]) -> list[StagingCore]:
    """Each once, at however many nodes it is."""
    return list(dict.fromkeys(each.producer for each in owners if isinstance(each, StagingPusher)))


def _messages(count: int) -> str:
    return f"{count} message{'s' if count != 1 else ''}"
