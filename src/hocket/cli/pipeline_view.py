"""What is seen of a pipeline while it runs.

On a terminal it is a line that stays in place, in a pipe plain lines, and with --json JSON.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from hocket.cli import output

if TYPE_CHECKING:
    from hocket.pipelines.running import Update


def summary(update: dict[str, Any]) -> str:
    """One update in words."""
    lag = ", ".join(f"{topic} {output.number(lag)}" for topic, lag in update["lag"].items())
    parts = [
        f"update {update['number']}",
        output.seconds(update["seconds"]),
        f"{output.number(update['rows'])} rows ({output.rate(update['rows_per_second'])}/s)",
        f"lag {lag or 'none'}",
        f"{output.number(update['bad_in_all'])} bad",
    ]
    return ", ".join(parts)


class PlainView:
    """A line for each update in which something happened, and for each thing to know."""

    def __init__(self, *, quiet_idle: bool = True) -> None:
        self._quiet_idle = quiet_idle

    def line(self, text: str) -> None:
        click.echo(text)
        sys.stdout.flush()

    def progress(self, update: Update) -> None:
        pass

    def updated(self, update: Update) -> None:
        if update.rows or update.bad or update.number == 1 or not self._quiet_idle:
            self.line(summary(asdict(update)))


class JsonView:
    """A JSON object for each update, on a line of its own."""

    def line(self, text: str) -> None:
        click.echo(text, err=True)

    def progress(self, update: Update) -> None:
        pass

    def updated(self, update: Update) -> None:
        output.print_json(asdict(update))
        sys.stdout.flush()


class LiveView:
    """The present update in a line that stays in place; those before it stay above."""

    def __init__(self) -> None:
        self._drawn = False

    def line(self, text: str) -> None:
        self.clear()
        click.echo(text)

    def progress(self, update: Update) -> None:
        self._draw(f"... {summary(asdict(update))}")

    def updated(self, update: Update) -> None:
        if update.rows or update.bad or update.number == 1:
            self.line(summary(asdict(update)))
        else:
            self._draw(f"idle: {summary(asdict(update))}")

    def _draw(self, text: str) -> None:
        sys.stdout.write("\r\x1b[K" + text[: output.width() - 1])
        sys.stdout.flush()
        self._drawn = True

    def clear(self) -> None:
        if self._drawn:
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()
            self._drawn = False
