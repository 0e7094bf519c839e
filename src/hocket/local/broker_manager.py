"""The registry of brokers: one namespace for every kind."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from hocket.errors import NameInUse, UnknownBroker, WrongKind, WrongType
from hocket.local.checks import check_name

if TYPE_CHECKING:
    from hocket.local.channel import Channel


class AnyBroker(Protocol):
    """What the registry knows of a broker, whatever its kind."""

    @property
    def name(self) -> str: ...


@runtime_checkable
class ThreadBroker(AnyBroker, Protocol):
    """A broker whose accept and connect block; the registry offers both by name."""

    def accept(self, port: int, timeout: float | None = None) -> Channel: ...

    def connect(self, name: str, port: int, timeout: float | None = None) -> Channel: ...


class BrokerManager:
    """A registry of brokers; `BrokerManager.default()` is the process-wide one."""

    def __init__(self) -> None:
        # Guards the registry and the rendezvous of all its brokers: a match touches two brokers
        # and a close may touch many, and one lock has no order to get wrong.
        self.lock = RLock()
        self._brokers: dict[str, AnyBroker] = {}

    @staticmethod
    def default() -> BrokerManager:
        """The process-wide registry, used where no manager is given."""
        return _process_wide

    @staticmethod
    def get_broker(name: str) -> AnyBroker | None:
        """The broker of this name in the process-wide registry."""
        return _process_wide.find(name)

    def find(self, name: str) -> AnyBroker | None:
        check_name(name)
        return self._brokers.get(name)

    def brokers(self) -> list[AnyBroker]:
        """All brokers, oldest first."""
        with self.lock:
            return list(self._brokers.values())

    def accept(self, name: str, port: int, timeout: float | None = None) -> Channel:
        """`accept` on the broker called `name`."""
        return self._thread_broker(name).accept(port, timeout)

    def connect(
        self, from_name: str, to_name: str, port: int, timeout: float | None = None
    ) -> Channel:
        """`connect` from the broker called `from_name` to the one called `to_name`."""
        return self._thread_broker(from_name).connect(to_name, port, timeout)

    def register(self, broker: AnyBroker) -> None:
        check_name(broker.name)
        with self.lock:
            if broker.name in self._brokers:
                raise NameInUse(
                    f"there is already a broker called {broker.name!r}; "
                    "close it first or choose another name"
                )
            self._brokers[broker.name] = broker

    def unregister(self, broker: AnyBroker) -> None:
        with self.lock:
            if self._brokers.get(broker.name) is broker:
                del self._brokers[broker.name]

    def require(self, name: str) -> AnyBroker:
        broker = self.find(name)
        if broker is None:
            raise UnknownBroker(f"no broker is called {name!r}")
        return broker

    def _thread_broker(self, name: str) -> ThreadBroker:
        broker = self.require(name)
        if not isinstance(broker, ThreadBroker):
            raise WrongKind(f"{name!r} is an event broker; it has no blocking accept and connect")
        return broker


_process_wide = BrokerManager()


def chosen_manager(manager: BrokerManager | None) -> BrokerManager:
    """The manager given, or the process-wide one for None."""
    if manager is None:
        return _process_wide
    if not isinstance(manager, BrokerManager):
        raise WrongType(f"manager must be a BrokerManager, not {type(manager).__name__}")
    return manager
