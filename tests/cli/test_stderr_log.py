"""What `hocket serve` logs: a line is a line, and the audit is never silenced."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from hocket.cli.stderr_log import OneLine, log_to_stderr


@pytest.fixture
def usual_logging() -> Iterator[None]:
    root, audit = logging.getLogger(), logging.getLogger("hocket.audit")
    before = root.handlers[:], root.level, audit.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    audit.setLevel(before[2])


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
