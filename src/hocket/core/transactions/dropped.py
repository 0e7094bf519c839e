"""Producers whose stages were dropped: nothing that they had staged may be committed any more.

A dropped producer is remembered until a number as high as its own is committed: from then on that
number takes no other content anyway. How many producers are remembered is bounded, and those that
were dropped first are forgotten first. Little is lost by that: a commit that names a forgotten
producer finds its stage gone, unless the message that drops the stage was lost too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

OF_ONE_ID_MAX = 10_000  # producers remembered for one id
MAX = 100_000  # producers remembered for all ids; the id that was aborted longest ago goes first

_NONE: Mapping[bytes, int] = MappingProxyType({})


class Dropped:
    def __init__(self) -> None:
        self._ids: dict[str, dict[bytes, int]] = {}  # id -> producer -> number; the oldest first
        self._count = 0

    def __iter__(self) -> Iterator[str]:
        """The ids of which producers were dropped."""
        return iter(self._ids)

    def of(self, transaction: str) -> Mapping[bytes, int]:
        """The dropped producers of an id, each with the number that it had staged for."""
        return self._ids.get(transaction, _NONE)

    def add(self, transaction: str, number: int, producers: Iterable[bytes]) -> None:
        known = self._take(transaction)
        for producer_id in producers:
            known[producer_id] = max(number, known.get(producer_id, number))
        for producer_id in list(known)[: max(0, len(known) - OF_ONE_ID_MAX)]:
            del known[producer_id]
        self._put(transaction, known)
        while self._count > MAX and len(self._ids) > 1:
            self._take(next(iter(self._ids)))

    def committed(self, transaction: str, number: int) -> None:
        """Forget the producers of numbers up to this one."""
        known = self._take(transaction)
        self._put(transaction, {each: at for each, at in known.items() if at > number})

    def _take(self, transaction: str) -> dict[bytes, int]:
        known = self._ids.pop(transaction, {})
        self._count -= len(known)
        return known

    def _put(self, transaction: str, known: dict[bytes, int]) -> None:
        if known:
            self._ids[transaction] = known
            self._count += len(known)

    def snapshot(self) -> dict[str, Any]:
        return {
            transaction: [[producer_id.hex(), number] for producer_id, number in known.items()]
            for transaction, known in self._ids.items()
        }

    def restore(self, taken: dict[str, Any]) -> None:
        for transaction, known in taken.items():
            self._put(transaction, {bytes.fromhex(each): number for each, number in known})
