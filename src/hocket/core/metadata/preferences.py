"""What is set for the whole cluster, kept in the metadata's log: how many replicas a topic has that
does not say so itself.

Rule 1: a change takes effect when it is committed, and is judged as if the changes on their way
        before it had been. So is a topic that is made behind one of them.
Rule 2: what the founder has said is written once, before anything else is set, and is remembered.
        A node that is started with the same words as at the founding is right to be.

A cluster in which nothing was ever set has one replica of each partition. Nothing of this file is
in its log then, so that older versions can read it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hocket.core.metadata.metadata import AppendChange, Indexes, Proposer
from hocket.errors import NotEnoughNodes, OutOfRange
from hocket.model import REPLICAS_MAX

REPLICATION_DEFAULT = 1


@dataclass(slots=True)
class Changed:
    """The change is committed and in effect."""

    origin: Any  # who asked for it, only handed back; None: nobody at this node waits for it
    replication: int


class Preferences(Proposer):
    """The machine of the metadata's log; see `core.metadata.metadata`."""

    def __init__(self, indexes: Indexes | None = None) -> None:
        super().__init__(indexes)
        self._committed = 0  # 0: nobody has said
        self._leading = 0
        self._founded = 0  # what the founder has said; 0: nothing

    @property
    def replication(self) -> int:
        """How many replicas a partition has whose topic does not say."""
        return self._committed or REPLICATION_DEFAULT

    @property
    def replication_to_come(self) -> int:
        """The same for a topic that is made now, behind the changes on their way."""
        return self._leading or REPLICATION_DEFAULT

    @property
    def founded(self) -> int:
        """What the cluster was founded with."""
        return self._founded or REPLICATION_DEFAULT

    @property
    def is_founded(self) -> bool:
        """Whether there is nothing left that the founder could say."""
        return bool(self._leading)

    def found(self, origin: object, replication: int) -> AppendChange:
        """Nodes are to come: the founder may want more replicas than there are nodes now."""
        assert not self.is_founded
        _check(replication)
        self._leading = replication
        return self._propose(origin, _encoded(replication, founded=True))

    def set_replication(self, origin: object, replication: int, nodes: int) -> AppendChange:
        """Raises if no topic could be made with that: who sets it has mistyped, or is too early."""
        _check(replication)
        if replication > nodes:
            raise NotEnoughNodes(
                f"{replication} replicas need {replication} nodes, and there "
                f"{'is' if nodes == 1 else 'are'} {nodes}: no topic could be made without saying "
                "another number of replicas; have the nodes join first"
            )
        self._leading = replication
        return self._propose(origin, _encoded(replication, founded=False))

    def _lead(self, body: bytes) -> None:
        self._leading = json.loads(body)["replication"]

    def _take_effect(self, index: int, body: bytes, origin: object) -> list[Changed]:
        self.applied_index = index
        change = json.loads(body)
        self._committed = change["replication"]
        if change.get("founded"):
            self._founded = self._committed
        return [Changed(origin, self._committed)]

    def _go_back(self) -> None:
        self._leading = self._committed

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        """The state is empty if nothing was ever set."""
        state = {"replication": self._committed, "founded": self._founded}
        return self.applied_index, state if self._committed else {}

    def restore(self, index: int, state: dict[str, Any]) -> None:
        self._indexes.last = self.applied_index = index
        self._committed = self._leading = state["replication"]
        self._founded = state["founded"]

    def replace(self, index: int, state: dict[str, Any]) -> list[Changed]:
        self.restore(index, state)
        return [Changed(None, self._committed)]


def _check(replication: int) -> None:
    if not 1 <= replication <= REPLICAS_MAX:
        raise OutOfRange(f"a partition has 1 to {REPLICAS_MAX} replicas, not {replication}")


def _encoded(replication: int, *, founded: bool) -> bytes:
    change: dict[str, Any] = {"replication": replication}
    if founded:
        change["founded"] = True
    return json.dumps(change).encode()
