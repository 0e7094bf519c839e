"""What the connections of one endpoint share, on the endpoint's own loop: lines, logins, chores."""

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
from hocket.rpc.background import Chores
from hocket.rpc.connection import Line
from hocket.rpc.delivery import Courier
from hocket.rpc.interfaces import BrokerFace
from hocket.rpc.login import Login

log = logging.getLogger("hocket.rpc")

NESTING_MAX = 16  # ours nest 7 deep
DRAIN_SECONDS = 2.0  # for calls in progress, when the broker goes down


class Switchboard:
    def __init__(self, broker: Broker, limits: Limits) -> None:
        self.chores = Chores()
        self.couriers: dict[Courier, None] = {}
        self._broker = broker
        self._limits = limits
        self._lines: dict[Line, None] = {}
        self._logins: dict[Login, Line] = {}

    # --- lines -----------------------------------------------------------------------------------

    def new_line(self) -> asyncio.BaseProtocol:
        if len(self._lines) >= self._limits.connections_max:
            log.warning("refused a connection: %d are open", len(self._lines))
            return Refused()
        line = Line(self._serve, self._lines.pop)
        self._lines[line] = None
        return line

    def _serve(self, line: Line, stream: Any) -> Any:
        return capnp.TwoPartyServer(
            stream,
            bootstrap=BrokerFace(self, line),
            traversal_limit_in_words=self._limits.frame_bytes_max // 8,
            nesting_limit=NESTING_MAX,
        )

    # --- logins ----------------------------------------------------------------------------------

    async def log_in(self, line: Line, token: str, client: str) -> Login:
        line.check_login()
        login = Login(self._broker, line.caller, token=token, name=client)
        self._logins[login] = line
        try:
            await login.open()
        except BaseException:
            self._forget(login)
            raise
        line.logged_in()
        return login

    def let_go(self, login: Login) -> None:
        """One who held it does not hold it any more."""
        if login.let_go():
            self.chores.do(partial(self._log_out, login))

    async def _log_out(self, login: Login) -> None:
        try:
            await login.close()
        finally:
            self._forget(login)

    def _forget(self, login: Login) -> None:
        line = self._logins.pop(login, None)
        if line is not None:
            line.logged_out()

    # --- the end ---------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Sinks are told, calls in progress are answered, and what was pushed is delivered."""
        for courier in list(self.couriers):
            self.chores.do(partial(courier.end, _going_down()))
        await self.chores.finish(DRAIN_SECONDS / 2)
        for line in self._lines:
            line.stop_reading()
        await self._until(lambda: not any(line.calls for line in self._lines))
        for login in list(self._logins):
            self.chores.do(partial(self._log_out, login))
        await self.chores.finish(DRAIN_SECONDS / 2)
        for line in list(self._lines):
            line.close()
        await self._until(lambda: not self._lines)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Or until it has lasted too long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_SECONDS / 2
        while not is_so() and loop.time() < deadline:
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        """What is not done by now is given up."""
        await self.chores.close()
        for line in list(self._lines):
            line.abort()
        await self._until(lambda: not self._lines)
        for login in list(self._logins):
            login.abandon(_going_down())


def _going_down() -> ShuttingDown:
    return ShuttingDown("the broker is going down")


class Refused(asyncio.Protocol):
    """One connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
