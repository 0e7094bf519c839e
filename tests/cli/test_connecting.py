"""How commands find their broker, and what they say when they do not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import hocket as package
from hocket.cli.program import program
from hocket.cli.server_options import TIMEOUT_DEFAULT
from hocket.errors import NotAllowed, ReplyLost, UnknownTopic
from tests.support.cli import NOBODY, Hocket, Outcome, fails


def invoke(*args: str, **env: str) -> Outcome:
    result = CliRunner(env=env).invoke(program, args)
    return Outcome(result.exit_code, result.stdout_bytes, result.stderr)


NEEDING_A_BROKER = [
    ["topic", "list"],
    ["topic", "create", "t"],
    ["topic", "describe", "t"],
    ["topic", "alter", "t", "--partitions", "2"],
    ["topic", "delete", "t", "--yes"],
    ["publish", "t", "v"],
    ["produce", "t", "--file", "/dev/null"],
    ["consume", "t"],
    ["index", "list", "t"],
    ["index", "lag", "t"],
    ["index", "reset", "t", "i", "--to", "latest"],
    ["index", "delete", "t", "i", "--yes"],
]


@pytest.mark.parametrize("args", NEEDING_A_BROKER, ids=" ".join)
def test_no_broker(args: list[str]):
    outcome = invoke(*args, "--server", NOBODY, "--timeout", "0.1")
    fails(outcome, 5, "127.0.0.1:1", "hocket serve")


def test_the_server_may_stand_before_the_command_or_after_it_or_in_the_environment(server: str):
    names = ["topic", "list", "--names"]
    assert invoke("--server", server, *names).code == 0
    assert invoke(*names, "--server", server).code == 0
    assert invoke(*names, HOCKET_SERVER=server).code == 0
    short = ["--timeout", "0.1"]
    assert invoke("--server", NOBODY, *names, "--server", server).code == 0
    assert invoke("--server", NOBODY, *names, *short, HOCKET_SERVER=server).code == 5
    assert invoke("--server", server, *names, HOCKET_SERVER=NOBODY).code == 0
    assert invoke(*names, *short, HOCKET_SERVER=NOBODY).code == 5


def test_a_server_needs_no_scheme_and_a_bad_variable_is_named(server: str):
    names = ["topic", "list", "--names"]
    bare = server.removeprefix("hocket://")
    assert invoke(*names, "--server", bare).code == 0
    assert invoke(*names, HOCKET_SERVER=bare).code == 0
    fails(invoke(*names, HOCKET_SERVER="http://a"), 2, "HOCKET_SERVER: a broker's URL looks like")
    bad = invoke(*names, "--server", "http://a")
    fails(bad, 2, "a broker's URL looks like")
    assert "HOCKET_SERVER" not in bad.stderr


class Connecting:
    """Stands in for `hocket.connect` and keeps what it was called with."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.called: dict[str, Any] = {}

    def __call__(self, url: str, **options: Any) -> Any:
        self.called = {"url": url, **options}
        raise self.error


@pytest.fixture
def connecting(monkeypatch: pytest.MonkeyPatch) -> Connecting:
    stand_in = Connecting(NotAllowed("no token, no topics"))
    monkeypatch.setattr(package, "connect", stand_in, raising=False)
    return stand_in


def test_the_token_comes_from_a_file_or_the_environment(connecting: Connecting, tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    fails(invoke("topic", "list"), 4, "no token, no topics")
    assert connecting.called["token"] is None
    invoke("topic", "list", HOCKET_TOKEN="from-env")
    assert connecting.called["token"] == "from-env"
    invoke("topic", "list", "--token-file", str(token), HOCKET_TOKEN="from-env")
    assert connecting.called["token"] == "secret"


def test_a_token_file_that_is_no_good(tmp_path: Path):
    fails(invoke("topic", "list", "--token-file", str(tmp_path / "none")), 1, "none")
    empty = tmp_path / "empty"
    empty.write_text("\n")
    fails(invoke("topic", "list", "--token-file", str(empty)), 1, "empty")


def test_how_to_connect_is_passed_on(connecting: Connecting, tmp_path: Path):
    certificate = tmp_path / "ca.pem"
    certificate.write_text("")
    invoke("topic", "list", "--tls-ca", str(certificate), "--timeout", "1500ms",
           "--server", "hockets://example.test")  # fmt: skip
    assert connecting.called["url"] == "hockets://example.test"
    assert connecting.called["tls_ca"] == certificate
    assert connecting.called["timeout"] == 1.5


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownTopic("no 't'"), 3),
        (NotAllowed("no"), 4),
        (ReplyLost("gone"), 5),
        (OSError(5, "Input/output error"), 1),
        (ZeroDivisionError("oh"), 1),
    ],
)
def test_every_error_is_one_line(connecting: Connecting, error: Exception, code: int):
    connecting.error = error
    fails(invoke("topic", "list"), code)
    assert "Traceback" in invoke("topic", "list", "--debug").stderr


def test_names_complete_by_asking_the_broker(hocket: Hocket, topic: str):
    hocket("publish", topic, "x")
    hocket("consume", topic, "--index", "billing")

    def complete(words: str, server: str = hocket.url) -> list[str]:
        parts = words.split(" ")
        env = {
            "_HOCKET_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(parts) - 1),
            "HOCKET_SERVER": server,
        }
        result = CliRunner(env=env).invoke(program, [])
        assert result.stderr == ""
        return [line.partition(",")[2] for line in result.stdout.split()]

    assert complete("hocket to") == ["topic"]
    assert topic in complete("hocket consume to")
    assert complete(f"hocket consume {topic}") == [topic]
    assert complete(f"hocket index lag {topic} b") == ["billing"]
    assert complete(f"hocket consume {topic} --index b") == ["billing"]
    assert complete(f"hocket consume {topic} --max 3 --index b") == ["billing"]
    assert complete(f"hocket dlq list {topic} --index b") == ["billing"]
    assert complete("hocket consume --index b") == []
    assert complete(f"hocket --server {hocket.url} consume {topic}", NOBODY) == [topic]
    assert "--follow" in complete("hocket consume --f")
    assert complete("hocket consume t --start e") == ["earliest"]
    assert complete("hocket topic create t --disk-retention f") == ["forever"]
    began = time.monotonic()
    assert complete("hocket consume to", NOBODY) == []
    assert time.monotonic() - began < TIMEOUT_DEFAULT  # of a command; completion has less
