"""What the servants of a node share. Wiring only; each part has its rules in its own file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from hocket.core.catalogue import Catalogue
from hocket.core.session import Demand, Session, failure, offset_of
from hocket.errors import HocketError
from hocket.log.store import LogStore
from hocket.model import Start
from hocket.node.deliveries import Deliveries
from hocket.node.partitions import Hosted, Partitions
from hocket.node.settings import NodeSettings
from hocket.ports import Clock, Network

Servant = Callable[[int, Session, Demand, memoryview], None]


@dataclass(slots=True)
class Parts:
    name: str
    settings: NodeSettings
    clock: Clock
    network: Network
    log: LogStore
    catalogue: Catalogue
    partitions: Partitions
    deliveries: Deliveries
    entropy: Callable[[int], bytes]
    catalogue_term: int = 1
    sessions: dict[int, Session] = field(default_factory=dict)

    def resolve(
        self,
        connection: int,
        request: int,
        wanted: dict[int, Hosted],
        start: Start,
        found: Callable[[dict[int, int]], None],
    ) -> None:
        """The offset that `start` means in each partition; times may have to ask the disk."""
        offsets: dict[int, int] = {}
        failed = False

        def have(number: int, offset: int | HocketError) -> None:
            nonlocal failed
            if failed:
                return
            if isinstance(offset, HocketError):
                failed = True
                self.network.send(connection, failure(request, offset))
                return
            core = wanted[number].core
            offsets[number] = min(max(offset, core.start), core.high_watermark)
            if len(offsets) == len(wanted):
                found(offsets)

        for number, hosted in wanted.items():
            core = hosted.core
            offset = offset_of(start, log_start=core.start, end=core.high_watermark)
            if offset is None:
                done = partial(have, number)
                offset = self.log.offset_at_time(hosted.group, start.value, done)
            if offset is not None:
                have(number, offset)
        if not wanted:
            found(offsets)
