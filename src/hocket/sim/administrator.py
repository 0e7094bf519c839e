"""Topics and users are made, altered and deleted, by clients that ask at any machine.

An administrator makes one change after the other, each of something that nobody else touches. It
keeps what each may be now: after an acknowledgement one thing is sure, after a failure or a lost
connection it may be either, and then the administrator leaves it alone. After an acknowledgement it
reads what it has written; by the same connection it must find it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hocket.client_core.calls import access, topics
from hocket.errors import (
    Busy,
    HocketError,
    NoConnection,
    ReplyLost,
    RootAway,
    ShuttingDown,
    StorageFull,
    StoreStopped,
    UnknownTopic,
)
from hocket.model import TopicConfig
from hocket.sim.client import Client, Unexpected

if TYPE_CHECKING:
    from hocket.client_core.calls.call import Call
    from hocket.frames import Topics
    from hocket.sim.machine import Machine
    from hocket.sim.site import Site

State = tuple[str, ...] | None  # what is to be seen of a thing; None: it is not there
CONFIG = TopicConfig(partitions=1, memory_retention_us=2_000_000, segment_bytes_max=4096)
NOT_DONE = (RootAway, Busy, ShuttingDown, NoConnection, ReplyLost, StorageFull, StoreStopped)


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
        self._made = 0
        self._busy = ""  # the thing whose change is under way
        super().__init__(site, machine, f"administrator {number}")
        self._later()

    @property
    def idle(self) -> bool:
        return not self._busy

    def another_machine(self) -> Machine:
        return self.some_machine()

    def _later(self) -> None:
        delay_us = round(self.chance.expovariate(1 / self.every_us))
        self.site.scheduler.after(max(delay_us, 1000), self._work)

    def _work(self) -> None:
        if self.stopped:
            return
        self._later()
        if self._busy or self.router.first.state != "ready":
            return
        if self.chance.random() < 0.3:
            self.move_to(self.some_machine())  # to ask there from now on
            return
        sure = [name for name, states in self.things.items() if states not in ({None},)]
        sure = [name for name in sure if len(self.things[name]) == 1]
        if not sure or self.chance.random() < 0.5:
            self._create()
        else:
            self._change(self.chance.choice(sure))

    def _create(self) -> None:
        self._made += 1
        name = f"a{self.number}.{self._made}"
        if self.chance.random() < 0.7:
            mark = self.chance.randrange(1 << 20, 1 << 30)
            config = replace(CONFIG, disk_bytes_max=mark)
            create = topics.create_topic(name, config, exist_ok=False)
            self._attempt(f"topic {name}", _topic(mark), create)
        else:
            create_user = access.create_user(name, ["admin"])
            self._attempt(f"user {name}", ("user", "admin"), create_user)

    def _change(self, thing: str) -> None:
        kind, _, name = thing.partition(" ")
        if kind == "topic" and self.chance.random() < 0.6:
            mark = self.chance.randrange(1 << 20, 1 << 30)
            config = replace(CONFIG, disk_bytes_max=mark)
            self._attempt(thing, _topic(mark), topics.alter_topic(name, config, CONFIG))
        elif kind == "topic":
            self._attempt(thing, None, topics.delete_topic(name, missing_ok=False))
        elif self.chance.random() < 0.6 or self._sure_users() < 2:  # an admin has to stay
            self._attempt(thing, ("user", "admin"), access.renew_token(name))
        else:
            self._attempt(thing, None, access.delete_user(name))

    def _sure_users(self) -> int:
        return sum(states == {("user", "admin")} for states in self.things.values())

    def _attempt(self, thing: str, wanted: State, call: Call[Any]) -> None:
        self._busy = thing
        self.things.setdefault(thing, {None}).add(wanted)
        self.ask(call, partial(self._answered, thing, wanted))

    def _answered(self, thing: str, wanted: State, outcome: object) -> None:
        self._busy = ""
        if isinstance(outcome, HocketError):
            if not isinstance(outcome, NOT_DONE):
                raise Unexpected(f"{self.name} was answered {outcome!r} about {thing}")
            if not outcome.may_have_happened and len(self.things[thing]) > 1:
                self.things[thing].discard(wanted)
            return
        self.done += 1
        self.things[thing] = {wanted}
        self._read(thing, wanted)

    def _read(self, thing: str, wanted: State) -> None:
        """What was acknowledged here can be read here."""
        kind, _, name = thing.partition(" ")
        if self.asked is not None and self.asked.session is not self.router.first:
            self.mended["read elsewhere"] += 1  # another node was asked, while there was no root
        elif kind == "topic":
            self._busy = thing
            link = self.router.first.link
            self.ask(topics.describe(name).part(""), partial(self._described, thing, wanted, link))

    def _described(
        self, thing: str, wanted: State, link: int | None, outcome: Topics | HocketError
    ) -> None:
        self._busy = ""
        found: State = None
        if not isinstance(outcome, HocketError):
            found = _topic(outcome.topics[0].config.disk_bytes_max)
        elif isinstance(outcome, NoConnection | RootAway):
            return  # of what was deleted, a node without root cannot say that it is not there
        elif not isinstance(outcome, UnknownTopic):
            raise Unexpected(f"{self.name} was answered {outcome!r} about {thing}")
        if link != self.router.first.link:  # asked again, and perhaps of a node that is behind
            self.mended["read elsewhere"] += 1
        elif found != wanted:
            raise Unexpected(
                f"{self.name} was told by {self.router.first.node_id} that {thing} is {wanted}, "
                f"and reads there that it is {found}"
            )
