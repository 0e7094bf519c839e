"""The bar of a command: what it counts, and that nothing is glued to it."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr

import pytest

from hocket.cli import output
from hocket.cli.progress import Progress, new_bar


def screen(written: io.StringIO) -> list[str]:
    """The lines that a terminal shows after this was written to it."""
    lines, at = [""], 0
    for each in written.getvalue():
        if each == "\r":
            at = 0
        elif each == "\n":
            lines.append("")
            at = 0
        else:
            lines[-1] = lines[-1][:at].ljust(at) + each + lines[-1][at + 1 :]
            at += 1
    return [line.rstrip() for line in lines]


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cli.progress.DRAW_SECONDS", 3600)  # only when a test asks for it


@contextmanager
def terminal() -> Iterator[io.StringIO]:
    """What is written to stderr within the block, and logged as the command line logs."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("hocket: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with redirect_stderr(stream):
            yield stream
    finally:
        root.removeHandler(handler)


logger = logging.getLogger("hocket.client")


def test_the_bar_counts_what_is_acknowledged():
    with terminal() as shown, closing(Progress(shown=True, total_bytes=4096)) as progress:
        progress.add_messages(100)
        progress.add_bytes(4096)
        progress.draw()
        assert re.match(r"  0%\|.*\| 0 messages \(0 B\): 0 messages/s", screen(shown)[-1])
        progress.add_stored(25)
        progress.draw()
        assert re.match(r" 25%\|.*\| 25 messages \(1\.0 KiB\): ", screen(shown)[-1])
        progress.add_stored(75)
        progress.all_stored()
        progress.add_stored(75)  # told late, by a thread of the client
    assert re.match(r"100%\|.*\| 100 messages \(4\.0 KiB\): ", screen(shown)[-2])


def test_bytes_are_those_of_the_messages_that_are_stored():
    progress = Progress(shown=False, total_bytes=None)
    for messages, size in ((10, 100), (0, 50), (1, 1000)):
        progress.add_messages(messages)
        progress.add_bytes(size)
    found = []
    for count in (0, 5, 5, 1):
        progress.add_stored(count)
        found.append(progress._stored_bytes())
    assert found == [0, 50, 150, 1150]


def test_bar_and_summary_say_the_same_in_the_same_words(monkeypatch: pytest.MonkeyPatch):
    now = iter([100.0])
    monkeypatch.setattr("hocket.cli.progress.time.monotonic", lambda: next(now, 102.0))
    with terminal() as shown, closing(Progress(shown=True, total_bytes=None)) as progress:
        progress.add_messages(1500)
        progress.add_bytes(4096)
        progress.all_stored()
    bar = screen(shown)[-2]
    assert bar == f"1,500 messages ({output.size(4096)}): 750 messages/s, {output.size(2048)}/s"
    assert progress.summary("t").replace(" to t in 2.0 s", "") == f"produced {bar}"


def test_what_is_logged_while_a_bar_stands_gets_a_line_of_its_own():
    with terminal() as shown:
        with closing(Progress(shown=True, total_bytes=100)) as progress:
            progress.draw()
            assert screen(shown)[-1].startswith("  0%|")
            logger.warning("the link broke")
            first, second = screen(shown)
            assert first == "hocket: the link broke"
            assert second.startswith("  0%|")  # drawn again
        logger.warning("and again")
        assert screen(shown)[-2:] == ["hocket: and again", ""]


def test_a_bar_of_seeds_is_treated_alike():
    with terminal() as shown:
        with closing(new_bar(3, unit="seed")) as bar:
            bar.update(2)
            logger.warning("odd")
        first, second, _ = screen(shown)
    assert first == "hocket: odd"
    assert "2/3" in second
