"""A crowd of consumers of one topic, in processes of their own, and the producer that feeds it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Event, Thread
from typing import Any, NamedTuple

import hocket
from tests.support.cli import environment
from tests.support.cluster import history
from tests.support.cluster.history import Acknowledged, Delivered, Sent, now
from tests.support.processes.forked import popen

PER_PROCESS = 200  # one Python process takes in what so many consumers get, a few messages a second
PATIENCE = 90.0


class Seen(NamedTuple):
    """What a consumer has so far."""

    name: str
    messages: int
    longest_pause: float  # seconds since `mark`, between two messages
    error: str


class Crowd:
    """`count` consumers, `per_client` on each client; every second one has an index."""

    def __init__(
        self, url: str, topic: str, count: int, *, per_client: int = 1, name: str = "c"
    ) -> None:
        self._topic = topic
        self._commands = [
            [
                sys.executable, "-m", "tests.support.cluster.crowd_process", url, topic, name,
                str(first), str(min(PER_PROCESS, count - first)), str(per_client),
            ]
            for first in range(0, count, PER_PROCESS)
        ]  # fmt: skip
        self._processes: list[subprocess.Popen[str]] = []
        self._asking = ThreadPoolExecutor(len(self._commands))

    def __enter__(self) -> Crowd:
        self._processes = [
            popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
            )
            for command in self._commands
        ]
        return self

    def __exit__(self, *_error: object) -> None:
        for each in self._processes:
            each.kill()
            each.communicate()
        self._processes = []
        self._asking.shutdown()

    def _ask(self, question: str) -> list[Any]:
        """What all of them answer; asked at once, as each may be busy."""

        def ask(process: subprocess.Popen[str]) -> list[Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(question + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line, f"a process of the crowd has ended: {process.wait(PATIENCE)}"
            answer: list[Any] = json.loads(line)
            return answer

        return [each for found in self._asking.map(ask, self._processes) for each in found]

    def look(self) -> list[Seen]:
        return [Seen(*each) for each in self._ask("look")]

    def mark(self) -> None:
        """From now on pauses are measured anew."""
        self._ask("mark")

    def have(self, count: int) -> bool:
        """Whether each has so many messages."""
        return all(each.messages >= count for each in self.look())

    def state(self) -> str:
        """For people: what is common, and whoever lags or has an error."""
        seen = sorted(self.look(), key=lambda each: each.messages)
        errors = [each for each in seen if each.error]
        return f"{len(seen)} consumers, {errors=}, least {seen[:5]}, most {seen[-1:]}"

    def pauses(self) -> list[float]:
        """The longest pause of each since `mark`, the longest last."""
        return sorted(each.longest_pause for each in self.look())

    def end(self) -> list[history.Event]:
        """End all of them: what each was given."""
        errors = [each for each in self.look() if each.error]
        assert not errors, errors[:5]
        return [
            Delivered(at, name, name if has_index else "", "own", self._topic, partition, offset,
                      value)
            for name, has_index, got in self._ask("end")
            for at, partition, offset, value in got
        ]  # fmt: skip


class Publishing:
    """Publishes one message after the other, until it is stopped; each is acknowledged."""

    def __init__(self, url: str, topic: str, *, size: int = 20, pause: float = 0.02) -> None:
        self.acknowledged = 0
        self.events: list[history.Event] = []
        self.error: BaseException | None = None
        self._url, self._topic = url, topic
        self.size = size
        self._pause = pause
        self._ending = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with hocket.connect(self._url) as client, client.producer(self._topic) as producer:
                while not self._ending.is_set():
                    self._send(producer)
                    time.sleep(self._pause)
        except BaseException as error:
            self.error = error

    def _send(self, producer: hocket.Producer) -> None:
        value = f"value {self.acknowledged}".ljust(self.size, ".")
        self.events.append(Sent(now(), "producer", self._topic, value))
        position = producer.send_future(value.encode()).result(PATIENCE)
        self.events.append(Acknowledged(now(), value, *position))
        self.acknowledged += 1

    def __enter__(self) -> Publishing:
        return self

    def __exit__(self, *_error: object) -> None:
        self._ending.set()
        self._thread.join(PATIENCE)

    def pause_since(self, at: int) -> float:
        """The longest pause between two acknowledgements, in seconds."""
        times = [each.at for each in self.events if isinstance(each, Acknowledged) and each.at > at]
        return max((b - a for a, b in pairwise(times)), default=0) / 1e9

    def stop(self) -> int:
        """How many there are."""
        self._ending.set()
        self._thread.join(PATIENCE)
        assert self.error is None, self.error
        return self.acknowledged
