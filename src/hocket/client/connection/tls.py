"""TLS on the client's side: whom to trust, and records encrypted and decrypted without a socket.

One thread of a link reads while others write, but two threads must not use OpenSSL's state at once.
So the state works on memory (`ssl.MemoryBIO`) under a lock of its own, and the link moves the bytes
as it does without TLS.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterable
from os import PathLike
from typing import TYPE_CHECKING, NamedTuple

from hocket.adapters.tls import reason_of
from hocket.addresses import Address
from hocket.errors import BadName, NoConnection

if TYPE_CHECKING:
    from typing_extensions import Buffer

Path = str | PathLike[str]
READ_BYTES = 256 << 10

# How OpenSSL's versions call an answer that is no TLS.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})


class TlsFailed(NoConnection):
    """Something answers at the address, but no TLS connection came about."""


def tls_failed(address: Address, error: ssl.SSLError) -> TlsFailed:
    return TlsFailed(f"{address}: {_explained(error)}")


def _explained(error: ssl.SSLError) -> str:
    reason = reason_of(error).rstrip(".")
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the broker's certificate is not good: {reason}. It must be valid, made for the host "
            "in the URL, and signed by the authority in tls_ca (--tls-ca)"
        )
    if error.reason in _NO_TLS:
        return "this port does not speak TLS: use hocket:// instead of hockets://"
    if isinstance(error, ssl.SSLEOFError):
        return "the connection was closed during the TLS handshake"
    _, is_alert, what = reason.partition("alert ")
    if is_alert and ("certificate" in what or "unknown ca" in what):
        return (
            f"the broker does not accept the certificate in tls_cert (--tls-cert): {what}. It must "
            "be valid and signed by the authority of the broker's --tls-ca"
        )
    return f"TLS failed: {reason}"


class Names(NamedTuple):
    """What the files are called where their user named them: as arguments, or as variables."""

    ca: str = "tls_ca"
    cert: str = "tls_cert"
    key: str = "tls_key"


ARGUMENTS = Names()


def client_context(
    ca: Path | None, cert: Path | None, key: Path | None, names: Names = ARGUMENTS
) -> ssl.SSLContext:
    """A context that trusts brokers by `ca`, or by the system's authorities without one."""
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise BadName(f"{names.ca}={str(ca)!r} cannot be used: {reason_of(error)}") from error
    if cert is not None:
        try:
            context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            with_key = f"without {names.key}" if key is None else f"with {names.key}={str(key)!r}"
            raise BadName(
                f"{names.cert}={str(cert)!r} {with_key} cannot be used: {reason_of(error)}; they "
                "must be PEM files, and belong together"
            ) from error
    elif key is not None:
        raise BadName(
            f"{names.key} is given without {names.cert}, the certificate that it belongs to"
        )
    return context


class Tls:
    """One connection's TLS state."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._lock = threading.Lock()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._state = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def handshake(self, send: Callable[[bytes], None], receive: Callable[[], bytes]) -> None:
        """Shake hands, with these functions. Raises ssl.SSLError, or what the functions raise."""
        while True:
            try:
                self._state.do_handshake()
            except ssl.SSLWantReadError:
                send(self._outgoing.read())
                data = receive()
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            except ssl.SSLError:
                send(self._outgoing.read())  # tells the other end why
                raise
            else:
                send(self._outgoing.read())
                return

    def encrypt(self, buffers: Iterable[Buffer], append: Callable[[bytes], None]) -> None:
        """Encrypt; `append` gets the result, in the order of the records even among threads."""
        with self._lock:
            for buffer in buffers:
                if len(buffer):  # type: ignore[arg-type]
                    self._state.write(buffer)
            append(self._outgoing.read())

    def decrypt(self, data: bytes, append: Callable[[bytes], None]) -> list[bytes]:
        """What `data` makes readable; b"" in it is the end. `append` gets TLS's own answers."""
        found: list[bytes] = []
        with self._lock:
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()
            try:
                while True:
                    found.append(self._state.read(READ_BYTES))
                    if not found[-1]:
                        break
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLEOFError:
                found.append(b"")
            if answer := self._outgoing.read():
                append(answer)
        return found
