"""The brokers of this process in connections with others: who calls, and who is called.

What happens here happens under the managers' one lock, as a match within a process does, so that a
connect has one outcome, whoever closes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hocket.errors import Closed, HocketError, ProtocolError
from hocket.local.broker import Broker, arrive, enter, leave
from hocket.local.broker_manager import BrokerManager
from hocket.local.channel import Channel
from hocket.local.lane import Lane
from hocket.local.queue_broker import Attempt, QueueBroker
from hocket.local.rendezvous import Rendezvous
from hocket.remote.channel_end import ChannelCarrier
from hocket.remote.opening import Answering, Calling
from hocket.remote.outbound_lane import OutboundLane
from hocket.remote.peer_frames import field
from hocket.remote.queue_carrier import QueueCarrier
from hocket.remote.queue_end import RemoteQueue

if TYPE_CHECKING:
    from hocket.local.message_queue import MessageQueue
    from hocket.remote.connection import Connection

LIMIT_MAX = 1 << 40


def _limit(fields: dict[str, Any], name: str) -> int:
    value = int(field(fields, name, int))
    if not 1 <= value <= LIMIT_MAX:
        raise ProtocolError(f"{name} is {value}")
    return value


def _check_limits(fields: dict[str, Any]) -> None:
    for name in ("port", "messages_max", "bytes_max"):
        _limit(fields, name)


def _queue(
    broker: QueueBroker, local_port: int, connection: Connection, fields: dict[str, Any],
    *, name: str, way: str, first: bytes = b"",
) -> tuple[RemoteQueue, QueueCarrier]:  # fmt: skip
    """This broker's end of a connection with another process, which said these fields."""
    inbound = Lane(broker.messages_max, broker.bytes_max)
    outbound = OutboundLane(_limit(fields, "messages_max"), _limit(fields, "bytes_max"))
    queue = RemoteQueue(broker, local_port, inbound, outbound)
    carrier = QueueCarrier(queue, inbound, outbound, first)
    carrier.connection = outbound.connection = connection
    queue.joined(carrier, name=name, port=_limit(fields, "port"), way=way)
    return queue, carrier


