"""The registry of nodes in a scale run. It is kept in memory, where a cluster keeps it in a log."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from hocket.core.ring.contact import Contact
from hocket.sim.scheduler import Scheduler

COMMIT_US = 2_000  # what writing an entry to the log and syncing it may take

Done = Callable[[int, tuple[Contact, ...]], None]


class Enrolment:
    """A registrar as `node.cluster.ring_member.Registrar` describes it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._version = 0
        self._by_node: dict[str, Contact] = {}
        self._sorted: list[Contact] = []

    def begin(self, members: tuple[Contact, ...]) -> None:
        self._by_node = {contact.node: contact for contact in members}
        self._sorted = sorted(members)
        self._version = 1

    def enrol(self, who: Contact, done: Done) -> None:
        former = self._by_node.get(who.node)
        if former is None or former.incarnation < who.incarnation:
            self._remove(former)
            self._by_node[who.node] = who
            insort(self._sorted, who)
            self._version += 1
        self._commit(done)

    def strike(self, who: Contact, done: Done) -> None:
        former = self._by_node.pop(who.node, None)
        if former is not None:
            self._remove(former)
            self._version += 1
        self._commit(done)

    def members(self) -> tuple[int, tuple[Contact, ...]]:
        return self._version, tuple(self._sorted)

    def _remove(self, contact: Contact | None) -> None:
        if contact is not None:
            del self._sorted[bisect_left(self._sorted, contact)]

    def _commit(self, done: Done) -> None:
        self._scheduler.after(COMMIT_US, lambda: done(*self.members()))
