"""How a connection between two processes ends: one side's rules. Pure.

Rule 1: a connection ends once, and `End` is the last effect.
Rule 2: a graceful end is one that both sides know of: each has taken all that the other sent before
        its close, and has been told that the other did (`DRAINED` both ways).
Rule 3: a side that is asked to abort says how many messages it took, and takes none afterwards. So
        both sides list the same messages as not taken, as long as the way between them holds.
Rule 4: if the way is lost, the end is an abort with an unknown count: what the other side has not
        reported as taken may have been taken, and nobody will ever know.

TCP keeps the order of frames, and a side that has sent CLOSE sends no data behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hocket.errors import ProtocolError

# --- events ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Finished:
    """This side has sent its last message: its user has closed it, or has learned of a close."""


@dataclass(slots=True)
class Drained:
    """This side's user has taken everything that came before the other side's CLOSE."""


@dataclass(slots=True)
class Cut:
    """This side is aborted; its user has taken so many messages and takes no more."""

    taken: int
    why: str


@dataclass(slots=True)
class HeardClose:
    pass


@dataclass(slots=True)
class HeardDrained:
    pass


@dataclass(slots=True)
class HeardAbort:
    taken: int  # by the other side
    why: str


@dataclass(slots=True)
class HeardAborted:
    taken: int


@dataclass(slots=True)
class Lost:
    """Nothing is heard of the other side any more."""

    why: str


Event = Finished | Drained | Cut | HeardClose | HeardDrained | HeardAbort | HeardAborted | Lost

# --- effects --------------------------------------------------------------------------------------


@dataclass(slots=True)
class SendClose:
    """Behind all data."""


@dataclass(slots=True)
class SendDrained:
    pass


@dataclass(slots=True)
class SendAbort:
    """Behind all data that was accepted, so that the other side can list it."""

    taken: int
    why: str


@dataclass(slots=True)
class Seize:
    """Let this side's user take no more, and send ABORTED with the count, behind all data."""

    why: str


@dataclass(slots=True)
class CloseInbound:
    """The other side's CLOSE stands behind what came so far."""


@dataclass(slots=True)
class End:
    """`why` is empty after a graceful close. `taken` is how many of this side's messages the other
    side took, None if nobody knows."""

    why: str
    taken: int | None


Effect = SendClose | SendDrained | SendAbort | Seize | CloseInbound | End


class Ending:
    __slots__ = (
        "_aborting", "_drained", "_finished", "_heard_close", "_heard_drained", "_why", "ended",
    )  # fmt: skip

    def __init__(self) -> None:
        self.ended = False
        self._finished = False  # CLOSE was sent
        self._drained = False  # DRAINED was sent
        self._heard_close = False
        self._heard_drained = False
        self._aborting = False  # ABORT was sent
        self._why = ""

    @property
    def heard_close(self) -> bool:
        return self._heard_close

    def step(self, event: Event) -> list[Effect]:
        """Raises ProtocolError if the other side did what it may not."""
        if self.ended:
            return []
        match event:
            case Finished():
                if self._finished or self._aborting:
                    return []
                self._finished = True
                return [SendClose()]
            case Drained():
                if self._drained or self._aborting or not self._heard_close:
                    return []
                self._drained = True
                return [SendDrained(), *self._end_if_drained()]
            case Cut():
                if self._aborting:
                    return []
                self._aborting, self._why = True, event.why
                return [SendAbort(event.taken, event.why)]
            case HeardClose():
                if self._heard_close:
                    raise ProtocolError("CLOSE came twice")
                self._heard_close = True
                return [] if self._aborting else [CloseInbound()]
            case HeardDrained():
                if not self._finished or self._heard_drained:
                    raise ProtocolError("DRAINED came, and no CLOSE was sent before it")
                self._heard_drained = True
                return self._end_if_drained()  # an abort that came too late has cut nothing
            case HeardAbort():
                if self._aborting:  # both at once: theirs is the answer to ours
                    return self._end(self._why, event.taken)
                return [Seize(event.why), *self._end(event.why, event.taken)]
            case HeardAborted():
                if not self._aborting:
                    raise ProtocolError("ABORTED came, and nothing was aborted")
                return self._end(self._why, event.taken)
            case _:
                return self._end(self._why or event.why, None)

    def _end_if_drained(self) -> list[Effect]:
        if self._drained and self._heard_drained:
            return self._end("", None)
        return []

    def _end(self, why: str, taken: int | None) -> list[Effect]:
        self.ended = True
        return [End(why, taken)]
