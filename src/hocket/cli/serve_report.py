"""What `hocket serve` says of itself: at its start what it opened, at its end what it did.

Each is one line of the log. In JSON (`--log-format json`) the line also has the numbers as fields.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from hocket.cli import output
from hocket.cli.stderr_log import fields

if TYPE_CHECKING:
    from hocket.node.broker import Broker

log = logging.getLogger("hocket.serve")


@dataclass(slots=True)
class ServeReport:
    """`opening_began` is when the data directory was about to be opened."""

    broker: Broker
    directory: Path
    opening_began: float
    opened: float

    def started(self, urls: Mapping[str, str], *, tls: bool) -> None:
        """`urls` are where it listens, by what is spoken there."""
        node = self.broker.node
        held = node.holdings()
        seconds = self.opened - self.opening_began
        access = node.access_is_on
        durability = ", ".join(f"{count} {name}" for name, count in sorted(held.durability.items()))
        log.info(
            "opened %s in %s: %s, %s, %s in memory, %s on disk; durability of topics: %s; "
            "access control is %s, TLS is %s",
            self.directory, output.seconds(seconds), _count(held.topics, "topic"),
            _count(held.partitions, "partition"), output.size(held.memory_bytes),
            output.size(held.disk_bytes), durability or "(there are none yet)",
            _on(access), _on(tls),
            extra=fields(
                "opened",
                data=str(self.directory), recovery_seconds=round(seconds, 6), topics=held.topics,
                partitions=held.partitions, memory_bytes=held.memory_bytes,
                disk_bytes=held.disk_bytes, durability=held.durability, access_control=access,
                tls=tls, node=node.name, cluster=node.cluster, listen=dict(urls),
            ),
        )  # fmt: skip

    def stopped(self, reason: str, asked: float | None) -> None:
        """`asked` is when it was asked to stop; None: it was not."""
        now = monotonic()
        broker, done = self.broker, self.broker.node.traffic
        lasted, closing = now - self.opened, now - (now if asked is None else asked)
        log.info(
            "stopped by %s after %s: %d of %s ended; took %s (%s), gave %s (%s); closed in %s",
            reason, output.seconds(lasted), broker.connections_ended,
            _count(broker.connections_total, "connection"),
            _count(done.records_taken, "record"), output.size(done.bytes_taken),
            _count(done.records_given, "record"), output.size(done.bytes_given),
            output.seconds(closing),
            extra=fields(
                "stopped",
                reason=reason, uptime_seconds=round(lasted, 6), close_seconds=round(closing, 6),
                connections_ended=broker.connections_ended,
                connections_total=broker.connections_total, **_numbers(done),
            ),
        )  # fmt: skip


def _numbers(done: Any) -> dict[str, int]:
    names = ("records_taken", "bytes_taken", "records_given", "bytes_given")
    return {name: getattr(done, name) for name in names}


def _count(count: int, noun: str) -> str:
    return f"{output.number(count)} {noun}{'' if count == 1 else 's'}"


def _on(flag: bool) -> str:
    return "on" if flag else "off"
