"""What is staged in one partition: batches of transactions that are not decided yet.

Rule 1: a stage is dropped only because the decider says so, never because of its age.
Rule 2: an applied transaction is remembered here until the decider has nothing more to say of it,
        and not only as long as the bounded memory of producers reaches.
Rule 3: each decider counts its own decisions: a decision is known by its index and its decider.
Rule 4: an entry of the log takes effect when it is committed. What is only appended is known too
        (`appended`, `leaving`), so that nothing is appended twice.

A staged batch is an entry of kind STAGE. When its transaction is committed, the batch is appended
again, as one with offsets; its bytes are read back from the log, and only their position is kept
here. While a producer has a stage here, every batch with its id in the log is one that was staged:
by that replay knows how far a roll-forward had come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crc32c import crc32c

from hocket.core.partition.events import (
    OWN_DECIDER,
    Batch,
    Name,
    Producers,
    Staged,
    StageKey,
    StagesMoved,
    TransactionApplied,
)
from hocket.errors import Busy, HocketError, TransactionConflict
from hocket.model import Participant


@dataclass(slots=True, eq=False)
class Stage:
    """What one producer has staged. Invariant: applied <= appended <= durable <= len(batches)."""

    key: StageKey
    touched_us: int
    batches: list[Staged] = field(default_factory=list)  # by sequence
    durable: int = 0  # how many of the batches are staged durably
    appended: int = 0  # how many of them were appended again, as batches with offsets
    applied: int = 0  # how many of those are committed
    leaving: bool = False  # an entry that ends the stage is on its way


class Refusal(NamedTuple):
    """Why a batch is not staged, as Refused says it."""

    code: str
    message: str


class Stages:
    def __init__(self) -> None:
        self.producers: dict[bytes, Stage] = {}  # a producer stages for one transaction at a time
        # transaction -> decision and decider by which it was applied
        self.applied: dict[Name, tuple[int, int]] = {}
        self.forgotten: dict[int, int] = {}  # decider -> its decisions up to this one are history
        self.bytes = 0  # of all batches that are neither applied nor dropped
        self._finishing: set[Name] = set()  # the entry that says "applied" is on its way
        self._forgetting: dict[int, int] = {}  # the same, once entries on their way are committed

    def __bool__(self) -> bool:
        return bool(self.producers)

    # --- staging ---------------------------------------------------------------------------------

    def next_sequence(self, key: StageKey) -> int:
        stage = self.producers.get(key.producer_id)
        return 0 if stage is None or stage.key != key else len(stage.batches)

    def judge(self, key: StageKey, sequence: int, crc: int) -> Refusal | Staged | None:
        """None: the batch is the next one. A Staged: it is that one again."""
        stage = self.producers.get(key.producer_id)
        if stage is None:
            if sequence == 0:
                return None
            return Refusal(
                "transactionAborted",
                f"batch {sequence} came for transaction {key.transaction!r} number {key.number}, "
                "of which nothing is staged here any more; begin it anew",
            )
        if stage.key != key:
            return Refusal(
                "fenced",
                f"this producer stages for transaction {stage.key.transaction!r} number "
                f"{stage.key.number}; open another one",
            )
        if sequence < len(stage.batches):
            known = stage.batches[sequence]
            if known.crc == crc:
                return known
            return Refusal(
                "transactionConflict",
                f"batch {sequence} of transaction {key.transaction!r} number {key.number} is "
                "staged already, with other content",
            )
        if stage.leaving:
            return Refusal(
                "busy", f"transaction {key.transaction!r} number {key.number} is being ended here"
            )
        if sequence > len(stage.batches):
            return Refusal(
                "sequenceGap",
                f"batch {sequence} came where {len(stage.batches)} was expected; resend from that "
                "one",
            )
        return None

    def add(self, key: StageKey, staged: Staged, now_us: int) -> Stage:
        stage = self.producers.get(key.producer_id)
        if stage is None:
            stage = self.producers[key.producer_id] = Stage(key, now_us)
        stage.batches.append(staged)
        stage.touched_us = max(stage.touched_us, now_us)
        self.bytes += staged.size
        return stage

    # --- the decision ----------------------------------------------------------------------------

    def verify(self, name: Name, participants: Iterable[Participant]) -> HocketError | None:
        """Why these participants are not, durably, staged as they are named; None if they are."""
        for each in participants:
            what = f"partition {each.partition} of topic {each.topic!r}"
            stage = self.producers.get(each.producer_id)
            if stage is None or stage.key.name != name:
                return TransactionConflict(
                    f"nothing is staged in {what} by producer {each.producer_id.hex()} for "
                    f"transaction {name[0]!r} number {name[1]}, which names {each.batches} batches"
                )
            if stage.leaving or stage.durable < each.batches <= len(stage.batches):
                return Busy(f"what is staged in {what} is not yet durable; try again")
            batches = stage.batches[: stage.durable]
            records = sum(staged.records for staged in batches)
            found = (len(batches), records, crc_of(staged.crc for staged in batches))
            if found != (each.batches, each.records, each.crc):
                return TransactionConflict(
                    f"in {what} producer {each.producer_id.hex()} has staged {len(batches)} "
                    f"batches with {records} records and crc {found[2]:#x}, and transaction "
                    f"{name[0]!r} number {name[1]} names {each.batches} with {each.records} and "
                    f"{each.crc:#x}"
                )
        return None

    def is_over(self, name: Name, decision: int, decider: int = OWN_DECIDER) -> bool:
        """The transaction is applied, or will be by entries on their way: nothing is left to do."""
        is_history = decision <= self.forgotten.get(decider, 0)
        return is_history or name in self.applied or name in self._finishing

    def is_finishing(self, name: Name) -> bool:
        return name in self._finishing

    def next_of(self, name: Name, producers: Producers, bytes_max: int) -> list[tuple[Stage, int]]:
        """The stages and sequences of the batches to append next, up to `bytes_max` of them.

        One batch is named even if it is larger; none only if all are appended.
        """
        found: list[tuple[Stage, int]] = []
        size = 0
        for producer_id, batches in producers:
            stage = self.producers.get(producer_id)
            if stage is None or stage.key.name != name:
                continue
            for sequence in range(stage.appended, min(batches, stage.durable)):
                size += stage.batches[sequence].size
                if found and size > bytes_max:
                    return found
                found.append((stage, sequence))
        return found

    def idle(self, before_us: int) -> list[Stage]:
        return [stage for stage in self.producers.values() if stage.touched_us < before_us]

    def droppable(self, name: Name, producers: Iterable[bytes]) -> list[Stage]:
        """The stages of these producers for the transaction, but for those already leaving."""
        if not self.producers:  # as in most partitions, which are asked all the same
            return []
        found = (self.producers.get(producer_id) for producer_id in dict.fromkeys(producers))
        return [stage for stage in found if stage and stage.key.name == name and not stage.leaving]

    def finishing(self, name: Name) -> None:
        """The entry that says that the transaction is applied was appended."""
        self._finishing.add(name)
        for stage in self._over_with(name):
            stage.leaving = True

    def _over_with(self, name: Name) -> list[Stage]:
        """The stages that end when this transaction is applied: its own, whoever has staged them,
        and those of lower numbers."""
        transaction, number = name
        return [
            stage
            for stage in self.producers.values()
            if stage.key.transaction == transaction and stage.key.number <= number
        ]

    def forgets(self, through: int, decider: int) -> bool:
        """Whether an entry is needed to forget the decisions of this decider up to this one."""
        if through <= self._forgetting.get(decider, 0):
            return False
        if not any(of == decider and at <= through for at, of in self.applied.values()):
            return False
        self._forgetting[decider] = through
        return True

    @property
    def deciders(self) -> list[int]:
        """Those who will say when what was applied here may be forgotten."""
        return list(dict.fromkeys(decider for _, decider in self.applied.values()))

    # --- what is committed -----------------------------------------------------------------------

    def was_applied(self, stage: Stage) -> None:
        """The next batch of the stage is, durably, in the log."""
        self.bytes -= stage.batches[stage.applied].size
        stage.applied += 1

    def apply(self, control: dict[str, Any], *, replayed: bool) -> list[Any]:
        """Apply a control entry, which may have nothing to do with stages; returns its effects."""
        effects: list[Any] = []
        if "applied" in control:
            transaction, number, *by = control["applied"]
            name = (transaction, number)
            self._finishing.discard(name)
            self.applied[name] = decision, decider = _decision_of(by)
            if not replayed:
                effects.append(TransactionApplied(name, decision, decider))
            # Only the stages from when the entry was appended; replay sees no later ones.
            self._remove(s for s in self._over_with(name) if s.leaving or replayed)
        elif "dropped" in control:
            self._remove(self._dropped_by(*control["dropped"]))
        elif "forgotten" in control:
            through, decider = _decision_of(control["forgotten"])
            through = max(through, self.forgotten.get(decider, 0))
            self.forgotten[decider] = self._forgetting[decider] = through
            self.applied = {
                name: by for name, by in self.applied.items() if by[1] != decider or by[0] > through
            }
        else:
            return effects
        return [*effects, self.moved()]

    def _dropped_by(
        self, transaction: str, number: int, producers: list[str] | None = None
    ) -> list[Stage]:
        """The stages that an entry drops; an old entry, which names no producers, means all."""
        name = (transaction, number)
        among = self.producers if producers is None else map(bytes.fromhex, producers)
        found = (self.producers.get(producer_id) for producer_id in dict.fromkeys(among))
        return [stage for stage in found if stage and stage.key.name == name]

    def _remove(self, stages: Iterable[Stage]) -> None:
        for stage in list(stages):
            self.bytes -= sum(staged.size for staged in stage.batches[stage.applied :])
            del self.producers[stage.key.producer_id]

    def moved(self) -> StagesMoved:
        needed: list[int] = []
        for stage in self.producers.values():
            if stage.applied < len(stage.batches):
                needed.append(stage.batches[stage.applied].entry)
            if not stage.applied:
                break  # the stages behind it began later
        return StagesMoved(min(needed, default=None), self.bytes)

    # --- recovery --------------------------------------------------------------------------------

    def replay(self, key: StageKey, sequence: int, staged: Staged, now_us: int) -> None:
        if sequence == self.next_sequence(key):  # else batches before it are lost by damage
            self.add(key, staged, now_us).durable += 1

    def recovered(self, now_us: int) -> None:
        """No stage is idle yet: producers could not touch theirs while the broker was away."""
        for stage in self.producers.values():
            stage.touched_us = now_us

    def recognises(self, batch: Batch) -> bool:
        """Whether this batch of the log is one that was staged; if so, count it as applied.

        Batches before it were appended before it, also those that are lost by damage.
        """
        stage = self.producers.get(batch.producer_id)
        if stage is None or not stage.applied <= batch.sequence < len(stage.batches):
            return False
        while stage.applied <= batch.sequence:
            self.was_applied(stage)
        stage.appended = stage.applied
        return True

    def lost_of(self, name: Name, producers: Producers) -> int:
        """How many of the batches that a decision names are not staged here: lost by damage."""
        lost = 0
        for producer_id, batches in producers:
            stage = self.producers.get(producer_id)
            known = len(stage.batches) if stage is not None and stage.key.name == name else 0
            lost += max(0, batches - known)
        return lost

    def snapshot(self) -> dict[str, Any]:
        """The committed state, as JSON knows it."""
        return {
            "stages": [
                [*stage.key.name, stage.key.producer_id.hex(), stage.applied,
                 stage.batches[: stage.durable]]
                for stage in self.producers.values() if stage.durable
            ],
            "applied": [[*name, *by_decider(*by)] for name, by in self.applied.items()],
            "forgotten": self.forgotten.get(OWN_DECIDER, 0),
            "forgotten_of": [
                [of, at] for of, at in self.forgotten.items() if of != OWN_DECIDER
            ],
        }  # fmt: skip

    def restore(self, taken: dict[str, Any]) -> None:
        for transaction, number, producer_id, applied, batches in taken["stages"]:
            key = StageKey(transaction, number, bytes.fromhex(producer_id))
            stage = Stage(key, 0, [Staged(*each) for each in batches], len(batches))
            stage.appended = stage.applied = applied
            self.producers[key.producer_id] = stage
            self.bytes += sum(staged.size for staged in stage.batches[applied:])
        self.applied = {(each[0], each[1]): _decision_of(each[2:]) for each in taken["applied"]}
        self.forgotten = dict(taken.get("forgotten_of", ()))
        if taken["forgotten"]:
            self.forgotten[OWN_DECIDER] = taken["forgotten"]
        self._forgetting = dict(self.forgotten)


def by_decider(decision: int, decider: int) -> list[int]:
    """As entries have it: those of the node's own decider are as they were before there were
    others."""
    return [decision] if decider == OWN_DECIDER else [decision, decider]


def _decision_of(by: list[int] | int) -> tuple[int, int]:
    """A decision and its decider, from an entry; an old one has the decision alone."""
    if isinstance(by, int):
        by = [by]
    return by[0], by[1] if len(by) > 1 else OWN_DECIDER


def by_name(stages: Iterable[Stage]) -> dict[Name, tuple[bytes, ...]]:
    """The producers of these stages, by the transaction that they stage for."""
    found: dict[Name, list[bytes]] = {}
    for stage in stages:
        found.setdefault(stage.key.name, []).append(stage.key.producer_id)
    return {name: tuple(producers) for name, producers in found.items()}


def crc_of(crcs: Iterable[int]) -> int:
    """CRC-32C over CRCs, each as four bytes, little-endian."""
    total = 0
    for crc in crcs:
        total = crc32c(crc.to_bytes(4, "little"), total)
    return total
