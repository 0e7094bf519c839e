"""`hocket certs`, and brokers and commands that use what it makes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import ssl
import stat
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import hocket as package
from hocket.adapters.disk import DirectoryDisk
from hocket.adapters.node_certificate import check_node_certificate
from hocket.adapters.tls import server_context
from hocket.addresses import Address
from hocket.cli.commands.certs import default_directory
from hocket.cli.listening import refuse_if_open
from hocket.cli.program import program
from hocket.errors import NoConnection
from hocket.log.directory import lock_existing
from tests.support.cli import Hocket, Outcome, Serving, fails, serving
from tests.support.threads import until


def run(*args: str) -> Outcome:
    result = CliRunner().invoke(program, args)
    return Outcome(result.exit_code, result.stdout_bytes, result.stderr)


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certs")
    run("certs", "init", "--directory", str(directory)).text()
    run("certs", "client", "alice", "--directory", str(directory)).text()
    return directory


def options(directory: Path, *, authority: bool = False) -> list[str]:
    files = [
        "--tls-cert",
        str(directory / "server.pem"),
        "--tls-key",
        str(directory / "server.key"),
    ]
    return [*files, "--tls-ca", str(directory / "ca.pem")] if authority else files


# --- making them ---------------------------------------------------------------------------------


def test_init_makes_an_authority_and_a_certificate_for_this_machine(tmp_path: Path):
    directory = tmp_path / "new place" / "certs"
    said = run("certs", "init", "--directory", str(directory), "--host", "broker.example",
               "--host", "10.0.0.7").text()  # fmt: skip
    assert sorted(os.listdir(directory)) == ["ca.key", "ca.pem", "server.key", "server.pem"]
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    names = certificate(directory / "server.pem")["subjectAltName"]
    assert names == (
        ("DNS", "localhost"), ("IP Address", "127.0.0.1"), ("IP Address", "0:0:0:0:0:0:0:1"),
        ("DNS", socket.gethostname()), ("DNS", "broker.example"), ("IP Address", "10.0.0.7"),
    )  # fmt: skip
    first, use, serve, reach = said.splitlines()
    assert "broker.example" in first
    assert use == "use it with:"
    assert shlex.split(serve) == ["hocket", "serve", *options(directory, authority=True)]
    assert shlex.split(reach)[-2:] == ["--tls-ca", str(directory / "ca.pem")]


def certificate(path: Path) -> dict[str, object]:
    """What the certificate says, read by somebody else's code."""
    found: dict[str, object] = ssl._ssl._test_decode_cert(str(path))  # type: ignore[attr-defined]
    return found


def test_a_client_certificate_names_its_user(certs: Path):
    assert certificate(certs / "client-alice.pem")["subject"] == ((("commonName", "alice"),),)
    assert stat.S_IMODE((certs / "client-alice.key").stat().st_mode) == 0o600


def test_a_nodes_certificate_names_its_store_and_serves_clients_too(tmp_path: Path):
    certs, data = tmp_path / "certs", tmp_path / "data"
    where = ["--directory", str(certs)]
    run("certs", "init", *where).text()
    said = run("certs", "node", "--data", str(data), "--host", "10.0.0.7", *where).text()
    store = json.loads((data / "hocket.json").read_text())["store"]  # it was founded
    found = certificate(certs / f"node-{store}.pem")
    assert found["subject"] == ((("commonName", f"node {store}"),),)
    names = found["subjectAltName"]
    assert isinstance(names, tuple)
    mark = ("URI", f"hocket://node/{store}")
    for name in (("DNS", "localhost"), ("IP Address", "10.0.0.7"), mark):
        assert name in names
    assert check_node_certificate(found, store, time.time()) is None
    assert stat.S_IMODE((certs / f"node-{store}.key").stat().st_mode) == 0o600
    first, use, serve, _reach = said.splitlines()
    assert store in first
    assert use == "use it with:"
    assert shlex.split(serve)[2:4] == ["--data", str(data)]
    made = certs / f"node-{store}.pem", certs / f"node-{store}.key"
    assert server_context(*made, certs / "ca.pem")

    # The same store again, as it is while a broker runs there: nothing is overwritten or locked.
    disk = DirectoryDisk(data)
    lock_existing(disk, str(data))
    try:
        fails(run("certs", "node", "--data", str(data), *where), 1, f"node-{store}.pem")
        for path in made:
            path.unlink()
        assert store in run("certs", "node", "--data", str(data), *where).text()
    finally:
        disk.unlock()

    assert "node other" in run("certs", "node", "--store-id", "other", *where).text()
    assert check_node_certificate(certificate(certs / "node-other.pem"), store, time.time())


