"""TLS on the client's side: who the broker must be, and records made and opened without a socket.

OpenSSL's state must not be used by two threads at once, while one thread of a link reads and others
write. So the state works on memory (`ssl.MemoryBIO`) under a lock of its own, and the link moves
the bytes as it does without TLS.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterable
from os import PathLike
from typing import TYPE_CHECKING

from hocket.client.address import Target
from hocket.errors import BadName

if TYPE_CHECKING:
    from typing_extensions import Buffer

Path = str | PathLike[str]
READ_BYTES = 256 << 10


def client_context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """Checks the broker's certificate against `ca`, or against the system's authorities."""
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise BadName(f"tls_ca={str(ca)!r} cannot be used: {error}") from error
    if cert is not None:
        try:
            context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            raise BadName(
                f"tls_cert={str(cert)!r} with tls_key={str(key)!r} cannot be used: {error}"
            ) from error
    elif key is not None:
        raise BadName("tls_key is given without tls_cert, the certificate that it belongs to")
    return context


def context_for(
    target: Target, ca: Path | None, cert: Path | None, key: Path | None
) -> ssl.SSLContext | None:
    if target.tls:
        return client_context(ca, cert, key)
    if ca is not None or cert is not None or key is not None:
        raise BadName(
            f"{target} is without TLS, so tls_ca, tls_cert and tls_key mean nothing; "
            "write hockets://"
        )
    return None


class Tls:
    """One connection's TLS state."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._lock = threading.Lock()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._state = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def handshake(self, send: Callable[[bytes], None], receive: Callable[[], bytes]) -> None:
        """Until both know each other. Raises ssl.SSLError, or what the functions raise."""
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
            else:
                send(self._outgoing.read())
                return

    def encrypt(self, buffers: Iterable[Buffer], append: Callable[[bytes], None]) -> None:
        """`append` is called with the result, in the order of the records even among threads."""
        with self._lock:
            for buffer in buffers:
                if len(buffer):  # type: ignore[arg-type]
                    self._state.write(buffer)
            append(self._outgoing.read())

    def decrypt(self, data: bytes, append: Callable[[bytes], None]) -> list[bytes]:
        """What is readable now; `append` gets what TLS itself has to say. b"" is the end."""
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
