"""The names of a client's cluster: `client.names`, which is made when it is first asked for."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hocket.errors import BusyResource, Closed, WrongKind
from hocket.remote.manager import NameManager
from hocket.remote.reach import AUTO, Reach


class NamesOfClient:
    """What a client has of names; None for `reach`: its broker is within the process."""

    def __init__(self, reach: Reach | None) -> None:
        self._reach = reach
        self._manager: NameManager | None = None
        self._closed = False

    def manager(self) -> NameManager:
        if self._manager is None:
            self._manager = self._made(AUTO, "")
        return self._manager

    def use(self, listen: str | None, advertise: str) -> NameManager:
        if self._manager is not None:
            raise BusyResource("the names of this client are in use: say where to listen before")
        self._manager = self._made(listen, advertise)
        return self._manager

    def _made(self, listen: str | None, advertise: str) -> NameManager:
        if self._reach is None:
            raise WrongKind(
                "a broker within a program has no names for other processes: it has no port; "
                "serve one with: hocket serve"
            )
        if self._closed:
            raise Closed("the client is closed")
        return NameManager(replace(self._reach, listen=listen, advertise=advertise))

    def close(self) -> None:
        self._closed = True
        if self._manager is not None:
            self._manager.close()

    async def close_async(self) -> None:
        """`close`, which waits for other processes, and so is not for the loop's thread."""
        self._closed = True
        if self._manager is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._manager.close)
