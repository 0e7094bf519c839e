"""Clerks that share an index in the simulated world, and commit: the production client, whole.

`simulated_shares` speaks frames by itself, so that no client repairs what the broker gets wrong.
Here it is the client that is looked at, together with the broker: what a commit has said must hold.
A clerk is a session and a subscription core over the simulated network, with an application that
takes messages, says something about them, and commits now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from hocket import frames
from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.message import Message
from hocket.client_core.outbox import Arm, Dial, HangUp, Outbox, Send, Tell, Wake
from hocket.client_core.session.session import Session
from hocket.client_core.sharing.core import Mark, SharedCore
from hocket.client_core.sharing.message import SharedBatch, SharedMessage
from hocket.errors import LeaseLost, NoConnection
from hocket.frames import Frame
from hocket.model import Mode, Start
from hocket.timers import Timer
from tests.support.node.simulated import SECOND, TOPIC, World
from tests.support.node.simulated_shares import KeyedProducer

LEASE_US = SECOND
Place = tuple[int, int]  # partition and offset


@dataclass
class Ledger:
    """What all clerks were told, and what must follow from it."""

    committed: dict[Place, str] = field(default_factory=dict)  # place -> whose commit
    values: dict[Place, bytes] = field(default_factory=dict)
    last_us: int = 0  # when a message was last handed out
    looked: Counter[str] = field(default_factory=Counter)

    def handed_out(self, clerk: Clerk, message: Message) -> None:
        place = message.partition, message.offset
        assert place not in self.committed, (
            f"{place} is handed to {clerk.name}, delivery {message.delivery_count}, though "
            f"{self.committed[place]} has acked and committed it"
        )
        assert self.values.setdefault(place, message.value) == message.value
        self.last_us = clerk.world.scheduler.now_us()
        self.looked["handed out"] += 1
        self.looked["again"] += message.delivery_count > 1


class SlowProducer(KeyedProducer):
    """There is something to do while trouble comes."""

    PACE_US = 300_000


class SimLink:
    """One connection of a clerk, as the network sees it."""

    def __init__(self, clerk: Clerk, number: int) -> None:
        self._clerk = clerk
        self.number = number
        self.connection = clerk.world.network.connect(self)

    def received(self, frame: Frame, payload: memoryview) -> None:
        self._clerk.turn(partial(self._clerk.session.received, self.number, frame, payload))

    def lost(self) -> None:
        self._clerk.turn(partial(self._clerk.session.link_lost, self.number, NoConnection("cut")))


@dataclass(eq=False)
class Commit:
    mark: Mark
    settled: list[Place]  # what was acked or rejected before it


class Clerk:
    def __init__(
        self, world: World, name: str, ledger: Ledger, mode: Mode, *, max_deliveries: int
    ) -> None:
        self.world = world
        self.name = name
        self.ledger = ledger
        self.random = world.scheduler.random(f"clerk {name}")
        self.patience = 0.1  # how often it just lets a message lie
        self.away_until_us = 0
        self.hands: list[Message] = []
        self.settled: dict[Place, None] = {}  # acked or rejected since the last commit
        self._commits: list[Commit] = []  # under way
        self.link: SimLink | None = None
        self._outbox = Outbox(world.scheduler.random(f"session {name}"))
        self.session = Session(self._outbox, target="the simulated node", watched=False, name=name)
        options = SubscriptionOptions(
            index="workers", mode=mode, start=Start("earliest"), credit_bytes=3000, prefetch=8,
            lease_us=LEASE_US, max_deliveries=max_deliveries,
        )  # fmt: skip
        self.core = SharedCore(
            self.session, TOPIC, options, message=SharedMessage, batch=SharedBatch,
            arouse=lambda progress: self.core.arouse(progress),
        )  # fmt: skip
        self.turn(self.session.start)
        self.turn(self.core.open)
        self._work()

    # --- the session's driver --------------------------------------------------------------------

    def turn(self, act: Callable[[], object]) -> None:
        scheduler = self.world.scheduler
        self._outbox.now_us = scheduler.now_us()
        act()
        effects = self._outbox.effects
        while effects:
            effect = effects.popleft()
            if isinstance(effect, Dial):
                delay_us = self.random.randrange(1, 2000)
                scheduler.after(delay_us, partial(self._connect, effect.link))
            elif isinstance(effect, Send):
                self._send(effect)
            elif isinstance(effect, HangUp):
                self._hang_up(effect)
            elif isinstance(effect, Arm):
                delay_us = max(0, effect.due_us - scheduler.now_us())
                scheduler.after(delay_us, partial(self._due, effect.timer))
            elif isinstance(effect, Wake):
                effect.wake_ups.carry_out()
            elif isinstance(effect, Tell):
                effect.tell()

    def _connect(self, number: int) -> None:
        if self.world.scheduler.now_us() < self.away_until_us:
            self.turn(partial(self.session.link_lost, number, NoConnection("away")))
            return
        link = SimLink(self, number)
        if link.connection is None:
            error = NoConnection("nobody is there")
            self.turn(partial(self.session.link_lost, number, error))
        else:
            self.link = link
            self.turn(partial(self.session.link_opened, number))

    def _send(self, effect: Send) -> None:
        assert self.link is not None
        assert self.link.number == effect.link
        assert self.link.connection is not None
        self.sent(effect.frame)
        payload = b"".join(effect.payload)
        self.world.network.send_to_node(self.link.connection, effect.frame, payload)

    def _hang_up(self, effect: HangUp) -> None:
        if self.link is not None and self.link.number == effect.link:
            assert self.link.connection is not None
            self.world.network.cut(self.link.connection)

    def _due(self, timer: Timer) -> None:
        if not timer.cancelled:
            self.turn(timer)

    def cut(self, away_us: int) -> None:
        """Its connection breaks, and it does not come back before so long."""
        self.away_until_us = self.world.scheduler.now_us() + away_us
        if self.link is not None and self.link.connection is not None:
            self.world.network.cut(self.link.connection)

    @property
    def is_unanswered(self) -> bool:
        """The broker was told of acks or rejects, and has not answered."""
        return any(
            not telling.waits and telling.verdict.action in ("ack", "reject")
            for telling in self.core._settlements._open.values()
        )

    def sent(self, frame: Frame) -> None:
        if isinstance(frame, frames.Settle) and frame.again:
            self.ledger.looked[f"{frame.action} again"] += 1

    # --- the application -------------------------------------------------------------------------

    def _work(self) -> None:
        self.world.scheduler.after(self.random.randrange(500, 30_000), self._work)
        self.turn(self._do_something)

    def _do_something(self) -> None:
        self._look_at_commits()
        chance = self.random.random()
        if chance < 0.5:
            self._take()
        elif chance < 0.8:
            self._settle()
        elif len(self._commits) < 2:
            self._commit()

    def _take(self) -> None:
        if self.random.random() < 0.3:
            batch = self.core.next_batch()
            messages = [] if batch is None else batch.messages()
        else:
            found = (self.core.next_message() for _ in range(self.random.randrange(1, 6)))
            messages = [message for message in found if message is not None]
        for message in messages:
            self.ledger.handed_out(self, message)
            if self.random.random() >= self.patience:
                self.hands.append(message)

    def _settle(self) -> None:
        self.random.shuffle(self.hands)
        count = self.random.randrange(0, 9)
        chosen, self.hands = self.hands[:count], self.hands[count:]
        for message in chosen:
            chance = self.random.random()
            place = message.partition, message.offset
            if chance < 0.08:
                message.nack(self.random.choice([0, 0.05, 0.3]))
            elif chance < 0.14:
                message.extend()
                self.hands.append(message)
            elif chance < 0.18:
                message.reject("I do not like it")
                self.settled[place] = None
            else:
                message.ack()
                self.settled[place] = None

    def _commit(self) -> None:
        self._commits.append(Commit(self.core.acked_so_far(), list(self.settled)))

    def _look_at_commits(self) -> None:
        for commit in list(self._commits):
            try:
                if not self.core.are_committed(commit.mark):
                    continue
            except LeaseLost:
                # It says how many were refused, and names a few: what was settled is in doubt. (A
                # commit that was under way meanwhile has to say so too.)
                self.ledger.looked["lease lost"] += 1
                self.settled.clear()
            else:
                self.ledger.looked["commits"] += 1
                for place in commit.settled:
                    self.ledger.committed[place] = self.name
                    self.settled.pop(place, None)
            self._commits.remove(commit)
