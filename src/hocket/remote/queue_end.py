"""One end of a message queue whose other end is in another process, as its user sees it.

To its user it is a `MessageQueue` like any other. A thread that waits here reads the socket itself,
if no other one does (`connection`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Protocol, TypeVar

from hocket.deadline import NEVER, Deadline
from hocket.errors import Aborted, Timeout
from hocket.local.lane import Lane, Message
from hocket.local.message_queue import MessageQueue, _changes, must_not_wait
from hocket.local.waiting import Waiters, wait
from hocket.remote.connection import Connection
from hocket.remote.outbound_lane import OutboundLane

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from hocket.local.message_queue import QueueOwner

ABORT_SECONDS = 5.0  # how long an abort waits for the other process to say what it took

T = TypeVar("T")


class Carrying(Protocol):
    """What carries the messages (`queue_carrier`)."""

    connection: Connection

    def stop(self) -> None: ...

    def in_transit(self, sender: MessageQueue) -> list[Message]: ...

    def release(self) -> None: ...

    def took(self) -> None:
        """Messages were taken: say so if there is reason to."""

    def drained(self) -> None:
        """All was taken that came before the other side's close."""

    def cut(self, why: str) -> None: ...

    def on_loop(self) -> bool: ...


class _NoPump:
    thread_id = None


class _FarEnd:
    """What a queue asks its other end within a process; of one elsewhere it knows nothing."""

    _pump = _NoPump()
    _wants_sent = False
    _handed_over = None


class RemoteQueue(MessageQueue):
    """See `MessageQueue`. `way` says how its bytes go: "direct", or "node" if a node passes them
    on."""

    __slots__ = ("_port", "_way", "far_name")
    _carrier: Carrying
    _inbound: Lane
    _outbound: OutboundLane

    def __init__(
        self, broker: QueueOwner, local_port: int, inbound: Lane, outbound: OutboundLane
    ) -> None:
        super().__init__(broker, local_port, inbound, outbound)
        self._peer = _FarEnd()  # type: ignore[assignment]
        self._port = 0
        self.far_name = ""
        self._way = "direct"

    def joined(self, carrier: Carrying, *, name: str, port: int, way: str) -> None:
        """It is connected: to this port of the broker of this name, by this way."""
        self._carrier = carrier
        self.far_name, self._port, self._way = name, port, way

    @property
    def way(self) -> str:
        return self._way

    @property
    def remote_port(self) -> int:
        return self._port

    def _take(self) -> Message | None:
        # As in `MessageQueue`, whose call small messages would feel.
        lane = self._inbound
        if self._receiver is not None or lane.drained:
            self._nothing_to_take()
            return None
        try:
            message = lane.messages.popleft()
        except IndexError:
            return None
        if lane.room or lane.refused or lane.large_count:
            lane.taken(message)
        if lane.closing:
            self.look_again()
        self._carrier.took()
        return message

    def _taken(self, message: Message) -> None:
        super()._taken(message)
        self._carrier.took()

    def _deliver(self) -> None:
        super()._deliver()
        self._carrier.took()

    def receive_wait(
        self, timeout: float | None = None, *, buffer: Buffer | None = None
    ) -> Message | int:
        deadline = NEVER if timeout is None else Deadline(timeout)
        take = self._take if buffer is None else self._filling(buffer)
        if get_ident() == self._pump.thread_id:
            raise must_not_wait("receive_wait", "set_listener")
        message = take()
        if message is None:
            message = self._wait(take, self._inbound.takers, deadline, "receive")
        return message

    def send_wait(self, message: Message, timeout: float | None = None) -> None:
        deadline = NEVER if timeout is None else Deadline(timeout)
        if get_ident() == self._pump.thread_id:
            raise must_not_wait("send_wait", "send")
        lane = self._outbound
        if lane.offer(message):
            return
        self._carrier.connection.flush()  # nobody can take what is still here
        if not self._wait(partial(self._offer, message), lane.room, deadline, "send"):
            raise self._closed_error() from self._reason
        lane.room.wake_one()  # what made room for ours may have made room for more

    def _wait(
        self, attempt: Callable[[], T | None], waiters: Waiters, deadline: Deadline, what: str
    ) -> T:
        """`local.waiting.wait` by a thread that reads itself meanwhile, if no other one does."""
        connection = self._carrier.connection
        if not connection.lead():
            return wait(attempt, waiters, deadline, what)
        try:
            waker = connection.loop.borrow_waker()
        except OSError:  # there is no descriptor left for it: the loop reads
            connection.leave()
            return wait(attempt, waiters, deadline, what)
        wake = waker.wake
        result = None
        try:
            while result is None:
                woken = waker.woken = False
                waiters.append(wake)
                try:
                    result = attempt()
                    if result is None:
                        remaining = deadline.remaining()
                        connection.read_as_leader(waker, remaining)
                        woken = waker.woken
                        result = attempt()
                        if result is None and (remaining == 0 or not connection.may_lead):
                            break
                finally:
                    waiters.done(wake, used=woken)
        finally:
            connection.leave()
            connection.loop.return_waker(waker)
        if result is None:
            result = wait(attempt, waiters, deadline, what)
        return result

    def _close_outbound(self) -> None:
        self._outbound.close()
        self._carrier.connection.flush()

    def _inbound_drained(self) -> None:
        with _changes:
            if self._ended:
                return
            learned = not self._closed
            self._closed = True
        if learned:
            self._close_outbound()
        self._carrier.drained()

    def begin_cut(self, why: str) -> None:
        with _changes:
            if self._ended:
                return
            self._ended = self._closed = True
            self._reason = Aborted(why)  # before the lanes end: no reader takes it for a close
        self._carrier.cut(why)

    def cut(self, why: str) -> None:
        self.begin_cut(why)
        if not self._carrier.on_loop():
            try:
                wait(
                    lambda: self._final or None,
                    self._inbound.takers,
                    Deadline(2 * ABORT_SECONDS),
                    "the end",
                )
            except Timeout:  # the loop is gone, with its process about to end
                return
            self._pump.post_last(self._tell_end)

    # --- for the carrier, on the loop ----------------------------------------------------------

    def is_cut(self, why: str) -> Aborted:
        """The connection ends by force, whichever side brought it about.

        It is `closed` when the reason is complete (`is_over`): whoever sees that is told all of it.
        """
        with _changes:
            self._ended = True
            if self._reason is None:
                self._reason = Aborted(why)
            return self._reason

    def is_over(self, *, was_cut: bool) -> None:
        with _changes:
            if not was_cut:
                self._reason = None
            self._ended = self._closed = self._final = True
        self._end()
