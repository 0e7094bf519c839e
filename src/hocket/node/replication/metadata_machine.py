"""The metadata (topics, access, nodes) as the machine of group 0, kept by all nodes of a cluster.

While another node leads, the machines of the metadata are told committed entries only. While this
node leads, they propose entries themselves, judge by what they have proposed, and take effect when
the entries are committed. When it leads no more they go back to what is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from hocket.core.metadata.metadata import Metadata
from hocket.node.replication.saved import machine_state
from hocket.wire.entry import Header


class Entry(NamedTuple):
    at: int  # its index
    kind: int
    body: bytes


class Leadership(Protocol):
    """Is told when this node begins and ceases to lead group 0."""

    def begins(self, term: int) -> None: ...

    def ceases(self, waiting: list[Any]) -> None:
        """`waiting` are the origins of those who wait for changes that are not committed."""

    def hint(self) -> None:
        """Another node leads than before, or none."""


class MetadataMachine:
    def __init__(
        self,
        metadata: Metadata,
        *,
        took_effect: Callable[[list[tuple[int, Any]]], None],
        replaced: Callable[[list[tuple[int, Any]]], None],
        leadership: Leadership,
    ) -> None:
        """`took_effect` is told what committed entries have changed, `replaced` what a state has
        that another node has sent."""
        self._metadata = metadata
        self._took_effect = took_effect
        self._replaced = replaced
        self._leadership = leadership

    def prepared(self, header: Header, body: memoryview) -> Entry:
        return Entry(header.index, header.kind, bytes(body))

    def apply(self, entry: Entry) -> None:
        self._metadata.followed(entry.kind, entry.at, entry.body)
        self.committed(entry.at)

    def committed(self, index: int) -> None:
        self._took_effect(self._metadata.durable(index))

    def entered(self, index: int) -> None:
        self._metadata.entered(index)

    def serve(self, term: int) -> None:
        self._leadership.begins(term)

    def stop(self, _leader: str) -> None:
        self._leadership.ceases(self._metadata.withdraw())

    def snapshot(self) -> tuple[int, bytes]:
        return self._metadata.snapshot()

    def check(self, state: bytes) -> None:
        self._metadata.check(machine_state(state))

    def install(self, index: int, _log_start: int, state: bytes) -> None:
        self._replaced(self._metadata.replace(index, machine_state(state)))

    def hint(self) -> None:
        self._leadership.hint()
