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
    """Right is an answer whose first living node is the key's successor, as things were when it was
    asked for or when it was answered. Whoever wants the key tries the nodes named in turn."""

    asked: int = 0
    right: int = 0
    dead_first: int = 0  # of the right ones: a dead node was named before it
    passed_over: int = 0  # another living node was named: a newcomer is not known there yet
    dead: int = 0  # all nodes named were dead
    unfound: int = 0  # given up, or not answered at all
    hops: list[int] = field(default_factory=list)
    duration_us: list[int] = field(default_factory=list)
    probes: int = 0  # questions sent for these lookups,
    wasted: int = 0  # and those of them sent to dead nodes

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
    """Asks `per_second` keys a second, by chance, until it is stopped or nobody is left."""

    def __init__(self, world: World, per_second: float, *, askers: Sequence[str] = ()) -> None:
        self.answers = Answers()
        self._world = world
        self._every_us = SECOND / per_second
        self._askers = askers  # only these; else anybody
        self._chance = world.scheduler.random("keys")
        self._answers_of: dict[int, Answers] = {}  # by key: lookups that are under way
        self._stopped = False
        world.wires.watches[GetCloser] = self._probe
        self._next()

    def stop(self) -> None:
        self._stopped = True

    def turn_over(self) -> Answers:
        """Count anew from here on; what was counted until now. Late answers go to the old one."""
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
        answers.unfound += 1  # until it is found
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
    """So many lookups, spread over so much time, and time for the last ones to end."""
    asking = Asking(world, lookups / seconds)
    world.run_seconds(seconds)
    asking.stop()
    world.run_seconds(world.settings.lookup_us_max / SECOND)
    return asking.answers
