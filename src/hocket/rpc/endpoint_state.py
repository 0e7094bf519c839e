"""What one endpoint has open: connections, logins, deliveries, and work in the background.

All of it lives on the endpoint's own loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import capnp  # type: ignore[import-untyped]

from hocket.errors import ShuttingDown
from hocket.model import Limits
from hocket.node.broker import Broker
from hocket.rpc.background import Background
from hocket.rpc.connection import Connection
from hocket.rpc.delivery import Delivery
from hocket.rpc.login import Login

log = logging.getLogger("hocket.rpc")

NESTING_MAX = 16  # the schema's own messages nest 7 deep
DRAIN_SECONDS = 2.0  # for calls in progress, when the broker goes down

# Makes the capability that a connection begins with.
Bootstrap = Callable[["EndpointState", Connection], Any]


class EndpointState:
    def __init__(self, broker: Broker, limits: Limits, bootstrap: Bootstrap) -> None:
        self.background = Background()
        self.deliveries: dict[Delivery, None] = {}
        self._broker = broker
        self._limits = limits
        self._bootstrap = bootstrap
        self._connections: dict[Connection, None] = {}
        self._logins: dict[Login, Connection] = {}

    # --- connections -----------------------------------------------------------------------------

    def new_connection(self) -> asyncio.BaseProtocol:
        if len(self._connections) >= self._limits.connections_max:
            log.warning("refused a connection: %d are open", len(self._connections))
            return Refused()
        connection = Connection(self._serve, self._connections.pop)
        self._connections[connection] = None
        return connection

    def _serve(self, connection: Connection, stream: Any) -> Any:
        return capnp.TwoPartyServer(
            stream,
            bootstrap=self._bootstrap(self, connection),
            traversal_limit_in_words=self._limits.frame_bytes_max // 8,
            nesting_limit=NESTING_MAX,
        )

    # --- logins ----------------------------------------------------------------------------------

    async def log_in(self, connection: Connection, token: str, client: str) -> Login:
        connection.check_login()
        login = Login(self._broker, connection.caller, token=token, name=client)
        self._logins[login] = connection
        try:
            await login.open()
        except BaseException:
            self._forget(login)
            raise
        connection.logged_in()
        return login

    def let_go(self, login: Login) -> None:
        """One capability of this login was dropped; after the last one the login is closed."""
        if login.let_go():
            self.background.do(partial(self._log_out, login))

    async def _log_out(self, login: Login) -> None:
        try:
            await login.close()
        finally:
            self._forget(login)

    def _forget(self, login: Login) -> None:
        connection = self._logins.pop(login, None)
        if connection is not None:
            connection.logged_out()

    # --- the end ---------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Tell the sinks, answer the calls in progress, and deliver what was pushed."""
        for delivery in list(self.deliveries):
            self.background.do(partial(delivery.end, _going_down()))
        await self.background.finish(DRAIN_SECONDS / 2)
        for connection in self._connections:
            connection.stop_reading()
        await self._until(lambda: not any(connection.calls for connection in self._connections))
        for login in list(self._logins):
            self.background.do(partial(self._log_out, login))
        await self.background.finish(DRAIN_SECONDS / 2)
        for connection in list(self._connections):
            connection.close()
        await self._until(lambda: not self._connections)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Return when `is_so`, or after half of DRAIN_SECONDS."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_SECONDS / 2
        while not is_so() and loop.time() < deadline:
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        """Give up everything that is not done by now."""
        await self.background.close()
        for connection in list(self._connections):
            connection.abort()
        await self._until(lambda: not self._connections)
        for login in list(self._logins):
            login.abandon(_going_down())


def _going_down() -> ShuttingDown:
    return ShuttingDown("the broker is going down")


class Refused(asyncio.Protocol):
    """A connection beyond `connections_max`: closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
