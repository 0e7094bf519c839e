"""The log of a broker process, on stderr: one line for each record, whatever is in it."""

from __future__ import annotations

import logging


class OneLine(logging.Formatter):
    """Escapes what would break a line: a name that a client chose must not forge log lines.

    The traceback of an error still takes several lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as it is called
        line = super().formatMessage(record)
        if line.isprintable():
            return line
        return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def log_to_stderr(level: str) -> None:
    """Log from `level` up. Denials and changes of access (`hocket.audit`) are always logged."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("hocket.audit").setLevel(logging.INFO)
