"""What both engines have in common: the turn in which cores are called, and carrying out effects.

Rule 1: one thread at a time is in a turn. The engine sees to that, by its lock or by its loop.
Rule 2: effects are carried out in their order, within the turn, each taken out of the outbox first.
An interrupt (KeyboardInterrupt) that comes within a turn leaves the cores in a state that nobody
knows. So it ends the client (`interrupt`), and every later call says so. Most interrupts come while
a thread waits, and that is no turn.
Rule 3: bytes leave after the turn: `links` are flushed by whoever had it, without the lock.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, TypeVar

from hocket.adapters.clock import SystemClock
from hocket.client.connection.link import Connector, Link
from hocket.client.engines.timers import Timers
from hocket.client_core.outbox import (
    Arm,
    Dial,
    HangUp,
    Level,
    Listen,
    Outbox,
    Report,
    Send,
    Tell,
    Wake,
)
from hocket.client_core.session.router import Router
from hocket.client_core.session.session import Session
from hocket.errors import Closed, HocketError
from hocket.frames import Frame

if TYPE_CHECKING:
    from hocket.ports import SteadyClock

log = logging.getLogger("hocket")
T = TypeVar("T")

WALL_US = 100_000  # how late a change of the system's time may be noticed
_LEVELS: dict[Level, int] = {"info": logging.INFO, "warning": logging.WARNING}


class LinkEnd:
    """What one link tells, with the session and the number that it has there: see LinkOwner."""

    __slots__ = ("_driver", "link", "number", "session")

    def __init__(self, driver: Driver, session: Session, number: int) -> None:
        self._driver = driver
        self.session = session
        self.number = number
        self.link: Link | None = None  # None: it is not open yet

    def opened(self, link: Link) -> None:
        self.link = link
        self._driver.opened(self)

    def received(self, _link: Link, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        self._driver.received(self, frames)

    def received_outside(self, _link: Link, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        self._driver.received_outside(self, frames)

    def lost(self, _link: Link | None, error: HocketError) -> None:
        self._driver.lost(self, error)

    def lost_outside(self, _link: Link, error: HocketError) -> None:
        self._driver.lost_outside(self, error)


class Driver(ABC):
    """Carries out what the cores of one client want done."""

    refuses = False  # whatever is asked: this is a forked child, or a turn was interrupted

    def __init__(
        self,
        connector: Connector,
        wake: Callable[[], None],
        *,
        name: str = "",
        token: str = "",
        clock: SteadyClock | None = None,
        random: Random | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self._ticks_us = self.clock.ticks_us
        self._wall_due_us = -1  # when to look at the clock on the wall again
        self.outbox = Outbox(random or Random())
        self.outbox.tell_time = self.begin_turn
        self.timers = Timers(self.clock, wake)
        self.router = Router(
            self.outbox,
            target=connector.target,
            addresses=connector.addresses,
            watched=connector.watched,
            name=name,
            token=token,
        )
        self.session = self.router.first
        self.interrupted: Closed | None = None  # what every call hears since then
        self.links: tuple[Link, ...] = ()  # replaced and never changed: any thread may walk it
        self._connector = connector
        self._ends: dict[int, LinkEnd] = {}  # of the links that are open or being opened
        self._acts: dict[type, Callable[..., None]] = {
            Dial: self._dial,
            HangUp: self._hang_up,
            Listen: self._listen,
            Arm: self._arm,
            Report: self._report,
            Tell: self._tell,
        }

    # --- what differs ----------------------------------------------------------------------------

    @abstractmethod
    def defer(self, job: Callable[[], None]) -> None: ...

    @abstractmethod
    def opened(self, end: LinkEnd) -> None: ...

    @abstractmethod
    def received(self, end: LinkEnd, frames: Sequence[tuple[Frame, memoryview]]) -> None: ...

    @abstractmethod
    def received_outside(
        self, end: LinkEnd, frames: Sequence[tuple[Frame, memoryview]]
    ) -> None: ...

    @abstractmethod
    def lost(self, end: LinkEnd, error: HocketError) -> None: ...

    @abstractmethod
    def lost_outside(self, end: LinkEnd, error: HocketError) -> None: ...

    # --- events ----------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Tell the cores what time it is."""
        now_us = self.outbox.now_us = self._ticks_us()
        if now_us >= self._wall_due_us:
            self.look_at_the_wall(now_us)

    def look_at_the_wall(self, now_us: int) -> None:
        self._wall_due_us = now_us + WALL_US
        self.outbox.wall_ahead_us = self.clock.now_us() - now_us

    def tell_opened(self, end: LinkEnd) -> None:
        self._count_links()
        end.session.link_opened(end.number)

    def tell_received(self, end: LinkEnd, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        session, number = end.session, end.number
        for frame, payload in frames:
            session.received(number, frame, payload)

    def tell_lost(self, end: LinkEnd, error: HocketError) -> None:
        self._forget(end.number)
        end.session.link_lost(end.number, error)

    def interrupt(self, cause: BaseException) -> None:
        """A signal handler has raised this in the middle of a turn, which goes on nowhere."""
        if self.interrupted is not None:
            return
        error = Closed(
            f"{type(cause).__name__} came while this client was at work, and has ended it: open a "
            "new one. What was sent and not acknowledged may have been stored, or not"
        )
        error.may_have_happened = True
        self.interrupted, self.refuses = error, True
        ends = list(self._ends.values())
        try:
            self.router.close(error)
            self.carry_out()
        except Exception:
            log.debug("what was interrupted could not be closed in order", exc_info=True)
        finally:
            self.router.forked(error)  # it refuses, in whatever state it is
            for end in ends:
                if end.link is not None:
                    end.link.close()

    def run_due(self) -> None:
        for timer in self.timers.due():
            self.begin_turn()
            timer()
            self.carry_out()

    # --- effects ---------------------------------------------------------------------------------

    def carry_out(self) -> None:
        effects = self.outbox.effects
        while effects:
            effect = effects.popleft()
            kind = type(effect)
            if kind is Wake:  # these two are most of all effects
                effect.wake_ups.carry_out()  # type: ignore[union-attr]
            elif kind is Send:
                end = self._ends.get(effect.link)  # type: ignore[union-attr]
                if end is not None and end.link is not None:  # else it was lost just now
                    try:
                        end.link.send(effect.frame, effect.payload)  # type: ignore[union-attr]
                    except HocketError as error:  # it cannot be put into a frame
                        end.session.not_sent(effect.link, effect.frame, error)  # type: ignore[union-attr]
            else:
                self._acts[kind](effect)

    def _dial(self, effect: Dial) -> None:
        session = self.router.sessions.get(effect.session)
        if session is None:  # it has ended in the same turn
            return
        end = LinkEnd(self, session, effect.link)
        self._ends[effect.link] = end
        self.defer(lambda: self._connector.open(effect.address, end))

    def _hang_up(self, effect: HangUp) -> None:
        end = self._forget(effect.link)
        if end is not None and end.link is not None:
            end.link.close()

    def _listen(self, effect: Listen) -> None:
        end = self._ends.get(effect.link)
        if end is not None and end.link is not None:
            end.session.heard(effect.link, end.link.heard())

    def _arm(self, effect: Arm) -> None:
        self.timers.put(effect.due_us, effect.timer)

    def _report(self, effect: Report) -> None:
        log.log(_LEVELS[effect.level], effect.text, *effect.facts)

    def _tell(self, effect: Tell) -> None:
        effect.tell()

    def _forget(self, number: int) -> LinkEnd | None:
        end = self._ends.pop(number, None)
        self._count_links()
        return end

    def _count_links(self) -> None:
        self.links = tuple(end.link for end in self._ends.values() if end.link is not None)
