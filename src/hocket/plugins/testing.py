"""For the tests of plug-ins: a broker in this process that runs them, and a client of it.

    from hocket.plugins.testing import broker_with

    def test_large_messages_are_refused():
        with broker_with(Small) as broker:
            broker.client.create_topic("t")
            with pytest.raises(Rejected):
                broker.client.publish("t", b"x" * 2_000)

It is a whole broker with its data in a temporary directory; what is in the test is what runs in
production, but that the client is within the process, and so may do everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hocket.addresses import Address
from hocket.client.connection.embedded import EmbeddedConnector, TemporaryPath
from hocket.client.faces.blocking.client import Client
from hocket.node.broker import Broker
from hocket.plugins.found import make
from hocket.plugins.host import FAILURES_MAX, SLOW_MS, Host, Running

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
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                outcome.set_result(call())
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                outcome.set_exception(error)

        self._broker.post(run)
        return outcome.result(DONE_SECONDS)


@contextmanager
def broker_with(
    *plugins: type,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    path: Path | None = None,
    slow_ms: float = SLOW_MS,
    failures_max: int = FAILURES_MAX,
) -> Iterator[BrokerWith]:
    """A broker that runs these plug-ins, in this order, each by the name of its class in small.

    `settings` are those of `[plugins.NAME]`, by name. Raises `found.Unusable` as a node would.
    """
    host = Host()
    for each in plugins:
        name = each.__name__.lower()
        loaded = make(name, each, (settings or {}).get(name, {}))
        host.add(loaded, slow_ms=slow_ms, failures_max=failures_max)
    temporary = TemporaryPath() if path is None else None
    try:
        broker = Broker(Path(temporary.name) if temporary else Path(path or ""))
        host.attach(broker.node)
        broker.start()
        try:
            running = BrokerWith(broker, host)
            with running.client:
                yield running
        finally:
            broker.close()
            host.close()
    finally:
        if temporary:
            temporary.remove()
