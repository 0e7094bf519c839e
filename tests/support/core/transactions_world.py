"""The world of transactions: two deciders and some partitions, each with its own log, and a bus.

Each decider decides on ids of its own, and both on the same partitions, as in a cluster.

Messages between them wait on the bus until they are delivered; in any order, twice, or never. Every
log is durable as far as it is said to be, and a crash loses what is not. Nothing happens by itself,
so that the test decides; `heal` lets everything come to rest, and `check` looks.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any

from hocket.core.metadata.metadata import Indexes
from hocket.core.origin import Origin
from hocket.core.partition.events import (
    BATCH,
    OWN_DECIDER,
    ApplyStaged,
    DropStages,
    Effect,
    ForgetApplied,
    Refused,
    StageAcked,
    StageBatch,
    StageKey,
    TransactionApplied,
)
from hocket.core.partition.stages import by_name, crc_of
from hocket.core.transactions import events as decisions
from hocket.core.transactions.decider import REPEAT_US, VERIFY_US, Decider
from hocket.core.transactions.participants import LocatedParticipant
from hocket.errors import HocketError, TransactionAborted
from hocket.model import Participant
from tests.support.core.logged import Logged, Snapshot, batch

GROUPS = (1, 2)
DECIDERS = (OWN_DECIDER, 77)  # by the groups of their logs
SIZE = 10


@dataclass(eq=False)
class Client:
    """A client that tries one transaction, with a producer of its own."""

    serial: int
    id: str
    number: int
    plan: dict[int, int]  # group -> batches
    records: int = 1  # in each of them
    sent: Counter[int] = field(default_factory=Counter)
    acked: Counter[int] = field(default_factory=Counter)
    answers: list[tuple[str, HocketError | None]] = field(default_factory=list)

    @property
    def producer_id(self) -> bytes:
        return b"%016d" % self.serial

    @property
    def key(self) -> StageKey:
        return StageKey(self.id, self.number, self.producer_id)

    @property
    def content(self) -> dict[int, int]:
        """Records by group, each of which is a topic of its own."""
        return {group: batches * self.records for group, batches in self.plan.items()}

    def participants(self) -> tuple[decisions.LocatedParticipant, ...]:
        return tuple(
            LocatedParticipant(
                group,
                Participant(
                    f"topic-{group}", 0, self.producer_id, batches, batches * self.records,
                    crc_of(self.crc(at) for at in range(batches)),
                ),
            )
            for group, batches in self.plan.items()
        )  # fmt: skip

    def crc(self, sequence: int) -> int:
        return self.serial * 1000 + sequence

    def was_told(self, what: str) -> bool:
        return (what, None) in self.answers


@dataclass
class Seat:
    """A decider with its log."""

    group: int
    core: Decider = field(default_factory=Decider)
    log: list[tuple[int, bytes]] = field(default_factory=list)
    durable: int = 0
    snapshot: tuple[int, dict[str, Any]] | None = None


class World:
    def __init__(self) -> None:
        self.now_us = 1_000_000
        self.seats = {group: Seat(group) for group in DECIDERS}
        self._crashes = 0
        self.partitions = {group: Logged() for group in GROUPS}
        self.snapshots: dict[int, Snapshot | None] = dict.fromkeys(GROUPS)
        self.bus: list[tuple[int, Any]] = []  # the decider from or to which it goes, and what
        self.clients: list[Client] = []
        self._requests: dict[int, tuple[Client, str]] = {}
        self._numbers = count(1)
        for seat in self.seats.values():
            seat.core.step(decisions.Started(self.now_us))

    def seat_of(self, transaction: str) -> Seat:
        return self.seats[DECIDERS[ord(transaction[0]) % len(DECIDERS)]]

    # --- clients ---------------------------------------------------------------------------------

    def new_client(self, name: str, number: int, plan: dict[int, int], records: int = 1) -> Client:
        made = Client(len(self.clients) + 1, name, number, plan, records)
        self.clients.append(made)
        return made

    def stage(self, client: Client, group: int) -> None:
        """The next batch there; a connection loses nothing, and is not what this is about."""
        sequence = client.sent[group]
        if sequence >= client.plan.get(group, 0):
            return
        crc = client.crc(sequence)
        staged = batch(client.producer_id, sequence, count=client.records, body=(SIZE, crc))
        origin = Origin(client.serial, group, 0)
        effects = self.partitions[group].step(
            StageBatch(origin, client.key, staged, SIZE, crc, self.now_us)
        )
        if not any(isinstance(effect, Refused) for effect in effects):
            client.sent[group] += 1
        self._heard(group, effects)

    def commit(self, client: Client) -> None:
        asked = decisions.CommitAsked(
            self._origin(client, "commit"), client.id, client.number, client.participants(),
            self.now_us,
        )  # fmt: skip
        self._tell(self.seat_of(client.id), asked)

    def abort(self, client: Client) -> None:
        asked = decisions.AbortAsked(
            self._origin(client, "abort"), client.id, client.number, (client.producer_id,),
            self.now_us,
        )  # fmt: skip
        self._tell(self.seat_of(client.id), asked)

    def _tell(self, seat: Seat, event: decisions.Event) -> None:
        self._said(seat, seat.core.step(event))

    def _origin(self, client: Client, what: str) -> Origin:
        request = next(self._numbers)
        self._requests[request] = (client, what)
        return Origin(client.serial, 0, request)

    # --- the bus ---------------------------------------------------------------------------------

    def deliver(self, number: int, *, keep: bool = False) -> None:
        decider, message = self.bus[number] if keep else self.bus.pop(number)
        if isinstance(
            message,
            decisions.Verify | decisions.Apply | decisions.Drop | decisions.Forget,
        ):
            self._tell_partition(decider, message)
        else:
            self._tell(self.seats[decider], message)

    def lose(self, number: int) -> None:
        del self.bus[number]

    def _said(self, seat: Seat, effects: list[decisions.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, decisions.AppendDecision):
                assert effect.index == len(seat.log) + 1
                seat.log.append((effect.index, effect.body))
            elif isinstance(effect, decisions.Answer):
                client, what = self._requests.pop(effect.origin.request)
                client.answers.append((what, effect.error))
            elif isinstance(effect, decisions.Drop) and effect.group is None:
                self.bus += ((seat.group, replace(effect, group=group)) for group in GROUPS)
            else:
                self.bus.append((seat.group, effect))

    def _tell_partition(
        self,
        decider: int,
        message: decisions.Verify | decisions.Apply | decisions.Drop | decisions.Forget,
    ) -> None:
        group = message.group
        assert group is not None
        logged = self.partitions[group]
        if isinstance(message, decisions.Verify):
            name = (message.transaction, message.number)
            error = logged.partition.stages.verify(name, message.participants)
            answer = decisions.Verified(group, message.transaction, message.round, error)
            self.bus.append((decider, answer))
        elif isinstance(message, decisions.Apply):
            self._apply(decider, group, message)
        elif isinstance(message, decisions.Drop):
            name = (message.transaction, message.number)
            self._heard(group, logged.step(DropStages(name, message.producers)))
        else:
            self._heard(group, logged.step(ForgetApplied(message.through, decider)))

    def _apply(self, decider: int, group: int, message: decisions.Apply) -> None:
        logged = self.partitions[group]
        stages = logged.partition.stages
        name = (message.transaction, message.number)
        following = []
        if not stages.is_over(name, message.decision, decider):
            following = stages.next_of(name, message.producers, 1 << 30)
        batches = [batch(s.key.producer_id, n, count=s.batches[n].records) for s, n in following]
        apply = ApplyStaged(name, message.decision, message.producers, batches, decider)
        self._heard(group, logged.step(apply))

    def _heard(self, group: int, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StageAcked):
                acked = self.clients[effect.origin.connection - 1].acked
                acked[group] = max(acked[group], effect.sequence + 1)
            elif isinstance(effect, TransactionApplied):
                self.bus.append((effect.decider, decisions.Applied(group, *effect.name)))

    # --- disks and crashes -----------------------------------------------------------------------

    def decider_durable(self, through: int | None = None) -> None:
        for seat in self.seats.values():
            end = len(seat.log) if through is None else min(through, len(seat.log))
            seat.durable = max(seat.durable, end)
            self._said(seat, seat.core.durable(seat.durable))

    def durable(self, group: int, through: int | None = None) -> None:
        logged = self.partitions[group]
        end = len(logged.log) if through is None else through
        self._heard(group, logged.durable(max(logged.durable_index, end)))

    def take_snapshots(self) -> None:
        for seat in self.seats.values():
            seat.snapshot = seat.core.snapshot()
        for group, logged in self.partitions.items():
            self.snapshots[group] = logged.snapshot()

    def crash_decider(self, survived: int) -> None:
        """One of them in turn. Of what is not durable, so many entries are there all the same."""
        self._crashes += 1
        seat = self.seats[DECIDERS[self._crashes % len(DECIDERS)]]
        end = min(seat.durable + survived, len(seat.log))
        del seat.log[end:]
        seat.durable = end
        seat.core = Decider(Indexes())
        start = 0
        if seat.snapshot is not None:
            start, state = seat.snapshot
            seat.core.restore(start, state)
        for index, body in seat.log[start:]:
            seat.core.replayed(index, body)
        self._requests = {  # whoever had asked must ask again
            request: (client, what)
            for request, (client, what) in self._requests.items()
            if self.seat_of(client.id) is not seat
        }
        self.now_us += 1000  # rounds are told from those before by the time
        self._tell(seat, decisions.Started(self.now_us))

    def crash_partition(self, group: int, survived: int) -> None:
        logged = self.partitions[group]
        logged.crash(min(logged.durable_index + survived, len(logged.log)), self.snapshots[group])
        for client in self.clients:
            stage = logged.partition.stages.next_sequence(client.key)
            client.sent[group] = max(stage, client.acked[group])
        self.ask(group, idle=False)

    def ask(self, group: int, *, idle: bool) -> None:
        stages = self.partitions[group].partition.stages
        for name, producers in by_name(stages.producers.values()).items():
            found = decisions.StageFound(group, *name, producers, idle=idle)
            self.bus.append((self.seat_of(name[0]).group, found))
        for decider in stages.deciders:
            self.bus.append((decider, decisions.AppliedFound(group)))

    def tick(self, passed_us: int = REPEAT_US) -> None:
        self.now_us += passed_us
        for seat in self.seats.values():
            self._tell(seat, decisions.Tick(self.now_us))

    # --- the end ---------------------------------------------------------------------------------

    @property
    def is_at_rest(self) -> bool:
        return (
            not self.bus
            and not any(seat.core._unfinished or seat.core._commits or seat.core._aborts
                        for seat in self.seats.values())
            and not any(each.partition.stages or each.partition.stages.applied
                        for each in self.partitions.values())
        )  # fmt: skip

    def heal(self) -> None:
        """From now on everything works: what is open is aborted for want of anybody who asks."""
        for _ in range(200):
            self.decider_durable()
            for group in GROUPS:
                self.durable(group)
            while self.bus:
                self.deliver(0)
            self.decider_durable()
            for group in GROUPS:
                self.durable(group)
                self.ask(group, idle=True)
            self.tick()
            if self.is_at_rest:
                return
        raise AssertionError("it does not come to rest")

    def published(self, group: int) -> list[tuple[bytes, int]]:
        return [
            (entry.batch.producer_id, entry.batch.sequence)
            for entry in self.partitions[group].log
            if entry.kind == BATCH and entry.batch
        ]

    def is_published(self, client: Client) -> bool:
        """All or nothing, each batch once and in order."""
        wholes = []
        for group in GROUPS:
            planned = list(range(client.plan.get(group, 0)))
            found = [n for producer, n in self.published(group) if producer == client.producer_id]
            assert found in ([], planned), f"{client} in {group}: {found}"
            if planned:
                wholes.append(bool(found))
        assert len(set(wholes)) <= 1, f"{client} is published in some partitions only"
        return any(wholes)

    def aborted(self) -> set[bytes]:
        """The producers that a decider's log says so of."""
        changes = [json.loads(body) for seat in self.seats.values() for _, body in seat.log]
        return {bytes.fromhex(each) for made in changes for each in made.get("producers", ())}

    def committed_after_an_abort(self) -> int:
        """Transactions that were published though clients that tried them had been aborted."""
        aborted = self.aborted()
        names = {(each.id, each.number) for each in self.clients if each.producer_id in aborted}
        return sum((a.id, a.number) in names and self.is_published(a) for a in self.clients)

    def check(self) -> int:
        """After `heal`. Returns how many transactions were published."""
        by_producer = {client.producer_id: client for client in self.clients}
        committed: dict[tuple[str, int], Client] = {}
        for client in self.clients:
            if self.is_published(client):
                name = (client.id, client.number)
                assert name not in committed, f"{name} is published twice"
                committed[name] = client
        for client in self.clients:
            done = committed.get((client.id, client.number))
            if client.was_told("commit") and client.plan:
                assert done is not None, f"{client} was told that it is committed"
                same = done.content == client.content
                assert same, f"{client} was told so, and {done} is what is published"
            gave_up = any(isinstance(error, TransactionAborted) for _, error in client.answers)
            if client.was_told("abort") or gave_up:
                assert done is not client, f"{client} was told that it is aborted"
                assert client.producer_id in self.aborted(), f"{client}: nobody has aborted it"
        for group in GROUPS:
            for name in {client.id for client in self.clients}:
                numbers = [
                    by_producer[producer].number
                    for producer, _ in self.published(group)
                    if by_producer[producer].id == name
                ]
                assert numbers == sorted(numbers), f"{name} in {group}: {numbers}"
        return len(committed)


