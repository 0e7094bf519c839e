"""What an open connection costs, both ends: run as a fresh process, prints one JSON object.

    python -m benchmarks.local.connections COUNT [--traced]

Each end has a listener object of its own, with no attributes, so that the listener's own size
hardly counts. `idle` are the bytes of a connection that was opened and not used yet, `used` of one
that has carried a message in each direction. Without --traced they come from the growth of the
resident memory; with it from tracemalloc, which sees less (no malloc overhead, no stacks) and would
itself swell the resident memory, hence a process of its own.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from benchmarks.local.memory import resident_bytes
from benchmarks.workers import PATIENCE_SECONDS, wait_for
from hocket.local import BrokerManager, EventPump, MessageQueue, QueueBroker

PORT = 1
WARM_UP = 50  # connections open before the first look: arenas, caches, lazily made things
MESSAGE = b"x" * 100


class Tally:
    """Counts what happens on the pump; `expect` says when to wake the waiting main thread."""

    count = 0
    expected = 0
    reached = threading.Event()

    @classmethod
    def expect(cls, events: int) -> None:
        cls.count, cls.expected = 0, events
        cls.reached.clear()

    @classmethod
    def add(cls) -> None:
        cls.count += 1
        if cls.count == cls.expected:
            cls.reached.set()


class EndListener:
    """The listener of one end."""

    __slots__ = ()

    def received(self, message: object) -> None:
        Tally.add()


class Opener:
    """One for all connections: gives each end its own listener."""

    def accepted(self, queue: MessageQueue) -> None:
        queue.set_listener(EndListener())
        Tally.add()

    connected = accepted


def open_connections(client: QueueBroker, opener: Opener, count: int) -> None:
    Tally.expect(2 * count)
    for _ in range(count):
        client.connect("server", PORT, opener)
    wait_for(Tally.reached)


def use_connections(*brokers: QueueBroker) -> None:
    """One message in each direction through every connection."""
    queues = [queue for broker in brokers for queue in broker.queues]
    Tally.expect(len(queues))
    for queue in queues:
        queue.send(MESSAGE)
    wait_for(Tally.reached)


def traced_bytes() -> int:
    return tracemalloc.get_traced_memory()[0]


def cost_of_connections(count: int, held: Callable[[], int]) -> dict[str, float]:
    def look() -> int:
        gc.collect()
        return held()

    manager, opener = BrokerManager(), Opener()
    with EventPump("benchmark") as pump:
        server = QueueBroker("server", pump, manager)
        client = QueueBroker("client", pump, manager)
        server.bind(PORT, opener)
        open_connections(client, opener, WARM_UP)
        use_connections(client, server)
        before = look()
        open_connections(client, opener, count)
        opened = look()
        use_connections(client, server)
        used = look()
        client.close()
        server.close()
    return {"idle": (opened - before) / count, "used": (used - before) / count}


def measure(count: int, *options: str) -> dict[str, float]:
    """The same in a fresh process."""
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.local.connections", str(count), *options],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        timeout=PATIENCE_SECONDS,
        check=True,
    ).stdout
    return dict(json.loads(output))


def main(count: str, *options: str) -> None:
    if "--traced" in options:
        tracemalloc.start()
        print(json.dumps(cost_of_connections(int(count), traced_bytes)))
    else:
        print(json.dumps(cost_of_connections(int(count), resident_bytes)))


if __name__ == "__main__":
    main(*sys.argv[1:])
