"""The machines that share the log of a cluster's metadata (group 0).

Rule 1: entries are told apart by their kind, and each kind belongs to one machine.
Rule 2: entries are counted once for all machines; a machine takes its next index from `Indexes`.
Rule 3: changes take effect in the order of the log, whichever machine they belong to.
Rule 4: entries that were lost to damage, and given up by the operator, have changed nothing. So a
        change may speak of something that, without them, never was; it changes nothing then.
Rule 5: whoever applies an entry need not have proposed it. There is one way in which an entry
        takes effect; its origin is None where nobody at this node waits for it.

A machine is a core whose state is what replay of its entries gives: the catalogue of topics,
access, the registry of nodes. The snapshot of the group is one JSON object with a field for each
machine, by name, and one for the requests of other nodes that were carried out (`done`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from hocket.core.metadata.done import Done
from hocket.core.origin import Asked
from hocket.errors import NewerFormat

GROUP = 0
# Kinds of entries that change nothing here: an empty one, and who keeps the log (`core.raft`).
NOOP, MEMBERSHIP = 0, 9
CATALOGUE = "catalogue"  # the catalogue's field; an old snapshot has only what is in that field
DONE = "done"  # the field of what was carried out for other nodes
ASKED = "asked"  # the field of an entry that says which node has asked for it


class Indexes:
    """Counts the entries of a log that several machines write to."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0

    def take(self) -> int:
        self.last += 1
        return self.last


@dataclass(slots=True)
class AppendChange:
    """Append an entry to the metadata's log."""

    index: int
    body: bytes


class Retired(Protocol):
    """What takes over the state that an older version kept in this log."""

    def replayed(self, index: int, body: bytes) -> None: ...
    def restore(self, index: int, state: dict[str, Any]) -> None: ...


class Machine(Protocol):
    def durable(self, index: int) -> list[Any]:
        """What this machine has proposed up to this index is committed. Returns what changed."""

    def applied(self, index: int, body: bytes, origin: Any) -> list[Any]:
        """The entry is committed and takes effect. Returns what it has changed.

        `origin` is that of whoever waits for it at this node, and None if nobody does. An entry
        that this machine has not proposed is told of by this call, and not by `durable`.
        """

    def replayed(self, index: int, body: bytes) -> None:
        """The log has this entry of the machine's kind; `index` becomes the last one taken."""

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        """The index of the last committed entry, and the committed state as JSON knows it."""

    def restore(self, index: int, state: dict[str, Any]) -> None:
        """To be called at most once, before any replay. `index` becomes the last one taken."""

    def replace(self, index: int, state: dict[str, Any]) -> list[Any]:
        """The state becomes this one, at run time. Returns what has changed, as changes."""

    def withdraw(self, index: int) -> list[Any]:
        """Forget what was proposed here and is not committed; `index` becomes the last one taken.

        Returns the origins of those who wait for it.
        """

    def in_doubt(self, body: bytes) -> None:
        """The log has this entry behind what was restored, and it may be committed."""

    def no_doubt(self) -> None:
        """What became of all such entries is known."""


class Proposer(ABC):
    """What the machines have in common: entries that were proposed here, and are on their way."""

    def __init__(self, indexes: Indexes | None = None) -> None:
        self.applied_index = 0
        self._indexes = indexes or Indexes()
        self._pending: deque[tuple[int, Any, bytes]] = deque()  # index, origin, body

    def durable(self, index: int) -> list[Any]:
        done: list[Any] = []
        while self._pending and self._pending[0][0] <= index:
            entry, origin, body = self._pending.popleft()
            done += self._take_effect(entry, body, origin)
        return done

    def applied(self, index: int, body: bytes, origin: Any) -> list[Any]:
        self._lead(body)
        return self._take_effect(index, body, origin)

    def replayed(self, index: int, body: bytes) -> None:
        assert index == self._indexes.last + 1
        self._indexes.last = index
        self.applied(index, body, None)

    def _lead(self, body: bytes) -> None:  # noqa: B027 - a machine may have nothing to lead
        """Judge what is proposed from now on as if this entry of another proposer were committed.

        What is proposed here is judged so from the moment at which it was proposed.
        """

    @abstractmethod
    def _take_effect(self, index: int, body: bytes, origin: Any) -> list[Any]:
        """The entry is committed: change the state, and return what has changed."""

    def withdraw(self, index: int) -> list[Any]:
        waiting = [origin for _index, origin, _body in self._pending if origin is not None]
        self._pending.clear()
        self._indexes.last = index
        self._go_back()
        return waiting

    def _go_back(self) -> None:  # noqa: B027 - a machine may have nothing to lead
        """Judge what is proposed from now on by what is committed alone."""

    def in_doubt(self, body: bytes) -> None:  # noqa: B027 - most machines wait until they know
        """See `Machine`."""

    def no_doubt(self) -> None:  # noqa: B027
        """See `Machine`."""

    def _propose(self, origin: Any, body: bytes) -> AppendChange:
        index = self._indexes.take()
        self._pending.append((index, origin, body))
        return AppendChange(index, body)


