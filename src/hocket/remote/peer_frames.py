"""What two processes say to each other on a connection between two brokers, as bytes.

A frame is its kind (one byte), its length (4 bytes, little-endian) and so many bytes. Frames of
the opening are JSON objects, those behind it are packed numbers or the caller's own bytes
(`docs/protocol.md`, "Between processes").

Rule: nothing is believed before it is checked. What came from another process and makes no sense
raises ProtocolError, and nothing else.
"""

from __future__ import annotations

import json
from enum import IntEnum
from struct import Struct
from typing import Any

from hocket.errors import ProtocolError

VERSION = 1
HEADER = Struct("<BI")
NUMBER = Struct("<Q")

OPENING_BYTES_MAX = 16 << 10  # of a frame of the opening: nobody is known yet
CONTROL_BYTES_MAX = 4 << 10  # of a frame behind it that is no data
MESSAGE_BYTES_MAX = 1 << 30  # of a message: the length has 4 bytes, and memory has an end


class Kind(IntEnum):
    GREETING = 1  # the accepting process speaks first: the version, and a nonce
    CALL = 2  # which broker and port are called, by whom, and the proof that he may
    ACCEPT = 3
    REFUSE = 4
    DATA = 5  # a message, or bytes of a channel
    TAKEN = 6  # how many messages (or bytes) of the other side were taken since the beginning
    CLOSE = 7  # this side sends no more data
    DRAINED = 8  # all data before the other side's CLOSE was taken
    ABORT = 9  # the connection is cut: how many were taken, and why
    ABORTED = 10  # the answer to it: how many were taken


DATA = int(Kind.DATA)
TAKEN = int(Kind.TAKEN)
OPENING = frozenset({Kind.GREETING, Kind.CALL, Kind.ACCEPT, Kind.REFUSE})


def opening(kind: Kind, /, **fields: object) -> bytes:
    """A frame of the opening."""
    body = json.dumps(fields).encode()
    if len(body) > OPENING_BYTES_MAX:
        raise ProtocolError(f"a {kind.name} of {len(body)} bytes does not fit a frame")
    return HEADER.pack(kind, len(body)) + body


def read_opening(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:  # the latter if it is nested very deeply
        raise ProtocolError(f"a frame of the opening is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ProtocolError("a frame of the opening is no JSON object")
    return fields


def field(fields: dict[str, Any], name: str, kind: type) -> Any:
    """A field of an opening frame, of this type."""
    value = fields.get(name)
    if type(value) is not kind:
        raise ProtocolError(f"a frame of the opening lacks {name!r}, or has it as something else")
    return value


def secret(fields: dict[str, Any], name: str) -> bytes:
    try:
        return bytes.fromhex(field(fields, name, str))
    except ValueError:
        raise ProtocolError(f"{name!r} of a frame of the opening is no hexadecimal text") from None


def taken(count: int) -> bytes:
    return HEADER.pack(TAKEN, NUMBER.size) + NUMBER.pack(count)


def bare(kind: Kind) -> bytes:
    """CLOSE or DRAINED."""
    return HEADER.pack(kind, 0)


def abort(count: int, why: str) -> bytes:
    body = NUMBER.pack(count) + why.encode(errors="replace")[: CONTROL_BYTES_MAX - NUMBER.size]
    return HEADER.pack(Kind.ABORT, len(body)) + body


def aborted(count: int) -> bytes:
    return HEADER.pack(Kind.ABORTED, NUMBER.size) + NUMBER.pack(count)


def read_count(body: bytes) -> int:
    """The number with which TAKEN, ABORT and ABORTED begin."""
    if len(body) < NUMBER.size:
        raise ProtocolError(f"a count of {len(body)} bytes; it has {NUMBER.size}")
    (count,) = NUMBER.unpack_from(body)
    return int(count)


def read_why(body: bytes) -> str:
    return body[NUMBER.size :].decode(errors="replace")


def check_header(kind: int, length: int, *, opened: bool) -> None:
    """Raise unless a frame of this kind and length may come now."""
    try:
        known = Kind(kind)
    except ValueError:
        raise ProtocolError(f"there is no frame of kind {kind}") from None
    if (known in OPENING) == opened:
        raise ProtocolError(f"{known.name} came {'after' if opened else 'before'} the opening")
    if known is Kind.DATA:
        most = MESSAGE_BYTES_MAX
    else:
        most = CONTROL_BYTES_MAX if opened else OPENING_BYTES_MAX
    if length > most:
        raise ProtocolError(f"{known.name} of {length} bytes; it has at most {most}")
