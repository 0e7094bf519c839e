"""What this consumer knows of one partition of a shared index.

A message is known by its offset and its delivery count. The count tells a message whose lease has
ended from the same message delivered again: what is said about the former must not settle the
latter. (A broker that was killed may have forgotten the last counts. What it delivers under a count
that the application has in its hands already is not handed out twice: see `handed_out`.) A
`SharedProgress` is good until the index is put elsewhere; then another one replaces it, and what is
said about its messages comes to nothing. Once the subscription has ended nothing is awake any more,
so that whoever says something is told: `arouse` raises.

Any thread adds notes, without a lock: the list of notes is never replaced, whoever says something
appends FIRST and looks at `awake` AFTERWARDS, and whoever gathers clears `awake` FIRST and looks at
the list AFTERWARDS (`consuming.progress` and `producing.gathering` work alike).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from itertools import groupby, islice, repeat
from typing import Any

from hocket.client_core.consuming.message import Message, count_of, offset_of
from hocket.client_core.sharing.ranges import Run
from hocket.client_core.sharing.verdict import ACK, Note, Verdict
from hocket.errors import CorruptData
from hocket.wire.batch import Batch, parse
from hocket.wire.entry import Header

NOTES_MAX = 3000  # how many notes may gather before they are told
LAPSED_MAX = 20_000  # as many as can be leased to one consumer at a time


# A verdict, the offsets it is about, and the hashes of their keys where these matter.
Judged = tuple[Verdict, list[int], Sequence[int]]


class Source:
    """A batch where it lies in its payload; opened when it is first needed."""

    __slots__ = ("_batch", "_payload", "_position", "header")

    def __init__(self, payload: memoryview, position: int, header: Header) -> None:
        self.header = header
        self._payload = payload
        self._position = position
        self._batch: Batch | None = None

    def batch(self) -> Batch:
        """Raises CorruptData if it is damaged."""
        if self._batch is None:
            self._batch = parse(self._payload, self._position)
        return self._batch


class Portion:
    """The messages of one batch that one delivery has leased and that were not handed out yet."""

    __slots__ = ("asked_us", "number", "renewed_us", "runs", "size", "source")

    def __init__(
        self, source: Source, size: int, runs: list[Run], number: int, now_us: int
    ) -> None:
        self.source = source
        self.size = size  # credit to give back in the end; 0 if the batch was sent before
        self.runs = runs
        self.number = number  # the delivery's, counted from 1
        # When its leases began, or a renewal was sent that the broker has granted: by our clock.
        self.renewed_us = now_us
        self.asked_us = now_us  # when a renewal was last sent

    def offsets(self) -> list[int]:
        return [offset for start, end, _ in self.runs for offset in range(start, end)]

    def key_hash(self, offset: int) -> int:
        """0 for no key, and if the batch is damaged: that is found when it is handed out."""
        try:
            batch = self.source.batch()
        except CorruptData:
            return 0
        return 0 if batch.key_hashes is None else batch.key_hashes[offset - batch.base_offset]


class SharedProgress:
    __slots__ = (
        "_arouse", "_extended", "_forgotten_end", "_lapsed", "_note", "_until", "awake", "before",
        "came_end", "held", "index", "keyed",
        "last", "lease_us", "notes", "notes_max", "partition", "queue", "refused", "returned",
        "urgent",
    )  # fmt: skip

    def __init__(
        self, partition: int, *, keyed: bool, arouse: Callable[[SharedProgress], None]
    ) -> None:
        self.partition = partition
        self.index = ""  # what cannot be read needs no way out: it is set aside
        self.keyed = keyed  # messages of one key keep their order
        self.lease_us = 0
        self.queue: deque[Portion] = deque()
        self.last: Source | None = None  # the last batch that came: the next Lease may go on in it
        self.held: dict[int, int] = {}  # offset -> deliveries: handed out, and not settled
        self.refused: list[int] = []  # settled after they had lapsed, and not reported yet
        # offset -> key hash: nacked or released, and not answered; until then its key waits
        self.returned: dict[int, int] = {}
        self.before: set[int] = set()  # what was handed out over earlier links: see `reopened`
        self.came_end = 0  # behind the last message that came, over whichever link
        self.notes: list[Message | Note] = []
        self.notes_max = NOTES_MAX
        self.awake = False
        self.urgent = False  # something was said that cannot wait
        self._note: Callable[[Message | Note], None] = self.notes.append
        self._arouse = arouse
        self._lapsed: dict[tuple[int, int], None] = {}  # handed out, and the lease has ended
        self._forgotten_end = 0  # behind the last message that `_lapsed` had no room for any more
        self._extended: dict[int, int] = {}  # offset -> when its lease ends, if it was extended
        self._until: dict[int, int] = {}  # offset -> when its lease ends; some are held no more

    # --- what is said, by any thread -------------------------------------------------------------

    def ack(self, message: Message) -> None:
        self._note(message)
        if not self.awake or len(self.notes) >= self.notes_max:
            self._arouse(self)

    def say(self, note: Note) -> None:
        self._note(note)
        action = note.verdict.action
        if action == "extend" or (action == "nack" and self.keyed):
            self.urgent = True  # a lease may be about to end, or the next of its key to be read
        if self.urgent or not self.awake or len(self.notes) >= self.notes_max:
            self._arouse(self)

    @property
    def hurries(self) -> bool:
        return self.urgent or len(self.notes) >= self.notes_max

    # --- gathering it, under the lock ------------------------------------------------------------

    def gather(self, now_us: int) -> list[Judged]:
        """What was said, in order.

        Of several verdicts on a message the first one stands. A message that is not held is left
        out: it was settled before, or its lease has ended (then `refused` names it).
        """
        self.awake = self.urgent = False
        said = self.notes[:]
        if not said:
            return []
        del self.notes[: len(said)]
        if Note not in set(map(type, said)):
            return [self._acked(said)]
        found: list[Judged] = []
        for is_note, notes in groupby(said, _is_note):
            if is_note:
                found += (self._judged(note, now_us) for note in notes)  # type: ignore[arg-type]
            else:
                found.append(self._acked(list(notes)))
        return found

    def _acked(self, messages: list[Any]) -> Judged:
        return ACK, self._settled([*map(offset_of, messages)], [*map(count_of, messages)]), ()

    def _judged(self, note: Note, now_us: int) -> Judged:
        verdict, start, end, deliveries, hashes = note
        if verdict.action == "extend":
            offsets = [each for each in range(start, end) if self._is_held(each, deliveries)]
            until_us = now_us + (verdict.duration_us or self.lease_us)
            self._extended.update(dict.fromkeys(offsets, until_us))
            return verdict, offsets, ()
        offsets = self._settled(list(range(start, end)), [deliveries] * (end - start))
        if verdict.action != "nack" or not self.keyed:
            return verdict, offsets, ()
        return verdict, offsets, [hashes[each - start] for each in offsets]

    def _settled(self, offsets: list[int], counts: list[int]) -> list[int]:
        """Which of these messages were held; from now on they are not."""
        held = self.held
        taken = list(map(held.pop, offsets, repeat(0)))
        if taken == counts:
            return offsets
        held.update((offset, count) for offset, count in zip(offsets, taken, strict=True) if count)
        found = []
        for offset, count in zip(offsets, counts, strict=True):
            if self._is_held(offset, count):
                del held[offset]
                found.append(offset)
        return found

    def _is_held(self, offset: int, count: int) -> bool:
        if self.held.get(offset) == count:
            return True
        if (offset, count) in self._lapsed:
            del self._lapsed[offset, count]
            self.refused.append(offset)
        elif offset < self._forgotten_end:
            # Its lease has ended, or it was settled before: nobody knows any more. An ack that is
            # reported although it held costs a second look, one that is not reported a message.
            self.refused.append(offset)
        return False

    # --- leases ----------------------------------------------------------------------------------

    def hand_out(self, offsets: Sequence[int], deliveries: Iterable[int], leased_us: int) -> None:
        self.held.update(zip(offsets, deliveries, strict=False))  # counts may never end
        self.renewed(offsets, leased_us)

    def renewed(self, offsets: Collection[int], now_us: int) -> None:
        if len(self._until) > 2 * len(self.held) + NOTES_MAX:
            self._until = {each: self._until[each] for each in self.held if each in self._until}
        until = self._until
        until_us = now_us + self.lease_us
        if until.keys().isdisjoint(offsets):  # as with all that is handed out for the first time
            until.update(dict.fromkeys(offsets, until_us))
        else:
            until.update((each, max(until_us, until.get(each, 0))) for each in offsets)

    def held_still(self, at_us: int) -> set[int]:
        """The held messages whose lease had not ended at `at_us`, by our own clock."""
        until, extended = self._until, self._extended
        return {
            each
            for each in self.held
            if at_us < until.get(each, 0) or at_us < extended.get(each, 0)
        }

    def waiting(self) -> int:
        """How many messages wait in the queue."""
        return sum(end - start for portion in self.queue for start, end, _ in portion.runs)

    def delivered_again(self, offsets: Iterable[int]) -> None:
        """These messages came again, so our earlier leases of them have ended."""
        self._lapse([each for each in offsets if each in self.held])

    def reopened(self, settled: Iterable[int]) -> None:
        """A link comes up. `settled` was settled here, and the broker has not answered for it.

        A broker that was killed may not know how often it has delivered these messages, and deliver
        them again under the same count.
        """
        self.before = {*self.held, *(offset for offset, _ in self._lapsed), *settled}

    def repeated(self, runs: Sequence[Run], waiting: Callable[[], set[int]]) -> set[int]:
        """Of messages that have just come, those that came here before.

        A delivery in which a message was not handed out does not count. So a message whose lease
        has ended here, while this process stood still, comes again under the same count, and
        `waiting` still has it. Messages come in order but for such ones: few have to be looked for.
        """
        found = {n for start, end, count in runs if count > 1 for n in range(start, end)}
        if any(start < self.came_end for start, _, _ in runs):
            here = waiting()
            here.update(self.held)
            for start, end, _ in runs:
                found |= here.intersection(range(start, end))
        self.came_end = max(self.came_end, runs[-1][1] if runs else 0)
        if self.before:
            for start, end, _ in runs:
                found |= self.before.intersection(range(start, end))
        return found

    def handed_out(self, runs: Sequence[Run], offsets: Container[int]) -> dict[int, int]:
        """Of these messages, those that the application has under the very same count.

        They are leased to this consumer once more, and the application can settle what it has. To
        hand them out again would be to deliver what may be acked, and committed, before it is read.
        """
        return {
            each: count
            for start, end, count in runs
            for each in range(start, end)
            if each in offsets and (self.held.get(each) == count or (each, count) in self._lapsed)
        }

    def hold_on(self, offsets: dict[int, int], now_us: int) -> None:
        """These are ours again, for a whole lease."""
        for offset, count in offsets.items():
            self.held[offset] = count
            self._lapsed.pop((offset, count), None)
        self.renewed(offsets, now_us)

    def give_back(self, offset: int, hash_: int) -> None:
        """It was nacked or released: where order matters, nothing of its key may overtake it."""
        if self.keyed and hash_:
            self.returned[offset] = hash_

    def forget_lapsed(self, now_us: int) -> None:
        """Give up held messages whose lease ended a whole lease ago, by our own clock.

        The broker knows exactly, but it says nothing about messages that we say nothing about.
        """
        self._lapse(sorted(set(self.held) - self.held_still(now_us - self.lease_us)))
        self._extended = {
            each: until for each, until in self._extended.items() if each in self.held
        }

    def _lapse(self, offsets: list[int]) -> None:
        for offset in offsets:
            self._lapsed[offset, self.held.pop(offset)] = None
        excess = len(self._lapsed) - LAPSED_MAX
        for lapsed in list(islice(self._lapsed, max(0, excess))):
            del self._lapsed[lapsed]
            self._forgotten_end = max(self._forgotten_end, lapsed[0] + 1)

    def first_returned(self) -> dict[int, int]:
        """By key hash, the first offset that was given back: nothing behind it is handed out."""
        found: dict[int, int] = {}
        for offset, hash_ in self.returned.items():
            found[hash_] = min(offset, found.get(hash_, offset))
        return found

    def link_lost(self) -> None:
        """The next link sends batches anew, so none can be gone on in."""
        self.last = None

    def void(self) -> None:
        """Another one replaces it: what is said about its messages comes to nothing.

        It stays not awake, so that each of these calls asks whether the subscription is still open.
        """
        self._note = _ignore
        self.awake = self.urgent = False
        self.notes.clear()
        self.held.clear()


def _is_note(said: object) -> bool:
    return type(said) is Note


def _ignore(_said: object) -> None:
    pass
