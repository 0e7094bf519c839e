"""A named place where message queues are made, driven by events alone: no thread but the pump's.

A connect travels as an event: it joins the arrivals of the other broker, is answered on that
broker's pump, and the answer comes back as an event on the pump that it came from. Arrivals are in
a list of their own, so that a broker that closes can refuse them even if its pump drops its events.

Listeners may be any object with some of the methods below; see `listeners`.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Protocol

from hocket.deadline import Deadline
from hocket.errors import Closed, HocketError, PortNotBound, UnknownBroker, WrongKind, WrongType
from hocket.local.aio import wait_async
from hocket.local.broker_manager import AnyBroker, BrokerManager, HasNames, chosen_manager
from hocket.local.checks import check_at_least, check_name, check_port
from hocket.local.event_pump import EventPump
from hocket.local.lane import BYTES_MAX, MESSAGES_MAX, Lane
from hocket.local.listeners import check_listener, tell
from hocket.local.message_queue import MessageQueue
from hocket.local.waiting import Waiters

if TYPE_CHECKING:
    from typing import Self

# Queues get ports from here on, above all that people bind by hand.
FIRST_QUEUE_PORT = 1 << 16


class AcceptListener:
    """Hears of connections to a bound port."""

    def accepted(self, queue: MessageQueue) -> None:
        """A connection was made; `queue` is this side's end."""


class ConnectListener:
    """Hears how a connect ended: one of the two methods is called, once."""

    def connected(self, queue: MessageQueue) -> None:
        """The connection was made; `queue` is this side's end."""

    def refused(self, reason: HocketError) -> None:
        """There is no connection: UnknownBroker, PortNotBound, WrongKind or Closed."""


class Attempt:
    """A connect on its way to its answer, which is an event on the pump that it came from.

    Several may want to answer (the accepting broker, or either broker that closes): `claim` lets
    the first one.
    """

    __slots__ = ("broker", "listener", "port")

    def __init__(self, broker: QueueBroker, port: int, listener: object) -> None:
        self.broker = broker
        self.port = port
        self.listener = listener

    def claim(self) -> bool:
        """True for the first call; the manager's lock is held."""
        return self.broker.asked.pop(self, self) is None

    def meet(self, host: QueueBroker) -> MessageQueue:
        """Make the connection and tell who asked for it; the host's end. The lock is held."""
        inbound, outbound = host._new_lane(), self.broker._new_lane()
        theirs = host._new_queue(inbound, outbound)
        ours = self.broker._new_queue(outbound, inbound)
        theirs.join(ours)
        self.connected(ours)
        return theirs

    def connected(self, queue: MessageQueue) -> None:
        self.broker.pump.post_last(partial(tell, self.listener, "connected", queue))

    def refused(self, reason: HocketError) -> None:
        self.broker.pump.post_last(partial(tell, self.listener, "refused", reason))


class Caller(Protocol):
    """A connect that has come to a broker: an `Attempt`, or one of another process."""

    @property
    def port(self) -> int: ...

    def claim(self) -> bool: ...

    def meet(self, host: QueueBroker) -> MessageQueue: ...

    def refused(self, reason: HocketError) -> None: ...


class Answer(ConnectListener):
    """The answer to a coroutine's connect; a queue that comes after it gave up is aborted."""

    def __init__(self) -> None:
        self._outcome: MessageQueue | HocketError | None = None
        self._abandoned = False
        self._waiters = Waiters()

    def connected(self, queue: MessageQueue) -> None:
        self._outcome = queue
        if self._abandoned:
            queue.abort()
        self._waiters.wake_all()

    def refused(self, reason: HocketError) -> None:
        self._outcome = reason
        self._waiters.wake_all()

    def _look(self) -> MessageQueue | None:
        outcome = self._outcome  # looked at once: the pump may set it at any moment
        if isinstance(outcome, HocketError):
            raise outcome
        return outcome

    async def wait(self, deadline: Deadline) -> MessageQueue:
        try:
            return await wait_async(self._look, self._waiters, deadline, "connect")
        except BaseException:
            self._abandoned = True
            if isinstance(self._outcome, MessageQueue):
                self._outcome.abort()
            raise


