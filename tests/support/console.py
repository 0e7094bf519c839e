"""Runs the ```console blocks of a page, and compares what comes with what the page shows.

    $ COMMAND       is run, and the lines below it are what it prints, stdout and stderr together
    $ hocket serve  begins the page's broker, in a process of its own; the lines below it are said
    ^C              ends that broker; the lines below it are what it has said since

A ```python block whose first line is `# NAME.py` is a file of that name. The commands `hocket`,
`python` and `pytest` run within this process, which is quick, and others in a shell. Installing is
passed over. The broker is at a free port instead of the page's: the page's address is replaced in
commands, and HOCKET_SERVER stands for the default, until a context says where to go.

With HOCKET_REWRITE=1 the page is written anew, with what comes now in place of what differs.
"""

from __future__ import annotations

import io
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from hocket.cli.program import program
from tests.support.cli import HOCKET, environment
from tests.support.processes.forked import popen
from tests.support.threads import PATIENCE, until

ADDRESS = "127.0.0.1:4150"  # what pages say
INSTALLING = ("python3 -m venv ", ". .venv/", "pip install ", "git clone ", "cd ")
LOOKING = {"list", "lag", "describe"}  # may be repeated until what was done before shows,
LOOKING_SECONDS = 2 if os.environ.get("HOCKET_REWRITE") else 20  # and so long

