"""Topics and users are made, altered and deleted, by clients that ask at any machine.

An administrator makes one change after the other, each of something that nobody else touches. It
keeps what each may be now: after an acknowledgement one thing is sure, after a failure or a lost
connection it may be either, and then the administrator leaves it alone. After an acknowledgement it
reads at the same machine what it has written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hocket import frames
from hocket.model import TopicConfig
from hocket.sim.client import RETRY_US, Client, Unexpected

if TYPE_CHECKING:
    from hocket.sim.machine import Machine
    from hocket.sim.site import Site

State = tuple[str, ...] | None  # what is to be seen of a thing; None: it is not there
CONFIG = TopicConfig(partitions=1, memory_retention_us=2_000_000, segment_bytes_max=4096)
NOT_DONE = ("rootAway", "busy", "shuttingDown")


def states_in(snapshot: bytes) -> dict[str, State]:
    """What is to be seen of topics and users in a snapshot of the metadata, by name."""
    parts = json.loads(snapshot)
    topics = parts.get("catalogue", {}).get("topics", [])
    users = parts.get("access", {}).get("users", [])
    return {
        **{f"topic {each['name']}": _topic(each["config"]["disk_bytes_max"]) for each in topics},
        **{f"user {each['name']}": ("user", *each["roles"]) for each in users},
    }


def _topic(mark: int | None) -> State:
    return "topic", str(mark)


class Administrator(Client):
    def __init__(self, site: Site, machine: Machine, number: int, every_us: int) -> None:
        self.number = number
        self.every_us = every_us
        self.stopped = False
        self.things: dict[str, set[State]] = {}  # what each may be
        self.done = 0
        self.greeted = False
        self._goal = machine  # where it is, or goes
        self._made = 0
        self._busy = ""  # the thing whose change is under way
        super().__init__(site, machine, f"administrator {number}")
        self._later()

    @property
    def idle(self) -> bool:
        return not self._busy

    def _later(self) -> None:
        delay_us = round(self.chance.expovariate(1 / self.every_us))
        self.site.scheduler.after(max(delay_us, 1000), self._work)

    def _work(self) -> None:
        if self.stopped:
            return
        self._later()
        if self._busy or self.connection is None or not self.greeted:
            return
        if self.chance.random() < 0.3:
            self._move()
            return
        sure = [name for name, states in self.things.items() if states not in ({None},)]
        sure = [name for name in sure if len(self.things[name]) == 1]
        if not sure or self.chance.random() < 0.5:
            self._create()
        else:
            self._change(self.chance.choice(sure))

    def _move(self) -> None:
        """Ask at another machine from now on."""
        machines = [each for each in self.site.machines if each.up and not each.leaving]
        if not machines:
            return
        self._goal = self.chance.choice(machines)
        if self.connection is None:
            self.machine = self._goal
        else:  # it goes there when it hears that the connection is cut
            self.greeted = False
            self.machine.network.cut(self.connection)

    def _create(self) -> None:
        self._made += 1
        name = f"a{self.number}.{self._made}"
        if self.chance.random() < 0.7:
            mark = self.chance.randrange(1 << 20, 1 << 30)
            config = replace(CONFIG, disk_bytes_max=mark)
            create = partial(frames.CreateTopic, topic=name, config=config)
            self._begin(f"topic {name}", _topic(mark), create)
        else:
            create_user = partial(frames.CreateUser, name=name, roles=("admin",))
            self._begin(f"user {name}", ("user", "admin"), create_user)

    def _change(self, thing: str) -> None:
        kind, _, name = thing.partition(" ")
        if kind == "topic" and self.chance.random() < 0.6:
            mark = self.chance.randrange(1 << 20, 1 << 30)
            config = replace(CONFIG, disk_bytes_max=mark)
            self._begin(thing, _topic(mark), partial(frames.AlterTopic, topic=name, config=config))
        elif kind == "topic":
            self._begin(thing, None, partial(frames.DeleteTopic, topic=name))
        elif self.chance.random() < 0.6 or self._sure_users() < 2:  # an admin has to stay
            self._begin(thing, ("user", "admin"), partial(frames.RenewToken, name=name))
        else:
            self._begin(thing, None, partial(frames.DeleteUser, name=name))

    def _sure_users(self) -> int:
        return sum(states == {("user", "admin")} for states in self.things.values())

    def _begin(self, thing: str, wanted: State, make: Callable[[int], frames.Frame]) -> None:
        self._busy = thing
        self.things.setdefault(thing, {None}).add(wanted)
        self.ask(make, partial(self._answered, thing, wanted))

    def _answered(self, thing: str, wanted: State, answer: frames.Frame) -> None:
        self._busy = ""
        if isinstance(answer, frames.Failure):
            if answer.code not in NOT_DONE:
                raise Unexpected(f"{self.name} was answered {answer} about {thing}")
            if not answer.may_have_happened and len(self.things[thing]) > 1:
                self.things[thing].discard(wanted)
            return
        self.done += 1
        self.things[thing] = {wanted}
        self._read(thing, wanted)

    def _read(self, thing: str, wanted: State) -> None:
        """What was acknowledged here can be read here."""
        kind, _, name = thing.partition(" ")
        if kind == "topic":
            ask = partial(frames.DescribeTopic, topic=name)
            self._busy = thing
            self.ask(ask, partial(self._described, thing, wanted))

    def _described(self, thing: str, wanted: State, answer: frames.Frame) -> None:
        self._busy = ""
        found: State = None
        if isinstance(answer, frames.Topics):
            found = _topic(answer.topics[0].config.disk_bytes_max)
        elif not isinstance(answer, frames.Failure) or answer.code != "unknownTopic":
            raise Unexpected(f"{self.name} was answered {answer} about {thing}")
        if found != wanted:
            raise Unexpected(
                f"{self.name} was told at {self.machine.name} that {thing} is {wanted}, and reads "
                f"there that it is {found}"
            )

    def lost(self) -> None:
        self._busy = ""
        self.greeted = False
        self.machine = self._goal
        super().lost()
        self.site.scheduler.after(RETRY_US, self._leave_if_down)

    def _leave_if_down(self) -> None:
        if not self.machine.up:
            self._move()

    def begin(self) -> None:
        self.greeted = True
