"""The deciders of transactions that run on a node: its own, and those of the cluster that are here.

Each has a log of its own, by the group of which it is known. The node's own one has the log
DECISIONS; those of the cluster are the partitions of the hidden topic DECIDERS. One that several
nodes keep is here while this node leads it, and not longer (`node.replication.deciders`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from hocket.core.transactions.decider import Decider
from hocket.log.model import RecoveredGroup
from hocket.log.settings import GroupSettings
from hocket.log.store import LogStore
from hocket.model import DECISIONS, EntryKind
from hocket.node.running.partitions import plain_entry


class Copy(Protocol):
    """This node's part in a log that several nodes keep."""

    def appended(self, index: int) -> None: ...


@dataclass(slots=True, eq=False)
class Seat:
    """A decider, and where its log stands."""

    group: int
    core: Decider
    term: int = 1
    copy: Copy | None = None  # None: no other node keeps its log

    @property
    def is_own(self) -> bool:
        """It is the node's own: it decides as long as the cluster has no others."""
        return self.group == DECISIONS


class Deciders:
    def __init__(self, log: LogStore) -> None:
        self._log = log
        self.own = Seat(DECISIONS, Decider())
        self._seats = {DECISIONS: self.own}

    def __iter__(self) -> Iterator[Seat]:
        return iter(self._seats.values())

    def __contains__(self, group: int) -> bool:
        return group in self._seats

    def __getitem__(self, group: int) -> Seat:
        return self._seats[group]

    def get(self, group: int) -> Seat | None:
        return self._seats.get(group)

    def host(self, group: int, recovered: RecoveredGroup | None = None) -> Seat:
        """Hold one of the cluster's deciders."""
        seat = Seat(group, Decider(inherits=True))
        if recovered is not None:
            seat.term = recovered.term + 1
            replay(seat.core, recovered)
        self._log.configure(group, GroupSettings())
        self._seats[group] = seat
        return seat

    def append(self, seat: Seat, index: int, body: bytes) -> None:
        """Append an entry of the decider to its log. The entry was admitted there."""
        entry = plain_entry(EntryKind.DECISION, seat.term, index, 0, body)
        self._log.append(seat.group, entry, admitted=True)
        if seat.copy is not None:
            seat.copy.appended(index)

    def enter(self, seat: Seat) -> None:
        self._seats[seat.group] = seat

    def leave(self, group: int) -> Seat:
        return self._seats.pop(group)

    def snapshot(self, group: int) -> tuple[int, bytes]:
        applied, state = self._seats[group].core.snapshot()
        return applied, json.dumps(state).encode()


def replay(core: Decider, recovered: RecoveredGroup) -> None:
    """Bring a decider to the state that its log was left in."""
    if recovered.snapshot:
        core.restore(recovered.snapshot_index, json.loads(recovered.snapshot))
    for header, body in recovered.entries:
        core.replayed(header.index, bytes(body))
    core.go_on_behind(recovered.next_index - 1)
