"""How far `produce` has come: a bar on stderr while it works, and one line when it is done."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from hocket.cli import output


class Progress:
    """Counts messages and bytes. With `shown`, a bar; `total_bytes` lets it tell the end."""

    def __init__(self, *, shown: bool, total_bytes: int | None) -> None:
        self.messages = 0
        self.bytes = 0
        self._began = time.monotonic()
        self._bar = _bar(total_bytes) if shown else None

    def add_messages(self, count: int) -> None:
        self.messages += count

    def add_bytes(self, count: int) -> None:
        """Of the input, which is what the bar measures."""
        self.bytes += count
        if self._bar is not None:
            speed = output.rate(self.messages / self._seconds())
            self._bar.set_postfix_str(f"{output.messages(self.messages)}, {speed}/s", refresh=False)
            self._bar.update(count)

    def _seconds(self) -> float:
        return max(time.monotonic() - self._began, 1e-6)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def summary(self, topic: str) -> str:
        duration = self._seconds()
        return (
            f"produced {output.messages(self.messages)} ({output.size(self.bytes)}) to "
            f"{topic} in {output.seconds(duration)}: "
            f"{output.rate(self.messages / duration)} messages/s, "
            f"{output.size(round(self.bytes / duration))}/s"
        )


def _columns() -> int:
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:  # not a terminal
        columns = 0
    return columns or 80  # some terminals do not know either, and tqdm would draw nothing


def _bar(total_bytes: int | None) -> Any:
    from tqdm import tqdm  # type: ignore[import-untyped]

    tqdm.monitor_interval = 0  # its watching thread is for loops that seldom report; ours does
    return tqdm(
        total=total_bytes,
        unit="B",
        unit_scale=True,
        unit_divisor=1024,
        file=sys.stderr,
        ncols=_columns(),
        nrows=24,  # of no use for one bar, but it must not be 0
    )
