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
        self._seen: dict[int, dict[str, Any]] = {}  # what was looked at, by its identity
        self._done: dict[tuple[str, int], int] = {}  # by node and number: the entry

    def look(self, _machine: Machine, _index: int, state: dict[str, Any]) -> None:
        done = state.get("done", {})
        if id(done) in self._seen:
            return  # another machine has the same
        self._seen[id(done)] = done
        for node, rows in done.items():
            for row in rows:
                number, entry = max(row), min(row)  # numbers begin with a life, and are larger
                if self._done.setdefault((node, number), entry) != entry:
                    raise self.broken(
                        f"number {number} of {node} was carried out by entry "
                        f"{self._done[node, number]}, and again by {entry}"
                    )
