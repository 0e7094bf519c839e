"""A simulated store with a storage tier: its place lives on while the store crashes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from hocket.errors import HocketError
from hocket.log.settings import LogSettings
from hocket.log.store import ReadResult
from hocket.log.tier.place import TierRules
from hocket.sim.executor import SimExecutor
from tests.support.log.world import TINY, TINY_GROUP, World

AT_ONCE = TierRules(after=0.3, cache_bytes=4000, deadline=2.0, sweep_every=2.0)


@dataclass
class Place:
    """Keeps bytes. Fails when `fails` says so, and half of what it was given is there then."""

    rules: TierRules = AT_ONCE
    kept: dict[str, bytes] = field(default_factory=dict)
    fails: Callable[[str], bool] = lambda call: False
    calls: list[str] = field(default_factory=list)

    def _called(self, call: str) -> None:
        self.calls.append(call)
        if self.fails(call):
            raise ConnectionError(f"{call}: the place is not there")

    def store(self, key: str, source: BinaryIO) -> None:
        data = source.read()
        if self.fails("store"):
            self.kept[key] = data[: len(data) // 2]
        self._called("store")
        self.kept[key] = data

    def fetch(self, key: str, target: BinaryIO) -> None:
        self._called("fetch")
        if key not in self.kept:
            raise FileNotFoundError(key)
        target.write(self.kept[key])

    def remove(self, key: str) -> None:
        self._called("remove")
        self.kept.pop(key, None)

    def keys(self, prefix: str) -> list[str]:
        self._called("keys")
        return [key for key in self.kept if key.startswith(prefix)]


class TierWorld(World):
    def __init__(
        self, seed: object, *, place: Place | None = None, settings: LogSettings = TINY
    ) -> None:
        self.place: Place | None = place or Place()
        self.stored = self.fetched = 0  # in lives that have ended
        super().__init__(seed, settings=settings, group=replace(TINY_GROUP, may_leave=True))

    def open(self) -> None:
        if hasattr(self, "store"):
            self.stored += self.store.tier.stored
            self.fetched += self.store.tier.fetched
        super().open()
        self.calls = SimExecutor(self.scheduler, stream="tier", delay_us_max=20_000)
        if self.place is not None:
            self.store.tier.attach(self.place, "sim", self.calls, self.calls.crash)

    def crash(self) -> None:
        self.calls.crash()
        super().crash()

    def kill(self) -> None:
        self.calls.crash()
        super().kill()

    def fetch(self, number: int, offset: int, *, bytes_max: int = 1000) -> ReadResult | HocketError:
        """Like any read, but ticks go on meanwhile: they end what waits for too long."""
        answers: list[ReadResult | HocketError] = []
        try:
            result = self.store.read(
                number, offset, bytes_max=bytes_max, end_offset=1 << 60, done=answers.append
            )
        except HocketError as error:
            return error
        for _ in range(1_000):
            if result is not None or answers:
                break
            self.run(10_000)
        return result if result is not None else answers[0]

    def fill(self, number: int, *, segments: int) -> None:
        """Until the group has so many segments, all of them in a checkpoint but the last ones."""
        while len(self.store.segments(number)) < segments:
            self.append(number, size=200)
            self.settle()
        self.store.checkpoint_now()
        self.settle()

    def away(self, number: int) -> int:
        return sum(each.away for each in self.store._groups[number].segments)

    def run_until(self, condition: Callable[[], bool], *, within_us: int = 20_000_000) -> None:
        end_us = self.scheduler.now_us() + within_us
        while not condition():
            assert self.scheduler.now_us() < end_us, "it did not come to that"
            self.run(50_000)
