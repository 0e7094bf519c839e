"""How messages travel between the nodes of a scale run: with a delay, and without faults.

Nodes are points on a square, and a message takes a time that grows with the distance; so some
nodes are near and some far, and a node that prefers near fingers gains by it. What is sent to a
dead node, or across a cut, is lost. Faults of the network are the cluster simulation's business.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import hypot, log

from hocket.core.ring.contact import Contact
from hocket.sim.scheduler import Scheduler

Receive = Callable[[Contact, int, object], None]  # sender, the incarnation it is meant for, what
Watch = Callable[[Contact, Contact, object], None]  # sender, to whom, what


@dataclass(slots=True)
class Delays:
    """One way, in microseconds. As set here: 25 ms in the mean, as between cities."""

    base_us: int = 1_000
    side_us: int = 42_000  # from one edge of the square to the other
    jitter_us: int = 2_000  # the mean of what is added by chance, distributed exponentially


class Wires:
    def __init__(self, scheduler: Scheduler, delays: Delays) -> None:
        self.watches: dict[type, Watch] = {}  # told of every message of a kind, when it is sent
        self._sent: defaultdict[type, int] = defaultdict(int)
        self._after = scheduler.after
        self._delays = delays
        self._random = scheduler.random("delay").random
        self._points: dict[str, tuple[float, float]] = {}
        self._receivers: dict[str, Receive] = {}
        self._side: dict[str, bool] = {}  # while there is a cut: on which side a node is

    def attach(self, address: str, receive: Receive) -> None:
        self._receivers[address] = receive
        if address not in self._points:
            self._points[address] = (self._random(), self._random())

    def detach(self, address: str) -> None:
        """The node is dead: whoever sends to it hears nothing."""
        del self._receivers[address]

    def is_alive(self, address: str) -> bool:
        return address in self._receivers

    def cut(self, side: dict[str, bool]) -> None:
        """Nothing passes from those that are True to those that are False, nor back."""
        self._side = side

    def heal(self) -> None:
        self._side = {}

    @property
    def sent(self) -> dict[str, int]:
        """Messages, by the name of their kind."""
        return {kind.__name__: count for kind, count in self._sent.items()}

    def send(self, sender: Contact, to: Contact, message: object) -> None:
        kind = type(message)
        self._sent[kind] += 1
        if kind in self.watches:
            self.watches[kind](sender, to, message)
        points = self._points
        address = to.address
        if address not in points:
            return
        here = points[sender.address]
        there = points[address]
        delays = self._delays
        delay_us = (
            delays.base_us
            + delays.side_us * hypot(there[0] - here[0], there[1] - here[1])
            - delays.jitter_us * log(1.0 - self._random())
        )
        self._after(int(delay_us), partial(self._deliver, sender, to, message))

    def _deliver(self, sender: Contact, to: Contact, message: object) -> None:
        receive = self._receivers.get(to.address)
        if receive is None:
            return
        side = self._side
        if side and side.get(sender.address) != side.get(to.address):
            return
        receive(sender, to.incarnation, message)
