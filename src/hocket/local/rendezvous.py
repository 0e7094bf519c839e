"""The meeting of one accept and one connect: whichever comes first waits for the other.

Rule 1: who comes, who gives up and which broker closes is decided under the managers' one lock, so
        a rendezvous has exactly one outcome.
Rule 2: the outcome is final. A rendezvous that was met or given up is not used again.

A broker makes a rendezvous for a side that comes to a port and finds nobody there, and keeps it in
the list of the accepting broker, the host. A rendezvous without a host is anybody's: whoever shares
the object meets there.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

from hocket.deadline import Deadline
from hocket.errors import BusyResource, Closed, HocketError, Timeout, WrongKind, WrongType
from hocket.local.aio import wait_async
from hocket.local.broker_manager import AnyBroker, BrokerManager, is_broker
from hocket.local.channel import LOCAL, Channel, join
from hocket.local.waiting import Waiters, wait

Side = Literal["accept", "connect"]

_arrivals = count()


@runtime_checkable
class Visitor(AnyBroker, Protocol):
    """A broker, as a rendezvous sees it: it comes, and may have to wait."""

    @property
    def buffer_bytes(self) -> int: ...

    @property
    def way(self) -> str:
        """How bytes come from it: see `Channel.way`."""

    def check_open(self) -> None:
        """Raise Closed if the broker is closed."""

    def begins_to_wait(self, rendezvous: Rendezvous[Any]) -> None:
        """This broker waits there; when it is closed, it calls `call_off`. The lock is held."""

    def has_waited(self, rendezvous: Rendezvous[Any]) -> None:
        """The wait is over, whatever came of it. The lock is held."""


B = TypeVar("B", bound=Visitor)  # the kind of broker that meets


class Rendezvous(Generic[B]):
    """The meeting of one accept and one connect; the side that comes first waits for the other.

    `side` says which side has come ("accept" or "connect", None while nobody has), `broker` whose
    it is. In a rendezvous that a broker made, `host` is the accepting broker and `port` its port;
    one of your own has neither: threads that share it meet there, without a port.

    It happens once: after it was met or given up, `accept` and `connect` raise Closed.
    """

    __slots__ = ("_outcome", "_over", "broker", "host", "order", "port", "side", "waiters")

    def __init__(self) -> None:
        self.side: Side | None = None
        self.broker: B | None = None
        self.host: B | None = None
        self.port: int | None = None
        self.order = next(_arrivals)
        self.waiters = Waiters()
        self._over = False
        self._outcome: Channel | HocketError | None = None

    def accept(self, broker: B, timeout: float | None = None) -> Channel:
        """Meet the connect of this rendezvous, waiting for it if need be; our end of the channel.

        Raises BusyResource if an accept has come already, Timeout, and Closed when the rendezvous
        is over or the broker is closed.
        """
        return self._meet("accept", broker, timeout)

    def connect(self, broker: B, timeout: float | None = None) -> Channel:
        """Meet the accept of this rendezvous, waiting for it if need be; as `accept`."""
        return self._meet("connect", broker, timeout)

    async def accept_async(self, broker: B, timeout: float | None = None) -> Channel:
        """`accept` for a coroutine."""
        return await self._meet_async("accept", broker, timeout)

    async def connect_async(self, broker: B, timeout: float | None = None) -> Channel:
        """`connect` for a coroutine."""
        return await self._meet_async("connect", broker, timeout)

    def _meet(self, side: Side, broker: B, timeout: float | None) -> Channel:
        _check_visitor(broker)
        deadline = Deadline(timeout)
        met = self.arrive(side, broker)
        return self.wait(deadline) if met is None else met

    async def _meet_async(self, side: Side, broker: B, timeout: float | None) -> Channel:
        _check_visitor(broker)
        deadline = Deadline(timeout)
        met = self.arrive(side, broker)
        return await self.wait_async(deadline) if met is None else met

    # --- for the brokers ---------------------------------------------------------------------

    def arrive(self, side: Side, broker: B) -> Channel | None:
        """Come: this side's end of the channel if the other side waits, None if we have to."""
        with BrokerManager.lock:
            broker.check_open()
            if self._over:
                raise Closed("this rendezvous is over: it was met or given up; make a new one")
            if side == "accept" and self.host is not None and broker is not self.host:
                raise WrongKind(
                    f"{broker.name!r} cannot accept on port {self.port} of {self.host.name!r}"
                )
            if self.broker is None:
                self.side, self.broker = side, broker
                broker.begins_to_wait(self)
                return None
            if self.side == side:
                raise BusyResource(f"{self.broker.name!r} waits to {side} here already")
            ours, theirs = join(broker.buffer_bytes, self.broker.buffer_bytes)
            # Of two that meet, one may be of another process. Whoever waits is told after this.
            ours.way = theirs.way = broker.way if broker.way != LOCAL else self.broker.way
            self._end(theirs)
            return ours

    def wait(self, deadline: Deadline) -> Channel:
        """Wait for the other side, having come first."""
        try:
            return wait(self.outcome, self.waiters, deadline, repr(self))
        except BaseException as gave_up:  # noqa: BLE001 - raised again below
            return self._met_after_all(gave_up)

    async def wait_async(self, deadline: Deadline) -> Channel:
        """`wait` for a coroutine."""
        try:
            return await wait_async(self.outcome, self.waiters, deadline, repr(self))
        except BaseException as gave_up:  # noqa: BLE001 - raised again below
            return self._met_after_all(gave_up)

    def call_off(self, reason: HocketError) -> None:
        """A broker is closed: the side that waits raises `reason`. The lock is held."""
        self._end(reason)

    @property
    def is_over(self) -> bool:
        """Whether it was met or given up."""
        return self._over

    def outcome(self) -> Channel | None:
        """The first side's end of the channel, None until settled. Raises why there is none."""
        outcome = self._outcome  # looked at once: another thread may settle it at any moment
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _end(self, outcome: Channel | HocketError | None) -> None:
        """Decide the outcome, and wake the side that waits; the lock is held."""
        assert self.broker is not None, "a rendezvous ends after somebody has come"
        self._over = True
        self._outcome = outcome
        self.broker.has_waited(self)
        self.waiters.wake_all()

    def _met_after_all(self, gave_up: BaseException) -> Channel:
        """Give up, unless the partner came at this very moment: then the channel is used."""
        with BrokerManager.lock:
            if not self._over:
                self._end(None)
                raise gave_up
        if not isinstance(gave_up, Timeout):  # cancelled or interrupted: nobody uses the channel
            if isinstance(self._outcome, Channel):
                self._outcome.disconnect()  # so that the partner knows
            raise gave_up
        channel = self.outcome()
        assert channel is not None, "over, and not given up: both are decided under one lock"
        return channel

    def __repr__(self) -> str:
        where = "" if self.host is None else f" on port {self.port}"
        if self._over:
            return f"<Rendezvous{where}: over>"
        if self.broker is None:
            return f"<Rendezvous{where}: nobody has come>"
        return f"<Rendezvous: {self.broker.name!r} waits to {self.side}{where}>"


def _check_visitor(broker: object) -> None:
    if isinstance(broker, Visitor):
        return
    if is_broker(broker):
        raise WrongKind(f"{broker.name!r} is an event broker; threads meet at a rendezvous")
    raise WrongType(f"a rendezvous is for brokers, not for a {type(broker).__name__}")
