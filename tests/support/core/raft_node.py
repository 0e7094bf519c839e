"""A node with one Raft group, its log and its disk, as a driver would have them.

It carries out effects, in their order, and hands what is to be sent to `post`. Whoever has the node
decides when the disk flushes, when timers run out, and what becomes of messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hocket.core.raft import events, messages
from hocket.core.raft.events import Timer
from hocket.core.raft.group import Host, Saved
from hocket.core.raft.membership import Configuration
from hocket.core.raft.outline import Run
from hocket.core.raft.pulse import Pulse
from hocket.core.raft.raft import Raft
from hocket.core.raft.settings import RaftSettings

GROUP = 7


@dataclass(frozen=True)
class Entry:
    term: int
    number: int  # no two entries that were ever made have the same
    configuration: Configuration | None = None


@dataclass
class Disk:
    """What a crash leaves. Entries from index 1 on, though Raft may know only the later ones."""

    configuration: Configuration  # in force behind `start`
    term: int = 0
    vote: str = ""
    start: int = 0
    entries: list[Entry] = field(default_factory=list)
    configured: tuple[int, int] = (0, 0)
    committed: int = 0  # what is remembered as committed; 0 if nothing is

    def saved(self) -> Saved:
        start_term = self.entries[self.start - 1].term if self.start else 0
        return Saved(
            self.configuration, self.term, self.vote, self.start, start_term,
            runs_of(self.entries, self.start + 1),
            changes_of(self.entries, self.start + 1),
            self.configured,
            self.committed,
        )  # fmt: skip


def runs_of(entries: list[Entry], first: int) -> tuple[Run, ...]:
    found: list[Run] = []
    for index in range(first, len(entries) + 1):
        term = entries[index - 1].term
        if found and found[-1][1] == term:
            found.pop()
        found.append((index, term))
    return tuple(found)


def changes_of(entries: list[Entry], first: int) -> tuple[tuple[int, Configuration], ...]:
    numbered = enumerate(entries[first - 1 :], first)
    return tuple((at, each.configuration) for at, each in numbered if each.configuration)


@dataclass
class Envelope:
    """A message on its way, with what the driver adds to it."""

    sender: str
    to: str
    message: Any
    entries: list[Entry] = field(default_factory=list)


class Numbers:
    """Numbers that are given once, to entries and lives."""

    def __init__(self) -> None:
        self._last = 0

    def take(self) -> int:
        self._last += 1
        return self._last


class Node:
    def __init__(
        self,
        name: str,
        disk: Disk,
        settings: RaftSettings,
        numbers: Numbers,
        post: Callable[[Envelope], None],
        now_us: int = 0,
    ) -> None:
        self.name = name
        self.disk = disk
        self.entries = list(disk.entries)
        self._numbers = numbers
        self._post = post
        self.host = Host(name, numbers.take(), settings)
        self.raft = Raft(self.host, GROUP, disk.saved())
        self.pulse = Pulse(self.host)
        self.pulse.add(self.raft)
        self.timers: dict[Timer, tuple[int, int]] = {}  # the earliest and the latest time
        self.answers: list[events.ReadReady | events.Refused] = []
        self.carried_out: list[Any] = []
        self._heard: Envelope | None = None
        self._is_dirty = False
        self.step(events.Started(), now_us)

    # --- what happens ----------------------------------------------------------------------------

    def step(self, event: events.Event, now_us: int) -> None:
        self._carry_out(self.raft.step(event, now_us), now_us)

    def heard(self, envelope: Envelope, now_us: int) -> None:
        self._heard = envelope
        sender, message = envelope.sender, envelope.message
        if isinstance(message, messages.Beat):
            self._of_node(self.pulse.heard(sender, message, now_us), now_us)
        elif isinstance(message, messages.BeatAnswer):
            self._of_node(self.pulse.answered(sender, message, now_us), now_us)
        else:
            self.step(events.Heard(sender, message), now_us)
        self._heard = None

    def beat(self, now_us: int) -> None:
        self._of_node(self.pulse.beat(now_us), now_us)

    def append(self, count: int, now_us: int) -> None:
        term = self.raft.group.term
        self.entries += [Entry(term, self._numbers.take()) for _ in range(count)]
        self._is_dirty = True
        self.step(events.Appended(len(self.entries)), now_us)

    def flush(self, now_us: int) -> bool:
        """Whether there was something to flush."""
        if not self._is_dirty and self.flushed == self.last:
            return False
        self._is_dirty = False
        self.disk.entries = list(self.entries)
        self.step(events.Flushed(self.last, self.term_of(self.last)), now_us)
        return True

    def compact(self, now_us: int) -> None:
        """A snapshot of all that is applied, as far as it is durable."""
        group = self.raft.group
        if group.commit > group.outline.flushed or self.disk.start >= group.commit:
            return
        self.disk.start, self.disk.configuration = group.commit, group.configuration
        self.step(events.Compacted(group.commit, group.configuration), now_us)

    # --- what is there ---------------------------------------------------------------------------

    @property
    def last(self) -> int:
        return len(self.entries)

    @property
    def flushed(self) -> int:
        return self.raft.group.outline.flushed

    @property
    def leads(self) -> bool:
        return self.raft.leading is not None

    def term_of(self, index: int) -> int:
        return self.entries[index - 1].term if index else 0

    # --- effects ---------------------------------------------------------------------------------

    def _of_node(self, effects: list[Any], now_us: int) -> None:
        for effect in effects:
            if isinstance(effect, events.OfGroup):
                self._carry_out(effect.effects, now_us)
            else:
                self._post(Envelope(self.name, effect.to, effect.message))

    def _carry_out(self, effects: list[events.Effect], now_us: int) -> None:
        for effect in effects:
            self.carried_out.append(effect)
            self._carry_out_one(effect, now_us)

    def _carry_out_one(self, effect: events.Effect, now_us: int) -> None:
        match effect:
            case events.PersistVote(term, vote):
                self.disk.term, self.disk.vote = term, vote
            case events.Send(to, messages.Snapshot(index=index) as message):
                self._post(Envelope(self.name, to, message, self.entries[:index]))
            case events.Send(to, message):
                self._post(Envelope(self.name, to, message))
            case events.SendEntries():
                self._send_entries(effect)
            case events.Truncate(first):
                del self.entries[first - 1 :]
                self._is_dirty = True
            case events.Store(first, last):
                assert self._heard is not None
                behind = self._heard.message.previous
                assert first == self.last + 1
                self.entries += self._heard.entries[first - behind - 1 : last - behind]
                self._is_dirty = True
            case events.Enter(index, term, configuration):
                assert index == self.last + 1
                self.entries.append(Entry(term, self._numbers.take(), configuration))
                self._is_dirty = True
            case events.Install(index, _, configuration):
                assert self._heard is not None
                self.entries = list(self._heard.entries)
                self.disk.entries = list(self.entries)
                self.disk.start, self.disk.configuration = index, configuration
            case events.Configured(index, term):
                self.disk.configured = index, term
            case events.ReadReady() | events.Refused():
                self.answers.append(effect)
            case events.Arm(timer, after_us, jitter_us):
                self.timers[timer] = (now_us + after_us, now_us + after_us + jitter_us)

    def _send_entries(self, effect: events.SendEntries) -> None:
        first, last = effect.first, effect.last
        sent = self.entries[first - 1 : last]
        runs = tuple((at + first - 1, term) for at, term in runs_of(sent, 1))
        changes = tuple((at + first - 1, change) for at, change in changes_of(sent, 1))
        message = messages.Entries(
            effect.term, first - 1, effect.previous_term, runs, effect.commit, changes
        )
        self._post(Envelope(self.name, effect.to, message, sent))
