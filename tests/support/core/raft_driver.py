"""The smallest honest driver of Raft: one group, on the real replicated log.

It keeps what docs/internals/raft.md says that a driver owes, and nothing more. Effects wait in one
queue while something has to become durable first; what comes in meanwhile is told to Raft at once.
Raft is then ahead of the log: whoever asks the log asks it when the queue has come that far.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from crc32c import crc32c

from hocket.core.raft import events, messages
from hocket.core.raft.group import Host, Saved
from hocket.core.raft.membership import Configuration
from hocket.core.raft.outline import Run
from hocket.core.raft.pulse import Pulse
from hocket.core.raft.raft import Raft
from hocket.core.raft.settings import SECOND, RaftSettings
from hocket.errors import Busy, HocketError, OutOfRange
from hocket.log.model import HardState, LogEnd, NewEntry, RawEntries, RecoveredGroup, Snapshot
from hocket.log.store import LogStore
from hocket.model import EntryKind
from hocket.sim.clock import SimClock
from hocket.sim.disk import SimDisk
from hocket.sim.executor import SimExecutor
from hocket.sim.scheduler import Scheduler
from hocket.timers import Timer
from hocket.wire.entry import HEADER_BYTES, Header, padded, unpack_header
from tests.support.log.replica_world import TINY_REPLICAS
from tests.support.log.world import TINY_GROUP

GROUP = 7
CHANGE = 100  # the kind of an entry that is a configuration
MESSAGE_BYTES_MAX = 700  # of entries in one message
SETTINGS = RaftSettings(entries_max=8, in_flight_max=3, idle_us=SECOND, snapshot_us=4 * SECOND)


class Applied(NamedTuple):
    """What a follower's core would be: it follows from the entries up to `index` alone."""

    index: int
    digest: int
    configuration: Configuration  # of the last configuration entry up to `index`

    def packed(self) -> bytes:
        return json.dumps((self.index, self.digest, asdict(self.configuration))).encode()

    @classmethod
    def unpacked(cls, data: bytes) -> Applied:
        index, digest, configuration = json.loads(data)
        return cls(index, digest, _configuration(configuration))


def _configuration(fields: dict[str, Any]) -> Configuration:
    return Configuration(
        **{name: tuple(it) if isinstance(it, list) else it for name, it in fields.items()}
    )


class Entry(NamedTuple):
    """An entry of the log that is not applied yet."""

    kind: int
    crc: int
    body: bytes

    @property
    def configuration(self) -> Configuration | None:
        return _configuration(json.loads(self.body)) if self.kind == CHANGE else None


@dataclass
class Parcel:
    """A message on its way: entries have their bytes, a snapshot its state and where it ends."""

    sender: str
    to: str
    message: Any
    data: bytes = b""
    end: LogEnd | None = None
    log_start: int = 0


class Watch(Protocol):
    """Who has the driver: it carries parcels, and looks at what is done."""

    def post(self, parcel: Parcel) -> None: ...

    def does(self, name: str, effect: events.Effect) -> None: ...

    def commits(self, name: str, index: int, crc: int) -> None: ...

    def answers(self, name: str, read: events.ReadReady) -> None: ...


