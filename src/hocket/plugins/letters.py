"""What a node and a plug-in's own process write to each other, over a pair of sockets.

    letter   length of all that follows (4 bytes), kind (1), number (4), ns (8), length of head (4),
             head (JSON), body (bytes)

The node numbers its questions; the process answers each of them, one after the other, and says how
long the hook took. Batches are the body as they are on the wire. Nothing is pickled: what a process
says that has gone wild is at worst nonsense, and then the process is ended.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer

_FRONT = struct.Struct("<IBIQI")
_LENGTH = 4
_REST = _FRONT.size - _LENGTH


class Kind(IntEnum):
    # To the process.
    SETUP = 1  # head: what to load, and how; the first letter
    CALL = 2  # head: the hook and its arguments; body: batches, if it is about some
    # To the node.
    READY = 11  # head: its hooks, its policy and its version
    UNUSABLE = 12  # head: why; the process ends
    DONE = 13  # head: what the hook has answered, or null
    CHANGED = 14  # body: the batch as the hook has made it
    REJECTED = 15  # head: the text for whoever publishes
    CORRUPT = 16  # head: why the batch cannot be read
    FAILED = 17  # head: what the hook has raised
    LOG = 18  # head: level, name of the logger, text


class Nonsense(ValueError):
    """What has come is no letter."""


@dataclass(slots=True)
class Letter:
    kind: int
    number: int
    ns: int
    head: Any
    body: memoryview


def packed(
    kind: Kind, number: int = 0, ns: int = 0, head: object = None, body: Buffer = b""
) -> list[Buffer]:
    """Raises TypeError or ValueError for a head that JSON does not have."""
    text = json.dumps(head, separators=(",", ":")).encode()
    length = _REST + len(text) + memoryview(body).nbytes
    front = _FRONT.pack(length, kind, number, ns, len(text)) + text
    return [front, body] if memoryview(body).nbytes else [front]


class Inbox:
    """Bytes as they come, letters as they are complete."""

    def __init__(self, letter_bytes_max: int) -> None:
        self._bytes = bytearray()
        self._max = letter_bytes_max

    def letters(self, data: Buffer) -> Iterator[Letter]:
        """Raises Nonsense. Bodies are copies."""
        self._bytes += data
        position, end = 0, len(self._bytes)
        try:
            while end - position >= _LENGTH:
                (length,) = struct.unpack_from("<I", self._bytes, position)
                if not _REST <= length <= self._max:
                    raise Nonsense(f"a letter of {length} bytes")
                if end - position < _LENGTH + length:
                    break
                letter = self._read(position, position + _LENGTH + length)
                position += _LENGTH + length
                yield letter
        finally:
            del self._bytes[:position]

    def _read(self, start: int, end: int) -> Letter:
        _length, kind, number, ns, head_length = _FRONT.unpack_from(self._bytes, start)
        body = start + _FRONT.size + head_length
        if body > end:
            raise Nonsense("a head that is longer than its letter")
        try:
            head = json.loads(self._bytes[start + _FRONT.size : body])
        except (ValueError, RecursionError) as error:
            raise Nonsense("a head that is not JSON") from error
        return Letter(kind, number, ns, head, memoryview(bytes(self._bytes[body:end])))
