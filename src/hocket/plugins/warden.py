"""A thread that keeps the process of one plug-in alive: starts it, watches it, starts it again.

Everything here waits, which the node's thread must not. The process is told what to load, and is
handed over once it says that it is ready. It is watched for memory while it lives. When it has
ended, whoever ended it, the next one is started after a pause, which doubles each time, up to a
limit; one that has lived for a while begins with a short one again.

The thread that starts a process lives as long as the process may: Linux ends a process that wants
to end with its parent when the *thread* ends that has started it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from hocket.deadline import in_seconds
from hocket.plugins.apart_main import MEMORY_CODE
from hocket.plugins.found import Unusable
from hocket.plugins.letters import Inbox, Kind, Letter, Nonsense, packed

START_SECONDS = 30.0  # within which it must have imported everything
PAUSE_SECONDS_MIN = 0.1
PAUSE_SECONDS_MAX = 30.0
STEADY_SECONDS = 60.0  # it has lived so long that its end is a new matter
WATCH_SECONDS = 0.5
END_SECONDS = 5.0  # for a process that was killed to be gone
ANSWER_BYTES_MAX = 256 << 20


@dataclass(slots=True)
class Ready:
    """What the process has said of the plug-in."""

    hooks: tuple[str, ...]
    policy: str
    version: str


@dataclass(slots=True, eq=False)
class Process:
    """One that is ready."""

    pid: int
    socket: socket.socket
    inbox: Inbox
    ready: Ready
    is_over: threading.Event = field(default_factory=threading.Event)  # somebody saw it end


class Owner(Protocol):
    """Called on the warden's thread."""

    def started(self, process: Process) -> None: ...
    def ended(self, why: str, *, killed: bool) -> None: ...
    def logged(self, letter: Letter) -> None: ...


