"""A client that meets something else than a broker says at once what it has met."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import hocket
from hocket.errors import NoConnection, NotHocket
from tests.support.certificates import made
from tests.support.client.sockets import ScriptedServer
from tests.support.threads import run, until


class Blocking:
    @staticmethod
    def connect(*arguments, **options):
        hocket.connect(*arguments, **options).close()


class Asyncio:
    @staticmethod
    def connect(*arguments, **options):
        async def main():
            async with hocket.aio.connect(*arguments, **options):
                pass

        run(main())


both = pytest.mark.parametrize("style", [Blocking, Asyncio])


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        """Nothing."""


@contextmanager
def http_server(port: int = 0):
    """The server of `python -m http.server`, which waits for the end of a line."""
    with HTTPServer(("127.0.0.1", port), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def answering(answer: bytes, *, speaks_first: bool = False, stays: bool = False):
    """Somebody who says this once, to a Hello or without being asked, and then hangs up or not."""
    done = threading.Event()

    def serve() -> None:
        sock, _ = listener.accept()
        with sock:
            if not speaks_first:
                sock.recv(4096)
            sock.sendall(answer)
            if stays:
                done.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


def refused(style, url, *, error=NotHocket, **options):
    begun = time.monotonic()
    with pytest.raises(NoConnection) as caught:
        style.connect(url, **options)
    assert time.monotonic() - begun < 5  # and not the ten seconds of a connect
    assert type(caught.value) is error
    assert not caught.value.may_have_happened
    return str(caught.value)


@both
def test_a_server_of_http_is_named_at_once(style):
    with http_server() as address:
        text = refused(style, address)
    assert f"{address} speaks HTTP, not Hocket" in text
    assert "Is the address right?" in text
    assert "Is it running" not in text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP, not Hocket"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "speaks SSH, not Hocket"),
        (b"-ERR unknown command\r\n", r"does not speak Hocket; it answered b'-ERR unknown comma"),
        (b"ERROR\r\n", r"does not speak Hocket; it answered b'ERROR\r\n'"),
        (b"\x15\x03\x03\x00\x02\x02F", "speaks TLS: use hockets:// instead of hocket://"),
        (b"J\0\0\0\n8.0.36\0\x0b\0\0\0abcdefgh", r"does not speak Hocket; it answered b'J\x00"),
        (b"x" * 5000, "does not speak Hocket; it answered b'" + "x" * 48 + "'"),
    ],
    ids=lambda each: repr(each)[:20],
)
@pytest.mark.parametrize(
    "manners", [{}, {"speaks_first": True}, {"stays": True}], ids=["hangs up", "first", "stays"]
)
@both
def test_what_it_answered_is_told(style, answer, words, manners):
    with answering(answer, **manners) as address:
        assert f"{address} {words}" in refused(style, address)


@both
def test_somebody_who_hangs_up_without_a_word(style):
    with answering(b"") as address:
        text = refused(style, address, error=NoConnection)
    assert f"{address}: the connection was closed without an answer" in text
    assert "no Hocket broker. Is it running?" in text


@both
def test_a_server_of_http_inside_tls(style, tmp_path):
    certificates = made(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server.certificate, certificates.server.key)

    def rude(frame, payload):
        server.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        return ()

    with ScriptedServer(rude, tls=context) as server:
        text = refused(style, server.url, tls_ca=certificates.authority)
    assert "speaks HTTP, not Hocket" in text


@both
def test_the_next_address_is_tried(style):
    with http_server() as address, ScriptedServer() as server:
        style.connect(f"{address},127.0.0.1:{server.port}")


def test_a_client_that_had_its_broker_waits_for_it_and_says_who_is_there_meanwhile(caplog):
    caplog.set_level(logging.WARNING)
    with ScriptedServer() as server:
        client = hocket.connect(server.url)
        port = server.port
    with client:
        with http_server(port):
            until(lambda: "speaks HTTP, not Hocket; trying again" in caplog.text)
            with pytest.raises(NoConnection, match="speaks HTTP, not Hocket"):
                client.topics(timeout=0.05)
        assert caplog.text.count("speaks HTTP") == 1
