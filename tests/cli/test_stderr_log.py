"""What `hocket serve` logs: a line is a line, and the audit is never silenced."""

from __future__ import annotations

import json
import logging
import threading
import warnings
from typing import Any

import pytest
from click.testing import CliRunner

from hocket.cli import exits, stderr_log
from hocket.cli.program import program
from hocket.cli.stderr_log import OneLine, log_to_stderr


def test_names_that_clients_chose_make_no_lines_of_their_own():
    name = "a\nb\x1b[2J\u2028ü"
    record = logging.LogRecord("n", logging.INFO, "", 0, "denied: %s", (name,), None)
    assert OneLine("%(message)s").format(record) == "denied: a\\nb\\x1b[2J\\u2028ü"


def test_the_trace_of_an_error_keeps_its_lines():
    try:
        raise ValueError("no")
    except ValueError as error:
        trace = (ValueError, error, error.__traceback__)
        record = logging.LogRecord("n", logging.ERROR, "", 0, "broken", (), trace)
    assert OneLine("%(message)s").format(record).count("\n") > 2


def test_the_audit_is_logged_whatever_the_level(usual_logging, capsys):
    log_to_stderr("ERROR")
    logging.getLogger("hocket.node").info("not this")
    logging.getLogger("hocket.audit").info("but this")
    said = capsys.readouterr().err
    assert "but this" in said
    assert "not this" not in said


# --- JSON ----------------------------------------------------------------------------------------


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_every_record_is_an_object_of_one_line(usual_logging, capsys):
    log_to_stderr("INFO", "json")
    logger = logging.getLogger("hocket.node")
    logger.info("named %s", 'a\nb"\u2028ü', extra=stderr_log.fields("named", count=3))
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("broken")
    plain, broken = lines(capsys)
    assert plain.pop("time").endswith("Z")
    assert plain == {
        "level": "info",
        "logger": "hocket.node",
        "message": 'named a\nb"\u2028ü',
        "event": "named",
        "count": 3,
    }
    assert (broken["level"], broken["message"]) == ("error", "broken")
    assert broken["traceback"].startswith("Traceback")
    assert broken["traceback"].endswith("ValueError: no")


def test_what_python_itself_would_print_is_a_record_too(usual_logging, capsys):
    log_to_stderr("INFO", "json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = stderr_log._log_warning  # catch_warnings has put its own there
        warnings.warn("old ways", DeprecationWarning, stacklevel=1)

    def fall() -> None:
        raise ZeroDivisionError("off the edge")

    thread = threading.Thread(target=fall, name="faller")
    thread.start()
    thread.join()

    class Unlucky:
        def __del__(self) -> None:
            raise KeyError("last words")

    Unlucky()
    warning, ended, unraisable = lines(capsys)
    assert warning["level"] == "warning"
    assert warning["message"].startswith("DeprecationWarning: old ways (")
    assert ended["message"] == "an error has ended thread 'faller'"
    assert "ZeroDivisionError: off the edge" in ended["traceback"]
    assert "last words" in unraisable["traceback"]


def test_what_ends_the_command_is_a_record_too(usual_logging, capsys):
    log_to_stderr("INFO", "json")
    assert exits.report(OSError(5, "Input/output error"), debug=False) == 1
    assert exits.report(ZeroDivisionError("oh"), debug=True) == 1
    told, traced, unexpected = lines(capsys)
    assert (told["level"], told["message"]) == ("error", "[Errno 5] Input/output error")
    assert "ZeroDivisionError: oh" in traced["traceback"]
    assert unexpected["message"].startswith("unexpected ZeroDivisionError: oh")


def test_a_bad_option_beside_it_is_told_in_json(usual_logging):
    result = CliRunner().invoke(program, ["serve", "--listen", "x", "--log-format", "json"])
    assert result.exit_code == 2
    assert "HOST:PORT" in json.loads(result.stderr)["message"]