class Metadata:
    """Register every machine before anything is restored or replayed."""

    def __init__(self) -> None:
        self.indexes = Indexes()
        self.applied_index = 0
        self.done = Done()
        # The origin of a request that this node has handed on; None if nobody waits for it here.
        self.origin_of: Callable[[Asked], Any] = lambda _asked: None
        self._machines: dict[int, Machine] = {}
        self._names_by_kind: dict[int, str] = {}
        self._names: dict[str, Machine] = {}
        self._retired: dict[int | str, Retired | None] = {}
        # By name: the state of a machine as JSON, while it is what the snapshot before had.
        self._written: dict[str, str] = {}
        self._doubtful = 0  # the last entry of which it is not known whether it is committed
        # Entries on their way to the log: index, kind, who asked, and the body if it came from
        # another node.
        self._pending: deque[tuple[int, int, Asked | None, bytes | None]] = deque()

    def register(self, kind: int, name: str, machine: Machine) -> None:
        assert kind not in self._machines
        assert name not in self._names
        self._machines[kind] = self._names[name] = machine
        self._names_by_kind[kind] = name

    def retire(self, kind: int, name: str, machine: Retired | None = None) -> None:
        """Entries of this kind, and the part of this name, are of an older version.

        They are handed to `machine` when the log is opened, and are in no snapshot any more.
        """
        self._retired[kind] = self._retired[name] = machine

    def appended(self, kind: int, index: int, asked: Asked | None = None) -> None:
        """A machine's entry is on its way to the log; it has taken the index itself."""
        self._pending.append((index, kind, asked, None))

    def followed(self, kind: int, index: int, body: bytes) -> None:
        """An entry that another node has proposed is on its way to the log of this one."""
        assert index == self.indexes.last + 1, (index, self.indexes.last)
        self._check_kind(kind, index)
        self.indexes.last = index
        self._pending.append((index, kind, asker_of(body), body))

    def entered(self, index: int) -> None:
        """An entry that changes nothing is on its way to the log, at this index."""
        taken = self.indexes.take()
        assert taken == index, (taken, index)
        self._pending.append((index, NOOP, None, None))

    def withdraw(self) -> list[Any]:
        """Whoever leads decides what comes of the entries on their way: this node does no more.

        Returns the origins of those who wait for them.
        """
        self._pending.clear()
        return [
            origin
            for machine in self._machines.values()
            for origin in machine.withdraw(self.applied_index)
        ]

    def durable(self, index: int) -> list[tuple[int, Any]]:
        """All entries up to this one are committed. Returns (kind, change), in the log's order."""
        done: list[tuple[int, Any]] = []
        while self._pending and self._pending[0][0] <= index:
            entry, kind, asked, body = self._pending.popleft()
            if asked is not None:
                self.done.record(asked, entry)
            if kind not in self._machines:
                continue  # it changes nothing
            self._written.pop(self._names_by_kind[kind], None)
            if body is None:
                done += [(kind, change) for change in self._machines[kind].durable(entry)]
            else:
                origin = None if asked is None else self.origin_of(asked)
                changes = self._machines[kind].applied(entry, body, origin)
                done += [(kind, change) for change in changes]
        self.applied_index = max(self.applied_index, index)
        self._settle_doubts()
        return done

    def in_doubt(self, kind: int, index: int, body: bytes) -> None:
        """The log has this entry; whether it is committed is not known yet."""
        if kind in self._machines:
            self._machines[kind].in_doubt(body)
            self._doubtful = index

    def _settle_doubts(self) -> None:
        if 0 < self._doubtful <= self.applied_index:
            self._doubtful = 0
            for machine in self._machines.values():
                machine.no_doubt()

    def replayed(self, kind: int, index: int, body: bytes) -> None:
        self._check_kind(kind, index)
        if kind in self._machines:
            self._written.clear()
            self._machines[kind].replayed(index, body)
            asked = asker_of(body)
            if asked is not None:
                self.done.record(asked, index)
        else:
            retired = self._retired.get(kind)
            if retired is not None:
                retired.replayed(index, body)
        self.indexes.last = self.applied_index = index

    def _check_kind(self, kind: int, index: int) -> None:
        known = kind in (NOOP, MEMBERSHIP) or kind in self._machines
        if not known and kind not in self._retired:
            raise NewerFormat(
                f"entry {index} of the broker's metadata is of kind {kind}, which this version "
                "does not know; open it with the newer version that wrote it"
            )

    def lost(self, next_index: int) -> None:
        """The log goes on at this index: the entries before it are lost, and given up."""
        assert next_index > self.indexes.last, (next_index, self.indexes.last)
        self.indexes.last = self.applied_index = next_index - 1

    def snapshot(self) -> tuple[int, bytes]:
        parts = ", ".join(f'"{name}": {part}' for name, part in self.parts().items())
        return self.applied_index, f"{{{parts}}}".encode()

    def parts(self) -> dict[str, str]:
        """The states of all machines that have one, by name, as JSON."""
        parts = {}
        for name, machine in self._names.items():
            part = self._written.get(name)
            if part is None:
                state = machine.snapshot()[1]
                # Of one without a state nothing is said: older versions need not know the machine.
                part = self._written[name] = json.dumps(state) if state else ""
            if part:
                parts[name] = part
        if self.done:  # a node alone has none, and older versions can read its snapshot
            parts[DONE] = json.dumps(self.done.snapshot())
        return parts

    def changed(self) -> None:
        """A machine was changed by something else than an entry."""
        self._written.clear()

    def restore(self, index: int, snapshot: bytes) -> None:
        self._written.clear()
        for name, state in self._parts_of(snapshot).items():
            retired = self._retired.get(name)
            if name == DONE:
                self.done.restore(state)
            elif name in self._names:
                self._names[name].restore(index, state)
            elif retired is not None:
                retired.restore(index, state)
        self.indexes.last = self.applied_index = index

    def check(self, snapshot: bytes) -> None:
        """Raise NewerFormat if the snapshot has a part that this version does not know."""
        self._parts_of(snapshot)

    def replace(self, index: int, snapshot: bytes) -> list[tuple[int, Any]]:
        """The state becomes that of a snapshot which another node has sent, at run time.

        Returns (kind, change) for whatever is different now. Nothing may be on its way.
        """
        assert not self._pending
        self._written.clear()
        states = self._parts_of(snapshot)
        self.done.restore(states.get(DONE, {}))
        self.indexes.last = self.applied_index = index
        changes = [
            (kind, change)
            for kind, machine in self._machines.items()
            for name, named in self._names.items()
            if named is machine and name in states
            for change in machine.replace(index, states[name])
        ]
        self._settle_doubts()
        return changes

    def _parts_of(self, snapshot: bytes) -> dict[str, Any]:
        """The parts of a snapshot by name. Raises NewerFormat if one is unknown."""
        states: dict[str, Any] = json.loads(snapshot) if snapshot else {}
        if "topics" in states:  # of a version in which the catalogue had the log for itself
            states = {CATALOGUE: states}
        for name in states:
            if name != DONE and name not in self._names and name not in self._retired:
                raise NewerFormat(
                    f"the broker's metadata has a part {name!r}, which this version does not "
                    "know; open it with the newer version that wrote it"
                )
        return states


def with_asker(body: bytes, asked: Asked) -> bytes:
    """The entry, and which node has asked for it."""
    return json.dumps({**json.loads(body), ASKED: list(asked)}).encode()


def asker_of(body: bytes) -> Asked | None:
    if b'"asked"' not in body:
        return None
    asked = json.loads(body).get(ASKED)
    return None if asked is None else Asked(*asked)
