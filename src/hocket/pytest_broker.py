"""The broker behind the fixtures of `hocket.pytest_plugin`, and the ways to it.

One test has one broker, however many of the fixtures it uses: what a service does by its URL, the
test sees with its own client.
"""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

from hocket.addresses import Address
from hocket.client.connection.embedded import EmbeddedConnector, start_broker
from hocket.client.faces.aio.client import AsyncClient
from hocket.client.faces.blocking.client import Client
from hocket.client.faces.opening import Opening
from hocket.errors import BusyResource
from hocket.node.broker import Broker

READY_SECONDS = 30.0


class FixtureBroker:
    """A running broker with its data in `path`, until `close`."""

    def __init__(self, path: Path) -> None:
        self._broker, self._end = start_broker(path)
        self._url = ""

    def client(self) -> Client:
        return Client(EmbeddedConnector(self._broker), name="hocket_broker")

    def aio(self) -> AioBroker:
        return AioBroker(self._broker)

    def url(self) -> str:
        """Where the broker listens: a port of this machine that was free."""
        if not self._url:
            bound: Future[str] = Future()

            def listen() -> None:
                try:
                    address = Address(*self._broker.listen("127.0.0.1", 0))
                    bound.set_result(f"hocket://{address}")
                except BaseException as error:  # noqa: BLE001 - handed to the caller
                    bound.set_exception(error)

            self._broker.post(listen)  # a port belongs to the broker's own thread
            self._url = bound.result(READY_SECONDS)
        return self._url

    def close(self) -> None:
        """Returns when the broker's threads, its port and its files are free."""
        self._end()


class AioBroker(Opening[AsyncClient]):
    """`async with` it for an asyncio client of the test's broker, on the loop that runs just then.

    A fixture cannot hold the client itself: an asyncio client belongs to a loop, and which loop a
    test runs on is up to the test (`asyncio.run`) or to a plugin (pytest-asyncio, anyio). It may be
    entered again after its block; called, it is another client beside the first.
    """

    def __init__(self, broker: Broker) -> None:
        async def open_client() -> AsyncClient:
            client = AsyncClient(EmbeddedConnector(broker), name="hocket_aio")
            await client._open(READY_SECONDS)
            return client

        super().__init__(open_client, "hocket_aio")
        self._begun = True  # a test may have asked for it in vain

    def __call__(self) -> Opening[AsyncClient]:
        return Opening(self._open, "hocket_aio()")

    async def __aenter__(self) -> AsyncClient:
        if self._opened is not None:
            raise BusyResource(
                "hocket_aio is entered already; for another client of the same broker write "
                "`async with hocket_aio() as other`"
            )
        return await super().__aenter__()

    async def __aexit__(self, *error: object) -> None:
        try:
            await super().__aexit__(*error)
        finally:
            self._opened = None
