"""A process with all that it has started, which end together."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.support.threads import until


class Session:
    """Made of a process that was started with a session of its own.

    What it starts may have groups of their own, as Spark's Python workers have, but not sessions.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        """`kill -9` of all of them."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        until(lambda: not self._kill_rest(), what="all processes of the session are gone")

    def _kill_rest(self) -> int:
        found = 0
        for entry in os.listdir("/proc"):
            if entry.isdigit() and _session_of(int(entry)) == self.process.pid:
                found += 1
                with suppress(ProcessLookupError):
                    os.kill(int(entry), signal.SIGKILL)
        return found


def _session_of(pid: int) -> int | None:
    """None for one that is gone, or dead and not yet taken note of."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[3])
