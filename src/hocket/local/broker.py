"""A named place where threads meet: one accepts on a port, another connects to it."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

from hocket.deadline import Deadline
from hocket.errors import Closed, PortInUse, Timeout, UnknownBroker, WrongKind
from hocket.local.aio import wait_async
from hocket.local.broker_manager import BrokerManager, chosen_manager
from hocket.local.channel import BUFFER_BYTES, Channel, join
from hocket.local.checks import check_at_least, check_port
from hocket.local.rendezvous import Rendezvous, Side
from hocket.local.waiting import wait

if TYPE_CHECKING:
    from typing import Self


class Broker:
    """Registers itself under `name`; accepts on its own ports and connects to other brokers.

    Whichever side of a meeting comes first waits in the list of the accepting broker until the
    other side comes. `buffer_bytes` is the size of the inbound buffer of every channel end that
    this broker makes.
    """

    def __init__(
        self, name: str, manager: BrokerManager | None = None, *, buffer_bytes: int = BUFFER_BYTES
    ) -> None:
        check_at_least(buffer_bytes, 1, "buffer_bytes")
        self.name = name
        self.manager = chosen_manager(manager)
        self.buffer_bytes = buffer_bytes
        self.closed = False
        # What waits at this broker, by port. One list holds one side only: two would have met.
        self._waiting: dict[int, deque[Rendezvous[Broker]]] = {}
        self._connecting: set[Rendezvous[Broker]] = (
            set()
        )  # our own connects, waiting at other brokers
        self.manager.register(self)

    @property
    def rendezvous(self) -> list[Rendezvous[Broker]]:
        """The sides that still wait at this broker for their partners, oldest first."""
        with self.manager.lock:
            return sorted(chain.from_iterable(self._waiting.values()), key=lambda r: r.order)

    def accept(self, port: int, timeout: float | None = None) -> Channel:
        """Wait for a connect to `port` and return this side's end of the channel.

        Raises PortInUse while another accept waits on the port, Closed when the broker is closed.
        """
        deadline = Deadline(timeout)
        met = self._arrive("accept", self, port)
        if isinstance(met, Channel):
            return met
        return self._wait(met, deadline)

    async def accept_async(self, port: int, timeout: float | None = None) -> Channel:
        """`accept` for a coroutine."""
        deadline = Deadline(timeout)
        met = self._arrive("accept", self, port)
        if isinstance(met, Channel):
            return met
        return await self._wait_async(met, deadline)

    def connect(self, name: str, port: int, timeout: float | None = None) -> Channel:
        """Meet an accept on `port` of the broker called `name`, waiting for it if need be.

        Raises UnknownBroker at once if there is none of that name, WrongKind if it is an event
        broker, and Closed when either broker is closed while waiting.
        """
        deadline = Deadline(timeout)
        met = self._arrive("connect", self._host(name), port)
        if isinstance(met, Channel):
            return met
        return self._wait(met, deadline)

    async def connect_async(self, name: str, port: int, timeout: float | None = None) -> Channel:
        """`connect` for a coroutine."""
        deadline = Deadline(timeout)
        met = self._arrive("connect", self._host(name), port)
        if isinstance(met, Channel):
            return met
        return await self._wait_async(met, deadline)

    def close(self) -> None:
        """Free the name. Accepts here, and connects to or from here, that wait raise Closed.

        Channels that exist already live on.
        """
        with self.manager.lock:
            self.closed = True
            self.manager.unregister(self)
            for rendezvous in [*self.rendezvous, *self._connecting]:
                self._withdraw(rendezvous)
                rendezvous.settle(
                    Closed(
                        f"broker {self.name!r} was closed while {rendezvous.broker.name!r} "
                        f"waited to {rendezvous.side} on port {rendezvous.port}"
                    )
                )

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"broker {self.name!r} is closed")

    def _host(self, name: str) -> Broker:
        self._check_open()
        host = self.manager.require(name)
        if not isinstance(host, Broker):
            raise WrongKind(f"{name!r} is an event broker; connect to it from one of its kind")
        return host

    def _arrive(self, side: Side, host: Broker, port: int) -> Channel | Rendezvous[Broker]:
        """Meet the partner if one waits already, else wait in the host's list."""
        check_port(port)
        with self.manager.lock:
            self._check_open()
            if host.closed:
                raise UnknownBroker(f"broker {host.name!r} has just been closed")
            waiting = host._waiting.get(port)
            if waiting and waiting[0].side != side:
                partner = waiting[0]
                self._withdraw(partner)
                ours, theirs = join(self.buffer_bytes, partner.broker.buffer_bytes)
                partner.settle(theirs)
                return ours
            if waiting and side == "accept":
                raise PortInUse(f"another accept waits on port {port} of broker {self.name!r}")
            rendezvous = Rendezvous(side, self, host, port)
            host._waiting.setdefault(port, deque()).append(rendezvous)
            if host is not self:
                self._connecting.add(rendezvous)
            return rendezvous

    @staticmethod
    def _withdraw(rendezvous: Rendezvous[Broker]) -> bool:
        """Take a rendezvous off the lists; False if it was not on them any more."""
        host = rendezvous.host
        with host.manager.lock:
            waiting = host._waiting.get(rendezvous.port, ())
            if rendezvous not in waiting:
                return False
            assert isinstance(waiting, deque)
            waiting.remove(rendezvous)
            if not waiting:
                del host._waiting[rendezvous.port]
            rendezvous.broker._connecting.discard(rendezvous)
            return True

    def _wait(self, rendezvous: Rendezvous[Broker], deadline: Deadline) -> Channel:
        try:
            return wait(rendezvous.outcome, rendezvous.waiters, deadline, repr(rendezvous))
        except BaseException as gave_up:  # noqa: BLE001 - raised again below
            return self._met_after_all(rendezvous, gave_up)

    async def _wait_async(self, rendezvous: Rendezvous[Broker], deadline: Deadline) -> Channel:
        try:
            return await wait_async(
                rendezvous.outcome, rendezvous.waiters, deadline, repr(rendezvous)
            )
        except BaseException as gave_up:  # noqa: BLE001 - raised again below
            return self._met_after_all(rendezvous, gave_up)

    def _met_after_all(self, rendezvous: Rendezvous[Broker], gave_up: BaseException) -> Channel:
        """Give up, unless the partner came at this very moment: then the channel is used."""
        if self._withdraw(rendezvous):
            raise gave_up
        if not isinstance(gave_up, Timeout):  # cancelled or interrupted: nobody uses the channel
            rendezvous.abandon()
            raise gave_up
        channel = rendezvous.outcome()
        assert channel is not None, "off the list means settled: both happen under one lock"
        return channel

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Broker {self.name!r}{', closed' if self.closed else ''}>"
