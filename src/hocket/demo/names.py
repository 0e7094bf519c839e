"""The scenes of names: three processes that know nothing of each other but their names.

python -m hocket.demo.names SERVER NAME    one of the two that answer
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hocket
from hocket import environment
from hocket.demo.outcome import Outcome, check
from hocket.demo.topics import serving
from hocket.local import EventPump, QueueBroker

ANSWERERS = ("echo-1", "echo-2")
MESSAGES = 5_000
CHAT = Path(__file__).parents[3] / "examples" / "chat" / "chat.py"  # where there is the source
PEOPLE = ("ann", "bob", "cid")
PATIENCE_SECONDS = 60


class Echo:
    """Sends back what it gets, and is done when the other side is."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.queue: Any = None

    def accepted(self, queue: Any) -> None:
        self.queue = queue
        queue.set_listener(self)

    def received(self, message: bytes) -> None:
        self.queue.send(message)

    def closed(self, _reason: Exception | None) -> None:
        self.over.set()


class Answer:
    def __init__(self) -> None:
        self.known = threading.Event()
        self.queue: Any = None

    def connected(self, queue: Any) -> None:
        self.queue = queue
        self.known.set()

    def refused(self, _reason: Exception) -> None:
        self.known.set()


def answer(server: str, name: str) -> None:
    echo = Echo()
    with (
        hocket.connect(server) as client,
        EventPump() as pump,
        QueueBroker(name, pump, client) as broker,
    ):
        broker.bind(1, echo)
        print("ready", flush=True)
        echo.over.wait(PATIENCE_SECONDS)


def three_processes(progress: Callable[[float], None]) -> Outcome:
    with (
        tempfile.TemporaryDirectory() as data,
        serving(data, "127.0.0.1:0") as (server, _process),
    ):
        command = [sys.executable, "-m", "hocket.demo.names", server]
        others = [subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in ANSWERERS]
        for other in others:
            assert other.stdout is not None
            check(other.stdout.readline() == b"ready\n", "the other processes have their names")
        with hocket.connect(server) as client, EventPump() as pump:
            broker = QueueBroker("asks", pump, client)
            for number, name in enumerate(ANSWERERS, start=1):
                there = Answer()
                broker.connect(name, 1, there)
                check(there.known.wait(PATIENCE_SECONDS) and there.queue, f"{name} is reached")
                _talk(there.queue)
                progress(number / len(ANSWERERS))
        for other in others:
            other.communicate(timeout=PATIENCE_SECONDS)
    size = 2 * len(ANSWERERS) * MESSAGES * 4
    return Outcome(len(ANSWERERS), len(ANSWERERS) * MESSAGES, size, "found by name, over the ring")


def _talk(queue: Any) -> None:
    """So many messages there and back, half a queue at a time."""
    for start in range(0, MESSAGES, 500):
        for number in range(start, start + 500):
            queue.send_wait(b"%04d" % number, timeout=PATIENCE_SECONDS)
        for number in range(start, start + 500):
            back = queue.receive_wait(timeout=PATIENCE_SECONDS)
            check(back == b"%04d" % number, "messages come back in order")
    queue.close()


def chat() -> Outcome:
    """The example `chat`, as its user runs it: each of three says hello to both others."""
    with (
        tempfile.TemporaryDirectory() as data,
        serving(data, "127.0.0.1:0") as (server, _process),
    ):
        talking = {
            me: subprocess.Popen(
                [sys.executable, str(CHAT), me, *(other for other in PEOPLE if other != me)],
                env=os.environ | {environment.SERVER: server},
                stdout=subprocess.PIPE,
                text=True,
            )
            for me in PEOPLE
        }
        lines = {
            me: process.communicate(timeout=PATIENCE_SECONDS)[0].splitlines()
            for me, process in talking.items()
        }
    heard = sorted(line for each in lines.values() for line in each)
    said = sorted(f"{me} heard {other}: hello" for me in PEOPLE for other in PEOPLE if me != other)
    check(heard == said, "everybody hears everybody else, once")
    size = sum(len(line.partition(" heard ")[2]) for line in heard)
    queues = len(PEOPLE) * (len(PEOPLE) - 1) // 2
    return Outcome(queues, len(heard), size, "examples/chat: ann, bob and cid said hello")


if __name__ == "__main__":
    answer(*sys.argv[1:])
