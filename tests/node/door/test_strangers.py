"""Whoever comes to a broker's port and does not speak Hocket is told where they are."""

from __future__ import annotations

import http.client
import re
import socket
import ssl

import pytest

from hocket import frames
from hocket.node.door.strangers import LINES_MAX, Strangers
from tests.support.certificates import made
from tests.support.node.running import RawConnection, Speaker, listening
from tests.support.threads import until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return made(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def plain(tmp_path):
    with listening(tmp_path / "data") as address:
        yield address


@pytest.fixture
def secure(tmp_path, certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server.certificate, certificates.server.key)
    with listening(tmp_path / "data", tls=context) as address:
        yield address


def is_told(connection: http.client.HTTPConnection, caplog) -> None:
    """This client of HTTP is told where it is, and the log says where it came from."""
    connection.connect()
    host, port = connection.sock.getsockname()
    connection.request("GET", "/metrics?" + "x" * 5000)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert (answer.status, answer.version) == (400, 11)
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "This is the port of a Hocket broker, which does not speak HTTP." in text
    assert "hocket.connect(" in text
    until(lambda: f"{host}:{port} speaks HTTP, not Hocket" in caplog.messages)


def test_a_request_of_http_is_answered_in_http(plain, caplog):
    is_told(http.client.HTTPConnection(*plain, timeout=30), caplog)
    with Speaker(plain) as healthy:
        healthy.greet()
        healthy.say(frames.Ping(2))
        assert healthy.hear() == frames.Done(2)


def test_so_is_one_at_a_port_with_tls_in_plain_and_inside_tls(secure, certificates, caplog):
    is_told(http.client.HTTPConnection(*secure, timeout=30), caplog)
    context = ssl.create_default_context(cafile=certificates.authority)
    is_told(http.client.HTTPSConnection(*secure, timeout=30, context=context), caplog)


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
def test_every_method_is_known(plain, method):
    with RawConnection(plain) as browser:
        browser.send(f"{method} / HTTP/1.0\r\n\r\n".encode())
        assert browser.socket.recv(12) == b"HTTP/1.1 400"


def test_tls_at_a_port_without_it_is_logged(plain, certificates, caplog):
    """What the clients say then stands in `test_tls`."""
    context = ssl.create_default_context(cafile=certificates.authority)
    with socket.create_connection(plain, timeout=30) as sock:
        host, port = sock.getsockname()
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(sock, server_hostname="localhost")
    until(lambda: f"{host}:{port} speaks TLS, and this port does not" in caplog.text)


def test_hocket_without_tls_at_a_port_with_it_is_logged(secure, caplog):
    with Speaker(secure) as lost:
        host, port = lost.socket.getsockname()
        lost.say(frames.Hello(1))
        assert "this port speaks TLS: use hockets://" in lost.hear().message
    until(lambda: f"{host}:{port} does not speak TLS, and this port does" in caplog.text)


def test_anything_else_is_logged_with_what_it_said(plain, caplog):
    with RawConnection(plain) as lost:
        host, port = lost.socket.getsockname()
        lost.send(b"PING\r\n")  # less than a frame's prefix
        header, _ = lost.receive()
        assert b"before the Welcome" in header
        assert lost.at_end()
    until(lambda: f"{host}:{port} does not speak Hocket; it said b'PING\\r\\n'" in caplog.messages)


def test_a_crowd_of_strangers_does_not_fill_the_log(plain, caplog):
    count = 5 * LINES_MAX
    for _ in range(count):
        with RawConnection(plain) as browser:
            browser.send(b"GET / HTTP/1.1\r\n\r\n")
            assert browser.socket.recv(8) == b"HTTP/1.1"
    assert len(caplog.records) == LINES_MAX
    assert all(re.search("speaks HTTP", each) for each in caplog.messages)


def test_the_others_are_counted_and_the_next_minute_names_some_again(caplog):
    now = 0.0
    strangers = Strangers(lambda: now)
    strangers.tick()
    for number in range(LINES_MAX + 3):
        strangers.met(f"10.0.0.{number}:1", "speaks HTTP, not Hocket")
        strangers.tick()
    assert len(caplog.messages) == LINES_MAX
    now = 59.9
    strangers.tick()
    assert len(caplog.messages) == LINES_MAX
    now = 60.0
    strangers.tick()
    assert caplog.messages[LINES_MAX:] == [
        "3 more connections did not speak Hocket, or not with or without TLS as their port does, "
        "within a minute"
    ]
    strangers.tick()
    strangers.met("10.0.0.1:1", "speaks HTTP, not Hocket")
    assert caplog.messages[-1] == "10.0.0.1:1 speaks HTTP, not Hocket"
    now = 200.0
    strangers.tick()
    assert len(caplog.messages) == LINES_MAX + 2  # nobody was left out
