"""Our side of every contest: the public API of `hocket.local`, used as the guide shows it."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from benchmarks.local.memory import PeakResident
from benchmarks.workers import PATIENCE_SECONDS, Countdown, Worker, time_one_way, wait_for
from hocket.local import (
    Broker,
    BrokerManager,
    Channel,
    EventPump,
    MessageQueue,
    MixedQueueBroker,
    QueueBroker,
)

PORT = 1


# --- channels ------------------------------------------------------------------------------------


@contextmanager
def connected_channels(**options: int) -> Iterator[tuple[Channel, Channel]]:
    """The two ends of a channel; `options` go to both brokers."""
    manager = BrokerManager()
    with (
        Broker("server", manager, **options) as server,
        Broker("client", manager, **options) as client,
    ):
        accepted: list[Channel] = []
        with Worker(lambda: accepted.append(server.accept(PORT, timeout=PATIENCE_SECONDS))):
            connected = client.connect("server", PORT, timeout=PATIENCE_SECONDS)
        with connected, accepted[0]:
            yield connected, accepted[0]


def channel_stream(count: int, chunk: bytes, buffer_bytes: int) -> float:
    """Seconds for `count` chunks through a channel, written by a thread and read by this one."""
    with connected_channels(buffer_bytes=buffer_bytes) as (sender, receiver):
        size = len(chunk)

        def send() -> None:
            for _ in range(count):
                written = sender.write(chunk)
                while written < size:
                    written += sender.write(chunk, written)

        def receive() -> None:
            target = bytearray(size)
            missing = count * size
            while missing:
                missing -= receiver.read(target)

        return time_one_way(send, receive)


def channel_messages(count: int, message: bytes) -> float:
    """Seconds for `count` small messages, each written by one call and read whole."""
    with connected_channels() as (sender, receiver):
        size = len(message)

        def send() -> None:
            write = sender.write
            for _ in range(count):
                written = write(message)
                while written < size:
                    written += write(message, written)

        def receive() -> None:
            read, target, received = receiver.read, bytearray(size), 0
            while received < count:
                got = read(target)
                while got < size:
                    got += read(target, got)
                received += 1

        return time_one_way(send, receive)


# --- the pump ------------------------------------------------------------------------------------


def pump_posts(count: int) -> float:
    """Seconds until `count` callables posted from this thread have all run."""
    done = threading.Event()
    tick = Countdown(count, done.set).tick
    with EventPump("benchmark") as pump:
        post = pump.post
        start = perf_counter()
        for _ in range(count):
            post(tick)
        wait_for(done)
        return perf_counter() - start


# --- queues --------------------------------------------------------------------------------------


class Ends:
    """Accepts and connects; keeps the two queues and knows when both are there."""

    def __init__(self) -> None:
        self.queues: dict[str, MessageQueue] = {}
        self.complete = threading.Event()

    def accepted(self, queue: MessageQueue) -> None:
        self.keep("accepted", queue)

    def connected(self, queue: MessageQueue) -> None:
        self.keep("connected", queue)

    def keep(self, side: str, queue: MessageQueue) -> None:
        self.queues[side] = queue
        if len(self.queues) == 2:
            self.complete.set()


@contextmanager
def connected_queues(
    kind: type[QueueBroker] | type[MixedQueueBroker],
) -> Iterator[tuple[MessageQueue, MessageQueue]]:
    """The connecting and the accepting end of one queue, both on one pump of their own."""
    manager, ends = BrokerManager(), Ends()
    with EventPump("benchmark") as pump:
        server, client = kind("server", pump, manager), kind("client", pump, manager)
        server.bind(PORT, ends)
        client.connect("server", PORT, ends)
        wait_for(ends.complete)
        yield ends.queues["connected"], ends.queues["accepted"]
        client.close()
        server.close()


class CountingListener:
    """The consumer's work, as at the peers: count, and tell when all came."""

    def __init__(self, expected: int) -> None:
        self.count = 0
        self.expected = expected
        self.done = threading.Event()

    def received(self, message: object) -> None:
        self.count += 1
        if self.count == self.expected:
            self.done.set()


class EchoListener:
    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue

    def received(self, message: Any) -> None:
        self.queue.send(message)


def one_way(
    count: int, message: bytes, kind: type[QueueBroker] | type[MixedQueueBroker] = QueueBroker
) -> float:
    """Seconds for `count` messages from this thread to a listener on the pump."""
    with connected_queues(kind) as (sender, receiver):
        listener = CountingListener(count)
        receiver.set_listener(listener)
        send_wait = sender.send_wait
        start = perf_counter()
        for _ in range(count):
            send_wait(message)
        wait_for(listener.done)
        return perf_counter() - start


def mixed_one_way(count: int, message: bytes) -> float:
    return one_way(count, message, MixedQueueBroker)


def one_way_to_asyncio(count: int, message: bytes) -> float:
    """Seconds for `count` messages from a thread to a coroutine on this one."""
    with connected_queues(QueueBroker) as (sender, receiver):

        def send() -> None:
            send_wait = sender.send_wait
            for _ in range(count):
                send_wait(message)

        async def receive() -> float:
            thread = Worker(send)
            start = perf_counter()
            thread.start()
            received = 0
            async with asyncio.timeout(PATIENCE_SECONDS):
                async for _message in receiver:
                    received += 1
                    if received == count:
                        break
            seconds = perf_counter() - start
            thread.finish()
            return seconds

        return asyncio.run(receive())


def round_trips(count: int, message: bytes) -> list[float]:
    """Seconds of each of `count` round trips from this thread to an echo listener on the pump."""
    with connected_queues(QueueBroker) as (client, server):
        server.set_listener(EchoListener(server))
        send_wait, receive_wait = client.send_wait, client.receive_wait
        latencies = []
        for _ in range(count):
            start = perf_counter()
            send_wait(message)
            answer = receive_wait()
            latencies.append(perf_counter() - start)
            assert answer is message  # handed over, never copied
        return latencies


def memory_in_transit(count: int, message: bytes) -> dict[str, float]:
    """The most that `count` round trips of `message` take beyond the message itself, in bytes."""
    with PeakResident() as resident:
        round_trips(count, message)
    tracemalloc.start()
    try:
        round_trips(count, message)
        _now, traced = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The floor of one page: what cannot be told from nothing must not make an endless ratio.
    return {
        "growth": max(resident.growth, traced, 4096),
        "resident B": resident.growth,
        "traced B": traced,
    }
