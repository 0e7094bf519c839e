"""Clients of every kind, each a process of its own, that write down what they see.

    python -m tests.support.cluster.clients URL KIND STYLE NAME FILE

A client goes on until its stdin ends. A producer then ends at once; a consumer when it has had
everything. It is patient: nodes that are away for a while cost it time and no error, so any error
ends the process, and `Clients` tells it. STYLE is "sync", or "aio" for the asyncio client.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from zlib import crc32

import hocket
import hocket.aio
from hocket.errors import LeaseLost, Timeout
from tests.support.brokers import blocking
from tests.support.brokers.blocking import LoopThread
from tests.support.cluster.history import (
    Acknowledged,
    Buried,
    Decided,
    Delivered,
    Event,
    GivenBack,
    Recorder,
    Sent,
    Settled,
    Stored,
    now,
    read,
)
from tests.support.processes.forked import popen

TOPICS = {"load": 6, "other": 3}  # partitions
LOAD = "load"
KEYS = 12
BURST = 40  # that a producer sends before it waits for what it has sent
PAUSE_SECONDS = 0.6  # between bursts, so that consumers of every kind keep up on a small machine
PATIENCE = 90.0  # of a call, while nodes die and come back
LEASE_SECONDS = 8
ABORTED = 7  # every so manieth transaction
NACKED = 17  # every so manieth message, at its first delivery
REJECTED = 61  # every so manieth message, by who rejects
LIFE = 400  # messages of an own index until it is opened anew
END_SECONDS = 120.0  # in which a client that is to end does so, or something comes to it

Note = Callable[[Event], None]


class Worker:
    """What every client has: its name, its connection, where it writes, and when it ends."""

    def __init__(self, client: Any, name: str, note: Note, ending: threading.Event) -> None:
        self.client = client
        self.name = name
        self.note = note
        self.ending = ending
        self._sent = 0

    def value(self, topic: str, key: str = "", transaction: str = "") -> str:
        """The next one, which is about to be sent."""
        value = f"{self.name}:{self._sent}"
        self._sent += 1
        self.note(Sent(now(), self.name, topic, value, key, transaction))
        return value

    def key(self) -> str:
        """Its own: the order of a key is that of one sender."""
        return f"{self.name}/{self._sent % KEYS}"

    def acknowledged(self, value: str, position: Any) -> None:
        self.note(Acknowledged(now(), value, *position))

    # --- producers -------------------------------------------------------------------------------

    def keyed(self) -> None:
        self._produce(self.key)

    def unkeyed(self) -> None:
        self._produce(lambda: "")

    def _produce(self, choose: Callable[[], str]) -> None:
        with self.client.producer(LOAD, linger=0.001, timeout=PATIENCE) as producer:
            while not self.ending.is_set():
                futures = []
                for _ in range(BURST):
                    key = choose()
                    value = self.value(LOAD, key)
                    sent = producer.send_future(value.encode(), key=key.encode() or None)
                    futures.append((value, sent))
                for value, future in futures:
                    self.acknowledged(value, future.result(PATIENCE))
                self.ending.wait(PAUSE_SECONDS)

    def many(self) -> None:
        """Lists; what is acknowledged is told by `flush` for all of them, without positions."""
        with self.client.producer(LOAD, timeout=PATIENCE) as producer:
            while not self.ending.is_set():
                keys = [self.key() for _ in range(BURST)]
                values = [self.value(LOAD, key) for key in keys]
                producer.send_many([v.encode() for v in values], [k.encode() for k in keys])
                producer.flush(PATIENCE)
                for value in values:
                    self.note(Acknowledged(now(), value, LOAD))
                self.ending.wait(PAUSE_SECONDS)

    def publish(self) -> None:
        while not self.ending.is_set():
            key = self.key()
            value = self.value(LOAD, key)
            position = self.client.publish(LOAD, value.encode(), key=key.encode(), timeout=PATIENCE)
            self.acknowledged(value, position)
            self.ending.wait(PAUSE_SECONDS / BURST)

    def transact(self) -> None:
        number = attempt = 0
        while not self.ending.is_set():
            name = f"{self.name} {number}.{attempt}"
            aborted = number % ABORTED == ABORTED - 1 and not attempt
            with self.client.transaction(self.name, number=number) as transaction:
                for topic in TOPICS:
                    for _ in range(5):
                        key = self.key()
                        value = self.value(topic, key, name)
                        transaction.send(topic, value.encode(), key=key.encode())
                if aborted:
                    transaction.abort(PATIENCE)
                else:
                    transaction.commit(PATIENCE)
            self.note(Decided(now(), name, "aborted" if aborted else "committed"))
            number, attempt = (number, 1) if aborted else (number + 1, 0)

    # --- consumers -------------------------------------------------------------------------------

    def plain(self) -> None:
        """Without an index; it has everything when it has read as far as the topic goes."""
        with self.client.subscribe(LOAD, timeout=PATIENCE) as messages:
            taken = 0
            while not self.ending.is_set() or taken < self._end():
                taken += len(self._take(messages, "own", "", self.name))

    def own(self) -> None:
        life = 0
        while not self.ending.is_set() or self._lag(self.name):
            life += 1
            with self.client.subscribe(LOAD, index=self.name, timeout=PATIENCE) as messages:
                self._live(messages, f"{self.name} {life}")

    def _live(self, messages: Any, reader: str) -> None:
        """One life of a subscription: so many messages, some of them acknowledged and settled."""
        taken = 0
        while taken < LIFE:
            found = self._take(messages, "own", self.name, reader)
            if not found:
                if self.ending.is_set():
                    return
                continue
            taken += len(found)
            # The others are delivered again if this life ends here, and this is no fault.
            for each in found[: len(found) // 2 + 1]:
                each.ack()
            last = {each.partition: each for each in found[: len(found) // 2 + 1]}
            messages.commit(PATIENCE)
            for each in last.values():
                self._settled("own", self.name, each)

    def shared(self) -> None:
        self._share("shared")

    def key_shared(self) -> None:
        self._share("key_shared")

    def rejecting_shared(self) -> None:
        self._share("shared", rejects=True)

    def _share(self, mode: str, *, rejects: bool = False) -> None:
        """The index is named for the mode, and several clients have it."""
        with self.client.subscribe(
            LOAD, index=mode, mode=mode, lease=LEASE_SECONDS, max_deliveries=100, timeout=PATIENCE
        ) as messages:
            while not self.ending.is_set() or self._lag(mode):
                found = self._take(messages, mode, mode, self.name)
                acked, sure = self._settle(found, mode, rejects=rejects)
                try:
                    messages.commit(PATIENCE)
                except LeaseLost:  # a node was away for longer than a lease; some come again
                    sure = False
                for each in acked:
                    self._settled(mode, mode, each, sure)

    def _settle(self, found: list[Any], index: str, *, rejects: bool) -> tuple[list[Any], bool]:
        """Those that were acknowledged, and if all were in time; some are given back at first."""
        acked, sure = [], True
        for each in found:
            try:
                if rejects and crc32(each.value) % REJECTED == 0:
                    self._given_back(index, each, rejected=True)
                    each.reject("it is one of them")
                    acked.append(each)
                elif each.delivery_count == 1 and crc32(each.value) % NACKED == 0:
                    self._given_back(index, each)
                    each.nack()
                else:
                    each.ack()
                    acked.append(each)
            except LeaseLost:
                sure = False
        return acked, sure

    def _take(self, messages: Any, mode: str, index: str, reader: str) -> list[Any]:
        """What is there, a burst at most; waits a moment for the first."""
        found: list[Any] = []
        try:
            while len(found) < BURST:
                found.append(messages.receive(0 if found else 0.3))
                self._delivered(found[-1], mode, index, reader)
        except Timeout:
            pass
        return found

    def _delivered(self, message: Any, mode: str, index: str, reader: str) -> None:
        place = message.topic, message.partition, message.offset
        key = (message.key or b"").decode()
        self.note(Delivered(now(), reader, index, mode, *place, message.value.decode(), key))

    def _settled(self, mode: str, index: str, message: Any, sure: bool = True) -> None:
        place = message.topic, message.partition, message.offset
        self.note(Settled(now(), index, mode, *place, sure))

    def _given_back(self, index: str, message: Any, *, rejected: bool = False) -> None:
        place = message.topic, message.partition, message.offset
        self.note(GivenBack(now(), index, *place, rejected))

    def _lag(self, index: str) -> int:
        lag: int = self.client.lag(LOAD, index, timeout=PATIENCE)
        return lag

    def _end(self) -> int:
        return end_of(self.client, LOAD)


KINDS = ("keyed", "unkeyed", "many", "publish", "transact", "plain", "own", "shared", "key_shared")
CONSUMERS = (*KINDS[5:], "rejecting_shared")


def main(url: str, kind: str, style: str, name: str, file: str) -> None:
    ending = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ending.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    loop: AbstractContextManager[LoopThread | None] = nullcontext()
    if style == "aio":
        blocking.HANG_SECONDS = PATIENCE + 30  # so that the client itself says what it has tried
        loop = LoopThread()
    note = Recorder(Path(file))
    with loop as running:
        opened = (
            hocket.connect(url, timeout=PATIENCE)
            if running is None
            else running.run(lambda: hocket.aio.connect(url, timeout=PATIENCE))
        )
        with opened as client:
            getattr(Worker(client, name, note, ending), kind)()
    note.close()


def end_of(client: Any, topic: str) -> int:
    """How many records it holds. A partition whose leader changes just now is not known."""
    deadline = time.monotonic() + PATIENCE
    while True:
        partitions = client.describe(topic, timeout=PATIENCE).partitions
        if all(each.known for each in partitions):
            return sum(each.end for each in partitions)
        assert time.monotonic() < deadline, f"not known: {partitions}"
        time.sleep(PAUSE_SECONDS)


# --- for the test that starts them ---------------------------------------------------------------


class Clients:
    """One or more of every kind, half of them asyncio, for a `with` block.

    `urls` are taken in turn, so that they enter at different nodes. Of kinds that share an index
    there are two.
    """

    def __init__(self, urls: Sequence[str], directory: Path, kinds: Iterable[str] = KINDS) -> None:
        self.directory = directory
        self._urls = urls
        self._kinds = [each for kind in kinds for each in [kind] * (2 if "shared" in kind else 1)]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._results: dict[str, int] = {}
        self._read_to: dict[str, int] = {}  # of each one's file

    def __enter__(self) -> Clients:
        for number, kind in enumerate(self._kinds):
            name = f"{kind}-{number}"
            command = [
                sys.executable, "-m", "tests.support.cluster.clients",
                self._urls[number % len(self._urls)], kind, ("sync", "aio")[number % 2], name,
                str(self.file(name)),
            ]  # fmt: skip
            with self.log(name).open("wb") as log:
                self._running[name] = popen(command, stdin=subprocess.PIPE, stderr=log, stdout=log)
            self._results[name] = 0
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def file(self, name: str) -> Path:
        return self.directory / f"{name}.history"

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def results(self) -> dict[str, int]:
        """What each was told so far, or given, in events; all of them still run."""
        for name, process in self._running.items():
            assert process.poll() is None, f"{name} has ended:\n{self.log(name).read_text()}"
            if self.file(name).exists():
                with self.file(name).open("rb") as file:
                    file.seek(self._read_to.get(name, 0))
                    new = file.read()
                    self._read_to[name] = file.tell()
                self._results[name] += new.count(b"\n") - new.count(b'["Sent"')
        return dict(self._results)

    def wait_until_all_go_on(self, seconds: float) -> None:
        """Every one of them has done something from its beginning to its end since now."""
        before = self.results()

        def stuck() -> list[str]:
            return [
                name
                for name, results in self.results().items()
                if results <= before[name] + (KEYS if name.startswith("publish") else BURST)
            ]

        began = time.monotonic()
        while left := stuck():
            assert time.monotonic() - began < seconds, f"nothing comes to, or of, {left}"
            time.sleep(0.05)

    def finish(self) -> list[Event]:
        """End the producers, then the consumers, which have had everything; what they saw."""
        for wanted in (False, True):
            ending = {
                name: process
                for name, process in self._running.items()
                if (name.partition("-")[0] in CONSUMERS) is wanted
            }
            for process in ending.values():
                assert process.stdin is not None
                process.stdin.close()
            for name, process in ending.items():
                self._wait_end(name, process)
                assert process.returncode == 0, f"{name}:\n{self.log(name).read_text()}"
        return read(self.file(name) for name in self._running)

    def _wait_end(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """On a busy machine the last consumer may have much to read: so long as it reads, good."""
        written, since = -1, time.monotonic()
        while process.poll() is None:
            size = self.file(name).stat().st_size if self.file(name).exists() else 0
            if size != written:
                written, since = size, time.monotonic()
            silent = time.monotonic() - since
            assert silent < END_SECONDS, f"nothing comes to {name}, and it does not end"
            time.sleep(0.05)


def stored(client: hocket.Client, topics: Iterable[str] = TOPICS) -> list[Event]:
    """All that stands in the logs, read from their beginning."""
    found: list[Event] = []
    for topic in topics:
        with client.subscribe(topic, timeout=PATIENCE) as messages:
            for _ in range(end_of(client, topic)):
                each = messages.receive(PATIENCE)
                place = each.topic, each.partition, each.offset
                found.append(Stored(now(), *place, each.value.decode()))
    return found


def buried(client: hocket.Client, topic: str) -> list[Event]:
    """All dead letters of the topic."""
    found: list[Event] = []
    with client.subscribe(topic + ".dlq", timeout=PATIENCE) as messages:
        for _ in range(end_of(client, topic + ".dlq")):
            about = messages.receive(PATIENCE).headers
            index, source, partition, offset = (
                about[f"hocket-dlq-{name}"].decode()
                for name in ("index", "topic", "partition", "offset")
            )
            found.append(Buried(now(), index, source, int(partition), int(offset)))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
