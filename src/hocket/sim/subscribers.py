"""Those who subscribe to a topic: alone, with an index of their own, or as workers of a shared one.

They hold subscriptions of the real client, and begin at any machine: who holds the topic they are
told there. Now and then one is killed, and begins anew with what the broker has kept for its index.
Diaries say what was handed out, and what they were told is acknowledged for good; checkers read
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hocket.client_core.calls import topics
from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.core import SubscriptionCore
from hocket.client_core.consuming.message import Message, MessageBatch
from hocket.client_core.consuming.parts import Commit, Parted
from hocket.client_core.sharing.core import SharedCore
from hocket.client_core.sharing.message import SharedBatch, SharedMessage
from hocket.errors import (
    HocketError,
    LeaseLost,
    NoConnection,
    ReplyLost,
    RootAway,
    StorageFull,
    UnknownIndex,
    UnknownTopic,
)
from hocket.model import Mode
from hocket.sim.client import Client, Unexpected

if TYPE_CHECKING:
    from hocket import frames
    from hocket.client_core.outbox import Report
    from hocket.sim.machine import Machine
    from hocket.sim.site import Site

WORK_EVERY_US = 400_000  # on average, between two commits
TAKE_US = 20_000  # at most, until what has come is taken
SLOW_US = 1_000_000  # the same for a slow one; when faults are over all are quick
SLOW_SHARE = 0.4
TAKEN_MAX = 12  # messages at a time
LIFE_US = 10_000_000  # on average
LEASE_US = 1_000_000
DELIVERIES_MAX = 200  # of one message: nobody gives one up
PREFETCH = 8


class Reader(Client, ABC):
    """What those with an own index and those with a shared one have in common."""

    def __init__(self, site: Site, machine: Machine, name: str, topic: str) -> None:
        self.topic = topic
        self.life = 0  # counts its subscriptions
        self._core: Parted[Any, Any] | None = None
        super().__init__(site, machine, name)
        self._slow = self.chance.random() < SLOW_SHARE
        self._subscribe()
        self._work_later()
        self._die_later()

    def another_machine(self) -> Machine:
        return self.some_machine()

    # --- lives -------------------------------------------------------------------------------

    def _subscribe(self) -> None:
        self.life += 1
        core = self._new_core()
        try:
            self.turn(core.open)
        except HocketError:  # its first machine was down
            self._core = None
        else:
            self._core = core
            core.deliveries.add(partial(self._arrived, self.life))

    @abstractmethod
    def _new_core(self) -> Parted[Any, Any]: ...

    def _die_later(self) -> None:
        delay_us = round(self.chance.expovariate(1 / LIFE_US))
        self.site.scheduler.after(delay_us, self._die)

    def _die(self) -> None:
        if self.site.is_safety_phase:
            self._die_later()
            self._forget()
            self.site.tell(None, "{} is killed", self.name)
            self.move_to(self.some_machine())
            self._subscribe()

    def _forget(self) -> None:
        """Another subscription follows: what was said in this one may have been heard, or not."""

    # --- work --------------------------------------------------------------------------------

    def _work_later(self) -> None:
        delay_us = round(self.chance.expovariate(1 / WORK_EVERY_US))
        self.site.scheduler.after(max(delay_us, 1000), self._work)

    def _work(self) -> None:
        self._work_later()
        core = self._core
        failure = None if core is None else core.failure
        if core is not None and failure is None:
            self.turn(self._commit)
        elif failure is None or isinstance(failure, UnknownTopic | NoConnection | StorageFull):
            if core is not None and core.partitions():  # it was open before
                self.mend("subscribed anew")
            # The topic was not known there yet, nobody was reached, or no room was left to note the
            # index, which its user is told.
            self._forget()
            self._subscribe()
        else:
            raise Unexpected(f"{self.name} was ended: {failure!r}")

    @abstractmethod
    def _commit(self) -> None:
        """Say what became of the messages, and ask whether that is durable."""

    def _arrived(self, life: int) -> None:
        dawdles = self._slow and self.site.is_safety_phase
        delay_us = self.chance.randrange(SLOW_US if dawdles else TAKE_US)
        self.site.scheduler.after(delay_us, partial(self._take, life))

    def _take(self, life: int) -> None:
        if life == self.life and self._core is not None and self._core.failure is None:
            self.turn(self._draw)

    def _draw(self) -> None:
        core = self._core
        assert core is not None
        for _ in range(self.chance.randrange(1, TAKEN_MAX)):
            message = core.next_message()
            if message is None:
                core.deliveries.add(partial(self._arrived, self.life))
                return
            self.site.clients_moved = True
            self.site.trace.event(
                self.site.now_us, self.name, f"{message.partition} {message.offset}"
            )
            self._take_over(message)
        self._arrived(self.life)  # more may be there

    @abstractmethod
    def _take_over(self, message: Message) -> None: ...


class Taken(NamedTuple):
    """What a subscriber was handed."""

    life: int
    partition: int
    offset: int
    value: bytes


class Subscriber(Reader):
    """Subscribes with an index of its own, and acknowledges now and then what it has so far."""

    def __init__(self, site: Site, machine: Machine, topic: str, number: int) -> None:
        self.index = f"own-{number}"
        self.diary: list[Taken] = []
        self.committed: dict[int, int] = {}  # by partition: it was told that so far is for good
        # By life: in each partition, where it may begin at the least and at the most.
        self.begins: dict[int, tuple[dict[int, int], dict[int, int]]] = {}
        self._acked: dict[int, int] = {}  # by partition: the end of what it has acknowledged
        self._last: dict[int, Message] = {}  # by partition, of this life
        self._said: dict[int, int] = {}  # the same, in this life
        # Of a commit that is under way: what it waits for, and what is for good then.
        self._mark: tuple[Commit, dict[int, int]] | None = None
        super().__init__(site, machine, f"subscriber {number} of {topic}", topic)

    def _new_core(self) -> Parted[Message, MessageBatch]:
        self._last.clear()
        self._said.clear()
        self._mark = None
        self.begins[self.life] = dict(self.committed), dict(self._acked)
        options = SubscriptionOptions(
            index=self.index, credit_bytes=self.site.options.credit_bytes,
            hold_retention=self.site.options.kept_bytes is not None,
        )  # fmt: skip
        self._own = Parted(self.router.first, self.topic, options, self._new_part)
        return self._own

    def _new_part(self, options: SubscriptionOptions) -> SubscriptionCore:
        return SubscriptionCore(
            self.router.first, self.topic, options,
            message=Message, batch=MessageBatch, arouse=self._arouse,
        )  # fmt: skip

    def _arouse(self, progress: Any) -> None:
        self._own.arouse(progress)

    def has_committed(self, partition: int, end: int) -> bool:
        """Whether all up to here is for good.

        One that was killed before it was told so begins behind it, and is told nothing more.
        """
        if self.committed.get(partition, 0) >= end:
            return True
        is_new = partition not in self._last and partition in self._own.partitions()
        return is_new and self._own.position(partition) >= end

    def has_taken(self, partition: int, end: int) -> bool:
        """Whether it was handed all up to here, in this life or before."""
        return partition in self._own.partitions() and self._own.position(partition) >= end

    def _take_over(self, message: Message) -> None:
        self._last[message.partition] = message
        taken = Taken(self.life, message.partition, message.offset, bytes(message.value))
        self.diary.append(taken)

    def _commit(self) -> None:
        if self._mark is not None:
            return
        for partition, message in self._last.items():
            if not self.site.is_safety_phase or self.chance.random() < 0.6:
                self._acked[partition] = max(self._acked.get(partition, 0), message.offset + 1)
                self._said[partition] = message.offset + 1
                message.ack()
        self._mark = self._own.acked_so_far(), dict(self._said)
        self._look(self.life)

    def _look(self, life: int) -> None:
        if life != self.life or self._mark is None or self._own.failure is not None:
            return
        mark, said = self._mark
        if not self._own.are_committed(mark):
            self._own.commits.add(partial(self._look, life))
            return
        for partition, offset in said.items():
            self.committed[partition] = max(self.committed.get(partition, 0), offset)
        self._mark = None


Place = tuple[int, int]  # partition and offset


class Entry(NamedTuple):
    """What became of a message of a shared index; `value` is None where it is acked for good."""

    worker: str
    place: Place
    value: bytes | None
    key: bytes | None = None


@dataclass
class Office:
    """Where the workers of one shared index write into one diary."""

    topic: str
    index: str
    mode: Mode = "shared"
    rejects: bool = False  # now and then a worker rejects a message
    diary: list[Entry] = field(default_factory=list)
    # Messages that somebody has rejected -> he was told that this is for good.
    rejected: dict[Place, bool] = field(default_factory=dict)
    lag: int | None = None  # as the broker said last, if nothing was handed out since


class Worker(Reader):
    """Shares an index with others, and does one thing or another with a message."""

    def __init__(self, site: Site, machine: Machine, office: Office, number: int) -> None:
        self.office = office
        self._said: list[Place] = []  # acks and rejects, since the last commit began
        self._rejected: set[Place] = set()  # of all that it has said
        self._mark: tuple[Commit, list[Place]] | None = None  # of a commit that is under way
        self._kept: list[Message] = []  # to be acked with the next commit
        super().__init__(site, machine, f"worker {number} of {office.topic}", office.topic)

    def _new_core(self) -> Parted[Message, MessageBatch]:
        options = SubscriptionOptions(
            index=self.office.index, mode=self.office.mode, prefetch=PREFETCH,
            credit_bytes=self.site.options.credit_bytes, lease_us=LEASE_US,
            max_deliveries=DELIVERIES_MAX,
        )  # fmt: skip
        self._shared = Parted(self.router.first, self.topic, options, self._new_part)
        return self._shared

    def _new_part(self, options: SubscriptionOptions) -> SharedCore:
        return SharedCore(
            self.router.first, self.topic, options,
            message=SharedMessage, batch=SharedBatch, arouse=self._arouse,
        )  # fmt: skip

    def _arouse(self, progress: Any) -> None:
        self._shared.arouse(progress)

    def reported(self, report: Report) -> None:
        """What is said too late is no mistake: a killed worker's messages go to others."""
        if report.facts and str(report.facts[0]).endswith("or extend it"):
            self.mended["leases lost"] += 1
        else:
            super().reported(report)

    def _forget(self) -> None:
        self._said.clear()
        self._kept.clear()
        self._mark = None

    def _take_over(self, message: Message) -> None:
        place = message.partition, message.offset
        self.office.lag = None
        self.office.diary.append(Entry(self.name, place, bytes(message.value), message.key))
        fate = self.chance.random() if self.site.is_safety_phase else 0.0
        if fate < 0.7:
            self._ack(message)
        elif fate < 0.8:
            self._kept.append(message)
        elif fate < 0.9:
            message.nack(self.chance.choice([0, 0.1]))
        elif fate < 0.93 and self.office.rejects:
            self.office.rejected.setdefault(place, False)
            self._said.append(place)
            self._rejected.add(place)
            message.reject("for no reason")
        # Others lie about until their lease is over.

    def _ack(self, message: Message) -> None:
        self._said.append((message.partition, message.offset))
        self._rejected.discard(self._said[-1])  # it has come again
        message.ack()

    def _commit(self) -> None:
        if not self.site.is_safety_phase and self.office.lag != 0:
            self._ask_for_lag()
        if self._mark is not None:
            return
        kept, self._kept = self._kept, []
        for message in kept:
            self._ack(message)
        said, self._said = self._said, []
        self._mark = self._shared.acked_so_far(), said
        self._look(self.life)

    def _look(self, life: int) -> None:
        if life != self.life or self._mark is None or self._shared.failure is not None:
            return
        mark, said = self._mark
        try:
            if not self._shared.are_committed(mark):
                self._shared.commits.add(partial(self._look, life))
                return
        except LeaseLost:  # it is not said of which, and may be one that was said since
            self.mended["leases lost"] += 1
            self._said.clear()
        else:
            self.office.diary += (Entry(self.name, place, None) for place in said)
            for place in self._rejected.intersection(said):
                self.office.rejected[place] = True
            self.site.clients_moved = True
        self._mark = None

    def _ask_for_lag(self) -> None:
        question, known = topics.lag(self.topic, self.office.index), len(self.office.diary)

        def answered(outcome: frames.Indexes | HocketError) -> None:
            if isinstance(outcome, UnknownTopic | RootAway | NoConnection | ReplyLost):
                return  # it is asked again
            if isinstance(outcome, HocketError):
                raise Unexpected(f"{self.name} was answered {outcome!r}")
            if known != len(self.office.diary):
                return
            try:
                self.office.lag = question.result([outcome])
            except UnknownIndex:
                if known:  # else nobody could subscribe yet
                    raise

        self.ask(question.part(""), answered)
