"""TLS at a broker's port: its certificates, and connections that never wait.

This uses Python's own SSLSocket on a socket that does not block, and not an SSLObject over memory
BIOs. OpenSSL then gives an idle connection's buffers back (16 KiB a connection are left), where a
memory BIO keeps room for the most that it ever held; and only bytes that the socket takes are
encrypted.

There is no renegotiation, so writing never waits for something to read. No session is resumed
either: every connection shows its certificate, which is checked against today's authority.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any

from hocket.adapters.transport import Certificate
from hocket.errors import BadName

Path = str | PathLike[str]

HANDSHAKE = b"\x16"  # the first byte of every TLS connection
PEEKED_BYTES = 16  # enough to tell what is spoken instead
JOINED_BYTES = 256 << 10  # views are joined up to this, to make whole TLS records of 16 KiB


def server_context(certificate: Path, key: Path, authority: Path | None = None) -> ssl.SSLContext:
    """A context for TLS 1.2 and up. With an `authority`, clients are asked for certificates.

    Raises BadName, naming the file, for a file that cannot be read or does not fit the other.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    for path, what in ((certificate, "certificate"), (key, "key")):
        _check_readable(path, f"the TLS {what}")
    try:
        context.load_cert_chain(certificate, key, password=lambda: _no_password(key))
    except ssl.SSLError as error:
        raise BadName(
            f"the TLS certificate '{certificate}' with the key '{key}' cannot be used: "
            f"{reason_of(error)}; both must be PEM files, and belong together"
        ) from error
    if authority is not None:
        _check_readable(authority, "the TLS authority")
        try:
            context.load_verify_locations(authority)
        except ssl.SSLError as error:
            raise BadName(
                f"the TLS authority '{authority}' cannot be used: {reason_of(error)}; it must be "
                "a PEM file with the certificate that signs those of clients"
            ) from error
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def dialling_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """A context for a node that dials another: both show certificates that `authority` has signed.

    No host name is checked: a node's certificate names the node, wherever it may run
    (`node.links.greeting`). The files were checked before, by `server_context`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = False
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority)
    return context


def reason_of(error: OSError) -> str:
    """What went wrong, without OpenSSL's brackets and line numbers."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).replace("_", " ").lower()
    if isinstance(error, ssl.SSLError) and "PEM lib" in str(error):
        return "the certificate or the key is not in there"
    return error.strerror or str(error)


def is_gone(error: OSError) -> bool:
    """Whether the other end just went away. Else one of the two has refused the other."""
    gone = ssl.SSLEOFError | ssl.SSLZeroReturnError
    return not isinstance(error, ssl.SSLError) or isinstance(error, gone)


def speaks_no_tls(error: ssl.SSLError) -> bool:
    """Whether what came from the other end is no TLS at all, for all that can be told."""
    return error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


