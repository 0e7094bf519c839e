"""One end of a connection that carries whole messages, in order, both ways.

Rule 1: listeners hear everything on the pump of their own broker, and only there.
Rule 2: whatever ends a connection is decided once for both ends, under `_changes`.
Rule 3: an end is told `closed` after the last message it is told of.

An end has two lanes: it takes from `_inbound` and offers to `_outbound`. In the full-event world
the outbound lane of one end IS the inbound lane of the other. In the mixed world two ferries carry
messages from lane to lane over a channel (`mixed_queue_broker`); nothing else differs.

Delivery to a listener is either under way (`_deliver` is on the pump) or at rest (`look_again`
stands among the takers of the inbound lane, so that the next offer posts `_deliver`).

Closing: an end that is closed closes its outbound lane. The other end learns of that when it has
taken everything before, and closes its own. When both lanes are drained, both ends are told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, Protocol, overload

from hocket.deadline import NEVER, Deadline
from hocket.errors import Aborted, BusyResource, Closed, OutOfRange, WrongThread
from hocket.local.aio import AsyncMessages, wait_async
from hocket.local.checks import as_bytes_view, writable_span
from hocket.local.lane import Lane, Message
from hocket.local.listeners import MESSAGE_EVENTS, check_listener, hears, tell
from hocket.local.waiting import wait

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from hocket.local.event_pump import EventPump

# Messages delivered to one listener before the pump turns to other events.
DELIVERIES_MAX = 256

# Reentrant: a finalizer or a signal handler may end another one while we hold it.
_changes = RLock()  # one for all queues: taken when a connection ends or its listener changes


class QueueOwner(Protocol):
    """The broker, as its queues see it."""

    @property
    def name(self) -> str: ...

    @property
    def pump(self) -> EventPump: ...

    def forget(self, queue: MessageQueue) -> None: ...


class Carrier(Protocol):
    """What carries messages between the lanes of two ends that do not share them."""

    def stop(self) -> None:
        """Return when nothing is moved any more."""

    def in_transit(self, sender: MessageQueue) -> list[Message]:
        """Messages that have left the sender's lane and not reached the other; after `stop`."""

    def release(self) -> None:
        """The connection has ended: let go of what takes memory."""


