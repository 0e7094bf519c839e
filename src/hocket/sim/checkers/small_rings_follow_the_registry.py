"""A ring too small for Zave's invariants lives by the registry: its nodes' lists are the registry's
order, and nodes that know the same version of it know the same ring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hocket.sim.checkers.ring_checker import RingChecker, RingWatch
from hocket.sim.ring_view import CoreLike, RingView, name

if TYPE_CHECKING:
    from hocket.core.ring.contact import Contact


class SmallRingsFollowTheRegistry(RingChecker):
    name = "small_rings_follow_the_registry"
    sentence = "Where a ring lives by the registry, every list is the registry's order."

    def __init__(self, watch: RingWatch) -> None:
        super().__init__(watch)
        self._versions: dict[int, tuple[Contact, ...]] = {}  # what those who had it first knew

    def after_event(self) -> None:
        for ring in self._watch.cluster.rings():
            if ring.standing == "small":
                self.seen += 1
                self._look_at(ring)

    def look(self, view: RingView) -> None:
        """Members are not looked at."""

    def _look_at(self, ring: CoreLike) -> None:
        version, members, me = ring.small.version, ring.small.members, ring.me
        others = sorted(
            (each for each in members if each != me),
            key=lambda each: (each.position < me.position, each.position),
        )
        if len(others) != len(members) - 1:
            raise self.broken(f"{name(me)} is not in version {version}: {_names(members)}")
        expected = others[: self._watch.cluster.successors]
        if list(ring.successors) != expected:
            raise self.broken(f"{name(me)} has {_names(ring.successors)}, not {_names(expected)}")
        if ring.predecessor != (others[-1] if others else None):
            raise self.broken(f"{name(me)} has the predecessor {ring.predecessor}")
        # Version 0 is what a ring begins with, before the registry has said anything.
        if version and self._versions.setdefault(version, members) != members:
            raise self.broken(
                f"version {version} is {_names(members)} for {name(me)}, and"
                f" {_names(self._versions[version])} for another"
            )


def _names(contacts: Sequence[Contact]) -> str:
    return " ".join(map(name, contacts)) or "nobody"
