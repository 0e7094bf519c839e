"""The RPC endpoint of a broker: a port, and a thread of its own with an event loop behind it.

The loop is always asyncio's own. Under uvloop pycapnp crashes the process when clients vanish in
the middle of a call, so the loop must not depend on what the program around it prefers.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import capnp  # type: ignore[import-untyped]

from hocket.errors import NoConnection
from hocket.model import Limits
from hocket.node.broker import Broker
from hocket.rpc.capabilities import BrokerCapability
from hocket.rpc.endpoint_state import EndpointState
from hocket.rpc.failure import Failure, text_of
from hocket.rpc.garbage import collect_here

log = logging.getLogger("hocket.rpc")

HANDSHAKE_SECONDS = 10.0  # that a TLS handshake may take


class Endpoint:
    """One RPC port. It begins with `listen`, ends with `close`, and must end before its broker."""

    def __init__(
        self,
        broker: Broker,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        owns_process: bool = False,  # the endpoint may say where garbage is collected
    ) -> None:
        self._broker = broker
        self._owns_process = owns_process
        self._limits = limits or Limits()
        self._tls = self._certificate = tls
        if tls is not None:
            # Called for every handshake, whether or not it names a server.
            tls.sni_callback = self._choose_certificate
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._then: list[Callable[[], None]] = []  # called at the end

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept connections. Returns the address, with the port that was picked for port 0."""
        address: Future[tuple[str, int]] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(host, port, address), name="hocket-rpc", daemon=True
        )
        self._thread.start()
        try:
            return address.result()
        except OSError as error:
            self._thread.join()
            raise NoConnection(
                f"cannot listen on {host}:{port}: {error.strerror or error}. Is something else "
                "running there? Choose another with --rpc-listen HOST:PORT (port 0 picks a free "
                "one)"
            ) from error

    def renew_tls(self, tls: ssl.SSLContext) -> None:
        """Show this certificate to new connections.

        Which authority clients' certificates are checked against does not change.
        """
        self._certificate = tls

    def stop(self, then: Callable[[], None] | None = None) -> None:
        """Begin to drain, and call `then` when that is done.

        May be called from any thread, and from a signal handler.
        """
        if then is not None:
            self._then.append(then)
        try:
            if self._loop is not None and self._stopping is not None:
                self._loop.call_soon_threadsafe(self._stopping.set)
                return
        except RuntimeError:  # the loop has ended already
            pass
        self._call_then()

    def close(self) -> None:
        """Drain, and return when the endpoint's thread has ended."""
        if self._thread is not None:
            self.stop()
            self._thread.join()

    # --- on its own thread -----------------------------------------------------------------------

    def _run(self, host: str, port: int, address: Future[tuple[str, int]]) -> None:
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                self._loop = runner.get_loop()
                self._loop.set_exception_handler(_report)
                runner.run(self._serve(host, port, address))
        except BaseException as error:
            if address.done():
                log.exception("the RPC endpoint has failed")
            else:
                address.set_exception(error)
        finally:
            self._call_then()

    async def _serve(self, host: str, port: int, address: Future[tuple[str, int]]) -> None:
        self._stopping = asyncio.Event()
        async with capnp.kj_loop():
            state = EndpointState(self._broker, self._limits, BrokerCapability)
            family, _, _, _, resolved = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]  # the first address only, as at the other port: `listen` returns one address
            server = await asyncio.get_running_loop().create_server(
                state.new_connection,
                str(resolved[0]),
                port,
                family=family,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self._tls else None,
            )
            address.set_result(server.sockets[0].getsockname()[:2])
            collecting = asyncio.create_task(collect_here()) if self._owns_process else None
            try:
                await self._stopping.wait()
                server.close()
                await state.drain()
            finally:
                server.close()
                await state.close()
                if collecting is not None:
                    collecting.cancel()
                    await asyncio.wait([collecting])

    def _choose_certificate(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _tls: ssl.SSLContext
    ) -> None:
        assert self._certificate is not None
        connection.context = self._certificate

    def _call_then(self) -> None:
        while self._then:
            self._then.pop()()


def _report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what asyncio has nobody else to tell."""
    error = context.get("exception")
    if isinstance(error, Failure):  # its call failed while its connection ended
        log.debug("a client that has gone was not told: %s", text_of(error))
        return
    log.warning("%s", context["message"], exc_info=error)
