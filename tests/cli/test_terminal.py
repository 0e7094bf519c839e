"""What is different when somebody sits at a terminal: a bar, and a question."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.cli import HOCKET, Hocket, environment
from tests.support.processes.forked import popen
from tests.support.threads import PATIENCE, until


class Terminal:
    """One end of a pseudo-terminal is ours, the other a command's stdin and stderr."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ours, self._theirs = pty.openpty()
        os.set_blocking(self._ours, False)
        self.shown = ""

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        return popen(
            [*HOCKET, *args],
            stdin=self._theirs,
            stdout=subprocess.DEVNULL,
            stderr=self._theirs,
            env=environment(HOCKET_SERVER=self._url),
        )

    def shows(self, text: str) -> bool:
        with suppress(BlockingIOError):
            self.shown += os.read(self._ours, 65536).decode()
        return text in self.shown

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def close(self) -> None:
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal(server: str) -> Iterator[Terminal]:
    terminal = Terminal(server)
    yield terminal
    terminal.close()


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, False), ("n\n", 1, True)])
def test_a_delete_asks_first(
    hocket: Hocket, terminal: Terminal, topic: str, answer: str, code: int, left: bool
):
    with terminal.start("topic", "delete", topic) as process:
        until(lambda: terminal.shows("[y/N]"))
        terminal.type(answer)
        assert process.wait(PATIENCE) == code
    assert topic in terminal.shown
    assert (f"{topic}\n" in hocket("topic", "list", "--names").text()) is left


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_no_answer_is_no(hocket: Hocket, terminal: Terminal, topic: str, key: str):
    with terminal.start("topic", "delete", topic) as process:
        until(lambda: terminal.shows("[y/N]"))
        if key == "\x03":
            assert interrupted(process) == 130
        else:
            terminal.type(key)
            assert process.wait(PATIENCE) == 130
    assert f"{topic}\n" in hocket("topic", "list", "--names").text()


def interrupted(process: subprocess.Popen[bytes]) -> int:
    """The exit code after Ctrl-C. The terminal is not its controlling one, so we are the key.

    Python's input() loses a Ctrl-C that comes between the prompt and the reading; we can be as
    fast as that, and press again.
    """
    for _ in range(round(PATIENCE)):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(1.0)
    process.kill()
    raise AssertionError("Ctrl-C did not end the command")


def test_produce_shows_a_bar(terminal: Terminal, topic: str, tmp_path: Path):
    source = tmp_path / "input"
    source.write_bytes(b"a line\n" * 1000)
    with terminal.start("produce", topic, "--file", str(source)) as process:
        until(lambda: terminal.shows("produced 1,000 messages"))
        assert process.wait(PATIENCE) == 0
    assert "100%" in terminal.shown
    assert "1,000 messages" in terminal.shown


def test_produce_says_how_lines_typed_by_hand_end_and_draws_no_bar_over_them(
    hocket: Hocket, terminal: Terminal, topic: str
):
    with terminal.start("produce", topic) as process:
        until(lambda: terminal.shows("Ctrl-D ends"))
        terminal.type("by hand\n\x04")
        until(lambda: terminal.shows("produced 1 message "))
        assert process.wait(PATIENCE) == 0
    assert terminal.shown.count("messages/s") == 1  # in the line at the end
    assert hocket("consume", topic).text() == "by hand\n"
