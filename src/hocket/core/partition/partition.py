"""One partition: it gives records their offsets, and decides what is committed and who hears it.

Rule 1: offsets are dense; entry i+1 begins where entry i ends.
Rule 2: nothing is acknowledged or shown to a consumer before its entry is committed.
Rule 3: the answer to a request follows from the log and the request alone.

With one replica an entry is committed once it is durable here (`LogDurable`); with `durability`
"memory" as soon as it is appended. Everything that changes the partition is an entry of its log,
cursors and the log start included, so that replay gives the state at any entry again.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hocket.core.origin import Origin
from hocket.core.partition.cursors import Changes, Cursor, Cursors
from hocket.core.partition.dedupe import (
    REMEMBERED,
    Dedupe,
    Differs,
    Duplicate,
    Forgotten,
    Gap,
    Remembered,
    Stale,
    TooOld,
)
from hocket.core.partition.events import (
    BATCH,
    CONTROL,
    CURSOR,
    STAGE,
    Acked,
    Append,
    ApplyStaged,
    AttachIndex,
    ChangeShare,
    CommitIndex,
    DeleteIndex,
    DropStages,
    Effect,
    EndMoved,
    Event,
    ExpireProducers,
    ForgetApplied,
    IndexFenced,
    IndexMoved,
    LogDurable,
    LogStartMoved,
    Lost,
    MoveLogStart,
    Produce,
    Refused,
    Replayed,
    SeekIndex,
    ShareChanged,
    SkipIndex,
    StageAcked,
    StageBatch,
    Staged,
    TransactionApplied,
    TurnEnded,
)
from hocket.core.partition.stages import Refusal, Stage, Stages, by_decider
from hocket.core.sharing.state import ShareChange, ShareState

FORGOTTEN_AT_ONCE = 10_000  # producers that one entry forgets, so that it stays small


@dataclass(slots=True)
class _Pending:
    """An entry that is appended and not yet committed, and what happens when it is committed."""

    index: int
    end_offset: int
    acks: list[tuple[Origin, int, int]] = field(default_factory=list)  # origin, sequence, offset
    changes: Changes | None = None
    moves: list[IndexMoved] = field(default_factory=list)
    shares: list[ShareChanged] = field(default_factory=list)
    control: dict[str, Any] | None = None
    staged: Stage | None = None  # the stage that the entry adds a batch to ...
    stagers: list[tuple[Origin, int]] = field(default_factory=list)  # ... and who waits for that
    applied: Stage | None = None  # the stage of which the entry publishes the next batch
    on_disk: bool = False  # the entry waits for the disk, whatever the topic's durability is


class Partition:
    """State and rules of one partition. `start <= high_watermark <= end`."""

    def __init__(self, topic: str, number: int, *, durability: str = "quorum") -> None:
        self.topic = topic
        self.number = number
        self.durability = durability
        self.start = 0  # the oldest offset that may be read
        self._next_start = 0  # ... and will be, with everything appended
        self.high_watermark = 0  # the end of what is committed: what consumers may see
        self.end = 0  # the end of what is appended
        self.last_index = 0
        self.applied_index = 0
        self.dedupe = Dedupe()
        self.cursors = Cursors()
        self.stages = Stages()
        self._pending: deque[_Pending] = deque()
        self.shares: dict[str, ShareState] = {}  # as committed
        self._changes: Changes = {}
        self._moves: list[IndexMoved] = []
        self._share_changes: dict[str, ShareChanged] = {}
        self._lossy = False  # entries were lost since the snapshot that was restored

    def step(self, event: Event) -> list[Effect]:
        return self._handlers[type(event)](self, event)

    # --- producing ---------------------------------------------------------------------------

    def _produce(self, event: Produce) -> list[Effect]:
        batch, origin = event.batch, event.origin
        verdict = self.dedupe.judge(
            batch.producer_id, batch.epoch, batch.sequence, batch.crc, batch.changeable
        )
        if isinstance(verdict, Duplicate):
            return self._again(origin, batch.sequence, verdict)
        if isinstance(verdict, Differs):
            return [Refused(origin, batch.sequence, "producerConflict",
                            f"another batch is stored as batch {batch.sequence} of this producer; "
                            "open a new one, and send it there")]  # fmt: skip
        if isinstance(verdict, TooOld):
            return [Refused(origin, batch.sequence, "fenced",
                            f"batch {batch.sequence} of this producer is older than the "
                            f"{REMEMBERED} that are remembered; open a new one")]  # fmt: skip
        if isinstance(verdict, Gap):
            return [Refused(origin, batch.sequence, "sequenceGap",
                            f"batch {batch.sequence} came where {verdict.expected} was expected; "
                            "resend from that one")]  # fmt: skip
        if isinstance(verdict, Stale):
            return [Refused(origin, batch.sequence, "fenced",
                            f"epoch {verdict.epoch} of this producer has taken over from "
                            f"{batch.epoch}")]  # fmt: skip
        if event.refused is not None and batch.sequence > event.refused:
            return [Refused(origin, batch.sequence, "sequenceGap",
                            f"batch {event.refused}, which was refused, must come before batch "
                            f"{batch.sequence}; resend from that one")]  # fmt: skip
        if isinstance(verdict, Forgotten):
            return [Refused(origin, batch.sequence, "unknownProducer",
                            f"nothing is known here of this producer, which is at batch "
                            f"{batch.sequence}; open a new one")]  # fmt: skip
        if batch.producer_id in self.stages.producers:
            return [Refused(origin, batch.sequence, "producerConflict",
                            "this producer stages for a transaction; open another one, and send "
                            "the batch there")]  # fmt: skip
        if self.dedupe.is_full(batch.producer_id, batch.epoch, self.applied_index):
            return [Refused(origin, batch.sequence, "busy",
                            f"{REMEMBERED} batches of this producer wait to be acknowledged, and "
                            f"no more may; resend {batch.sequence} later")]  # fmt: skip
        effects: list[Effect] = []
        if event.user and self.dedupe.lacks_owner(batch.producer_id):
            self.dedupe.own(batch.producer_id, event.user, self.last_index + 1)
            effects += self._control({"owners": {batch.producer_id.hex(): event.user}})
        index, base = self._next_entry(batch.count)
        self.dedupe.appended(
            batch.producer_id,
            batch.epoch,
            Remembered(batch.sequence, base, index, batch.crc, batch.changeable),
            event.now_us,
        )
        pending = _Pending(index, self.end, [(origin, batch.sequence, base)])
        return effects + self._appended(pending, Append(BATCH, index, base, batch))

    @property
    def is_settled(self) -> bool:
        """Nothing waits to be appended to the log, or to be committed."""
        return not (self._pending or self._moves or self._share_changes)

    @property
    def awaits_disk(self) -> bool:
        """Somebody waits until what is appended is durable."""
        return bool(self._pending)

    def waiting(self) -> list[Origin]:
        """The origins of all batches that are appended and not yet committed."""
        return [origin for entry in self._pending for origin, _, _ in entry.acks]

    def waiting_for_indexes(self) -> list[Origin]:
        """The origins of all changes of indexes that are not committed yet."""
        moves = [move for entry in self._pending for move in entry.moves] + self._moves
        return [move.origin for move in moves]

    def _again(self, origin: Origin, sequence: int, known: Duplicate) -> list[Effect]:
        pending = self._pending_at(known.entry)
        if pending is None:
            return [Acked(origin, sequence, [known.base_offset])]
        pending.acks.append((origin, sequence, known.base_offset))
        return []

    def _pending_at(self, index: int) -> _Pending | None:
        return next((entry for entry in self._pending if entry.index == index), None)

    # --- transactions ------------------------------------------------------------------------

    def _stage(self, event: StageBatch) -> list[Effect]:
        sequence = event.batch.sequence
        verdict = self.stages.judge(event.key, sequence, event.crc)
        if isinstance(verdict, Refusal):
            return [Refused(event.origin, sequence, *verdict)]
        if verdict is not None:
            return self._staged_again(event.origin, sequence, verdict)
        index, base = self._next_entry(0)
        staged = Staged(index, base, event.size, event.batch.count, event.crc)
        stage = self.stages.add(event.key, staged, event.now_us)
        pending = _Pending(
            index, self.end, staged=stage, stagers=[(event.origin, sequence)], on_disk=True
        )
        append = Append(STAGE, index, base, event.batch, stage=event.key)
        return [*self._appended(pending, append), self.stages.moved()]

    def _staged_again(self, origin: Origin, sequence: int, known: Staged) -> list[Effect]:
        pending = self._pending_at(known.entry)
        if pending is None:
            return [StageAcked(origin, sequence)]
        pending.stagers.append((origin, sequence))
        return []

    def _apply_staged(self, event: ApplyStaged) -> list[Effect]:
        name = event.name
        if self.stages.is_over(name, event.decision, event.decider):
            if self.stages.is_finishing(name):
                return []  # TransactionApplied follows when the entry is durable
            return [TransactionApplied(name, event.decision, event.decider)]
        effects: list[Effect] = []
        for batch in event.batches:
            stage = self.stages.producers[batch.producer_id]
            assert batch.sequence == stage.appended, (batch.sequence, stage)
            stage.appended += 1
            index, base = self._next_entry(batch.count)
            pending = _Pending(index, self.end, applied=stage, on_disk=True)
            effects += self._appended(pending, Append(BATCH, index, base, batch))
        if not self.stages.next_of(name, event.producers, 0):
            self.stages.finishing(name)
            applied = [*name, *by_decider(event.decision, event.decider)]
            effects += self._control({"applied": applied}, on_disk=True)
        return effects

    def _drop_stages(self, event: DropStages) -> list[Effect]:
        found = self.stages.droppable(event.name, event.producers)
        if not found:
            return []
        for stage in found:
            stage.leaving = True
        producers = [stage.key.producer_id.hex() for stage in found]
        return self._control({"dropped": [*event.name, producers]}, on_disk=True)

    def _forget_applied(self, event: ForgetApplied) -> list[Effect]:
        if not self.stages.forgets(event.through, event.decider):
            return []
        through = by_decider(event.through, event.decider)
        return self._control({"forgotten": through if len(through) > 1 else event.through})

    # --- indexes -----------------------------------------------------------------------------

    def _attach(self, event: AttachIndex) -> list[Effect]:
        if event.mode != "own":
            return self._attach_shared(event)
        # A new index stands behind an entry that is appended and moves the start of the log: what
        # goes by that is no loss of this index.
        start = max(event.start, self._next_start)
        cursor = self.cursors.attach(event.name, start, hold_retention=event.hold_retention)
        return self._gather(event.origin, event.name, cursor, "attach")

    def _commit(self, event: CommitIndex) -> list[Effect]:
        if event.position > self.high_watermark:
            return [Refused(event.origin, 0, "outOfRange",
                            f"index {event.name!r} cannot be put at {event.position}: partition "
                            f"{self.number} ends at {self.high_watermark}")]  # fmt: skip
        cursor = self.cursors.commit(event.name, event.epoch, event.position)
        if cursor is None:
            return [IndexFenced(event.origin, event.name)]
        return self._gather(event.origin, event.name, cursor, "commit")

    def _attach_shared(self, event: AttachIndex) -> list[Effect]:
        is_new = event.name not in self.cursors.leading
        cursor = self.cursors.share(
            event.name, event.start, hold_retention=event.hold_retention, mode=event.mode
        )
        # This is logged even if nothing changes: from here on messages may be with consumers.
        reset = cursor.position if is_new else None
        self._gather_share(None, event.name, ShareChange(settings=event.settings, reset=reset))
        return self._gather(event.origin, event.name, cursor, "attach")

    def _change_share(self, event: ChangeShare) -> list[Effect]:
        cursor = self.cursors.leading.get(event.name)
        if cursor is not None and cursor.mode != "own":  # else deleted meanwhile
            self._gather_share(event.origin, event.name, event.change)
        return []

    def _gather_share(self, origin: Origin | None, name: str, change: ShareChange) -> None:
        gathered = self._share_changes.get(name)
        if gathered is None:
            gathered = self._share_changes[name] = ShareChanged(name, ShareChange(), [])
        gathered.change.merge(change)
        if origin is not None:
            gathered.origins.append(origin)

    def _seek(self, event: SeekIndex) -> list[Effect]:
        cursor = self.cursors.seek(event.name, event.position)
        if cursor.mode != "own":
            self._gather_share(None, event.name, ShareChange(reset=event.position))
        return self._gather(event.origin, event.name, cursor, "seek")

    def _skip(self, event: SkipIndex) -> list[Effect]:
        cursor = self.cursors.skip(event.name, event.position, event.lost)
        if cursor is None:
            return []
        return self._gather(event.origin, event.name, cursor, "skip")

    def _delete_index(self, event: DeleteIndex) -> list[Effect]:
        # An index that is not there is deleted too: it may be gone by an entry not yet committed,
        # and the answer must not come before that is durable.
        self.cursors.delete(event.name)
        self._share_changes.pop(event.name, None)
        return self._gather(event.origin, event.name, None, "delete")

    def _gather(self, origin: Origin, name: str, cursor: Cursor | None, by: str) -> list[Effect]:
        self._changes[name] = cursor
        self._moves.append(IndexMoved(origin, name, cursor, by))
        return []

    def _turn_ended(self, _event: TurnEnded) -> list[Effect]:
        if not self._moves and not self._share_changes:
            return []
        index, base = self._next_entry(0)
        changes, self._changes = self._changes, {}
        moves, self._moves = self._moves, []
        shares, self._share_changes = list(self._share_changes.values()), {}
        body = _encoded(changes, {each.name: each.change for each in shares})
        pending = _Pending(index, self.end, changes=changes, moves=moves, shares=shares)
        return self._appended(pending, Append(CURSOR, index, base, body=body))

    def _apply_indexes(self, changes: Changes, shares: ShareChanges) -> None:
        self.cursors.apply(changes)
        for name, cursor in changes.items():
            if cursor is None:
                self.shares.pop(name, None)
        for name, change in shares.items():
            if change.reset is not None and name not in self.shares:
                self.shares[name] = ShareState(change.reset)
            if name in self.shares:  # else deleted before this became durable
                share = self.shares[name]
                share.apply(change)
                share.log_start_moved(self.start)  # it may have passed what was revived meanwhile
                self.cursors.move_shared(name, share.start)

    # --- the log -----------------------------------------------------------------------------

    def _move_log_start(self, event: MoveLogStart) -> list[Effect]:
        if event.offset <= max(self.start, self._next_start):
            return []
        assert event.offset <= self.high_watermark
        self._next_start = event.offset
        return self._control({"log_start": event.offset})

    def _expire_producers(self, event: ExpireProducers) -> list[Effect]:
        # The entry names the producers: replay does not know when each was last heard of.
        idle = self.dedupe.idle(event.before_us)[:FORGOTTEN_AT_ONCE]
        self.dedupe.forgetting(idle)
        return self._control({"forget": [producer_id.hex() for producer_id in idle]})

    def _control(self, control: dict[str, Any], *, on_disk: bool = False) -> list[Effect]:
        index, base = self._next_entry(0)
        pending = _Pending(index, self.end, control=control, on_disk=on_disk)
        body = json.dumps(control).encode()
        return self._appended(pending, Append(CONTROL, index, base, body=body))

    def _apply_control(self, index: int, control: dict[str, Any]) -> list[Effect]:
        self.dedupe.forget(map(bytes.fromhex, control.get("forget", ())), index)
        for producer_id, user in control.get("owners", {}).items():
            self.dedupe.own(bytes.fromhex(producer_id), user, index)
        if control.get("log_start", 0) <= self.start:
            return []
        self.start = control["log_start"]
        for name, share in self.shares.items():
            share.log_start_moved(self.start)
            self.cursors.move_shared(name, share.start)
        return [LogStartMoved(self.start)]

    def _next_entry(self, count: int) -> tuple[int, int]:
        base = self.end
        self.last_index += 1
        self.end += count
        return self.last_index, base

    def _appended(self, pending: _Pending, append: Append) -> list[Effect]:
        self._pending.append(pending)
        effects: list[Effect] = [append]
        # Entries from before the topic was altered to "memory" still wait for the disk, and so
        # does every entry behind them.
        is_next = self._pending[0] is pending and not pending.on_disk
        if self.durability == "memory" and is_next:
            effects += self._advance(pending.index)
        return effects

    def _log_durable(self, event: LogDurable) -> list[Effect]:
        return self._advance(event.index)

    def _advance(self, index: int) -> list[Effect]:
        """Every entry up to `index` is committed: apply it, and answer those who wait for it."""
        effects: list[Effect] = []
        acked: dict[Origin, Acked] = {}
        staged: dict[Origin, int] = {}  # the last sequence
        end = self.high_watermark
        while self._pending and self._pending[0].index <= index:
            entry = self._pending.popleft()
            self.applied_index = entry.index
            self.high_watermark = entry.end_offset
            for origin, sequence, offset in entry.acks:
                known = acked.get(origin)
                if known is not None and known.sequence + 1 == sequence:
                    known.sequence = sequence
                    known.offsets.append(offset)
                else:
                    acked[origin] = answer = Acked(origin, sequence, [offset])
                    effects.append(answer)
            if entry.changes is not None:
                changed = {each.name: each.change for each in entry.shares}
                self._apply_indexes(entry.changes, changed)
                effects += [*entry.moves, *entry.shares]
            if entry.control is not None:
                effects += self._apply_control(entry.index, entry.control)
                effects += self.stages.apply(entry.control, replayed=False)
            elif entry.on_disk:
                self._advance_stage(entry, staged)
        effects += (StageAcked(origin, sequence) for origin, sequence in staged.items())
        if self.high_watermark != end:
            effects.append(EndMoved(self.high_watermark))
        return effects

    def _advance_stage(self, entry: _Pending, staged: dict[Origin, int]) -> None:
        if entry.staged is not None:
            entry.staged.durable += 1
            for origin, sequence in entry.stagers:
                staged[origin] = max(sequence, staged.get(origin, 0))
        else:
            assert entry.applied is not None
            self.stages.was_applied(entry.applied)

    # --- recovery ----------------------------------------------------------------------------

    def _replayed(self, event: Replayed) -> list[Effect]:
        assert event.index == self.last_index + 1, (event.index, self.last_index)
        self.last_index = self.applied_index = event.index
        self.end = self.high_watermark = event.end_offset
        if event.batch is not None:
            batch = event.batch
            if event.staged is not None:
                key, staged = event.staged
                self.stages.replay(key, batch.sequence, staged, event.now_us)
                return [self.stages.moved()]
            if not self.stages.recognises(batch):
                self.dedupe.replayed(
                    batch.producer_id,
                    batch.epoch,
                    Remembered(batch.sequence, event.base_offset, event.index, batch.crc),
                    event.now_us,
                    lossy=self._lossy,
                )
        elif event.kind == CURSOR:
            changes, shares = _decoded(event.body)
            if self._lossy:
                self._rewind_shares(changes, shares)
            self._apply_indexes(changes, shares)
            if self._lossy:
                self._agree_on_shares()
            self.cursors.leading = dict(self.cursors.applied)
        elif event.kind == CONTROL:
            control = json.loads(event.body)
            self._apply_control(event.index, control)
            return self.stages.apply(control, replayed=True)
        return []

    def _lost(self, event: Lost) -> list[Effect]:
        """Go on behind entries that nobody can read. What they changed is as it was before them.

        So an index may be behind where it was, never ahead of it. Records between are not dense for
        readers, but named as damage by the log.
        """
        assert event.next_index > self.last_index, (event, self.last_index)
        assert event.next_offset >= self.end, (event, self.end)
        self._lossy = True
        self.last_index = self.applied_index = event.next_index - 1
        self.end = self.high_watermark = event.next_offset
        for share in self.shares.values():
            share.was_cut_off()
        self._apply_control(self.last_index, {"log_start": min(event.log_start, self.end)})
        return []

    def _rewind_shares(self, changes: Changes, shares: ShareChanges) -> None:
        """A change that speaks of messages before the start of its index follows a seek back that
        is lost: without that, the index would jump over messages that it still has to deliver. A
        consumer that came since says where the index was; else all is delivered again."""
        for name, share in self.shares.items():
            cursor, change = changes.get(name), shares.get(name, ShareChange())
            if change.reset is not None:
                continue
            start = share.start if cursor is None else cursor.position
            if change.first < min(start, share.start):
                start = self.start
            if start < share.start:
                share.apply(ShareChange(reset=max(start, self.start)))

    def _agree_on_shares(self) -> None:
        """Each shared index has a state, and no other index has, whichever entries were lost."""
        for name, cursor in self.cursors.applied.items():
            if cursor.mode == "own":
                self.shares.pop(name, None)  # it was shared; its deletion is lost
            elif name not in self.shares:  # its beginning is lost
                self.shares[name] = ShareState(cursor.position)
                self.shares[name].was_cut_off()

    def snapshot(self) -> tuple[int, bytes]:
        """The applied index, and all state up to it but the records."""
        state = {
            "start": self.start,
            "end": self.high_watermark,
            "producers": self.dedupe.snapshot(self.applied_index),
            "owners": self.dedupe.snapshot_owners(),
            "cursors": {name: each.encode() for name, each in self.cursors.applied.items()},
            "retired_epoch": self.cursors.retired_epoch,
            "shares": {name: share.snapshot() for name, share in self.shares.items()},
            "transactions": self.stages.snapshot(),
        }
        if self.dedupe.holed:
            state["holed"] = {each.hex(): epoch for each, epoch in self.dedupe.holed.items()}
        return self.applied_index, json.dumps(state).encode()

    def restore(self, index: int, snapshot: bytes) -> None:
        """To be followed by a Replayed for every entry behind `index`."""
        self.last_index = self.applied_index = index
        if not snapshot:
            return
        state = json.loads(snapshot.partition(b"\n")[0])  # behind it: see core.partition.waiting
        self.start = state["start"]
        self.end = self.high_watermark = state["end"]
        self.dedupe.restore(state["producers"])
        holed = state.get("holed", {})
        self.dedupe.holed = {bytes.fromhex(each): epoch for each, epoch in holed.items()}
        self.dedupe.restore_owners(state.get("owners", {}))  # an old snapshot has none
        self.cursors.retired_epoch = state["retired_epoch"]
        self.cursors.replay({name: Cursor(*each) for name, each in state["cursors"].items()})
        for name, taken in state.get("shares", {}).items():
            self.shares[name] = ShareState.restore(taken)
        if "transactions" in state:  # else the version that wrote it had no transactions
            self.stages.restore(state["transactions"])

    _handlers: ClassVar[dict[type, Callable[..., list[Effect]]]] = {
        Produce: _produce,
        LogDurable: _log_durable,
        AttachIndex: _attach,
        CommitIndex: _commit,
        SeekIndex: _seek,
        SkipIndex: _skip,
        DeleteIndex: _delete_index,
        ChangeShare: _change_share,
        MoveLogStart: _move_log_start,
        ExpireProducers: _expire_producers,
        TurnEnded: _turn_ended,
        Replayed: _replayed,
        Lost: _lost,
        StageBatch: _stage,
        ApplyStaged: _apply_staged,
        DropStages: _drop_stages,
        ForgetApplied: _forget_applied,
    }


ShareChanges = dict[str, ShareChange]
_SHARES = "/shares"  # not the name of an index: those have no slash


def _encoded(changes: Changes, shares: ShareChanges) -> bytes:
    body: dict[str, Any] = {name: each and each.encode() for name, each in changes.items()}
    if shares:
        body[_SHARES] = {name: change.encode() for name, change in shares.items()}
    return json.dumps(body, separators=(",", ":")).encode()


def _decoded(body: bytes) -> tuple[Changes, ShareChanges]:
    fields = json.loads(body)
    shares = fields.pop(_SHARES, {})
    changes = {name: None if each is None else Cursor(*each) for name, each in fields.items()}
    return changes, {name: ShareChange.decode(each) for name, each in shares.items()}
