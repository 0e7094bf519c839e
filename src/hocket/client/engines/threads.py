"""What drives the cores of a blocking client: one lock, one thread for what is due, and waiting.

Rule 1: cores are touched with the lock held, and nothing waits while holding it.
Rule 2: a user's function (a callback, a future's) runs on the client's own thread and without the
lock, so that it may call the client again.
Rule 3: whoever waits has a signal of its own; it is given by whoever brings about what was waited
for, and nobody else wakes.

A frame that a core sends is queued by the link in the order of the lock, and written after the lock
was let go, by the same thread: see `tcp`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

from hocket.adapters.clock import SystemClock
from hocket.client.calls.topics import Call, outcomes
from hocket.client.connection.link import Connector, Link
from hocket.client.connection.session import Request, Session, closed
from hocket.client.connection.timeout import check_timeout
from hocket.client.connection.timers import Timers
from hocket.client.connection.wakeups import Reply, WakeUps
from hocket.client.engines import timeouts as late
from hocket.client.engines.reports import log_report
from hocket.deadline import Deadline
from hocket.errors import HocketError
from hocket.frames import Frame

log = logging.getLogger("hocket")
T = TypeVar("T")


class Engine:
    def __init__(self, connector: Connector, *, name: str, token: str) -> None:
        self.lock = threading.Lock()
        self._connector = connector
        self._alarm = threading.Event()
        self._jobs: deque[Callable[[], None]] = deque()
        self._inbox: deque[tuple[Link, Sequence[tuple[Frame, memoryview]]]] = deque()
        self._stopped = False
        self._last: Callable[[], None] | None = None
        self.session = Session(
            timers=Timers(SystemClock(), self._alarm.set),
            random=Random(),
            open_link=lambda number: self.defer(lambda: connector.open(number, self)),
            report=log_report,
            target=connector.target,
            address_count=connector.address_count,
            watched=connector.watched,
            name=name,
            token=token,
        )
        self._thread = threading.Thread(target=self._run, name="hocket client", daemon=True)

    # --- the lock --------------------------------------------------------------------------------

    def __enter__(self) -> Session:
        """For `with engine, engine.lock:`, which writes what the cores sent after letting go.

        The lock is named by itself since only then nothing can come between taking and keeping it:
        an exception of a signal handler (KeyboardInterrupt) in a method here would leave it taken.
        """
        return self.session

    def __exit__(self, *_error: object) -> None:
        self._flush()
        # What came while we had the lock, from a thread that could not wait for it, is for us.
        while self._inbox and self.lock.acquire(blocking=False):
            try:
                self._read_inbox()
            finally:
                self.lock.release()
                self._flush()

    def _flush(self) -> None:
        link = self.session.link
        if link is not None:
            link.flush()

    # --- beginning and end -----------------------------------------------------------------------

    def start(self, timeout: float | None) -> None:
        self._thread.start()
        try:
            with self as session, self.lock:
                session.start()
            self.wait_for(
                self._is_ready,
                self.session.changed,
                timeout,
                lambda: late.not_connected(self.session),
            )
        except BaseException:
            self.stop(closed("the client"))
            raise

    def _is_ready(self) -> bool | None:
        self.session.check_open()
        return self.session.state == "ready" or None

    def stop(self, error: HocketError) -> None:
        """Close the session and end the threads."""
        with self as session, self.lock:
            session.close(error)
        self._stopped = True
        self._alarm.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def abandon(self, last: Callable[[], None]) -> None:
        """Let the thread end everything, and do this as its last; for when nobody may wait."""
        self._last = last
        self._stopped = True
        self._alarm.set()

    def _run(self) -> None:
        while True:
            self._alarm.clear()
            with self as session, self.lock:
                session.timers.run_due()
                delay = session.timers.delay_us()
            while self._jobs:
                self._do(self._jobs.popleft())
            if self._stopped:
                break
            self._alarm.wait(None if delay is None else delay / 1e6)
        with self as session, self.lock:
            session.close(closed("the client"))
        self._connector.close()
        while self._jobs:
            self._do(self._jobs.popleft())
        if self._last is not None:
            self._do(self._last)

    def _do(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception:
            log.exception("a callback of the client failed")

    def defer(self, job: Callable[[], None]) -> None:
        """Have it done on the client's thread, without the lock."""
        self._jobs.append(job)
        self._alarm.set()

    # --- links (see link.Listener) ---------------------------------------------------------------

    def opened(self, link: Link) -> None:
        with self as session, self.lock:
            session.link_opened(link)

    def received(self, link: Link, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        with self as session, self.lock:
            for frame, payload in frames:
                session.received(link, frame, payload)

    def received_outside(self, link: Link, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        """For a thread that must not wait for our lock: whoever has it reads this, afterwards."""
        self._inbox.append((link, frames))
        self.__exit__()  # which reads it if it can

    def lost(self, link: Link | None, error: HocketError) -> None:
        with self as session, self.lock:
            self._read_inbox()
            session.link_lost(link, error)

    lost_outside = lost

    def _read_inbox(self) -> None:
        while self._inbox:
            link, frames = self._inbox.popleft()
            for frame, payload in frames:
                self.session.received(link, frame, payload)

    # --- waiting ---------------------------------------------------------------------------------

    def wait_for(
        self,
        ready: Callable[[], T | None],
        waiters: WakeUps,
        timeout: float | None,
        too_slow: Callable[[], HocketError],
    ) -> T:
        """What `ready` returns, once that is not None. It is called with the lock held."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            signal = threading.Lock()
            signal.acquire()
            wake = signal.release
            with self, self.lock:
                found = ready()
                if found is not None:
                    return found
                waiters.add(wake)
            left = -1.0 if deadline is None else deadline - time.monotonic()
            woken = False
            try:
                woken = (deadline is None or left > 0) and signal.acquire(
                    timeout=min(left, threading.TIMEOUT_MAX)
                )
            finally:
                if not woken:
                    with self, self.lock:
                        waiters.discard(wake)
            if not woken:
                with self, self.lock:
                    found = ready()
                    if found is not None:
                        return found
                    raise too_slow()

    def wait_for_reply(
        self, reply: Reply[T], timeout: float | None, too_slow: Callable[[], HocketError]
    ) -> T:
        return self.wait_for(reply.get, reply.wake_ups, timeout, too_slow)

    def call(self, call: Call[T], timeout: float | None) -> T:
        """Ask, and wait for the answer."""
        (outcome,) = self.call_all([call], timeout)
        return outcome

    def call_all(self, calls: Sequence[Call[T]], timeout: float | None) -> list[T]:
        """Ask all of it at once, and wait for every answer; then raise the first error."""
        timeout = check_timeout(timeout)
        deadline = Deadline(timeout)
        asked: list[tuple[Request, Reply[Frame | HocketError]]] = []
        try:
            with self as session, self.lock:
                for call in calls:
                    reply: Reply[Frame | HocketError] = Reply()
                    request = session.request(call.frame, reply.put, repeatable=not call.changes)
                    asked.append((request, reply))
            answers = [
                self.wait_for_reply(
                    reply,
                    deadline.remaining(),
                    partial(late.unanswered, self.session, request, call.changes, timeout),
                )
                for call, (request, reply) in zip(calls, asked, strict=True)
            ]
        except BaseException:
            with self as session, self.lock:
                for request, _ in asked:
                    session.cancel(request)
            raise
        return outcomes(calls, answers)
