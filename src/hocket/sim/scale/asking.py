"""Lookups of random keys by random nodes, compared with the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hocket.core.ring.circle import SIZE
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Located, NotLocated
from hocket.core.ring.messages import GetCloser
from hocket.core.ring.settings import SECOND
from hocket.sim.scale.statistics import mean, percentile
from hocket.sim.scale.world import World


@dataclass(slots=True)
class Answers:
    """The answers to some lookups, counted.

    An answer is right if the first living node that it names is the key's successor, either when
    the key was asked for or when the answer came. A client tries the named nodes in turn.
    """

    asked: int = 0
    right: int = 0
    dead_first: int = 0  # right answers that name a dead node before the living one
    passed_over: int = 0  # answers with another living node: a newcomer is not known there yet
    dead: int = 0  # answers in which all named nodes are dead
    unfound: int = 0  # lookups that were given up, or not answered at all
    hops: list[int] = field(default_factory=list)
    duration_us: list[int] = field(default_factory=list)
    probes: int = 0  # questions sent for these lookups
    wasted: int = 0  # of these questions, those sent to dead nodes

    @property
    def right_share(self) -> float:
        return self.right / self.asked if self.asked else 0.0

    @property
    def mean_hops(self) -> float:
        return mean(self.hops)

    @property
    def p99_hops(self) -> int:
        return round(percentile(self.hops, 0.99))

    @property
    def wasted_each(self) -> float:
        return self.wasted / self.asked if self.asked else 0.0


class Asking:
    """Looks up about `per_second` random keys a second, until it is stopped or no node is left."""

    def __init__(self, world: World, per_second: float, *, askers: Sequence[str] = ()) -> None:
        self.answers = Answers()
        self._world = world
        self._every_us = SECOND / per_second
        self._askers = askers  # the nodes that ask; empty: all nodes
        self._chance = world.scheduler.random("keys")
        self._answers_of: dict[int, Answers] = {}  # by key: where a lookup under way is counted
        self._stopped = False
        world.wires.watches[GetCloser] = self._probe
        self._next()

    def stop(self) -> None:
        self._stopped = True

    def turn_over(self) -> Answers:
        """Begin a new count, and return the old one.

        An answer is counted where its lookup was, even if it comes later.
        """
        former, self.answers = self.answers, Answers()
        return former

    def _next(self) -> None:
        wait_us = round(self._chance.expovariate(1) * self._every_us)
        self._world.scheduler.after(wait_us, self._ask)

    def _ask(self) -> None:
        if self._stopped:
            return
        asker = self._asker()
        if asker is not None:
            self.ask(asker, self._chance.randrange(SIZE))
        self._next()

    def _asker(self) -> str | None:
        choice: Sequence[str | Contact] = self._askers or self._world.contacts
        if not choice:
            return None
        chosen = choice[self._chance.randrange(len(choice))]
        address = chosen if isinstance(chosen, str) else chosen.address
        return address if self._world.wires.is_alive(address) else None

    def ask(self, address: str, key: int) -> None:
        answers = self.answers
        answers.asked += 1
        answers.unfound += 1  # until the answer comes
        self._answers_of[key] = answers
        before = self._world.owner(key)
        began_us = self._world.now_us()

        def done(result: Located | NotLocated) -> None:
            self._answers_of.pop(key, None)
            if isinstance(result, Located):
                answers.unfound -= 1
                answers.hops.append(len(result.route))
                answers.duration_us.append(self._world.now_us() - began_us)
                self._judge(answers, key, result.owners, before)

        self._world.members[address].find(key, done)

    def _judge(
        self, answers: Answers, key: int, owners: Sequence[Contact], before: Contact | None
    ) -> None:
        wires = self._world.wires
        alive = next((each for each in owners if wires.is_alive(each.address)), None)
        if alive is None:
            answers.dead += 1
        elif alive in (before, self._world.owner(key)):
            answers.right += 1
            answers.dead_first += alive is not owners[0]
        else:
            answers.passed_over += 1

    def _probe(self, _sender: Contact, to: Contact, message: object) -> None:
        assert isinstance(message, GetCloser)
        answers = self._answers_of.get(message.key)
        if answers is not None:
            answers.probes += 1
            if not self._world.wires.is_alive(to.address):
                answers.wasted += 1


def ask_for(world: World, lookups: int, seconds: float) -> Answers:
    """Make `lookups` lookups in `seconds`, then give the last ones the time that they may take."""
    asking = Asking(world, lookups / seconds)
    world.run_seconds(seconds)
    asking.stop()
    world.run_seconds(world.settings.lookup_us_max / SECOND)
    return asking.answers