# What differs from run to run, and nothing else.
VARIES = [
    # A consumer that has enough leaves; whether a batch is on its way to it is a matter of luck.
    (r"(?m)^.* hocket\.node: connection \d+ from \S+: Connection reset by peer\n", ""),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d+Z?", "TIME"),
    (r"\b[\d.]+ ?(ms|s)\b", "DURATION"),
    (r"[\d.]+( [kMG])? (messages|B|KiB|MiB)/s", "RATE"),
    (r"\b[0-9a-f]{8,32}\b", "ID"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\d+ of \d+ connections", "CONNECTIONS"),  # looking is repeated,
    (r"(took|gave) [\d,]+ records \([^)]*\)", "RECORDS"),  # and a reader is sent more than it takes
]


def alike(shown: str, came: str) -> bool:
    return _but_for_what_varies(shown) == _but_for_what_varies(came)


def _but_for_what_varies(text: str) -> str:
    for pattern, name in VARIES:
        text = re.sub(pattern, name, text)
    return text


class Page:
    """A page on its way through a terminal, in a directory of its own."""

    def __init__(self, path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands = 0  # that were run
        self._path = path
        self._lines = path.read_text().splitlines()
        self._directory = directory
        self._monkeypatch = monkeypatch
        self._files: dict[str, bool] = {}  # of the page: whether it was run
        self._code = 0  # with which the last `hocket` ended
        self._broker: subprocess.Popen[bytes] | None = None
        self._address = ""
        self._said = directory / "first-terminal.txt"  # by the broker
        self._heard = 0  # bytes of it that the page has shown
        monkeypatch.chdir(directory)
        monkeypatch.syspath_prepend(str(directory))
        monkeypatch.setenv("COLUMNS", "80")
        for name in os.environ:
            if name.startswith("HOCKET_") and name != "HOCKET_REWRITE":
                monkeypatch.delenv(name)

    def run(self) -> None:
        """Run all of it. A difference fails, with both texts."""
        rewrite = bool(os.environ.get("HOCKET_REWRITE"))
        written: list[str] = []
        modules = set(sys.modules)
        try:
            for kind, lines in self._parts():
                if kind == "python" and lines[0].startswith("# "):
                    self._save(lines)
                if kind != "console":
                    written += lines
                    continue
                for command, shown in self._commands(lines):
                    came = self._run(command, shown)
                    if not alike(shown, came):
                        assert rewrite, f"{self._path.name}: {command}\n{shown}\n--- came:\n{came}"
                        shown = came
                    written += [command, *shown.splitlines()]
        finally:
            if self._broker is not None:
                self._broker.kill()
                self._broker.wait()
            for name in set(sys.modules) & {name.removesuffix(".py") for name in self._files}:
                if name not in modules:
                    del sys.modules[name]
        assert all(self._files.values()), f"never run: {self._files}"
        assert self._broker is None, "the page leaves its broker running"
        if rewrite:
            self._path.write_text("\n".join(written) + "\n")

    def _parts(self) -> Iterator[tuple[str, list[str]]]:
        """The kind of each run of lines, and the lines; a fence belongs to the prose."""
        kind, lines = "", []
        for line in self._lines:
            if line.startswith("```"):
                if not kind:
                    yield "", [*lines, line]
                    kind, lines = line[3:] or "text", []
                    continue
                yield kind, lines
                kind, lines = "", []
            lines.append(line)
        yield "", lines

    def _commands(self, lines: list[str]) -> Iterator[tuple[str, str]]:
        assert lines[0].startswith(("$ ", "^C")), f"a block begins with a command: {lines[0]}"
        begins = [i for i, line in enumerate(lines) if line.startswith(("$ ", "^C"))]
        for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
            yield lines[begin], "".join(f"{line}\n" for line in lines[begin + 1 : end])

    def _save(self, lines: list[str]) -> None:
        name = lines[0].removeprefix("# ").split()[0].rstrip(":,")
        assert name.endswith(".py"), lines[0]
        Path(name).write_text("\n".join(lines) + "\n")
        self._files[name] = False

    def _run(self, line: str, shown: str) -> str:
        if line == "^C":
            return self._stop()
        command = line.removeprefix("$ ")
        if command.startswith(INSTALLING):
            return shown
        self.commands += 1
        lexer = shlex.shlex(command, posix=True, punctuation_chars="|")
        lexer.whitespace_split = True
        words = list(lexer)
        given = b""
        if "|" in words:
            bar = words.index("|")
            given = subprocess.run(words[:bar], capture_output=True, check=True).stdout
            words = words[bar + 1 :]
        variables = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            variables[name] = value.replace(ADDRESS, self._address)
        words = [word.replace(ADDRESS, self._address) for word in words]
        with self._monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            if words[:2] == ["hocket", "serve"]:
                return self._serve(words[1:])
            came = [self._one(words, given)]
            if words[0] == "hocket" and LOOKING.intersection(words) and not self._code:
                with suppress(AssertionError):  # the page and what came last are compared anyway
                    until(
                        lambda: alike(shown, came[-1]) or came.append(self._one(words, given)),
                        LOOKING_SECONDS,
                    )
            return came[-1]

    def _one(self, words: list[str], given: bytes) -> str:
        if words[0] == "hocket":
            came = self._hocket(words[1:], given)
        elif words[0] == "python":
            came = self._python(words[1:])
        elif words[0] == "pytest":
            came = self._pytest(words[1:])
        else:
            came = subprocess.run(words, capture_output=True, check=True, text=True).stdout
        return came.replace(self._address, ADDRESS) if self._address else came

    def _hocket(self, args: list[str], given: bytes) -> str:
        with _stdin(given):
            result = CliRunner().invoke(program, args, input=given)
        if args[0] == "context" and not result.exit_code:
            self._monkeypatch.delenv("HOCKET_SERVER", raising=False)
        self._code = result.exit_code
        return result.output

    def _python(self, args: list[str]) -> str:
        self._files[args[0]] = True
        with self._monkeypatch.context() as patched, redirect_stdout(io.StringIO()) as said:
            patched.setattr(sys, "argv", args)
            runpy.run_path(args[0], run_name="__main__")
        return said.getvalue()

    def _pytest(self, args: list[str]) -> str:
        self._files.update((name, True) for name in args if name in self._files)
        plain = ["-p", "no:cacheprovider", "-p", "no:faulthandler", "--color=no"]
        with redirect_stdout(io.StringIO()) as said, redirect_stderr(said):
            pytest.main([*plain, *args])
        return said.getvalue()

    def _serve(self, args: list[str]) -> str:
        assert self._broker is None, "one broker at a time"
        with self._said.open("wb") as terminal:
            self._broker = popen(
                [*HOCKET, *args, "--listen", "127.0.0.1:0"],
                stdout=terminal,
                stderr=terminal,
                env=environment(),
            )
        broker, ready = self._broker, re.compile(r" serving .* on hocket://(\S+)\n")
        until(lambda: ready.search(self._said.read_text()) or broker.poll() is not None)
        found = ready.search(self._said.read_text())
        assert found, f"the broker did not start: {self._said.read_text()}"
        self._address = found[1]
        self._monkeypatch.setenv("HOCKET_SERVER", f"hocket://{self._address}")
        return self._news()

    def _stop(self) -> str:
        assert self._broker is not None
        self._broker.send_signal(signal.SIGINT)
        assert self._broker.wait(PATIENCE) == 0
        self._broker = None
        return self._news()

    def _news(self) -> str:
        """What the broker has said since it was last looked at."""
        data = self._said.read_bytes()
        news, self._heard = data[self._heard :], len(data)
        return news.decode().replace(self._address, ADDRESS)


@contextmanager
def _stdin(given: bytes) -> Iterator[None]:
    """Have descriptor 0 give these bytes: `produce` reads it without Python's stdin."""
    before = os.dup(0)
    with tempfile.TemporaryFile() as file:  # not a pipe, which would be full before it is read
        file.write(given)
        file.seek(0)
        os.dup2(file.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)