def walk(random: Random, steps: int = 120) -> World:
    """A life by chance, and whatever was open at its end healed and checked."""
    world = World()
    for _ in range(steps):
        one_step(world, random)
    world.heal()
    world.check()
    return world


def one_step(world: World, random: Random) -> None:
    group = random.choice(GROUPS)
    choice = random.random()
    if choice < 0.25 and world.bus:
        world.deliver(random.randrange(len(world.bus)), keep=random.random() < 0.2)
    elif choice < 0.28 and world.bus:
        world.lose(random.randrange(len(world.bus)))
    elif choice < 0.47 and world.clients:
        world.stage(random.choice(world.clients[-2:]), group)
    elif choice < 0.50:
        plan = {g: random.randrange(1, 3) for g in GROUPS if random.random() < 0.8}
        number = random.randrange(3)
        world.new_client(random.choice("ab"), number, plan, random.randrange(1, 3))
    elif choice < 0.62 and world.clients:
        world.commit(random.choice(world.clients[-2:]))
    elif choice < 0.64 and world.clients:
        world.abort(random.choice(world.clients[-3:]))
    elif choice < 0.75:
        world.durable(group)
    elif choice < 0.85:
        world.decider_durable()
    elif choice < 0.88:
        world.crash_decider(random.randrange(3))
    elif choice < 0.91:
        world.crash_partition(group, random.randrange(3))
    elif choice < 0.93:
        world.take_snapshots()
    elif choice < 0.95:
        world.ask(group, idle=random.random() < 0.3)
    else:
        world.tick(random.choice([REPEAT_US, VERIFY_US]))
