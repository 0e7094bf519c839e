"""Events that run one at a time and in order, on whichever of several threads is free.

Rule 1: the events of one strand run one at a time, in the order posted; those of two strands may
        run at once.
Rule 2: an event whose post was taken runs, or is dropped by a pump that is told to drop its events;
        an event whose post was refused does not.

A crew is the further threads of a pump. Its queue holds strands: each post enters its strand there
once more, and a thread that takes a strand runs what is in it. If another thread is at that strand
already, there is nothing to do, because that thread looks again when it is done: whoever posts
appends first and enters the strand afterwards, whoever runs gives the turn back first and looks
afterwards, so that one of the two sees the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Thread, get_ident
from typing import Protocol

from hocket.errors import Closed
from hocket.local.event_queue import EventQueue

Event = Callable[[], object]


class Employer(Protocol):
    """The pump, as its crew sees it."""

    @property
    def thread_id(self) -> int | None: ...

    def report(self, error: BaseException) -> None: ...

    def speak_last(self, word: Word) -> None: ...


class Word:
    """An event that runs even on a pump that is told to drop its events: somebody waits for it."""

    __slots__ = ("_call",)

    def __init__(self, call: Event) -> None:
        self._call = call

    def __call__(self) -> None:
        self._call()


class Crew:
    """So many threads, which run the strands of one pump."""

    def __init__(self, pump: Employer, name: str, size: int) -> None:
        self.pump = pump
        self.strands: EventQueue[Strand] = EventQueue()  # a strand is here once for each post
        self.thread_ids: set[int] = set()
        self._dropping = False
        self._threads = [
            Thread(target=self._run, name=f"{name}, thread {number}", daemon=True)
            for number in range(1, size + 1)
        ]

    def __len__(self) -> int:
        return len(self._threads)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self, *, drain: bool) -> None:
        """Take no more events; run (or drop) those that are there, and end."""
        self._dropping = not drain
        self.strands.close()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def run(self, event: Event) -> None:
        """Run one event of a strand, unless it is to be dropped."""
        if self._dropping:
            if isinstance(event, Word):
                self.pump.speak_last(event)
            return
        try:
            event()
        except BaseException as error:  # noqa: BLE001 - reported, and the crew goes on
            self.pump.report(error)

    def _run(self) -> None:
        self.thread_ids.add(get_ident())
        while (strand := self._next()) is not None:
            strand.run()
        self.thread_ids.discard(get_ident())  # the system may give the number to another thread

    def _next(self) -> Strand | None:
        """The next strand to run; None: the crew was closed, and there is no more to do."""
        try:
            return self.strands.get()
        except Closed:
            return None


class Strand:
    """Where the events of one queue are posted, on a pump of several threads."""

    __slots__ = ("_crew", "_events", "_turn")

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._events: deque[Event] = deque()
        self._turn = [None]  # whoever deletes the one token runs the events

    @property
    def stopping(self) -> bool:
        """True from the call of the pump's `stop` on."""
        return self._crew.strands.closed

    @property
    def thread_id(self) -> int | None:
        """The calling thread, if it is one of the pump's and must not wait; else None."""
        ident, crew = get_ident(), self._crew
        return ident if ident in crew.thread_ids or ident == crew.pump.thread_id else None

    def post_if_open(self, call: Event) -> bool:
        """Run `call` after all that was posted here before; False where the pump has stopped."""
        strands = self._crew.strands
        if strands.closed:
            return False
        self._events.append(call)
        try:
            strands.put(self)
        except Closed:
            try:
                self._events.remove(call)
            except ValueError:  # a thread that was still at this strand has run it
                return True
            return False
        return True

    def post_last(self, call: Event) -> None:
        """`post_if_open`; on a pump that stops, run `call` after its last event."""
        word = Word(call)
        if not self.post_if_open(word):
            self._crew.pump.speak_last(word)

    def report(self, error: BaseException) -> None:
        self._crew.pump.report(error)

    def run(self) -> None:
        """Run the events that are here, unless another thread is at it."""
        events = self._events
        while events:
            try:
                del self._turn[0]
            except IndexError:
                return
            for _ in range(len(events)):
                try:
                    event = events.popleft()
                except IndexError:  # whoever posted it was refused, and has taken it back
                    break
                self._crew.run(event)
            self._turn.append(None)
            if events and self._enter():  # others first
                return

    def _enter(self) -> bool:
        try:
            self._crew.strands.put(self)
        except Closed:
            return False
        return True
