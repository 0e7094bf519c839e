"""At the owner: which reads of the log are under way, and for whom."""

from __future__ import annotations

from dataclasses import dataclass, field

from hocket.core.relay.messages import Fetch
from hocket.core.ring.contact import Contact


@dataclass(slots=True)
class Guest:
    """A node, a child or not, that takes something old from the log."""

    contact: Contact
    fetch: Fetch  # its newest; it has one at a time
    token: int = 0  # 0: nothing is being read for it
    offset: int = 0  # what is read begins here; meanwhile it may want something else


@dataclass(slots=True)
class LogReads:
    """By token; a LogRead with another one is about a question that nobody has any more."""

    stream: int = 0  # for the window,
    stream_offset: int = 0  # from here on
    consumer: int = 0  # for a consumer here that is older than the window
    guests: dict[str, Guest] = field(default_factory=dict)  # by the node's name

    def welcome(self, contact: Contact, fetch: Fetch) -> None:
        guest = self.guests.get(contact.node)
        asked = (contact.incarnation, fetch.request)
        if guest is None:
            self.guests[contact.node] = Guest(contact, fetch)
        elif asked > (guest.contact.incarnation, guest.fetch.request):
            guest.contact, guest.fetch = contact, fetch

    def read_by(self, token: int) -> Guest | None:
        for guest in self.guests.values():
            if guest.token == token:
                return guest
        return None
