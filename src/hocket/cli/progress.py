"""The progress of a command: a bar on stderr while it works; for `produce`, a line at its end."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from hocket.cli import output


class Progress:
    """Counts messages and bytes. With `shown` there is a bar; `total_bytes` tells it the end."""

    def __init__(self, *, shown: bool, total_bytes: int | None) -> None:
        self.messages = 0
        self.bytes = 0
        self._began = time.monotonic()
        options = {"unit_scale": True, "unit_divisor": 1024}
        self._bar = new_bar(total_bytes, unit="B", **options) if shown else None

    def add_messages(self, count: int) -> None:
        self.messages += count

    def add_bytes(self, count: int) -> None:
        """Count bytes of the input; the bar shows these."""
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
    return columns or 80  # some terminals say 0, and then tqdm would draw nothing


def new_bar(total: int | None, *, unit: str, **options: Any) -> Any:
    """A bar of tqdm on stderr; the caller updates and closes it."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    tqdm.monitor_interval = 0  # no watching thread: it is for loops that seldom report
    return tqdm(
        total=total,
        unit=unit,
        file=sys.stderr,
        ncols=_columns(),
        nrows=24,  # one bar needs no rows, but 0 would hide it
        **options,
    )
