"""What drives the cores of an asyncio client: the running loop, which does one thing at a time.

So the cores need no lock: nothing else runs between two `await`s. What another thread has for us
(an embedded broker's thread, or the garbage collector's) is handed to the loop.

The methods are those of `engines.threads`, so that the faces are written once.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic_ns
from typing import Any, TypeVar

from hocket import forking
from hocket.client.connection.link import Connector
from hocket.client.engines import leaving, timeouts
from hocket.client.engines.departure import Departure
from hocket.client.engines.driver import Driver, LinkEnd
from hocket.client.engines.threads import Engine
from hocket.client_core.calls.asking import Asking
from hocket.client_core.calls.call import Call, PagedCall, outcomes
from hocket.client_core.outbox import Reply, WakeUps
from hocket.client_core.session.answers import closed
from hocket.client_core.timeout import check_timeout
from hocket.deadline import Deadline
from hocket.errors import HocketError, NoConnection
from hocket.frames import Frame

log = logging.getLogger("hocket")
T = TypeVar("T")


class AioEngine(Driver):
    def __init__(
        self,
        connector: Connector,
        *,
        name: str,
        token: str,
        exit_seconds: float | None = leaving.EXIT_SECONDS,
    ) -> None:
        super().__init__(connector, self._set_alarm, name=name, token=token)
        self.exit_seconds = exit_seconds
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._inbox: deque[tuple[LinkEnd, Sequence[tuple[Frame, memoryview]]]] = deque()
        self._inbox_is_watched = False
        self._ending: asyncio.Future[None] | None = None  # of an abandoned client
        self._departure = Departure(self.router)
        self._successor: Engine | None = None  # drives the session when the loop is no more
        self._is_over = False  # the loop does nothing for this any more
        self._goes_over = False  # a successor is being made
        self._has_left = False
        self._hears = False  # frames are read
        self.outbox.at_end = self._at_end
        forking.tell(self)

    def do(self, act: Callable[[], T]) -> T:
        """What `act` returns, in a turn of the cores. (With threads it needs the lock.)"""
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

    # --- beginning and end -----------------------------------------------------------------------

    async def start(self, timeout: float | None) -> None:
        """Return when there is a connection. If this raises, `stop` is still to be called."""
        session = self.session
        self.do(session.start)

        def is_ready() -> bool | None:
            session.check_open()
            return session.state == "ready" or None

        await self.wait_for(
            is_ready, session.changed, timeout, lambda: timeouts.not_connected(session)
        )
        leaving.opened(self)

    def stop(self, error: HocketError) -> None:
        """Close the session and its link."""
        leaving.ended(self)
        self.do(partial(self.router.close, error))
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._connector.close()

    def abandon(self, last: Callable[[], Awaitable[None]]) -> None:
        """Have the loop deliver and end everything, and then await `last`. Does not wait itself.

        For any thread. What was sent is delivered, if that takes no more than ABANDONED_SECONDS.
        """
        if sys.is_finalizing():  # no thread and no loop runs any more
            return
        leaving.dropped(self)  # until it has ended: if the loop is closed before, `rescue` goes on
        if self._loop.is_closed():
            self._abandon_without_loop()
        else:
            latest = self._loop.time() + timeouts.ABANDONED_SECONDS
            self._call_from_outside(partial(self._end, last, latest))

    def _abandon_without_loop(self) -> None:
        if self._goes_over:  # the garbage collector has run in the middle of that, and come here
            return  # `leave` sees to the rest
        with suppress(RuntimeError):  # no thread can be started; then `leave` says what is lost
            self._go_over()
            leaving.ended(self)
            if self._successor is not None:
                self._successor.abandon(lambda: None)

    def _end(self, last: Callable[[], Awaitable[None]], latest: float) -> None:
        if not self.do(self._departure.step) and self._loop.time() < latest:
            self._loop.call_later(timeouts.ABANDONED_LOOK_SECONDS, self._end, last, latest)
            return
        for line in self._departure.lines():
            log.warning("a client was dropped without being closed: %s", line)
        self.stop(closed("the client"))
        self._ending = asyncio.ensure_future(last(), loop=self._loop)  # kept: the loop would not

    # --- the end of the process (see `leaving`), and a fork of it (see `forking`) ----------------

    def rescue(self) -> None:
        if self._loop.is_closed():
            self._go_over()

    def _go_over(self) -> None:
        """The loop is no more: if there is work left, an engine with a thread goes on with it.

        The old link stays as it is, since only the loop could close it. To the broker this is a
        client that has lost its link and comes again.
        """
        self._is_over = True
        if self._successor is not None or self._goes_over:
            return
        self._goes_over = True
        try:
            if self._departure.has_work():
                successor = Engine(
                    self._connector.for_threads(),
                    exit_seconds=self.exit_seconds,
                    former=self,
                )
                successor.go_on(NoConnection("its event loop is closed"))
                self._successor = successor
        finally:
            self._goes_over = False

    def leave(self) -> bool:
        if not self._is_over and self._loop.is_running():  # on a thread that is a daemon
            self._call_from_outside(self._leave)
            return self._has_left
        with suppress(RuntimeError):  # no thread can be started, so nothing can be done
            self._go_over()
        return self._successor is None or self._successor.leave()

    def _leave(self) -> None:
        self._has_left = self.do(self._departure.step)

    def remains(self) -> list[str]:
        if self._successor is not None:
            return self._successor.remains()
        return self._departure.lines()

    def forked(self) -> None:
        """Whatever waits or touches a core is refused from now on."""
        self.refuses = True
        leaving.ended(self)
        self.router.forked(forking.wrong_process())
        self._connector.forked()
        self.do = self.wait_for = self.check_process = forking.refuse  # type: ignore[method-assign]

    def check_process(self) -> None:
        """Raise WrongProcess in a forked child."""

    # --- what is due -----------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        if self._is_over:
            return
        delay = self.timers.delay_us()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if delay is not None:
            self._alarm = self._loop.call_later(delay / 1e6, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.run_due()
        self._set_alarm()

    def new_future(self) -> asyncio.Future[Any]:
        """A future for a user."""
        return self._loop.create_future()

    def tell_futures(self, job: Callable[[], None]) -> None:
        """Call `job`, which sets futures of a user: at once, since the loop tells who waits."""
        if not self._is_over:
            job()

    def defer(self, job: Callable[[], None]) -> None:
        """Have the loop call `job` soon, when the cores are done."""
        if self._is_over:
            return
        self._loop.call_soon(self._run_job, job)

    def _at_end(self, action: Callable[[], None]) -> None:
        if self._loop.is_closed():
            action()
        elif self._hears:
            # What has woken the loop wakes others, too: a timer that is due by now, whose task
            # sends something. That is to go with what has waited, and not to wait for that.
            self._loop.call_soon(self._at_end, action)
        else:
            self._loop.call_soon(self._end_of_turn, action)

    def _end_of_turn(self, action: Callable[[], None]) -> None:
        if self._is_over or self.refuses:
            return
        self.do(action)
        for link in self.links:  # now, not one turn later
            link.flush()

    def _run_job(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception:
            log.exception("a callback of the client failed")

    # --- links (see link.LinkOwner) ---------------------------------------------------------------

    def opened(self, end: LinkEnd) -> None:
        self.do(partial(self.tell_opened, end))

    def received(self, end: LinkEnd, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        self._hears = True
        try:
            self.do(partial(self.tell_received, end, frames))
        finally:
            self._hears = False

    def received_outside(self, end: LinkEnd, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        """For another thread: the loop reads the frames, many at a time when there are many."""
        self._inbox.append((end, frames))
        if not self._inbox_is_watched:
            self._inbox_is_watched = True
            self._call_from_outside(self._read_inbox)

    def _read_inbox(self) -> None:
        self._inbox_is_watched = False  # first, so that what comes from now on calls us again
        while self._inbox:
            self.received(*self._inbox.popleft())

    def lost(self, end: LinkEnd, error: HocketError) -> None:
        self.do(partial(self.tell_lost, end, error))

    def lost_outside(self, end: LinkEnd, error: HocketError) -> None:
        """`lost`, for another thread."""
        self._call_from_outside(partial(self.lost, end, error))

    def _call_from_outside(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed, and the client with it
            return

    # --- waiting ---------------------------------------------------------------------------------

    async def wait_for(
        self,
        ready: Callable[[], T | None],
        wake_ups: WakeUps,
        timeout: float | None,
        too_slow: Callable[[], HocketError],
        is_reply: bool = False,
    ) -> T:
        """What `ready` returns, once that is not None. If it is cancelled, it has taken nothing.

        After `timeout` seconds the error that `too_slow` makes is raised. With `is_reply`, `ready`
        does no more than to look: that needs no turn of the cores.
        """
        found = ready() if is_reply else self.do(ready)
        if found is not None:
            return found
        end = None if timeout is None else self._loop.time() + timeout
        while True:
            future: asyncio.Future[None] = self._loop.create_future()
            wake = partial(_wake, future)
            alarm = None if end is None else self._loop.call_at(end, wake)
            wake_ups.add(wake)
            try:
                await future
            finally:
                wake_ups.discard(wake)
                if alarm is not None:
                    alarm.cancel()
            found = ready() if is_reply else self.do(ready)
            if found is not None:
                return found
            if end is not None and self._loop.time() >= end:
                raise self.do(too_slow)

    async def woken(self, wake_ups: WakeUps) -> None:
        """Return when it is time to look again."""
        future: asyncio.Future[None] = self._loop.create_future()
        wake = partial(_wake, future)
        wake_ups.add(wake)
        try:
            await future
        finally:
            wake_ups.discard(wake)

    async def wait_for_reply(
        self, reply: Reply[T], timeout: float | None, too_slow: Callable[[], HocketError]
    ) -> T:
        return await self.wait_for(reply.get, reply.wake_ups, timeout, too_slow, is_reply=True)

    async def call(self, call: Call[T], timeout: float | None) -> T:
        """Send the request of this call, and wait for its answer."""
        (outcome,) = await self.call_all([call], timeout)
        return outcome

    async def call_paged(self, call: PagedCall[T], timeout: float | None) -> T:
        """Ask for one part after the other, and make one result of all of them."""
        deadline = Deadline(check_timeout(timeout))
        answers = [await self.call(call.part(""), timeout)]
        while after := answers[-1].next:
            answers.append(await self.call(call.part(after), deadline.remaining()))
        return call.result(answers)

    async def call_all(self, calls: Sequence[Call[T]], timeout: float | None) -> list[T]:
        """Send all requests at once, and wait for every answer; then raise the first error."""
        timeout = check_timeout(timeout)
        deadline = Deadline(timeout)
        asked: list[tuple[Asking, Reply[Frame | HocketError]]] = []

        def ask() -> None:
            for call in calls:
                reply: Reply[Frame | HocketError] = Reply(self.outbox)
                asking = Asking(self.router, call.frame, reply.put, repeatable=not call.changes)
                asked.append((asking, reply))

        try:
            self.do(ask)
            together = [asking for asking, _ in asked]
            answers = [
                await self.wait_for_reply(
                    reply,
                    deadline.remaining(),
                    partial(timeouts.unanswered, self.router, asking, timeout, together),
                )
                for asking, reply in asked
            ]
        finally:
            for asking, _ in asked:
                asking.cancel()
        return outcomes(calls, answers)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done() and not future.get_loop().is_closed():
        future.set_result(None)
