"""The scenes of levels 1 and 2: channels and queues within this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from hocket.demo.outcome import Outcome, check
from hocket.errors import Aborted, Disconnected, HocketError, PortNotBound
from hocket.local import (
    AcceptListener,
    Broker,
    BrokerManager,
    Channel,
    ConnectListener,
    EventPump,
    MessageListener,
    MessageQueue,
    QueueBroker,
    Task,
)

PATIENCE_SECONDS = 60


# --- level 1: threads and blocking channels ----------------------------------------------------


def echo_bytes(broker: Broker, port: int, clients: int) -> None:
    """Accept `clients` connections, each served by a task that sends back what it reads."""
    with ExitStack() as tasks:
        for _ in range(clients):
            channel = broker.accept(port, timeout=PATIENCE_SECONDS)
            tasks.enter_context(Task(echo_channel, channel))


def echo_channel(channel: Channel) -> None:
    buffer = bytearray(1 << 16)
    with channel:
        while True:
            try:
                count = channel.read(buffer)
                channel.write_all(memoryview(buffer)[:count])
            except Disconnected:
                return


def talk(broker: Broker, line: bytes, lines: int) -> None:
    with broker.connect("echo", 7, timeout=PATIENCE_SECONDS) as channel:
        for _ in range(lines):
            channel.write_all(line)
            check(channel.read_exactly(len(line)) == line, "an echo is what was said")


def channels_between_threads() -> Outcome:
    clients, lines, line = 16, 500, b"one note each, none is lost\n"
    manager = BrokerManager()
    with (
        Broker("echo", manager) as server,
        Broker("clients", manager) as client,
        Task(echo_bytes, server, 7, clients, broker=server),
        ExitStack() as tasks,
    ):
        for _ in range(clients):
            tasks.enter_context(Task(talk, client, line, lines))
    messages = clients * lines * 2
    return Outcome(clients, messages, messages * len(line), "every echo equal to what was said")


def bytes_in_transit_survive_a_disconnect() -> Outcome:
    ours, theirs = Channel.pair(buffer_bytes=1 << 22)
    data = bytes(range(256)) * 8192
    ours.write_all(data)
    ours.disconnect()
    check(theirs.read_exactly(len(data)) == data, "what was written before is still read")
    check(theirs.disconnected, "and only then is the other side disconnected")
    return Outcome(1, 1, len(data), "written, disconnected, and still read to the last byte")


# --- level 2: message queues and events --------------------------------------------------------


class EchoServer:
    """Accepts, and sends every message back; holds its peer back while its own queue is full."""

    def accepted(self, queue: MessageQueue) -> None:
        queue.set_listener(Echo(queue))


class Echo(MessageListener):
    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.held: Any = None

    def received(self, message: Any) -> None:
        if not self.queue.send(message) and not self.queue.closed:
            self.held = message
            self.queue.pause()

    def writable(self) -> None:
        if self.held is not None and self.queue.send(self.held):
            self.held = None
            self.queue.resume()


class EchoClient(ConnectListener, MessageListener):
    """Sends `total` messages as fast as there is room, counts the echoes, closes, and says so."""

    def __init__(self, total: int, done: Callable[[EchoClient], None]) -> None:
        self.total = total
        self.sent_count = 0
        self.echoes: list[bytes] = []
        self.reason: HocketError | None = None
        self.done = done

    def connected(self, queue: MessageQueue) -> None:
        self.queue = queue
        queue.set_listener(self)
        self.writable()

    def writable(self) -> None:
        while self.sent_count < self.total and self.queue.send(b"%d" % self.sent_count):
            self.sent_count += 1

    def received(self, message: bytes) -> None:
        self.echoes.append(message)
        if len(self.echoes) == self.total:
            self.queue.close()

    def refused(self, reason: HocketError) -> None:
        self.reason = reason
        self.done(self)

    def closed(self, reason: HocketError | None) -> None:
        self.reason = reason
        self.done(self)


def many_queues(
    kind: type[QueueBroker], connections: int, each: int, progress: Callable[[float], None]
) -> Outcome:
    finished: list[EchoClient] = []
    all_done = threading.Event()

    def done(client: EchoClient) -> None:
        finished.append(client)
        progress(len(finished) / connections)
        if len(finished) == connections:
            all_done.set()

    manager = BrokerManager()
    with EventPump("server") as server_pump, EventPump("clients") as client_pump:
        server = kind("echo", server_pump, manager)
        server.bind(7, EchoServer())
        clients = kind("clients", client_pump, manager)
        for _ in range(connections):
            clients.connect("echo", 7, EchoClient(each, done))
        check(all_done.wait(PATIENCE_SECONDS), "every client finishes")
        threads = threading.active_count() - 1
    in_order = [b"%d" % number for number in range(each)]
    check(all(client.echoes == in_order for client in finished), "every echo, once, in order")
    check(all(client.reason is None for client in finished), "every end was graceful")
    messages = connections * each * 2
    size = 2 * connections * sum(map(len, in_order))
    return Outcome(
        connections,
        messages,
        size,
        f"each in order, closed gracefully; {threads} threads at the end",
    )


def a_thread_and_a_coroutine() -> Outcome:
    total = 50_000

    async def receive_all(broker: QueueBroker) -> int:
        queue = await broker.connect_async("source", 1, timeout=PATIENCE_SECONDS)
        received = 0
        async for message in queue:
            check(message == b"%d" % received, "a coroutine gets them in order")
            received += 1
        return received

    class Source:
        def accepted(self, queue: MessageQueue) -> None:
            threading.Thread(target=self.send_all, args=(queue,)).start()

        def send_all(self, queue: MessageQueue) -> None:
            for number in range(total):
                queue.send_wait(b"%d" % number, timeout=PATIENCE_SECONDS)
            queue.close()

    manager = BrokerManager()
    with EventPump() as pump:
        QueueBroker("source", pump, manager).bind(1, Source())
        received = asyncio.run(receive_all(QueueBroker("sink", pump, manager)))
    check(received == total, "nothing is missing")
    return Outcome(1, total, total * 5, "a thread sends, `async for` receives")


def refusals_and_force(progress: Callable[[float], None]) -> Outcome:
    answers: list[HocketError | None] = []
    answered = threading.Semaphore(0)

    class Hears(ConnectListener, MessageListener):
        def connected(self, queue: MessageQueue) -> None:
            queue.set_listener(self)
            for number in range(100):
                queue.send(b"%d" % number)
            queue.abort()

        def refused(self, reason: HocketError) -> None:
            self.closed(reason)

        def closed(self, reason: HocketError | None) -> None:
            answers.append(reason)
            answered.release()

    class NobodyReads(AcceptListener):
        """Accepts, and leaves the messages where they are."""

    manager = BrokerManager()
    with EventPump() as pump, EventPump() as other_pump:
        QueueBroker("server", other_pump, manager).bind(1, NobodyReads())
        client = QueueBroker("client", pump, manager)
        for port in (1, 2):
            client.connect("server", port, Hears())
            check(answered.acquire(timeout=PATIENCE_SECONDS), "every attempt is answered")
            progress(port / 2)
    aborted, refused = answers
    check(isinstance(aborted, Aborted) and len(aborted.undelivered) == 100, "an abort lists them")
    check(isinstance(refused, PortNotBound), "an unbound port is refused with that reason")
    return Outcome(1, 100, 190, "aborted: all 100 listed as undelivered; unbound port refused")