def test_a_nodes_certificate_needs_to_know_the_node(tmp_path: Path):
    where = ["--directory", str(tmp_path / "certs")]
    data = ["--data", str(tmp_path / "data")]
    fails(run("certs", "node", *data, *where), 1, "hocket certs init")
    assert not (tmp_path / "data").exists()  # nothing is founded in vain
    run("certs", "init", *where).text()
    fails(run("certs", "node", *where), 2, "--data DIR", "--store-id ID")
    fails(run("certs", "node", *data, "--store-id", "x", *where), 2, "--data DIR")
    fails(run("certs", "node", "--store-id", "a b", *where), 2, "'a b'")
    fails(run("certs", "node", "--store-id", "a" * 60, *where), 2, "60 characters")
    fails(run("certs", "node", "--data", str(tmp_path), *where), 1, "is not empty")
    (tmp_path / "file").write_text("")
    fails(run("certs", "node", "--data", str(tmp_path / "file" / "x"), *where), 1, "file")


def test_nothing_is_overwritten(tmp_path: Path):
    directory = str(tmp_path)
    run("certs", "init", "--directory", directory).text()
    run("certs", "client", "bob", "--directory", directory).text()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    fails(run("certs", "init", "--directory", directory), 1, "server.pem", "there already")
    fails(run("certs", "client", "bob", "--directory", directory), 1, "client-bob.pem")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_certificate_can_be_renewed_under_the_same_authority(tmp_path: Path):
    directory = str(tmp_path)
    run("certs", "init", "--directory", directory).text()
    authority, old = (tmp_path / "ca.pem").read_bytes(), (tmp_path / "server.pem").read_bytes()
    (tmp_path / "server.pem").unlink()
    fails(run("certs", "init", "--directory", directory), 1, "server.key")
    (tmp_path / "server.key").unlink()
    run("certs", "init", "--directory", directory).text()
    assert (tmp_path / "ca.pem").read_bytes() == authority
    assert (tmp_path / "server.pem").read_bytes() != old


def test_the_directory_is_the_users(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/config-home")
    assert default_directory() == Path("/config-home/hocket/certs")
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.setenv("HOME", "/somebody")
    assert default_directory() == Path("/somebody/.config/hocket/certs")


def test_what_cannot_be_made_is_refused(tmp_path: Path):
    where = ["--directory", str(tmp_path / "new")]
    fails(run("certs", "client", "alice", *where), 1, "hocket certs init", "--directory")
    fails(run("certs", "client", "../alice", *where), 2, "'../alice'")
    fails(run("certs", "client", "a" * 65, *where), 2, "64", "token")
    for host in ("", "a:4150", "a b", "https://a", "-", "ü.example"):
        fails(run("certs", "init", "--host", host, *where), 2, "--host", repr(host))
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    fails(run("certs", "init", "--directory", str(tmp_path / "file" / "below")), 1, "below")


@pytest.mark.parametrize("broken", ["ca.key", "ca.pem"])
def test_a_damaged_authority_is_refused_and_left_alone(tmp_path: Path, broken: str):
    directory = str(tmp_path)
    run("certs", "init", "--directory", directory).text()
    (tmp_path / broken).unlink()
    fails(run("certs", "client", "alice", "--directory", directory), 1, "authority", broken)
    (tmp_path / broken).write_text("nonsense")
    fails(run("certs", "client", "alice", "--directory", directory), 1, "authority", broken)
    assert not (tmp_path / "client-alice.key").exists()


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "hocket.cli.authority", raising=False)
    monkeypatch.delattr(package.cli, "authority", raising=False)
    fails(run("certs", "init"), 1, "pip install 'hocket[certs]'")


# --- using them ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker(certs: Path, tmp_path_factory: pytest.TempPathFactory):
    data = tmp_path_factory.mktemp("broker") / "data"
    with serving(data, *options(certs, authority=True)) as running:
        yield running
        assert running.stop() == 0


def test_a_broker_with_tls_says_so_in_its_address(broker: Serving):
    assert broker.url.startswith("hockets://127.0.0.1:")


def test_commands_reach_it_over_tls(broker: Serving, certs: Path):
    hocket = Hocket(broker.url)
    tls = ["--tls-ca", str(certs / "ca.pem")]
    assert hocket.run("topic", "create", "t", *tls).code == 0
    assert hocket.run("publish", "t", "hello", *tls).text() == "t/0/0\n"
    own = ["--tls-cert", str(certs / "client-alice.pem"),
           "--tls-key", str(certs / "client-alice.key")]  # fmt: skip
    assert hocket("consume", "t", *tls, *own).text() == "hello\n"


def test_commands_that_go_wrong_say_what_to_do(broker: Serving, certs: Path):
    hocket = Hocket(broker.url)
    fails(hocket("topic", "list"), 5, "certificate is not good", "--tls-ca")
    plain = broker.url.replace("hockets://", "hocket://")
    fails(Hocket(plain)("topic", "list"), 5, "this port speaks TLS: use hockets://")
    key = ["--tls-ca", str(certs / "ca.pem"), "--tls-key", str(certs / "client-alice.key")]
    fails(hocket("topic", "list", *key), 2, "tls_cert")


