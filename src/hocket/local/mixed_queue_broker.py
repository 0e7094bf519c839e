"""The same queues with threads below: messages travel as bytes over blocking channels.

Above, everything is as in the full-event world: bind, connect, listeners, lanes, endings. Below,
each bound port is a thread broker of its own (a gate) with a thread that accepts; each connect is a
thread that connects to that gate; and each direction of a queue is a `Ferry`.

On a channel a message is its length (8 bytes, little-endian) and its bytes. The length CLOSE says
that nothing follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from io import BytesIO
from itertools import count
from struct import Struct
from threading import Thread
from typing import TYPE_CHECKING

from hocket.deadline import NEVER
from hocket.errors import (
    BusyResource,
    Closed,
    Disconnected,
    HocketError,
    UnknownBroker,
    WrongType,
)
from hocket.local.broker import Broker
from hocket.local.broker_manager import BrokerManager
from hocket.local.channel import inbound_of, outbound_of
from hocket.local.checks import NOTHING, as_bytes_view
from hocket.local.lane import BYTES_MAX, MESSAGES_MAX, size_of
from hocket.local.listeners import tell
from hocket.local.queue_broker import Attempt, QueueBroker
from hocket.local.waiting import wait

if TYPE_CHECKING:
    from hocket.local.channel import Channel
    from hocket.local.event_pump import EventPump
    from hocket.local.lane import Lane, Message
    from hocket.local.message_queue import MessageQueue

LENGTH = Struct("<Q")
CLOSE = (1 << 64) - 1

# Messages travel together: so many bytes are looked at at once, and so many messages written.
CHUNK_BYTES = 1 << 16
BATCH_MESSAGES = 256
# Smaller ones are gathered first: to copy so few bytes costs less than one more step for each.
GATHERED_BELOW_BYTES = 1 << 10


def start_thread(name: str, target: Callable[[], object]) -> Thread:
    """Start a daemon: it never runs a caller's code, so nothing of it must be finished at exit."""
    thread = Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise BusyResource(f"no thread for {name!r}: {error}; close some queues") from error
    return thread


class Ferry:
    """Carries messages in one direction: out of the sender's lane, over the channel, into the
    receiver's lane, with one thread at each end of the channel."""

    def __init__(
        self,
        sender: MessageQueue,
        receiver: MessageQueue,
        *,
        source: Lane,
        target: Lane,
        departs: Channel,
        arrives: Channel,
    ) -> None:
        self._sender = sender
        self._receiver = receiver
        self._source = source
        self._target = target
        self._departs = departs
        self._arrives = arrives
        self._stream = outbound_of(departs)
        # Messages taken out of `source` and not yet in `target`; one thread appends, one pops.
        self.aboard: deque[Message] = deque()
        self._threads: list[Thread] = []

    def start(self) -> None:
        name = f"{self._sender.broker.name}:{self._sender.local_port}"
        self._threads.append(start_thread(f"{name} writes", self._write))
        self._threads.append(start_thread(f"{name} is read", self._read))

    def stop(self) -> None:
        for lane in (self._source, self._target):
            lane.close()
        self.release()
        for thread in self._threads:
            thread.join()

    def release(self) -> None:
        self._departs.disconnect()
        self._arrives.disconnect()

    def _write(self) -> None:
        try:
            while batch := wait(self._take_batch, self._source.takers, NEVER, "a message"):
                self._write_batch(batch)
                self._sender.report_sent(batch)
            self._departs.write_all(LENGTH.pack(CLOSE))
        except Disconnected:  # the queue is being cut
            return
        except WrongType as error:  # a message whose sender released its memory after sending it
            pump = self._sender.broker.pump
            pump.report(error)
            pump.post_if_open(self._sender.abort)

    def _take_batch(self) -> list[Message] | None:
        """The messages that wait, at most a batch; None: none waits; []: the lane is drained."""
        lane = self._source
        messages = lane.messages
        batch: list[Message] = []
        size = 0
        while messages and len(batch) < BATCH_MESSAGES and size < CHUNK_BYTES:
            message = messages.popleft()
            if lane.room or lane.refused or lane.large_count:
                lane.taken(message)
            self.aboard.append(message)
            batch.append(message)
            size += size_of(message)
        if batch or (lane.closing and lane.finish()):
            return batch
        return None

    def _write_batch(self, batch: list[Message]) -> None:
        gathered = bytearray()
        parts: list[bytearray | memoryview] = [gathered]
        size = len(batch) * LENGTH.size
        for message in batch:
            view = as_bytes_view(message)
            length = view.nbytes
            size += length
            gathered += LENGTH.pack(length)
            if length < GATHERED_BELOW_BYTES:
                gathered += view
            else:
                gathered = bytearray()
                parts += (view, gathered)
        if not self._stream.put_together(parts, size):
            for part in parts:
                self._departs.write_all(part)

    def _read(self) -> None:
        frames = FrameReader(self._arrives)
        try:
            while (message := frames.next()) is not None:
                if not self._put(message):
                    return
                self.aboard.popleft()
        except Disconnected:  # the queue is being cut
            return
        self._target.close()
        self._receiver.look_again()

    def _put(self, message: bytes) -> bool:
        lane = self._target
        taken = lane.offer(message)
        if taken is None:
            taken = wait(partial(lane.offer, message), lane.room, NEVER, "room")
        return taken


