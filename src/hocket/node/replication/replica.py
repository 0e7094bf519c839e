"""One group at this node, if several nodes keep it: carries out what its Raft wants done.

Rule 1: effects are carried out in order, and those of one event before those of the next. What
        stands behind a vote, or behind a configuration, waits until that is durable.
Rule 2: the *machine* (a partition, say) is changed by committed entries only. While this node
        serves the group, its machine has proposed them itself; else they are applied from `_tail`.
Rule 3: a machine that stops serving goes back to what is committed; what it had proposed beyond
        that is in the log, where the next leader's word decides about it.
Rule 4: what of a log is damaged is not part of it for Raft; until the leader has sent it again,
        this node neither votes nor stands in the group. With damage only in what the machine's
        state knows it votes, and does not stand.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Protocol

from hocket.core.raft.events import (
    Appended,
    Arm,
    Committed,
    Compacted,
    Configured,
    Due,
    Effect,
    Enter,
    Event,
    Flushed,
    Follows,
    Heard,
    Install,
    Leads,
    LinkLost,
    PersistVote,
    ReadAsked,
    ReadReady,
    Refused,
    Send,
    SendEntries,
    Stalled,
    Started,
    Store,
    Timer,
    Transfer,
    Truncate,
)
from hocket.core.raft.group import Host, Saved
from hocket.core.raft.messages import AskVote, CampaignNow, GroupMessage, Heartbeat, Snapshot
from hocket.core.raft.outline import Run
from hocket.core.raft.raft import Raft
from hocket.errors import CorruptData, HocketError, NewerFormat, ProtocolError
from hocket.log.model import (
    DoesNotFollow,
    Fault,
    HardState,
    Snapshot as LogSnapshot,
    is_damage,
)
from hocket.log.store import LogStore
from hocket.model import EntryKind
from hocket.node.raft_mail import (
    MEMBERSHIP,
    Letter,
    State,
    Stored,
    body_of,
    entries_in,
    opened_state,
    packed_configuration,
)
from hocket.node.replication.authority import Authority
from hocket.node.replication.machine import E, Machine
from hocket.node.replication.reads import Reads
from hocket.node.replication.saved import runs_in
from hocket.node.replication.sending import Outbound
from hocket.node.replication.state_sending import StateSending
from hocket.node.running.partitions import plain_entry
from hocket.ports import Cancellable
from hocket.wire.entry import Header

log = logging.getLogger("hocket.replication")

FOUND_US = 20_000  # between the first two attempts to lead a new group; then twice as long
CHECKPOINT_US = 1_000_000  # until a checkpoint is tried again that has failed
Data = bytes | memoryview  # what came with a message
UNCOMMITTED_MAX = 4_096  # entries of one group; more are refused until some are committed


class Surroundings(Protocol):
    """What a replica needs of its node."""

    host: Host
    log: LogStore

    def now_us(self) -> int: ...
    def stored_after(self, us: int) -> None: ...
    def trace_sent(
        self, group: int, peer: str, entries: bytes | memoryview
    ) -> Callable[[], None] | None: ...
    def after(self, delay_us: int, jitter_us: int, action: Callable[[], None]) -> Cancellable: ...
    def post(self, to: str, letter: Letter) -> None: ...
    def touched(self, replica: Replica[Any]) -> None:
        """It has something to tell Raft before anything else happens to its group."""

    def stopped(self, replica: Replica[Any]) -> None:
        """It takes no part in its group any more."""


@dataclass(slots=True)
class _Kept(Generic[E]):
    """An entry of the log that is not applied."""

    index: int
    entry: E


class Replica(Generic[E]):
    def __init__(
        self,
        group: int,
        machine: Machine[E],
        around: Surroundings,
        saved: Saved,
        entries: Iterable[tuple[Header, memoryview]] = (),
    ) -> None:
        """`entries` are those of the log behind what the machine has applied."""
        self.group = group
        self.machine = machine
        self.raft = Raft(around.host, group, saved)
        self.on_free: Callable[[], None] = lambda: None  # entries may be appended again
        # The leader tells at once what is committed, and not with its next beat: for a group whose
        # followers are read from.
        self.tells_commits = False
        self.serves = False  # this node leads, and has applied everything that was committed
        self.stopped = ""  # why nothing happens here any more
        self._around = around
        self.log = around.log
        self._tail: deque[_Kept[E]] = deque(
            _Kept(header.index, machine.prepared(header, body)) for header, body in entries
        )
        self._waiting: deque[tuple[list[Effect], Data]] = deque()  # behind what is not durable
        self._is_blocked = False
        self._is_busy = False
        self._told = 0  # the last entry of this node's own that Raft knows
        self._appended = 0  # the last entry that the machine has appended, and Raft was not told
        self._first = 0  # of this node's own term
        self._heir = ""  # to whom the leadership is being handed over
        self.authority = Authority(self.raft.group, around.now_us, self.read, self._may_lease)
        self._timers: dict[Timer, Cancellable] = {}
        self._reads = Reads()
        self._outbound: dict[str, Outbound] = {}
        self._states = StateSending(self.raft, self.log.replicated, self._post, self._not_sent)
        self.led_us = 0  # since when this node leads
        self.marked = 0  # while it leads: the last entry that it had a second ago, or two
        self._mark = 0  # the last entry that it had when it was marked last
        # Behind an installed state: the terms of entries that it knows and the log may lack yet.
        self.ahead: Sequence[Run] = ()
        self._known, _state = machine.snapshot()  # up to this entry the machine knows all

    def start(self) -> None:
        self.tell(Started())

    def found(self, delay_us: int = FOUND_US) -> None:
        """Stand for the leadership of a group that is new, without waiting for a leader's silence.

        The others may not know of the group yet: so this is tried again, less and less often.
        """
        if self.raft.group.term <= 1:
            self.hurry(delay_us)

    def hurry(self, delay_us: int = FOUND_US) -> None:
        """Stand for the leadership now, unless a leader is known; and again, less and less often.

        That disturbs nobody: who hears a leader does not answer (pre-vote).
        """
        if self.stopped or self.leader:
            return
        self.tell(Due(Timer.ELECTION))
        if delay_us < self._around.host.settings.election_us:
            self._around.after(delay_us, 0, partial(self.hurry, 2 * delay_us))

    def close(self) -> None:
        """The node hosts this group no more, or goes down."""
        self.stopped = self.stopped or "closed"
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._waiting.clear()
        self._reads.close()

    @property
    def leader(self) -> str:
        """The store id of who leads, or will at once; empty: nobody is known to."""
        return "" if self.stopped else self.raft.group.leader or self._heir

    @property
    def _faults(self) -> list[Fault]:
        return [each for each in self.log.replicated.faults(self.group) if not each.accepted]

    @property
    def is_faulty(self) -> bool:
        return bool(self._faults)

    def _may_not(self, message: GroupMessage) -> bool:
        """Whether damage keeps this node from doing what it is asked to."""
        if isinstance(message, AskVote):
            return any(not fault.is_applied for fault in self._faults)
        return isinstance(message, CampaignNow) and bool(self._faults)

    @property
    def is_settled(self) -> bool:  # term and vote are durable
        return not self._is_blocked and not self._waiting

    @property
    def hears_leader(self) -> bool:
        """Whether the leader that is known was heard lately. Who has no vote elects no other."""
        group, settings = self.raft.group, self._around.host.settings
        if not group.leader or group.leader == self._around.host.me or group.is_quiet:
            return bool(group.leader)
        silent_us = settings.election_us + settings.election_jitter_us
        return self._around.now_us() < group.heard_us + silent_us

    @property
    def is_blocked(self) -> bool:
        """Nothing can be appended before something is durable: Raft's own entries come first."""
        return self._is_blocked or bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """Too much waits for a majority, or nothing can be appended before something is durable."""
        if self.is_blocked:
            return True
        commit = self.raft.group.commit
        return max(self._appended, self.raft.group.outline.last) - commit > UNCOMMITTED_MAX

    # --- what happens ----------------------------------------------------------------------------

    def appended(self, index: int) -> None:
        """The machine has appended an entry. Raft is told at the end of the turn, or before."""
        if not self._appended:
            self._around.touched(self)
        self._appended = index

    def tell_appended(self) -> None:
        if self._appended:
            self._tell_appended()

    def flushed(self) -> None:
        """The log has become durable further than before, or begins anew."""
        self.tell_appended()
        durable = self.log.replicated.bounds(self.group)[1]
        index, term = durable.next_index - 1, durable.term
        outline = self.raft.group.outline
        if self._appended and index > outline.last:  # what Raft is not told of yet
            index, term = outline.last, outline.term_of(outline.last)
        self.tell(Flushed(index, term))

    def hand_over(self, to: str) -> None:
        """Have another voter lead, as soon as it has all that this node has.

        What clients send meanwhile waits in the log, and Raft is told of it if the other one does
        not take over. If it does, they are told who leads, and send it there. Nothing happens if
        the other one cannot lead: it has no vote, say.
        """
        self.tell(Transfer(to))
        leading = self.raft.leading
        if leading is not None and leading.successor == to:
            self._heir = to

    def _may_lease(self) -> bool:
        leading = self.raft.leading
        return self.serves and leading is not None and not leading.successor

    def heard(self, sender: str, letter: Letter) -> None:
        message = letter.message
        if self._may_not(message):
            return
        outbound = self._outbound.get(sender)
        if outbound is not None:
            outbound.heard(message)
        self.tell(Heard(sender, message), letter.data)

    def read(self, answered: Callable[[bool], None]) -> None:
        """Call `answered` when all is applied that was committed before now; False: not here."""
        if self.stopped:
            answered(False)
        else:
            self.tell(ReadAsked(self._reads.ask(answered)))

    def tell(self, event: Event, data: Data = b"") -> None:
        if self.stopped:
            return
        if self._appended:
            self._tell_appended()
        self.carry_out(self.raft.step(event, self._around.now_us()), data)

    def _tell_appended(self) -> None:
        if self.raft.leading is not None and not self.raft.takes_entries:
            return  # it is being handed over
        last, self._appended = self._appended, 0
        if self.raft.leading is not None:  # else it is stepping down: see `_cease`
            self._told = last
            self.carry_out(self.raft.step(Appended(last), self._around.now_us()))

    # --- carrying out effects --------------------------------------------------------------------

    def carry_out(self, effects: list[Effect], data: Data = b"") -> None:
        """`data` is what came with the message that the effects follow from."""
        self._waiting.append((effects, data))
        if self._is_blocked and self.serves and self.raft.leading is None:
            self._cease(self.leader)  # `Follows` is among what waits for the disk, and must not
        self._go_on()

    def _go_on(self) -> None:
        if self._is_busy:  # an effect led to this: what follows from it comes behind the others
            return
        self._is_busy = True
        try:
            while self._waiting and not self._is_blocked and not self.stopped:
                effects, data = self._waiting.popleft()
                for at, effect in enumerate(effects):
                    self._handlers[type(effect)](self, effect, data)
                    if self._is_blocked or self.stopped:
                        self._waiting.appendleft((effects[at + 1 :], data))
                        break
        finally:
            self._is_busy = False

    def _unblock(self) -> None:
        self._is_blocked = False
        self._go_on()
        if not self.is_blocked and not self.stopped:
            self.on_free()

    def _persist_vote(self, effect: PersistVote, _data: Data) -> None:
        if self.serves and self.raft.leading is None:
            # `Follows` stands behind this, and must not wait for the disk: what the machine would
            # append meanwhile, Raft could not be told.
            self._cease(self.leader)
        self._is_blocked = True
        self.log.replicated.persist(self.group, HardState(effect.term, effect.vote), self._unblock)

    def _configured(self, _effect: Configured, _data: Data) -> None:
        # The entry is in the log of a majority, and all but the last configuration of a log are in
        # force (`membership.in_force`). What could be forgotten in a crash is the last one: so it
        # is in the next snapshot of this group, and the log is made durable through it here.
        self._is_blocked = True
        self.log.checkpoint_now(self._checkpointed)

    def _checkpointed(self, error: HocketError | None) -> None:
        if error is None:
            self._unblock()
        elif not self.stopped:  # the disk is full, say: what follows waits until it is durable
            log.warning("group %d waits for a checkpoint: %s", self.group, error)
            self._around.after(CHECKPOINT_US, 0, self._checkpoint_again)

    def _checkpoint_again(self) -> None:
        if not self.stopped:
            self.log.checkpoint_now(self._checkpointed)

    def _send(self, effect: Send, _data: Data) -> None:
        if isinstance(effect.message, Snapshot):
            self._states.send(effect.to, effect.message)
        else:
            self._around.post(effect.to, Letter(self.group, effect.message))

    def _post(self, to: str, letter: Letter) -> None:
        if not self.stopped:
            self._around.post(to, letter)

    def _send_entries(self, effect: SendEntries, _data: Data) -> None:
        self._forget_what_is_gone()
        outbound = self._outbound.get(effect.to)
        if outbound is None:
            outbound = self._outbound[effect.to] = Outbound(
                self.group, effect.to, self.log.replicated, self._around.post,
                lost=partial(self._not_sent, effect.to), now_us=self._around.now_us,
                stored_after=self._around.stored_after, trace=self._around.trace_sent,
            )  # fmt: skip
        outbound.send(effect)

    def _not_sent(self, peer: str, error: HocketError) -> None:
        """Entries could not be read: they are gone since, or damaged, or away in a tier."""
        if is_damage(error):
            self.cannot_read(error)
        elif not self.stopped:
            self._forget_what_is_gone()
            self.tell(LinkLost(peer))

    def cannot_read(self, error: HocketError) -> None:
        """This copy is damaged: another one is to lead."""
        if self.raft.leading is not None:
            log.error("group %d is not led here any more: %s", self.group, error)
            self.tell(Stalled(self._around.host.settings.stall_us_max))

    def _forget_what_is_gone(self) -> None:
        """Retention has removed entries: Raft sends the state in their place from now on."""
        before = self.log.replicated.bounds(self.group)[0] - 1
        group = self.raft.group
        if group.outline.start < before <= group.commit:
            self.raft.step(Compacted(before, group.configuration), self._around.now_us())

    def _truncate(self, effect: Truncate, _data: Data) -> None:
        self.log.replicated.truncate(self.group, effect.first - 1)
        while self._tail and self._tail[-1].index >= effect.first:
            self._tail.pop()

    def _store(self, effect: Store, data: Data) -> None:
        entries = [each for each in entries_in(data) if each.header.index >= effect.first]
        if not entries or entries[-1].header.index != effect.last:
            raise ProtocolError(f"entries {effect.first} to {effect.last} are not in their message")
        try:
            self.log.replicated.append_raw(
                self.group, memoryview(data)[entries[0].at :], admitted=True
            )
        except (CorruptData, DoesNotFollow) as error:
            # Raft has counted them by now, and would answer for entries that are not here.
            self.stop(f"entries of node {self.leader} do not fit the log: {error}")
            return
        self._keep(data, entries)

    def _keep(self, data: Data, entries: Iterable[Stored]) -> None:
        prepared = self.machine.prepared
        for entry in entries:
            if entry.header.index > self._known:
                kept = _Kept(entry.header.index, prepared(entry.header, body_of(data, entry)))
                self._tail.append(kept)

    def _enter(self, effect: Enter, _data: Data) -> None:
        kind, body = EntryKind.NOOP, b""
        if effect.configuration is not None:
            kind, body = EntryKind(MEMBERSHIP), packed_configuration(effect.configuration)
        end = self.log.replicated.bounds(self.group)[2]
        entry = plain_entry(kind, effect.term, effect.index, end.next_offset, body)
        self.log.append(self.group, entry, admitted=True)
        self._told = effect.index
        header = Header(
            0, len(body), kind, 0, 0, 0, effect.term, effect.index, end.next_offset, 0, 0, 0
        )
        if self.serves:
            self.machine.entered(effect.index)
        else:
            kept = self.machine.prepared(header, memoryview(body))
            self._tail.append(_Kept(effect.index, kept))

    def _committed(self, effect: Committed, _data: Data) -> None:
        if self.serves:
            self.machine.committed(effect.index)
        else:
            while self._tail and self._tail[0].index <= effect.index:
                try:
                    self.machine.apply(self._tail.popleft().entry)
                except NewerFormat as error:
                    self.stop(str(error))
                    return
            if self.raft.leading is not None and self._first and effect.index >= self._first:
                self.serves = True
                self.machine.serve(self.raft.group.term)
        self._reads.applied(effect.index)
        if self.tells_commits and self.raft.leading is not None:
            heartbeat = Heartbeat(self.raft.group.term, effect.index)
            for peer in self.raft.leading.names:
                self._around.post(peer, Letter(self.group, heartbeat))

    def mark(self) -> None:
        """A second is over while this node leads."""
        self.marked, self._mark = self._mark, self.raft.group.outline.last

    def _leads(self, effect: Leads, _data: Data) -> None:
        self._first = effect.first
        self.marked = self._mark = 0
        self.led_us = self._around.now_us()

    def _follows(self, effect: Follows, _data: Data) -> None:
        for outbound in self._outbound.values():
            outbound.close()
        self._outbound.clear()
        self._first = 0
        if effect.leader:
            self._heir = ""
        self._reads.give_up()
        if self.serves:
            self._cease(effect.leader)
        else:
            self.machine.hint()

    def _cease(self, leader: str) -> None:
        """Serve no more."""
        self.serves = False
        self.machine.stop(leader or self._heir)
        self._appended = 0
        if self.log.replicated.bounds(self.group)[2].next_index > self._told + 1:
            # Appended while Raft was stepping down: nobody has heard of it, nor Raft itself.
            self.log.replicated.truncate(self.group, self._told)
        self._keep_uncommitted()

    def _keep_uncommitted(self) -> None:
        """What the machine had proposed, and forgot with its leadership, is in the log's memory."""
        applied = self._known = self.machine.snapshot()[0]
        self._tail.clear()
        end = self.log.replicated.bounds(self.group)[2].next_index
        at = applied + 1
        while at < end:
            found = self.log.replicated.read_raw(
                self.group, at, end_index=end, bytes_max=1 << 20, done=_never
            )
            assert found is not None, "what is not applied is in memory"
            data = b"".join(found.slices)
            self._keep(data, entries_in(data))
            at = found.end_index

    def _read_ready(self, effect: ReadReady, _data: Data) -> None:
        applied = self.raft.group.commit if not self._tail else self._tail[0].index - 1
        self._reads.ready(effect, applied)

    def _refused(self, effect: Refused, _data: Data) -> None:
        if isinstance(effect.asked, ReadAsked):
            answered: Any = effect.asked.token
            answered(False)

    def _install(self, _effect: Install, data: Data) -> None:
        state, _configuration = opened_state(data)
        try:
            self.machine.check(state.body)
        except NewerFormat as error:
            self.stop(str(error))
            return
        self._is_blocked = True
        self._tail.clear()
        snapshot = LogSnapshot(state.end, state.log_start, state.body)
        begin = None if state.begin == state.end else state.begin
        done = partial(self._installed, state)
        self.log.install_snapshot(self.group, snapshot, done, begin=begin)

    def _installed(self, state: State) -> None:
        self._known = state.end.next_index - 1
        self.ahead = runs_in(state.body)
        self.machine.install(self._known, state.log_start, state.body)
        self._reads.applied(self._known)
        self._is_blocked = False
        self.flushed()
        self._go_on()

    def _arm(self, effect: Arm, _data: Data) -> None:
        running = self._timers.pop(effect.timer, None)
        if running is not None:
            running.cancel()
        self._timers[effect.timer] = self._around.after(
            effect.after_us, effect.jitter_us, partial(self._due, effect.timer)
        )

    def _due(self, timer: Timer) -> None:
        self._timers.pop(timer, None)
        if timer is Timer.ELECTION and self._faults:
            self._arm(Arm(Timer.ELECTION, self._around.host.settings.election_us), b"")
            return
        self.tell(Due(timer))
        if timer is Timer.TRANSFER and self._heir:  # it has not taken over
            self._heir = ""
            self.tell_appended()

    def stop(self, why: str) -> None:
        """Take no part in the group any more, and say why."""
        log.error("group %d stops at this node: %s", self.group, why)
        if self.serves:
            self.serves = False
            self.machine.stop("")
        self.stopped = why
        self._around.stopped(self)
        self.machine.hint()  # who leads from now on is not heard here
        self.close()

    _handlers: ClassVar[dict[type, Callable[[Any, Any, Data], None]]] = {
        PersistVote: _persist_vote,
        Send: _send,
        SendEntries: _send_entries,
        Truncate: _truncate,
        Store: _store,
        Enter: _enter,
        Committed: _committed,
        Configured: _configured,
        Leads: _leads,
        Follows: _follows,
        ReadReady: _read_ready,
        Refused: _refused,
        Install: _install,
        Arm: _arm,
    }


def _never(_found: object) -> None:
    raise AssertionError("memory answers at once")