class QueueCaller:
    """A queue broker of ours that connects; see `calling.Caller`."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._broker = attempt.broker
        self.kind = attempt.broker.kind
        self._port = 0

    def wants(self) -> bool:
        return self._attempt in self._broker.asked

    def fields(self) -> dict[str, object]:
        if not self._port:
            self._port = self._broker.promise_port()
        return {
            "from": self._broker.name,
            "calls": self._attempt.port,
            "port": self._port,
            "messages_max": self._broker.messages_max,
            "bytes_max": self._broker.bytes_max,
        }

    def accepted(self, opening: Calling, fields: dict[str, Any], way: str) -> None:
        name = field(fields, "from", str)
        _check_limits(fields)  # before anything is claimed: if they make no sense, we are refused
        with BrokerManager.lock:
            if not self._attempt.claim():  # our broker was closed, and that has answered
                self._broker.keep_promise(self._port, None)
                opening.give_up()
                return
            queue, carrier = _queue(
                self._broker, self._port, opening.connection, fields, name=name, way=way
            )
            self._broker.keep_promise(self._port, queue)
            self._attempt.connected(queue)
        opening.go_on_with(carrier)

    def refused(self, error: HocketError) -> None:
        with BrokerManager.lock:
            if self._port:
                self._broker.keep_promise(self._port, None)
            if self._attempt.claim():
                self._attempt.refused(error)


class QueueVisit:
    """A connect of another process to a queue broker of ours; see `queue_broker.Caller`."""

    def __init__(self, answering: Answering, fields: dict[str, Any]) -> None:
        self._answering = answering
        self._fields = fields
        self.port = int(field(fields, "calls", int))
        self._name = field(fields, "from", str)
        self._claimed = False
        _check_limits(fields)
        answering.on_lost = lambda _why: self._lost()

    def claim(self) -> bool:
        claimed, self._claimed = self._claimed, True
        return not claimed

    def _lost(self) -> None:
        """The caller is gone before it was answered."""
        with BrokerManager.lock:
            self._claimed = True

    def meet(self, host: QueueBroker) -> MessageQueue:
        answering = self._answering
        port = host.promise_port()
        first = answering.accept_frame(
            **{
                "from": host.name,
                "port": port,
                "messages_max": host.messages_max,
                "bytes_max": host.bytes_max,
            }
        )
        queue, carrier = _queue(
            host, port, answering.connection, self._fields,
            name=self._name, way=answering.way, first=first,
        )  # fmt: skip
        host.keep_promise(port, queue)
        answering.connection.loop.post(lambda: self._go_on(answering, carrier))
        return queue

    def _go_on(self, answering: Answering, carrier: QueueCarrier) -> None:
        if answering.connection.closed:
            carrier.lost("the other process has hung up")
        else:
            answering.go_on_with(carrier)

    def refused(self, reason: HocketError) -> None:
        self._answering.connection.loop.post(lambda: self._answering.refuse(reason))


# --- thread brokers -------------------------------------------------------------------------------


class RemoteVisitor:
    """A thread broker of another process, as a rendezvous of ours sees it."""

    def __init__(self, name: str, manager: BrokerManager, buffer_bytes: int, way: str) -> None:
        self.name = name
        self.way = way
        self.manager = manager
        self.buffer_bytes = buffer_bytes

    def check_open(self) -> None:
        """If it is closed, its connection is."""

    def begins_to_wait(self, rendezvous: Rendezvous[Any]) -> None:
        enter(rendezvous)

    def has_waited(self, rendezvous: Rendezvous[Any]) -> None:
        leave(rendezvous)


class ThreadVisit:
    """A connect of another process to a thread broker of ours."""

    def __init__(
        self, answering: Answering, fields: dict[str, Any], host: Broker, manager: BrokerManager
    ) -> None:
        self._answering = answering
        self._host = host
        self._room = _limit(fields, "bytes_max")
        self._port = int(field(fields, "calls", int))
        # The ring that our bridge reads is filled by our own user: any size would do.
        self._visitor = RemoteVisitor(
            field(fields, "from", str), manager, host.buffer_bytes, answering.way
        )
        self._rendezvous: Rendezvous[Broker] | None = None
        answering.on_lost = lambda _why: self._lost()

    def start(self) -> None:
        """Raises why there can be no meeting."""
        met = arrive(self._visitor, "connect", self._host, self._port)
        if isinstance(met, Channel):
            self._go_on(met)
            return
        self._rendezvous = met
        met.waiters.append(self._look)
        self._look_at(met)

    def _look(self) -> bool:
        self._answering.connection.loop.post(self._look_again)
        return True

    def _look_again(self) -> None:
        if self._rendezvous is not None:
            self._look_at(self._rendezvous)

    def _look_at(self, rendezvous: Rendezvous[Broker]) -> None:
        try:
            channel = rendezvous.outcome()
        except HocketError as error:
            self._rendezvous = None
            self._answering.refuse(error)
            return
        if channel is not None:
            self._rendezvous = None
            self._go_on(channel)

    def _go_on(self, end: Channel) -> None:
        answering = self._answering
        if answering.connection.closed:
            end.disconnect()
            return
        carrier = ChannelCarrier(end, self._room)
        first = answering.accept_frame(
            **{"from": self._host.name, "bytes_max": self._host.buffer_bytes}
        )
        carrier.joined(answering.connection, first)
        answering.go_on_with(carrier)

    def _lost(self) -> None:
        """The caller is gone, or has given up: nobody meets him."""
        rendezvous, self._rendezvous = self._rendezvous, None
        if rendezvous is None:
            return
        with BrokerManager.lock:
            try:
                channel = rendezvous.outcome()
            except HocketError:
                return
            if channel is None:
                rendezvous.call_off(Closed("the other process is gone"))
                return
        channel.disconnect()


class ThreadCaller:
    """A thread broker of ours that connects; see `calling.Caller`."""

    kind = Broker.kind

    def __init__(
        self, broker: Broker, port: int, manager: BrokerManager, over: Callable[[], None]
    ) -> None:
        """`over` is called when nobody waits any more; on any thread."""
        self._broker = broker
        self._port = port
        self._manager = manager
        self.rendezvous = Rendezvous[Broker]()
        assert self.rendezvous.arrive("connect", broker) is None
        self._answered = False
        self._over = over
        self.rendezvous.waiters.append(self._woken)

    def _woken(self) -> bool:
        if not self.rendezvous.is_over:  # another waiter has passed its wake-up on
            self.rendezvous.waiters.append(self._woken)
            return False
        if not self._answered:
            self._over()
        return True

    def wants(self) -> bool:
        return not self.rendezvous.is_over

    def fields(self) -> dict[str, object]:
        return {
            "from": self._broker.name,
            "calls": self._port,
            "bytes_max": self._broker.buffer_bytes,
        }

    def accepted(self, opening: Calling, fields: dict[str, Any], way: str) -> None:
        room = _limit(fields, "bytes_max")
        name = field(fields, "from", str)
        visitor = RemoteVisitor(name, self._manager, self._broker.buffer_bytes, way)
        self._answered = True
        try:
            end = self.rendezvous.arrive("accept", visitor)  # type: ignore[arg-type]
        except Closed:  # nobody waits any more
            opening.give_up()
            return
        assert end is not None
        carrier = ChannelCarrier(end, room)
        carrier.joined(opening.connection)
        opening.go_on_with(carrier)

    def refused(self, error: HocketError) -> None:
        self._answered = True
        with BrokerManager.lock:
            if not self.rendezvous.is_over:
                self.rendezvous.call_off(error)
