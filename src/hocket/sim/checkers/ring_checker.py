"""What the checkers of the ring have in common: one look at the ring per event, for all of them.

Zave's invariants presuppose that a ring begins ideal, with at least one more principal than a list
has entries, that no living node is ever taken for dead, and that no node fails that the proof
needs. So they are demanded where crashes are guarded, from the first such moment on, while no node
lives by the registry instead, and until a node is deceived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.core.ring.contact import Contact
from hocket.sim.checkers.checker import Checker
from hocket.sim.ring_view import RingView, snapshot

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster


class RingWatch:
    """The view of the event that has just happened, taken when the first checker asks."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.begun = False  # the ring has been as the proof wants it at the start
        self.ideal_since_us: int | None = None  # None: it is not, or lives by the registry
        self._event = -1
        self._view = RingView((), successors=0)
        self._failed: dict[Contact, int] = {}  # and when
        self._fails = 0  # of the cluster's, that are in it

    @property
    def view(self) -> RingView:
        """As it is now, whether or not anything is demanded of it."""
        if self.cluster.events != self._event:
            self._event = self.cluster.events
            self._look()
        return self._view

    @property
    def demanded(self) -> RingView | None:
        """None: nothing is demanded of the ring as it is now."""
        view = self.view
        return view if self.begun else None

    def has_failed(self, contact: Contact) -> bool:
        """This life has crashed, or began to leave."""
        return self.failed_at_us(contact) is not None

    def failed_at_us(self, contact: Contact) -> int | None:
        """When it did; None: it has not."""
        fails = self.cluster.fails
        while self._fails < len(fails):
            time_us, failed = fails[self._fails]
            self._failed[failed] = time_us
            self._fails += 1
        return self._failed.get(contact)

    def _look(self) -> None:
        cluster = self.cluster
        view = self._view = snapshot(cluster.rings(), self._view)
        is_ideal = bool(view.members) and not view.small and view.is_ideal
        if not is_ideal:
            self.ideal_since_us = None
        elif self.ideal_since_us is None:
            self.ideal_since_us = cluster.now_us
        if cluster.deceived or not cluster.options.guarded or view.small or not view.members:
            self.begun = False
        elif is_ideal and len(view.members) > view.successors:
            self.begun = True


class RingChecker(Checker):
    """One of Zave's invariants."""

    looks_at = "ring"

    def __init__(self, watch: RingWatch) -> None:
        super().__init__()
        self._watch = watch

    def after_event(self) -> None:
        view = self._watch.demanded
        if view is not None:
            self.seen += 1
            self.look(view)

    def look(self, view: RingView) -> None:
        raise NotImplementedError
