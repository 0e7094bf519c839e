"""What a broker logs, on stderr: a line for each thing, whatever is in it."""

from __future__ import annotations

import logging


class OneLine(logging.Formatter):
    """Names that clients chose cannot make lines of their own; the trace of an error may."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as it is called
        line = super().formatMessage(record)
        if line.isprintable():
            return line
        return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def log_to_stderr(level: str) -> None:
    """What was denied, and who changed what, is logged at every level (`hocket.audit`)."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("hocket.audit").setLevel(logging.INFO)
