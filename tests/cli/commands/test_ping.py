"""`hocket ping`: exit codes for probes, and who has answered."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import hocket as package
from hocket.errors import Timeout
from hocket.node.broker import Broker
from tests.support.cli import NOBODY, Hocket, fails
from tests.support.threads import PATIENCE


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[Hocket]:
    """Somebody at a port who does this with the first connection."""

    def serve() -> None:
        sock, _ = listener.accept()
        with sock:
            answer(sock)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Hocket(f"hocket://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            thread.join(PATIENCE)


def test_it_says_how_long_it_took_and_who_has_answered(hocket: Hocket):
    said = hocket("ping").text()
    assert said.startswith(f"{hocket.url} answered in ")
    assert f"hocket {package.__version__}, node " in said
    found = hocket("ping", "--json").json()
    assert found["server"] == hocket.url
    assert found["software"] == f"hocket {package.__version__}"
    assert 0 < found["round_trip_seconds"] < PATIENCE
    assert 0 < found["connect_seconds"] < PATIENCE
    with package.connect(hocket.url) as client:
        assert found["cluster"] == client.cluster == client.broker.cluster
        assert found["node"] == client.broker.node


def test_nobody_is_there():
    fails(Hocket(NOBODY)("ping", "--timeout", "0.1"), 5, "127.0.0.1:1", "hocket serve")


def test_a_bad_timeout_is_refused():
    fails(Hocket(NOBODY)("ping", "--timeout", "soon"), 2, "--timeout", "500ms")


def test_something_else_is_there():
    def web(sock: socket.socket) -> None:
        sock.recv(1)
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    with answering(web) as hocket:
        outcome = hocket("ping", "--timeout", "5")
    fails(outcome, 5, hocket.url)
    assert "not speak Hocket" in outcome.stderr or "not Hocket" in outcome.stderr


def test_it_is_there_and_says_nothing():
    def mute(sock: socket.socket) -> None:
        while sock.recv(4096):
            pass

    with answering(mute) as hocket:
        fails(hocket("ping", "--timeout", "0.2"), 5, hocket.url, "in time")


def test_it_lets_us_in_and_then_says_nothing(hocket: Hocket, monkeypatch: pytest.MonkeyPatch):
    def ping(_client: object, *, timeout: float) -> None:
        raise Timeout(f"Ping was not answered within {timeout} s")

    monkeypatch.setattr(package.Client, "ping", ping)
    fails(hocket("ping", "--timeout", "2"), 5, "Ping was not answered within 2.0 s")


def test_it_wants_a_token(tmp_path: Path):
    broker = Broker(tmp_path / "data")
    secret = "hocket_admin_" + "A" * 43
    broker.make_first_admin(secret)
    host, port = broker.listen("127.0.0.1", 0)
    broker.start()
    try:
        hocket = Hocket(f"hocket://{host}:{port}")
        fails(hocket("ping"), 4, "asks for a token", "--token-file FILE or HOCKET_TOKEN")
        token, wrong = tmp_path / "token", tmp_path / "wrong"
        token.write_text(secret)
        wrong.write_text(secret[:-1] + "E")
        fails(hocket("ping", "--token-file", str(wrong)), 4, "the token is not that of a user")
        assert hocket("ping", "--token-file", str(token)).code == 0
    finally:
        broker.close()
