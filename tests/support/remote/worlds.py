"""Worlds of queues whose two sides are connected by sockets: see `queues.worlds`."""

from __future__ import annotations

import threading
from typing import Any

from hocket.local import EventPump
from hocket.remote.connection import LEAD_US
from tests.support.queues.worlds import KINDS, World
from tests.support.remote.served import ServedNode
from tests.support.threads import until


def until_quiet(managers: Any) -> None:
    """Until nothing is written or read any more, as far as can be seen: the counters of all
    connections stand still while the loops turn."""
    seen: list[Any] = []

    def still() -> bool:
        for manager in managers:
            turned = threading.Event()
            loop = manager._loop
            loop.post(lambda loop=loop, turned=turned: loop.after(LEAD_US + 2_000, turned.set))
            assert turned.wait(20)
        seen.append(
            [
                (id(each), each.bytes_sent, each.bytes_received)
                for manager in managers
                for each in list(manager._connections)
            ]
        )
        return len(seen) > 1 and seen[-1] == seen[-2]

    until(still)


class TwoManagers(World):
    """The client's side and the server's side are known to each other by name only."""

    def __init__(self, node: ServedNode, kind: str, threads: int = 1) -> None:
        super().__init__(kind, 2, threads)
        self._node = node
        self._sides = (node.manager(), node.manager())
        self.manager = self._sides[0]
        self._probes = 0

    shares_objects = False

    def find(self, name: str) -> Any:
        return next(filter(None, (each.find(name) for each in self._sides)), None)

    def known(self) -> list[Any]:
        return [broker for side in self._sides for broker in side.brokers()]

    def settle(self) -> None:
        """Besides: what is on its way between the two sides has come, and counts that wait for
        something to travel with are sent."""
        for _ in range(2):
            super().settle()
            until_quiet(self._sides)
        super().settle()

    def __exit__(self, exc_type: object, *error: object) -> None:
        try:
            super().__exit__(exc_type, *error)
        finally:
            for side in self._sides:
                side.close()

    def broker(
        self, name: str, pump: EventPump | None = None, manager: Any = None, **limits: Any
    ) -> Any:
        pump = pump or self.client_pump
        if manager is None or manager is self.manager:
            manager = self._sides[pump is not self.client_pump]
        broker = KINDS[self.kind](name, pump, manager, **limits)
        self._brokers.append(broker)
        return broker
