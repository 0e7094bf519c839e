"""What the cores of a client want done: effects, in the order in which they are to be carried out.

All cores of one client share one outbox. Whoever drives them tells the time before each turn, calls
the cores, and then carries out what is in the outbox (`client.engines.driver`; in tests a stage).
Nothing is carried out while a core is at work, so a core is never called from within itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from hocket.addresses import Address
from hocket.frames import Frame
from hocket.timers import Timer

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")
Level = Literal["info", "warning"]
WakeUp = Callable[[], None]


@dataclass(slots=True)
class Dial:
    """Open a link to this address; tell the session `link_opened` or `link_lost`."""

    session: int
    link: int
    address: Address | None  # None: the broker is in this process


@dataclass(slots=True)
class Send:
    """Queue the frame. If it cannot be put into a frame at all, tell the session `not_sent`."""

    link: int
    frame: Frame
    payload: Sequence[Buffer]


@dataclass(slots=True)
class HangUp:
    """Close the link, and tell nobody."""

    link: int


@dataclass(slots=True)
class Listen:
    """Tell the session `heard`: a count that grows with whatever arrives on the link."""

    link: int


@dataclass(slots=True)
class Arm:
    """Call the timer when it is due, unless it is cancelled by then."""

    due_us: int
    timer: Timer


@dataclass(slots=True)
class Report:
    """Write to the log; `facts` are what `text` is formatted with, by %."""

    level: Level
    text: str
    facts: tuple[object, ...]


@dataclass(slots=True)
class Wake:
    """Have those who wait for a condition look again."""

    wake_ups: WakeUps


@dataclass(slots=True)
class Tell:
    """Call `tell`, which is a user's or a face's and no core's."""

    tell: Callable[[], None]


Effect = Dial | Send | HangUp | Listen | Arm | Report | Wake | Tell


class Outbox:
    """The effects of the turn, and the moment at which the turn happens."""

    __slots__ = ("_links", "at_end", "effects", "now_us", "random", "tell_time", "wall_ahead_us")

    def __init__(self, random: Random) -> None:
        self.effects: deque[Effect] = deque()
        self.now_us = 0  # by a clock that only grows; the driver tells it before each turn
        self.wall_ahead_us = 0  # so much more says a clock on the wall
        self.random = random  # where chance comes from: the driver knows the seed
        # A core that has worked for long asks for the time anew; the driver says how to.
        self.tell_time: Callable[[], None] = _no_news
        # Calls what it is given, an event of a core, when those who are at work now have no more to
        # say. Only a loop knows that moment. Others call it at once: the caller must be ready.
        self.at_end: Callable[[Callable[[], None]], None] = at_once
        self._links = count(1)

    @property
    def wall_us(self) -> int:
        """The same moment as people count time; for timestamps."""
        return self.now_us + self.wall_ahead_us

    def new_link(self) -> int:
        """A number for the next link, of whichever session."""
        return next(self._links)

    def send(self, link: int, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        self.effects.append(Send(link, frame, payload))

    def arm(self, delay_us: int, action: Callable[[], object]) -> Timer:
        """Have `action` called after so long; it is a method of a core, and so an event."""
        timer = Timer(action)
        self.effects.append(Arm(self.now_us + delay_us, timer))
        return timer

    def report(self, level: Level, text: str, *facts: object) -> None:
        self.effects.append(Report(level, text, facts))


class WakeUps:
    """The wake-ups of all that wait for one condition, oldest first; falsy while nobody waits.

    Each wake-up is a function that is called once and then forgotten: a hint to look again, which
    hands nothing over. So a waiter that gives up loses nothing.

    These are not the `Waiters` of `hocket.local`. Those are used without a lock, wake one waiter at
    a time, and pass a wake-up on when its waiter has gone. Here the client's lock (or its loop)
    orders everything, all waiters are woken at once, and each of thousands of them may be taken off
    in constant time: off a list of 10,000 that costs 60 us, off this 0.4.
    """

    __slots__ = ("_outbox", "_waiting")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._waiting: dict[WakeUp, None] = {}  # in the order in which they came

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, wake: WakeUp) -> None:
        self._waiting[wake] = None

    def discard(self, wake: WakeUp) -> None:
        self._waiting.pop(wake, None)

    def wake_all(self) -> None:
        """For cores: the condition may have come true."""
        if self._waiting:
            self._outbox.effects.append(Wake(self))

    def note(self) -> None:
        """For cores: whoever looks next is to look closely, but nobody needs to be woken."""

    def carry_out(self) -> None:
        """For whoever carries out `Wake`."""
        waiting, self._waiting = self._waiting, {}
        for wake in waiting:
            wake()


class Reply(Generic[T]):
    """A value that comes later, and the wake-up of the one who waits for it."""

    __slots__ = ("_content", "wake_ups")

    def __init__(self, outbox: Outbox) -> None:
        self._content: T | None = None
        self.wake_ups = WakeUps(outbox)

    def put(self, content: T) -> None:
        self._content = content
        self.wake_ups.wake_all()

    def get(self) -> T | None:
        """The value, None until it has come."""
        return self._content


def at_once(action: Callable[[], None]) -> None:
    """Nobody knows whether more is to come."""
    action()


def _no_news() -> None:
    """No time passes within a turn, as far as the driver of these cores can tell."""
