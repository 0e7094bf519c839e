"""The guests of an owner: nodes that take something old from its log.

A guest may be a child of the owner or any other node of the tree. It has one question at a time,
which `catch_up` asks at the guest's own node.
"""

from __future__ import annotations

from dataclasses import dataclass

from hocket.core.relay.committed import Committed
from hocket.core.relay.downstream import Downstream
from hocket.core.relay.lineage import Lineage
from hocket.core.relay.messages import Behind, Fetch, NotRelaying, Piece
from hocket.core.relay.outbox import Outbox, Turn
from hocket.core.relay.recent import begin_behind, fitting, follow
from hocket.core.relay.settings import RelaySettings
from hocket.core.ring.contact import Contact
from hocket.model import PartitionId


@dataclass(slots=True)
class Guest:
    contact: Contact
    fetch: Fetch  # the guest's newest question
    token: int = 0  # of the log read for this guest; 0: none is under way
    offset: int = 0  # where that read begins; the guest may have asked for another offset since


class Guests:
    """The guests by the node's name; only this class changes a guest."""

    __slots__ = (
        "_by_node", "_committed", "_downstream", "_lineage", "_outbox", "_partition_id",
        "_settings",
    )  # fmt: skip

    def __init__(
        self,
        partition_id: PartitionId,
        settings: RelaySettings,
        outbox: Outbox,
        lineage: Lineage,
        committed: Committed,
        downstream: Downstream,
    ) -> None:
        self._partition_id = partition_id
        self._settings = settings
        self._outbox = outbox
        self._lineage = lineage
        self._committed = committed
        self._downstream = downstream
        self._by_node: dict[str, Guest] = {}

    def __len__(self) -> int:
        return len(self._by_node)

    def get(self, contact: Contact) -> Guest | None:
        return self._by_node.get(contact.node)

    def clear(self) -> None:
        self._by_node.clear()

    def ask(self, sender: Contact, fetch: Fetch) -> Turn:
        if not self._lineage.is_owner:
            self._outbox.send(sender, NotRelaying(fetch.request, self._partition_id))
            return False
        self._welcome(sender, fetch)
        return True

    def _welcome(self, contact: Contact, fetch: Fetch) -> None:
        """The newest question of a guest counts; a new life counts its requests from anywhere."""
        guest = self._by_node.get(contact.node)
        asked = (contact.incarnation, fetch.request)
        if guest is None:
            self._by_node[contact.node] = Guest(contact, fetch)
        elif asked > (guest.contact.incarnation, guest.fetch.request):
            guest.contact, guest.fetch = contact, fetch

    def serve(self) -> None:
        """Read the log for every guest that can be answered."""
        if not self._by_node:
            return
        committed = self._committed
        for guest in list(self._by_node.values()):
            fetch = guest.fetch
            if guest.token or fetch.offset >= committed.end or fetch.credit_bytes <= 0:
                continue
            if fetch.offset < committed.start:
                self._tell_first(guest, committed.start)
            else:
                bytes_max = self._settings.capped(fetch.credit_bytes)
                guest.token = self._outbox.read_log(fetch.offset, committed.end, bytes_max)
                guest.offset = fetch.offset

    def log_read(self, token: int, pieces: tuple[Piece, ...]) -> Turn:
        guest = self._reader(token)
        if guest is None:
            return False  # nobody has that question any more
        guest.token = 0
        fetch = guest.fetch
        is_wanted = follow(pieces, fetch.offset)
        if pieces and not is_wanted and fetch.offset != guest.offset:
            return True  # the guest has asked for something else meanwhile
        if begin_behind(pieces, fetch.offset):
            self._tell_first(guest, pieces[0].start)
        else:
            self._answer(guest, fitting(pieces, fetch.credit_bytes) if is_wanted else ())
        return False

    def _reader(self, token: int) -> Guest | None:
        for guest in self._by_node.values():
            if guest.token == token:
                return guest
        return None

    def tick(self) -> None:
        """Answer all guests that wait at the end of the log: that the owner lives is news too."""
        for guest in list(self._by_node.values()):
            if not guest.token:
                self._answer(guest, ())

    def _answer(self, guest: Guest, pieces: tuple[Piece, ...]) -> None:
        del self._by_node[guest.contact.node]
        self._downstream.count(pieces)
        self._outbox.send(guest.contact, self._downstream.fetched(guest.fetch.request, pieces))

    def _tell_first(self, guest: Guest, first: int) -> None:
        del self._by_node[guest.contact.node]
        self._outbox.send(guest.contact, Behind(guest.fetch.request, self._partition_id, first))
