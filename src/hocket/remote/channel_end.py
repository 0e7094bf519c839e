"""One end of a channel whose other end is in another process.

To its user it is a `Channel` like any other, whose partner end is ours: what the user writes is
read here and sent from where it lies in the ring, and what comes is put into the other ring, from
which the user reads. A ring takes what its reader's process has room for, as the other side was
told, so that the loop never waits and always hears of the end.

Rule 1: the thread that writes to the channel also sends, if nobody else does. The loop's thread
        reads, and ends the connection.
Rule 2: CLOSE means that its sender has left, in both directions, as `disconnect` does. It comes
        behind all bytes that were written before.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hocket.errors import Disconnected, ProtocolError
from hocket.local.channel import Channel, inbound_of, outbound_of
from hocket.remote import peer_frames
from hocket.remote.connection import Connection
from hocket.remote.peer_frames import DATA, HEADER, TAKEN, Kind

if TYPE_CHECKING:
    from hocket.remote.connection import Part

HEADER_BYTES = HEADER.size
PIECE_BYTES = 256 << 10  # of one frame


class ChannelCarrier:
    """Carries the bytes of one channel; see `connection.Carrier`."""

    __slots__ = (
        "_acked", "_close_sent", "_end", "_frames", "_from_user", "_heard_close", "_left",
        "_looked", "_received", "_reported", "_rest", "_room", "_sent", "_to_user", "_watches",
        "connection",
    )  # fmt: skip
    connection: Connection

    def __init__(self, end: Channel, room: int) -> None:
        """`end` is the partner of the user's own; the other process has room for `room` bytes."""
        self._end = end
        self._from_user = inbound_of(end)
        self._to_user = outbound_of(end)
        self._room = room
        self._frames: deque[bytes] = deque()
        self._looked = 0  # bytes of the ring that were given to be sent, and stay there until then
        self._sent = 0
        self._acked = 0
        self._received = 0
        self._reported = 0
        self._rest = b""
        self._left = 0  # bytes of a frame of data that are still to come
        self._close_sent = False
        self._heard_close = False

    def joined(self, connection: Connection, first: bytes = b"") -> None:
        """From now on what is written leaves; `first` before everything else."""
        self.connection = connection
        if first:
            self._frames.append(first)
        self._from_user.readers.append(self._written)
        self._to_user.writers.append(self._read)

    # --- told by the rings, on the user's thread --------------------------------------------------

    def _written(self) -> bool:
        """The user has written, or has left."""
        self.connection.flush()
        if not self._close_sent:
            self._from_user.readers.append(self._written)
            if self.waits():  # it came between the flush and the word that we wait
                self.connection.flush()
        return True

    def _read(self) -> bool:
        """The user has read."""
        if not self._heard_close and not self._close_sent:
            self._to_user.writers.append(self._read)
            if self._must_report():
                self.connection.flush()
        return True

    def _owed(self) -> int:
        return self._received - len(self._to_user) - self._reported

    # --- writing: any thread, one at a time -------------------------------------------------------

    def waits(self) -> bool:
        stream = self._from_user
        if self._looked or self._frames:
            return True
        if self._close_sent:
            return False
        if len(stream):
            return self._sent - self._acked < self._room or self._must_report()
        return self._has_left() or self._must_report()

    def _has_left(self) -> bool:
        """The user has, and all that was written is sent. To say so takes no room."""
        stream = self._from_user
        return stream.writer_gone and not len(stream)

    def _must_report(self) -> bool:
        owed = self._owed()
        return owed > 0 and (owed >= self._to_user.capacity // 4 or not len(self._to_user))

    def gather(self) -> list[Part]:
        stream = self._from_user
        if self._looked:
            stream.skip(self._looked)
            self._looked = 0
        parts: list[Part] = []
        while self._frames:
            parts.append(self._frames.popleft())
        if self._close_sent:
            return parts
        owed = self._owed()
        if owed > 0:
            self._reported += owed
            parts.append(peer_frames.taken(self._reported))
        room = min(self._room - (self._sent - self._acked), PIECE_BYTES)
        if room <= 0 and not self._has_left():
            return parts
        try:
            view = stream.look(max(room, 1))
        except Disconnected:  # the user has left, and all that was written is sent
            self._close_sent = True
            parts.append(peer_frames.bare(Kind.CLOSE))
            self.connection.loop.post(self._close_if_over)
            return parts
        if view is not None:
            self._looked = len(view)
            self._sent += len(view)
            parts.append(HEADER.pack(DATA, len(view)))
            parts.append(view)
        return parts

    # --- reading: the loop's thread ---------------------------------------------------------------

    def target(self) -> memoryview | None:
        return None

    def filled(self, _count: int) -> None:
        raise AssertionError("nothing is received apart")

    def owed(self) -> None:
        if self._owed() > 0:
            self.connection.flush()

    def wake_readers(self) -> None:
        """Only the loop reads."""

    def feed(self, data: bytes | memoryview) -> None:
        if self._rest:
            data = self._rest + data
            self._rest = b""
        at, end = 0, len(data)
        while at < end:
            if self._left:
                piece = memoryview(data)[at : at + self._left]
                self._put(piece)
                at += len(piece)
                self._left -= len(piece)
                continue
            if end - at < HEADER_BYTES:
                break
            kind, length = HEADER.unpack_from(data, at)
            if kind == DATA:
                if self._heard_close or length > PIECE_BYTES:
                    raise ProtocolError(f"DATA of {length} bytes came, and was not allowed")
                at += HEADER_BYTES
                self._left = length
                continue
            peer_frames.check_header(kind, length, opened=True)
            stop = at + HEADER_BYTES + length
            if stop > end:
                break
            self._heard(kind, bytes(data[at + HEADER_BYTES : stop]))
            at = stop
        self._rest = bytes(data[at:])

    def _put(self, piece: memoryview) -> None:
        stream = self._to_user
        self._received += len(piece)
        if stream.closed:  # our user has left: nobody will read it
            self._reported = self._received
            return
        size = len(piece)
        put = stream.put(piece, size)
        if put < size:
            if stream.closed:
                return
            raise ProtocolError(f"{size} bytes came, and {put} were allowed")
        try:
            if stream.closed or stream.readers:
                stream.after_put(size)
        except Disconnected:
            return

    def _heard(self, kind: int, body: bytes) -> None:
        if kind == TAKEN:
            count = peer_frames.read_count(body)
            if not self._acked <= count <= self._sent:
                raise ProtocolError(f"{count} bytes are said to be taken, and {self._sent} left")
            self._acked = count
            self.connection.flush()
        elif kind == Kind.CLOSE and not self._heard_close:
            self._heard_close = True
            self._end.disconnect()
            self._close()
        else:
            raise ProtocolError(f"a frame of kind {kind} is not for a channel")

    # --- the end: the loop's thread ---------------------------------------------------------------

    def _close(self) -> None:
        """The other side has left: what our user wrote and it did not read is gone with it."""
        if not self._close_sent:
            self._close_sent = True
            self._frames.append(peer_frames.bare(Kind.CLOSE))
            self.connection.flush()
        self._close_if_over()

    def _close_if_over(self) -> None:
        if self._close_sent and self._heard_close:
            self.connection.close_when_sent()

    def lost(self, why: str) -> None:
        if not self._heard_close and not self._close_sent:
            for stream in (self._from_user, self._to_user):
                stream.why = f"the connection to the other process was lost: {why}"
        self._heard_close = self._close_sent = True
        self._end.disconnect()
