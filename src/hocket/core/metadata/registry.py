"""The nodes that belong to the cluster, kept in the metadata's log.

Rule 1: a change takes effect when it is committed, and is judged as if the changes on their way
        before it had been.
Rule 2: the registry has one life of each node, the newest that was entered. A change of an older
        life changes nothing, and is answered all the same.
Rule 3: there is one node at a position.
Rule 4: how long successor lists are is written once, with the founder's first enrolment.
Rule 5: a node that was struck is remembered among those that left, until it is entered again: it
        was stopped, and may be started at any time. The last `LEFT_MAX` are.

The registry says which nodes may be on the ring, and what a small ring looks like. Only the ring
itself knows which nodes are on it at this moment.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Any, Literal

from hocket.core.metadata.metadata import AppendChange, Indexes, Proposer
from hocket.core.ring.contact import Contact

Kind = Literal["enrol", "strike"]
LEFT_MAX = 64


@dataclass(slots=True)
class Changed:
    """The entry is committed: this is the registry now."""

    index: int
    origin: object  # who asked for it, only handed back; None: nobody at this node waits for it
    version: int  # how many entries have changed something, this one included
    members: tuple[Contact, ...]  # sorted by position


@dataclass(slots=True)
class PositionTaken:
    """The node was not entered: another one is at its position. It may try another position."""

    origin: object
    holder: Contact


@dataclass(slots=True)
class _Nodes:
    """The registry as it is after some entry of the log."""

    version: int = 0
    members: list[Contact] = field(default_factory=list)  # sorted by position
    by_node: dict[str, Contact] = field(default_factory=dict)
    left: dict[str, Contact] = field(default_factory=dict)  # by node; who left last is the last

    def at(self, position: int) -> Contact | None:
        at = bisect_left(self.members, position, key=_position)
        found = self.members[at : at + 1]
        return found[0] if found and found[0].position == position else None

    def apply(self, kind: Kind, who: Contact) -> None:
        known = self.by_node.get(who.node)
        if kind == "enrol":
            if known is not None and known.incarnation >= who.incarnation:
                return
        elif known is None or known.incarnation > who.incarnation:
            return
        self.version += 1
        if known is not None:
            del self.by_node[known.node]
            del self.members[bisect_left(self.members, known.position, key=_position)]
        self.left.pop(who.node, None)
        if kind == "enrol":
            self.by_node[who.node] = who
            insort(self.members, who)
        else:
            self.left[who.node] = who
            if len(self.left) > LEFT_MAX:
                del self.left[next(iter(self.left))]


class Registry(Proposer):
    """The machine of the metadata's log; see `core.metadata.metadata`."""

    def __init__(self, indexes: Indexes | None = None) -> None:
        super().__init__(indexes)
        self._committed = _Nodes()
        self._leading = _Nodes()
        self.successors = 0  # the length of successor lists; 0: it was not written yet

    @property
    def version(self) -> int:
        return self._committed.version

    @property
    def members(self) -> tuple[Contact, ...]:
        """Sorted by position."""
        return tuple(self._committed.members)

    @property
    def left(self) -> tuple[Contact, ...]:
        """Those that were stopped in order and did not return, as they were; the last one last."""
        return tuple(self._committed.left.values())

    def member(self, node: str) -> Contact | None:
        return self._committed.by_node.get(node)

    def known(self, node: str) -> Contact | None:
        """A member, or one that has left."""
        nodes = self._committed
        return nodes.by_node.get(node) or nodes.left.get(node)

    def enrol(
        self, who: Contact, origin: object, successors: int = 0
    ) -> AppendChange | PositionTaken:
        """Enter this life of this node; the founder says how long successor lists are."""
        holder = self._leading.at(who.position)
        if holder is not None and holder.node != who.node:
            return PositionTaken(origin, holder)
        return self._change("enrol", who, origin, successors)

    def strike(self, who: Contact, origin: object) -> AppendChange:
        """Take this life of this node out, or an older one; not a newer one."""
        return self._change("strike", who, origin)

    def _lead(self, body: bytes) -> None:
        self._leading.apply(*_decoded(body))

    def _take_effect(self, index: int, body: bytes, origin: object) -> list[Changed]:
        self.applied_index = index
        self._committed.apply(*_decoded(body))
        self.successors = self.successors or json.loads(body).get("successors", 0)
        return [Changed(index, origin, self.version, self.members)]

    def _go_back(self) -> None:
        known = self._committed
        self._leading = _Nodes(
            known.version, list(known.members), dict(known.by_node), dict(known.left)
        )

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        state: dict[str, Any] = {
            "version": self.version,
            "members": [_fields(contact) for contact in self._committed.members],
        }
        if self.successors:
            state["successors"] = self.successors
        if self._committed.left:
            state["left"] = [_fields(contact) for contact in self.left]
        return self.applied_index, state

    def restore(self, index: int, state: dict[str, Any]) -> None:
        self._indexes.last = self.applied_index = index
        self.successors = state.get("successors", 0)
        for nodes in (self._committed, self._leading):
            nodes.version = state["version"]
            nodes.members = [Contact(**fields) for fields in state["members"]]
            nodes.by_node = {contact.node: contact for contact in nodes.members}
            left = [Contact(**fields) for fields in state.get("left", [])]
            nodes.left = {contact.node: contact for contact in left}

    def replace(self, index: int, state: dict[str, Any]) -> list[Changed]:
        self.restore(index, state)
        return [Changed(index, None, self.version, self.members)]

    def _change(
        self, kind: Kind, who: Contact, origin: object, successors: int = 0
    ) -> AppendChange:
        self._leading.apply(kind, who)
        change: dict[str, Any] = {"kind": kind, "who": _fields(who)}
        if successors:
            change["successors"] = successors
        return self._propose(origin, json.dumps(change).encode())


def _decoded(body: bytes) -> tuple[Kind, Contact]:
    change: dict[str, Any] = json.loads(body)
    return change["kind"], Contact(**change["who"])


def _fields(contact: Contact) -> dict[str, Any]:
    """As JSON has it; older versions know contacts without a capacity, which is 1 there."""
    fields = contact._asdict()
    if contact.capacity == 1:
        del fields["capacity"]
    return fields


def _position(contact: Contact) -> int:
    return contact.position
