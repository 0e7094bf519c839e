"""One connection to the RPC port. It stands between asyncio's transport and pycapnp's protocol.

To asyncio a connection is a protocol, to pycapnp it is a transport. pycapnp reads calls for as long
as there are any, whether or not earlier calls are done. So that a client cannot fill our memory
with calls, a connection stops reading

* while many calls, or calls with many bytes, are in progress,
* while a streaming call waits: later calls queue up inside pycapnp, where nobody can count them,
* while the client does not read the answers that it gets.

None of these ends only when the client sends something more (pushes wait for the broker alone), so
reading always goes on.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import capnp  # type: ignore[import-untyped]

from hocket.adapters.tls import common_name
from hocket.core.session.session import Caller
from hocket.deadline import in_seconds
from hocket.errors import LimitExceeded
from hocket.rpc.failure import Failure, cleaned

log = logging.getLogger("hocket.rpc")

CALLS_MAX = 256  # in progress on one connection, or answered while nobody fetches the answers
CARRIED_BYTES_MAX = 16 << 20  # of records, in all calls in progress on one connection
LOGINS_MAX = 100  # open at once on one connection
UNKNOWN_BYTES_MAX = 1 << 20  # that a connection may send before its first login
LOGIN_SECONDS = 10.0  # that a connection may take for its first login
CLOSE_SECONDS = 2.0  # for the client to read what was written before the close
# A client whose machine vanished without closing is noticed after about two minutes.
# (TCP_KEEPALIVE is the name that macOS has for TCP_KEEPIDLE; Linux does not have it.)
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}

# Takes a connection and pycapnp's stream on it; returns pycapnp's TwoPartyServer.
Serve = Callable[["Connection", Any], Any]


class Connection(asyncio.BufferedProtocol):
    def __init__(self, serve: Serve, ended: Callable[[Connection], None]) -> None:
        self.caller = Caller()
        self._loop = asyncio.get_running_loop()
        self._serve = serve
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._inner: Any = None  # pycapnp's protocol
        self._server: Any = None
        self._alarm: asyncio.TimerHandle | None = None  # for the first login, later for the close
        self._eof = False
        self._closing = False
        self._logins = 0
        self._unknown_bytes: int | None = 0  # None: a login has succeeded
        self._has_failed = False  # so what is written may contain failures
        # --- what decides whether we read
        self._wanted = False  # pycapnp wants to read
        self._open = True
        self._weighing = False
        self._calls = 0
        self._waiting = 0  # streaming calls that wait
        self._carried_bytes = 0
        self._writing = True  # the client takes what we send
        self._unfetched = 0  # calls that began while the client does not take what we send

    # --- calls -----------------------------------------------------------------------------------

    @property
    def calls(self) -> int:
        return self._calls

    @contextmanager
    def call(self) -> Iterator[None]:
        """Within this context a call is in progress."""
        self._calls += 1
        self._unfetched += not self._writing
        self._weigh()
        try:
            yield
        except Failure:
            self._has_failed = True
            raise
        finally:
            self._calls -= 1
            self._weigh()

    @contextmanager
    def carrying(self, size: int, *, stream: bool = False) -> Iterator[None]:
        """Within this context a call holds records of this size.

        A `stream` call makes the later calls of its capability wait.
        """
        self._carried_bytes += size
        self._waiting += stream
        self._weigh()
        try:
            yield
        finally:
            self._carried_bytes -= size
            self._waiting -= stream
            self._weigh()

    def _weigh(self) -> None:
        """Decide whether to read at the end of this turn of the loop: most calls are over then."""
        if not self._weighing:
            self._weighing = True
            self._loop.call_soon(self._weighed)

    def _weighed(self) -> None:
        self._weighing = False
        self._open = (
            self._calls < CALLS_MAX
            and self._carried_bytes < CARRIED_BYTES_MAX
            and not self._waiting
            and self._unfetched < CALLS_MAX
        )
        self._read_or_not()

    def _read_or_not(self) -> None:
        if self._transport is None or self._closing:
            return
        if self._wanted and self._open:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- logins ----------------------------------------------------------------------------------

    def check_login(self) -> None:
        if self._logins >= LOGINS_MAX:
            raise LimitExceeded(
                f"this connection has {LOGINS_MAX} sessions open, and no more are allowed; "
                "drop those that are not used"
            )
        self._logins += 1

    def stop_reading(self) -> None:
        """No more calls begin."""
        self._waiting += 1
        self._weighed()

    def logged_in(self) -> None:
        self._unknown_bytes = None
        self._set_alarm(None)

    def logged_out(self) -> None:
        self._logins -= 1

    # --- as asyncio's protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.caller = _caller(transport)
        self._set_alarm(LOGIN_SECONDS)
        _keep_alive(transport.get_extra_info("socket"))
        # pycapnp's own server does the same for each connection, with asyncio's transport.
        self._inner = capnp.AsyncIoStream._connect(self._begin)
        self._inner.connection_made(self)

    def _begin(self, stream: Any) -> None:
        self._server = self._serve(self, stream)
        ending: asyncio.Future[None] = self._server.on_disconnect()
        ending.add_done_callback(self._disconnected)

    def get_buffer(self, sizehint: int) -> Any:
        return self._inner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._unknown_bytes is not None:
            self._unknown_bytes += nbytes
            if self._unknown_bytes > UNKNOWN_BYTES_MAX:
                log.info(
                    "closed the connection of %s: it sent too much without a login",
                    self.caller.address,
                )
                self.abort()
                return
        self._inner.buffer_updated(nbytes)

    def eof_received(self) -> None:
        self._eof = True
        self._inner.eof_received()

    def pause_writing(self) -> None:
        self._writing = False
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._writing = True
        self._unfetched = 0
        self._weigh()
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)
        self.close()
        self._set_alarm(None)
        self._transport = self._inner = None
        self._ended(self)

    # --- as pycapnp's transport ------------------------------------------------------------------

    def resume_reading(self) -> None:
        self._wanted = True
        self._read_or_not()

    def pause_reading(self) -> None:
        self._wanted = False
        self._read_or_not()

    def write(self, data: bytes) -> None:
        if self.is_closing() or self._transport is None:
            return  # nobody is there to read it
        # From the first failure on everything is cleaned: pycapnp itself repeats the failure of a
        # streaming call for every later call of that capability.
        self._transport.write(cleaned(data) if self._has_failed else data)

    def can_write_eof(self) -> bool:
        return False  # a connection is closed as a whole

    def is_closing(self) -> bool:
        # Once the client has sent its end, pycapnp must not begin to read: nothing would answer.
        return self._eof or self._transport is None or self._transport.is_closing()

    # --- the end ---------------------------------------------------------------------------------

    def _disconnected(self, ending: asyncio.Future[None]) -> None:
        if not ending.cancelled():
            ending.exception()  # asked for, so that asyncio does not report it as never retrieved
        self.close()

    def close(self) -> None:
        """End the connection; what is written has CLOSE_SECONDS to reach the client."""
        if self._closing:
            return
        self._closing = True
        server, self._server = self._server, None
        if server is not None:
            server.close()
        if self._transport is not None:
            self._transport.close()
            self._set_alarm(CLOSE_SECONDS)

    def _set_alarm(self, seconds: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if seconds is not None:
            self._alarm = self._loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        """The client has not logged in, or does not read what was written before the close."""
        if not self._closing:
            log.info(
                "closed the connection of %s: no login within %s",
                self.caller.address,
                in_seconds(LOGIN_SECONDS),
            )
        self.abort()

    def abort(self) -> None:
        self.close()
        if self._transport is not None:
            self._transport.abort()


def _caller(transport: asyncio.BaseTransport) -> Caller:
    peer = transport.get_extra_info("peername") or ("",)
    return Caller(address=str(peer[0]), certified=common_name(transport.get_extra_info("peercert")))


def _keep_alive(sock: socket.socket | None) -> None:
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):  # macOS refuses it for a client that is gone already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE.items():
                if hasattr(socket, name):  # some systems do not have all of them
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
