"""The registry of nodes at the root: a change is written to the metadata's log, then answered."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hocket.core.metadata.metadata import GROUP
from hocket.core.metadata.registry import Changed, PositionTaken, Registry
from hocket.core.ring.contact import Contact
from hocket.errors import HocketError
from hocket.model import EntryKind
from hocket.node.requests.registrar import Enrolled
from hocket.node.wiring import Wiring

log = logging.getLogger("hocket.node")


class Registering:
    """The production `Registrar`.

    It remembers nothing of what it could not do: a node that gets no answer asks again.
    """

    def __init__(self, wiring: Wiring, registry: Registry) -> None:
        self._wiring = wiring
        self._registry = registry
        # Who is entered has answered at its address: nobody could get rid of one that never will.
        self.reach: Callable[[Contact, Callable[[], None]], None] = lambda _who, then: then()
        self._complaint = ""  # said once: nodes that get no answer ask twice a second
        self.founded_with = 0  # on the founder: the length of successor lists; 0: it is not said

    @property
    def successors(self) -> int:
        """The length of successor lists in this cluster; 0: nobody has written it down yet."""
        return self._registry.successors

    def members(self) -> tuple[int, tuple[Contact, ...]]:
        return self._registry.version, self._registry.members

    @property
    def left(self) -> tuple[Contact, ...]:
        """Those that were stopped in order and did not return yet."""
        return self._registry.left

    def known(self, node: str) -> Contact | None:
        """Where this node is or was last, as the metadata says; None: nobody has written it."""
        return self._registry.known(node)

    def address_of(self, node: str) -> str:
        """Where this node is or was last, as the metadata says; empty: nobody knows.

        One that was stopped in order and is back serves before it is entered again.
        """
        member, known = self._registry.member(node), self._registry.known(node)
        if member is not None:
            return member.address
        if known is None or any(each.address == known.address for each in self._registry.members):
            return ""
        return known.address

    def enrol(self, who: Contact, done: Enrolled) -> None:
        if self._knows(who):
            done(*self.members())  # enrolled already, and the answer was lost: nothing to write
        else:
            self.reach(who, lambda: self._enrol(who, done))

    def _knows(self, who: Contact) -> bool:
        known = self._registry.member(who.node)
        return known is not None and known.incarnation >= who.incarnation

    def _enrol(self, who: Contact, done: Enrolled) -> None:
        self._strike_those_before(who)
        if self._has_room():
            said = self.founded_with if not self._registry.successors else 0
            change = self._registry.enrol(who, done, said)
            if isinstance(change, PositionTaken):
                log.warning(
                    "node %s may not join: its position belongs to %s. Was its data directory "
                    "copied? Give it a new one", who.node, change.holder.node,
                )  # fmt: skip
            else:
                self._wiring.append_metadata(EntryKind.NODES, change.index, change.body)

    def _strike_those_before(self, who: Contact) -> None:
        """Another store was at this address, and this one has answered there. The other is gone
        from there: its disk was lost, or it comes back elsewhere and is entered anew. A small ring
        would wait for it for ever."""
        for each in self._registry.members:
            if each.address == who.address and each.node != who.node and self._has_room():
                log.warning(
                    "node %s is now at %s, where node %s was: that one is taken off the ring until "
                    "it comes back elsewhere", who.node, who.address, each.node,
                )  # fmt: skip
                change = self._registry.strike(each, None)
                self._wiring.append_metadata(EntryKind.NODES, change.index, change.body)

    def strike(self, who: Contact, done: Enrolled) -> None:
        known = self._registry.member(who.node)
        if known is None or known.incarnation > who.incarnation:
            done(*self.members())
        elif self._has_room():
            change = self._registry.strike(who, done)
            self._wiring.append_metadata(EntryKind.NODES, change.index, change.body)

    def changed(self, changed: Changed) -> None:
        if self._wiring.hooks.on_members is not None:
            self._wiring.hooks.on_members(changed.members)
        done = changed.origin
        if done is not None:  # else another node has entered it
            assert callable(done)
            done(changed.version, changed.members)

    def _has_room(self) -> bool:
        try:
            self._wiring.partitions.admit(GROUP)
        except HocketError as error:
            if error.code != self._complaint:
                self._complaint = error.code
                log.warning("cannot write the registry of nodes: %s", error)
            return False
        self._complaint = ""
        return True