def _check_readable(path: Path, what: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:  # OpenSSL's own error would not name the file
        raise BadName(f"{what} '{path}' cannot be read: {error.strerror}") from error


def _no_password(key: Path) -> str:
    raise BadName(
        f"the TLS key '{key}' is encrypted; a broker starts without anybody there to type a "
        "password: decrypt it, and let nobody else read it"
    )


class NotTls(ConnectionError):
    """The first byte is no TLS: perhaps the client was not told to speak it."""

    first = b""  # the first bytes; they are still unread


class TlsTransport:
    """See `transport.Transport`. The socket is connected and does not block."""

    reads_per_turn = 64
    short_is_all = False

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._plain = sock
        self._tls: ssl.SSLSocket | None = None  # made when the other end has sent a byte
        self._context = context
        self.wants_write = False
        self._has_ended = False  # `end_sending` was called
        self.user = ""

    @property
    def unread(self) -> int:
        return 0 if self._tls is None or self._has_ended else self._tls.pending()

    @property
    def certificate(self) -> Certificate:
        return None if self._tls is None else self._tls.getpeercert()

    @property
    def plain(self) -> socket.socket:
        """The bare socket, to tell a client that speaks no TLS so; only after NotTls."""
        return self._plain

    def fileno(self) -> int:
        return (self._tls or self._plain).fileno()

    def handshake(self) -> None:
        if self._tls is None:
            self._tls = self._begun()
        self.wants_write = False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.wants_write = True
            raise BlockingIOError from None
        self.user = common_name(self._tls.getpeercert())

    def _begun(self) -> ssl.SSLSocket:
        first = self._plain.recv(PEEKED_BYTES, socket.MSG_PEEK)
        if not first:
            raise ConnectionResetError("it has closed the connection")
        if first[:1] != HANDSHAKE:
            error = NotTls("it does not speak TLS")
            error.first = first
            raise error
        return self._context.wrap_socket(
            self._plain, server_side=True, do_handshake_on_connect=False
        )

    def recv_into(self, buffer: memoryview) -> int:
        self.wants_write = False
        if self._has_ended:  # it means nothing: it need not be deciphered, and cannot fail
            return socket.socket.recv_into(self._tls or self._plain, buffer)
        try:
            return (self._tls or self._plain).recv_into(buffer)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:  # new keys are to be confirmed, and there is no room
            self.wants_write = True
            raise BlockingIOError from None

    def recv_into_both(self, first: memoryview, _second: memoryview) -> int:
        return self.recv_into(first)

    def recv(self, most: int) -> bytes:
        self.wants_write = False
        if self._has_ended:
            return socket.socket.recv(self._tls or self._plain, most)
        try:
            return (self._tls or self._plain).recv(most)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:  # as in `recv_into`
            self.wants_write = True
            raise BlockingIOError from None

    def send_one(self, data: bytes | bytearray | memoryview) -> int:
        assert self._tls is not None
        try:
            return self._tls.send(data)
        except ssl.SSLWantWriteError:
            return 0

    def send(self, views: Sequence[memoryview]) -> int:
        # OpenSSL may have sent part of what it did not take whole. It goes on from there if it gets
        # the same bytes again (wherever they lie now), perhaps with more behind them. Hence the
        # rule of `Transport.send`: nothing has to be kept here.
        assert self._tls is not None
        try:
            return self._tls.send(joined(views))
        except ssl.SSLWantWriteError:
            return 0

    def end_sending(self) -> None:
        self._say_end()
        self._has_ended = True
        socket.socket.shutdown(self._tls or self._plain, socket.SHUT_WR)

    def close(self) -> None:
        if not self._has_ended:
            self._say_end()
        (self._tls or self._plain).close()

    def forked(self) -> None:
        """Without a word: the end of TLS is for the parent to say."""
        (self._tls or self._plain).close()

    def _say_end(self) -> None:
        """Say that TLS ends, if there is room for that; a reply is not waited for."""
        if self._tls is not None:
            with suppress(OSError, ValueError):  # the reply is not there, or it was said before
                self._tls.unwrap()


class DialledTls(TlsTransport):
    """The end that has dialled: it speaks first."""

    def _begun(self) -> ssl.SSLSocket:
        return self._context.wrap_socket(self._plain, do_handshake_on_connect=False)


def joined(views: Sequence[memoryview]) -> memoryview | bytes:
    """The first `JOINED_BYTES` of all views, in one piece."""
    if len(views[0]) >= JOINED_BYTES:
        return views[0][:JOINED_BYTES]
    room = JOINED_BYTES
    parts = []
    for view in views:
        parts.append(view[:room])
        room -= len(parts[-1])
        if not room:
            break
    return b"".join(parts)


def common_name(certificate: Mapping[str, Any] | None) -> str:
    """The common name of a verified certificate; empty if there is none, or several."""
    subject = (certificate or {}).get("subject", ())
    names = [text for part in subject for kind, text in part if kind == "commonName"]
    return str(names[0]) if len(names) == 1 else ""
