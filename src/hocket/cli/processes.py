"""Processes in the background that outlive the command which started them.

A process is known by its id and by when it started. Ids are used again: a process with the id of
ours and another start is a stranger, and is never sent a signal.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    started: str  # what tells it from others that have had the same id


class Processes:
    """The processes of this machine."""

    def __init__(self) -> None:
        self._children: set[int] = set()

    def start(
        self, command: Sequence[str], *, out: Path, log: Path, environment: dict[str, str]
    ) -> Process:
        """Start it in a session of its own: neither Ctrl-C nor a closed terminal reaches it."""
        with open(out, "wb") as stdout, open(log, "ab") as stderr:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=environment,
                start_new_session=True,
            )  # fmt: skip
        child.returncode = 0  # it may outlive us, of which Popen would warn; we wait for it below
        self._children.add(child.pid)
        # A child keeps its id until we have waited for it, so it cannot be another's.
        return Process(child.pid, _started(child.pid) or "")

    def is_running(self, process: Process) -> bool:
        if process.pid in self._children:
            self._bury(process.pid)
        return bool(process.started) and _started(process.pid) == process.started

    def send(self, process: Process, number: signal.Signals) -> bool:
        """Send a signal to it, and to no other process. Returns whether it was running."""
        if hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal"):
            try:
                handle = os.pidfd_open(process.pid)
            except (OSError, OverflowError):
                return False
            try:
                if not self.is_running(process):  # now the handle and the id mean the same
                    return False
                signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                return False
            finally:
                os.close(handle)
            return True
        if not self.is_running(process):
            return False
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
        return True

    def _bury(self, pid: int) -> None:
        """A child that has ended keeps its id until its parent has asked how it ended."""
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid
        if ended:
            self._children.discard(pid)


def _started(pid: int) -> str | None:
    """When the process started; None: there is none, or it has ended and nobody has noticed."""
    if pid <= 0:
        return None
    if Path("/proc/self/stat").exists():
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        # After the name, in parentheses, which may hold anything; see proc(5).
        state, *fields = text.rpartition(")")[2].split()
        return None if state in "ZX" else f"{boot}/{fields[18]}"
    found = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = found.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()
