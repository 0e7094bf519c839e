"""Bytes in and frames out: the framing that clients, brokers and nodes share.

Rule 1: nothing here knows a socket, a thread or a clock; the driver of a connection moves bytes.
Rule 2: nothing is believed before it is checked: lengths against limits before memory is taken,
the header against its CRC before it is decoded.
Rule 3: a payload belongs to its receiver: its memory is never written again.

A frame is a prefix of 16 bytes (length of the header, its CRC-32C, length of the payload), the
header, the payload, and zeros to a multiple of 8. Small frames are received into a chunk, many at a
time, and their payloads are slices of the chunk. A larger payload that is not all there yet gets
memory of its own and arrives in place. That memory is at most 8 times what has really arrived (a
bytearray is cleared when it is made, so it costs its whole size at once): a peer that only
announces much costs us little.

Clients and nodes come to the same port. The frames of nodes have a mark in the length of their
header, in a bit that no length reaches, so the first word of a connection says who calls.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Generic, TypeVar

from crc32c import crc32c

from hocket.errors import ProtocolError

if TYPE_CHECKING:
    from typing_extensions import Buffer

PREFIX = struct.Struct("<IIQ")  # header length, CRC-32C of the header, payload length
PREFIX_BYTES = PREFIX.size
LENGTH = struct.Struct("<I")  # of the header: the first field of the prefix
NODE_MARK = 1 << 31  # in the header length of every frame that a node sends a node
HEADER_BYTES_MAX = 1 << 20
OPENING_HEADER_BYTES_MAX = 64 << 10  # before the answer to a hello

CHUNK_BYTES_MIN = 4 << 10  # what an idle connection holds
CHUNK_BYTES_MAX = 64 << 10  # what one read takes in when there is much
IN_CHUNK_MAX = 16 << 10  # a larger payload gets memory of its own, unless it is all there already
FIRST_PAYLOAD_MEMORY = 256 << 10  # taken for a payload of which nothing is there yet
GROWTH = 8  # how many times what has arrived is held ready for a payload

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


F = TypeVar("F")


class FrameStream(Generic[F]):
    """The receiving end of a stream of frames.

    After a ProtocolError, every call raises one. Frames that came before the breach are always
    returned first; the error is then raised by the next call, and `error` holds it at once.
    """

    __slots__ = (
        "_chunk", "_chunk_bytes", "_chunk_is_shared", "_end", "_frame", "_header_bytes_max",
        "_mark", "_payload", "_payload_bytes_max", "_payload_length", "_start", "_wanted", "error",
        "handed_over",
    )  # fmt: skip

    def __init__(self, mark: int = 0) -> None:
        self.error: ProtocolError | None = None
        self.handed_over = False  # no frames follow: what comes is `unread`, for somebody else
        self._mark = mark  # in the header length of each frame
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
        self._frame: F | None = None
        self._payload_length = 0
        self._payload: _Payload | None = None

    # --- what a kind of connection says -----------------------------------------------------------

    def _opened(self, header: memoryview, payload_length: int) -> F:
        """The frame of a header; the payload has not arrived. Raises ProtocolError."""
        raise NotImplementedError

    def _situation(self) -> str:
        """Where the limits that hold now are those."""
        raise NotImplementedError

    def _beyond(self, length: int, payload_length: int) -> int:
        """A frame is longer than is allowed, or has the mark of others. Raises ProtocolError, or
        returns the length of its header if it is welcome nevertheless."""
        raise ProtocolError(
            f"a frame of {length} + {payload_length} bytes; at most {self._header_bytes_max} "
            f"+ {self._payload_bytes_max} (header + payload) are allowed {self._situation()}"
        )

    @property
    def unread(self) -> memoryview:
        """What has arrived and was not decoded; for whoever takes the connection over."""
        return self._chunk[self._start : self._end]

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

    def buffer_updated(self, count: int) -> list[tuple[F, memoryview]]:
        """`count` bytes were put into the buffer. Returns the frames that are complete now.

        Each comes with its payload, empty if it has none: read-only, and valid for as long as it is
        referenced. (A small one keeps its chunk of up to 64 KiB alive: copy what you keep long.)
        """
        self._check_alive()
        received: list[tuple[F, memoryview]] = []
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

    def receive(self, data: Buffer) -> list[tuple[F, memoryview]]:
        """`get_buffer` and `buffer_updated` in one, for bytes that lie somewhere else."""
        rest = memoryview(data).cast("B")
        received: list[tuple[F, memoryview]] = []
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

    def _take_frames(self, received: list[tuple[F, memoryview]]) -> None:
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
        if self.handed_over:
            return False
        start = self._start
        available = self._end - start
        self._wanted = PREFIX_BYTES
        if available < PREFIX_BYTES:
            # A stranger may say less than that and then wait: it is known by its first bytes.
            if not self._payload_bytes_max and available >= LENGTH.size:
                length = LENGTH.unpack_from(self._chunk, start)[0] ^ self._mark
                if length > self._header_bytes_max:
                    self._beyond(length, 0)
            return False
        length, crc, payload_length = PREFIX.unpack_from(self._chunk, start)
        length ^= self._mark
        if length > self._header_bytes_max or payload_length > self._payload_bytes_max:
            length = self._beyond(length, payload_length)
        self._wanted += length
        if available < self._wanted:
            return False
        header = self._chunk[start + PREFIX_BYTES : start + self._wanted]
        if crc32c(header) != crc:
            raise ProtocolError(f"a frame header of {length} bytes does not match its checksum")
        self._frame, self._payload_length = self._opened(header, payload_length), payload_length
        self._start += self._wanted
        return True

    def _await_payload(self, padded: int) -> None:
        if padded <= IN_CHUNK_MAX:
            self._wanted = padded
            return
        self._payload = _Payload(padded, self._chunk[self._start : self._end])
        self._start = self._end

    def _take_own_payload(self, payload: _Payload, received: list[tuple[F, memoryview]]) -> None:
        if payload.filled == payload.size:
            assert self._frame is not None
            view = _without_padding(payload.view, self._payload_length)
            received.append((self._frame, view))
            self._frame = self._payload = None

    def _check_alive(self) -> None:
        if self.error is not None:
            raise ProtocolError(f"the connection has failed: {self.error}") from self.error

    def _failed(self, reason: str) -> ProtocolError:
        self.error = ProtocolError(reason)
        return self.error


def framed(
    header: bytes, payload: list[bytes | bytearray | memoryview], mark: int = 0
) -> list[Buffer]:
    """The buffers to write for a frame; the payload is not copied."""
    length = sum(map(len, payload))
    prefix = PREFIX.pack(len(header) | mark, crc32c(header), length)
    return [prefix + header, *payload, *_PADDING[length % 8]]


def begins_a_link(first: bytes) -> bool:
    """Whether a connection that begins like this is a node's, for all that its first word says."""
    if len(first) < LENGTH.size:
        return False
    (length,) = LENGTH.unpack_from(first)
    return bool(length ^ NODE_MARK <= OPENING_HEADER_BYTES_MAX)


def as_bytes(buffer: Buffer) -> bytes | bytearray | memoryview:
    """The same memory, measured in bytes."""
    return buffer if isinstance(buffer, (bytes, bytearray)) else memoryview(buffer).cast("B")


def _without_padding(padded: memoryview, length: int) -> memoryview:
    if len(padded) != length and any(padded[length:]):
        raise ProtocolError(f"a payload of {length} bytes is padded with something else than zeros")
    return padded[:length].toreadonly()
