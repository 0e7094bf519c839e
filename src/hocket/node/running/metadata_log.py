"""The metadata's log as a node has recovered it: what those who follow can be told of it."""

from __future__ import annotations

from hocket.core.group0.leader import UNKNOWN
from hocket.core.group0.messages import Entry
from hocket.log.model import RecoveredGroup


class MetadataLog:
    """`before` is the (index, term) of the entry before the first of `entries`.

    Where entries are lost, nothing that lies before the end can be told: the state is another than
    the entries would give, and those who follow need all of it.
    """

    def __init__(self, own: RecoveredGroup | None = None, *, is_whole: bool = True) -> None:
        own = own or RecoveredGroup()
        self.entries: tuple[Entry, ...] = ()
        self.end = own.next_index - 1, own.term
        self.before = own.next_index - 1, UNKNOWN
        first = own.entries[0][0].index if own.entries else own.next_index
        self.is_whole = is_whole and first == own.snapshot_index + 1
        if self.is_whole:
            self.before = own.snapshot_index, own.snapshot_term
            self.entries = tuple(
                Entry(header.term, header.kind, header.index, bytes(body))
                for header, body in own.entries
            )
