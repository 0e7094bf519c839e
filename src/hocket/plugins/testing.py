"""For the tests of plug-ins: a broker in this process that runs them, and a client of it.

    from hocket.plugins.testing import broker_with

    def test_large_messages_are_refused():
        with broker_with(Small) as broker:
            broker.client.create_topic("t")
            with pytest.raises(Rejected):
                broker.client.publish("t", b"x" * 2_000)

What a storage tier, a codec or an authenticator has to do is tested by `StorageTierSuite`,
`CodecSuite` and `AuthenticatorSuite`; see `hocket.plugins.conformance`.

It is a whole broker with its data in a temporary directory; what is in the test is what runs in
production, but that the client is within the process, and so may do everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hocket.addresses import Address
from hocket.client.connection.embedded import EmbeddedConnector, TemporaryPath
from hocket.client.faces.blocking.client import Client
from hocket.client.faces.blocking.connecting import connect
from hocket.errors import NotAllowed
from hocket.model import size_bytes
from hocket.node.broker import Broker
from hocket.node.settings import NodeSettings
from hocket.plugins import conformance
from hocket.plugins.conformance import CodecSuite, StorageTierSuite, raises
from hocket.plugins.doors import called_on_loop
from hocket.plugins.enabling import DEADLINE_MS, MEMORY_MAX, start_apart
from hocket.plugins.found import make
from hocket.plugins.host import Host
from hocket.plugins.running import FAILURES_MAX, SLOW_MS, Running

__all__ = [
    "AuthenticatorSuite", "BrokerWith", "CodecSuite", "StorageTierSuite", "broker_with",
]  # fmt: skip

T = TypeVar("T")
DONE_SECONDS = 30.0


class BrokerWith:
    """A broker with plug-ins, and `client`, which is within its process."""

    def __init__(self, broker: Broker, host: Host) -> None:
        self._broker = broker
        self._host = host
        self.client = Client(EmbeddedConnector(broker), name="hocket.plugins.testing")

    def listen(self) -> str:
        """The URL of the broker, at a port of this machine: for clients that are not trusted."""
        return (
            f"hocket://{Address(*self.on_its_thread(lambda: self._broker.listen('127.0.0.1', 0)))}"
        )

    def plugin(self, name: str) -> Running:
        """What became of a plug-in: whether it is on, and how long its hooks took."""
        return next(each for each in self._host.plugins if each.name == name)

    def on_its_thread(self, call: Callable[[], T]) -> T:
        """Have the broker's own thread call this."""
        return called_on_loop(self._broker, call, DONE_SECONDS)


@contextmanager
def broker_with(
    *plugins: type,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    path: Path | None = None,
    slow_ms: float = SLOW_MS,
    failures_max: int = FAILURES_MAX,
    node: NodeSettings | None = None,
    topics: Mapping[str, Sequence[str]] | None = None,
    apart: Sequence[type] = (),
    deadline_ms: float = DEADLINE_MS,
    memory_max: str = MEMORY_MAX,
) -> Iterator[BrokerWith]:
    """A broker that runs these plug-ins, in this order, each by the name of its class in small.

    `settings` are those of `[plugins.NAME]`, by name; `topics` are what `for-topics` says there;
    `node` are the settings of the broker itself. Those that are in `apart`, too, run in processes
    of their own: such a class must be found by its name in its module. Raises `found.Unusable` as a
    node would.
    """
    host = Host()
    temporary = TemporaryPath() if path is None else None
    try:
        for each in plugins:
            name = each.__name__.lower()
            given, process = (settings or {}).get(name, {}), None
            if each in apart:
                loaded, process = start_apart(
                    name, given, None, deadline_ms=deadline_ms,
                    memory_bytes=size_bytes(memory_max),
                    place=f"{each.__module__}:{each.__qualname__}",
                )  # fmt: skip
            else:
                loaded = make(name, each, given)
            host.add(
                loaded, slow_ms=slow_ms, failures_max=failures_max,
                topics=(topics or {}).get(name, ()), apart=process,
            )  # fmt: skip
        broker = Broker(Path(temporary.name) if temporary else Path(path or ""), node)
        try:
            host.attach(broker.node, broker.loop)
            broker.start()
            running = BrokerWith(broker, host)
            with running.client:
                yield running
        finally:
            broker.close()
    finally:
        host.close()
        if temporary:
            temporary.remove()


class AuthenticatorSuite(conformance.AuthenticatorSuite):
    """What every plug-in with `authenticate` has to do; see `hocket.plugins.conformance`."""

    def test_a_broker_lets_its_users_in_and_nobody_else(self, tmp_path: Path) -> None:
        name = self.plugin().__name__.lower()
        settings = {name: self.settings(tmp_path)}
        with broker_with(self.plugin(), settings=settings) as broker:
            broker.client.create_user("alice", roles=["admin"])
            url = broker.listen()
            with connect(url, token=self.token_of("alice")) as client:
                client.create_topic("notes")
            for token in (self.token_of("nobody"), *self.wrong_tokens()):
                raises(
                    NotAllowed, partial(_come_in, url, token),
                    f"a broker must not let {token[:40]!r} in",
                )  # fmt: skip


def _come_in(url: str, token: str) -> None:
    with connect(url, token=token):
        pass
