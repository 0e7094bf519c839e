"""One life of a broker on a data directory, and connections to it that speak frames.

There are two kinds of life. `SimulatedLife` is the production node over a disk in memory, some
milliseconds long; `ServedLife` is `hocket serve` as a process on a real directory. What a test asks
of one it can ask of the other.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from hocket import frames
from hocket.core.ring.contact import Contact
from hocket.core.session.session import TRUSTED, Caller
from hocket.errors import HocketError
from hocket.frames import Frame
from hocket.log.settings import LogSettings
from hocket.node.node import Node
from hocket.node.settings import Argon2Settings, NodeSettings
from hocket.sim.clock import SimClock
from hocket.sim.disk import SimDisk
from hocket.sim.executor import SimExecutor
from hocket.sim.scheduler import START_US, Scheduler
from hocket.wire.connection import Connection
from tests.support.damage.places import Files
from tests.support.processes.forked import popen

SECOND = 1_000_000
TICK_US = 100_000
ANSWER_SECONDS = 20.0
READY_SECONDS = 30.0
CHEAP = Argon2Settings(time_cost=1, memory_cost=8, parallelism=1)
# Small enough that a store of some kilobytes has several files of every kind.
SMALL = LogSettings(
    wal_file_bytes=8 << 10, wal_file_bytes_min=8 << 10, commit_bytes_max=4 << 10,
    checkpoint_bytes=1 << 30, checkpoint_interval_us=10**15, mark_after_us=50_000,
    slab_bytes=4096, slab_bytes_min=1024, index_interval_bytes=512, reserve_bytes=512,
    scrub_interval_us=0, new_store_id="0123456789abcdef0123456789abcdef",
)  # fmt: skip  # and no checkpoint but those that are asked for


class Ended(Exception):
    """The broker has ended, and nobody had asked it to: a crash."""


class Talk:
    """A connection to a broker, and all that came over it."""

    def __init__(self) -> None:
        self.heard: list[tuple[Frame, bytes]] = []
        self.greeting: Frame | None = None
        self._last_request = 0

    def say(self, kind: type, *fields: Any, payload: bytes = b"", **more: Any) -> int:
        self._last_request += 1
        self._send(kind(self._last_request, *fields, **more), payload)
        return self._last_request

    def ask(self, kind: type, *fields: Any, payload: bytes = b"", **more: Any) -> Any:
        request = self.say(kind, *fields, payload=payload, **more)
        answers: list[Frame] = []

        def is_answered() -> bool:
            answers[:] = [frame for frame, _ in self.heard if frame.request == request]
            return bool(answers)

        if not self.wait(is_answered):
            raise Ended(f"no answer to {kind.__name__} {fields}")
        return answers[0]

    def wait(self, is_so: Callable[[], bool]) -> bool:
        """Let the broker work until it is so; False if it has nothing more to do."""
        raise NotImplementedError

    def _send(self, frame: Frame, payload: bytes) -> None:
        raise NotImplementedError


class Life(Protocol):
    is_simulated: bool
    warnings: list[str]  # what the broker has logged at WARNING and above

    def connect(self, token: str = "") -> Talk: ...
    def scrub(self) -> None:
        """Have the broker read everything, if it can be told to."""

    def members(self) -> tuple[Contact, ...] | None:
        """The nodes that belong to the cluster; None if nobody can ask for them."""

    def rest(self) -> None:
        """Let time pass, so that the broker does what it does unasked."""

    def close(self) -> None:
        """An orderly end. Raises Ended if it was none."""

    def kill(self) -> None:
        """Nothing happens if it has ended already."""


# --- the production node over a disk in memory -------------------------------------------------


def disk_with(files: Files) -> SimDisk:
    disk = SimDisk()
    for path, data in files.items():
        disk.make_directory(path.rpartition("/")[0])
        file = disk.open(path, create=True)
        file.write([data], 0)
        file.sync()
    for directory in {path.rpartition("/")[0] for path in files}:
        disk.sync_directory(directory)
    return disk


def files_of(disk: SimDisk) -> dict[str, bytes]:
    return {path: disk.open(path).read(size, 0) for path, size in disk.files().items()}


class _Warnings(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


class _Network:
    """The node's network: what it sends is heard at once."""

    def __init__(self) -> None:
        self.talks: dict[int, Talk] = {}

    def send(self, connection: int, frame: Frame, payload: Sequence[Any] = ()) -> None:
        if connection in self.talks:
            self.talks[connection].heard.append((frame, b"".join(payload)))

    def close(self, connection: int) -> None:
        self.talks.pop(connection, None)

    def pause(self) -> None:
        """Nobody says more than the node asked for."""

    def resume(self) -> None:
        """It was not paused."""