class MessageQueue:
    """One end of a connection, made by a broker: whole messages in order, both ways."""

    __slots__ = (
        "__weakref__",
        "_carrier",
        "_closed",
        "_ended",
        "_final",
        "_handed_over",
        "_hearing",
        "_inbound",
        "_listener",
        "_outbound",
        "_owes_writable",
        "_paused",
        "_peer",
        "_pump",
        "_reason",
        "_receiver",
        "_told",
        "_wants_sent",
        "broker",
        "local_port",
    )
    _peer: MessageQueue

    def __init__(self, broker: QueueOwner, local_port: int, inbound: Lane, outbound: Lane) -> None:
        self.broker = broker
        self.local_port = local_port
        self._pump = broker.pump.strand()
        self._inbound = inbound
        self._outbound = outbound
        self._carrier: Carrier | None = None
        self._listener: object | None = None
        self._receiver: Any = None  # the listener if it gets the messages, whether paused or not
        self._wants_sent = False
        # Messages from this end that were handed over and whose `sent` was not told yet. The deque
        # is made when a listener first wants to hear `sent`, and never replaced: the other side's
        # pump may hold it.
        self._handed_over: deque[Message] | None = None
        self._paused = False
        self._hearing: Any = None  # what is told `received` now: the receiver, unless paused
        self._owes_writable = False  # the next listener is to be told `writable`
        self._closed = False  # by this end, or this end has learned of the other's close
        self._ended = False  # decided: nothing is exchanged any more
        self._reason: Aborted | None = None  # why it ended; None after a graceful close
        self._final = False  # ended, and `_reason` is complete
        self._told = False  # a listener has heard of the end

    def join(self, peer: MessageQueue, carrier: Carrier | None = None) -> None:
        """Make the two the ends of one connection."""
        for end, other in ((self, peer), (peer, self)):
            end._peer = other
            end._carrier = carrier

    @property
    def way(self) -> str:
        """How messages go: "local" within a process, else "direct" or (by way of a) "node"."""
        return "local"

    @property
    def remote_port(self) -> int:
        """The local port of the other end."""
        return self._peer.local_port

    # --- sending ---------------------------------------------------------------------------

    def send(self, message: Message) -> bool:
        """Hand the message over, without waiting. From now on it belongs to the receiver.

        False: the message was not taken, either because the queue is full (the listener's
        `writable` will be called) or because it is closed (`closed` is True).
        """
        taken = self._outbound.offer(message)
        if taken is None:
            self._outbound.leave_word(message, self._room_made)
        return taken is True

    def send_wait(self, message: Message, timeout: float | None = None) -> None:
        """`send` for threads: wait while the queue is full. Raises Closed, Timeout."""
        deadline = NEVER if timeout is None else Deadline(timeout)
        if get_ident() == self._pump.thread_id:
            raise must_not_wait("send_wait", "send")
        lane = self._outbound
        taken = lane.offer(message)
        if taken:
            return
        if taken is None and get_ident() == self._peer._pump.thread_id:
            raise must_not_wait("send_wait", "send")
        if not wait(partial(self._offer, message), lane.room, deadline, "send"):
            raise self._closed_error() from self._reason
        lane.room.wake_one()  # what made room for ours may have made room for more

    async def send_async(self, message: Message, timeout: float | None = None) -> None:
        """`send` for coroutines: wait while the queue is full. Raises Closed, Timeout."""
        deadline = NEVER if timeout is None else Deadline(timeout)
        lane = self._outbound
        if lane.offer(message):
            return
        if not await wait_async(partial(self._offer, message), lane.room, deadline, "send"):
            raise self._closed_error() from self._reason
        lane.room.wake_one()  # what made room for ours may have made room for more

    def _offer(self, message: Message) -> bool | None:
        taken = self._outbound.offer(message)
        return None if taken is False and self._being_cut() else taken

    def _room_made(self) -> bool:
        return self._pump.post_if_open(self._tell_writable)

    def _tell_writable(self) -> None:
        with _changes:
            listener = self._listener
            if self._closed:
                return
            if listener is None:
                self._owes_writable = True
                return
        tell(listener, "writable")

    # --- receiving ---------------------------------------------------------------------------

    @overload
    def receive(self, buffer: None = None) -> Message | None: ...

    @overload
    def receive(self, buffer: Buffer) -> int | None: ...

    def receive(self, buffer: Buffer | None = None) -> Message | int | None:
        """The next message if there is one and no listener is set to get it, else None.

        With a buffer, the message is copied to its start, and its length returned. If the buffer is
        too small, OutOfRange is raised and the message stays.

        Raises Closed when the last message has been taken and no more can come.
        """
        take = self._take if buffer is None else self._filling(buffer)
        if self._receiver is not None and not self._inbound.drained:
            return None
        return take()

    @overload
    def receive_wait(self, timeout: float | None = None, *, buffer: None = None) -> Message: ...

    @overload
    def receive_wait(self, timeout: float | None = None, *, buffer: Buffer) -> int: ...

    def receive_wait(
        self, timeout: float | None = None, *, buffer: Buffer | None = None
    ) -> Message | int:
        """`receive` for threads: wait for the next message. Raises Closed, Timeout."""
        deadline = NEVER if timeout is None else Deadline(timeout)
        take = self._take if buffer is None else self._filling(buffer)
        if get_ident() == self._pump.thread_id:
            raise must_not_wait("receive_wait", "set_listener")
        message = take()
        if message is None:
            message = wait(take, self._inbound.takers, deadline, "receive")
        return message

    @overload
    async def receive_async(
        self, timeout: float | None = None, *, buffer: None = None
    ) -> Message: ...

    @overload
    async def receive_async(self, timeout: float | None = None, *, buffer: Buffer) -> int: ...

    async def receive_async(
        self, timeout: float | None = None, *, buffer: Buffer | None = None
    ) -> Message | int:
        """`receive` for coroutines: wait for the next message. Raises Closed, Timeout."""
        deadline = NEVER if timeout is None else Deadline(timeout)
        take = self._take if buffer is None else self._filling(buffer)
        message = take()
        if message is None:
            message = await wait_async(take, self._inbound.takers, deadline, "receive")
        return message

    def __iter__(self) -> Iterator[Message]:
        """Every message until the queue is closed; raises Closed if it was cut by force."""
        while True:
            try:
                yield self.receive_wait()
            except Closed:
                if self._was_cut():
                    raise
                return

    def __aiter__(self) -> AsyncMessages[Message]:
        return AsyncMessages(self._take, self.receive_async, self._was_cut)

    def _take(self) -> Message | None:
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
        if self._carrier is None:
            self._peer.report_sent((message,))
        return message

    def _taken(self, message: Message) -> None:
        """What follows a take; `_take` has it in place, because small messages feel a call."""
        lane = self._inbound
        if lane.room or lane.refused or lane.large_count:
            lane.taken(message)
        if lane.closing:
            self.look_again()
        if self._carrier is None:
            self._peer.report_sent((message,))

    def _nothing_to_take(self) -> None:
        """A listener gets the messages, or there will be none any more: raise, or wait for it."""
        if not self._inbound.drained:
            raise BusyResource(
                "a listener is set and gets the messages; set_listener(None) to receive them here"
            )
        if not self._being_cut():
            raise self._closed_error() from self._reason

    def _filling(self, buffer: Buffer) -> Callable[[], int | None]:
        """`_take` that copies the message into the buffer and returns its length."""
        return partial(self._take_into, writable_span(buffer))

    def _take_into(self, target: memoryview) -> int | None:
        lane = self._inbound
        messages = lane.messages
        while not lane.drained and self._receiver is None:
            try:
                message = messages[0]
            except IndexError:
                return None
            view = as_bytes_view(message)  # from now on its memory cannot be released
            size = len(view)
            if size > len(target):
                raise OutOfRange(
                    f"the message has {size} bytes, the buffer {len(target)}; "
                    "the message stays: receive it into a larger one, or without a buffer"
                )
            if lane.take_if_first(message):
                target[:size] = view
                self._taken(message)
                return size
        self._nothing_to_take()
        return None

    # --- listening ---------------------------------------------------------------------------

    def set_listener(self, listener: object | None) -> None:
        """Have `listener` hear what happens here; with None, messages wait to be received.

        They wait as well if the listener has no `received` of its own. A listener without any of
        the four methods is refused with WrongType.
        """
        if listener is not None:
            check_listener(listener, *MESSAGE_EVENTS)
        wants_sent = hears(listener, "sent")  # before the lock: it may run the listener's code
        receiver = listener if hears(listener, "received") else None
        with _changes:
            self._listener = listener
            self._receiver = receiver
            self._hearing = None if self._paused else receiver
            self._wants_sent = wants_sent
            if wants_sent and self._handed_over is None:
                self._handed_over = deque()
            owes_writable = self._owes_writable and listener is not None
            self._owes_writable = self._owes_writable and listener is None
        self._inbound.takers.wake_all()  # threads in receive_wait may no longer take
        self.look_again()
        if owes_writable:
            self._room_made()
        if self._final:
            self._pump.post_last(self._tell_end)

    def pause(self) -> None:
        """Hold back `received` (and so the sender) until `resume`; all else is told as before."""
        with _changes:
            self._paused = True
            self._hearing = None

    def resume(self) -> None:
        with _changes:
            self._paused = False
            self._hearing = self._receiver
        self.look_again()

    def look_again(self) -> bool:
        """Something about the inbound lane has changed: have the pump look at it."""
        return self._pump.post_if_open(self._deliver)

    def report_sent(self, messages: Iterable[Message]) -> None:
        """Messages from this end were handed over: tell the listener, if it wants to know."""
        if self._wants_sent and self._handed_over is not None:
            self._handed_over.extend(messages)
            self._pump.post_if_open(self._tell_sent)

    def _deliver(self) -> None:
        lane = self._inbound
        listener = self._hearing
        if listener is not None:
            self._deliver_to(listener)
        elif lane.messages:
            lane.takers.wake_one()  # the hint that woke us was meant for a reader
        if lane.closing and lane.finish():
            self._inbound_drained()

    def _deliver_to(self, listener: Any) -> None:
        lane = self._inbound
        popleft = lane.messages.popleft
        received = listener.received
        peer = self._peer
        handed_over = peer._handed_over if peer._wants_sent and self._carrier is None else None
        under_way = True
        while under_way:
            # A pump that stops takes no further event, so what is here now is delivered now; and
            # no more than that, or a busy sender could keep it from ever stopping.
            last_round = self._pump.stopping
            for _ in range(len(lane.messages) if last_round else DELIVERIES_MAX):
                if lane.drained:
                    under_way = False
                    break
                try:
                    message = popleft()
                except IndexError:
                    under_way = not self._rest()
                    break
                if lane.room or lane.refused or lane.large_count:
                    lane.taken(message)
                if handed_over is not None:
                    handed_over.append(message)
                try:
                    received(message)
                except BaseException as error:  # noqa: BLE001 - reported; the next one follows
                    self._pump.report(error)
                if self._hearing is not listener:
                    under_way = False
                    break
            else:
                under_way = not self._pump.post_if_open(self._deliver)  # others first
            under_way = under_way and not last_round
        if handed_over:
            peer.report_sent(())

    def _rest(self) -> bool:
        """Delivery has caught up: wait among the takers. False if a message came meanwhile."""
        lane = self._inbound
        if self.look_again not in lane.takers:
            lane.takers.append(self.look_again)
        return not (lane.messages and lane.takers.withdraw(self.look_again))

    def _tell_sent(self) -> None:
        handed_over = self._handed_over
        if handed_over is None:
            return
        for _ in range(len(handed_over)):
            message = handed_over.popleft()
            if self._told:  # the listener has heard of the end, and hears nothing after it
                continue
            try:
                tell(self._listener, "sent", message)
            except BaseException as error:  # noqa: BLE001 - reported; the next one follows
                self._pump.report(error)

    # --- the end -----------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """True once nothing is exchanged any more, and the reason is known."""
        return self._final

    @property
    def closed(self) -> bool:
        """True once nothing more can be sent from here."""
        return self._closed

    def close(self) -> None:
        """End gracefully: what either side has sent still reaches the other, then both are told.

        Nothing more can be sent from here. Messages of the other side, sent before it learned of
        the close, still arrive and have to be taken; `abort` does not wait for that.
        """
        with _changes:
            if self._closed:
                return
            self._closed = True
        self._close_outbound()

    def abort(self) -> None:
        """End by force, at once: both sides are told Aborted, which lists what was not taken."""
        self.cut(f"the queue was aborted by broker {self.broker.name!r}")

    def begin_cut(self, why: str) -> None:
        """`cut` is about to be called. Begin with what takes its time, if anything does."""

    def cut(self, why: str) -> None:
        """Abort, saying why; returns when the end is final, whichever side brought it about."""
        peer = self._peer
        with _changes:
            already_ended = self._ended
            if not already_ended:
                self._ended = self._closed = peer._ended = peer._closed = True
                # Set before the lanes end, so that no reader takes it for a graceful end.
                self._reason, peer._reason = Aborted(why), Aborted(why)
        if already_ended:
            wait(lambda: self._final or None, self._inbound.takers, NEVER, "the end")
            self._pump.post_last(self._tell_end)  # the other side's post may be too late for it
            return
        try:
            if self._carrier is not None:
                self._carrier.stop()
        finally:  # interrupted or not: others wait for the end
            for sender, receiver in ((self, peer), (peer, self)):
                assert sender._reason is not None
                assert receiver._reason is not None
                undelivered = sender._seize_outbound()
                sender._reason.undelivered = undelivered
                receiver._reason.unread = list(undelivered)
            self._end()
            peer._end()

    def _seize_outbound(self) -> list[Message]:
        if self._carrier is None:
            return self._outbound.seize()
        arrived = self._peer._inbound.seize()
        left = (*self._carrier.in_transit(self), *self._outbound.seize())
        return [*arrived, *map(as_delivered, left)]

    def _close_outbound(self) -> None:
        self._outbound.close()
        if self._carrier is None:
            self._peer.look_again()

    def _inbound_drained(self) -> None:
        """This end has taken all that the other sent, and so has learned of the other's close."""
        peer = self._peer
        with _changes:
            if self._ended:
                return
            learned = not self._closed
            self._closed = True
            both_drained = peer._inbound.drained
            if both_drained:
                self._ended = peer._ended = True
        if learned:
            self._close_outbound()
        if both_drained:
            self._end()
            peer._end()

    def _end(self) -> None:
        self._final = True
        self._pump.post_last(self._tell_end)
        self._inbound.takers.wake_all()
        self._outbound.room.wake_all()
        if self._carrier is not None:
            self._carrier.release()
        self.broker.forget(self)  # last: a pump that stops tells the queues that its broker knows

    def _tell_end(self) -> None:
        if self._listener is not None and not self._told:
            self._tell_sent()  # what was handed over before the end is told before it
            self._told = True
            tell(self._listener, "closed", self._reason)

    def _was_cut(self) -> bool:
        return self._reason is not None

    def _being_cut(self) -> bool:
        """Whether the queue was cut and `_reason` is not complete yet: whoever asks has to wait."""
        return self._reason is not None and not self._final

    def _closed_error(self) -> Closed:
        return Closed(f"the queue on port {self.local_port} of {self.broker.name!r} is closed")

    def __repr__(self) -> str:
        state = "ended" if self._ended else "closed" if self._closed else "open"
        return (
            f"<MessageQueue {self.broker.name!r} {self.local_port} -> {self.remote_port}, "
            f"{state}, {len(self._inbound.messages)} to receive>"
        )


def as_delivered(message: Message) -> Message:
    """A message as the mixed world would have delivered it, if its memory is still there."""
    try:
        return bytes(message)
    except ValueError:  # its sender has released it
        return message


def must_not_wait(call: str, instead: str) -> WrongThread:
    return WrongThread(f"{call} on a pump's own thread would stall the queue; use {instead}")
