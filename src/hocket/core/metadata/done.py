"""Which requests of other nodes have been carried out: so that none is carried out twice.

Rule 1: a request is known by the node that handed it on and by its number. Numbers of a node grow,
        also from one life of the node to the next.
Rule 2: of each node the newest numbers are remembered, and none that is too old for the node to be
        waiting for: a node has no request under way that is `KEPT` numbers behind its newest.

This is part of the metadata's state: every entry that was asked for by a node says so, and whoever
applies the entry remembers it.
"""

from __future__ import annotations

from typing import Any

from hocket.core.origin import Asked

KEPT = 64  # numbers, of each node


class Done:
    def __init__(self) -> None:
        self._nodes: dict[str, dict[int, int]] = {}  # node -> number -> index of the entry

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def record(self, asked: Asked, index: int) -> None:
        numbers = self._nodes.setdefault(asked.node, {})
        numbers[asked.number] = index
        oldest = max(numbers) - KEPT
        for number in [each for each in numbers if each <= oldest]:
            del numbers[number]

    def index_of(self, asked: Asked) -> int | None:
        """The entry that has carried the request out; None: none has, as far as is remembered."""
        return self._nodes.get(asked.node, {}).get(asked.number)

    def is_too_old(self, asked: Asked) -> bool:
        """Whether the request may have been carried out and be forgotten."""
        numbers = self._nodes.get(asked.node)
        return bool(numbers) and asked.number <= max(numbers or (0,)) - KEPT

    def snapshot(self) -> dict[str, list[list[int]]]:
        return {
            node: [[number, index] for number, index in numbers.items()]
            for node, numbers in self._nodes.items()
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._nodes = {node: dict(map(tuple, rows)) for node, rows in state.items()}
