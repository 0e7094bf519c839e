"""Whoever starts a command may have closed stdin, stdout or stderr: `<&-`, `>&-`, `2>&-`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from hocket.cli.confirming import confirm
from hocket.cli.exits import check_stdin
from tests.support.cli import HOCKET, Hocket, environment
from tests.support.threads import PATIENCE


def run(closed: str, url: str, *args: str) -> tuple[int, str]:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *HOCKET, *args],
        capture_output=True, timeout=PATIENCE, env=environment(HOCKET_SERVER=url), check=False,
    )  # fmt: skip
    return done.returncode, done.stderr.decode()


def test_a_closed_stream_is_not_mistaken_for_a_file_that_was_opened_since(
    hocket: Hocket, topic: str, tmp_path: Path
):
    code, said = run("<&-", hocket.url, "produce", topic)
    assert (code, said) == (1, "hocket: stdin is closed, so there is nothing to read\n")
    path = tmp_path / "lines"
    path.write_text("a\nb\n")
    assert run("2>&-", hocket.url, "produce", topic, "--file", str(path)) == (0, "")
    code, said = run(">&-", hocket.url, "consume", topic)
    assert (code, "stdout is closed" in said) == (1, True)
    assert hocket("consume", topic).text() == "a\nb\n"


def test_without_stdin_nothing_is_published_and_nothing_is_agreed_to(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(click.UsageError, match="add --yes"):
        confirm(False, "Go on?")
    with pytest.raises(click.ClickException, match="stdin is closed"):
        check_stdin()
