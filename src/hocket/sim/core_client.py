"""A client of the cluster that speaks through the cores of the real one.

It drives the router, the sessions and the producers of `hocket.client_core` as the engines of
`hocket.client` do, over simulated connections and in simulated time. What these cores mend by
themselves would hide what the cluster does wrong, so all of it is counted (`mended`), and whoever
uses this says what must never have to be mended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hocket.addresses import Address
from hocket.client_core.outbox import (
    Arm,
    Dial,
    HangUp,
    Listen,
    Outbox,
    Report,
    Send,
    Tell,
    Wake,
)
from hocket.client_core.session.router import Router
from hocket.errors import NoConnection
from hocket.frames import Frame

if TYPE_CHECKING:
    from hocket.client_core.session.session import Session
    from hocket.sim.machine import Machine
    from hocket.sim.site import Site

RETRY_US = 20_000
DIAL_US = 1_000  # until a link is open, or refused


class SimLink:
    """One link of a client: the far end of a simulated connection."""

    def __init__(self, client: CoreClient, session: Session, number: int, machine: Machine) -> None:
        self._client = client
        self.session = session
        self.number = number
        self.machine = machine
        self.connection: int | None = None
        self.heard = 0

    def open(self) -> None:
        if self.number not in self._client.links:
            return  # it was given up
        self.connection = self.machine.network.connect(self)
        if self.connection is None:
            self._gone("it is down")
        else:
            self._client.turn(partial(self.session.link_opened, self.number))

    def received(self, frame: Frame, payload: memoryview) -> None:
        self.heard += 1
        self._client.turn(partial(self.session.received, self.number, frame, payload))

    def lost(self) -> None:
        self._gone("the connection broke")

    def _gone(self, why: str) -> None:
        self.connection = None
        if self._client.links.pop(self.number, None) is not None:
            error = NoConnection(f"{self.machine.name}: {why}")
            self._client.mended["links"] += 1
            self._client.turn(partial(self.session.link_lost, self.number, error))


class CoreClient:
    """Begins at one machine, and goes on by every other one that it hears of."""

    roams = True  # else it stays with its machine

    def __init__(self, site: Site, machine: Machine, name: str) -> None:
        self.site = site
        self.name = name
        self.chance = site.scheduler.random(name)
        self.mended: Counter[str] = Counter()  # what the cores put right by themselves
        self.links: dict[int, SimLink] = {}
        self.outbox = Outbox(site.scheduler.random(f"client of {name}"))
        self._machine = machine
        self.router = self._begin()

    def _begin(self) -> Router:
        self.router = Router(
            self.outbox, target=self._machine.name, addresses=[_address(self._machine)],
            name=self.name,
        )  # fmt: skip
        self.turn(self.router.first.start)
        return self.router

    def begin_again(self) -> None:
        """The first machine was down when this client began, so that its session is over."""
        if self.router.first.failure is not None:
            self._begin()

    def turn(self, act: Callable[[], object]) -> None:
        self.outbox.now_us = self.site.now_us
        act()
        effects = self.outbox.effects
        while effects:
            effect = effects.popleft()
            if isinstance(effect, Send):
                self._send(effect)
            elif isinstance(effect, Arm):
                self.site.scheduler.at(effect.due_us, partial(self._due, effect))
            elif isinstance(effect, Dial):
                self._dial(effect)
            elif isinstance(effect, HangUp):
                self._hang_up(effect)
            elif isinstance(effect, Listen):
                link = self.links[effect.link]
                link.session.heard(link.number, link.heard)
            elif isinstance(effect, Wake):
                effect.wake_ups.carry_out()
            elif isinstance(effect, Tell):
                effect.tell()
            elif isinstance(effect, Report):
                self.mended["reports"] += 1
        if self.router.first.failure is not None:
            self.site.scheduler.after(RETRY_US, self.begin_again)

    def _due(self, effect: Arm) -> None:
        if not effect.timer.cancelled:
            self.turn(effect.timer)

    def _send(self, effect: Send) -> None:
        link = self.links.get(effect.link)
        if link is not None and link.connection is not None:
            payload = b"".join(effect.payload)
            link.machine.network.send_to_node(link.connection, effect.frame, payload)

    def _dial(self, effect: Dial) -> None:
        session = self.router.sessions.get(effect.session)
        if session is None:
            return
        found = [each for each in self.site.machines if _address(each) == effect.address]
        if not self.roams:
            found = [self._machine]
        if not found:  # the machine that was there has lost its disk, and is another one now
            error = NoConnection(f"nobody is at {effect.address}")
            refused = partial(session.link_lost, effect.link, error)
            self.site.scheduler.after(DIAL_US, partial(self.turn, refused))
            return
        link = SimLink(self, session, effect.link, found[0])
        self.links[effect.link] = link
        self.site.scheduler.after(DIAL_US, link.open)

    def _hang_up(self, effect: HangUp) -> None:
        link = self.links.pop(effect.link, None)
        if link is not None and link.connection is not None:
            link.machine.network.cut(link.connection)


def _address(machine: Machine) -> Address:
    host, _, port = machine.address.partition(":")
    return Address(host, int(port))
