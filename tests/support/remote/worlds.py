"""Worlds of queues whose two sides are connected by sockets: see `queues.worlds`."""

from __future__ import annotations

import threading
from typing import Any

from hocket.local import Broker, EventPump
from hocket.remote.connection import LEAD_US
from tests.support.queues.worlds import KINDS, World
from tests.support.remote.far import Far
from tests.support.remote.served import NodeAt, ServedNode
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
        self,
        name: str,
        pump: EventPump | None = None,
        manager: Any = None,
        kind: str = "",
        **limits: Any,
    ) -> Any:
        pump = pump or self.client_pump
        if manager is None or manager is self.manager:
            manager = self._sides[pump is not self.client_pump]
        broker = KINDS[kind or self.kind](name, pump, manager, **limits)
        self._brokers.append(broker)
        return broker


# --- processes of their own -----------------------------------------------------------------------


class Place:
    """What one process of a world has: a manager of the cluster's names, pumps and brokers.

    It is made in that process, by `Far.call`.
    """

    def __init__(self, way: str, address: Any, certificates: Any) -> None:
        self.manager = NodeAt(way, address, certificates).manager()

    def pump(self, name: str, threads: int) -> EventPump:
        return EventPump(name, threads)

    def broker(self, kind: str, name: Any, pump: EventPump, limits: dict[str, Any]) -> Any:
        return KINDS[kind](name, pump, self.manager, **limits)

    def thread_broker(self, name: Any, options: dict[str, Any]) -> Broker:
        return Broker(name, self.manager, **options)

    def traffic(self) -> list[tuple[int, int, int]]:
        """What has gone over each connection, after the loop has turned for a while."""
        turned = threading.Event()
        loop = self.manager._loop
        loop.post(lambda: loop.after(LEAD_US + 2_000, turned.set))
        assert turned.wait(20)
        return [
            (id(each), each.bytes_sent, each.bytes_received)
            for each in list(self.manager._connections)
        ]

    def close(self) -> None:
        self.manager.close()


class Processes(World):
    """The sides are processes of their own, and the node is another one.

    With two processes the client's side is here, in the process of the test. With three it is not
    either: there is a process for the client, one for the server, and here is everybody else.
    """

    def __init__(self, kind: str, node: NodeAt, fars: list[Far], count: int) -> None:
        self._fars = fars[: count - 1]
        given = (node.way, node.address, node._certificates)
        for far in self._fars:
            far.begin()
        here = Place(*given)
        there = [far.call(Place, *given) for far in self._fars]
        if count == 2:
            self._of = {"client-pump": here, "server-pump": there[0]}
            self._other = there[0]
        else:
            self._of = {"client-pump": there[0], "server-pump": there[1]}
            self._other = here
        self._places = [here, *there]
        self._place_of: dict[Any, Any] = {}  # by pump
        super().__init__(kind, 2)
        self.manager = self._of["client-pump"].manager

    shares_objects = False

    def pump(self, name: str, *, start: bool = True) -> Any:
        place = self._of.get(name, self._other)
        pump = place.pump(name, self.threads)
        self._place_of[pump] = place
        pump.on_error = self.errors.append
        self._pumps.append(pump)
        if start:
            pump.start()
        return pump

    def broker(
        self, name: Any, pump: Any = None, manager: Any = None, kind: str = "", **limits: Any
    ) -> Any:
        pump = pump or self.client_pump
        place = self._place_of[pump]
        broker = place.broker(kind or self.kind, name, pump, limits)
        self._brokers.append(broker)
        return broker

    def thread_broker(self, name: Any, **options: Any) -> Any:
        broker = self._of["client-pump"].thread_broker(name, options)
        self._brokers.append(broker)
        return broker

    def find(self, name: str) -> Any:
        return next(filter(None, (each.manager.find(name) for each in self._places)), None)

    def known(self) -> list[Any]:
        return [broker for place in self._places for broker in place.manager.brokers()]

    def settle(self) -> None:
        for _ in range(2):
            super().settle()
            self._until_quiet()
        super().settle()

    def _until_quiet(self) -> None:
        seen: list[Any] = []

        def still() -> bool:
            seen.append([place.traffic() for place in self._places])
            return len(seen) > 1 and seen[-1] == seen[-2]

        until(still)

    def __exit__(self, exc_type: object, *error: object) -> None:
        try:
            super().__exit__(exc_type, *error)
        finally:
            for place in self._places:
                place.close()
            for far in self._fars:
                far.end(verify=exc_type is None)
