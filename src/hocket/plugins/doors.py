"""Doors of plug-ins: something that listens beside the ports of a node, and what a door may use.

A door runs on threads of its own. It touches the node by `on_loop` alone, or is a client of it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from hocket import frames
from hocket.addresses import Address
from hocket.client.connection.embedded import EmbeddedConnector
from hocket.core.metadata.roster import EVERYTHING
from hocket.core.session.session import Caller
from hocket.deadline import in_seconds
from hocket.errors import HocketError, NotAllowed, Timeout, from_code
from hocket.frames import Frame
from hocket.model import Action
from hocket.node.broker import Broker

T = TypeVar("T")
ANSWER_SECONDS = 10.0


def called_on_loop(broker: Broker, call: Callable[[], T], seconds: float) -> T:
    """What the node's own thread has got by calling this. Raises Timeout."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            outcome.set_exception(error)

    broker.post(run)
    try:
        return outcome.result(seconds)
    except TimeoutError:
        raise Timeout(f"the node has not answered within {in_seconds(seconds)}") from None


class Door(Protocol):
    address: str  # where it listens, for people; empty: nowhere

    def renew_tls(self) -> None:
        """The files of the certificates are new (SIGHUP): read `Surroundings.tls` again."""

    def close(self) -> None:
        """Stop listening, and return when no thread is left."""


class Surroundings:
    """What a door is given. `tls` reads the node's certificates; None: it speaks no TLS."""

    def __init__(
        self,
        broker: Broker,
        tls: Callable[[], ssl.SSLContext] | None = None,
        check: Callable[[Address], None] = lambda _listen: None,
    ) -> None:
        self.broker = broker
        self.tls = tls
        self.check = check  # raises if the node must not listen there: beyond loopback, unprotected

    def is_ready(self) -> bool:
        """Whether the node serves clients."""
        return self.on_loop(lambda: self.broker.serves_clients)

    def on_loop(self, call: Callable[[], T]) -> T:
        """Have the node's own thread call this, and wait for it. It must be short."""
        return called_on_loop(self.broker, call, ANSWER_SECONDS)

    def connector(self, address: str) -> EmbeddedConnector:
        """For a client of the node that acts for somebody at this address, who has to log in."""
        return EmbeddedConnector(self.broker, Caller(address=address))

    def admit(self, token: str, address: str, action: Action, topic: str = EVERYTHING) -> None:
        """Raises NotAllowed unless the owner of the token may do this; without users all may."""
        answer: Future[Frame | HocketError] = Future()

        def received(frame: Frame, _payload: memoryview) -> None:
            if not answer.done():
                answer.set_result(frame)

        def lost(error: HocketError) -> None:
            if not answer.done():
                answer.set_result(error)

        link = self.broker.open_link(received, lost, Caller(address=address))
        try:
            link.send(frames.Hello(1, client="a door", token=token))
            try:
                said = answer.result(ANSWER_SECONDS)
            except TimeoutError:
                raise Timeout("the node has not looked at the token in time") from None
            if isinstance(said, HocketError):
                raise said
            if isinstance(said, frames.Failure):
                raise from_code(said.code, said.message)
            decision = self.on_loop(lambda: self._decide(link.number, action, topic))
            if decision:
                raise NotAllowed(decision)
        finally:
            link.close()

    def _decide(self, number: int, action: Action, topic: str) -> str:
        session = self.broker.node.wiring.sessions.get(number)
        if session is None:
            return "the connection has ended"
        decision = session.rights.decide(action, topic)
        return "" if decision.allowed else decision.reason
