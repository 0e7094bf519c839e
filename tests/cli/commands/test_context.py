"""`hocket context`: brokers by name, and which of flag, variable and context wins."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import hocket as package
from hocket.cli import contexts
from hocket.cli.program import program
from hocket.errors import NoConnection
from tests.support.cli import Outcome, fails
from tests.support.threads import PATIENCE

DEV, PROD = "hocket://127.0.0.1:4151", "hockets://broker.example:4150"


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file of contexts is; nobody has made it yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "hocket" / "contexts.json"


def run(*args: str, **env: str) -> Outcome:
    result = CliRunner(env=env).invoke(program, args)
    return Outcome(result.exit_code, result.stdout_bytes, result.stderr)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """The contexts `dev`, which is in use, and `prod`; the file with prod's token."""
    token = tmp_path / "prod.token"
    token.write_text("prods-token\n")
    assert run("context", "add", "dev", "--server", DEV).code == 0
    files = ["--token-file", str(token), "--ca", str(token)]
    assert run("context", "add", "prod", "--server", PROD, *files).code == 0
    return token


def test_they_are_added_listed_used_shown_and_removed(two: Path, config: Path):
    assert [line.split() for line in run("context", "list").text().splitlines()] == [
        ["CONTEXT", "SERVER", "TOKEN", "FILE"],
        ["*", "dev", DEV, "-"],
        ["prod", PROD, str(two)],
    ]
    assert run("context", "use", "prod").text() == ""
    prod = {
        "context": "prod", "current": True, "server": PROD, "token_file": str(two),
        "tls_ca": str(two),
    }  # fmt: skip
    assert run("context", "list", "--json").json()[1] == prod
    assert run("context", "show", "--json").json() == prod
    assert f"token file  {two}\n" in run("context", "show").text()
    assert DEV in run("context", "show", "dev").text()
    assert DEV in run("--context", "dev", "context", "show").text()
    assert DEV in run("context", "show", HOCKET_CONTEXT="dev").text()
    gone = run("context", "remove", "prod")
    assert (gone.code, gone.stdout) == (0, b"")
    assert "'prod' was in use" in gone.stderr
    assert "no context is in use" in run("context", "show").stderr
    assert two.exists()
    assert json.loads(config.read_text()) == {"current": None, "contexts": {"dev": {"server": DEV}}}


def test_the_file_is_its_owners_alone_and_holds_no_token(two: Path, config: Path):
    assert config.stat().st_mode & 0o777 == 0o600
    assert config.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(config.parent) == [config.name]  # what it was written to first is gone
    assert "prods-token" not in config.read_text()


def test_a_file_that_cannot_be_replaced_stays_as_it_was(two: Path, config: Path, monkeypatch):
    before = config.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(contexts.os, "fsync", full)
    fails(run("context", "use", "prod"), 1, "cannot write the contexts", "No space left")
    assert config.read_bytes() == before
    assert os.listdir(config.parent) == [config.name]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["use", "prd"], 3, "did you mean 'prod'?"),
        (["use", "elsewhere"], 3, "there are: dev, prod"),
        (["use"], 2, "--none"),
        (["use", "prod", "--none"], 2, "--none"),
        (["show", "prdo"], 3, "did you mean 'prod'?"),
        (["remove", "prdo"], 3, "did you mean 'prod'?"),
        (["add", "dev", "--server", PROD], 1, "--replace"),
        (["add", "a b", "--server", PROD], 2, "the name of the context"),
        (["add", "new"], 2, "--server"),
        (["add", "new", "--server", "http://host"], 2, "hocket://"),
        (["add", "new", "--server", "localhost:port"], 2, "a port is a number"),
        (["add", "new", "--server", PROD, "--token-file", "/nonexistent"], 2, "--token-file"),
        (["add", "new", "--server", PROD, "--tls-cert", __file__], 2, "--tls-key"),
    ],
)
def test_mistakes_are_told_and_change_nothing(two: Path, config: Path, args, code, words):
    before = config.read_bytes()
    fails(run("context", *args), code, words)
    assert config.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no file of contexts"),
        ("\udcff", "is no file of contexts"),
        ("[]", "no 'contexts'"),
        ('{"contexts": {"a": {"server": 3}}}', "'a'"),
        ('{"contexts": {"a": {}}}', "no 'server'"),
        ('{"contexts": {"a": {"server": "hocket://h", "token": "t"}}}', "unknown field 'token'"),
        ('{"contexts": {"a/b": {"server": "hocket://h"}}}', "a/b"),
        ('{"contexts": {}, "current": "x"}', "'x'"),
    ],
)
def test_a_damaged_file_is_named_and_left_alone(config: Path, text: str, words: str):
    config.parent.mkdir(parents=True)
    config.write_text(text, errors="surrogateescape")
    for args in (["context", "list"], ["context", "add", "x", "--server", DEV], ["ping"]):
        fails(run(*args), 1, "contexts.json", words)
    assert config.read_text(errors="surrogateescape") == text


