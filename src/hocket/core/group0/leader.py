"""The root's side of group 0: whoever follows is told every committed entry, in order.

Rule 1: only committed entries are told.
Rule 2: a learner whose last entry is not in our log, or lies before the tail that we have in
        memory, is sent a snapshot. What it has beyond that does not matter: it is replaced.
Rule 3: what is in flight to a learner is bounded. The next is sent when it says what is durable.
Rule 4: a root that has lost entries to damage has another state than those who follow, though its
        log ends where theirs does. So nobody fits: all are sent a snapshot, behind the first entry
        that it commits from then on (`UNKNOWN`).
Rule 5: what is not acknowledged is sent again, from the last acknowledgement on. A learner that is
        silent is forgotten, and asks again when it is back.

A learner is known by its node; a newer life of it, or a newer question, replaces the older one.
The epoch of all this is the life of the root: a root that has begun again knows no learner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hocket.core.group0.events import (
    Committed,
    Effect,
    Event,
    Heard,
    Send,
    SnapshotIs,
    TakeSnapshot,
    Tick,
)
from hocket.core.group0.messages import (
    Entries,
    Entry,
    Follow,
    FollowAgain,
    Followed,
    NotFollowed,
    SnapshotPiece,
)
from hocket.core.group0.settings import Group0Settings
from hocket.core.ring.contact import Contact

UNKNOWN = -1  # the term of an entry that nobody has


@dataclass(slots=True)
class Snapshot:
    index: int
    term: int
    data: bytes = field(repr=False)


@dataclass(slots=True, eq=False)
class Stream:
    """What one learner has been told, and what it has said to be durable."""

    to: Contact
    request: int
    acked: int  # the last entry that is durable there
    next: int  # the next entry to send
    runs: deque[int] = field(default_factory=deque)  # the last entry of each message in flight
    snapshot: Snapshot | None = None  # it is being sent; else entries are
    waits: bool = False  # for a snapshot to be taken
    sent: int = 0  # bytes of the snapshot that were sent, since some were last sent again ...
    reached: int = 0  # ... and at all ...
    taken: int = 0  # ... and that have come
    told: int = 0  # of them, as it said last: this word may be late, or about a former snapshot
    silence: int = 0  # ticks since it was heard
    idle: int = 0  # ticks since something was sent to it
    stuck: int = 0  # ticks since it has made progress with what is in flight


class Leader:
    """`before` is the (index, term) of the entry before the first of `tail`, which is committed."""

    def __init__(
        self,
        cluster: str,
        before: tuple[int, int],
        tail: Sequence[Entry] = (),
        settings: Group0Settings | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings or Group0Settings()
        self._before = before
        self._tail: deque[Entry] = deque()
        self._tail_bytes = 0
        self._streams: dict[str, Stream] = {}  # by node
        self._add(tail)

    @property
    def end(self) -> int:
        """The last committed entry."""
        return self._tail[-1].index if self._tail else self._before[0]

    @property
    def learners(self) -> dict[str, int]:
        """Who follows, and up to where everything is durable there."""
        return {node: stream.acked for node, stream in self._streams.items()}

    def step(self, event: Event) -> list[Effect]:
        return self._handlers[type(event)](self, event)

    # --- the log ---------------------------------------------------------------------------------

    def _add(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            assert entry.index == self.end + 1, (entry.index, self.end)
            self._tail.append(entry)
            self._tail_bytes += len(entry.body)
        settings = self._settings
        while (
            len(self._tail) > settings.tail_entries_max
            or self._tail_bytes > settings.tail_bytes_max
        ):
            gone = self._tail.popleft()
            self._tail_bytes -= len(gone.body)
            self._before = gone.index, gone.term

    def _committed(self, event: Committed) -> list[Effect]:
        self._add(event.entries)
        if any(stream.waits for stream in self._streams.values()):
            return [*self._take_snapshot(), *self._pump_all()]
        return self._pump_all()

    def _pump_all(self) -> list[Effect]:
        return [effect for stream in self._streams.values() for effect in self._pump(stream)]

    def _term_of(self, index: int) -> int | None:
        """None: it is not known any more."""
        if index == self._before[0]:
            return self._before[1]
        at = index - self._before[0] - 1
        return self._tail[at].term if 0 <= at < len(self._tail) else None

    # --- what learners say -----------------------------------------------------------------------

    def _heard(self, event: Heard) -> list[Effect]:
        if isinstance(event.message, Follow):
            return self._follow(event.sender, event.message)
        assert isinstance(event.message, Followed)
        return self._followed(event.sender, event.message)

    def _follow(self, sender: Contact, message: Follow) -> list[Effect]:
        known = self._streams.get(sender.node)
        place = (sender.incarnation, message.request)
        if known is not None and place <= (known.to.incarnation, known.request):
            return []  # it came late, or twice
        wrong = self._wrong_with(message)
        if wrong:
            self._streams.pop(sender.node, None)
            return [Send(sender, NotFollowed(message.request, wrong))]
        stream = Stream(sender, message.request, message.index, message.index + 1)
        self._streams[sender.node] = stream
        if self._term_of(message.index) != message.term:
            stream.waits = True
            return self._take_snapshot()
        return self._pump(stream) or self._say_hello(stream)

    def _wrong_with(self, message: Follow) -> str:
        if message.cluster != self._cluster:
            return (
                f"it belongs to the cluster {message.cluster}, and this is {self._cluster}; give "
                "it another data directory"
            )
        if message.index > self.end:
            return (
                f"it has entry {message.index} of the metadata, and the root's log ends at "
                f"{self.end}: the root has lost what it had committed. Put the newest copy of the "
                "root's data directory back"
            )
        return ""

    def _followed(self, sender: Contact, message: Followed) -> list[Effect]:
        stream = self._streams.get(sender.node)
        if stream is None:
            return [Send(sender, FollowAgain(message.request))]
        if (sender.incarnation, message.request) != (stream.to.incarnation, stream.request):
            return []
        stream.silence = 0
        if stream.snapshot is not None:
            self._took(stream, stream.snapshot, message)
        elif not stream.waits and stream.acked < message.index < stream.next:
            stream.acked = message.index
            stream.stuck = 0
            while stream.runs and stream.runs[0] <= message.index:
                stream.runs.popleft()
        return self._pump(stream)

    def _took(self, stream: Stream, snapshot: Snapshot, message: Followed) -> None:
        place = (snapshot.index, snapshot.term)
        # The same index with another term is what the snapshot is to replace.
        if message.index > snapshot.index or (message.index, message.term) == place:
            stream.snapshot = None
            stream.acked, stream.next = message.index, message.index + 1
            stream.runs.clear()
            stream.stuck = 0
            return
        stream.told = message.offset
        if stream.taken < message.offset <= stream.reached:
            stream.taken = message.offset
            stream.sent = max(stream.sent, message.offset)
            stream.stuck = 0

    # --- what learners are told ------------------------------------------------------------------

    def _pump(self, stream: Stream) -> list[Effect]:
        """Send what there is, as far as may be in flight."""
        if stream.waits:
            return []
        if stream.snapshot is not None:
            return self._pump_snapshot(stream, stream.snapshot)
        if stream.next <= self._before[0]:
            stream.waits = True
            return self._take_snapshot()
        effects: list[Effect] = []
        while stream.next <= self.end and len(stream.runs) < self._settings.runs_in_flight_max:
            effects.append(self._entries(stream, self._run(stream.next)))
            stream.runs.append(stream.next - 1)
        return effects

    def _run(self, index: int) -> tuple[Entry, ...]:
        """Entries for one message, from this one on."""
        found: list[Entry] = []
        room = self._settings.run_bytes_max
        first = index - self._before[0] - 1
        for at in range(first, min(len(self._tail), first + self._settings.run_entries_max)):
            entry = self._tail[at]
            room -= len(entry.body)
            if room < 0 and found:
                break
            found.append(entry)
        return tuple(found)

    def _entries(self, stream: Stream, entries: tuple[Entry, ...]) -> Send:
        previous = stream.next - 1
        term = self._term_of(previous)
        assert term is not None
        stream.next += len(entries)
        stream.idle = 0
        return Send(stream.to, Entries(stream.request, previous, term, entries, self.end))

    def _say_hello(self, stream: Stream) -> list[Effect]:
        return [self._entries(stream, ())]

    def _pump_snapshot(self, stream: Stream, snapshot: Snapshot) -> list[Effect]:
        effects: list[Effect] = []
        size, total = self._settings.piece_bytes, len(snapshot.data)
        window = size * self._settings.runs_in_flight_max
        while stream.sent < total and stream.sent < stream.taken + window:
            data = snapshot.data[stream.sent : stream.sent + size]
            piece = SnapshotPiece(
                stream.request, snapshot.index, snapshot.term, stream.sent, total, data, self.end
            )
            stream.sent += len(data)
            stream.reached = max(stream.reached, stream.sent)
            stream.idle = 0
            effects.append(Send(stream.to, piece))
        return effects

    def _take_snapshot(self) -> list[Effect]:
        """None if it would be behind an entry that is not known: with the next there will be."""
        return [] if self._term_of(self.end) == UNKNOWN else [TakeSnapshot()]

    def _snapshot_is(self, event: SnapshotIs) -> list[Effect]:
        term = self._term_of(self.end)
        assert term is not None
        assert event.data
        snapshot = Snapshot(self.end, term, event.data)
        effects: list[Effect] = []
        for stream in self._streams.values():
            if stream.waits:
                stream.waits = False
                stream.snapshot = snapshot
                stream.sent = stream.reached = stream.taken = stream.told = 0
                effects += self._pump(stream)
        return effects

    # --- time ------------------------------------------------------------------------------------

    def _tick(self, _event: Tick) -> list[Effect]:
        settings = self._settings
        effects: list[Effect] = []
        for node, stream in list(self._streams.items()):
            stream.silence += 1
            stream.idle += 1
            stream.stuck += 1
            if stream.silence > settings.silent_ticks:
                del self._streams[node]
            elif stream.stuck >= settings.resend_ticks and self._is_in_flight(stream):
                effects += self._send_again(stream)
            elif stream.idle >= settings.heartbeat_ticks and self._has_entries(stream):
                effects += self._say_hello(stream)
        return effects

    @staticmethod
    def _has_entries(stream: Stream) -> bool:
        """Whether it is being told entries, and no snapshot."""
        return stream.snapshot is None and not stream.waits

    @staticmethod
    def _is_in_flight(stream: Stream) -> bool:
        return stream.snapshot is not None or stream.acked < stream.next - 1

    def _send_again(self, stream: Stream) -> list[Effect]:
        stream.stuck = 0
        snapshot = stream.snapshot
        if snapshot is None:
            stream.next = stream.acked + 1
            stream.runs.clear()
        elif stream.taken < len(snapshot.data):
            stream.sent = stream.taken = min(stream.taken, stream.told)
        else:  # it has come, and is being installed; the last piece asks whether it is
            stream.sent = stream.taken - (len(snapshot.data) - 1) % self._settings.piece_bytes - 1
            stream.taken = stream.sent
        return self._pump(stream)

    _handlers: ClassVar[dict[type, Callable[[Any, Any], list[Effect]]]] = {
        Heard: _heard,
        Committed: _committed,
        SnapshotIs: _snapshot_is,
        Tick: _tick,
    }
