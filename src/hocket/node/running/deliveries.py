"""The open subscriptions with an own index, or none: reads what they want and sends it.

What a subscription wants next is decided by `core.partition.subscription`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hocket.core.origin import Origin
from hocket.core.partition.events import SkipIndex
from hocket.core.partition.subscription import (
    Advanced,
    CreditGiven,
    Effect,
    Event,
    MoveHeard,
    Progress,
    Read,
    ReadDone,
    Send,
    Sought,
    Subscription,
    TellMoved,
)
from hocket.errors import CorruptData, HocketError, NotHere, OutOfRange, unreadable
from hocket.frames import Deliver, HandleEnded, Moved
from hocket.log.model import FileUnreadable, ReadResult, SegmentAway, is_damage
from hocket.log.store import LogStore
from hocket.node.running.crowds import Crowds
from hocket.node.running.hooks import Given
from hocket.node.running.partitions import Hosted, Partitions
from hocket.node.running.sessions import Address
from hocket.ports import Network

_MOVES = "the consumers of this partition are being spread anew: open the subscription again"


@dataclass(slots=True, eq=False)
class Open:
    """An open subscription."""

    address: Address
    topic: str
    index: str
    groups: dict[int, int]  # partition -> group
    core: Subscription
    is_fed: bool = False  # its consumer takes the bytes at another node


class Deliveries:
    def __init__(
        self,
        log: LogStore,
        network: Network,
        partitions: Partitions,
        ended: Callable[[Address], None],
        crowds: Crowds,
    ) -> None:
        self._log = log
        self._network = network
        self._partitions = partitions
        self._ended = ended
        self._open: dict[Address, Open] = {}
        # Those that came upon data that cannot be read: nothing more is sent to them, but they may
        # commit, until they are closed or another consumer opens their index.
        self._stopped: dict[Address, Open] = {}
        self._owners: dict[tuple[int, str], Address] = {}  # (group, own index) -> its consumer
        self._fed: dict[Address, Open] = {}  # of those in `_open`
        self.crowds = crowds
        # What was read for one subscription while many are told the same: most are equally far.
        self._just_read: dict[tuple[int, int, int, int], ReadResult] | None = None
        self._read_last: tuple[int, ReadResult] | None = None  # of these, from which offset on

    def open(
        self,
        address: Address,
        topic: str,
        index: str,
        hosted: dict[int, Hosted],
        starts: dict[int, int],
        credit: int,
        *,
        is_fed: bool = False,
    ) -> None:
        progress = [
            (number, Progress(starts[number], each.core.high_watermark, each.core.start))
            for number, each in hosted.items()
        ]
        groups = {number: each.group for number, each in hosted.items()}
        for former, stopped in list(self._stopped.items()):
            if (stopped.topic, stopped.index) == (topic, index):
                self.end(former, "fenced", _taken_over(topic, index))
        core = Subscription(progress, 0 if is_fed else credit)
        opened = Open(address, topic, index, groups, core, is_fed)
        self._open[address] = opened
        if is_fed:
            self._fed[address] = opened
        for each in hosted.values():
            self._take_over(opened, each)

    def begin(self, address: Address) -> None:
        """Begin to send. The consumer knows its handle by now."""
        opened = self._open[address]
        if opened.is_fed:
            self._pass_over_lost(opened)
        else:
            self._carry_out(opened, opened.core.begin())

    def _pass_over_lost(self, opened: Open) -> None:
        """Nothing is read for it here, so that nobody else says what retention has removed."""
        for number, progress in opened.core.partitions.items():
            lost = progress.start - progress.next
            if lost > 0:
                progress.next = progress.start
                self._tell_moved(opened, TellMoved(number, progress.next, lost))

    def is_stopped(self, address: Address) -> bool:
        return address in self._stopped

    def is_fed(self, address: Address) -> bool:
        return address in self._fed

    def extend(self, address: Address, number: int, hosted: Hosted, start: int) -> None:
        """The subscription's topic has a new partition; read that one too."""
        opened = self._open[address]
        opened.groups[number] = hosted.group
        opened.core.add(number, Progress(start, hosted.core.high_watermark, hosted.core.start))
        self._take_over(opened, hosted)
        self._carry_out(opened, opened.core.begin())

    def close(self, address: Address) -> None:
        self._stopped.pop(address, None)
        opened = self._open.pop(address, None)
        if opened is None:
            return
        self._fed.pop(address, None)
        self.crowds.leave(address, opened.groups.values())
        for group in opened.groups.values():
            hosted = self._partitions.get(group)
            if hosted is not None:
                hosted.subscribers.pop(address, None)
            if self._owners.get((group, opened.index)) == address:
                del self._owners[group, opened.index]

    def end(self, address: Address, code: str, message: str) -> None:
        """End the subscription from the broker's side, and tell its consumer why."""
        if address in self._open or address in self._stopped:
            self.close(address)
            self._ended(address)
            connection, handle = address
            self._network.send(connection, HandleEnded(0, handle, code, message))

    def _cannot_read(self, opened: Open, read: Read, error: HocketError) -> None:
        """Send nothing more; if it is data that cannot be read, let the consumer commit."""
        address = opened.address
        hosted = self._partitions.get(opened.groups[read.partition])
        if is_damage(error) and hosted is not None and hosted.copy is not None:
            hosted.copy.cannot_read(error)  # which ends this subscription: others can be asked
            return
        if not isinstance(error, CorruptData) or error.start is None or error.end is None:
            where = f"partition {read.partition} of topic {opened.topic!r}"
            self.end(address, error.code, f"{where}: {error}")
            return
        said = unreadable(
            str(error), topic=opened.topic, index=opened.index, partition=read.partition,
            start=max(error.start, read.offset), end=error.end,
            may_pass=isinstance(error, FileUnreadable), is_away=isinstance(error, SegmentAway),
        )  # fmt: skip
        assert said.start is not None
        self.close(address)
        if opened.index:
            self._stopped[address] = opened
        else:
            self._ended(address)
        connection, handle = address
        ended = HandleEnded(
            0, handle, said.code, str(said), bool(opened.index), read.partition, said.start,
            error.end,
        )  # fmt: skip
        self._network.send(connection, ended)

    def give_credit(self, address: Address, amount: int) -> None:
        if address not in self._fed:
            self._step(address, CreditGiven(amount))

    def advanced(self, hosted: Hosted) -> None:
        """The partition has more to read, or its oldest records are gone."""
        core = hosted.core
        event = Advanced(core.number, core.start, core.high_watermark)
        self._just_read = {}
        try:
            for address, subscription in list(hosted.subscribers.items()):
                last = self._read_last
                if (
                    last is not None
                    and address in self._open
                    and self._follows(subscription, event, *last)
                ):
                    self._send(hosted, address, last[0], event.end, last[1])
                else:
                    self._step(address, event)
        finally:
            self._just_read = self._read_last = None

    def _follows(
        self, subscription: Subscription, event: Advanced, offset: int, found: ReadResult
    ) -> bool:
        """Whether it gets just what was read for another one."""
        return (
            found.start_offset <= offset
            and not self._partitions.doubts
            and subscription.follow(event, offset, found.end_offset, found.bytes)
        )

    def _send(
        self, hosted: Hosted, address: Address, offset: int, end: int, found: ReadResult
    ) -> None:
        connection, handle = address
        deliver = Deliver(0, handle, hosted.core.number, offset, end)
        traffic = self._partitions.traffic
        traffic.records_given += found.end_offset - offset
        traffic.bytes_given += found.bytes
        hosted.given_bytes += found.bytes
        self._network.send(connection, deliver, found.slices)
        if self._partitions.hooks.on_deliver is not None:
            records = found.end_offset - offset
            given = Given(
                address, hosted.core.topic, hosted.core.number, offset, found.end_offset, records,
                found.slices,
            )  # fmt: skip
            self._partitions.hooks.on_deliver(given)

    def sought(self, hosted: Hosted, index: str, offset: int) -> None:
        """An index was put elsewhere: its consumer goes on at the new offset."""
        address = self._owners.get((hosted.group, index))
        if address is not None:
            self._step(address, Sought(hosted.core.number, offset, hold=True))

    def end_misplaced(self, now_us: int) -> None:
        """Have consumers that had better be served elsewhere ask anew where that is."""
        for address in self.crowds.misplaced(now_us):
            self.end(address, NotHere.code, _MOVES)

    def unfeed(self, group: int) -> None:
        """This partition cannot be read to others: its consumers are told here what is wrong."""
        self.crowds.damaged.add(group)
        for address, opened in list(self._fed.items()):
            if group in opened.groups.values():
                self.end(address, NotHere.code, _MOVES)

    def move_heard(self, address: Address, number: int) -> None:
        self._step(address, MoveHeard(number))

    def end_all(self, hosted: Hosted, code: str, message: str) -> None:
        stopped = [a for a, each in self._stopped.items() if hosted.group in each.groups.values()]
        fed = [a for a, each in self._fed.items() if hosted.group in each.groups.values()]
        for address in [*hosted.subscribers, *stopped, *fed]:
            self.end(address, code, message)

    def end_owner(self, hosted: Hosted, index: str, code: str, message: str) -> None:
        address = self._owners.get((hosted.group, index))
        if address is not None:
            self.end(address, code, message)
        for stopped, each in list(self._stopped.items()):
            if each.index == index and hosted.group in each.groups.values():
                self.end(stopped, code, message)

    def is_attached(self, hosted: Hosted, index: str) -> bool:
        return (hosted.group, index) in self._owners

    def next_of(self, hosted: Hosted, index: str) -> int:
        """The next offset that the consumer of the index is sent; 0 if it has none."""
        address = self._owners.get((hosted.group, index))
        if address is None:
            return 0
        if address in self._fed:
            return hosted.core.start  # if it misses anything, it asks here, and is told
        return self._open[address].core.partitions[hosted.core.number].next

    def owner(self, hosted: Hosted, index: str) -> Address | None:
        return self._owners.get((hosted.group, index))

    def _take_over(self, opened: Open, hosted: Hosted) -> None:
        if not opened.is_fed:
            hosted.subscribers[opened.address] = opened.core
        if not opened.index:
            return
        former = self._owners.get((hosted.group, opened.index))
        if former is not None and former != opened.address:
            self.end(
                former,
                "fenced",
                _taken_over(opened.topic, opened.index),
            )
        self._owners[hosted.group, opened.index] = opened.address

    def _step(self, address: Address, event: Event) -> None:
        opened = self._open.get(address)
        if opened is not None:
            self._carry_out(opened, opened.core.step(event))

    def _carry_out(self, opened: Open, effects: list[Effect]) -> None:
        """A read that memory answers leads to more effects at once, hence the queue."""
        to_do = deque(effects)
        while to_do:
            effect = to_do.popleft()
            if isinstance(effect, Read):
                try:
                    found = self._read(opened, effect)
                except HocketError as error:
                    self._cannot_read(opened, effect, error)
                    return
                if found is not None:
                    to_do.extend(self._read_done(opened, effect, found))
            elif isinstance(effect, TellMoved):
                self._tell_moved(opened, effect)
        if self._partitions.doubts:
            self._end_in_doubt(opened)

    def _read(self, opened: Open, read: Read) -> ReadResult | None:
        """None: the disk is asked. Raises what the log raises."""
        group = opened.groups[read.partition]
        what = group, read.offset, read.bytes_max, read.end
        just_read = self._just_read
        if just_read is not None and what in just_read:
            return just_read[what]
        found = self._log.read(
            group,
            read.offset,
            bytes_max=read.bytes_max,
            end_offset=read.end,
            done=partial(self._read_later, opened.address, read),
            wanted=partial(self._open.__contains__, opened.address),
        )
        if just_read is not None and found is not None:
            just_read[what] = found
            self._read_last = read.offset, found
        return found

    def _end_in_doubt(self, opened: Open) -> None:
        """Nothing will follow in a partition whose end is lost. Its consumer is told so, but has
        all that is there of the other partitions first."""
        doubts = (self._partitions.doubts.get(group) for group in opened.groups.values())
        doubt = next(filter(None, doubts), None)
        if doubt and opened.core.is_done:
            self.end(opened.address, CorruptData.code, doubt)

    def _tell_moved(self, opened: Open, effect: TellMoved) -> None:
        connection, handle = opened.address
        moved = Moved(0, handle, effect.partition, effect.offset, effect.lost)
        self._network.send(connection, moved)
        if effect.lost and opened.index:
            self._log_loss(opened, effect)

    def _log_loss(self, opened: Open, effect: TellMoved) -> None:
        """The index remembers what was lost: its position alone would not tell any more."""
        hosted = self._partitions[opened.groups[effect.partition]]
        try:
            self._partitions.admit_progress(hosted.group)
        except HocketError:  # the disk is full; the consumer was told
            return
        skip = SkipIndex(Origin(*opened.address, 0), opened.index, effect.offset, effect.lost)
        self._partitions.step(hosted, skip)

    def _read_later(self, address: Address, read: Read, found: ReadResult | HocketError) -> None:
        opened = self._open.get(address)
        if opened is None:
            return
        if isinstance(found, OutOfRange):  # retention removed it first: go on at the new start
            stale = ReadDone(read.partition, -1, 0, 0)
            self._carry_out(opened, opened.core.step(stale))
        elif isinstance(found, HocketError):
            self._cannot_read(opened, read, found)
        else:
            self._carry_out(opened, self._read_done(opened, read, found))

    def _read_done(self, opened: Open, read: Read, found: ReadResult) -> list[Effect]:
        done = ReadDone(
            read.partition, read.moves, found.end_offset, found.bytes, found.start_offset
        )
        effects = opened.core.step(done)
        for effect in effects:
            if isinstance(effect, Send):
                end = opened.core.partitions[effect.partition].end
                hosted = self._partitions[opened.groups[effect.partition]]
                self._send(hosted, opened.address, effect.offset, end, found)
            elif isinstance(effect, TellMoved):
                self._tell_moved(opened, effect)
        return [effect for effect in effects if isinstance(effect, Read)]


def _taken_over(topic: str, index: str) -> str:
    return f"another consumer has opened index {index!r} of topic {topic!r}"
