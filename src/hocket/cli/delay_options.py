"""When messages are due, as options: `--delay` and `--deliver-at`."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from hocket.cli.parameters import DURATION_US

F = TypeVar("F", bound=Callable[..., Any])


def _delay(_context: click.Context, _option: click.Parameter, us: int | None) -> timedelta | None:
    return None if us is None else timedelta(microseconds=us)


def _moment(_context: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    if text is None:
        return None
    example = "as in 2027-01-01T00:00:00+01:00, or with Z for UTC"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time in ISO format, {example}") from None
    if moment.utcoffset() is None:
        raise click.BadParameter(f"{text!r} does not say its time zone, {example}", param=option)
    return moment


def delay_options(command: F) -> F:
    """Add `--delay` and `--deliver-at`; `check_due` is to be called with them."""
    options = [
        click.option(
            "--delay", type=DURATION_US, callback=_delay,
            help="Nobody sees it before so long from now (30s, 5m, 2d); TOPIC must take delayed "
            "messages.",
        ),
        click.option(
            "--deliver-at", metavar="TIME", callback=_moment,
            help="Nobody sees it before this time, in ISO format and with its zone.",
        ),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def check_due(delay: timedelta | None, deliver_at: datetime | None) -> None:
    """Raise OutOfRange if no message can have both, or wait that long: before anything is read."""
    if delay is not None or deliver_at is not None:
        from hocket.client_core.producing.delays import (
            checked_due_us,  # late: `--help` needs no client
        )

        checked_due_us(delay, deliver_at, now_us=time.time_ns() // 1000)
