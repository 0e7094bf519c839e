"""The bytes of a link between two nodes: a magic word, then frames as between client and broker.

A frame is a prefix of 16 bytes (length of the header, its CRC-32C, length of the payload), the
header, the payload, and zeros to a multiple of 8. The magic word cannot begin a client's first
frame: read as the length of a header, it is far beyond what a Hello may have. So nodes and clients
share one port.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crc32c import crc32c

from hocket.errors import ProtocolError
from hocket.wire.connection import PREFIX, PREFIX_BYTES

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAGIC = b"HKTLINK1"
HEADER_BYTES_MAX = 4 << 20
PAYLOAD_BYTES_MAX = 64 << 20
HELLO_BYTES_MAX = 64 << 10  # of the first frame, from somebody who is not known yet
ROOM_BYTES = 64 << 10  # what one read takes in at most, unless a frame is larger
_PADDING = [bytes(-length % 8) for length in range(8)]  # by length modulo 8


def framed(header: bytes, payload: Sequence[Buffer] = ()) -> list[memoryview]:
    """The buffers of a frame, none of them empty. The payload is not copied."""
    views = [memoryview(each).cast("B") for each in payload]
    length = sum(map(len, views))
    head = PREFIX.pack(len(header), crc32c(header), length) + header
    views = [memoryview(head), *views, memoryview(_PADDING[length % 8])]
    return [view for view in views if len(view)]  # a writer takes an empty one for a full socket


class LinkReader:
    """Takes bytes in, gives frames out. After a ProtocolError nothing more may be asked of it."""

    __slots__ = ("_data", "_filled", "_header_max", "_payload_max", "_wanted")

    def __init__(self) -> None:
        self._data = bytearray(4 << 10)
        self._filled = 0
        self._wanted = PREFIX_BYTES  # bytes that the frame at the front needs, as far as is known
        self._header_max = HELLO_BYTES_MAX
        self._payload_max = 0

    def trust(self) -> None:
        """The other side has said who it is: its frames may be large from now on."""
        self._header_max = HEADER_BYTES_MAX
        self._payload_max = PAYLOAD_BYTES_MAX

    def put(self, data: Buffer) -> list[tuple[bytes, bytes]]:
        """Take in bytes that were received elsewhere."""
        view = memoryview(data).cast("B")
        frames = []
        while len(view):
            room = self.room()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            room.release()
            view = view[count:]
            frames += self.received(count)
        return frames

    def room(self) -> memoryview:
        """Where to put the next bytes; never empty. To be released before `received`."""
        most = max(self._wanted, ROOM_BYTES)
        if self._filled == len(self._data) and self._filled < most:
            # No more than eight times what has really arrived: an announcement costs us little.
            self._data.extend(bytes(min(most, 8 * self._filled) - self._filled))
        return memoryview(self._data)[self._filled :]

    def received(self, count: int) -> list[tuple[bytes, bytes]]:
        """The frames that these bytes complete: header and payload of each."""
        self._filled += count
        frames: list[tuple[bytes, bytes]] = []
        start = 0
        while True:
            self._wanted = PREFIX_BYTES
            if self._filled - start < PREFIX_BYTES:
                break
            header_bytes, crc, payload_bytes = PREFIX.unpack_from(self._data, start)
            if header_bytes > self._header_max or payload_bytes > self._payload_max:
                raise ProtocolError(
                    f"a frame of {header_bytes} + {payload_bytes} bytes; at most "
                    f"{self._header_max} + {self._payload_max} are allowed here"
                )
            self._wanted = PREFIX_BYTES + header_bytes + payload_bytes + -payload_bytes % 8
            if self._filled - start < self._wanted:
                break
            at = start + PREFIX_BYTES
            header = bytes(self._data[at : at + header_bytes])
            if crc32c(header) != crc:
                raise ProtocolError("a frame's header does not match its CRC")
            at += header_bytes
            frames.append((header, bytes(self._data[at : at + payload_bytes])))
            start += self._wanted
        if start:
            left = self._filled - start
            self._data[:left] = self._data[start : self._filled]
            self._filled = left
        if len(self._data) > ROOM_BYTES and self._filled <= ROOM_BYTES >= self._wanted:
            del self._data[ROOM_BYTES:]
        return frames
