"""The first start as in a container: reachable from outside, with TLS and users in one step.

Also what a broker says of itself on stderr, and to its service manager.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hocket.cli import admin_token
from hocket.cli.program import program
from hocket.node.broker import Broker
from hocket.node.identity import tokens
from tests.support import certificates
from tests.support.cli import Hocket, Outcome, fails, serving
from tests.support.threads import PATIENCE

TOKEN = "hocket_root_" + "b" * 42 + "A"


def records(log: Path) -> list[dict[str, Any]]:
    """What was logged; every line must be JSON."""
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_one_step_to_a_broker_with_tls_and_users_that_says_what_it_does(tmp_path: Path):
    made = certificates.made(tmp_path)
    data, token, log = tmp_path / "data", tmp_path / "admin.token", tmp_path / "log"
    options = [
        "--listen", "0.0.0.0:0", "--tls-cert", str(made.server.certificate),
        "--tls-key", str(made.server.key), "--admin-token-file", str(token),
    ]  # fmt: skip
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.settimeout(PATIENCE)
    told.bind(str(tmp_path / "manager"))
    variables = {
        "HOCKET_SERVE_LOG_FORMAT": "json",
        "HOCKET_SERVE_NAME": "alto",
        "NOTIFY_SOCKET": str(tmp_path / "manager"),
    }
    with told, log.open("wb") as file, serving(data, *options, log=file, **variables) as broker:
        assert told.recv(100) == b"READY=1"
        assert token.stat().st_mode & 0o777 == 0o600
        secret = token.read_text().strip()
        assert tokens.user_of(secret) == "admin"
        hocket = Hocket(broker.url.replace("0.0.0.0", "127.0.0.1"))
        trust = ["--tls-ca", str(made.authority)]
        fails(hocket("ping", *trust), 4, "asks for a token")
        known = [*trust, "--token-file", str(token)]
        assert hocket("topic", "create", "t", *known).code == 0
        assert hocket("topic", "create", "m", "--durability", "memory", *known).code == 0
        for value in ("one", "two", "three"):
            assert hocket("publish", "t", value, *known).code == 0
        assert hocket("consume", "t", "--max", "3", *known).text() == "one\ntwo\nthree\n"
        shared = ["--index", "i", "--mode", "shared", "--max", "3"]
        assert len(hocket("consume", "t", *shared, *known).text().splitlines()) == 3
        assert broker.stop(signal.SIGTERM) == 0
        assert told.recv(100) == b"STOPPING=1"
        assert broker.process.stdout is not None
        assert broker.process.stdout.read() == ""  # the ready line was all
    said = records(log)
    assert secret[-43:] not in log.read_text()
    (opened,) = [each for each in said if each.get("event") == "opened"]
    assert opened["logger"] == "hocket.serve"
    assert opened["access_control"] is opened["tls"] is True
    assert (opened["node"], opened["topics"], opened["partitions"]) == ("alto", 0, 0)
    assert opened["data"] == str(data)
    assert opened["listen"] == {"hockets": broker.url}
    assert any(each["logger"] == "hocket.audit" and "denied" in each["message"] for each in said)
    stopped = said[-1]
    assert (stopped["event"], stopped["reason"]) == ("stopped", "SIGTERM")
    assert (stopped["records_taken"], stopped["records_given"]) == (3, 6)
    assert stopped["bytes_taken"] > 11
    assert stopped["bytes_given"] > 2 * 11
    assert stopped["connections_total"] == 8
    assert stopped["connections_ended"] in (0, 1)  # the last client may be leaving just then
    assert 0 < stopped["close_seconds"] < stopped["uptime_seconds"]

    token.chmod(0o644)  # at later starts nobody looks at it
    token.write_text("garbage")
    with log.open("wb") as file, serving(data, *options, log=file) as broker:
        assert broker.stop(signal.SIGINT) == 0
    lines = [line.split(" ", 2)[2] for line in log.read_text().splitlines()]
    assert lines[-2].startswith(f"INFO hocket.serve: opened {data} in ")
    assert "2 topics, 2 partitions, " in lines[-2]
    assert "durability of topics: 1 memory, 1 quorum; " in lines[-2]
    assert lines[-2].endswith("access control is on, TLS is on")
    assert lines[-1].startswith("INFO hocket.serve: stopped by SIGINT after ")
    assert "0 of 0 connections ended; took 0 records (0 B), gave 0 records (0 B)" in lines[-1]
    assert not any(" WARNING " in line or " ERROR " in line for line in lines)
    assert token.read_text() == "garbage"


# --- the admin's token ---------------------------------------------------------------------------


def make(path: Path, data: Path) -> bool:
    broker = Broker(data)
    try:
        made = admin_token.make_first_admin(path, broker)
        assert broker.node.access_is_on
    finally:
        broker.close()
    return made


def test_a_token_that_is_there_is_used_and_its_user_is_the_admin(tmp_path: Path):
    path, data = tmp_path / "token", tmp_path / "data"
    path.write_text(f"  {TOKEN}\n")
    path.chmod(0o400)
    assert not make(path, data)
    assert path.read_text() == f"  {TOKEN}\n"
    broker = Broker(data)
    try:
        (name,) = broker.node._access.committed.users
        assert name == "root"
        assert broker.node._access.committed.users[name].roles == ("admin",)
        assert tokens.is_token_of(TOKEN, broker.node._access.committed.users[name].token_hash)
    finally:
        broker.close()


def test_a_token_that_was_written_before_a_crash_is_used_by_the_next_start(tmp_path: Path):
    path = tmp_path / "token"
    broker = Broker(tmp_path / "data")

    def crash(_token: str) -> None:
        raise MemoryError

    broker.make_first_admin = crash  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        admin_token.make_first_admin(path, broker)
    broker.close()
    written = path.read_text()
    assert not make(path, tmp_path / "data")
    assert path.read_text() == written


def test_an_empty_file_gets_a_token(tmp_path: Path):
    path = tmp_path / "token"
    path.touch(mode=0o600)
    assert make(path, tmp_path / "data")
    assert tokens.is_token(path.read_text().strip())
    assert not make(path, tmp_path / "data")  # and never again


BAD = {
    "too open": (TOKEN, 0o640, ["0640", "chmod 600 "]),
    "readable by all, and empty": ("", 0o644, ["0644", "chmod 600 "]),
    "no token": ("open-sesame", 0o600, ["hocket_NAME_SECRET"]),
    "too short a secret": ("hocket_ann_abc", 0o600, ["hocket_NAME_SECRET"]),
    "a secret of other letters": ("hocket_ann_" + "!" * 43, 0o600, ["hocket_NAME_SECRET"]),
    "a name that is none": ("hocket_a b_" + "A" * 43, 0o600, ["hocket_NAME_SECRET"]),
    "two tokens": (f"{TOKEN}\n{TOKEN}", 0o600, ["hocket_NAME_SECRET"]),
    "not even text": ("\udcff\udcfe", 0o600, ["hocket_NAME_SECRET"]),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_refused_before_anything_is_made(kind: str, tmp_path: Path):
    content, mode, words = BAD[kind]
    path = tmp_path / "to ken"
    path.write_bytes(content.encode(errors="surrogateescape"))
    path.chmod(mode)
    outcome = start(path, tmp_path / "data")
    fails(outcome, 1, str(path), *words)
    assert TOKEN not in outcome.stderr
    assert not content or content not in outcome.stderr
    assert not (tmp_path / "data").exists()
    assert path.stat().st_mode & 0o777 == mode


def start(path: Path, data: Path) -> Outcome:
    args = ["serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    result = CliRunner().invoke(program, [*args, "--admin-token-file", str(path)])
    return Outcome(result.exit_code, result.stdout_bytes, result.stderr)


@pytest.mark.usefixtures("usual_logging")
def test_a_token_may_come_through_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As `--admin-token-file <(...)` of a shell has it: it can be read once."""
    reader, writer = os.pipe()
    os.write(writer, TOKEN.encode())
    os.close(writer)
    monkeypatch.setattr(Broker, "run", Broker.stop)  # as if a signal came at once
    outcome = start(Path(f"/dev/fd/{reader}"), tmp_path / "data")
    os.close(reader)
    assert outcome.code == 0, outcome.stderr
    broker = Broker(tmp_path / "data")
    assert list(broker.node._access.committed.users) == ["root"]
    broker.close()


def test_a_place_that_cannot_have_the_file_is_refused(tmp_path: Path):
    fails(start(tmp_path / "none" / "token", tmp_path / "data"), 1, "not there", "none")
    fails(start(tmp_path, tmp_path / "data"), 2, "--admin-token-file")
    assert os.listdir(tmp_path) == []


def test_a_file_of_somebody_else_is_taken_as_it_is(tmp_path: Path, monkeypatch):
    """A secret that is mounted into a container belongs to root, and all may read it: as ssh does
    with keys, only what is ours must be closed."""
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o444)
    owner = path.stat().st_uid
    monkeypatch.setattr(admin_token.os, "geteuid", lambda: owner + 1)
    assert not make(path, tmp_path / "data")
