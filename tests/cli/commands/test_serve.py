"""`hocket serve` as a process: its one line, its signals, and what it refuses."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import hocket as package
from hocket.adapters.disk import DirectoryDisk
from hocket.addresses import Address
from hocket.cli.commands.serve import default_data_directory
from hocket.cli.line_writer import LineWriter
from hocket.cli.listening import parse_address
from hocket.cli.program import program
from hocket.cli.stop_signals import StopSignals
from hocket.errors import NoConnection, OutOfRange
from hocket.log.directory import COPY, IDENTITY, write_checked
from hocket.node.broker import Broker, bind
from tests.support.cli import HOCKET, Hocket, Outcome, environment, fails, serving
from tests.support.processes import forked
from tests.support.threads import PATIENCE


def serve(*args: str) -> Outcome:
    """One that is expected not to come up."""
    done = forked.run([*HOCKET, "serve", *args], timeout=PATIENCE, env=environment())
    return Outcome(done.returncode, done.stdout, done.stderr.decode())


def test_it_says_one_line_when_it_is_ready_and_drains_on_sigterm(tmp_path: Path):
    with serving(tmp_path / "data") as broker:
        version, address = package.__version__, broker.url.removeprefix("hocket://")
        assert broker.ready == (
            f"hocket {version} serving {tmp_path / 'data'} on hocket://{address}\n"
        )
        host, port = parse_address(address)
        assert host == "127.0.0.1"
        assert port > 0
        hocket = Hocket(broker.url)
        hocket("topic", "create", "t")
        assert hocket("publish", "t", "kept").text() == "t/0/0\n"
        assert broker.stop(signal.SIGTERM) == 0
        assert broker.process.stdout is not None
        assert broker.process.stdout.read() == ""
    with serving(tmp_path / "data") as again:
        assert Hocket(again.url)("consume", "t").text() == "kept\n"
        assert again.stop(signal.SIGINT) == 0
    with serving(tmp_path / "data") as again:  # its terminal is closed
        assert again.stop(signal.SIGHUP) == 0


def test_a_client_that_is_connected_does_not_hold_up_the_end(tmp_path: Path):
    with serving(tmp_path / "data") as broker, package.connect(broker.url) as client:
        client.create_topic("t")
        assert broker.stop() == 0


def test_options_come_from_a_file_and_the_command_line_wins(tmp_path: Path):
    config = tmp_path / "hocket.toml"
    config.write_text(
        f'data = "{tmp_path}/from-file"\nname = "alto"\nlog-level = "error"\n'
        'checkpoint-bytes = "1MiB"\nscrub-interval = 0\nconnections = 5\n'
    )
    with serving(tmp_path / "from-flag", "--config", str(config)) as broker:
        assert "from-flag" in broker.ready
        hocket = Hocket(broker.url)
        hocket("topic", "create", "t")
        (node,) = hocket("node", "list", "--json").json()
        assert node["name"] == "alto"
        (partition,) = hocket("topic", "describe", "t", "--json").json()["partitions"]
        assert (partition["leader"], partition["replicas"]) == (node["node"], [node["node"]])
        assert broker.stop() == 0
    assert not (tmp_path / "from-file").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('lsten = "x"', "'lsten'"),
        ('listen = ["127.0.0.1:0"]', "'listen'"),
        ('listen = "nowhere"', "HOST:PORT"),
        ("listen = ", "not TOML"),
        ("debug = true", "'debug'"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, words: str):
    config = tmp_path / "hocket.toml"
    config.write_text(text)
    result = CliRunner().invoke(program, ["serve", "--config", str(config)])
    fails(Outcome(result.exit_code, result.stdout_bytes, result.stderr), 2, words)


def test_a_missing_file_is_refused(tmp_path: Path):
    result = CliRunner().invoke(program, ["serve", "--config", str(tmp_path / "none.toml")])
    fails(Outcome(result.exit_code, result.stdout_bytes, result.stderr), 2, "none.toml")


# --- what it refuses -----------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "*"])
def test_beyond_loopback_it_does_not_listen(tmp_path: Path, host: str):
    result = CliRunner().invoke(
        program, ["serve", "--listen", f"{host}:0", "--data", str(tmp_path / "data")]
    )
    outcome = Outcome(result.exit_code, result.stdout_bytes, result.stderr)
    fails(outcome, 1, host, "hocket certs init", "--tls-cert", "--tls-key", "; and ",
          "hocket user create NAME --role admin", "--listen 127.0.0.1:")  # fmt: skip
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("capacity", ["-1", "1000001", "half", "1.5"])
def test_a_capacity_is_a_whole_number(tmp_path: Path, capacity: str):
    result = CliRunner().invoke(
        program, ["serve", "--data", str(tmp_path / "data"), "--capacity", capacity]
    )
    outcome = Outcome(result.exit_code, result.stdout_bytes, result.stderr)
    fails(outcome, 2, "--capacity", capacity)
    assert not (tmp_path / "data").exists()


def test_a_ready_line_that_nobody_can_read_is_an_error(tmp_path: Path):
    """It would end with 0, and say nothing; or its starter would wait for the line for ever."""
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "wb") as full:
        for stdout, why in ((writer, "Broken pipe"), (full.fileno(), "No space left")):
            done = forked.run(
                [*HOCKET, "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")],
                stdout=stdout, timeout=PATIENCE, env=environment(),
            )  # fmt: skip
            said = done.stderr.decode().splitlines()[-1]
            assert (done.returncode, "ready" in said, why in said) == (1, True, True), said
    os.close(writer)


@pytest.mark.usefixtures("usual_logging")
def test_without_a_stdout_commands_do_their_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """`>&-`: Python then has no stdout at all."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(Broker, "run", Broker.stop)  # as if a signal came at once
    for args in (
        ["context", "list"],
        ["serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path)],
    ):
        with pytest.raises(SystemExit) as end:
            program.main(args)
        assert end.value.code == 0
    with pytest.raises(OSError, match="stdout is closed"):
        LineWriter(StopSignals())


def test_a_port_in_use_is_refused(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = serve("--listen", f"127.0.0.1:{port}", "--data", str(tmp_path / "data"))
    fails(outcome, 1, f"127.0.0.1:{port}", "--listen")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EADDRINUSE, "Is another broker running there?"),
        (errno.EADDRNOTAVAIL, "This machine has no such address."),
        (errno.EACCES, "Ports below 1024"),
        (errno.ENOBUFS, "Choose another"),
    ],
)
def test_why_it_cannot_listen_is_said(monkeypatch: pytest.MonkeyPatch, number: int, words: str):
    def refuse(_self: socket.socket, _address: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(NoConnection) as refused:
        bind("::1", 80)
    assert f"cannot listen on [::1]:80: {os.strerror(number)}. {words}" in str(refused.value)


def test_a_data_directory_in_use_is_refused(tmp_path: Path):
    with serving(tmp_path / "data") as broker:
        fails(serve("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")), 1, "data")
        assert broker.stop() == 0