def test_replacing_and_choosing_at_once(two: Path):
    assert run("context", "add", "dev", "--server", PROD, "--replace").code == 0
    assert run("context", "add", "third", "--server", DEV, "--use").code == 0
    found = {each["context"]: each for each in run("context", "list", "--json").json()}
    assert (found["dev"]["server"], found["third"]["current"]) == (PROD, True)
    run("context", "use", "--none")
    assert not any(each["current"] for each in run("context", "list", "--json").json())


def test_before_there_is_one_it_says_how_to_make_one():
    assert "hocket context add NAME" in run("context", "list").stderr
    fails(run("context", "use", "prod"), 3, "hocket context add prod --server URL")
    fails(run("ping", "--context", "prod"), 3, "'prod'", "--context names")


def test_who_changes_the_file_at_the_same_time_waits(two: Path, monkeypatch: pytest.MonkeyPatch):
    came, flock = threading.Event(), contexts.fcntl.flock

    def come_and_lock(descriptor: int, how: int) -> None:
        came.set()
        flock(descriptor, how)

    def add_late() -> None:
        with contexts.changing() as found:
            found.contexts["late"] = contexts.Context(DEV)

    late = threading.Thread(target=add_late)
    with contexts.changing() as found:
        monkeypatch.setattr(contexts.fcntl, "flock", come_and_lock)
        late.start()
        assert came.wait(PATIENCE)
        found.contexts["early"] = contexts.Context(DEV)
    late.join()
    assert sorted(contexts.load().contexts) == ["dev", "early", "late", "prod"]


def test_names_are_completed(two: Path):
    for typed, at in (("hocket context use p", "3"), ("hocket --context p", "2")):
        words = {"_HOCKET_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": at}
        assert CliRunner(env=words).invoke(program, []).stdout == "plain,prod\n"


def test_a_user_without_a_home_has_no_contexts(monkeypatch: pytest.MonkeyPatch):
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")  # to be ignored
    monkeypatch.setattr(Path, "home", nowhere)
    assert contexts.load() == contexts.Contexts()
    fails(run("context", "add", "dev", "--server", DEV), 1, "home directory")


