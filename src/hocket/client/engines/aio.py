"""What drives the cores of an asyncio client: the running loop, which does one thing at a time.

So the cores need no lock: nothing else runs between two `await`s. What another thread has for us
(an embedded broker's thread, or the garbage collector's) is handed to the loop.

The methods are those of `engines.threads`, so that the faces are written once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar

from hocket.adapters.clock import SystemClock
from hocket.client.calls.call import Call, PagedCall, outcomes
from hocket.client.connection.link import Connector, Link
from hocket.client.connection.session import Request, Session, closed
from hocket.client.connection.timeout import check_timeout
from hocket.client.connection.timers import Timers
from hocket.client.connection.wakeups import Reply, WakeUps
from hocket.client.engines import timeouts
from hocket.client.engines.reports import log_report
from hocket.deadline import Deadline
from hocket.errors import HocketError
from hocket.frames import Frame

log = logging.getLogger("hocket")
T = TypeVar("T")


class AioEngine:
    def __init__(self, connector: Connector, *, name: str, token: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._connector = connector
        self._alarm: asyncio.TimerHandle | None = None
        self._inbox: deque[tuple[Link, Sequence[tuple[Frame, memoryview]]]] = deque()
        self._inbox_is_watched = False
        self._ending: asyncio.Future[None] | None = None  # of an abandoned client
        self.session = Session(
            timers=Timers(SystemClock(), self._set_alarm),
            random=Random(),
            open_link=lambda number: self.defer(lambda: connector.open(number, self)),
            report=log_report,
            target=connector.target,
            address_count=connector.address_count,
            watched=connector.watched,
            name=name,
            token=token,
        )

    def do(self, act: Callable[[], T]) -> T:
        """What `act` returns, which may touch the cores. (With threads it needs the lock.)"""
        return act()

    # --- beginning and end -----------------------------------------------------------------------

    async def start(self, timeout: float | None) -> None:
        """Return when there is a connection. If this raises, `stop` is still to be called."""
        session = self.session
        session.start()

        def is_ready() -> bool | None:
            session.check_open()
            return session.state == "ready" or None

        await self.wait_for(
            is_ready, session.changed, timeout, lambda: timeouts.not_connected(session)
        )

    def stop(self, error: HocketError) -> None:
        """Close the session and its link."""
        self.session.close(error)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._connector.close()

    def abandon(self, last: Callable[[], Awaitable[None]]) -> None:
        """Have the loop deliver and end everything, and then await `last`. Does not wait itself.

        For any thread. What was sent is delivered, if that takes no more than ABANDONED_SECONDS.
        """
        self._call_from_outside(
            partial(self._end, last, self._loop.time() + timeouts.ABANDONED_SECONDS)
        )

    def _end(self, last: Callable[[], Awaitable[None]], latest: float) -> None:
        if not self.session.deliver() and self._loop.time() < latest:
            self._loop.call_later(timeouts.ABANDONED_LOOK_SECONDS, self._end, last, latest)
            return
        self.stop(closed("the client"))
        self._ending = asyncio.ensure_future(last(), loop=self._loop)  # kept: the loop would not

    def _set_alarm(self) -> None:
        delay = self.session.timers.delay_us()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if delay is not None:
            self._alarm = self._loop.call_later(delay / 1e6, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.session.timers.run_due()
        self._set_alarm()

    def new_future(self) -> asyncio.Future[Any]:
        """A future for a user."""
        return self._loop.create_future()

    def tell_futures(self, job: Callable[[], None]) -> None:
        """Call `job`, which sets futures of a user: at once, since the loop tells who waits."""
        job()

    def defer(self, job: Callable[[], None]) -> None:
        """Have the loop call `job` soon, when the cores are done."""
        self._loop.call_soon(self._run_job, job)

    def _run_job(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception:
            log.exception("a callback of the client failed")

    # --- links (see link.LinkOwner) ---------------------------------------------------------------

    def opened(self, link: Link) -> None:
        self.session.link_opened(link)

    def received(self, link: Link, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        for frame, payload in frames:
            self.session.received(link, frame, payload)

    def received_outside(self, link: Link, frames: Sequence[tuple[Frame, memoryview]]) -> None:
        """For another thread: the loop reads the frames, many at a time when there are many."""
        self._inbox.append((link, frames))
        if not self._inbox_is_watched:
            self._inbox_is_watched = True
            self._call_from_outside(self._read_inbox)

    def _read_inbox(self) -> None:
        self._inbox_is_watched = False  # first, so that what comes from now on calls us again
        while self._inbox:
            self.received(*self._inbox.popleft())

    def lost(self, link: Link | None, error: HocketError) -> None:
        self.session.link_lost(link, error)

    def lost_outside(self, link: Link, error: HocketError) -> None:
        """`lost`, for another thread."""
        self._call_from_outside(partial(self.lost, link, error))

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
    ) -> T:
        """What `ready` returns, once that is not None. If it is cancelled, it has taken nothing.

        After `timeout` seconds the error that `too_slow` makes is raised.
        """
        found = ready()
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
            found = ready()
            if found is not None:
                return found
            if end is not None and self._loop.time() >= end:
                raise too_slow()

    async def wait_for_reply(
        self, reply: Reply[T], timeout: float | None, too_slow: Callable[[], HocketError]
    ) -> T:
        return await self.wait_for(reply.get, reply.wake_ups, timeout, too_slow)

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
        session = self.session
        asked: list[tuple[Request, Reply[Frame | HocketError]]] = []
        try:
            for call in calls:
                reply: Reply[Frame | HocketError] = Reply()
                request = session.request(call.frame, reply.put, repeatable=not call.changes)
                asked.append((request, reply))
            answers = [
                await self.wait_for_reply(
                    reply,
                    deadline.remaining(),
                    partial(timeouts.unanswered, session, request, call.changes, timeout),
                )
                for call, (request, reply) in zip(calls, asked, strict=True)
            ]
        finally:
            for request, _ in asked:
                session.cancel(request)
        return outcomes(calls, answers)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
