"""What goes down: the children of a relay, and the guests of an owner.

Rule: nothing is sent without credit, and no more than it; a batch that is larger comes alone.
"""

from __future__ import annotations

from hocket.core.relay import events
from hocket.core.relay.children import Child
from hocket.core.relay.messages import (
    Attach,
    Attached,
    Behind,
    Detach,
    Fetch,
    NotAttached,
    NotRelaying,
    Piece,
    Redirect,
)
from hocket.core.relay.part import Part, names
from hocket.core.relay.window import begin_behind, fitting, follow
from hocket.core.ring.contact import Contact

SUSPECT = 2  # ticks: a child so long silent, and not reached by others, is dropped


class Feeder(Part):
    __slots__ = ()

    # --- who comes --------------------------------------------------------------------------------

    def _heard_attach(self, sender: Contact, message: Attach) -> None:
        request, place = message.request, self.place
        if not self._has_way_to_owner():
            self._send(sender, NotRelaying(request, place))
            return
        child = self.children.get(sender)
        if child is not None and child.is_newer_than(sender, request):
            return  # late
        if names(self.ancestors, sender):
            self._refuse_ancestor(sender, request)
            return
        if child is None:
            self.children.drop_if_silent(message.avoid, SUSPECT)
            to = self._sent_on(sender, message)
            if to is not None:
                self._send(sender, Redirect(request, place, to))
                return
        self.children.put(Child(sender, request, message.next_offset, message.consumers))
        self._send(sender, Attached(request, place, self._lineage()))
        self._go_on()

    def _sent_on(self, sender: Contact, message: Attach) -> Contact | None:
        """To the owner, if here it would be deeper than the tree has to be; down, if there is no
        room here; None: it may stay."""
        if not self.is_owner and message.redirects == 0:
            deep = len(self.ancestors) >= self.settings.depth_for(self._total + 1)
            owner = self.ancestors[-1]
            if deep and not names(message.avoid, owner):
                return owner
        if self.children.room:
            return None
        return self.children.choose(sender, message.consumers, message.avoid)

    def _refuse_ancestor(self, sender: Contact, request: int) -> None:
        owner = self.ancestors[-1]
        if owner.node == sender.node:
            self._send(sender, NotRelaying(request, self.place))
        else:
            self._send(sender, Redirect(request, self.place, owner))

    def _heard_detach(self, sender: Contact, _message: Detach) -> None:
        child = self.children.get(sender)
        if child is not None and child.contact.incarnation <= sender.incarnation:
            self.children.drop(sender)

    # --- what it gets -----------------------------------------------------------------------------

    def _heard_fetch(self, sender: Contact, message: Fetch) -> None:
        if message.catching_up:
            if self.is_owner:
                self._reads.welcome(sender, message)
                self._go_on()
            else:
                self._send(sender, NotRelaying(message.request, self.place))
            return
        child = self.children.get(sender)
        if child is None:
            self._send(sender, NotAttached(message.request, self.place))
            return
        child.silent = 0
        if child.is_newer_than(sender, message.request):
            return  # late: it has asked anew since, in a new life perhaps
        child.contact = sender
        child.request = message.request
        child.load = message.consumers
        child.next_offset = message.offset
        child.credit_bytes = message.credit_bytes
        child.waiting = message
        self._go_on()
        if child.waiting is not None and message.wait_us <= 0:
            self._answer(child, message, ())

    def _serve_children(self) -> None:
        window = self.window
        for child in self.children:
            fetch = child.waiting
            if fetch is None or fetch.credit_bytes <= 0 or fetch.offset >= window.end:
                continue
            if fetch.offset < window.start:
                child.waiting = None
                self._send(child.contact, Behind(fetch.request, self.place, window.start))
            else:
                self._answer(child, fetch, window.take(fetch.offset, self._due_to(fetch)))

    def _answer(self, child: Child, fetch: Fetch, pieces: tuple[Piece, ...]) -> None:
        child.waiting = None
        if pieces:
            child.next_offset = pieces[-1].end
        self._send(child.contact, self._fetched(fetch.request, pieces))

    def _due_to(self, fetch: Fetch) -> int:
        """Bytes of one answer: what others call their credit does not fill our memory."""
        return min(fetch.credit_bytes, self.settings.fetch_bytes)

    def _wake_children(self) -> None:
        """They have to know at once that their ancestors are others: a cycle may hang on it."""
        for child in self.children:
            if child.waiting is not None:
                self._answer(child, child.waiting, ())

    def _tick_children(self) -> None:
        """Answer all who wait: that we live is news too. Drop those who have gone."""
        limit = self.settings.ticks(self.settings.child_us)
        for child in list(self.children):
            child.silent += 1
            if child.silent >= limit:
                self.children.drop(child.contact)
            elif child.waiting is not None:
                self._answer(child, child.waiting, ())
        for guest in list(self._reads.guests.values()):
            if not guest.token:
                del self._reads.guests[guest.contact.node]
                self._send(guest.contact, self._fetched(guest.fetch.request, ()))

    # --- guests: whoever takes something old from the owner's log ---------------------------------

    def _read(self, offset: int, bytes_max: int) -> int:
        token = self._take_request()
        self._effects.append(events.ReadLog(token, offset, self.end, bytes_max))
        return token

    def _serve_guests(self) -> None:
        for guest in list(self._reads.guests.values()):
            fetch = guest.fetch
            if guest.token or fetch.offset >= self.end or fetch.credit_bytes <= 0:
                continue
            if fetch.offset < self.start:
                del self._reads.guests[guest.contact.node]
                self._send(guest.contact, Behind(fetch.request, self.place, self.start))
            else:
                guest.token = self._read(fetch.offset, self._due_to(fetch))
                guest.offset = fetch.offset

    def _read_for_guest(self, token: int, pieces: tuple[Piece, ...]) -> None:
        guest = self._reads.read_by(token)
        if guest is None:
            return
        guest.token = 0
        fetch = guest.fetch
        is_wanted = follow(pieces, fetch.offset)
        if pieces and not is_wanted and fetch.offset != guest.offset:
            self._go_on()  # meanwhile it has asked for something else
            return
        del self._reads.guests[guest.contact.node]
        if begin_behind(pieces, fetch.offset):
            self._send(guest.contact, Behind(fetch.request, self.place, pieces[0].start))
        else:
            pieces = fitting(pieces, fetch.credit_bytes) if is_wanted else ()
            self._send(guest.contact, self._fetched(fetch.request, pieces))
