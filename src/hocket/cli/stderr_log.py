"""The log of a broker process, on stderr: text for people, or one JSON object a line.

In text a record is one line, whatever is in it, and the traceback of an error follows it. In JSON
everything that is said on stderr is a record: warnings of Python, what ends a thread, and the error
that ends the command, too.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import warnings
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

FORMATS = ("text", "json")
_FIELDS = "hocket_fields"  # the attribute of a record that has its fields
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

log = logging.getLogger("hocket")


class OneLine(logging.Formatter):
    """Escapes what would break a line: a name that a client chose must not forge log lines.

    The traceback of an error still takes several lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as it is called
        line = super().formatMessage(record)
        if line.isprintable():
            return line
        return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


class JsonLine(logging.Formatter):
    """`time` is UTC, `traceback` is there if there was an error, other fields if a record has them.

    Everything but ASCII is escaped, so nothing can break a line.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        found: dict[str, Any] = {
            "time": f"{time:%Y-%m-%dT%H:%M:%S.%f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


def fields(event: str, **values: Any) -> dict[str, Any]:
    """The `extra` of a record that JSON shows with `event` and these fields."""
    return {_FIELDS: {"event": event, **values}}


def log_to_stderr(level: str, form: str = "text") -> None:
    """Log from `level` up. Denials and changes of access (`hocket.audit`) are always logged."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLine() if form == "json" else OneLine(_TEXT))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("hocket.audit").setLevel(logging.INFO)
    if form == "json":
        warnings.showwarning = _log_warning
        threading.excepthook = _log_end_of_thread
        sys.unraisablehook = _log_unraisable


def is_json() -> bool:
    """Whether everything on stderr is JSON now."""
    return any(isinstance(each.formatter, JsonLine) for each in logging.getLogger().handlers)


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,  # noqa: ARG001 - as it is called
    line: object = None,  # noqa: ARG001
) -> None:
    log.warning("%s: %s (%s:%d)", category.__name__, message, filename, lineno)


def _log_end_of_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        name = args.thread.name if args.thread is not None else "(unknown)"
        log.error("an error has ended thread %r", name, exc_info=args.exc_value)


def _log_unraisable(args: UnraisableHookArgs) -> None:
    what = args.err_msg or "an error that nobody can be told of"
    log.error("%s: %r", what, args.object, exc_info=args.exc_value)
