"""The search for a parent: which node to ask, and which node to ask next.

First come the candidates, in their order: the nodes on the route to the owner, or the ancestors. A
candidate that takes part in the tree may redirect this node to another one, and so on down the
tree. If a redirect leads nowhere, this node goes back to the node that gave it, and says which node
should not be named again. A chain of redirects that is too long begins once more at the last
candidate, the owner.
"""

from __future__ import annotations

from collections.abc import Iterable

from hocket.core.ring.contact import Contact

AVOIDED_MAX = 8  # nodes; the oldest is forgotten first


class Search:
    __slots__ = (
        "_began_again", "_candidates", "_last", "_me", "_redirects_max", "_sent_by", "asked",
        "avoid", "by_route", "redirects", "request",
    )  # fmt: skip

    def __init__(self, me: Contact, redirects_max: int) -> None:
        self._me = me.node
        self._redirects_max = redirects_max
        self._candidates: list[Contact] = []
        self._last: Contact | None = None  # the last candidate that the search began with
        self._sent_by: Contact | None = None  # the node that named the one that is asked
        self._began_again = False
        self.asked: Contact | None = None  # None: no search is under way
        self.request = 0  # of the question to `asked`
        self.redirects = 0  # since the last candidate was asked
        self.by_route = False  # the candidates came from the ring, and are as new as can be
        self.avoid: tuple[Contact, ...] = ()  # nodes that do not answer, or lead nowhere

    def begin(self, candidates: Iterable[Contact], *, by_route: bool) -> Contact | None:
        """Returns the node to ask; None: no candidate is left. So do the methods below."""
        self._candidates = [each for each in candidates if each.node != self._me]
        self._last = self._candidates[-1] if self._candidates else None
        self._began_again = False
        self.by_route = by_route
        return self.go_on()

    def go_on(self) -> Contact | None:
        self._sent_by = None
        self.redirects = 0
        self.asked = self._candidates.pop(0) if self._candidates else None
        return self.asked

    def redirected(self, to: Contact) -> Contact | None:
        self.redirects += 1
        if to.node == self._me or self.redirects > self._redirects_max:
            return self._begin_again()
        self._sent_by, self.asked = self.asked, to
        return to

    def failed(self, *, silent: bool = False) -> Contact | None:
        """The node that was asked did not answer, or does not take part in the tree."""
        assert self.asked is not None
        if silent or self._sent_by is not None:
            self.shun(self.asked)
        if self._sent_by is None:
            return self.go_on()
        self.asked, self._sent_by = self._sent_by, None
        self.redirects += 1
        return self.asked

    def found(self) -> None:
        self.asked = None
        self._candidates = []
        self.avoid = ()

    def end(self) -> None:
        self.asked = None
        self._candidates = []

    def shun(self, contact: Contact) -> None:
        others = [each for each in self.avoid if each.node != contact.node]
        self.avoid = (*others, contact)[-AVOIDED_MAX:]

    def _begin_again(self) -> Contact | None:
        """Redirects ran in a circle. From the owner they cannot, unless the tree is changing."""
        if self._began_again or self._last is None:
            self._candidates = []
        else:
            self._began_again = True
            self._candidates = [self._last]
        return self.go_on()
