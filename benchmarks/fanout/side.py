"""What a side of this benchmark does: publish at a steady rate, and read as one of many consumers.

Each value begins with the time at which it was due, and its number. The processes share the
machine's monotonic clock, so a consumer knows how late a message is; what the producer itself is
late by counts too.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

ACK_SECONDS = 0.05  # ours sends acknowledgements together, so long after the first; so do peers
STAMP = struct.Struct("dQ")
_NOWHERE = bytearray(256 << 10)


class Side(Protocol):
    name: str

    async def make(self, address: str, topic: str, consumers: int) -> None:
        """Make the topic, and whatever `consumers` consumers of their own need of it."""

    def publishing(
        self, address: str, topic: str
    ) -> AbstractAsyncContextManager[Callable[[list[bytes]], Awaitable[None]]]:
        """A function that publishes values at once; all are stored when the block ends."""

    async def consume(self, address: str, topic: str, consumers: Consumers) -> None:
        """Be these consumers, each with an index of its own, and acknowledge every message."""

    async def crowd(self, address: str, topic: str, count: int) -> Crowd:
        """So many further consumers, without an index, each with a connection of its own, which
        ends with the process."""


@dataclass(slots=True)
class Consumers:
    """The consumers that look at every message."""

    count: int
    apart: bool  # each of them is a client by itself
    seen: Callable[[bytes], bool]  # told of each value; True: that was the last one
    ready: Callable[[], None]  # to be called when they wait for messages
    stay: Callable[[], Awaitable[None]]  # to be awaited before their connections end


class Crowd:
    """Consumers that only count the bytes that come: a thousand who look at each message would
    need more processors than all servers together."""

    def __init__(self, descriptors: Sequence[Sequence[int]]) -> None:
        self.bytes = [0] * len(descriptors)
        self._descriptors = descriptors

    def begin(self) -> None:
        """All are where they will stay; from now on `take` is called."""

    def take(self) -> None:
        """Count what has come."""
        for number, descriptors in enumerate(self._descriptors):
            for descriptor in descriptors:
                self.bytes[number] += self._take_from(descriptor)

    def _take_from(self, descriptor: int) -> int:
        taken = 0
        with suppress(BlockingIOError):
            while count := os.readv(descriptor, [_NOWHERE]):
                taken += count
                if count < len(_NOWHERE):
                    break
        return taken


async def publish_at(
    rate: int, seconds: float, value_bytes: int, publish: Callable[[list[bytes]], Awaitable[None]]
) -> None:
    """Each value when it is due, or as soon as possible afterwards."""
    filling = bytes(value_bytes - STAMP.size)
    begun = monotonic()
    sent, total = 0, int(rate * seconds)
    while sent < total:
        now = monotonic()
        due = min(total, int((now - begun) * rate) + 1)
        values = [
            STAMP.pack(begun + number / rate, number) + filling for number in range(sent, due)
        ]
        if values:
            await publish(values)
            sent = due
        await asyncio.sleep(max(0.0, begun + sent / rate - monotonic()))
