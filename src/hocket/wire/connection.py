"""One end of a connection: bytes in and frames out, frames in and bytes out.

Rule 1: nothing here knows a socket, a thread or a clock; the driver of a connection moves bytes.
Rule 2: nothing is believed before it is checked: lengths against limits before memory is taken,
the header against its CRC before it is decoded, the kind against `RULES` before it is read.
Rule 3: a payload belongs to its receiver: its memory is never written again.

A frame is a prefix of 16 bytes (length of the header, its CRC-32C, length of the payload), the
header, the payload, and zeros to a multiple of 8. Small frames are received into a chunk, many at a
time, and their payloads are slices of the chunk. A larger payload that is not all there yet gets
memory of its own and arrives in place. That memory is at most 8 times what has really arrived (a
bytearray is cleared when it is made, so it costs its whole size at once): a peer that only
announces much costs us little.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from crc32c import crc32c

from hocket.errors import MessageTooLarge, ProtocolError
from hocket.frames import (
    Access,
    Deliver,
    Done,
    Explained,
    Failure,
    Frame,
    Goodbye,
    HandleEnded,
    Hello,
    Indexes,
    KeyIsOwned,
    Lease,
    Moved,
    NodesAre,
    Offsets,
    PartitionsChanged,
    Ping,
    ProducerOpened,
    Publish,
    Published,
    Push,
    PushAcked,
    PushRefused,
    RingIs,
    Settled,
    SubscriptionOpened,
    TokenIssued,
    Topics,
    Welcome,
)
from hocket.model import Limits
from hocket.wire.frame_codec import decode, encode

if TYPE_CHECKING:
    from typing_extensions import Buffer

PREFIX = struct.Struct("<IIQ")  # header length, CRC-32C of the header, payload length
PREFIX_BYTES = PREFIX.size
HEADER_BYTES_MAX = 1 << 20
OPENING_HEADER_BYTES_MAX = 64 << 10  # before the Welcome

CHUNK_BYTES_MIN = 4 << 10  # what an idle connection holds
CHUNK_BYTES_MAX = 64 << 10  # what one read takes in when there is much
IN_CHUNK_MAX = 16 << 10  # a larger payload gets memory of its own, unless it is all there already
FIRST_PAYLOAD_MEMORY = 256 << 10  # taken for a payload of which nothing is there yet
GROWTH = 8  # how many times what has arrived is held ready for a payload

Received = list[tuple[Frame, memoryview]]
Role = Literal["client", "server"]
Phase = Literal["silent", "greeted", "open", "refused"]


class Rule(NamedTuple):
    """What one side may send in one phase."""

    kinds: frozenset[type[Frame]]
    situation: str


_BY_EITHER: frozenset[type[Frame]] = frozenset({Goodbye, Ping, Done})
_BY_SERVER: frozenset[type[Frame]] = _BY_EITHER | {
    Failure, Topics, Offsets, ProducerOpened, PushAcked, PushRefused, Published,
    SubscriptionOpened, Deliver, Moved, HandleEnded, PartitionsChanged, Indexes, Lease, Settled,
    TokenIssued, Access, Explained, RingIs, KeyIsOwned, NodesAre,
}  # fmt: skip
_BY_CLIENT: frozenset[type[Frame]] = _BY_EITHER | (
    frozenset(get_args(Frame)) - _BY_SERVER - {Hello, Welcome}
)

RULES: dict[tuple[Phase, Role], Rule] = {
    ("silent", "client"): Rule(frozenset({Hello}), "from a client before its Hello"),
    ("silent", "server"): Rule(frozenset({Failure}), "from a server before the client's Hello"),
    ("greeted", "client"): Rule(frozenset(), "from a client before the Welcome"),
    ("greeted", "server"): Rule(frozenset({Welcome, Failure}), "as the answer to Hello"),
    ("open", "client"): Rule(_BY_CLIENT, "from a client"),
    ("open", "server"): Rule(_BY_SERVER, "from a server after its Welcome"),
    # A Hello may have been under way when the server refused.
    ("refused", "client"): Rule(frozenset({Hello}), "from a client that was refused"),
    ("refused", "server"): Rule(frozenset({Goodbye}), "from a server that has refused"),
}
NEXT_PHASE: dict[tuple[Phase, type[Frame]], Phase] = {
    ("silent", Hello): "greeted",
    ("silent", Failure): "refused",
    ("greeted", Welcome): "open",
    ("greeted", Failure): "refused",
}
WITH_PAYLOAD: frozenset[type[Frame]] = frozenset({Push, Publish, Deliver, Lease})

_NOTHING = memoryview(b"")
_PADDING = [[bytes(-length % 8)] if length else [] for length in range(8)]  # by length modulo 8


class _Payload:
    """Memory of its own for one payload, with its padding, growing as the bytes arrive.

    Each step is 8 times the one before, and the last has the exact size. So no read goes beyond
    this frame, and at most a seventh of the payload is ever copied.
    """

    __slots__ = ("filled", "size", "view")

    def __init__(self, size: int, begun: memoryview) -> None:
        self.size = size
        step = size
        while step > FIRST_PAYLOAD_MEMORY and step > GROWTH * len(begun):
            step = -(-step // GROWTH)
        self._move(begun, step)

    def _move(self, begun: memoryview, size: int) -> None:
        self.view = memoryview(bytearray(size))
        self.view[: len(begun)] = begun
        self.filled = len(begun)

    def room(self) -> memoryview:
        if self.filled == len(self.view):
            self._move(self.view, min(self.size, GROWTH * self.filled))
        return self.view[self.filled :]


class Connection:
    """One end of a connection.

    Receiving and sending may happen on two threads, but each on one at a time. After a
    ProtocolError, whichever side caused it, every call but `farewell` raises one: close the
    connection. Frames that came before the breach are always returned first; the error is then
    raised by the next call, and `error` holds it at once.

    A client takes over the limits that the server's Welcome names; they hold in both directions.
    """

    __slots__ = (
        "_chunk", "_chunk_bytes", "_chunk_is_shared", "_end", "_frame", "_header_bytes_max",
        "_payload", "_payload_bytes_max", "_payload_length", "_peer", "_start", "_wanted",
        "error", "limits", "phase", "role",
    )  # fmt: skip

    def __init__(self, role: Role, limits: Limits | None = None) -> None:
        self.role: Role = role
        self.limits = Limits() if limits is None else limits
        self.phase: Phase = "silent"
        self.error: ProtocolError | None = None
        self._peer: Role = "server" if role == "client" else "client"
        self._header_bytes_max = OPENING_HEADER_BYTES_MAX
        self._payload_bytes_max = 0
        # The bytes from _start to _end of the chunk have been received but not decoded yet.
        self._chunk_bytes = CHUNK_BYTES_MIN
        self._chunk = memoryview(bytearray(CHUNK_BYTES_MIN))
        self._chunk_is_shared = False  # payloads handed out are slices of it
        self._start = 0
        self._end = 0
        self._wanted = PREFIX_BYTES  # how many bytes from _start on the next step needs
        # A frame whose payload is not all there, and the payload's own memory, if it has any.
        self._frame: Frame | None = None
        self._payload_length = 0
        self._payload: _Payload | None = None

    # --- receiving -------------------------------------------------------------------------------

    def get_buffer(self) -> memoryview:
        """Where to put the next bytes; never empty. It is valid until `buffer_updated`."""
        self._check_alive()
        if self._payload is not None:
            return self._payload.room()
        if self._start == self._end and not self._chunk_is_shared:
            self._start = self._end = 0
        if len(self._chunk) - self._end < self._chunk_bytes // 8:
            self._make_room()
        return self._chunk[self._end :]

    def buffer_updated(self, count: int) -> Received:
        """`count` bytes were put into the buffer. Returns the frames that are complete now.

        Each comes with its payload, empty if it has none: read-only, and valid for as long as it is
        referenced. (A small one keeps its chunk of up to 64 KiB alive: copy what you keep long.)
        """
        self._check_alive()
        received: Received = []
        try:
            if self._payload is not None:
                self._payload.filled += count
                self._take_own_payload(self._payload, received)
            else:
                self._end += count
                if self._end == len(self._chunk):  # there may be more than we can take at once
                    self._chunk_bytes = min(2 * self._chunk_bytes, CHUNK_BYTES_MAX)
                self._take_frames(received)
        except ProtocolError as exc:
            self.error = exc
            if not received:
                raise
        return received

    def receive(self, data: Buffer) -> Received:
        """`get_buffer` and `buffer_updated` in one, for bytes that lie somewhere else."""
        rest = memoryview(data).cast("B")
        received: Received = []
        while rest and not (received and self.error):
            buffer = self.get_buffer()
            count = min(len(rest), len(buffer))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            try:
                received += self.buffer_updated(count)
            except ProtocolError:
                if not received:
                    raise
        return received

    def received_end(self) -> None:
        """The other side sends no more. Raises ProtocolError in the middle of a frame."""
        self._check_alive()
        if self._frame is not None or self._start != self._end:
            raise self._failed("the connection ended in the middle of a frame")

    def _make_room(self) -> None:
        """Move the bytes that are not decoded yet to the beginning of a chunk with room."""
        begun = self._chunk[self._start : self._end]
        size = max(self._chunk_bytes, min(self._wanted, GROWTH * len(begun)))
        if self._chunk_is_shared or len(self._chunk) < size:
            self._chunk = memoryview(bytearray(size))
            self._chunk_is_shared = False
        self._chunk[: len(begun)] = begun
        self._start, self._end = 0, len(begun)

    def _take_frames(self, received: Received) -> None:
        """Every frame that is complete in the chunk."""
        while self._frame is not None or self._take_header():
            assert self._frame is not None
            payload = _NOTHING
            if length := self._payload_length:
                padded = (length + 7) & ~7
                if self._end - self._start < padded:
                    self._await_payload(padded)
                    return
                payload = _without_padding(self._chunk[self._start : self._start + padded], length)
                self._chunk_is_shared = True
                self._start += padded
            received.append((self._frame, payload))
            self._frame = None

    def _take_header(self) -> bool:
        """Take the next frame without its payload. False if it is not all there."""
        start = self._start
        available = self._end - start
        self._wanted = PREFIX_BYTES
        if available < PREFIX_BYTES:
            return False
        length, crc, payload_length = PREFIX.unpack_from(self._chunk, start)
        if length > self._header_bytes_max or payload_length > self._payload_bytes_max:
            raise ProtocolError(
                f"a frame of {length} + {payload_length} bytes; at most {self._header_bytes_max} "
                f"+ {self._payload_bytes_max} (header + payload) are allowed {self._situation()}"
            )
        self._wanted += length
        if available < self._wanted:
            return False
        header = self._chunk[start + PREFIX_BYTES : start + self._wanted]
        if crc32c(header) != crc:
            raise ProtocolError(f"a frame header of {length} bytes does not match its checksum")
        rule = RULES[self.phase, self._peer]
        frame = decode(header, rule.kinds, rule.situation)
        if payload_length and type(frame) not in WITH_PAYLOAD:
            raise ProtocolError(f"{type(frame).__name__} has a payload; it may not have one")
        self._passed(frame)
        self._frame, self._payload_length = frame, payload_length
        self._start += self._wanted
        return True

    def _await_payload(self, padded: int) -> None:
        if padded <= IN_CHUNK_MAX:
            self._wanted = padded
            return
        self._payload = _Payload(padded, self._chunk[self._start : self._end])
        self._start = self._end

    def _take_own_payload(self, payload: _Payload, received: Received) -> None:
        if payload.filled == payload.size:
            assert self._frame is not None
            view = _without_padding(payload.view, self._payload_length)
            received.append((self._frame, view))
            self._frame = self._payload = None

    # --- sending ---------------------------------------------------------------------------------

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> list[Buffer]:
        """The buffers to write, in this order, for this frame; the payload is not copied.

        `len` of each buffer is in bytes. Raises MessageTooLarge if the frame is more than the other
        side takes, OutOfRange or WrongType if a field does not fit; then nothing has happened.
        Raises ProtocolError if this side may not send the frame now; then the connection has
        failed.
        """
        self._check_alive()
        rule = RULES[self.phase, self.role]
        if type(frame) not in rule.kinds:
            raise self._failed(f"{type(frame).__name__} is not allowed {rule.situation}")
        if payload and type(frame) not in WITH_PAYLOAD:
            raise self._failed(f"{type(frame).__name__} has a payload; it may not have one")
        buffers = [_as_bytes(each) for each in payload]
        length = sum(map(len, buffers))
        header = encode(frame)
        if len(header) > self._header_bytes_max or length > self._payload_bytes_max:
            raise MessageTooLarge(
                f"{type(frame).__name__} takes {len(header)} + {length} bytes; at most "
                f"{self._header_bytes_max} + {self._payload_bytes_max} (header + payload) are "
                f"allowed {self._situation()}"
            )
        self._passed(frame)
        return _framed(header, buffers)

    def farewell(self) -> list[Buffer]:
        """What to write before closing, after the other side broke the protocol: it says why."""
        assert self.error is not None, "farewell is for a connection that has failed"
        reason = str(self.error)
        if self.phase == "open":
            return _framed(encode(Goodbye(0, reason)), [])
        if self.role == "server" and self.phase != "refused":
            return _framed(encode(Failure(0, ProtocolError.code, reason)), [])
        return []  # a client that is not welcome yet has nothing to say

    # --- both ------------------------------------------------------------------------------------

    def _passed(self, frame: Frame) -> None:
        """An allowed frame was received or sent: change the phase if it ends one."""
        if self.phase == "open":
            return
        if isinstance(frame, Welcome):
            if self.role == "client":
                self.limits = frame.limits
            self._header_bytes_max = HEADER_BYTES_MAX
            self._payload_bytes_max = self.limits.frame_bytes_max
        self.phase = NEXT_PHASE.get((self.phase, type(frame)), self.phase)

    def _situation(self) -> str:
        return "on this connection" if self.phase == "open" else "before the Welcome"

    def _check_alive(self) -> None:
        if self.error is not None:
            raise ProtocolError(f"the connection has failed: {self.error}") from self.error

    def _failed(self, reason: str) -> ProtocolError:
        self.error = ProtocolError(reason)
        return self.error


def _framed(header: bytes, payload: list[bytes | bytearray | memoryview]) -> list[Buffer]:
    length = sum(map(len, payload))
    prefix = PREFIX.pack(len(header), crc32c(header), length)
    return [prefix + header, *payload, *_PADDING[length % 8]]


def _as_bytes(buffer: Buffer) -> bytes | bytearray | memoryview:
    """The same memory, measured in bytes."""
    return buffer if isinstance(buffer, (bytes, bytearray)) else memoryview(buffer).cast("B")


def _without_padding(padded: memoryview, length: int) -> memoryview:
    if len(padded) != length and any(padded[length:]):
        raise ProtocolError(f"a payload of {length} bytes is padded with something else than zeros")
    return padded[:length].toreadonly()