class Warden:
    def __init__(self, name: str, setup: dict[str, Any], owner: Owner) -> None:
        """Raises Unusable for settings that cannot be handed to a process."""
        self._name = name
        self._owner = owner
        try:
            self._setup = b"".join(map(bytes, packed(Kind.SETUP, head=setup)))
        except (TypeError, ValueError) as error:
            raise Unusable(
                f"plug-in '{name}' cannot run apart: its settings have more than texts, numbers, "
                f"lists and tables: {error}"
            ) from error
        self._memory_bytes: int = setup["memory_bytes"]
        self._closing = threading.Event()
        self._lock = threading.Lock()  # over the next three
        self._popen: subprocess.Popen[bytes] | None = None
        self._process: Process | None = None
        self._why = ""  # we have killed it, and this is why
        self._first: Ready | None = None
        self._fault: Unusable | None = None
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"plug-in {name}", daemon=True)

    def start(self) -> Ready:
        """Returns when the first process is ready. Raises Unusable."""
        self._thread.start()
        self._has_begun.wait()
        if self._first is None:
            assert self._fault is not None
            self.close()
            raise self._fault
        return self._first

    def kill(self, why: str) -> None:
        """Never waits."""
        with self._lock:
            if self._popen is not None and self._popen.poll() is None:
                self._why = self._why or why
                _kill_group(self._popen.pid)
            if self._process is not None:
                self._process.is_over.set()

    def stop(self) -> None:
        """End the process, and start no other. Never waits."""
        self._closing.set()
        self.kill("it is not wanted any more")

    def close(self, seconds: float = 0.0) -> None:
        """Let the process end by itself for so long, then kill it; returns when it is gone."""
        self._closing.set()
        with self._lock:
            popen = self._popen
        if popen is not None and seconds:
            with suppress(subprocess.TimeoutExpired):
                popen.wait(seconds)
        self.stop()
        if self._thread.is_alive():
            self._thread.join(END_SECONDS)

    # --- on its thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        pause = PAUSE_SECONDS_MIN
        try:
            while not self._closing.is_set():
                began = monotonic()
                why, killed = self._live()
                if self._first is None:  # `start` says so
                    return
                if self._closing.is_set():
                    return
                self._owner.ended(why, killed=killed)
                if monotonic() - began > STEADY_SECONDS:
                    pause = PAUSE_SECONDS_MIN
                self._closing.wait(pause)
                pause = min(2 * pause, PAUSE_SECONDS_MAX)
        finally:
            self._has_begun.set()

    def _live(self) -> tuple[str, bool]:
        """One process, from its start to its end: why it ended, and whether we have killed it."""
        ours, its = socket.socketpair()
        try:
            with its:
                popen = self._spawn(its)
        except OSError as error:
            ours.close()
            self._fault = Unusable(f"plug-in '{self._name}' has no process: {error}")
            return f"it cannot be started: {error}", False
        try:
            process = self._greet(popen, ours)
            with self._lock:
                self._process = process
            self._has_begun.set()
            self._owner.started(process)
            self._watch(popen, process)
        except Unusable as error:
            self._fault = error
            self.kill(str(error))
            ours.close()
        with suppress(subprocess.TimeoutExpired):
            popen.wait(END_SECONDS)
        with self._lock:
            why, self._why, self._popen, self._process = self._why, "", None, None
        return (why, True) if why else (self._words_for(popen.returncode), False)

    def _spawn(self, its: socket.socket) -> subprocess.Popen[bytes]:
        command = [
            sys.executable, "-P", "-m", "hocket.plugins.apart_main",
            str(its.fileno()), str(os.getpid()),
        ]  # fmt: skip
        popen = subprocess.Popen(  # without the lock: the node's thread may want it
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(its.fileno(),),
            start_new_session=True,  # Ctrl-C is for the node, which ends it in order
        )
        with self._lock:
            self._popen = popen
        if self._closing.is_set():
            self.kill("it is not wanted any more")
        return popen

    def _greet(self, popen: subprocess.Popen[bytes], ours: socket.socket) -> Process:
        """Raises Unusable."""
        deadline = monotonic() + START_SECONDS
        inbox = Inbox(ANSWER_BYTES_MAX)
        late = f"plug-in '{self._name}' was not ready within {in_seconds(START_SECONDS)}"
        try:
            ours.settimeout(START_SECONDS)
            ours.sendall(self._setup)
            while True:
                ours.settimeout(max(0.01, deadline - monotonic()))
                data = ours.recv(64 << 10)
                if not data:
                    popen.wait(END_SECONDS)
                    why = self._words_for(popen.returncode)
                    raise Unusable(f"plug-in '{self._name}' did not get ready: {why}")
                for letter in inbox.letters(data):
                    if letter.kind == Kind.READY:
                        ready = self._ready(letter)
                        ours.setblocking(False)
                        return Process(popen.pid, ours, inbox, ready)
                    if letter.kind == Kind.UNUSABLE:
                        raise Unusable(str(letter.head))
                    if letter.kind == Kind.LOG:
                        self._owner.logged(letter)
                if monotonic() > deadline or self._closing.is_set():
                    raise Unusable(late)
        except TimeoutError:
            raise Unusable(late) from None
        except (OSError, Nonsense, subprocess.TimeoutExpired) as error:
            raise Unusable(f"plug-in '{self._name}' did not get ready: {error}") from error

    def _ready(self, letter: Letter) -> Ready:
        try:
            said = letter.head
            ready = Ready(tuple(map(str, said["hooks"])), str(said["policy"]), str(said["version"]))
        except (TypeError, KeyError) as error:
            raise Nonsense("it does not say what it is") from error
        if self._first is None:
            self._first = ready
        elif ready != self._first:
            raise Unusable(
                f"plug-in '{self._name}' is another one than when the node was started (version "
                f"{ready.version or '?'}, before {self._first.version or '?'}): start the node anew"
            )
        return ready

    def _watch(self, popen: subprocess.Popen[bytes], process: Process) -> None:
        while popen.poll() is None and not process.is_over.wait(WATCH_SECONDS):
            if self._memory_bytes and _resident_bytes(process.pid) > self._memory_bytes:
                self.kill(_too_much(self._memory_bytes))
        # Its socket is closed, so it has ended, or is about to; or it was killed.
        try:
            popen.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill("it has closed its socket")

    def _words_for(self, code: int | None) -> str:
        if code == MEMORY_CODE:
            return _too_much(self._memory_bytes)
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended by itself, with exit code {code}"


def _too_much(limit: int) -> str:
    return f"it wants more than {limit >> 20} MiB of memory"


def _kill_group(pid: int) -> None:
    """And whatever it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # it may not have become the leader of its group yet


def _resident_bytes(pid: int) -> int:
    """What of the process is in memory; 0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def setup_of(
    name: str, *, place: str, settings: dict[str, Any], policy: str | None, memory_bytes: int
) -> dict[str, Any]:
    """What the process is told; `place` is a module and a class, or empty: it is installed."""
    return {
        "name": name, "place": place, "settings": settings, "policy": policy,
        "memory_bytes": memory_bytes, "path": list(sys.path),
        "log_level": logging.getLogger().getEffectiveLevel(),
    }  # fmt: skip
