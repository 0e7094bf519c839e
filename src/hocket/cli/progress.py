"""The progress of a command: a bar on stderr while it works; for `produce`, a line at its end.

Bar and line say the same in the same words: how many messages are stored, how many bytes of the
input these are, and how many of both come to a second. What is logged while a bar stands gets lines
of its own above the bar.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from typing import IO, Any

from hocket.cli import output

DRAW_SECONDS = 0.1


class Progress:
    """Counts messages and bytes. With `shown` there is a bar; `total_bytes` tells it the end.

    What was read is counted by the thread that reads, what is stored by any thread. The bar is
    drawn by a thread of its own: it goes on while the others wait, and holds up nobody.
    """

    def __init__(self, *, shown: bool, total_bytes: int | None) -> None:
        self.messages = 0  # that were read, and handed to the producer
        self.bytes = 0  # that were read
        self.stored = 0  # messages that the broker has acknowledged
        self._complete = False
        self._lock = threading.Lock()
        self._read: deque[tuple[int, int]] = deque()  # messages and bytes, after each read
        self._passed = (0, 0)  # the last of these that is stored whole
        self._began = time.monotonic()
        self._bar: Any = None
        self._ended = threading.Event()
        self._drawing: threading.Thread | None = None
        if shown:
            bar_format = "{desc}" if total_bytes is None else "{percentage:3.0f}%|{bar}| {desc}"
            self._bar = new_bar(total_bytes, unit="B", bar_format=bar_format)
            self._drawing = threading.Thread(target=self._keep_drawing, name="bar", daemon=True)
            self._drawing.start()

    def add_messages(self, count: int) -> None:
        self.messages += count

    def add_bytes(self, count: int) -> None:
        """Count bytes of the input: they hold all messages that were added since the last call."""
        with self._lock:
            self.bytes += count
            self._read.append((self.messages, self.bytes))

    def add_stored(self, count: int) -> None:
        """The broker has acknowledged so many messages."""
        with self._lock:
            if not self._complete:
                self.stored += count

    def all_stored(self) -> None:
        """The broker has acknowledged everything that was read."""
        with self._lock:
            self.stored, self._complete = self.messages, True

    def _stored_bytes(self) -> int:
        """How many bytes of the input are stored; within one read, as its messages are on average.

        Messages of several partitions may be stored in another order than they were read in.
        """
        with self._lock:
            if self.stored == self.messages:
                return self.bytes
            while self._read and self._read[0][0] <= self.stored:
                self._passed = self._read.popleft()
            messages, size = self._passed
            if not self._read:
                return size
            next_messages, next_size = self._read[0]
            share = (self.stored - messages) / (next_messages - messages)
            return size + int((next_size - size) * share)

    def draw(self) -> None:
        """Draw the bar as far as it is now."""
        size = self._stored_bytes()
        self._bar.set_description_str(_account(self.stored, size, self._seconds()), refresh=False)
        self._bar.n = size if self._bar.total is None else min(size, self._bar.total)
        self._bar.refresh()

    def _keep_drawing(self) -> None:
        while not self._ended.wait(DRAW_SECONDS):
            self.draw()

    def _seconds(self) -> float:
        return max(time.monotonic() - self._began, 1e-6)

    def close(self) -> None:
        if self._drawing is not None:
            self._ended.set()
            self._drawing.join()
            self.draw()
            self._bar.close()

    def summary(self, topic: str) -> str:
        duration = self._seconds()
        where = f" to {topic} in {output.seconds(duration)}"
        return f"produced {_account(self.messages, self.bytes, duration, where)}"


def _account(messages: int, size: int, seconds: float, where: str = "") -> str:
    return (
        f"{output.messages(messages)} ({output.size(size)}){where}: "
        f"{output.rate(messages / seconds)} messages/s, {output.size(round(size / seconds))}/s"
    )


def _columns() -> int:
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:  # not a terminal
        columns = 0
    return columns or 80  # some terminals say 0, and then tqdm would draw nothing


def new_bar(total: int | None, *, unit: str, **options: Any) -> Any:
    """A bar of tqdm on stderr; the caller updates and closes it. Logs go above it until then."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Bar(tqdm):  # type: ignore[misc]
        def close(self) -> None:
            if not self.disable:
                logs.restore()
            super().close()

    tqdm.monitor_interval = 0  # no watching thread: it is for loops that seldom report
    logs = _LogsAbove(sys.stderr)
    return Bar(
        total=total,
        unit=unit,
        file=sys.stderr,
        ncols=_columns(),
        nrows=24,  # one bar needs no rows, but 0 would hide it
        **options,
    )


class _LogsAbove:
    """From now until `restore`, what is logged to this stream goes above the bars that stand there.

    A bar has no end of line, so a line that came next would be glued to it.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._redirected: list[logging.StreamHandler[Any]] = [
            handler
            for logger in (logging.getLogger(), logging.getLogger("hocket"))
            for handler in logger.handlers
            if isinstance(handler, logging.StreamHandler) and handler.stream is stream
        ]
        for handler in self._redirected:
            handler.setStream(self)

    def write(self, text: str) -> None:
        from tqdm import tqdm

        tqdm.write(text, file=self._stream, end="")  # clears the bars, and draws them again

    def flush(self) -> None:
        self._stream.flush()

    def restore(self) -> None:
        for handler in self._redirected:
            handler.setStream(self._stream)
        self._redirected = []