class FrameReader:
    """Cuts a channel's bytes into messages, where they lie: each byte is copied once, into its
    message."""

    def __init__(self, channel: Channel) -> None:
        self._stream = inbound_of(channel)
        self._window = NOTHING  # bytes of the ring that we look at
        self._used = 0  # so many of them are done with

    def next(self) -> bytes | None:
        """The next message, None at the close mark."""
        start = self._used
        if len(self._window) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._window, start)
            self._used = start = start + LENGTH.size
        else:
            (length,) = LENGTH.unpack(self._gathered(LENGTH.size))
            start = self._used
        if length == CLOSE:
            return None
        end = start + length
        if end > len(self._window):
            return self._gathered(length)
        self._used = end
        return bytes(self._window[start:end])

    def _gathered(self, length: int) -> bytes:
        """So many bytes, from as many windows as it takes."""
        # A BytesIO lends out the memory of its one bytes object to be written, and then gives that
        # object away: a bytearray would have to be copied to become bytes.
        whole = BytesIO(bytes(length))
        with whole.getbuffer() as target:
            filled = 0
            while filled < length:
                if self._used == len(self._window):
                    self._look_further()
                start = self._used
                part = self._window[start : start + length - filled]
                target[filled : filled + len(part)] = part
                filled += len(part)
                self._used = start + len(part)
        return whole.getvalue()

    def _look_further(self) -> None:
        stream = self._stream
        if self._used:
            stream.skip(self._used)
        look = partial(stream.look, CHUNK_BYTES)
        window = look()
        self._window = window or wait(look, stream.readers, NEVER, "a message")
        self._used = 0


class Ferries:
    """The carrier of one connection: a ferry each way, known by its sender."""

    def __init__(self, ferries: dict[MessageQueue, Ferry]) -> None:
        self._ferries = ferries

    def start(self) -> None:
        for ferry in self._ferries.values():
            ferry.start()

    def stop(self) -> None:
        for ferry in self._ferries.values():
            ferry.stop()

    def in_transit(self, sender: MessageQueue) -> list[Message]:
        return list(self._ferries[sender].aboard)

    def release(self) -> None:
        for ferry in self._ferries.values():
            ferry.release()
        self._ferries = {}


class MixedQueueBroker(QueueBroker):
    """A QueueBroker whose queues are carried by threads over blocking channels.

    Four threads a connection: made for hundreds of them, not thousands. Messages are copied into
    the channel and out of it, and arrive as `bytes`.
    """

    kind = "mixed"

    def __init__(
        self,
        name: str,
        pump: EventPump,
        manager: BrokerManager | None = None,
        *,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._gates = BrokerManager()  # the thread brokers below, one for each bound port
        self._visitors: dict[int, tuple[Attempt, Channel]] = {}
        self._visits = count()
        super().__init__(name, pump, manager, messages_max=messages_max, bytes_max=bytes_max)

    def _bound_now(self, port: int) -> None:
        gate = Broker(f"port {port}", self._gates)
        try:
            start_thread(f"{self.name}:{port} accepts", partial(self._keep_gate, gate, port))
        except BusyResource:
            gate.close()
            raise

    def _unbound_now(self, port: int) -> None:
        gate = self._gates.require(f"port {port}")
        assert isinstance(gate, Broker)
        gate.close()  # wakes the thread that accepts, and whoever waits to connect

    def _arrive(self, attempt: Attempt) -> None:
        try:
            start_thread(f"{attempt.broker.name} connects", partial(self._visit, attempt))
        except BusyResource as error:
            self._refuse(attempt, error)

    def _visit(self, attempt: Attempt) -> None:
        """The connecting thread: meet the accepting one, and send it the number of this visit."""
        visit = next(self._visits)
        try:
            with Broker(f"visitor {visit}", self._gates) as visitor:
                channel = visitor.connect(f"port {attempt.port}", attempt.port)
        except (UnknownBroker, Closed):
            self._refuse(attempt, self._not_bound(attempt.port))
            return
        self._visitors[visit] = attempt, channel
        channel.write_all(LENGTH.pack(visit))

    def _refuse(self, attempt: Attempt, reason: HocketError) -> None:
        with self.manager.lock:
            if attempt.claim():
                attempt.refused(reason)

    def _keep_gate(self, gate: Broker, port: int) -> None:
        """The accepting thread of one bound port."""
        while True:
            try:
                channel = gate.accept(port)
            except Closed:
                return
            self._admit(channel)
            del channel  # its buffers are large, and the next accept may wait for long

    def _admit(self, our_channel: Channel) -> None:
        (visit,) = LENGTH.unpack(our_channel.read_exactly(LENGTH.size))
        attempt, their_channel = self._visitors.pop(visit)
        if not self._connect(attempt, our_channel, their_channel):
            our_channel.disconnect()

    def _connect(self, attempt: Attempt, our_channel: Channel, their_channel: Channel) -> bool:
        """Make the two queues over the channel; False if nobody uses it."""
        with self.manager.lock:
            if not attempt.claim():  # a broker was closed meanwhile, and that has answered
                return False
            listener = self._bound.get(attempt.port)
            if listener is None:
                attempt.refused(self._not_bound(attempt.port))
                return False
            inbound, outbound = self._new_lane(), self._new_lane()
            their_inbound, their_outbound = attempt.broker._new_lane(), attempt.broker._new_lane()
            ours = self._new_queue(inbound, outbound)
            theirs = attempt.broker._new_queue(their_inbound, their_outbound)
            ferries = Ferries(
                {
                    ours: Ferry(
                        ours, theirs, source=outbound, target=their_inbound,
                        departs=our_channel, arrives=their_channel,
                    ),
                    theirs: Ferry(
                        theirs, ours, source=their_outbound, target=inbound,
                        departs=their_channel, arrives=our_channel,
                    ),
                }
            )  # fmt: skip
            ours.join(theirs, ferries)
            try:
                ferries.start()
            except BusyResource as error:
                attempt.refused(error)
            else:
                attempt.connected(theirs)
                self.pump.post_last(partial(tell, listener, "accepted", ours))
                return True
        ours.cut("its threads could not be started")
        return False