class QueueBroker:
    """Binds ports and connects to other brokers of its kind; all answers come as events.

    Methods may be called from any thread. `messages_max` and `bytes_max` bound what each of its
    queues holds on the way in.
    """

    kind = "full-event"

    def __init__(
        self,
        name: str,
        pump: EventPump,
        manager: BrokerManager | HasNames | None = None,
        *,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        check_name(name)
        check_at_least(messages_max, 1, "messages_max")
        check_at_least(bytes_max, 1, "bytes_max")
        if not isinstance(pump, EventPump):
            raise WrongType(f"pump must be an EventPump, not {type(pump).__name__}")
        self.name = name
        self.pump = pump
        self.manager = chosen_manager(manager)
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.closed = False
        self._bound: dict[int, object] = {}
        self._queues: dict[int, MessageQueue] = {}
        self._arrivals: deque[Caller] = deque()  # asked of us, not answered yet
        self.asked: dict[Attempt, None] = {}  # asked by us, not answered yet
        self._ports = count(FIRST_QUEUE_PORT)
        self._promised: set[int] = set()  # of queues that are not made yet
        pump.check_open()
        self.manager.reserve(name, self.kind)
        try:
            with self.manager.lock:  # a pump that stops meanwhile closes us once we are registered
                pump.attach(self)
                try:
                    self.manager.register(self)
                except HocketError:
                    pump.detach(self)
                    raise
        except HocketError:
            self.manager.give_back(name)
            raise

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that have not ended, oldest first."""
        with self.manager.lock:
            return [queue for queue in self._queues.values() if not queue.ended]

    def bind(self, port: int, listener: object) -> bool:
        """Have `listener.accepted` told of every connect to `port`; False if it is taken.

        Raises PortInUse if the manager's ports are unique and another broker has it.
        """
        check_port(port)
        check_listener(listener, "accepted")
        with self.manager.lock:
            self._check_open()
            if port in self._bound or port in self._queues or port in self._promised:
                return False
            self.manager.take_port(self, port)
            try:
                self._bound_now(port)
            except HocketError:
                self.manager.free_port(port)
                raise
            self._bound[port] = listener
            return True

    def unbind(self, port: int) -> bool:
        """Refuse later connects to `port`; False if it was not bound. Existing queues live on."""
        check_port(port)
        with self.manager.lock:
            if self._bound.pop(port, None) is None:
                return False
            self.manager.free_port(port)
            self._unbound_now(port)
            return True

    def connect(self, name: str | AnyBroker, port: int, listener: object) -> bool:
        """Ask the broker called `name` for a queue to its `port`.

        The other broker may be given itself instead of its name. True: asked;
        `listener.connected` or `listener.refused` will tell, on our pump.
        """
        check_port(port)
        check_listener(listener, "connected", "refused")
        self.pump.check_open()
        attempt = Attempt(self, port, listener)
        with self.manager.lock:
            self._check_open()
            try:
                host = self.manager.require(name)
            except UnknownBroker as unknown:
                self.asked[attempt] = None
                if isinstance(name, str) and self.manager.connect_elsewhere(attempt, name):
                    return True
                del self.asked[attempt]
                attempt.refused(unknown)
                return True
            if not isinstance(host, QueueBroker) or host.kind != self.kind:
                kind = getattr(host, "kind", "thread")
                attempt.refused(
                    WrongKind(f"{host.name!r} is a {kind} broker, {self.name!r} a {self.kind} one")
                )
            else:
                self.asked[attempt] = None
                host._arrive(attempt)
        return True

    async def connect_async(
        self, name: str | AnyBroker, port: int, timeout: float | None = None
    ) -> MessageQueue:
        """`connect` for a coroutine: the queue, or the reason of the refusal as an exception."""
        deadline = Deadline(timeout)
        answer = Answer()
        self.connect(name, port, answer)
        return await answer.wait(deadline)

    def close(self) -> None:
        """Free the name, refuse what arrives, abort the live queues. Again: no effect."""
        with self.manager.lock:
            if self.closed:
                return
            self.closed = True
            self.manager.unregister(self)
            for port in list(self._bound):
                self.unbind(port)
            for attempt in [attempt for attempt in self._arrivals if attempt.claim()]:
                attempt.refused(UnknownBroker(f"broker {self.name!r} was closed"))
            self._arrivals.clear()
            for attempt in [attempt for attempt in list(self.asked) if attempt.claim()]:
                attempt.refused(Closed(f"broker {self.name!r} was closed while it connected"))
            queues = list(self._queues.values())
        self.pump.detach(self)
        self.manager.give_back(self.name)
        for queue in queues:
            queue.begin_cut(f"broker {self.name!r} was closed")
        for queue in queues:
            self.pump.guard(partial(queue.cut, f"broker {self.name!r} was closed"))

    # --- for the pump, the queues, and brokers of the same kind ------------------------------

    def pump_stopped(self) -> None:
        self.close()

    def forget(self, queue: MessageQueue) -> None:
        with self.manager.lock:
            self._queues.pop(queue.local_port, None)

    def arrive(self, attempt: Caller) -> None:
        """Have a connect to this broker answered; the manager's lock is held."""
        self._arrivals.append(attempt)
        self.pump.post_if_open(self._answer)  # a pump that stops closes us, and that answers too

    def _arrive(self, attempt: Attempt) -> None:
        """`arrive`, of a connect within this process."""
        self.arrive(attempt)

    def _bound_now(self, port: int) -> None:
        """A port is about to be bound; the manager's lock is held."""

    def _unbound_now(self, port: int) -> None:
        """A port was unbound; the manager's lock is held."""

    def _answer(self) -> None:
        with self.manager.lock:
            if not self._arrivals:  # `close` has answered
                return
            attempt = self._arrivals.popleft()
            if not attempt.claim():
                return
            listener = self._bound.get(attempt.port)
            if listener is None:
                attempt.refused(self._not_bound(attempt.port))
                return
            ours = attempt.meet(self)
        tell(listener, "accepted", ours)

    def _new_lane(self) -> Lane:
        return Lane(self.messages_max, self.bytes_max)

    def _new_queue(self, inbound: Lane, outbound: Lane) -> MessageQueue:
        queue = MessageQueue(self, self._new_port(), inbound, outbound)
        self._queues[queue.local_port] = queue
        return queue

    def _new_port(self) -> int:
        return next(port for port in self._ports if port not in self._bound)

    def promise_port(self) -> int:
        """A local port for a queue that may come, whose other end must know it before."""
        with self.manager.lock:
            port = self._new_port()
            self._promised.add(port)
            return port

    def keep_promise(self, port: int, queue: MessageQueue | None) -> None:
        """The queue has come, or will not; the lock is held."""
        self._promised.discard(port)
        if queue is not None:
            self._queues[port] = queue

    def _not_bound(self, port: int) -> PortNotBound:
        return PortNotBound(f"nothing is bound to port {port} of broker {self.name!r}")

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"broker {self.name!r} is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._queues)} queues"
        return f"<{type(self).__name__} {self.name!r}, {state}>"
