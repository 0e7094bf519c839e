"""A client in a process of its own that takes one transaction step by step, as it is told to.

It reads one word a line: the step to take next. It answers with a line when the step is taken, and
with what is prepared, where something is. What it sends names the attempt, the partition and a
number.
"""

from __future__ import annotations

import pickle
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import hocket
from hocket.errors import HocketError
from hocket.model import Participant
from tests.support.processes.forked import popen

PATIENCE = 60.0  # of a call, while nodes die and come back
VALUE_BYTES = 4000  # so that a commit takes some time
STEPS = ("open", "staged", "prepared", "asked", "decided", "done", "aborting")


def value(attempt: str, partition: int, number: int) -> bytes:
    return f"{attempt}/{partition}/{number}/".encode().ljust(VALUE_BYTES, b".")


class Transactor:
    """The process, to the test that leads it."""

    def __init__(
        self,
        url: str,
        topic: str,
        attempt: str,
        name: tuple[str, int],
        records: int,
        partitions: Sequence[int],
    ) -> None:
        """`name` is the transaction's id and number; `records` go to each of these partitions."""
        self.attempt = attempt
        arguments = [url, topic, attempt, *map(str, (*name, records, *partitions))]
        self._process = popen(
            [sys.executable, "-m", "tests.support.cluster.transactor", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def tell(self, step: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(step + "\n")
        self._process.stdin.flush()

    def hear(self, seconds: float = PATIENCE + 30) -> str:
        """What it says next; fails if it says nothing."""
        assert self._process.stdout is not None
        found, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline().strip() if found else ""
        assert line, f"{self.attempt} says nothing"
        assert not line.startswith("failed"), f"{self.attempt}: {line}"
        return line

    def has_said(self) -> bool:
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def take(self, step: str) -> str:
        self.tell(step)
        return self.hear()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def prepared_in(line: str) -> tuple[Participant, ...]:
    found: tuple[Participant, ...] = pickle.loads(bytes.fromhex(line))
    return found


def main(url: str, topic: str, attempt: str, name: str, number: str, *shape: str) -> None:
    records, *partitions = map(int, shape)
    with hocket.connect(url, timeout=PATIENCE) as client:
        transaction = client.transaction(name, number=int(number))
        steps: dict[str, Callable[[], str]] = {
            "open": lambda: _send(transaction, topic, attempt, partitions, range(1)),
            "staged": lambda: _stage(transaction, topic, attempt, partitions, range(1, records)),
            "prepared": lambda: pickle.dumps(transaction.prepare(PATIENCE)).hex(),
            "done": lambda: _commit(client, transaction, name, int(number)),
            "aborting": lambda: _abort(transaction),
        }
        for line in sys.stdin:
            try:
                said = steps[line.strip()]()
            except HocketError as error:
                said = f"failed: {error!r}"
            sys.stdout.write(said + "\n")
            sys.stdout.flush()


def _send(
    transaction: Any, topic: str, attempt: str, partitions: Iterable[int], numbers: range
) -> str:
    for each in numbers:
        for partition in partitions:
            transaction.send(topic, value(attempt, partition, each), partition=partition)
    return "sent"


def _stage(
    transaction: Any, topic: str, attempt: str, partitions: Iterable[int], numbers: range
) -> str:
    _send(transaction, topic, attempt, partitions, numbers)
    deadline = time.monotonic() + PATIENCE
    while not transaction._producers[topic].staging.is_staged():
        if time.monotonic() > deadline:
            return "failed: it is not staged"
        time.sleep(0.01)
    return "staged"


def _abort(transaction: Any) -> str:
    transaction.abort(PATIENCE)
    return "aborted"


def _commit(client: hocket.Client, transaction: Any, name: str, number: int) -> str:
    if transaction.prepared is None:
        transaction.commit(PATIENCE)
    else:
        client.commit_prepared(name, number, transaction.prepared, PATIENCE)
    return "committed"


if __name__ == "__main__":
    main(*sys.argv[1:])
