"""A client of a simulated machine: connects, greets, asks, and begins again when it is cut off."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hocket import frames
from hocket.errors import ShuttingDown

if TYPE_CHECKING:
    from hocket.sim.machine import Machine
    from hocket.sim.site import Site

RETRY_US = 20_000


class Unexpected(AssertionError):
    """A client was sent a frame that no client may be sent."""


class Client:
    """Connects to one machine, greets, asks, and begins again when the connection is lost."""

    def __init__(self, site: Site, machine: Machine, name: str) -> None:
        self.site = site
        self.machine = machine
        self.chance = site.scheduler.random(name)
        self.name = name
        self.connection: int | None = None
        self._last_request = 0
        self._answers: dict[int, Callable[[frames.Frame], None]] = {}
        self._connect()

    def _connect(self) -> None:
        self.connection = self.machine.network.connect(self)
        if self.connection is None:
            self.site.scheduler.after(RETRY_US, self._connect)
        else:
            self.ask(partial(frames.Hello, client=self.name), lambda _answer: self.begin())

    def begin(self) -> None:
        """The broker has answered the greeting."""

    def ask(
        self, make: Callable[[int], frames.Frame], answered: Callable[[frames.Frame], None]
    ) -> None:
        self._last_request += 1
        self._answers[self._last_request] = answered
        self.send(make(self._last_request))

    def send(self, frame: frames.Frame, payload: bytes = b"") -> None:
        if self.connection is not None:
            self.machine.network.send_to_node(self.connection, frame, payload)

    def received(self, frame: frames.Frame, payload: memoryview) -> None:
        if frame.request:
            self._answers.pop(frame.request)(frame)
        else:
            self.told(frame, payload)

    def told(self, frame: frames.Frame, payload: memoryview) -> None:
        del payload
        # Whoever is not greeted yet when the machine goes is told so by a refusal.
        is_going = isinstance(frame, frames.Failure) and frame.code == ShuttingDown.code
        if not is_going and not isinstance(frame, frames.Goodbye):
            raise Unexpected(f"{self.name} was told {frame}")

    def lost(self) -> None:
        self.connection = None
        self._answers.clear()
        self.site.scheduler.after(1 + self.chance.randrange(RETRY_US), self._connect)
