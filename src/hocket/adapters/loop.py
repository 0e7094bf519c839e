"""The thread that a node lives on: sockets, timers, tasks from other threads, one ticker, in turns.

A turn waits for something to happen, handles all of it, and then calls `turn_ended` once. There a
node starts one group commit of everything that the turn appended, and writes each connection's
queued frames at once. So a busy turn costs one commit and one write per connection, however many
frames it brought.

That end of a turn is why this is not asyncio. An asyncio loop calls back for each socket and each
task, and has no hook for the moment when everything that was ready has been handled. Here that
moment is the last line of `turn`; and a broker that closes down can make single turns.
"""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from time import monotonic
from typing import Any

from hocket.adapters.waker import new_waker
from hocket.timers import Timer, TimerHeap

Task = Callable[[], None]
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Loop:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._waker = new_waker()
        self.wake = self._waker.wake
        self._selector.register(self._waker.descriptor, READ, None)
        self._tasks: deque[Task] = deque()
        self._asleep = False
        self._stopping = False
        self._ticker: Task = _nothing
        self._tick_seconds = 3600.0
        self._turn_ended: Task = _nothing
        self._timers: TimerHeap[float] = TimerHeap()
        self._thread_id: int | None = None

    def is_own_thread(self) -> bool:
        """Whether this is the thread on which `run` was called."""
        return get_ident() == self._thread_id

    def post(self, task: Task) -> None:
        """Have `task` called on the loop's thread; from any thread, signal handlers included."""
        self._tasks.append(task)
        # Rule 2 of local.waiting: change first, then look whether the loop sleeps.
        if self._asleep:
            self.wake()

    def register(self, socket: Any, events: int, ready: Callable[[int], None]) -> None:
        self._selector.register(socket, events, ready)

    def modify(self, socket: Any, events: int, ready: Callable[[int], None]) -> None:
        self._selector.modify(socket, events, ready)

    def unregister(self, socket: Any) -> None:
        self._selector.unregister(socket)

    def every(self, seconds: float, ticker: Task) -> None:
        self._tick_seconds = seconds
        self._ticker = ticker

    def after_turn(self, turn_ended: Task) -> None:
        self._turn_ended = turn_ended

    def after(self, delay_us: int, action: Task) -> Timer:
        """See `ports.Timers`. To be called on the loop's thread."""
        timer = Timer(action)
        self._timers.put(monotonic() + delay_us / 1e6, timer)
        return timer

    def stop(self) -> None:
        """Return from `run` at the end of this turn; from any thread."""
        self.post(self._stop)

    def _stop(self) -> None:
        self._stopping = True

    def run(self) -> None:
        self._thread_id = get_ident()
        next_tick = monotonic() + self._tick_seconds
        while not self._stopping:
            now = monotonic()
            wake_at = next_tick
            if self._timers:
                due = self._timers.next_due()
                if due is not None and due < wake_at:
                    wake_at = due
            self.turn(max(0.0, wake_at - now))
            if monotonic() >= next_tick:
                self._ticker()
                next_tick = monotonic() + self._tick_seconds
        self._stopping = False
        self._thread_id = None

    def turn(self, timeout: float) -> None:
        """One turn, waiting up to `timeout` seconds for something to happen."""
        self._asleep = True
        ready = self._selector.select(0 if self._tasks else timeout)
        self._asleep = False
        for key, events in ready:
            if key.data is None:
                self._waker.clear()
            else:
                key.data(events)
        for _ in range(len(self._tasks)):
            self._tasks.popleft()()
        if self._timers:
            self._run_timers()
        self._turn_ended()

    def _run_timers(self) -> None:
        now = monotonic()
        due = self._timers.next_due()
        while due is not None and due <= now:
            self._timers.pop()()
            due = self._timers.next_due()

    def close(self) -> None:
        with suppress(OSError):  # a forked child has no kqueue of its parent's to close
            self._selector.close()
        self._waker.close()


def _nothing() -> None:
    pass
