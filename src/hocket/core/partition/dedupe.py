"""Which batches of which producers are in a partition's log already, so that a retry is harmless.

Rule 1: no (producer, epoch, sequence) stands twice in one log.
Rule 2: sequences of one producer and epoch have no gaps: 0, 1, 2, … in log order.
Rule 3: a batch is taken for a repetition only if its checksum is that of the batch in the log. Ids
        and sequences stand in every batch, so whoever reads can use them; the records cannot be
        foreseen.

A batch is judged against everything appended, committed or not. Each remembered batch carries the
index of its entry, so that a snapshot can leave out what is not committed yet, and a leader that
steps down can forget what it had not committed (`rewind`).

Only the newest batches of a producer are remembered one by one. That is enough: a producer has no
more in flight than are remembered, and only a batch in flight is sent again. An older sequence
cannot be compared any more, so it is not taken for a repetition either. (Snapshots of earlier
versions hold no checksums. What they remember cannot be compared: there the sequence alone decides,
as it did then, until the producer's next 32 batches have replaced it.)

Damage to the log breaks rule 2: batches of a producer are lost, and later ones are there. Such a
producer is *holed*. Nobody can tell it which of its batches are stored, so it has to go: whoever
uses it opens another one, and hears of what was in flight that its outcome is not known.

An id belongs to the user who was the first to use it while access control was on. Batches do not
name their user, so an entry of its own says it, before the first batch. Ids from before have no
owner yet: like new ones they go to the first who uses them. Who may use an id is judged where
requests are judged; here is only remembered whose it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hocket.model import DUE_PRODUCERS

REMEMBERED = 32  # batches per producer; not less than Limits.in_flight_max
NO_PRODUCER = bytes(16)  # the id of a batch without a producer: it is never a duplicate


class Remembered(NamedTuple):
    sequence: int
    base_offset: int
    entry: int  # the index of its entry in the log
    crc: int | None = None  # of its body; None: an old snapshot did not say
    as_sent: bool = False  # the checksum is of what its producer sent, whatever became of that


class Owner(NamedTuple):
    user: str
    entry: int  # the index of the entry that says so; 0: a snapshot does
    leaving: bool = False  # an entry that forgets the producer is on its way


@dataclass(slots=True)
class ProducerState:
    epoch: int
    next_sequence: int
    last_used_us: int
    recent: deque[Remembered] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    # The first one that is known: not 0 if the producer came back while it was being forgotten.
    first_sequence: int = 0
    former: ProducerState | None = None  # of the epoch before, until a snapshot has this one

    def up_to(self, entry: int) -> ProducerState | None:
        """The state as it was when this entry was the newest; None: the producer was unknown."""
        recent = deque((batch for batch in self.recent if batch.entry <= entry), REMEMBERED)
        next_sequence = self.next_sequence - (len(self.recent) - len(recent))
        if next_sequence == self.first_sequence:
            return self.former and self.former.up_to(entry)
        return ProducerState(self.epoch, next_sequence, self.last_used_us, recent)


@dataclass(slots=True)
class New:
    """The batch is the next one of its producer."""


@dataclass(slots=True)
class Duplicate:
    """The batch is in the log already."""

    base_offset: int
    entry: int  # the batch may be acknowledged once this entry is committed


@dataclass(slots=True)
class Differs:
    """Another batch stands in the log under this sequence, so this one does not."""


@dataclass(slots=True)
class TooOld:
    """The batch of this sequence is not remembered any more: nobody can tell whether it is this."""


@dataclass(slots=True)
class Gap:
    """Batches before this one are missing."""

    expected: int


@dataclass(slots=True)
class Stale:
    """The batch is of an epoch that is fenced."""

    epoch: int  # the one that has taken over


@dataclass(slots=True)
class Forgotten:
    """The producer goes on where it left off, but nothing is known of it here."""


Verdict = New | Duplicate | Differs | TooOld | Gap | Stale | Forgotten
NEW = New()


class Dedupe:
    """The producers of one partition."""

    __slots__ = ("holed", "owners", "producers")

    def __init__(self) -> None:
        self.producers: dict[bytes, ProducerState] = {}
        self.owners: dict[bytes, Owner] = {}
        self.holed: dict[bytes, int] = {}  # producer -> the epoch in which batches are lost

    def judge(
        self,
        producer_id: bytes,
        epoch: int,
        sequence: int,
        crc: int | None = None,
        changeable: bool = False,
    ) -> Verdict:
        """Without a `crc`, the sequence alone decides what is a repetition.

        `changeable`: batches are changed before they are stored. So those that were read back from
        the log cannot be compared with what a producer sends.
        """
        if producer_id == NO_PRODUCER:
            return NEW
        state = self.producers.get(producer_id)
        if state is None:
            return NEW if sequence == 0 else Forgotten()
        if epoch < state.epoch:
            return Stale(state.epoch)
        expected = state.next_sequence if epoch == state.epoch else 0
        if sequence == expected:
            return NEW
        if sequence > expected:
            return Gap(expected)
        for batch in state.recent:
            if batch.sequence == sequence:
                is_comparable = batch.as_sent or not changeable
                if is_comparable and crc is not None and batch.crc not in (None, crc):
                    return Differs()
                return Duplicate(batch.base_offset, batch.entry)
        if self.is_holed(producer_id, epoch):
            return Forgotten()
        return TooOld()

    def is_holed(self, producer_id: bytes, epoch: int) -> bool:
        """Batches of this producer were lost to damage, and later ones were not."""
        return self.holed.get(producer_id) == epoch

    def replayed(
        self, producer_id: bytes, epoch: int, batch: Remembered, now_us: int, *, lossy: bool
    ) -> None:
        """A batch read back from the log; `lossy`: entries before it are lost."""
        is_holed = batch.sequence > self.next_sequence(producer_id, epoch)
        if lossy and is_holed and producer_id != NO_PRODUCER:
            self.holed[producer_id] = epoch
        self.appended(producer_id, epoch, batch, now_us)

    def appended(self, producer_id: bytes, epoch: int, batch: Remembered, now_us: int) -> None:
        if producer_id == NO_PRODUCER:
            return
        state = self.producers.get(producer_id)
        if state is None or state.epoch != epoch:
            state = self.producers[producer_id] = ProducerState(
                epoch, 0, now_us, first_sequence=batch.sequence, former=state
            )
        state.next_sequence = batch.sequence + 1
        state.last_used_us = max(state.last_used_us, now_us)
        state.recent.append(batch)

    def is_full(self, producer_id: bytes, epoch: int, committed: int) -> bool:
        """All remembered batches are uncommitted. Neither `rewind` nor `snapshot` could leave one
        out that is forgotten, so there must not be one more."""
        state = self.producers.get(producer_id)
        if state is None or state.epoch != epoch or len(state.recent) < REMEMBERED:
            return False
        return state.recent[0].entry > committed

    def next_sequence(self, producer_id: bytes, epoch: int) -> int:
        state = self.producers.get(producer_id)
        return 0 if state is None or state.epoch != epoch else state.next_sequence

    def epoch_of(self, producer_id: bytes) -> int:
        state = self.producers.get(producer_id)
        return 0 if state is None else state.epoch

    def owner_of(self, producer_id: bytes) -> str:
        """The user whom the id belongs to; empty: nobody yet."""
        owner = self.owners.get(producer_id)
        return "" if owner is None else owner.user

    def lacks_owner(self, producer_id: bytes) -> bool:
        """An entry that says whose the id is must come before its next batch."""
        owner = self.owners.get(producer_id)
        return producer_id != NO_PRODUCER and (owner is None or owner.leaving)

    def own(self, producer_id: bytes, user: str, entry: int) -> None:
        """Entry `entry` says that the id is this user's; it was appended, committed or replayed."""
        known = self.owners.get(producer_id)
        if known is None or known.entry < entry:
            self.owners[producer_id] = Owner(user, entry)

    def has_idle(self, before_us: int) -> bool:
        return bool(self.idle(before_us))

    def idle(self, before_us: int) -> list[bytes]:
        """The producers that were not heard of since `before_us`.

        Those of delayed messages are left out. However long the broker was down, what had gone
        before must be recognised: nobody else knows that it has.
        """
        return [
            each
            for each, state in self.producers.items()
            if state.last_used_us < before_us and not each.startswith(DUE_PRODUCERS)
        ]

    def forgetting(self, producer_ids: Iterable[bytes]) -> None:
        """An entry that forgets these producers is on its way."""
        for producer_id in producer_ids:
            owner = self.owners.get(producer_id)
            if owner is not None:
                self.owners[producer_id] = owner._replace(leaving=True)

    def forget(self, producer_ids: Iterable[bytes], entry: int) -> None:
        """Forget these producers, except for batches behind this entry.

        A producer with such a batch came back while the entry that forgets it was on its way.
        """
        for producer_id in producer_ids:
            owner = self.owners.get(producer_id)
            if owner is not None and owner.entry <= entry:
                del self.owners[producer_id]
            state = self.producers.get(producer_id)
            if state is None:
                continue
            state.former = None
            while state.recent and state.recent[0].entry <= entry:
                state.recent.popleft()
            if state.recent:
                state.first_sequence = state.recent[0].sequence
            else:
                del self.producers[producer_id]
                self.holed.pop(producer_id, None)

    def rewind(self, entry: int) -> None:
        """Forget every batch that stands behind this entry: it was never committed."""
        for producer_id, state in list(self.producers.items()):
            known = state.up_to(entry)
            if known is None:
                del self.producers[producer_id]
            else:
                self.producers[producer_id] = known
        self.owners = {
            producer_id: owner._replace(leaving=False)
            for producer_id, owner in self.owners.items()
            if owner.entry <= entry
        }

    def snapshot(self, entry: int) -> dict[str, list[object]]:
        """What is known from the entries up to this one, which is committed."""
        taken: dict[str, list[object]] = {}
        for producer_id, state in self.producers.items():
            known = state.up_to(entry)
            if known is not None:
                recent = [list(batch[:-1]) for batch in known.recent]  # but `as_sent`
                used = known.last_used_us
                taken[producer_id.hex()] = [known.epoch, known.next_sequence, used, recent]
                if known.epoch == state.epoch:
                    state.former = None  # nobody will go back before this epoch
        return taken

    def snapshot_owners(self) -> dict[str, str]:
        """Whose the ids are; of entries on their way, too. Replay then says the same once more,
        and should such an entry be lost, its user has used the id all the same."""
        return {producer_id.hex(): owner.user for producer_id, owner in self.owners.items()}

    def restore_owners(self, taken: dict[str, str]) -> None:
        self.owners = {bytes.fromhex(each): Owner(user, 0) for each, user in taken.items()}

    def restore(self, taken: dict[str, list[object]]) -> None:
        for producer_id, (epoch, next_sequence, last_used_us, recent) in taken.items():
            state = ProducerState(int(epoch), int(next_sequence), int(last_used_us))  # type: ignore[call-overload]
            state.recent.extend(Remembered(*batch) for batch in recent)  # type: ignore[attr-defined]
            self.producers[bytes.fromhex(producer_id)] = state
