"""A named place where threads meet: one accepts on a port, another connects to it."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, cast

from hocket.deadline import Deadline
from hocket.errors import Closed, HocketError, PortInUse, UnknownBroker, WrongKind
from hocket.local.broker_manager import (
    AnyBroker,
    BrokerManager,
    HasNames,
    Meeting,
    chosen_manager,
)
from hocket.local.channel import BUFFER_BYTES, LOCAL, Channel
from hocket.local.checks import check_at_least, check_name, check_port
from hocket.local.rendezvous import Rendezvous, Side, Visitor

if TYPE_CHECKING:
    from typing import Self


class Broker:
    """Registers itself under `name`; accepts on its own ports and connects to other brokers.

    Whichever side of a meeting comes first waits in the list of the accepting broker until the
    other side comes. `buffer_bytes` is the size of the inbound buffer of every channel end that
    this broker makes.
    """

    kind = "thread"
    way = LOCAL

    def __init__(
        self,
        name: str,
        manager: BrokerManager | HasNames | None = None,
        *,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        check_name(name)
        check_at_least(buffer_bytes, 1, "buffer_bytes")
        self.name = name
        self.manager = chosen_manager(manager)
        self.buffer_bytes = buffer_bytes
        self.closed = False
        # What waits at this broker, by port. One list holds one side only: two would have met.
        self._waiting: dict[int, deque[Rendezvous[Broker]]] = {}
        # Where this broker waits itself: at other brokers, and at rendezvous of nobody's.
        self._elsewhere: dict[Rendezvous[Broker], None] = {}
        self.manager.reserve(name, self.kind)
        try:
            self.manager.register(self)
        except HocketError:
            self.manager.give_back(name)
            raise

    @property
    def rendezvous(self) -> list[Rendezvous[Broker]]:
        """The sides that still wait at this broker for their partners, oldest first."""
        with self.manager.lock:
            return sorted(chain.from_iterable(self._waiting.values()), key=lambda r: r.order)

    def accept(self, port: int, timeout: float | None = None) -> Channel:
        """Wait for a connect to `port` and return this side's end of the channel.

        Raises PortInUse while another accept waits on the port, or if the manager's ports are
        unique and another broker has it; Closed when the broker is closed.
        """
        deadline = Deadline(timeout)
        met = self._arrive("accept", self, port)
        return met if isinstance(met, Channel) else met.wait(deadline)

    async def accept_async(self, port: int, timeout: float | None = None) -> Channel:
        """`accept` for a coroutine."""
        deadline = Deadline(timeout)
        met = self._arrive("accept", self, port)
        return met if isinstance(met, Channel) else await met.wait_async(deadline)

    def connect(self, name: str | AnyBroker, port: int, timeout: float | None = None) -> Channel:
        """Meet an accept on `port` of the broker called `name`, waiting for it if need be.

        The other broker may be given itself instead of its name. Raises UnknownBroker at once if
        there is none of that name, or if it is closed; WrongKind if it is an event broker; and
        Closed when either broker is closed while waiting.
        """
        deadline = Deadline(timeout)
        met = self._reach(name, port)
        return met if isinstance(met, Channel) else met.wait(deadline)

    async def connect_async(
        self, name: str | AnyBroker, port: int, timeout: float | None = None
    ) -> Channel:
        """`connect` for a coroutine."""
        deadline = Deadline(timeout)
        met = self._reach(name, port)
        return met if isinstance(met, Channel) else await met.wait_async(deadline)

    def close(self) -> None:
        """Free the name. Accepts here, and connects to or from here, that wait raise Closed.

        Channels that exist already live on.
        """
        with self.manager.lock:
            was_open, self.closed = not self.closed, True
            self.manager.unregister(self)
            for rendezvous in [*self.rendezvous, *self._elsewhere]:
                assert rendezvous.broker is not None, "who waits has come"
                where = "" if rendezvous.host is None else f" on port {rendezvous.port}"
                rendezvous.call_off(
                    Closed(
                        f"broker {self.name!r} was closed while {rendezvous.broker.name!r} "
                        f"waited to {rendezvous.side}{where}"
                    )
                )
        if was_open:
            self.manager.give_back(self.name)

    # --- for rendezvous ------------------------------------------------------------------------

    def check_open(self) -> None:
        if self.closed:
            raise Closed(f"broker {self.name!r} is closed")

    def begins_to_wait(self, rendezvous: Rendezvous[Broker]) -> None:
        enter(rendezvous)
        if rendezvous.host is not self:
            self._elsewhere[rendezvous] = None

    def has_waited(self, rendezvous: Rendezvous[Broker]) -> None:
        leave(rendezvous)
        self._elsewhere.pop(rendezvous, None)

    def _reach(self, name: str | AnyBroker, port: int) -> Channel | Meeting:
        """Meet an accept, or where we wait for it now: here, or at a broker elsewhere."""
        check_port(port)
        self.check_open()
        try:
            host = self.manager.require(name)
        except UnknownBroker:
            elsewhere = None
            if isinstance(name, str):
                elsewhere = self.manager.meet_elsewhere(self, name, port)
            if elsewhere is None:
                raise
            return elsewhere
        if not isinstance(host, Broker):
            raise WrongKind(f"{host.name!r} is an event broker; connect to it from one of its kind")
        return self._arrive("connect", host, port)

    def _arrive(self, side: Side, host: Broker, port: int) -> Channel | Rendezvous[Broker]:
        check_port(port)
        return arrive(self, side, host, port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Broker {self.name!r}{', closed' if self.closed else ''}>"


def arrive(visitor: Visitor, side: Side, host: Broker, port: int) -> Channel | Rendezvous[Broker]:
    """Meet the partner if one waits already; else the rendezvous at which the visitor waits now."""
    with BrokerManager.lock:
        visitor.check_open()
        if host.closed:
            raise UnknownBroker(f"broker {host.name!r} has just been closed")
        waiting = host._waiting.get(port)
        if side == "accept":
            host.manager.take_port(host, port)
            if waiting and waiting[0].side == side:
                raise PortInUse(f"another accept waits on port {port} of broker {host.name!r}")
        if waiting and waiting[0].side != side:
            rendezvous = waiting[0]
        else:
            rendezvous = Rendezvous[Broker]()
            rendezvous.host, rendezvous.port = host, port
        met = rendezvous.arrive(side, cast(Broker, visitor))
        return rendezvous if met is None else met


def enter(rendezvous: Rendezvous[Broker]) -> None:
    """Somebody waits there: so says the list of its host. The lock is held."""
    host, port = rendezvous.host, rendezvous.port
    if host is not None and port is not None:
        host._waiting.setdefault(port, deque()).append(rendezvous)


def leave(rendezvous: Rendezvous[Broker]) -> None:
    """Nobody waits there any more; the lock is held."""
    host, port = rendezvous.host, rendezvous.port
    if host is not None and port is not None:
        waiting = host._waiting[port]
        waiting.remove(rendezvous)
        if not waiting:
            del host._waiting[port]