def test_sighup_makes_it_read_its_certificates_again(certs: Path, tmp_path: Path):
    for name in ("server.pem", "server.key"):
        (tmp_path / name).write_bytes((certs / name).read_bytes())
    run("certs", "init", "--directory", str(tmp_path / "new")).text()
    logged = tmp_path / "log"
    with (
        logged.open("wb") as log,
        serving(tmp_path / "data", *options(tmp_path), log=log) as broker,
    ):

        def trusted(authority: Path) -> bool:
            try:
                package.connect(broker.url, tls_ca=authority).close()
            except NoConnection:
                return False
            return True

        with package.connect(broker.url, tls_ca=certs / "ca.pem") as before:
            (tmp_path / "server.key").write_text("half written")
            broker.process.send_signal(signal.SIGHUP)
            until(lambda: "ERROR hocket.serve: the TLS certificates" in logged.read_text())
            before.create_topic("t")
            assert trusted(certs / "ca.pem")
            for name in ("server.pem", "server.key"):
                (tmp_path / name).write_bytes((tmp_path / "new" / name).read_bytes())
            broker.process.send_signal(signal.SIGHUP)
            until(lambda: "INFO hocket.serve: new connections use" in logged.read_text())
            assert trusted(tmp_path / "new" / "ca.pem")
            assert not trusted(certs / "ca.pem")
            before.publish("t", b"still here")
        assert broker.stop() == 0


# --- what is refused -----------------------------------------------------------------------------


def test_the_options_belong_together(certs: Path):
    cert, key = ["--tls-cert", str(certs / "server.pem")], ["--tls-key", str(certs / "server.key")]
    fails(run("serve", *cert), 2, "--tls-key")
    fails(run("serve", *key), 2, "--tls-cert")
    fails(run("serve", "--tls-ca", str(certs / "ca.pem")), 2, "--tls-cert")
    fails(run("serve", "--tls-cert", "/nonexistent", *key), 2, "/nonexistent")


def test_files_that_do_not_fit_are_refused_before_anything_is_made(certs: Path, tmp_path: Path):
    other = ["--tls-cert", str(certs / "server.pem"), "--tls-key", str(certs / "ca.key")]
    fails(run("serve", "--data", str(tmp_path / "data"), *other), 2, "ca.key", "belong together")
    assert not (tmp_path / "data").exists()


def test_tls_alone_is_not_enough_beyond_loopback(certs: Path, tmp_path: Path):
    data = tmp_path / "data"
    beyond = ["serve", "--listen", "0.0.0.0:0", "--data", str(data)]
    refused = run(*beyond, *options(certs))
    fails(refused, 1, "0.0.0.0:0", "hocket user create NAME --role admin")
    assert "certs init" not in refused.stderr
    assert not data.exists()
    with serving(data) as broker:  # a broker that is there, and has no users
        assert broker.stop() == 0
    fails(run(*beyond, *options(certs)), 1, "hocket user create NAME --role admin")


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("users", [True, False])
def test_beyond_loopback_both_are_needed(tls: bool, users: bool):
    for host in ("127.0.0.1", "localhost", "::1", "127.1.2.3"):
        refuse_if_open(Address(host, 0), tls=tls, users=users)
    for host in ("0.0.0.0", "::", "192.0.2.1", "2001:db8::1"):
        if tls and users:
            refuse_if_open(Address(host, 0), tls=tls, users=users)
            continue
        with pytest.raises(click.ClickException) as caught:
            refuse_if_open(Address(host, 0), tls=tls, users=users)
        assert str(Address(host, 0)) in caught.value.message
        assert ("hocket certs init" in caught.value.message) is not tls
        assert ("hocket user create" in caught.value.message) is not users


def test_with_tls_and_a_user_it_listens_beyond_loopback(certs: Path, tmp_path: Path):
    """From nothing to a broker for others: the steps that its refusal names."""
    tls = options(certs, authority=True)
    trust = ["--tls-ca", str(certs / "ca.pem")]
    with serving(tmp_path / "data", *tls) as broker:
        hocket = Hocket(broker.url)
        created = hocket("user", "create", "alice", "--role", "admin", *trust)
        assert created.code == 0, created
        assert broker.stop() == 0
    token = tmp_path / "token"
    token.write_bytes(created.stdout)
    with serving(tmp_path / "data", "--listen", "0.0.0.0:0", *tls) as broker:
        hocket = Hocket(broker.url.replace("0.0.0.0", "127.0.0.1"))
        fails(hocket("topic", "list", *trust), 4, "token")
        assert hocket("topic", "create", "t", "--token-file", str(token), *trust).code == 0
        own = ["--tls-cert", str(certs / "client-alice.pem"),
               "--tls-key", str(certs / "client-alice.key")]  # fmt: skip
        assert hocket("publish", "t", "by certificate", *own, *trust).text() == "t/0/0\n"
        run("certs", "client", "nobody", "--directory", str(certs)).text()
        other = ["--tls-cert", str(certs / "client-nobody.pem"),
                 "--tls-key", str(certs / "client-nobody.key")]  # fmt: skip
        fails(hocket("topic", "list", *other, *trust), 4)
        assert broker.stop() == 0
