"""What can be set for a node, beside what is set per topic."""

from __future__ import annotations

from dataclasses import dataclass, field

from hocket.log.settings import LogSettings
from hocket.model import Limits

TICK_US = 100_000  # how often a node looks at the clock


@dataclass(slots=True)
class NodeSettings:
    name: str = ""  # for people; empty: the store's id
    limits: Limits = field(default_factory=Limits)
    log: LogSettings = field(default_factory=LogSettings)
    retention_every_us: int = 1_000_000
