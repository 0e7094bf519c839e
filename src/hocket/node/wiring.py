"""What the servants of a node share. Wiring only; each part has its rules in its own file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from hocket.core.metadata.catalogue import Catalogue
from hocket.core.metadata.metadata import GROUP, Metadata
from hocket.core.session.session import Demand, Session, failure, offset_of
from hocket.errors import HocketError, UnknownTopic
from hocket.log.model import OffsetDone, ReadResult
from hocket.log.store import LogStore
from hocket.model import Start
from hocket.node.running.deliveries import Address, Deliveries
from hocket.node.running.partitions import Hosted, Partitions, plain_entry
from hocket.node.running.sharing import Shares
from hocket.node.settings import NodeSettings
from hocket.ports import Clock, Network
from hocket.wire.batch import parse

Servant = Callable[[int, Session, Demand, memoryview], None]


@dataclass(slots=True)
class Parts:
    name: str
    settings: NodeSettings
    clock: Clock
    network: Network
    log: LogStore
    metadata: Metadata
    catalogue: Catalogue
    partitions: Partitions
    deliveries: Deliveries
    shares: Shares
    entropy: Callable[[int], bytes]
    metadata_term: int = 1
    sessions: dict[int, Session] = field(default_factory=dict)

    def close_subscription(self, address: Address, *, graceful: bool) -> None:
        """Whatever of them it is; nothing if it is neither."""
        self.deliveries.close(address)
        self.shares.close(address, graceful=graceful)

    def end_subscription(self, address: Address, code: str, message: str) -> None:
        """From our side, saying why."""
        self.deliveries.end(address, code, message)
        self.shares.end(address, code, message)

    def append_metadata(self, kind: int, index: int, body: bytes) -> None:
        """An entry of one of the machines of group 0, which was admitted there."""
        self.metadata.appended(kind, index)
        entry = plain_entry(kind, self.metadata_term, index, 0, body)
        self.log.append(GROUP, entry, admitted=True)

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
                have_all()

        def have_all() -> None:
            # The disk may have been asked: nobody else hears of what goes wrong from here on.
            try:
                if not all(map(self.partitions.holds, wanted.values())):
                    raise UnknownTopic("the topic was deleted meanwhile")
                found(offsets)
            except HocketError as error:
                self.network.send(connection, failure(request, error))

        for number, hosted in wanted.items():
            core = hosted.core
            offset = offset_of(start, log_start=core.start, end=core.high_watermark)
            if offset is None:
                self._find_time(hosted, start.value, partial(have, number))
            else:
                have(number, offset)
        if not wanted:
            found(offsets)

    def _find_time(self, hosted: Hosted, time_us: int, done: OffsetDone) -> None:
        """The log knows the batch; which of its records it is stands in the batch itself."""

        def batch_found(offset: int | HocketError) -> None:
            gone = not self.partitions.holds(hosted)
            if isinstance(offset, HocketError) or gone or offset >= hosted.core.high_watermark:
                done(offset)
                return
            try:
                read = self.log.read(
                    hosted.group, offset, bytes_max=1, end_offset=offset + 1, done=batch_read
                )
            except HocketError as error:
                done(error)
                return
            if read is not None:
                batch_read(read)

        def batch_read(read: ReadResult | HocketError) -> None:
            if isinstance(read, HocketError):
                done(read)
                return
            try:
                offset = first_record_at(read, time_us)
            except HocketError as error:  # a producer may write nonsense with a right checksum
                done(error)
            else:
                done(offset)

        offset = self.log.offset_at_time(hosted.group, time_us, batch_found)
        if offset is not None:
            batch_found(offset)


def first_record_at(read: ReadResult, time_us: int) -> int:
    if not read.slices:
        return read.end_offset
    batch = parse(read.slices[0], verify=False)
    later = (at for at, stamp in enumerate(batch.timestamps()) if stamp >= time_us)
    return batch.base_offset + next(later, batch.count)