def test_a_directory_that_holds_something_else_is_refused_and_left_alone(tmp_path: Path):
    (tmp_path / "letter.txt").write_text("dear")
    fails(serve("--listen", "127.0.0.1:0", "--data", str(tmp_path)), 1, str(tmp_path))
    assert os.listdir(tmp_path) == ["letter.txt"]


def test_a_file_is_no_data_directory(tmp_path: Path):
    (tmp_path / "file").write_text("")
    fails(serve("--data", str(tmp_path / "file")), 2, "--data")
    fails(serve("--listen", "127.0.0.1:0", "--data", str(tmp_path / "file" / "below")), 1, "below")


@pytest.mark.parametrize("name", ["bad name!", "-x", ".x", "a/b", "é", "x" * 256])
def test_a_name_of_a_node_follows_the_rule_of_names(tmp_path: Path, name: str):
    data = tmp_path / "data"
    for args, variables in (
        (["--name", name], {}),
        ([], {"HOCKET_SERVE_NAME": name}),
    ):
        done = CliRunner().invoke(program, ["serve", "--data", str(data), *args], env=variables)
        assert done.exit_code == 2, done.output
        assert "a node's name must be 1 to 255 characters (ASCII letters, digits, . _ -)" in (
            " ".join(done.output.split())
        )
    assert not data.exists()


def test_data_of_a_newer_format_is_refused(tmp_path: Path):
    data = tmp_path / "data"
    with serving(data) as broker:
        assert broker.stop() == 0
    for name in (IDENTITY, COPY):
        write_checked(DirectoryDisk(data), name, {"format": 999, "store": "x"})
    fails(serve("--listen", "127.0.0.1:0", "--data", str(data)), 1, "999")


# --- pieces --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4150", Address("127.0.0.1", 4150)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_addresses_are_read_and_written_alike(text: str, address: Address):
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["", ":", "h", "h:", "h:-1", "h:65536", "h:²", "::1:5", "[::1]"])
def test_what_is_no_address_is_refused(text: str):
    with pytest.raises(OutOfRange):
        parse_address(text)


def test_the_data_directory_is_the_users(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_DATA_HOME", "/data-home")
    assert default_data_directory() == Path("/data-home/hocket")
    monkeypatch.setenv("XDG_DATA_HOME", "")
    monkeypatch.setenv("HOME", "/somebody")
    assert default_data_directory() == Path("/somebody/.local/share/hocket")
