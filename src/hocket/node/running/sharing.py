"""The shared indexes of a node: drives their dispatchers, and logs what becomes of the messages.

The rules are in `core.sharing.dispatcher` (which consumer gets what) and `core.sharing.leases`
(what has become of each message). This file carries out what they decide. Two parts of that have
files of their own: `leasing` reads messages and sends them, `settlements` answers when all is
durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from hocket import frames
from hocket.core.origin import Origin
from hocket.core.partition import events
from hocket.core.session.failures import failure
from hocket.core.session.session import DEAD_LETTERS, Demand, OpenedSubscription, Session, triples
from hocket.core.sharing import events as core
from hocket.core.sharing.dispatcher import Dispatcher
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.state import SPAN_MAX, ShareChange, ShareSettings, ShareState
from hocket.errors import Busy, Fenced, HocketError, NotHere, OutOfRange, WrongKind, from_code
from hocket.log.store import LogStore
from hocket.model import Mode
from hocket.node.running.leasing import Leasing
from hocket.node.running.own_requests import NODE
from hocket.node.running.partitions import Authority, Hosted, Partitions
from hocket.node.running.sessions import Address
from hocket.node.running.settlements import Settlements
from hocket.node.running.shared_index import Consumer, Revival, SharedIndex
from hocket.ports import Clock, Network

IDLE_US = 60_000_000  # an index leaves memory this long after its last consumer has left


class Shares:
    def __init__(
        self,
        log: LogStore,
        network: Network,
        clock: Clock,
        partitions: Partitions,
        ended: Callable[[Address], None],
    ) -> None:
        self._network = network
        self._clock = clock
        self._partitions = partitions
        self._ended = ended
        self._shared: dict[tuple[str, str], SharedIndex] = {}
        self._numbers: dict[Address, tuple[SharedIndex, int]] = {}
        # token -> messages in the dead letters whose settling is not durable yet
        self._buried: dict[int, tuple[Hosted, str, int, int]] = {}
        # token -> index, what is revived, and whom to tell when that is durable
        self._revivals: dict[int, Revival] = {}
        # token -> index, and what its dispatcher is told when an entry is committed
        self._awaited: dict[int, tuple[SharedIndex, core.Reserved | core.Recorded]] = {}
        self._last_consumer = 0
        self._settlements = Settlements(network)
        self._leasing = Leasing(
            log, network, clock, partitions,
            carry_out=self._carry_out, in_use=self._is_in_use, end=self.end,
        )  # fmt: skip

    # --- consumers -------------------------------------------------------------------------------

    def check_mode(self, topic: str, index: str, mode: Mode, hosted: Iterable[Hosted]) -> None:
        """Raises WrongKind if the index cannot be opened in this mode, Busy if it cannot yet."""
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
        """Take the index into memory, before the log says that a consumer is attached.

        After a restart the state of before that entry tells which messages a consumer may hold.
        """
        shared = self._shared.get((topic, frame.index))
        if shared is None or shared.mode != frame.mode:
            shared = SharedIndex(topic, frame.index, frame.mode, Dispatcher(frame.mode), {})
            self._shared[topic, frame.index] = shared
        shared.used_us = self._clock.now_us()
        for number, each in hosted.items():
            self._add_partition(shared, each, starts.get(number, 0))

    def is_as_attached(
        self, topic: str, frame: frames.OpenSubscription, hosted: dict[int, Hosted]
    ) -> bool:
        """False if the index was deleted, or opened in another mode, while the log was asked."""
        if frame.mode == "own":
            return True
        shared = self._shared.get((topic, frame.index))
        return (shared is None or shared.mode == frame.mode) and all(
            frame.index in each.core.shares for each in hosted.values()
        )

    def _add_partition(self, shared: SharedIndex, hosted: Hosted, start: int) -> None:
        partition = hosted.core
        if partition.number in shared.groups:
            return
        shared.groups[partition.number] = hosted.group
        alone_us = None  # since when nobody else leases messages of it
        if hosted.copy is not None:
            alone_us = hosted.served_us + hosted.copy.authority.outlasts_us
        leases = Leases(
            partition.shares.get(shared.index) or ShareState(start),
            end=partition.high_watermark,
            now_us=self._clock.now_us(),
            immortal=shared.topic.endswith(DEAD_LETTERS),
            alone_us=alone_us,
        )
        self._step(shared, core.PartitionAdded(partition.number, leases))

    def open(
        self,
        address: Address,
        topic: str,
        frame: frames.OpenSubscription,
        hosted: dict[int, Hosted],
    ) -> None:
        """Let the consumer join. That it is attached is durable, and it knows its handle."""
        self.prepare(topic, frame, hosted, {})  # the index may have left memory meanwhile
        if not all(each.may_lease() for each in hosted.values()):
            # Whoever leads by now may have given away what this consumer claims.
            self._tell_ended(address, NotHere.code, "nobody is known to lead all partitions; retry")
            return
        shared = self._shared[topic, frame.index]
        for number, each in hosted.items():
            shared.settings = each.core.shares[frame.index].settings
            self._step(shared, core.SettingsChanged(number, shared.settings))
            self._advance(shared, each)  # messages that came while the log was asked
        self._last_consumer += 1
        number = self._last_consumer
        shared.consumers[number] = Consumer(address, set(hosted))
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
                frame.tells,
            ),
        )

    def settings(self, frame: frames.OpenSubscription, hosted: Hosted) -> ShareSettings | None:
        """The index's settings, changed as the consumer asks; None for an own index."""
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

    def give_credit(self, address: Address, frame: frames.Credit) -> None:
        shared, number = self._numbers[address]
        handed = list(triples(frame.handed)) if frame.handed else ()
        now_us = self._clock.now_us()
        self._step(shared, core.CreditGiven(number, frame.bytes, frame.messages, now_us, handed))

    def settle(
        self, connection: int, session: Session, demand: Demand, payload: memoryview
    ) -> None:
        frame, opened = demand.frame, demand.opened
        assert isinstance(frame, frames.Settle)
        assert isinstance(opened, OpenedSubscription)
        address = connection, frame.handle
        shared, number = self._numbers[address]
        asked = list(triples(frame.ranges))
        ranges = [each for each in asked if each[0] not in opened.unaware]
        if frame.action == "extend":
            doubtful = self._doubtful(shared, ranges)
            if doubtful is not None:
                again = partial(self._extend_later, connection, session, demand, payload)
                doubtful.confirm(again)
                return
        for partition in dict.fromkeys(partition for partition, _, _ in ranges):
            self._partitions.admit_progress(shared.groups[partition])
        void = [each for each in asked if each[0] in opened.unaware]  # from before a seek
        token = self._settlements.begin(shared, address, frame.request, void)
        self._step(
            shared,
            core.Settle(
                number,
                token,
                frame.action,
                ranges,
                frame.duration_us,
                frame.reason,
                self._clock.now_us(),
                frame.again,
            ),
        )

    def _doubtful(
        self, shared: SharedIndex, ranges: Iterable[tuple[int, int, int]]
    ) -> Authority | None:
        """Of a partition that another node may lead by now; None: nobody else can."""
        for partition in dict.fromkeys(partition for partition, _, _ in ranges):
            hosted = self._partitions.get(shared.groups[partition])
            if hosted is not None and hosted.copy is not None and not hosted.may_lease():
                return hosted.copy.authority
        return None

    def _extend_later(
        self, connection: int, session: Session, demand: Demand, payload: memoryview, leads: bool
    ) -> None:
        """The other replicas were asked whether leases can be extended here."""
        assert isinstance(demand.frame, frames.Settle)
        try:
            address = connection, demand.frame.handle
            # It may lead, and yet not extend: it hands the partition over, or the answer is old.
            if not leads or address not in self._numbers or self._cannot_extend(address, demand):
                raise Busy("it is not known who leads the partition; try again")
            self.settle(connection, session, demand, payload)
        except HocketError as error:
            self._network.send(connection, failure(demand.frame.request, error))

    def _cannot_extend(self, address: Address, demand: Demand) -> bool:
        frame, opened = demand.frame, demand.opened
        assert isinstance(frame, frames.Settle)
        assert isinstance(opened, OpenedSubscription)
        ranges = [each for each in triples(frame.ranges) if each[0] not in opened.unaware]
        return self._doubtful(self._numbers[address][0], ranges) is not None

    def close(self, address: Address, *, graceful: bool) -> None:
        """The consumer has gone: in good order, or its link broke and it may come back."""
        found = self._numbers.pop(address, None)
        if found is not None:
            shared, number = found
            del shared.consumers[number]
            self._step(shared, core.Left(number, graceful, self._clock.now_us()))

    def end(self, address: Address, code: str, message: str) -> None:
        """End the subscription from the broker's side, and tell its consumer why."""
        if address in self._numbers:
            self.close(address, graceful=True)
            self._tell_ended(address, code, message)

    def _tell_ended(self, address: Address, code: str, message: str) -> None:
        self._ended(address)
        connection, handle = address
        self._network.send(connection, frames.HandleEnded(0, handle, code, message))

    def revive(
        self,
        hosted: Hosted,
        index: str,
        letters: list[tuple[int, int]],
        dead_log: int,
        done: Callable[[list[tuple[int, int]] | HocketError], None],
    ) -> bool:
        """Deliver these messages again: (offset, offset of its dead letter in this log).

        `done` is told which, when that is durable. Returns False, and does nothing, if it has to
        wait: the index cannot be taken into memory yet, or the log does not have it yet that all of
        these are dead letters.
        """
        number = hosted.core.number
        shared = self._shared.get((hosted.core.topic, index))
        if shared is None or number not in shared.groups:
            if not hosted.core.is_settled:
                return False
            if shared is None:
                mode = cast(Mode, hosted.core.cursors.leading[index].mode)
                shared = SharedIndex(hosted.core.topic, index, mode, Dispatcher(mode), {})
                self._shared[hosted.core.topic, index] = shared
            shared.used_us = self._clock.now_us()
            self._add_partition(shared, hosted, 0)
        if any(shared.core.is_dying(number, offset) for offset, _ in letters):
            return False
        first = min(offset for offset, _ in letters)
        if not shared.core.reaches(number, first):
            raise OutOfRange(
                f"offset {first} of topic {hosted.core.topic!r}, partition {number}, lies more "
                f"than {SPAN_MAX} messages behind where index {index!r} is; its dead letter can be "
                "published to the topic again"
            )
        token = self._settlements.next_token()
        self._revivals[token] = Revival(shared, number, done)
        self._step(shared, core.Revive(number, letters, dead_log, token))
        return True

    # --- what happens to the index ---------------------------------------------------------------

    def grow(self, address: Address, hosted: Hosted) -> None:
        """The topic has a new partition, and this consumer wants all of them."""
        shared, number = self._numbers[address]
        self._add_partition(shared, hosted, 0)
        shared.consumers[number].partitions.add(hosted.core.number)
        self._step(shared, core.Widened(number, hosted.core.number))

    def advanced(self, hosted: Hosted) -> None:
        """The partition has more to read, or its oldest records are gone."""
        partition = hosted.core
        for index, cursor in partition.cursors.leading.items():
            shared = self._shared.get((partition.topic, index)) if cursor.mode != "own" else None
            if shared is not None and partition.number in shared.groups:
                self._advance(shared, hosted)

    def _advance(self, shared: SharedIndex, hosted: Hosted) -> None:
        partition = hosted.core
        advanced = core.Advanced(partition.number, partition.start, partition.high_watermark)
        self._step(shared, advanced)

    def changed(self, effect: events.ShareChanged) -> None:
        """A change of a shared index is durable: tell those that asked for it."""
        for origin in effect.origins:
            buried = self._buried.pop(origin.request, None)
            if buried is not None:
                self._tell_buried(*buried)
            revival = self._revivals.pop(origin.request, None)
            if revival is not None:
                revival.done(revival.ranges)
            awaited = self._awaited.pop(origin.request, None)
            if awaited is not None and self._is_in_use(awaited[0]):
                self._step(*awaited)
            self._settlements.durable(origin.request)

    def sought(self, hosted: Hosted, index: str, offset: int) -> list[Address]:
        """The index was put elsewhere, so all leases are void. Returns the consumers told of it."""
        shared = self._shared.get((hosted.core.topic, index))
        number = hosted.core.number
        if shared is None or number not in shared.groups:
            return []
        for consumer in shared.consumers.values():
            connection, handle = consumer.address
            consumer.last_batch.pop(number, None)
            self._network.send(connection, frames.Moved(0, handle, number, offset, 0))
        told = [consumer.address for consumer in shared.consumers.values()]
        self._forget_awaited(shared, number)
        self._step(shared, core.Reset(number, offset))
        return told

    def drop(self, topic: str, index: str | None, code: str, message: str) -> None:
        """The index, or the whole topic, was deleted."""
        for shared in list(self._shared.values()):
            if shared.topic == topic and index in (None, shared.index):
                del self._shared[shared.topic, shared.index]
                self._settlements.refuse_all(shared, code, message)
                for token, revival in list(self._revivals.items()):
                    if revival.shared is shared:
                        del self._revivals[token]
                        revival.done(from_code(code, message))
                consumers, shared.consumers = shared.consumers, {}
                # Not by `close`, which would hand the messages of each to the others.
                for consumer in consumers.values():
                    del self._numbers[consumer.address]
                    self._tell_ended(consumer.address, code, message)

    def leave(self, hosted: Hosted, error: HocketError) -> None:
        """Another node leads the partition from now on: its consumers go there."""
        number = hosted.core.number
        for token, buried in list(self._buried.items()):
            if buried[0] is hosted:
                del self._buried[token]
        for shared in list(self._shared.values()):
            if shared.groups.get(number) != hosted.group:
                continue
            self._forget_awaited(shared, number)
            self._step(shared, core.PartitionRemoved(number))
            del shared.groups[number]
            for token, revival in list(self._revivals.items()):
                if revival.shared is shared and revival.partition == number:
                    del self._revivals[token]
                    revival.done(error)
            for consumer in list(shared.consumers.values()):
                if number in consumer.partitions:
                    self._settlements.refuse(consumer.address, error)
                    self.close(consumer.address, graceful=False)
                    self._tell_ended(consumer.address, error.code, str(error))
            self._settlements.forget(shared, self._numbers)
            if not shared.groups:
                del self._shared[shared.topic, shared.index]

    def _forget_awaited(self, shared: SharedIndex, partition: int) -> None:
        for token, (whose, event) in list(self._awaited.items()):
            if whose is shared and event.partition == partition:
                del self._awaited[token]

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

    def _put_away(self, shared: SharedIndex) -> None:
        """Nobody consumes the index: let it leave memory, once the log has all of its state."""
        try:
            for group in shared.groups.values():
                if not self._partitions[group].core.is_settled:
                    return  # later: the log does not have all of it yet
                self._partitions.admit(group)
        except HocketError:  # the disk is full: later
            return
        self._step(shared, core.Closing())
        del self._shared[shared.topic, shared.index]

    def closing(self) -> None:
        """The broker goes down in good order: log which messages consumers hold."""
        for shared in self._shared.values():
            self._step(shared, core.Closing())

    def dead_lettered(self, hosted: Hosted, index: str, start: int, end: int) -> None:
        """These messages are in the dead letters now, durably: they are settled."""
        shared = self._shared.get((hosted.core.topic, index))
        number = hosted.core.number
        if shared is not None and number in shared.groups:
            self._step(shared, core.DeadLettered(number, start, end))
        else:
            token = self._settlements.next_token()
            self._buried[token] = hosted, index, start, end
            change = ShareChange(settled=[(start, end)])
            origin = Origin(NODE, 0, token)
            self._partitions.step(hosted, events.ChangeShare(origin, index, change))

    def _tell_buried(self, hosted: Hosted, index: str, start: int, end: int) -> None:
        """The index was not in memory when these messages were settled; it may be by now."""
        shared = self._shared.get((hosted.core.topic, index))
        if shared is not None and hosted.core.number in shared.groups:
            self._step(shared, core.DeadLettered(hosted.core.number, start, end))

    # --- carrying out ----------------------------------------------------------------------------

    def _is_in_use(self, shared: SharedIndex) -> bool:
        """False once the index was dropped, put away, or opened in another mode."""
        return self._shared.get((shared.topic, shared.index)) is shared

    def _step(self, shared: SharedIndex, event: core.Event) -> None:
        self._carry_out(shared, shared.core.step(event))

    def _carry_out(self, shared: SharedIndex, effects: list[core.Effect]) -> None:
        """Reads that memory answers lead to more effects at once, hence the queue."""
        to_do = deque(effects)
        while to_do:
            effect = to_do.popleft()
            number = getattr(effect, "partition", None)
            if number is not None and number not in shared.groups:
                # An effect before this one has ended the leadership: see `cannot_read`.
                if isinstance(effect, core.Send):
                    del shared.reads[effect.fetch]
            elif isinstance(effect, core.Fetch):
                to_do.extend(self._leasing.fetch(shared, effect))
            elif isinstance(effect, core.Scan):
                to_do.extend(self._leasing.scan(shared, effect))
            elif isinstance(effect, core.Send):
                to_do.extend(self._leasing.send(shared, effect))
            elif isinstance(effect, core.Record):
                self._record(shared, effect)
            elif isinstance(effect, core.Reserve):
                to_do.extend(self._reserve(shared, effect))
            elif isinstance(effect, core.Revived):
                self._revivals[effect.token].ranges = effect.ranges
            elif isinstance(effect, core.Answer):
                self._settlements.decided(effect)
            else:
                assert isinstance(effect, core.EndConsumer)
                replaced = shared.consumers.get(effect.consumer)
                if replaced is not None:
                    self.end(replaced.address, Fenced.code, effect.why)

    def _reserve(self, shared: SharedIndex, effect: core.Reserve) -> list[core.Effect]:
        number, high = effect.partition, effect.high
        hosted = self._partitions.get(shared.groups[number])
        if hosted is None:  # the topic is being deleted
            return []
        try:
            if shared.index not in hosted.core.cursors.leading:
                raise Busy("the log does not know yet that there is a consumer")
            self._partitions.admit_progress(hosted.group)
        except HocketError:  # or the disk is full, or too much waits for the other replicas: later
            return shared.core.step(core.Reserved(number, 0))
        self._await(shared, hosted, ShareChange(high=high), core.Reserved(number, high))
        return []

    def _await(
        self,
        shared: SharedIndex,
        hosted: Hosted,
        change: ShareChange,
        event: core.Reserved | core.Recorded,
    ) -> None:
        """Log the change; the dispatcher is told the event when that is committed."""
        token = self._settlements.next_token()
        self._awaited[token] = shared, event
        origin = Origin(NODE, 0, token)
        self._partitions.step(hosted, events.ChangeShare(origin, shared.index, change))

    def _record(self, shared: SharedIndex, effect: core.Record) -> None:
        hosted = self._partitions.get(shared.groups[effect.partition])
        if hosted is None:  # the topic is being deleted
            return
        origin = Origin(NODE, 0, effect.token) if effect.token else None
        self._partitions.step(hosted, events.ChangeShare(origin, shared.index, effect.change))
        if effect.awaited:  # an entry of this turn, or a later one
            recorded = core.Recorded(effect.partition, effect.awaited)
            self._await(shared, hosted, ShareChange(), recorded)
