"""G3: a request that a node has handed on to the root is carried out by one entry at most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hocket.sim.checkers.metadata_checker import MetadataChecker, MetadataWatch

if TYPE_CHECKING:
    from hocket.sim.machine import Machine


class NoRequestIsDoneTwice(MetadataChecker):
    name = "no_request_is_done_twice"
    sentence = "A request that was handed on to the root is carried out once."

    def __init__(self, watch: MetadataWatch) -> None:
        super().__init__(watch)
        # What was looked at, by node and identity: others have the same, and so has the next entry.
        self._seen: dict[tuple[str, int], list[Any]] = {}
        self._done: dict[tuple[str, int], int] = {}  # by node and number: the entry

    def look(self, _machine: Machine, _index: int, state: dict[str, Any]) -> None:
        for node, rows in state.get("done", {}).items():
            if (node, id(rows)) in self._seen:
                continue
            self._seen[node, id(rows)] = rows
            for row in rows:
                number, entry = max(row), min(row)  # numbers begin with a life, and are larger
                if self._done.setdefault((node, number), entry) != entry:
                    raise self.broken(
                        f"number {number} of {node} was carried out by entry "
                        f"{self._done[node, number]}, and again by {entry}"
                    )
