"""The registry of brokers: one namespace for every kind."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Protocol, TypeGuard, cast, overload, runtime_checkable

from hocket.errors import NameInUse, PortInUse, UnknownBroker, WrongKind, WrongType
from hocket.local.checks import check_name

if TYPE_CHECKING:
    from hocket.deadline import Deadline
    from hocket.errors import HocketError
    from hocket.local.channel import Channel


class AnyBroker(Protocol):
    """What the registry knows of a broker, whatever its kind."""

    @property
    def name(self) -> str: ...

    @property
    def manager(self) -> BrokerManager: ...


@runtime_checkable
class ThreadBroker(AnyBroker, Protocol):
    """A broker whose accept and connect wait for the other side and return a channel."""

    def accept(self, port: int, timeout: float | None = None) -> Channel: ...

    def connect(
        self, name: str | AnyBroker, port: int, timeout: float | None = None
    ) -> Channel: ...


class EventBroker(AnyBroker, Protocol):
    """A broker that answers by events: it binds ports and connects with listeners."""

    def bind(self, port: int, listener: object) -> bool: ...

    def connect(self, name: str | AnyBroker, port: int, listener: object) -> bool: ...


class HasNames(Protocol):
    """A client of a cluster: it knows names in other processes."""

    @property
    def names(self) -> BrokerManager: ...


class Attempt(Protocol):
    """A connect of an event broker on its way to its answer (`queue_broker`)."""

    @property
    def port(self) -> int: ...

    def claim(self) -> bool:
        """True for the first call; the manager's lock is held."""

    def refused(self, reason: HocketError) -> None: ...


class Meeting(Protocol):
    """A rendezvous, for one who waits there (`rendezvous`)."""

    def wait(self, deadline: Deadline) -> Channel: ...

    async def wait_async(self, deadline: Deadline) -> Channel: ...


class _GetBroker:
    """`get_broker`: of a manager, its own `find`; of the class, that of the process-wide one."""

    def __get__(
        self, manager: BrokerManager | None, _owner: type[BrokerManager]
    ) -> Callable[[str], AnyBroker | None]:
        return (_process_wide if manager is None else manager).find


