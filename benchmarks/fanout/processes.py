"""The processes of a measurement: how they are run, and what they took and saw."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 60.0


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block."""
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


class Worker:
    """A process of `worker.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def is_ready(self) -> None:
        self._line()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._line())
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker has ended with {self._process.wait()}; see above")
        return line


@contextmanager
def worker(**task: Any) -> Iterator[Worker]:
    command = [sys.executable, "-m", "benchmarks.fanout.worker", json.dumps(task)]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Worker(process)


def delays_in(path: Path) -> array[float]:
    found = array("d")
    found.frombytes(path.read_bytes())
    return found
