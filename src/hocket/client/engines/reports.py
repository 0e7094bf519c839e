"""What the cores report goes to the log `hocket`."""

from __future__ import annotations

import logging

from hocket.client.connection.report import Level

log = logging.getLogger("hocket")

_LEVELS: dict[Level, int] = {"info": logging.INFO, "warning": logging.WARNING}


def log_report(level: Level, text: str, *facts: object) -> None:
    """See `connection.report.Report`."""
    log.log(_LEVELS[level], text, *facts)
