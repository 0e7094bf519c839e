"""Carries the messages of one queue between this process and another.

The outbound lane holds a message until the other process has said that its user took it; so the
limits of a queue mean the same as within a process, and what was not taken can be listed when the
connection is cut. The inbound lane is fed by whoever reads, never beyond the limits.

Rule 1: the loop's thread alone steps the core of the ending, and decides what it says.
Rule 2: a message is in the lane's `messages` until it is written, and then `in_flight` until it is
        taken. Whoever writes moves it, before it leaves the process.
        The lane is seized while nobody writes, so that each message is in one of the two.
Rule 3: nothing waits for a pump here, and a pump waits for the loop only in `cut`.

The count of what was taken travels with what is sent anyway, if enough is owed. If nothing is sent,
it is sent when a share of the limit is owed, or a moment after a message was taken.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING

from hocket.deadline import in_seconds
from hocket.errors import ProtocolError, WrongType
from hocket.local.checks import as_bytes_view
from hocket.local.lane import Lane, Message
from hocket.local.message_queue import MessageQueue
from hocket.remote import ending, peer_frames
from hocket.remote.connection import GATHERED_BELOW_BYTES, Connection
from hocket.remote.outbound_lane import OutboundLane
from hocket.remote.peer_frames import DATA, HEADER, MESSAGE_BYTES_MAX, TAKEN, Kind
from hocket.remote.queue_end import ABORT_SECONDS, RemoteQueue

if TYPE_CHECKING:
    from hocket.remote.connection import Part

GATHERED_MESSAGES_MAX = 512
GATHERED_BYTES_MAX = 256 << 10
PARTS_MAX = 64  # of one write: large messages are not copied
LARGE_BYTES = 16 << 10  # the rest of such a message is received where it will stay
SLACK_MESSAGES = 1024  # beyond the limit: senders at once, and what was taken and not reported
ACK_US = 1000  # how long the count of what was taken waits for something to travel with

_unpack = HEADER.unpack_from
_pack = HEADER.pack
HEADER_BYTES = HEADER.size
_headers: dict[int, bytes] = {}  # of small messages, by length


def _header(length: int) -> bytes:
    """The header of a small message; to look it up costs a third of packing it."""
    return _headers.setdefault(length, _pack(DATA, length))


class QueueCarrier:
    """Carries the messages of one `RemoteQueue`; see `connection.Carrier`."""

    __slots__ = (
        "_aborting_timer",
        "_ack_armed",
        "_acked",
        "_closed_by_peer",
        "_finishing",
        "_first",
        "_frames",
        "_is_seizing",
        "_large",
        "_large_view",
        "_largest",
        "_later",
        "_piggyback",
        "_queue",
        "_received",
        "_reported",
        "_rest",
        "_seized",
        "_threshold",
        "_unread",
        "connection",
        "ending",
        "inbound",
        "outbound",
    )  # fmt: skip
    connection: Connection

    def __init__(
        self, queue: RemoteQueue, inbound: Lane, outbound: OutboundLane, first: bytes = b""
    ) -> None:
        """`first` is sent before everything else."""
        self._first = first
        self._queue = queue
        self.inbound = inbound
        self.outbound = outbound
        self.ending = ending.Ending()
        self._frames: deque[bytes] = deque()  # behind all messages of the lane
        self._finishing = False  # the loop is told that the outbound lane is drained
        self._acked = 0  # messages of ours that were taken
        self._received = 0
        self._reported = 0  # how many of the received ones were said to be taken
        self._threshold = max(1, inbound.messages_max // 4)
        # From here on the count travels with what is sent anyway: with each message of an
        # exchange it would cost both sides more than it is worth.
        self._piggyback = max(1, self._threshold // 8)
        self._ack_armed = False  # the loop looks in a moment whether a count is owed
        self._rest = b""  # the beginning of a frame
        self._large: BytesIO | None = None  # a large message that is coming in
        self._large_view: memoryview | None = None
        self._largest = 0  # as far as is remembered
        self._closed_by_peer = False
        self._seized: int | None = None  # how many were taken when the lane was seized
        self._is_seizing = False  # from here on an empty lane does not mean that all was taken
        self._unread: list[Message] = []
        self._later: deque[tuple[int, bytes]] = deque()  # frames that a leader read, for the loop
        self._aborting_timer: object = None

    # --- for the users of the queue, on any thread ------------------------------------------------

    def stop(self) -> None:
        """See `local.message_queue.Carrier`: `cut` is another one here."""

    def in_transit(self, _sender: MessageQueue) -> list[Message]:
        return []

    def release(self) -> None:
        """Nothing is kept."""

    def on_loop(self) -> bool:
        return self.connection.loop.is_own_thread()

    def took(self) -> None:
        """Messages were taken: say so if there is reason to."""
        if self._seized is not None:
            return
        owed = self._received - len(self.inbound.messages) - self._reported
        if owed <= 0:
            return
        if owed < self._threshold:
            if self._ack_armed or self.connection.looks_soon:
                return  # the loop says it in a moment
            if self.inbound.messages:
                self._ack_armed = True
                self.connection.loop.post(self._ack_soon)
                return
        self._frames.append(b"")  # `gather` says how many
        self.connection.flush()

    def drained(self) -> None:
        self.connection.loop.post(self._drained)

    def cut(self, why: str) -> None:
        self.connection.loop.post(lambda: self._cut(why))

    # --- writing: any thread, one at a time -------------------------------------------------------

    def waits(self) -> bool:
        outbound = self.outbound
        return bool(
            outbound.messages
            or self._frames
            or self._first
            or (outbound.closing and not self._finishing)
        )

    def gather(self) -> list[Part]:
        outbound = self.outbound
        messages, in_flight = outbound.messages, outbound.in_flight
        parts: list[Part] = []
        small: list[Part] = []
        size = 0
        reports = False  # the count of what was taken is wanted now
        if self._first:
            small.append(self._first)
            self._first = b""
        popleft, fly, headers = messages.popleft, in_flight.append, _headers
        for _ in range(min(len(messages), GATHERED_MESSAGES_MAX)):
            try:
                message = messages[0]
                fly(message)
                popleft()
            except IndexError:  # its sender took it back: the lane had ended
                in_flight.pop()
                break
            if type(message) is bytes:
                length = len(message)
            else:
                try:
                    message = as_bytes_view(message)
                except WrongType as error:  # its sender has released its memory
                    self._gone(error)
                    break
                length = len(message)
            if length < GATHERED_BELOW_BYTES:
                small += (headers.get(length) or _header(length), message)
            else:
                small.append(_pack(DATA, length))
                parts.append(b"".join(small))
                parts.append(message)
                small.clear()
                if len(parts) >= PARTS_MAX:
                    break
            size += length
            if size >= GATHERED_BYTES_MAX:
                break
        if not messages:
            frames = self._frames
            while frames:
                reports = True
                small.append(frames.popleft())
            if outbound.closing and not self._finishing and outbound.finish():
                self._finishing = True
                self.connection.loop.post(self._finished)
        taken = self._received - len(self.inbound.messages)
        if taken - self._reported >= (1 if reports else self._piggyback) and not self._is_seizing:
            self._reported = taken
            small.append(peer_frames.taken(taken))
        if small:
            parts.append(b"".join(small))
        return parts

    def _gone(self, error: WrongType) -> None:
        self._queue.broker.pump.report(error)
        self.connection.loop.post(
            lambda: self._queue.begin_cut("the memory of a message was released after it was sent")
        )

    # --- reading: the loop's thread ---------------------------------------------------------------

    def target(self) -> memoryview | None:
        return self._large_view

    def filled(self, count: int) -> None:
        view = self._large_view
        assert view is not None
        if count < len(view):
            self._large_view = view[count:]
            view.release()
            return
        view.release()
        self._large_view = None
        assert self._large is not None
        if self._closed_by_peer:
            raise ProtocolError("data came behind CLOSE")
        self._arrived(self._large.getvalue())
        self._large = None
        self._after_data(1)

    def feed(self, data: bytes | memoryview) -> None:
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if type(data) is not bytes and len(data) >= HEADER_BYTES:
            _kind, length = _unpack(data)
            if length < GATHERED_BELOW_BYTES:  # there are many: see `connection`
                data = bytes(data)
        is_bytes = type(data) is bytes
        at, end, closed = 0, len(data), self._closed_by_peer
        before = self._received
        large_from = self.inbound.large_from
        append = self.inbound.messages.append if self._seized is None else self._unread.append
        count = 0
        while end - at >= HEADER_BYTES:
            kind, length = _unpack(data, at)
            start = at + HEADER_BYTES
            stop = start + length
            if stop > end:
                if kind == DATA and LARGE_BYTES <= length <= MESSAGE_BYTES_MAX:
                    self._begin_large(memoryview(data)[start:], length)
                    at = end
                else:
                    peer_frames.check_header(kind, length, opened=True)
                break
            if kind == DATA:
                if closed:
                    raise ProtocolError("data came behind CLOSE")
                if length >= large_from:
                    self._threshold = 1
                    self._check_bytes(length)
                append(data[start:stop] if is_bytes else bytes(data[start:stop]))
                count += 1
            else:
                self._received = before + count
                closed = self._closed_by_peer = closed or kind == Kind.CLOSE
                peer_frames.check_header(kind, length, opened=True)
                self._heard(kind, bytes(data[start:stop]))
                append = (
                    self.inbound.messages.append if self._seized is None else self._unread.append
                )
            at = stop
        self._received = before + count
        if at < end:
            self._rest = bytes(data[at:])
        if count:
            self._after_data(count)

    def _begin_large(self, begun: memoryview, length: int) -> None:
        if length >= self.inbound.large_from:
            self._threshold = 1
            self._check_bytes(length)
        # As in `local.mixed_queue_broker`: a BytesIO lends out the memory of its bytes object.
        self._large = BytesIO(bytes(length))
        view = self._large.getbuffer()
        view[: len(begun)] = begun
        self._large_view = view[len(begun) :]
        view.release()

    def _check_bytes(self, length: int) -> None:
        """A large message comes. Its sender counts bytes against our limit; so do we, loosely: one
        message may be of any size, and small ones that were sent at once may go with it."""
        lane = self.inbound
        self._largest = max(self._largest, length)
        if len(lane.messages) * self._largest <= 2 * lane.bytes_max:
            return  # nothing to add up
        sizes = [*map(len, list(lane.messages)), length]
        self._largest = max(sizes)
        if sum(sizes) - self._largest > 2 * lane.bytes_max:
            raise ProtocolError(f"{sum(sizes)} bytes came, and {lane.bytes_max} were allowed")

    def _arrived(self, message: bytes) -> None:
        (self.inbound.messages if self._seized is None else self._unread).append(message)
        self._received += 1

    def _after_data(self, count: int) -> None:
        lane = self.inbound
        if self._seized is not None:
            return
        if len(lane.messages) > 2 * lane.messages_max + SLACK_MESSAGES:
            raise ProtocolError(
                f"{len(lane.messages)} messages came, and {lane.messages_max} were allowed"
            )
        takers = lane.takers
        for _ in range(min(count, len(takers))):
            takers.wake_one()
        if not self._ack_armed and self.connection.loop.is_own_thread():
            self._ack_armed = True
            self.connection.loop.after(ACK_US, self._ack)

    def _ack_soon(self) -> None:
        self.connection.loop.after(ACK_US, self._ack)

    def _ack(self) -> None:
        self._ack_armed = False
        self.owed()

    def owed(self) -> None:
        if self._seized is None and not self.ending.ended:
            owed = self._received - len(self.inbound.messages) - self._reported
            if owed > 0:
                self._frames.append(b"")
                self.connection.flush()

    def _heard(self, kind: int, body: bytes) -> None:
        if kind == TAKEN:
            self._taken_through(peer_frames.read_count(body))
        elif not self.connection.loop.is_own_thread():  # a leader has read it
            self._later.append((kind, body))
            self.connection.loop.post(self._hear_later)
        else:
            self._hear_first()
            self._heard_end(kind, body)

    def _heard_end(self, kind: int, body: bytes) -> None:
        if kind == Kind.CLOSE:
            self._step(ending.HeardClose())
        elif kind == Kind.DRAINED:
            self._step(ending.HeardDrained())
        elif kind == Kind.ABORT:
            count = peer_frames.read_count(body)
            self._taken_through(count)
            self._step(ending.HeardAbort(count, peer_frames.read_why(body)))
        else:
            count = peer_frames.read_count(body)
            self._taken_through(count)
            self._step(ending.HeardAborted(count))

    def _hear_first(self) -> None:
        """What a leader has read, and the loop did not come to yet, came first."""
        while self._later:
            self._heard_end(*self._later.popleft())

    def _hear_later(self) -> None:
        try:
            self._hear_first()
        except ProtocolError as error:
            self.connection.fail(f"the other process speaks nonsense: {error}")

    def _taken_through(self, count: int) -> None:
        """The other side has taken so many of our messages since the beginning."""
        outbound = self.outbound
        in_flight = outbound.in_flight
        new = count - self._acked
        if new < 0 or new > len(in_flight):
            raise ProtocolError(
                f"{count} messages are said to be taken; {self._acked} were before, and "
                f"{len(in_flight)} are on their way"
            )
        if not new:
            return
        self._acked = count
        taken = [in_flight.popleft() for _ in range(new)]
        if outbound.room or outbound.refused or outbound.large_count:
            for message in taken:
                outbound.taken(message)
        self._queue.report_sent(taken)

    # --- the end: the loop's thread ---------------------------------------------------------------

    def _finished(self) -> None:
        self._step(ending.Finished())

    def _drained(self) -> None:
        self._step(ending.Drained())

    def _cut(self, why: str) -> None:
        self._seize()
        assert self._seized is not None
        self._step(ending.Cut(self._seized, why))

    def wake_readers(self) -> None:
        self.inbound.takers.wake_all()
        self.outbound.room.wake_all()

    def lost(self, why: str) -> None:
        with suppress(ProtocolError):
            self._hear_first()
        self._step(ending.Lost(why))

    def _step(self, event: ending.Event) -> None:
        for effect in self.ending.step(event):
            match effect:
                case ending.SendClose():
                    self._send(peer_frames.bare(Kind.CLOSE))
                case ending.SendDrained():
                    self._reported = self._received
                    self._send(peer_frames.taken(self._reported) + peer_frames.bare(Kind.DRAINED))
                case ending.SendAbort():
                    self._send_rest()
                    self._send(peer_frames.abort(effect.taken, effect.why))
                    self._aborting_timer = self.connection.loop.after(
                        int(ABORT_SECONDS * 1e6), self._abort_unanswered
                    )
                case ending.Seize():
                    self._queue.is_cut(effect.why)  # first: no reader takes it for a close
                    self._seize()
                    self._send_rest()
                    assert self._seized is not None
                    self._send(peer_frames.aborted(self._seized))
                case ending.CloseInbound():
                    self.inbound.close()
                    self._queue.look_again()
                case ending.End():
                    self._end(effect)

    def _send(self, frame: bytes) -> None:
        self._frames.append(frame)
        self.connection.flush()

    def _send_rest(self) -> None:
        """What was accepted and did not leave yet: the other side lists it as unread."""
        outbound = self.outbound
        with self.connection.nobody_writes():
            for message in outbound.seize():
                outbound.in_flight.append(message)
                try:
                    view = as_bytes_view(message)
                except WrongType:
                    view = memoryview(b"")
                self._frames.append(_pack(DATA, len(view)) + bytes(view))

    def _seize(self) -> None:
        """From now on nothing is taken here: what comes is unread."""
        if self._seized is None:
            self.connection.read_alone()
            self._is_seizing = True  # before the lane is empty: `gather` counts it on any thread
            self._unread = self.inbound.seize()
            self._seized = self._received - len(self._unread)

    def _abort_unanswered(self) -> None:
        if not self.ending.ended:
            self.connection.fail(
                f"the other process did not answer within {in_seconds(ABORT_SECONDS)}"
            )

    def _end(self, end: ending.End) -> None:
        if end.why:
            reason = self._queue.is_cut(end.why)
            self._seize()
            outbound = self.outbound
            with self.connection.nobody_writes():
                left = outbound.seize()
                in_flight = list(outbound.in_flight)
                outbound.in_flight.clear()
            reason.undelivered = [*in_flight, *left]
            reason.unread = self._unread
            reason.in_doubt = in_flight if end.taken is None else []
        self._queue.is_over(was_cut=bool(end.why))
        self.connection.close_when_sent()
