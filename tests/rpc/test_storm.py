"""Clients that vanish in the middle of a call, streams with flipped bits, and plain garbage.

Afterwards the broker answers as before and has kept nothing of them: no file descriptor, no link,
no task, and hardly any memory. The seed stands in the test's name; HOCKET_SEED replays it.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.rpc.test_served import rpc_address
from tests.support.cli import HOCKET, Serving, environment
from tests.support.processes.forked import popen
from tests.support.rpc.world import Address, Sink, World, of, run, session
from tests.support.threads import LONG, PATIENCE, until

SEED = int(os.environ.get("HOCKET_SEED", "4151"))
SECONDS = 60.0 if LONG else 4.0
GROWTH_KIB_MAX = 32 << 10  # of resident memory, from the first storm to the end of the second
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ (DEBUG|INFO|WARNING) hocket")
RESET = struct.pack("ii", 1, 0)

pytestmark = [
    pytest.mark.stress,
    pytest.mark.parametrize("seed", [SEED], ids=lambda seed: f"HOCKET_SEED={seed}"),
]


class Recorder:
    """A proxy that keeps what the client says to the broker."""

    def __init__(self, target: Address) -> None:
        self.said = b""
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()

    def _carry(self) -> None:
        client, _ = self._listener.accept()
        with client, socket.create_connection(self._target) as broker:
            back = threading.Thread(target=_copy, args=(broker, client))
            back.start()
            self.said = _copy(client, broker)
            broker.shutdown(socket.SHUT_RDWR)
            back.join()

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


def _copy(source: socket.socket, target: socket.socket) -> bytes:
    copied = b""
    with suppress(OSError):
        while data := source.recv(65536):
            copied += data
            target.sendall(data)
    return copied


async def conversation(address: Address) -> None:
    """A little of everything."""
    async with session(address) as one:
        topic = (await one.createTopic("talk", {"partitions": 2}, existOk=True)).topic
        sink = Sink()
        reading = (await topic.subscribe({"index": "i", "mode": "shared"}, sink)).subscription
        producer = (await topic.producer({})).producer
        for number in range(5):
            await producer.push(of(b"%d" % number, bytes(300)))
        await producer.flush()
        await topic.publish({"partition": 0, **of(b"x")})
        await until_received(sink)
        await reading.commit()
        await one.topics()
        await topic.describe()


async def until_received(sink: Sink) -> None:
    await sink.received(1)


def recorded(address: Address) -> bytes:
    recorder = Recorder(address)
    try:
        run(conversation(recorder.address))
    finally:
        recorder.close()
    return recorder.said


def attack(address: Address, said: bytes, chance: random.Random) -> None:
    """One connection that says something like what was said before, and breaks off."""
    data = bytearray(said[: chance.randrange(len(said) + 1)])
    kind = chance.choice(["cut", "flipped", "flipped", "garbage", "sizes"])
    if kind == "flipped":
        for _ in range(chance.randrange(1, 20)):
            if data:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif kind == "garbage":
        data = bytearray(chance.randbytes(chance.randrange(2000)))
    elif kind == "sizes":  # a message that says it is enormous, or of very many parts
        data = bytearray(struct.pack("<II", chance.randrange(1 << 10), chance.randrange(1 << 32)))
        data += chance.randbytes(200)
    with suppress(OSError), socket.create_connection(address, timeout=5) as sock:
        while data:
            size = chance.randrange(1, 4000)
            sock.sendall(data[:size])
            del data[:size]
        if chance.random() < 0.5:
            sock.settimeout(chance.random() * 0.02)
            with suppress(TimeoutError):
                while sock.recv(65536):
                    pass
        if chance.random() < 0.5:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def storm(address: Address, said: bytes, seconds: float, chance: random.Random) -> int:
    """Attacks for so long, and a dozen at least on a busy machine; returns how many there were.

    Meanwhile busy clients are killed.
    """
    clients: list[subprocess.Popen[str]] = []
    end = time.monotonic() + seconds
    attacks = 0
    try:
        while time.monotonic() < end or attacks < 12:
            attack(address, said, chance)
            attacks += 1
            if len(clients) < 3 and chance.random() < 0.05:
                clients.append(_client(address, f"{chance.random()}"))
            for client in list(clients):
                if chance.random() < 0.003:
                    _kill(client)
                    clients.remove(client)
    finally:
        for client in clients:
            _kill(client)
    return attacks


def _client(address: Address, name: str) -> subprocess.Popen[str]:
    client = popen(
        [sys.executable, "-m", "tests.support.rpc.storm_client", *map(str, address), name],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert client.stdout is not None
    assert client.stdout.readline() == "busy\n"
    return client


def _kill(client: subprocess.Popen[str]) -> None:
    client.kill()
    client.communicate(timeout=PATIENCE)


@contextmanager
def logged_broker(data: Path, log: Path) -> Iterator[Serving]:
    with log.open("w") as stderr:
        process = popen(
            [*HOCKET, "serve", "--listen", "127.0.0.1:0", "--rpc-listen", "127.0.0.1:0",
             "--data", str(data), "--log-level", "info"],
            stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment(),
        )  # fmt: skip
        with process:
            assert process.stdout is not None
            try:
                yield Serving(process, process.stdout.readline())
            finally:
                process.kill()


def open_files(broker: Serving) -> int:
    return len(os.listdir(f"/proc/{broker.process.pid}/fd"))


def resident_kib(broker: Serving) -> int:
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])  # type: ignore[index]


@pytest.mark.timeout(300)
def test_a_broker_weathers_the_storm(tmp_path: Path, seed: int):
    chance = random.Random(seed)
    log = tmp_path / "log"
    with logged_broker(tmp_path / "data", log) as broker:
        address = rpc_address(broker)
        said = recorded(address)
        calm = open_files(broker)
        attacks = storm(address, said, SECONDS / 2, chance)  # everything is loaded and grown now
        until(lambda: open_files(broker) <= calm, what="the files of the first storm closed")
        before = resident_kib(broker)
        attacks += storm(address, said, SECONDS / 2, chance)
        assert attacks > 20
        until(lambda: open_files(broker) <= calm, what="the files of the second storm closed")
        run(conversation(address))
        assert resident_kib(broker) - before < GROWTH_KIB_MAX
        assert broker.stop() == 0
    for line in log.read_text().splitlines():
        assert LOG_LINE.match(line), f"on stderr: {line}"


def test_nothing_of_a_lost_client_is_left_in_the_process(here: World, seed: int):
    chance = random.Random(seed)
    said = recorded(here.address)
    for _ in range(1000 if LONG else 100):
        attack(here.address, said, chance)
    run(conversation(here.address))
    until(lambda: here.links == 0, what="every link of the node closed")
    until(lambda: tasks(here) <= 1, what="every task done but the endpoint's own")


def tasks(here: World) -> int:
    loop: Any = here.endpoint._loop
    counted = asyncio.run_coroutine_threadsafe(_count(), loop)
    return counted.result(PATIENCE) - 1  # without the one that counts


async def _count() -> int:
    return len(asyncio.all_tasks())