class Driver:
    """One life of one node. Also the store's observer."""

    def __init__(
        self, name: str, disk: SimDisk, scheduler: Scheduler, life: int, founded: Configuration,
        watch: Watch,
    ) -> None:  # fmt: skip
        self.name = name
        self._scheduler = scheduler
        self._chance = scheduler.random(f"jitter of {name}")
        self._watch = watch
        self._todo: deque[tuple[events.Effect, Parcel | None]] = deque()
        self._waits = False  # for something to become durable
        self._outgoing: dict[str, deque[events.SendEntries]] = {}  # the first is being read
        self._timers: dict[object, Timer] = {}
        self._entries: dict[int, Entry] = {}  # that are not applied
        self._reads: list[events.ReadReady] = []
        self._changed: list[tuple[int, Configuration]] = []  # what was applied, and where
        self.applied = Applied(0, 0, founded)
        self.executor = SimExecutor(scheduler, stream=f"executor of {name}")
        self.store = LogStore.open(disk, self.executor, SimClock(scheduler), TINY_REPLICAS)
        host = Host(name, life, SETTINGS)
        self.raft = Raft(host, GROUP, self._saved(self.store.recovered.get(GROUP)))
        self.pulse = Pulse(host)
        self.pulse.add(self.raft)
        self.store.configure(GROUP, TINY_GROUP)
        self.store.report_to(self)
        self.tell(events.Started())
        self._every(SETTINGS.heartbeat_us, self._beat)
        self._every(100_000, self.store.tick)

    def _saved(self, found: RecoveredGroup | None) -> Saved:
        if found is None:
            return Saved(self.applied.configuration)
        assert not found.damage
        if found.snapshot_index:
            self.applied = Applied.unpacked(found.snapshot)
        assert self.applied.index == found.snapshot_index
        headers = [header for header, _ in found.entries]
        for header, body in found.entries:
            self._entries[header.index] = Entry(header.kind, header.crc, bytes(body))
        return Saved(
            self.applied.configuration, found.state.term, found.state.vote, found.snapshot_index,
            found.snapshot_term, _runs(headers), self._changes(headers),
        )  # fmt: skip

    def crash(self) -> None:
        self.executor.crash()
        for timer in self._timers.values():
            timer.cancel()

    def _every(self, period_us: int, act: Callable[[], None]) -> None:
        def again() -> None:
            self._every(period_us, act)
            act()

        self._timers[act] = self._scheduler.after(period_us, again)

    # --- the turn --------------------------------------------------------------------------------

    def tell(self, event: events.Event, parcel: Parcel | None = None) -> None:
        self._take(self.raft.step(event, self._scheduler.now_us()), parcel)
        self._end_turn()

    def _take(self, effects: list[events.Effect], parcel: Parcel | None) -> None:
        self._todo.extend((effect, parcel) for effect in effects)
        self._go_on()

    def _go_on(self) -> None:
        while self._todo and not self._waits:
            effect, parcel = self._todo.popleft()
            self._watch.does(self.name, effect)
            self._carry_out(effect, parcel)

    def _end_turn(self) -> None:
        self.store.flush()

    def _resume(self) -> None:
        self._waits = False
        self._go_on()
        self._end_turn()

    def _beat(self) -> None:
        self._take_all(self.pulse.beat(self._scheduler.now_us()))

    def _take_all(self, effects: list[events.SendToNode | events.OfGroup]) -> None:
        for effect in effects:
            if isinstance(effect, events.OfGroup):
                self._take(effect.effects, None)
            else:
                self._watch.post(Parcel(self.name, effect.to, effect.message))
        self._end_turn()

    # --- what comes in ---------------------------------------------------------------------------

    def heard(self, parcel: Parcel) -> None:
        now_us = self._scheduler.now_us()
        message = parcel.message
        if isinstance(message, messages.Beat):
            self._take_all(self.pulse.heard(parcel.sender, message, now_us))
        elif isinstance(message, messages.BeatAnswer):
            self._take_all(self.pulse.answered(parcel.sender, message, now_us))
        elif isinstance(message, messages.Entries):
            self._heard_entries(parcel, message)
        else:
            self.tell(events.Heard(parcel.sender, message), parcel)

    def _heard_entries(self, parcel: Parcel, message: messages.Entries) -> None:
        """Raft believes what it is told, so bytes are looked at, and room is sought, before."""
        headers = _headers(parcel.data)
        first = message.previous + 1
        assert [header.index for header in headers] == list(range(first, first + len(headers)))
        try:
            self.store.admit(GROUP, len(parcel.data))
        except Busy:
            pass  # too much waits to be committed, and this may be what commits it, or replaces it
        except HocketError:
            return  # as if the message were lost: the leader sends it again
        told = replace(message, runs=_runs(headers), changes=self._changes(headers, parcel.data))
        self.tell(events.Heard(parcel.sender, told), parcel)

    def _changes(
        self, headers: list[Header], data: bytes | None = None
    ) -> tuple[tuple[int, Configuration], ...]:
        entries = self._entries if data is None else _entries(headers, data)
        found = ((header.index, entries[header.index].configuration) for header in headers)
        return tuple((index, change) for index, change in found if change is not None)

    def append(self, body: bytes) -> bool:
        """An entry of a client, at the leader. Not behind entries that Raft has yet to enter."""
        if not self.raft.takes_entries or self._todo or self._waits:
            return False
        try:
            self.store.admit(GROUP, HEADER_BYTES + padded(len(body)))
        except HocketError:
            return False
        last = self._append(EntryKind.BATCH, self.raft.group.term, body)
        self.tell(events.Appended(last))
        return True

    def _append(self, kind: int, term: int, body: bytes) -> int:
        _, _, end = self.store.replicated.bounds(GROUP)
        entry = NewEntry(
            kind, 0, 0, int(kind == EntryKind.BATCH), term, end.next_index, end.next_offset,
            crc32c(body), self._scheduler.now_us(), body,
        )  # fmt: skip
        self.store.append(GROUP, entry, admitted=True)
        _, _, after = self.store.replicated.bounds(GROUP)
        self._entries[end.next_index] = Entry(kind, after.last_crc, body)
        return end.next_index

    def compact(self) -> None:
        """A checkpoint; what it makes needless goes when retention says so."""
        _, durable, _ = self.store.replicated.bounds(GROUP)
        if self.applied.index == durable.next_index - 1 and not self._waits:
            self.store.set_log_start(GROUP, durable.next_offset)
        self._checkpoint(lambda: None)

    def _checkpoint(self, then: Callable[[], None]) -> None:
        applied = self.applied  # the snapshot is of this one, or of a later one

        def done(error: HocketError | None) -> None:
            assert error is None, error
            self.tell(events.Compacted(applied.index, applied.configuration))
            then()

        self.store.checkpoint_now(done)

    # --- the store's observer --------------------------------------------------------------------

    def log_durable(self, through: dict[int, int]) -> None:
        _, durable, _ = self.store.replicated.bounds(GROUP)
        assert through == {GROUP: durable.next_index - 1}
        # Cut entries are never told durable, so the term of now is that of the flush.
        self.tell(events.Flushed(durable.next_index - 1, durable.term))

    def log_stopped(self, error: HocketError) -> None:
        raise AssertionError(error)

    def log_room(self) -> None:
        """Nobody waits: what was refused comes again."""

    def snapshot(self, group: int) -> tuple[int, bytes]:
        assert group == GROUP
        return self.applied.index, self.applied.packed()

    # --- effects ---------------------------------------------------------------------------------

    def _carry_out(self, effect: events.Effect, parcel: Parcel | None) -> None:
        match effect:
            case events.PersistVote(term, vote):
                self._waits = True
                self.store.replicated.persist(GROUP, HardState(term, vote), self._resume)
            case events.Configured():
                self._waits = True
                self._checkpoint(self._resume)
            case events.Send(to, messages.Snapshot() as message):
                self._send_snapshot(to, message)
            case events.Send(to, message):
                self._watch.post(Parcel(self.name, to, message))
            case events.SendEntries():
                outgoing = self._outgoing.setdefault(effect.to, deque())
                outgoing.append(effect)
                if len(outgoing) == 1:
                    self._send_entries(effect, effect.first, effect.previous_term)
            case events.Truncate(first):
                self.store.replicated.truncate(GROUP, first - 1)
                self._entries = {at: it for at, it in self._entries.items() if at < first}
            case events.Store(first, last):
                assert parcel is not None
                self._store(parcel.data, first, last)
            case events.Enter(index, term, configuration):
                self._enter(index, term, configuration)
            case events.Committed(index):
                self._apply(index)
            case events.Install():
                assert parcel is not None
                self._install(parcel)
            case events.ReadReady():
                self._reads.append(effect)
                self._answer_reads()
            case events.Arm(timer, after_us, jitter_us):
                self._arm(timer, after_us + self._chance.randint(0, jitter_us))

    def _arm(self, timer: events.Timer, after_us: int) -> None:
        """One that is armed anew never runs out as the earlier one."""
        if timer in self._timers:
            self._timers[timer].cancel()
        due = events.Due(timer)
        self._timers[timer] = self._scheduler.after(after_us, partial(self.tell, due))

    def _store(self, data: bytes, first: int, last: int) -> None:
        headers = _headers(data)
        sizes = [header.size for header in headers]
        begin = first - headers[0].index
        end = last + 1 - headers[0].index
        chosen = data[sum(sizes[:begin]) : sum(sizes[:end])]
        stored = self.store.replicated.append_raw(GROUP, chosen, admitted=True)
        self._entries.update(_entries(stored, chosen))

    def _enter(self, index: int, term: int, configuration: Configuration | None) -> None:
        if configuration is None:
            kind, body = int(EntryKind.NOOP), b""
        else:
            kind, body = CHANGE, json.dumps(asdict(configuration)).encode()
        entered = self._append(kind, term, body)
        assert entered == index

    def _apply(self, through: int) -> None:
        """The configuration is that of the entries, not of `Configured`, which may have to wait."""
        for index in range(self.applied.index + 1, through + 1):
            entry = self._entries.pop(index)
            self._watch.commits(self.name, index, entry.crc)
            digest = crc32c(entry.body, self.applied.digest)
            configuration = entry.configuration or self.applied.configuration
            if entry.configuration:
                self._changed.append((index, configuration))
            self.applied = Applied(index, digest, configuration)
        self._answer_reads()

    def _answer_reads(self) -> None:
        ready = [read for read in self._reads if read.index <= self.applied.index]
        self._reads = [read for read in self._reads if read.index > self.applied.index]
        for read in ready:
            self._watch.answers(self.name, read)

    def _install(self, parcel: Parcel) -> None:
        """Until it is durable the old state is the one that checkpoints are told."""
        self._waits = True
        assert parcel.end is not None
        assert parcel.end.next_index - 1 == parcel.message.index

        def done() -> None:
            self.applied = Applied.unpacked(parcel.data)
            self._entries.clear()
            self._changed = [(self.applied.index, self.applied.configuration)]
            self._waits = False
            self.tell(events.Flushed(parcel.message.index, parcel.message.index_term))

        snapshot = Snapshot(parcel.end, parcel.log_start, parcel.data)
        self.store.install_snapshot(GROUP, snapshot, done)

    def _send_snapshot(self, to: str, message: messages.Snapshot) -> None:
        """The state of now, which is not older than what is asked for; the message says which."""
        taken = self.store.replicated.take_snapshot(GROUP)
        assert taken.index >= message.index
        said = messages.Snapshot(message.term, taken.index, taken.term, self.applied.configuration)
        self._watch.post(Parcel(self.name, to, said, taken.state, taken.end, taken.log_start))

    def _send_entries(self, effect: events.SendEntries, first: int, previous_term: int) -> None:
        """In order: what is in memory does not overtake what has to be read from the disk."""
        if not self._leads_in(effect.term):
            self._sent(effect)
            return
        if effect.last < first:
            self._post_entries(effect, first, previous_term, b"")
            self._sent(effect)
            return
        read = partial(self._entries_read, effect, first, previous_term)
        try:
            found = self.store.replicated.read_raw(
                GROUP, first, end_index=effect.last + 1, bytes_max=MESSAGE_BYTES_MAX, done=read
            )
        except OutOfRange:
            self._tell_what_is_gone()  # as if it were lost: the next heartbeat brings a snapshot
            self._sent(effect)
            return
        if found is not None:
            read(found)

    def _tell_what_is_gone(self) -> None:
        """The store makes checkpoints of its own, removes what they made needless, and is mute."""
        first, _, _ = self.store.replicated.bounds(GROUP)
        if first - 1 > self.raft.group.outline.start:
            before = [change for index, change in self._changed if index < first]
            configuration = before[-1] if before else self.raft.group.snapshot_configuration
            self.tell(events.Compacted(first - 1, configuration))

    def _entries_read(
        self, effect: events.SendEntries, first: int, previous_term: int,
        found: RawEntries | HocketError,
    ) -> None:  # fmt: skip
        """They may come from the disk: by then another leader may have replaced them."""
        if isinstance(found, HocketError) or not self._leads_in(effect.term):
            self._sent(effect)
            return
        data = b"".join(found.slices)
        self._post_entries(effect, first, previous_term, data)
        if found.end_index <= effect.last:
            self._send_entries(effect, found.end_index, _headers(data)[-1].term)
        else:
            self._sent(effect)

    def _sent(self, effect: events.SendEntries) -> None:
        outgoing = self._outgoing[effect.to]
        outgoing.popleft()
        if outgoing:
            self._send_entries(outgoing[0], outgoing[0].first, outgoing[0].previous_term)

    def _leads_in(self, term: int) -> bool:
        return self.raft.leading is not None and self.raft.group.term == term

    def _post_entries(
        self, effect: events.SendEntries, first: int, previous_term: int, data: bytes
    ) -> None:
        message = messages.Entries(effect.term, first - 1, previous_term, (), effect.commit)
        self._watch.post(Parcel(self.name, effect.to, message, data))


def _headers(data: bytes) -> list[Header]:
    found: list[Header] = []
    position = 0
    while position < len(data):
        found.append(unpack_header(data, position))
        position += found[-1].size
    return found


def _entries(headers: list[Header], data: bytes) -> dict[int, Entry]:
    found: dict[int, Entry] = {}
    position = 0
    for header in headers:
        body = data[position + HEADER_BYTES : position + HEADER_BYTES + header.length]
        found[header.index] = Entry(header.kind, header.crc, body)
        position += header.size
    return found


def _runs(headers: list[Header]) -> tuple[Run, ...]:
    found: list[Run] = []
    for header in headers:
        if found and found[-1][1] == header.term:
            found.pop()
        found.append((header.index, header.term))
    return tuple(found)
