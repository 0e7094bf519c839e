"""Leases of shared indexes: reads the messages that a dispatcher wants leased, and sends them.

The dispatcher (`core.sharing.dispatcher`) knows offsets and sizes only. Here its effects `Fetch`,
`Scan` and `Send` become reads of the log and frames to consumers, and what was read becomes events
for it. Memory answers a read at once, the disk later; by then the index may not be in use any more.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from hocket import frames
from hocket.core.sharing import events as core
from hocket.errors import CorruptData, HocketError
from hocket.frames import packed
from hocket.log.model import FileUnreadable, ReadResult, is_damage
from hocket.log.store import LogStore
from hocket.node.running.hooks import Given
from hocket.node.running.partitions import Partitions
from hocket.node.running.sessions import Address
from hocket.node.running.shared_index import SharedIndex
from hocket.ports import Clock, Network
from hocket.wire.batch import iterate_entries, parse
from hocket.wire.entry import Header

log = logging.getLogger("hocket.node")

Effects = list[core.Effect]


class Leasing:
    """`fetch`, `scan` and `send` return what the dispatcher wants next.

    What follows from a read of the disk goes to `carry_out`, unless the index is not `in_use` by
    then. `end` ends a consumer whose messages are damaged.
    """

    def __init__(
        self,
        log: LogStore,
        network: Network,
        clock: Clock,
        partitions: Partitions,
        *,
        carry_out: Callable[[SharedIndex, Effects], None],
        in_use: Callable[[SharedIndex], bool],
        end: Callable[[Address, str, str], None],
    ) -> None:
        self._log = log
        self._network = network
        self._clock = clock
        self._partitions = partitions
        self._carry_out = carry_out
        self._in_use = in_use
        self._end = end

    def fetch(self, shared: SharedIndex, fetch: core.Fetch) -> Effects:
        hosted = self._partitions.get(shared.groups[fetch.partition])
        if hosted is None:  # the topic is being deleted
            return shared.core.step(core.FetchFailed(fetch.fetch))
        if hosted.copy is not None and not hosted.may_lease():
            hosted.copy.authority.confirm(partial(self._confirmed, shared, fetch))
            return []
        return self._fetch(shared, fetch)

    def _confirmed(self, shared: SharedIndex, fetch: core.Fetch, leads: bool) -> None:
        """The other replicas were asked whether this node may lease messages."""
        if not self._in_use(shared) or fetch.partition not in shared.groups:
            return
        if leads:
            self._carry_out(shared, self._fetch(shared, fetch))
        else:
            self._carry_out(shared, shared.core.step(core.FetchFailed(fetch.fetch)))

    def _fetch(self, shared: SharedIndex, fetch: core.Fetch) -> Effects:
        return self._read(
            shared,
            fetch,
            partial(self._fetched, shared, fetch),
            wanted=partial(shared.consumers.__contains__, fetch.consumer),
        )

    def scan(self, shared: SharedIndex, scan: core.Scan) -> Effects:
        return self._read(shared, scan, partial(self._scanned, shared, scan))

    def _read(
        self,
        shared: SharedIndex,
        effect: core.Fetch | core.Scan,
        found: Callable[[ReadResult | HocketError], Effects],
        wanted: Callable[[], bool] = lambda: True,
    ) -> Effects:
        def later(read: ReadResult | HocketError) -> None:
            if self._in_use(shared) and effect.partition in shared.groups:
                self._carry_out(shared, found(read))

        try:
            read = self._log.read(
                shared.groups[effect.partition],
                effect.start,
                bytes_max=effect.bytes_max,
                end_offset=effect.end,
                done=later,
                wanted=wanted,
            )
        except HocketError as error:
            return found(error)
        return [] if read is None else found(read)

    def _fetched(
        self, shared: SharedIndex, fetch: core.Fetch, read: ReadResult | HocketError
    ) -> Effects:
        consumer = shared.consumers.get(fetch.consumer)
        hosted = self._partitions.get(shared.groups[fetch.partition])
        # What lease it is depends on the time of now, so now must be looked whether it is allowed.
        now_us = self._clock.now_us()
        if consumer is None or hosted is None or not hosted.may_lease():
            return shared.core.step(core.FetchFailed(fetch.fetch))
        try:
            if isinstance(read, HocketError):
                raise read
            # for the counts of deliveries
            self._partitions.admit_progress(shared.groups[fetch.partition])
        except HocketError as error:
            return self._not_fetched(shared, fetch, consumer.address, error)
        shared.reads[fetch.fetch] = read
        fetched = core.Fetched(fetch.fetch, read.end_offset, read.bytes, now_us, read.start_offset)
        effects = shared.core.step(fetched)
        if not any(isinstance(effect, core.Send) for effect in effects):
            del shared.reads[fetch.fetch]
        return effects

    def _not_fetched(
        self, shared: SharedIndex, fetch: core.Fetch, address: Address, error: HocketError
    ) -> Effects:
        damage = _damage(error, fetch.start)
        copy = self._partitions[shared.groups[fetch.partition]].copy
        if copy is not None and is_damage(error):
            copy.cannot_read(error)  # others have it, and lead from now on
            return shared.core.step(core.FetchFailed(fetch.fetch))
        if damage is None:  # retention was quicker, or the disk is full: tried again later
            failed = shared.core.step(core.FetchFailed(fetch.fetch))
            if isinstance(error, CorruptData):
                self._end(address, error.code, str(error))
            return failed
        try:
            self._partitions.admit(shared.groups[fetch.partition])
        except HocketError:  # the disk is full: tried again later
            return shared.core.step(core.FetchFailed(fetch.fetch))
        start, end = damage
        log.error(
            "topic %r, partition %d: offsets %d to %d are damaged; index %r sets them aside, as "
            "dead letters without their bytes: %s",
            shared.topic, fetch.partition, start, end - 1, shared.index, error,
        )  # fmt: skip
        reason = f"damaged where it is stored: {error}"
        return shared.core.step(core.FetchDamaged(fetch.fetch, start, end, reason))

    def _scanned(
        self, shared: SharedIndex, scan: core.Scan, read: ReadResult | HocketError
    ) -> Effects:
        hashes: list[int] = []
        if isinstance(read, HocketError):
            damage = _damage(read, scan.start)
            hosted = self._partitions.get(shared.groups[scan.partition])
            if hosted is not None and hosted.copy is not None and is_damage(read):
                hosted.copy.cannot_read(read)  # others have it
                damage = None
            if damage is None:
                return shared.core.step(core.ScanFailed(scan.partition))
            hashes = [0] * (min(damage[1], scan.end) - scan.start)
            return shared.core.step(core.Scanned(scan.partition, scan.start, hashes))
        for batch in _batches(read):
            first = scan.start + len(hashes) - batch.header.base_offset
            if first < 0:  # the messages in between are lost
                hashes += [0] * -first
            hashes += batch.key_hashes()[max(0, first) :]
        return shared.core.step(core.Scanned(scan.partition, scan.start, hashes))

    def send(self, shared: SharedIndex, send: core.Send) -> Effects:
        """Send the batches that hold the messages, but not one that the client still has."""
        read = shared.reads.pop(send.fetch)
        consumer = shared.consumers.get(send.consumer)
        if consumer is None:  # an effect before this one ended it; its messages are for others
            return []
        batches = _holding(read, send.ranges)
        first, last = batches[0].header.base_offset, batches[-1].header.base_offset
        continued = consumer.last_batch.get(send.partition) == first
        consumer.last_batch[send.partition] = last
        payload = [batch.bytes for batch in batches[continued:]]
        connection, handle = consumer.address
        end = self._partitions[shared.groups[send.partition]].core.high_watermark
        ranges = packed(n for each in send.ranges for n in each)
        lease = frames.Lease(0, handle, send.partition, end, ranges, continued, send.alone)
        sent_bytes = sum(map(len, payload))
        traffic = self._partitions.traffic
        traffic.records_given += sum(end - start for start, end, *_ in send.ranges)
        traffic.bytes_given += sent_bytes
        self._network.send(connection, lease, payload)
        if self._partitions.hooks.on_deliver is not None and payload:
            self._partitions.hooks.on_deliver(_given(shared, consumer.address, send, payload))
        unsent = read.bytes - sent_bytes
        return shared.core.step(core.Refunded(send.consumer, unsent)) if unsent else []


def _given(shared: SharedIndex, address: Address, send: core.Send, payload: list[Any]) -> Given:
    start, end = send.ranges[0][0], send.ranges[-1][1]
    records = sum(end - start for start, end, *_ in send.ranges)
    return Given(address, shared.topic, send.partition, start, end, records, payload)


def _damage(error: HocketError, offset: int) -> tuple[int, int] | None:
    """The messages from `offset` on that will never be read again; None: they may be, later."""
    if not isinstance(error, CorruptData) or isinstance(error, FileUnreadable):
        return None
    if error.start is None or error.end is None:
        return None
    return min(error.start, offset), max(error.end, offset + 1)


class _Batch(NamedTuple):
    header: Header
    bytes: memoryview  # of the whole entry

    def key_hashes(self) -> list[int]:
        try:
            hashes = parse(self.bytes, verify=False).key_hashes
        except CorruptData:  # its producer wrote nonsense; the consumer that gets it rejects it
            hashes = None
        return [0] * self.header.count if hashes is None else hashes.tolist()


def _batches(read: ReadResult) -> Iterator[_Batch]:
    for piece in read.slices:
        for position, header in iterate_entries(piece):
            yield _Batch(header, piece[position : position + header.size])


def _holding(read: ReadResult, ranges: list[tuple[int, int, int]]) -> list[_Batch]:
    """The batches that hold messages of these ranges, which are in order."""
    found = []
    left = deque(ranges)
    for batch in _batches(read):
        while left and left[0][1] <= batch.header.base_offset:
            left.popleft()
        if not left:
            break
        if left[0][0] < batch.header.end_offset:
            found.append(batch)
    return found
