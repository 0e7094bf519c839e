"""One thread that runs events, one at a time, in the order they were posted.

With `threads` a pump has a crew besides: further threads, which run the events of queues. Each
queue has a strand of its own there, so that a slow listener delays no other queue. All else (what
is posted to the pump, timers, connections, the end) is on the pump's own thread as ever.

Rule 1: only the pump's thread runs events and touches the heap of timers. Any thread puts events;
        `stop(drain=False)` also drops them.
Rule 2: an event must not wait; it posts further events, and returns. (The one exception is ours: an
        `abort` waits for the threads and the pump at the other end of its queue to be done.)
Rule 3: after `stop` no new event is taken. What lives on the pump (`attach`) is told on the pump's
        thread after the last event, and may still post last words, which are run.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock, Thread, get_ident
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from hocket.deadline import check_seconds
from hocket.errors import Closed
from hocket.local.checks import check_at_least, check_callable
from hocket.local.event_queue import EventQueue
from hocket.local.strand import Crew, Event, Strand, Word
from hocket.local.waiting import SleepingThread, spin
from hocket.timers import Timer, TimerHeap

if TYPE_CHECKING:
    from typing import Self

log = logging.getLogger("hocket")


class Resident(Protocol):
    """What lives on a pump and is told when the pump stops."""

    def pump_stopped(self) -> None: ...


class Condition:
    """Calls that wait for a notification, oldest first; they run on the pump."""

    __slots__ = ("_pump", "_waiting")

    def __init__(self, pump: EventPump) -> None:
        self._pump = pump
        self._waiting: deque[Event] = deque()

    def wait(self, call: Event) -> None:
        """Post `call` when the condition is next notified."""
        check_callable(call, "what waits on a condition")
        self._pump.check_open()
        self._waiting.append(call)

    def notify(self) -> None:
        """Post the call that has waited longest, if any."""
        try:
            call = self._waiting.popleft()
        except IndexError:
            return
        self._pump.post(call)

    def notify_all(self) -> None:
        """Post every call that waits now, oldest first."""
        for _ in range(len(self._waiting)):
            self.notify()


class EventPump:
    """Runs posted calls on one thread of its own, strictly in the order posted.

    A call that raises is reported to `on_error` (by default: logged) and the pump goes on.

    With `threads` of 2 or more, so many further threads tell the listeners of message queues. What
    happens on one queue is still told one at a time, in order; a listener that is slow, or waits,
    delays no other queue as long as a thread is free. `on_error` may then be called by several
    threads at once.
    """

    def __init__(self, name: str = "pump", threads: int = 1) -> None:
        check_at_least(threads, 1, "threads")
        self.name = name
        self._crew = Crew(self, name, threads) if threads > 1 else None
        self.on_error: Callable[[BaseException], object] | None = None
        self._queue: EventQueue[Event] = EventQueue()
        self._timers: TimerHeap[float] = TimerHeap()
        self._residents: dict[Resident, None] = {}  # in the order they came
        self._last_words: deque[Event] = deque()
        self._drain = True
        # A daemon, so that a pump somebody forgot to stop does not keep the process alive.
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._starting = Lock()
        self.thread_id: int | None = None

    # --- for everybody ---------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        """True from the call of `stop` on."""
        return self._queue.closed

    def start(self) -> Self:
        """Start the thread; what was posted before runs first. A running pump is not started."""
        self.check_open()
        self._start()
        return self

    def post(self, call: Event) -> None:
        """Run `call` on the pump after all that was posted before; from any thread, never waits.

        Raises Closed after `stop`.
        """
        if not callable(call):
            check_callable(call, "a posted event")
        self._queue.put(call)

    def call_later(self, delay: float, call: Event) -> Timer:
        """Run `call` on the pump in `delay` seconds, unless it is cancelled or the pump stops."""
        check_callable(call, "a delayed event")
        check_seconds(delay, "delay")
        timer = Timer(call)
        self._queue.put(partial(self._timers.put, monotonic() + delay, timer))
        return timer

    def condition(self) -> Condition:
        return Condition(self)

    def stop(self, drain: bool = True) -> None:
        """Run what is queued (or, with `drain=False`, drop it), drop the timers, and end.

        Every later post raises Closed. Waits for the thread to end, except on that thread.
        """
        if not self._queue.closed:
            self._drain = drain
            self._queue.close()
            if self._crew is not None:
                self._crew.close(drain=drain)
            if not drain:
                self._drop_events()
        self._start()  # a pump that was never started must still run what was posted
        if not self.on_own_thread():
            self._thread.join()

    # --- for what lives on the pump -------------------------------------------------------

    def on_own_thread(self) -> bool:
        if get_ident() == self.thread_id:
            return True
        return self._crew is not None and get_ident() in self._crew.thread_ids

    def strand(self) -> EventPump | Strand:
        """Where to post the events of one queue: they run one at a time, in order."""
        return self if self._crew is None else Strand(self._crew)

    def check_open(self) -> None:
        if self._queue.closed:
            raise Closed(f"pump {self.name!r} was stopped")

    def attach(self, resident: Resident) -> None:
        """`resident.pump_stopped()` is called on the pump's thread when the pump stops."""
        self._residents[resident] = None
        if self._queue.closed:  # looked at after entering, so that no resident is forgotten
            self.detach(resident)
            self.check_open()

    def detach(self, resident: Resident) -> None:
        self._residents.pop(resident, None)

    def post_if_open(self, call: Event) -> bool:
        """`post`, or False where the pump has stopped."""
        try:
            self._queue.put(call)
        except Closed:
            return False
        return True

    def post_last(self, call: Event) -> None:
        """`post`; on a pump that stops, run `call` after the last event, unless it has stopped."""
        word = Word(call)
        if not self.post_if_open(word):
            self.speak_last(word)

    def speak_last(self, word: Word) -> None:
        """Run `word` after the last event, unless the pump has stopped."""
        self._last_words.append(word)

    def guard(self, call: Event) -> None:
        """Make the call; an error is reported and goes no further."""
        try:
            call()
        except BaseException as error:  # noqa: BLE001
            self.report(error)

    def report(self, error: BaseException) -> None:
        """Hand an error to `on_error`; never raises."""
        try:
            if self.on_error is not None:
                self.on_error(error)
                return
        except BaseException:
            log.exception("pump %r: on_error itself failed", self.name)
        log.error("pump %r: an event failed and was skipped", self.name, exc_info=error)

    # --- the thread ----------------------------------------------------------------------------

    def _start(self) -> None:
        with self._starting:
            if self._thread.ident is None:
                if self._crew is not None:
                    self._crew.start()  # first: the pump's own thread waits for their end
                self._thread.start()

    def _run(self) -> None:
        self.thread_id = get_ident()
        queue = self._queue
        while not queue.closed:
            if queue.events:
                self._run_events(queue.events)
            else:
                self._sleep()
            if self._timers:
                self._post_due_timers()
        while self._drain and not queue.finish():
            self._run_events(queue.events)
        while not queue.finish():
            self._drop_events()
        self._timers.clear()
        if self._crew is not None:
            self._crew.join()
        for resident in list(self._residents):
            self.guard(resident.pump_stopped)
        while self._last_words:
            self._run_events(self._last_words)
        self.thread_id = None  # the system may give the number to another thread

    def _run_events(self, events: deque[Event]) -> None:
        """Run the events that are here now; what they post comes after a look at the timers."""
        popleft = events.popleft
        for _ in range(len(events)):
            try:
                event = popleft()
            except IndexError:  # dropped by `stop(drain=False)`
                return
            try:
                event()
            except BaseException as error:  # noqa: BLE001 - reported, and the pump goes on
                self.report(error)

    def _drop_events(self) -> None:
        events = self._queue.events
        while events:
            with suppress(IndexError):  # the pump's thread may be running them meanwhile
                event = events.popleft()
                if isinstance(event, Word):
                    self.speak_last(event)

    def _post_due_timers(self) -> None:
        timers, now = self._timers, monotonic()
        while (due := timers.next_due()) is not None and due <= now:
            self._queue.events.append(timers.pop())

    def _sleep(self) -> None:
        """Sleep until there is an event, a timer is due, or the pump is stopped; maybe less."""
        queue = self._queue
        if spin(lambda: queue.events or queue.closed or None):
            return
        sleeper = SleepingThread()
        queue.takers.append(sleeper.wake)
        woken = False
        if not queue.events and not queue.closed:
            due = self._timers.next_due()
            woken = sleeper.sleep(None if due is None else max(0.0, due - monotonic()))
        if not woken:
            queue.takers.withdraw(sleeper.wake)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self.stopping else "running" if self.running else "not started"
        crew = "" if self._crew is None else f", {len(self._crew)} threads"
        return f"<EventPump {self.name!r}, {state}, {len(self._queue)} events{crew}>"
