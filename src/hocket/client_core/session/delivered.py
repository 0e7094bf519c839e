"""What was delivered, as entries in their payload, which several subscriptions may have got.

A broker sends a payload once for all subscriptions of a client that are told the same
(`frames.DeliverAlike`). So it is read once, too: most of what a consumer of small batches does is
to open them.
"""

from __future__ import annotations

from collections.abc import Iterator

from hocket.errors import ProtocolError
from hocket.frames import Deliver, DeliverAlike, unpacked
from hocket.wire.batch import PlainRecords, iterate_entries, plain_records
from hocket.wire.entry import Header

SHARED_BYTES_MAX = 16 << 10  # a larger payload would be kept for too little: it is read once


class Stored:
    """An entry that was delivered and not yet handed out, where it lies in its payload.

    Subscriptions of one client that get the same payload share it, and what was read of it.
    """

    __slots__ = ("_plain", "end_offset", "header", "payload", "position", "size")

    def __init__(self, payload: memoryview, position: int, header: Header) -> None:
        self.payload = payload
        self.position = position
        self.header = header
        self.end_offset = header.end_offset
        self.size = header.size
        self._plain: PlainRecords | bool | None = False  # False: nobody has looked yet

    def plain(self) -> PlainRecords | None:
        """See `wire.batch.plain_records`."""
        if self._plain is False:
            self._plain = plain_records(self.payload, self.position, self.header)
        return self._plain  # type: ignore[return-value]


class Delivered:
    """The entries of payloads; those of the last small one are kept, for others that get it."""

    __slots__ = ("_entries", "_payload")

    def __init__(self) -> None:
        self._payload: memoryview | None = None
        self._entries: list[Stored] = []

    def entries(self, payload: memoryview) -> list[Stored]:
        """Raises CorruptData if these are no whole entries."""
        if payload is self._payload:
            return self._entries
        found = [Stored(payload, *place) for place in iterate_entries(payload)]
        if len(payload) <= SHARED_BYTES_MAX:
            self._payload, self._entries = payload, found
        return found


def each_of(frame: DeliverAlike) -> Iterator[Deliver]:
    """The deliveries that it stands for, each as it is taken: it is one that changes."""
    if len(frame.handles) % 8:
        raise ProtocolError(f"the handles of a DeliverAlike have {len(frame.handles)} bytes")
    deliver = Deliver(0, 0, frame.partition, frame.offset, frame.end)
    for handle in unpacked(frame.handles):
        deliver.handle = handle
        yield deliver
