"""What drives the cores of a blocking client: one lock, one thread for what is due, and waiting.

Rule 1: a thread touches the cores only while it holds the lock, and never waits while it holds it.
The faces keep to that by `do` and `wait_for`, which take the lock for them. Four things say of
themselves that they need no lock: adding to a `producing.gathering`, drawing from a chunk of
messages (`ready`), and noting what was said in a `Progress` or a `SharedProgress`.
Rule 2: a user's function (a callback, or what a future calls) runs on the client's own thread and
without the lock, so that it may call the client again.
Rule 3: each waiting thread has a signal of its own. The thread that brings about what was waited
for gives that signal, and no other thread wakes.

A frame that a core sends is queued by the link in the order of the lock. The thread that had the
lock writes the frame after it has let go of the lock: see `tcp`.

`engines.aio` has the same methods for asyncio, so that the faces are written once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from time import monotonic_ns
from typing import Any, TypeVar

from hocket import forking
from hocket.client.connection.link import Connector
from hocket.client.engines import leaving, timeouts
from hocket.client.engines.departure import Departure
from hocket.client.engines.driver import Driver, LinkEnd
from hocket.client_core.calls.asking import Asking
from hocket.client_core.calls.call import Call, PagedCall, outcomes
from hocket.client_core.outbox import Reply, WakeUps, at_once
from hocket.client_core.session.answers import again, closed
from hocket.client_core.timeout import check_timeout
from hocket.deadline import Deadline
from hocket.errors import HocketError
from hocket.frames import Frame

log = logging.getLogger("hocket")
T = TypeVar("T")


class Engine(Driver):
    def __init__(
        self,
        connector: Connector,
        *,
        name: str = "",
        token: str = "",
        exit_seconds: float | None = leaving.EXIT_SECONDS,
        former: Driver | None = None,
    ) -> None:
        """`former` is an engine that has driven the cores before; see `go_on`."""
        self._alarm = threading.Event()
        super().__init__(connector, self._alarm.set, name=name, token=token)
        self.exit_seconds = exit_seconds
        self._lock = threading.Lock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._inbox: deque[tuple[LinkEnd, Sequence[tuple[Frame, memoryview]]]] = deque()
        self._parked: set[Callable[[], None]] = set()  # the signals of threads that wait
        self._stopped = False
        self._abandoned_until: float | None = None  # set when nobody holds the client any more
        self._last: Callable[[], None] | None = None
        if former is not None:
            self.outbox, self.timers = former.outbox, former.timers
            self.outbox.at_end = at_once
            self.router, self.session = former.router, former.session
        self._departure = Departure(self.router)
        self._thread = threading.Thread(target=self._run, name="hocket client", daemon=True)
        forking.tell(self)

    # --- the lock --------------------------------------------------------------------------------

    def do(self, act: Callable[[], T]) -> T:
        """What `act` returns, which is called with the lock held: a turn of the cores."""
        if self.interrupted is not None:
            raise again(self.interrupted)
        return self._do(act)

    def _do(self, act: Callable[[], T]) -> T:
        """`do` for the client's own threads, which go on to their end also if it was interrupted.

        The `with` stands on the lock itself since only then no exception of a
        signal handler (KeyboardInterrupt) can come between taking the lock and being sure to
        release it. A context manager of ours that took the lock would leave that gap.
        """
        try:
            with self._lock:
                return self._turn(act)
        finally:
            self._flush()

    def _turn(self, act: Callable[[], T]) -> T:
        outbox = self.outbox
        now_us = outbox.now_us = monotonic_ns() // 1000  # `begin_turn`: a call less
        if now_us >= self._wall_due_us:
            self.look_at_the_wall(now_us)
        try:
            try:
                return act()
            finally:
                if outbox.effects:
                    self.carry_out()
        except Exception:
            raise
        except BaseException as error:
            self.interrupt(error)
            raise

    def interrupt(self, cause: BaseException) -> None:
        super().interrupt(cause)
        self._stopped = True
        self._alarm.set()
        for wake in list(self._parked):
            with suppress(RuntimeError):  # it was given already
                wake()

    def _flush(self) -> None:
        """Write what the cores have sent; called without the lock, by whoever just had it."""
        for link in self.links:
            link.flush()
        # What a thread that must not wait has left in the inbox while we had the lock is for us.
        # (A weakness: `with` cannot try a lock, so an interrupt before `try` would leave it taken.)
        while self._inbox and self._lock.acquire(blocking=False):
            try:
                self._turn(self._read_inbox)
            finally:
                self._lock.release()
                for link in self.links:
                    link.flush()

    # --- beginning and end -----------------------------------------------------------------------

    def start(self, timeout: float | None) -> None:
        """Return when there is a connection. If this raises, `stop` is still to be called."""
        session = self.session
        self._thread.start()
        self.do(session.start)

        def is_ready() -> bool | None:
            session.check_open()
            return session.state == "ready" or None

        self.wait_for(is_ready, session.changed, timeout, lambda: timeouts.not_connected(session))
        leaving.opened(self)

    def go_on(self, why: HocketError) -> None:
        """Drive the cores that another engine has driven so far, and cannot any more.

        Raises RuntimeError if no thread can be started; then nothing has happened.
        """
        with self._lock:  # the thread waits for it: what is due must not meet the old link
            self._thread.start()
            self.timers.wake_by(self._alarm.set)
            self._turn(partial(self.router.go_on, why))
        self._flush()

    def stop(self, error: HocketError) -> None:
        """Close the session and its link, and end the threads."""
        leaving.ended(self)
        self._do(partial(self.router.close, error))
        self._stopped = True
        self._alarm.set()
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join()

    def abandon(self, last: Callable[[], None]) -> None:
        """Have the client's thread deliver and end everything, and then call `last`.

        Does not wait. What was sent is delivered, if that takes no more than ABANDONED_SECONDS.
        """
        leaving.dropped(self)
        self._last = last
        self._abandoned_until = time.monotonic() + timeouts.ABANDONED_SECONDS
        self._alarm.set()

    def _run(self) -> None:
        while True:
            self._alarm.clear()
            delay = self._do(self._run_due)
            while self._jobs:
                self._run_job(self._jobs.popleft())
            if self._stopped or self._is_abandoned_and_done():
                break
            seconds = None if delay is None else delay / 1e6
            if self._abandoned_until is not None:
                seconds = min(
                    timeouts.ABANDONED_LOOK_SECONDS, seconds or timeouts.ABANDONED_LOOK_SECONDS
                )
            self._alarm.wait(seconds)
        self._do(partial(self.router.close, closed("the client")))
        self._connector.close()
        leaving.ended(self)
        while self._jobs:
            self._run_job(self._jobs.popleft())
        if self._last is not None:
            self._run_job(self._last)

    def _is_abandoned_and_done(self) -> bool:
        if self._abandoned_until is None:
            return False
        if not self._do(self._departure.step) and time.monotonic() < self._abandoned_until:
            return False
        for line in self._do(self._departure.lines):
            log.warning("a client was dropped without being closed: %s", line)
        return True

    # --- the end of the process (see `leaving`), and a fork of it (see `forking`) ----------------

    def rescue(self) -> None:
        """Nothing to do: the client's thread works for as long as the process does."""

    def leave(self) -> bool:
        return self._do(self._leave)

    def _leave(self) -> bool:
        self.run_due()  # the client's thread may be busy with a link by then
        return self._departure.step()

    def remains(self) -> list[str]:
        return self._do(self._departure.lines)

    def forked(self) -> None:
        """Whatever needs the lock, and so everything that waits, is refused from now on."""
        self.refuses = True
        leaving.ended(self)
        self.router.forked(forking.wrong_process())
        self._connector.forked()
        self.do = self._do = self.wait_for = self.check_process = forking.refuse  # type: ignore[method-assign]

    def check_process(self) -> None:
        """Raise WrongProcess in a forked child."""

    def _run_due(self) -> int | None:
        """Microseconds until there is something to do again; None: there is nothing."""
        self.run_due()
        return self.timers.delay_us()

    def _run_job(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception:
            log.exception("a callback of the client failed")

    def new_future(self) -> Future[Any]:
        """A future for a user. The user cannot cancel it: the message may have left."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        return future

    def tell_futures(self, job: Callable[[], None]) -> None:
        """Have `job`, which sets futures of a user, called without the lock: they call back."""
        self.defer(job)

    def defer(self, job: Callable[[], None]) -> None:
        """Have the client's thread call `job`, without the lock."""
        self._jobs.append(job)
        self._alarm.set()

    # --- links (see link.LinkOwner) ---------------------------------------------------------------

    def opened(self, end: LinkEnd) -> None:
        self._do(partial(self.tell_opened, end))

    def received(self, end: LinkEnd, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        self._do(partial(self.tell_received, end, frames))

    def received_outside(self, end: LinkEnd, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        """For a thread that must not wait for our lock: the thread that has it reads the inbox."""
        self._inbox.append((end, frames))
        self._flush()  # which reads the inbox if nobody has the lock

    def lost(self, end: LinkEnd, error: HocketError) -> None:
        self._do(partial(self._lose, end, error))

    def lost_outside(self, end: LinkEnd, error: HocketError) -> None:
        self.lost(end, error)

    def _lose(self, end: LinkEnd, error: HocketError) -> None:
        self._read_inbox()  # what came before the loss
        self.tell_lost(end, error)

    def _read_inbox(self) -> None:
        while self._inbox:
            self.tell_received(*self._inbox.popleft())

    # --- waiting ---------------------------------------------------------------------------------

    def wait_for(
        self,
        ready: Callable[[], T | None],
        wake_ups: WakeUps,
        timeout: float | None,
        too_slow: Callable[[], HocketError],
        is_reply: bool = False,
    ) -> T:
        """What `ready` returns, once that is not None. It is called with the lock held.

        After `timeout` seconds the error that `too_slow` makes is raised. With `is_reply`, `ready`
        does no more than to look: that needs no turn of the cores.
        """

        def last_look() -> T:
            found = ready()
            if found is None:
                raise too_slow()
            return found

        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self.interrupted is not None:
                raise again(self.interrupted)
            if is_reply and (found := ready()) is not None:
                return found  # without the lock, which whoever woke us may still have
            signal = threading.Lock()
            signal.acquire()
            wake = signal.release
            try:
                with self._lock:
                    found = ready() if is_reply else self._turn(ready)
                    if found is not None:
                        return found
                    wake_ups.add(wake)
                    self._parked.add(wake)
            finally:
                self._flush()
            left = -1.0 if deadline is None else deadline - time.monotonic()
            woken = False
            try:
                woken = (deadline is None or left > 0) and signal.acquire(
                    timeout=min(left, threading.TIMEOUT_MAX)
                )
            finally:
                self._parked.discard(wake)
                if not woken:
                    self._do(partial(wake_ups.discard, wake))
            if not woken:
                return self.do(last_look)

    def wait_for_reply(
        self, reply: Reply[T], timeout: float | None, too_slow: Callable[[], HocketError]
    ) -> T:
        return self.wait_for(reply.get, reply.wake_ups, timeout, too_slow, is_reply=True)

    def call(self, call: Call[T], timeout: float | None) -> T:
        """Send the request of this call, and wait for its answer."""
        (outcome,) = self.call_all([call], timeout)
        return outcome

    def call_paged(self, call: PagedCall[T], timeout: float | None) -> T:
        """Ask for one part after the other, and make one result of all of them."""
        deadline = Deadline(check_timeout(timeout))
        answers = [self.call(call.part(""), timeout)]
        while after := answers[-1].next:
            answers.append(self.call(call.part(after), deadline.remaining()))
        return call.result(answers)

    def call_all(self, calls: Sequence[Call[T]], timeout: float | None) -> list[T]:
        """Send all requests at once, and wait for every answer; then raise the first error."""
        timeout = check_timeout(timeout)
        deadline = Deadline(timeout)
        asked: list[tuple[Asking, Reply[Frame | HocketError]]] = []

        def ask() -> None:
            for call in calls:
                reply: Reply[Frame | HocketError] = Reply(self.outbox)
                asking = Asking(self.router, call.frame, reply.put, repeatable=not call.changes)
                asked.append((asking, reply))

        def cancel() -> None:
            for asking, _ in asked:
                asking.cancel()

        try:
            self.do(ask)
            together = [asking for asking, _ in asked]
            answers = [
                self.wait_for_reply(
                    reply,
                    deadline.remaining(),
                    partial(timeouts.unanswered, self.router, asking, timeout, together),
                )
                for asking, reply in asked
            ]
        except BaseException:
            self._do(cancel)
            raise
        return outcomes(calls, answers)
