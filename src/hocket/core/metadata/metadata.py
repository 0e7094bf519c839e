"""The machines that share the log of a broker's metadata (group 0).

Rule 1: entries are told apart by their kind, and each kind belongs to one machine.
Rule 2: entries are counted once for all machines; a machine takes its next index from `Indexes`.
Rule 3: changes take effect in the order of the log, whichever machine they belong to.
Rule 4: entries that were lost to damage, and given up by the operator, have changed nothing. So a
        change may speak of something that, without them, never was; it changes nothing then.

A machine is a core whose state is what replay of its entries gives: the catalogue of topics,
access, the decisions on transactions, the registry of nodes. A machine remembers what it has
appended and is not yet committed. The snapshot of the group is one JSON object with a field for
each machine, by name.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from hocket.errors import NewerFormat

GROUP = 0
NOOP = 0  # the kind of an entry that changes nothing
CATALOGUE = "catalogue"  # the catalogue's field; an old snapshot has only what is in that field


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


class Machine(Protocol):
    def durable(self, index: int) -> list[Any]:
        """The machine's entries up to this one are committed. Returns what they have changed."""

    def replayed(self, index: int, body: bytes) -> None:
        """The log has this entry of the machine's kind; `index` becomes the last one taken."""

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        """The index of the last committed entry, and the committed state as JSON knows it."""

    def restore(self, index: int, state: dict[str, Any]) -> None:
        """To be called at most once, before any replay. `index` becomes the last one taken."""


class Metadata:
    """Register every machine before anything is restored or replayed."""

    def __init__(self) -> None:
        self.indexes = Indexes()
        self.applied_index = 0
        self._machines: dict[int, Machine] = {}
        self._names: dict[str, Machine] = {}
        self._pending: deque[tuple[int, int]] = deque()  # (index, kind) of entries on their way

    def register(self, kind: int, name: str, machine: Machine) -> None:
        assert kind not in self._machines
        assert name not in self._names
        self._machines[kind] = self._names[name] = machine

    def appended(self, kind: int, index: int) -> None:
        """A machine's entry is on its way to the log."""
        self._pending.append((index, kind))

    def durable(self, index: int) -> list[tuple[int, Any]]:
        """All entries up to this one are committed. Returns (kind, change), in the log's order."""
        done: list[tuple[int, Any]] = []
        while self._pending and self._pending[0][0] <= index:
            entry, kind = self._pending.popleft()
            done += [(kind, change) for change in self._machines[kind].durable(entry)]
        self.applied_index = max(self.applied_index, index)
        return done

    def replayed(self, kind: int, index: int, body: bytes) -> None:
        machine = self._machines.get(kind)
        if machine is not None:
            machine.replayed(index, body)
        elif kind != NOOP:
            raise NewerFormat(
                f"entry {index} of the broker's metadata is of kind {kind}, which this version "
                "does not know; open it with the newer version that wrote it"
            )
        self.indexes.last = self.applied_index = index

    def lost(self, next_index: int) -> None:
        """The log goes on at this index: the entries before it are lost, and given up."""
        assert next_index > self.indexes.last, (next_index, self.indexes.last)
        self.indexes.last = self.applied_index = next_index - 1

    def snapshot(self) -> tuple[int, bytes]:
        states = {name: machine.snapshot()[1] for name, machine in self._names.items()}
        return self.applied_index, json.dumps(states).encode()

    def restore(self, index: int, snapshot: bytes) -> None:
        states: dict[str, Any] = json.loads(snapshot) if snapshot else {}
        if "topics" in states:  # of a version in which the catalogue had the log for itself
            states = {CATALOGUE: states}
        for name, state in states.items():
            machine = self._names.get(name)
            if machine is None:
                raise NewerFormat(
                    f"the broker's metadata has a part {name!r}, which this version does not "
                    "know; open it with the newer version that wrote it"
                )
            machine.restore(index, state)
        self.indexes.last = self.applied_index = index
