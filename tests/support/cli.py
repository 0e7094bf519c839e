"""A broker process and the command line, as tests use them."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from click.testing import CliRunner

from hocket.cli.program import program
from tests.support.processes.forked import popen
from tests.support.threads import PATIENCE

HOCKET = [sys.executable, "-W", "error", "-m", "hocket.cli"]
NOBODY = "hocket://127.0.0.1:1"  # a port that no broker listens on


def environment(**more: str) -> dict[str, str]:
    """This process's, without what would lead a command elsewhere."""
    ours = {name: text for name, text in os.environ.items() if not name.startswith("HOCKET_")}
    return {**ours, **more}


class Serving:
    """A running `hocket serve`."""

    def __init__(self, process: subprocess.Popen[str], ready: str) -> None:
        self.process = process
        self.ready = ready  # the line it said
        self.url = ready.split()[-1]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def serving(data: Path, *args: str, log: IO[bytes] | None = None, **env: str) -> Iterator[Serving]:
    """A broker process for the block; what it logs goes to `log`, or is shown if the test fails."""
    process = popen(
        [*HOCKET, "serve", "--listen", "127.0.0.1:0", "--data", str(data), *args],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=environment(**env),
    )
    with process:
        assert process.stdout is not None
        try:
            yield Serving(process, process.stdout.readline())
        finally:
            process.kill()


def but_for_new_indexes(stderr: str) -> str:
    """What a command said, without the line that says that it made an index."""
    return re.sub(r"hocket: made the index .*\n", "", stderr)


class Outcome:
    """How a command ended."""

    def __init__(self, code: int, stdout: bytes, stderr: str) -> None:
        self.code = code
        self.stdout = stdout
        self.stderr = stderr

    def json(self) -> Any:
        return json.loads(self.stdout)

    def text(self) -> str:
        """What it printed, if it went well; it may have said that it made an index."""
        assert (self.code, but_for_new_indexes(self.stderr)) == (0, ""), self
        return self.stdout.decode()

    def __repr__(self) -> str:
        return f"exit {self.code}\nstdout: {self.stdout[:2000]!r}\nstderr: {self.stderr}"


class Hocket:
    """The command line, pointed at one broker."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *args: str, stdin: bytes = b"") -> Outcome:
        """Within this process, which is quick; stdin is what `publish` reads."""
        result = CliRunner(env={"HOCKET_SERVER": self.url}).invoke(program, args, input=stdin)
        return Outcome(result.exit_code, result.stdout_bytes, result.stderr)

    def process(self, *args: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """In a process of its own, with pipes."""
        return popen(
            [*HOCKET, *args],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=environment(HOCKET_SERVER=self.url),
        )

    def run(self, *args: str, stdin: bytes = b"") -> Outcome:
        with self.process(*args) as process:
            stdout, stderr = process.communicate(stdin, timeout=PATIENCE)
        return Outcome(process.returncode, stdout, stderr.decode())


def fails(outcome: Outcome, code: int, *words: str) -> None:
    """It ended with this code and one line that has all these words.

    `hocket serve` logs before it, from the moment on in which it opens its data.
    """
    assert outcome.code == code, outcome
    assert outcome.stdout == b"", outcome
    *logged, said = outcome.stderr.splitlines()
    assert all(" hocket.node: " in line for line in logged), outcome
    assert said.startswith("hocket: "), outcome
    for word in words:
        assert word in said, outcome


def json_lines(data: bytes) -> Sequence[Any]:
    return [json.loads(line) for line in data.splitlines()]


def unread(pipe: Any) -> int:
    """How many bytes wait in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"))[0])
