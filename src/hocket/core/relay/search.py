"""The search for a parent: whom to ask, and whom to ask next.

First come the candidates, in their order: the nodes on our route to the owner, or our ancestors.
One that takes part may send us on to another, and so on down the tree. If that leads nowhere we
go back to the one that sent us, and say whom it should not name again. A chain of redirects that
is too long begins once more at the last candidate, the owner.
"""

from __future__ import annotations

from collections.abc import Iterable

from hocket.core.ring.contact import Contact

AVOIDED_MAX = 8


class Search:
    __slots__ = (
        "_began_again", "_candidates", "_last", "_me", "_redirects_max", "_sent_by", "asked",
        "avoid", "by_route", "redirects", "request",
    )  # fmt: skip

    def __init__(self, me: Contact, redirects_max: int) -> None:
        self._me = me.node
        self._redirects_max = redirects_max
        self._candidates: list[Contact] = []
        self._last: Contact | None = None
        self._sent_by: Contact | None = None
        self._began_again = False
        self.asked: Contact | None = None  # None: no search is under way
        self.request = 0
        self.redirects = 0  # since the last candidate
        self.by_route = False  # the candidates are the ring's, and as new as can be
        self.avoid: tuple[Contact, ...] = ()  # these do not answer, or lead nowhere

    def begin(self, candidates: Iterable[Contact], *, by_route: bool) -> Contact | None:
        """Whom to ask first; None: nobody is left, here and below."""
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
        """The one that was asked did not answer, or has nothing to do with it."""
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
        """We were sent in a circle. At the owner it cannot be one, unless the tree is changing."""
        if self._began_again or self._last is None:
            self._candidates = []
        else:
            self._began_again = True
            self._candidates = [self._last]
        return self.go_on()
