"""Shared indexes of a node: reads what the dispatcher wants leased, sends it, and logs what becomes
of it.

The rules are in `core.sharing.dispatcher` (who gets what) and `core.sharing.leases` (what has
become of each message).
Here are only the hands: reads of the log, frames, and the partitions' logs. A settlement is
answered when every partition it concerns has it durably.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from hocket import frames
from hocket.core.origin import Origin
from hocket.core.partition import events
from hocket.core.session.session import DEAD_LETTERS, Demand, OpenedSubscription, Session, triples
from hocket.core.sharing import events as core
from hocket.core.sharing.dispatcher import Dispatcher
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.state import ShareChange, ShareSettings, ShareState
from hocket.errors import Busy, CorruptData, Fenced, HocketError, WrongKind
from hocket.frames import packed
from hocket.log.model import ReadResult
from hocket.log.store import LogStore
from hocket.model import Mode
from hocket.node.running.own_requests import NODE
from hocket.node.running.partitions import Hosted, Partitions
from hocket.node.running.sessions import Address
from hocket.ports import Clock, Network
from hocket.wire.batch import iterate_entries, parse
from hocket.wire.entry import Header

IDLE_US = 60_000_000  # so long after its last consumer an index is not kept in memory any more


@dataclass(slots=True)
class Consumer:
    address: Address
    # The last batch that was sent of each partition: the client has it still.
    last_batch: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Shared:
    """A shared index that is in use."""

    topic: str
    index: str
    mode: Mode
    core: Dispatcher
    groups: dict[int, int]  # partition -> group
    settings: ShareSettings = ShareSettings()  # noqa: RUF009 - it cannot be changed
    consumers: dict[int, Consumer] = field(default_factory=dict)
    reads: dict[int, ReadResult] = field(default_factory=dict)  # by fetch, until it is sent
    used_us: int = 0  # when it was last seen not to be idle


@dataclass(slots=True)
class Waiting:
    """A settlement that is on its way to the disk."""

    shared: Shared
    address: Address
    request: int
    refused: list[tuple[int, int, int]]
    records: int = 0  # so many are not durable yet


class Shares:
    def __init__(
        self,
        log: LogStore,
        network: Network,
        clock: Clock,
        partitions: Partitions,
        ended: Callable[[Address], None],
    ) -> None:
        self._log = log
        self._network = network
        self._clock = clock
        self._partitions = partitions
        self._ended = ended
        self._shared: dict[tuple[str, str], Shared] = {}
        self._numbers: dict[Address, tuple[Shared, int]] = {}
        self._waiting: dict[int, Waiting] = {}
        self._buried: dict[int, tuple[Hosted, str, int, int]] = {}
        self._last_consumer = 0
        self._last_token = 0

    # --- consumers -------------------------------------------------------------------------------

    def check_mode(self, topic: str, index: str, mode: Mode, hosted: Iterable[Hosted]) -> None:
        """Raises WrongKind if the index is of another kind."""
        shared = self._shared.get((topic, index))
        if shared is not None and shared.consumers and shared.mode != mode:
            raise WrongKind(
                f"index {index!r} of topic {topic!r} is consumed with mode {shared.mode!r}, and "
                f"only when nobody does it can be opened with {mode!r}"
            )
        if shared is not None and shared.mode != mode and mode != "own":
            groups = map(self._partitions.get, shared.groups.values())
            if not all(each is None or each.core.is_settled for each in groups):
                raise Busy(f"index {index!r} of topic {topic!r} is not at rest yet; try again")
        for each in hosted:
            cursor = each.core.cursors.leading.get(index)
            if cursor is not None and (cursor.mode == "own") != (mode == "own"):
                raise WrongKind(
                    f"index {index!r} of topic {topic!r} is of mode {cursor.mode!r}, not {mode!r}; "
                    "use another name, or delete the index first"
                )

    def prepare(
        self,
        topic: str,
        frame: frames.OpenSubscription,
        hosted: dict[int, Hosted],
        starts: dict[int, int],
    ) -> None:
        """Before it is logged that consumers are attached: who may have what is read off before."""
        shared = self._shared.get((topic, frame.index))
        if shared is None or shared.mode != frame.mode:
            shared = Shared(topic, frame.index, frame.mode, Dispatcher(frame.mode), {})
            self._shared[topic, frame.index] = shared
        shared.used_us = self._clock.now_us()
        for number, each in hosted.items():
            self._add_partition(shared, each, starts.get(number, 0))

    def is_as_attached(
        self, topic: str, frame: frames.OpenSubscription, hosted: dict[int, Hosted]
    ) -> bool:
        """Not if the index was deleted, or opened in another mode, while that was being logged."""
        if frame.mode == "own":
            return True
        shared = self._shared.get((topic, frame.index))
        return (shared is None or shared.mode == frame.mode) and all(
            frame.index in each.core.shares for each in hosted.values()
        )

    def _add_partition(self, shared: Shared, hosted: Hosted, start: int) -> None:
        partition = hosted.core
        if partition.number in shared.groups:
            return
        shared.groups[partition.number] = hosted.group
        leases = Leases(
            partition.shares.get(shared.index) or ShareState(start),
            end=partition.high_watermark,
            now_us=self._clock.now_us(),
            immortal=shared.topic.endswith(DEAD_LETTERS),
        )
        self._step(shared, core.PartitionAdded(partition.number, leases))

    def open(
        self,
        address: Address,
        topic: str,
        frame: frames.OpenSubscription,
        hosted: dict[int, Hosted],
    ) -> None:
        """The index is attached to, durably, and the consumer knows its handle."""
        self.prepare(topic, frame, hosted, {})  # it may have been put away while this was logged
        shared = self._shared[topic, frame.index]
        for number, each in hosted.items():
            shared.settings = each.core.shares[frame.index].settings
            self._step(shared, core.SettingsChanged(number, shared.settings))
            self._advance(shared, each)  # what came while this was being logged
        self._last_consumer += 1
        number = self._last_consumer
        shared.consumers[number] = Consumer(address)
        self._numbers[address] = shared, number
        self._step(
            shared,
            core.Joined(
                number,
                frame.consumer,
                tuple(hosted),
                frame.credit_bytes,
                frame.prefetch,
                [held for held in triples(frame.held) if held[0] in hosted],
                self._clock.now_us(),
            ),
        )

    def settings(self, frame: frames.OpenSubscription, hosted: Hosted) -> ShareSettings | None:
        """As the index has them, but for what the consumer sets; None for an own index."""
        if frame.mode == "own":
            return None
        state = hosted.core.shares.get(frame.index)
        known = state.settings if state is not None else ShareSettings()
        return ShareSettings(
            frame.lease_us or known.lease_us,
            frame.max_deliveries or known.max_deliveries,
            frame.failover,
        )

    def settings_now(self, address: Address) -> ShareSettings:
        shared, _ = self._numbers[address]
        return shared.settings

    def give_credit(self, address: Address, amount: int, messages: int) -> None:
        shared, number = self._numbers[address]
        self._step(shared, core.CreditGiven(number, amount, messages, self._clock.now_us()))

    def settle(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame, opened = demand.frame, demand.opened
        assert isinstance(frame, frames.Settle)
        assert isinstance(opened, OpenedSubscription)
        address = connection, frame.handle
        shared, number = self._numbers[address]
        asked = list(triples(frame.ranges))
        ranges = [each for each in asked if each[0] not in opened.unaware]
        for partition in dict.fromkeys(partition for partition, _, _ in ranges):
            self._partitions.admit(shared.groups[partition])
        self._last_token += 1
        void = [each for each in asked if each[0] in opened.unaware]  # of before a seek
        self._waiting[self._last_token] = Waiting(shared, address, frame.request, void)
        self._step(
            shared,
            core.Settle(
                number,
                self._last_token,
                frame.action,
                ranges,
                frame.duration_us,
                frame.reason,
                self._clock.now_us(),
            ),
        )

    def close(self, address: Address, *, graceful: bool) -> None:
        """The consumer has gone: in good order, or its link broke and it may come back."""
        found = self._numbers.pop(address, None)
        if found is not None:
            shared, number = found
            del shared.consumers[number]
            self._step(shared, core.Left(number, graceful, self._clock.now_us()))

    def end(self, address: Address, code: str, message: str) -> None:
        """End it from our side, and say why."""
        if address in self._numbers:
            self.close(address, graceful=True)
            self._tell_ended(address, code, message)

    def _tell_ended(self, address: Address, code: str, message: str) -> None:
        self._ended(address)
        connection, handle = address
        self._network.send(connection, frames.HandleEnded(0, handle, code, message))

    # --- what happens to the index ---------------------------------------------------------------

    def grow(self, address: Address, hosted: Hosted) -> None:
        """The topic has a new partition, and this consumer wants all of them."""
        shared, number = self._numbers[address]
        self._add_partition(shared, hosted, 0)
        self._step(shared, core.Widened(number, hosted.core.number))

    def advanced(self, hosted: Hosted) -> None:
        """There is more to read, or the oldest is gone."""
        partition = hosted.core
        for index, cursor in partition.cursors.leading.items():
            shared = self._shared.get((partition.topic, index)) if cursor.mode != "own" else None
            if shared is not None and partition.number in shared.groups:
                self._advance(shared, hosted)

    def _advance(self, shared: Shared, hosted: Hosted) -> None:
        partition = hosted.core
        advanced = core.Advanced(partition.number, partition.start, partition.high_watermark)
        self._step(shared, advanced)

    def changed(self, effect: events.ShareChanged) -> None:
        """This is durable: those who asked for it may know."""
        for origin in effect.origins:
            buried = self._buried.pop(origin.request, None)
            if buried is not None:
                self._tell_buried(*buried)
            waiting = self._waiting.get(origin.request)
            if waiting is not None:
                waiting.records -= 1
                self._answer_if_done(origin.request, waiting)

    def sought(self, hosted: Hosted, index: str, offset: int) -> list[Address]:
        """The index was put elsewhere: whatever was leased means nothing any more. Who was told."""
        shared = self._shared.get((hosted.core.topic, index))
        number = hosted.core.number
        if shared is None or number not in shared.groups:
            return []
        for consumer in shared.consumers.values():
            connection, handle = consumer.address
            consumer.last_batch.pop(number, None)
            self._network.send(connection, frames.Moved(0, handle, number, offset, 0))
        told = [consumer.address for consumer in shared.consumers.values()]
        self._step(shared, core.Reset(number, offset))
        return told

    def drop(self, topic: str, index: str | None, code: str, message: str) -> None:
        """The index, or the whole topic, was deleted."""
        for shared in list(self._shared.values()):
            if shared.topic == topic and index in (None, shared.index):
                del self._shared[shared.topic, shared.index]
                self._refuse_waiting(shared, code, message)
                consumers, shared.consumers = shared.consumers, {}
                for consumer in consumers.values():  # not by `close`: nobody is to have theirs
                    del self._numbers[consumer.address]
                    self._tell_ended(consumer.address, code, message)

    def _refuse_waiting(self, shared: Shared, code: str, message: str) -> None:
        """What they wait for will not become durable."""
        for token, waiting in list(self._waiting.items()):
            if waiting.shared is shared:
                del self._waiting[token]
                failure = frames.Failure(waiting.request, code, message)
                self._network.send(waiting.address[0], failure)

    def is_attached(self, hosted: Hosted, index: str) -> bool:
        shared = self._shared.get((hosted.core.topic, index))
        return shared is not None and bool(shared.consumers)

    def leased(self, hosted: Hosted, index: str) -> int:
        shared = self._shared.get((hosted.core.topic, index))
        if shared is None or hosted.core.number not in shared.groups:
            return 0
        return shared.core.leased(hosted.core.number)

    def tick(self) -> None:
        now_us = self._clock.now_us()
        for shared in list(self._shared.values()):
            self._step(shared, core.Tick(now_us))
            if not shared.core.is_idle:
                shared.used_us = now_us
            elif now_us - shared.used_us > IDLE_US:
                self._put_away(shared)

    def _put_away(self, shared: Shared) -> None:
        """Nobody consumes it: what the log says of it is enough, once it says that all is well."""
        try:
            for group in shared.groups.values():
                if not self._partitions[group].core.is_settled:
                    return  # what will be read when it is taken up again is not all there yet
                self._partitions.admit(group)
        except HocketError:  # the disk is full: later
            return
        self._step(shared, core.Closing())
        del self._shared[shared.topic, shared.index]

    def closing(self) -> None:
        """The broker goes down in good order: who has what is worth remembering."""
        for shared in self._shared.values():
            self._step(shared, core.Closing())

    def dead_lettered(self, hosted: Hosted, index: str, start: int, end: int) -> None:
        """These are in the dead letters now, durably."""
        shared = self._shared.get((hosted.core.topic, index))
        number = hosted.core.number
        if shared is not None and number in shared.groups:
            self._step(shared, core.DeadLettered(number, start, end))
        else:
            self._last_token += 1
            self._buried[self._last_token] = hosted, index, start, end
            change = ShareChange(settled=[(start, end)])
            origin = Origin(NODE, 0, self._last_token)
            self._partitions.step(hosted, events.ChangeShare(origin, index, change))

    def _tell_buried(self, hosted: Hosted, index: str, start: int, end: int) -> None:
        """It was settled while nobody consumed the index; somebody may have come meanwhile."""
        shared = self._shared.get((hosted.core.topic, index))
        if shared is not None and hosted.core.number in shared.groups:
            self._step(shared, core.DeadLettered(hosted.core.number, start, end))

    # --- carrying out ----------------------------------------------------------------------------

    def _step(self, shared: Shared, event: core.Event) -> None:
        self._carry_out(shared, shared.core.step(event))

    def _carry_out(self, shared: Shared, effects: list[core.Effect]) -> None:
        """Reads that memory answers lead to more effects at once, hence the queue."""
        to_do = deque(effects)
        while to_do:
            effect = to_do.popleft()
            if isinstance(effect, core.Fetch):
                to_do.extend(self._fetch(shared, effect))
            elif isinstance(effect, core.Scan):
                to_do.extend(self._scan(shared, effect))
            elif isinstance(effect, core.Send):
                to_do.extend(self._send(shared, effect))
            elif isinstance(effect, core.Record):
                self._record(shared, effect)
            elif isinstance(effect, core.Answer):
                self._answer(effect)
            else:
                assert isinstance(effect, core.EndConsumer)
                replaced = shared.consumers.get(effect.consumer)
                if replaced is not None:
                    self.end(replaced.address, Fenced.code, effect.why)

    def _record(self, shared: Shared, effect: core.Record) -> None:
        hosted = self._partitions.get(shared.groups[effect.partition])
        if hosted is None:  # the topic is being deleted
            return
        origin = Origin(NODE, 0, effect.token) if effect.token else None
        self._partitions.step(hosted, events.ChangeShare(origin, shared.index, effect.change))

    def _answer(self, effect: core.Answer) -> None:
        waiting = self._waiting[effect.token]
        waiting.refused += effect.refused
        waiting.records += effect.waits_for
        self._answer_if_done(effect.token, waiting)

    def _answer_if_done(self, token: int, waiting: Waiting) -> None:
        if not waiting.records:
            del self._waiting[token]
            refused = packed(n for each in waiting.refused for n in each)
            self._network.send(waiting.address[0], frames.Settled(waiting.request, refused))

    # --- reading ---------------------------------------------------------------------------------

    def _fetch(self, shared: Shared, effect: core.Fetch) -> list[core.Effect]:
        return self._read(
            shared,
            shared.groups[effect.partition],
            effect.start,
            effect.end,
            effect.bytes_max,
            partial(self._fetched, shared, effect),
            wanted=partial(shared.consumers.__contains__, effect.consumer),
        )

    def _scan(self, shared: Shared, effect: core.Scan) -> list[core.Effect]:
        return self._read(
            shared,
            shared.groups[effect.partition],
            effect.start,
            effect.end,
            effect.bytes_max,
            partial(self._scanned, shared, effect),
        )

    def _read(
        self,
        shared: Shared,
        group: int,
        start: int,
        end: int,
        bytes_max: int,
        found: Callable[[ReadResult | HocketError], list[core.Effect]],
        wanted: Callable[[], bool] = lambda: True,
    ) -> list[core.Effect]:
        """What memory answers at once; what the disk answers is carried out when it does."""

        def later(read: ReadResult | HocketError) -> None:
            if self._shared.get((shared.topic, shared.index)) is shared:
                self._carry_out(shared, found(read))

        try:
            read = self._log.read(
                group, start, bytes_max=bytes_max, end_offset=end, done=later, wanted=wanted
            )
        except HocketError as error:
            return found(error)
        return [] if read is None else found(read)

    def _fetched(
        self, shared: Shared, fetch: core.Fetch, read: ReadResult | HocketError
    ) -> list[core.Effect]:
        consumer = shared.consumers.get(fetch.consumer)
        if consumer is None:
            return shared.core.step(core.FetchFailed(fetch.fetch))
        try:
            if isinstance(read, HocketError):
                raise read
            self._partitions.admit(shared.groups[fetch.partition])  # for the counts of deliveries
        except HocketError as error:
            failed = shared.core.step(core.FetchFailed(fetch.fetch))
            if isinstance(error, CorruptData):
                self.end(consumer.address, error.code, str(error))
            return failed  # retention was quicker, or the disk is full: tried again later
        shared.reads[fetch.fetch] = read
        now_us = self._clock.now_us()
        fetched = core.Fetched(fetch.fetch, read.end_offset, read.bytes, now_us, read.start_offset)
        effects = shared.core.step(fetched)
        if not any(isinstance(effect, core.Send) for effect in effects):
            del shared.reads[fetch.fetch]
        return effects

    def _scanned(
        self, shared: Shared, scan: core.Scan, read: ReadResult | HocketError
    ) -> list[core.Effect]:
        if isinstance(read, HocketError):
            return shared.core.step(core.ScanFailed(scan.partition))
        hashes: list[int] = []
        for batch in _batches(read):
            first = scan.start + len(hashes) - batch.header.base_offset
            if first < 0:  # what lies between is lost
                hashes += [0] * -first
            hashes += batch.key_hashes()[max(0, first) :]
        return shared.core.step(core.Scanned(scan.partition, scan.start, hashes))

    def _send(self, shared: Shared, send: core.Send) -> list[core.Effect]:
        """The batches that hold the messages, but not again the one that the client has still."""
        read = shared.reads.pop(send.fetch)
        consumer = shared.consumers.get(send.consumer)
        if consumer is None:  # ended by an effect before this one, and what it had is for others
            return []
        batches = _holding(read, send.ranges)
        first, last = batches[0].header.base_offset, batches[-1].header.base_offset
        continued = consumer.last_batch.get(send.partition) == first
        consumer.last_batch[send.partition] = last
        payload = [batch.bytes for batch in batches[continued:]]
        connection, handle = consumer.address
        end = self._partitions[shared.groups[send.partition]].core.high_watermark
        ranges = packed(n for each in send.ranges for n in each)
        lease = frames.Lease(0, handle, send.partition, end, ranges, continued)
        self._network.send(connection, lease, payload)
        unsent = read.bytes - sum(map(len, payload))
        return shared.core.step(core.Refunded(send.consumer, unsent)) if unsent else []


class _Batch(NamedTuple):
    header: Header
    bytes: memoryview  # of the entry

    def key_hashes(self) -> list[int]:
        try:
            hashes = parse(self.bytes, verify=False).key_hashes
        except CorruptData:  # its producer wrote nonsense; whoever gets it will say so
            hashes = None
        return [0] * self.header.count if hashes is None else hashes.tolist()


def _batches(read: ReadResult) -> Iterator[_Batch]:
    for piece in read.slices:
        for position, header in iterate_entries(piece):
            yield _Batch(header, piece[position : position + header.size])


def _holding(read: ReadResult, ranges: list[tuple[int, int, int]]) -> list[_Batch]:
    """Those that hold messages of these ranges, which are in order."""
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
