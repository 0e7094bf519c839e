"""A real `hocket serve` in a process of its own, that can be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from tests.support.processes.forked import popen

READY_SECONDS = 30


class ServerProcess:
    """Listens on the same port every time it is started."""

    def __init__(self, data: Path, *flags: str, port: int | None = None) -> None:
        self.data = data
        self.flags = flags
        self.port = port or free_port()
        self.address = ""
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self.process is not None:
            self.kill()

    def start(self) -> None:
        self.process = popen(
            [
                *(sys.executable, "-m", "hocket.cli", "serve"),
                *("--listen", f"127.0.0.1:{self.port}", "--data", str(self.data), *self.flags),
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server did not start; exit code {self.process.wait(READY_SECONDS)}"
        self.address = line.split()[-1]

    def kill(self) -> None:
        """`kill -9`."""
        assert self.process is not None
        self.process.kill()
        self._gone()

    def terminate(self) -> int:
        """SIGTERM, as a service manager would; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._gone()

    def _gone(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait(READY_SECONDS)
        self.process.stdout.close()
        self.process = None
        return code


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
