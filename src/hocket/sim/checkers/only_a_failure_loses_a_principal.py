"""I8, LossOfPrincipal: once no list skips a member, none ever does again.

In the model a question and its answer are one step. While a question is out, the asker's pointers
count as undefined: it may be about to adopt what it was told long ago. So two moments are compared
at which no node was asking, with any number of steps between them.
"""

from __future__ import annotations

from hocket.sim.checkers.ring_checker import RingChecker, RingWatch
from hocket.sim.ring_view import Member, RingView, name


class OnlyAFailureLosesAPrincipal(RingChecker):
    name = "only_a_failure_loses_a_principal"
    sentence = "A principal stays one until it fails or leaves."

    def __init__(self, watch: RingWatch) -> None:
        super().__init__(watch)
        self._before: list[Member] = []

    def after_event(self) -> None:
        view = self._watch.demanded
        if view is None:
            self._before = []
        elif view.quiet:
            self.look(view)

    def look(self, view: RingView) -> None:
        self.seen += bool(self._before)
        for principal in self._before:
            by = view.skipped.get(principal.spot)
            if by is not None:
                raise self.broken(f"{name(principal.me)} is skipped by {by}\nof\n{view}")
            if principal.spot not in view.by_spot and not self._watch.has_failed(principal.me):
                raise self.broken(f"{name(principal.me)} is no member any more, but lives\n{view}")
        self._before = view.principals