# --- what wins -----------------------------------------------------------------------------------


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `hocket.connect` was called with last."""
    called: dict[str, Any] = {}

    def connect(url: str | None, **options: Any) -> Any:
        called.clear()
        called.update(url=url or os.environ["HOCKET_SERVER"], **options)
        raise NoConnection("nobody is here")

    monkeypatch.setattr(package, "connect", connect, raising=False)
    return called


def test_a_flag_wins_over_a_variable_over_the_context_over_the_default(two: Path, connected):
    def asked(*args: str, **env: str) -> tuple[str, str | None]:
        fails(run("topic", "list", *args, **env), 5, "nobody is here")
        return connected["url"], connected["token"]

    other = "hocket://other"
    assert asked() == (DEV, None)
    assert asked("--context", "prod") == (PROD, "prods-token")
    assert connected["tls_ca"] == two
    assert asked(HOCKET_CONTEXT="prod") == (PROD, "prods-token")
    assert asked("--context", "dev", HOCKET_CONTEXT="prod") == (DEV, None)
    run("context", "use", "prod")
    assert asked() == (PROD, "prods-token")
    assert asked(HOCKET_TOKEN="mine") == (PROD, "mine")
    two.with_name("other").write_text("from-file")
    file = str(two.with_name("other"))
    assert asked(HOCKET_TOKEN_FILE=file) == (PROD, "from-file")
    assert asked(HOCKET_TOKEN_FILE=file, HOCKET_TOKEN="mine") == (PROD, "mine")
    assert asked("--token-file", file, HOCKET_TOKEN="mine") == (PROD, "from-file")
    # The context in use is for its own server: no other one is shown its token.
    assert asked("--server", other) == (other, None)
    assert connected["tls_ca"] is None
    assert asked(HOCKET_SERVER=other) == (other, None)
    assert asked("--server", other, HOCKET_SERVER=DEV) == (other, None)
    # Whoever names both wants both.
    assert asked("--server", other, "--context", "prod") == (other, "prods-token")
    assert asked(HOCKET_SERVER=other, HOCKET_CONTEXT="prod") == (other, "prods-token")
    # A context that the command line names wins over variables, as any option does.
    theirs = {"HOCKET_SERVER": other, "HOCKET_TOKEN": "mine", "HOCKET_TLS_CA": "/nonexistent"}
    assert asked("--context", "prod", **theirs) == (PROD, "prods-token")
    assert connected["tls_ca"] == two
    assert asked("--context", "prod", "--server", other, **theirs) == (other, "prods-token")
    assert asked("--context", "prod", "--token-file", file, **theirs) == (PROD, "from-file")
    run("context", "use", "--none")
    assert asked() == ("hocket://127.0.0.1:4150", None)


def test_it_may_stand_before_the_command_or_after_it(two: Path, connected):
    run("--context", "prod", "topic", "list")
    assert connected["url"] == PROD
    run("--context", "prod", "topic", "list", "--context", "dev")
    assert connected["url"] == DEV
    run("--context", "prod", "topic", "list", HOCKET_CONTEXT="dev")
    assert connected["url"] == PROD


def test_a_certificate_of_a_flag_is_not_mixed_with_that_of_the_context(tmp_path: Path, connected):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for each in (ours, theirs):
        each.write_text("")
    run("context", "add", "c", "--server", PROD, "--tls-cert", str(ours), "--tls-key", str(ours))
    run("ping")
    assert (connected["tls_cert"], connected["tls_key"]) == (ours, ours)
    run("ping", "--tls-cert", str(theirs))
    assert (connected["tls_cert"], connected["tls_key"]) == (theirs, None)


def test_files_that_are_gone_are_told_by_what_named_them(two: Path, tmp_path: Path):
    gone = tmp_path / "gone"
    gone.touch()
    run("context", "add", "third", "--server", DEV, "--token-file", str(gone))
    gone.unlink()
    fails(run("ping", "--context", "third"), 1, "token file of the context 'third'", str(gone))
    fails(run("ping", "--token-file", str(gone)), 1, "token file: ", str(gone))
    two.unlink()
    fails(run("ping", "--context", "prod"), 2, "--tls-ca of the context 'prod'", str(two))
    fails(run("ping", HOCKET_TLS_CERT="/nonexistent"), 2, "the variable HOCKET_TLS_CERT")
    fails(run("ping", "--tls-key", "/nonexistent"), 2, "'--tls-key'")
    # A command that goes to no broker has no use for them; `certs init` makes one.
    assert run("context", "list", HOCKET_TLS_CA="/nonexistent").code == 0


def test_a_context_that_is_not_there_is_said_with_what_named_it(two: Path):
    fails(run("ping", HOCKET_CONTEXT="prdo"), 3, "HOCKET_CONTEXT", "did you mean 'prod'?")
    fails(run("--context", "prdo", "ping"), 3, "--context", "did you mean 'prod'?")