class BrokerManager:
    """A registry of brokers; `BrokerManager.default()` is the process-wide one.

    By default each broker has ports of its own. With `unique_ports` a port belongs, among all
    brokers of the manager, to the first that accepts on it or binds it: until that broker is closed
    or unbinds it, another one gets `PortInUse`.
    """

    # Guards the registries and all rendezvous and connects. One for all managers: a match touches
    # two brokers, which may be of two managers, a close touches many, and one lock has no order to
    # get wrong.
    lock = RLock()

    get_broker = _GetBroker()

    def __init__(self, *, unique_ports: bool = False) -> None:
        self.unique_ports = unique_ports
        self._brokers: dict[str, AnyBroker] = {}
        self._owners: dict[int, AnyBroker] = {}  # whose a port is; empty unless ports are unique

    @staticmethod
    def default() -> BrokerManager:
        """The process-wide registry, used where no manager is given."""
        return _process_wide

    def find(self, name: str) -> AnyBroker | None:
        """The broker of this name, None if there is none."""
        check_name(name)
        return self._brokers.get(name)

    def brokers(self) -> list[AnyBroker]:
        """All brokers, oldest first."""
        with self.lock:
            return list(self._brokers.values())

    @overload
    def accept(self, name: str | AnyBroker, port: int, timeout: float | None = None) -> Channel: ...

    @overload
    def accept(self, name: str | AnyBroker, port: int, *, listener: object) -> bool: ...

    def accept(
        self,
        name: str | AnyBroker,
        port: int,
        timeout: float | None = None,
        *,
        listener: object = None,
    ) -> Channel | bool:
        """`accept` on the thread broker called `name`; with a listener, `bind` on an event broker.

        A broker may be given itself instead of its name.
        """
        broker = self.require(name)
        if isinstance(broker, ThreadBroker):
            _check_no_listener(broker, listener)
            return broker.accept(port, timeout)
        _check_listener_alone(broker, listener, timeout)
        return cast(EventBroker, broker).bind(port, listener)

    @overload
    def connect(
        self,
        from_name: str | AnyBroker,
        to_name: str | AnyBroker,
        port: int,
        timeout: float | None = None,
    ) -> Channel: ...

    @overload
    def connect(
        self,
        from_name: str | AnyBroker,
        to_name: str | AnyBroker,
        port: int,
        *,
        listener: object,
    ) -> bool: ...

    def connect(
        self,
        from_name: str | AnyBroker,
        to_name: str | AnyBroker,
        port: int,
        timeout: float | None = None,
        *,
        listener: object = None,
    ) -> Channel | bool:
        """`connect` from the broker called `from_name` to the one called `to_name`.

        Between event brokers a listener is needed, which hears the answer. A broker may be given
        itself instead of its name.
        """
        broker = self.require(from_name)
        if isinstance(broker, ThreadBroker):
            _check_no_listener(broker, listener)
            return broker.connect(to_name, port, timeout)
        _check_listener_alone(broker, listener, timeout)
        return cast(EventBroker, broker).connect(to_name, port, listener)

    # --- for brokers in other processes; a manager of one process knows of none ----------------

    def reserve(self, name: str, kind: str) -> None:
        """A broker of this name is about to be registered. May wait; the lock is not held."""

    def give_back(self, name: str) -> None:
        """The broker of this name was closed, or not registered after all. The lock is not held."""

    def connect_elsewhere(self, attempt: Attempt, name: str) -> bool:  # noqa: ARG002
        """Have a connect answered that no broker here can answer; False if nobody else can.

        The lock is held.
        """
        return False

    def meet_elsewhere(
        self,
        visitor: ThreadBroker,  # noqa: ARG002
        name: str,  # noqa: ARG002
        port: int,  # noqa: ARG002
    ) -> Meeting | None:
        """Where to wait for an accept in another process; None if there is no such broker."""
        return None

    # --- for the brokers ---------------------------------------------------------------------

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
            for port in [port for port, owner in self._owners.items() if owner is broker]:
                del self._owners[port]

    def require(self, broker: str | AnyBroker) -> AnyBroker:
        """The broker of this name, or this very broker. Raises UnknownBroker, WrongType, BadName.

        A broker in hand may be of another manager: no name is looked up.
        """
        if is_broker(broker):
            if broker.manager.find(broker.name) is not broker:
                raise UnknownBroker(f"broker {broker.name!r} was closed")
            return broker
        if not isinstance(broker, str):
            raise WrongType(
                f"a broker is given by its name or itself, not as a {type(broker).__name__}"
            )
        found = self.find(broker)
        if found is None:
            raise UnknownBroker(f"no broker is called {broker!r}")
        return found

    def take_port(self, broker: AnyBroker, port: int) -> None:
        """If ports are unique, `port` is this broker's from now on. Raises PortInUse.

        The lock is held.
        """
        if not self.unique_ports:
            return
        owner = self._owners.setdefault(port, broker)
        if owner is not broker:
            raise PortInUse(
                f"port {port} is broker {owner.name!r}'s, and ports are unique in this manager; "
                "choose another port, or close that broker"
            )

    def free_port(self, port: int) -> None:
        """The broker that had `port` has given it up; the lock is held."""
        self._owners.pop(port, None)


_process_wide = BrokerManager()


def chosen_manager(manager: BrokerManager | HasNames | None) -> BrokerManager:
    """The manager given (or a client's), or the process-wide one for None."""
    if manager is None:
        return _process_wide
    if not isinstance(manager, BrokerManager):
        manager = getattr(manager, "names", manager)  # a client of a cluster has one
    if not isinstance(manager, BrokerManager):
        raise WrongType(f"manager must be a BrokerManager, not {type(manager).__name__}")
    return manager


def is_broker(value: object) -> TypeGuard[AnyBroker]:
    """Whether `value` is a broker, of any kind."""
    return isinstance(getattr(value, "manager", None), BrokerManager)


def _check_no_listener(broker: AnyBroker, listener: object) -> None:
    if listener is not None:
        raise WrongKind(
            f"{broker.name!r} is a thread broker: it waits and returns a channel; "
            "call it without a listener"
        )


def _check_listener_alone(broker: AnyBroker, listener: object, timeout: float | None) -> None:
    if listener is None:
        raise WrongKind(
            f"{broker.name!r} is an event broker: it does not wait; pass listener=, which is told"
        )
    if timeout is not None:
        raise WrongKind(f"{broker.name!r} is an event broker: it does not wait; leave timeout out")