class SimulatedLife:
    """Raises what the node raises."""

    is_simulated = True

    def __init__(
        self, disk: SimDisk, *, seed: object = "life", start_us: int = START_US,
        settings: LogSettings = SMALL,
    ) -> None:  # fmt: skip
        self.disk = disk
        self.scheduler = Scheduler(f"damage {seed}", start_us=start_us)
        self.clock = SimClock(self.scheduler)
        self.executor = SimExecutor(self.scheduler)
        self.warnings: list[str] = []
        self._handler = _Warnings(self.warnings)
        self._network = _Network()
        self._numbers = 0
        logging.getLogger("hocket").addHandler(self._handler)
        try:
            self.node = Node(
                NodeSettings(name="node", argon2=CHEAP, log=replace(settings, where="the data")),
                disk=disk,
                executor=self.executor,
                clock=self.clock,
                network=self._network,
                entropy=self.scheduler.random("entropy").randbytes,
            )
            self.settle()
        except BaseException:
            self._over()
            raise

    def connect(self, token: str = "", *, trusted: bool = False) -> Talk:
        self._numbers += 1
        talk = self._network.talks[self._numbers] = _SimulatedTalk(self, self._numbers)
        self.node.connected(self._numbers, TRUSTED if trusted else Caller("10.0.0.1"))
        talk.greeting = talk.ask(frames.Hello, token=token)
        return talk

    def settle(self) -> None:
        """Everything that is under way comes to its end."""
        self.node.end_turn()
        while not self.executor.idle:
            self.scheduler.advance()
            self.node.end_turn()

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.scheduler.run_for(TICK_US)
            self.node.tick()
            self.settle()

    def checkpoint(self) -> None:
        errors: list[HocketError | None] = []
        self.node._wiring.log.checkpoint_now(errors.append)
        self.settle()
        assert errors == [None], errors

    def scrub(self) -> None:
        self.node._wiring.log.scrub(lambda _report: None)
        self.settle()

    def members(self) -> tuple[Contact, ...] | None:
        return self.node.registering.members()[1]

    def rest(self) -> None:
        self.tick(3)  # retention at once, then the mark
        self.checkpoint()

    def close(self) -> None:
        try:
            self.node.close()
        finally:
            self._over()

    def kill(self) -> None:
        if not self.executor.dead:
            self.disk.kill()
            self._over()

    def _over(self) -> None:
        self.executor.crash()
        logging.getLogger("hocket").removeHandler(self._handler)

    def received(self, connection: int, frame: Frame, payload: bytes) -> None:
        self.node.received(connection, frame, memoryview(payload))
        self.settle()


class _SimulatedTalk(Talk):
    def __init__(self, life: SimulatedLife, number: int) -> None:
        super().__init__()
        self._life = life
        self._number = number

    def wait(self, is_so: Callable[[], bool]) -> bool:
        self._life.settle()
        for _ in range(3):
            if is_so():
                return True
            self._life.tick()
        return is_so()

    def _send(self, frame: Frame, payload: bytes) -> None:
        self._life.received(self._number, frame, payload)


# --- a process ---------------------------------------------------------------------------------


class Refused(HocketError):
    """`hocket serve` ended before it was ready, with what it wrote to stderr."""


class ServedLife:
    """Raises Refused if the broker says that it will not start, Ended if it just ends."""

    is_simulated = False

    def __init__(self, directory: Path) -> None:
        command = [
            *(sys.executable, "-m", "hocket.cli", "serve"),
            *("--listen", "127.0.0.1:0", "--data", str(directory), "--log-level", "warning"),
        ]
        self._process = popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self._talks: list[_ServedTalk] = []
        self._lines: list[str] = []
        self._reading = threading.Thread(target=self._read_stderr, daemon=True)
        self._reading.start()
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        if not ready:
            code = self._ended()
            said = "".join(self._lines)
            if "Traceback" in said or code < 0:
                raise Ended(f"exit code {code}: {said}")
            raise Refused(said)
        match = re.search(r"://([\d.]+):(\d+)\s*$", ready)
        assert match, ready
        self._address = match[1], int(match[2])

    @property
    def warnings(self) -> list[str]:
        return [line for line in self._lines if "WARNING" in line or "ERROR" in line]

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line)

    def connect(self, token: str = "") -> Talk:
        talk = _ServedTalk(self._address)
        self._talks.append(talk)
        talk.greeting = talk.ask(frames.Hello, token=token)
        return talk

    def scrub(self) -> None:
        """A real broker does it once a day."""

    def members(self) -> tuple[Contact, ...] | None:
        return None

    def rest(self) -> None:
        """A real broker is not waited for."""

    def close(self) -> None:
        for talk in self._talks:
            talk.close()
        self._process.send_signal(signal.SIGTERM)
        code = self._ended()
        if code or "Traceback" in "".join(self._lines):
            raise Ended(f"exit code {code}: {''.join(self._lines)}")

    def kill(self) -> None:
        for talk in self._talks:
            talk.close()
        if self._process.returncode is None:
            self._process.kill()
            self._ended()

    def _ended(self) -> int:
        code = self._process.wait(READY_SECONDS)
        self._reading.join()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdout.close()
        self._process.stderr.close()
        return code


class _ServedTalk(Talk):
    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__()
        self._socket = socket.create_connection(address, timeout=ANSWER_SECONDS)
        self._wire = Connection("client")

    def wait(self, is_so: Callable[[], bool]) -> bool:
        while not is_so():
            try:
                data = self._socket.recv(1 << 20)
            except TimeoutError:
                return False
            except OSError as error:
                raise Ended(f"the connection broke: {error}") from error
            if not data:
                raise Ended("the broker closed the connection")
            for frame, payload in self._wire.receive(data):
                self.heard.append((frame, bytes(payload)))
        return True

    def _send(self, frame: Frame, payload: bytes) -> None:
        for buffer in self._wire.send(frame, [payload] if payload else ()):
            self._socket.sendall(bytes(buffer))

    def close(self) -> None:
        self._socket.close()
