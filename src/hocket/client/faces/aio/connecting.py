"""How an asyncio client is made: `hocket.aio.connect` and `hocket.aio.embedded`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from os import PathLike
from typing import Any

from hocket.client.connection.aio_tcp import AioConnector
from hocket.client.connection.destination import destination
from hocket.client.connection.embedded import EmbeddedConnector, start_broker
from hocket.client.connection.tls import Path
from hocket.client.engines.leaving import EXIT_SECONDS
from hocket.client.faces.aio.client import AsyncClient
from hocket.client.faces.opening import Opening
from hocket.client_core.timeout import check_timeout


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    timeout: float | None = 10,
    name: str = "",
    exit_timeout: float | None = EXIT_SECONDS,
    tracing: bool = False,
) -> Opening[AsyncClient]:
    """A client of the broker at `hocket://host:port`; `hockets://` for TLS.

    `async with` it, or `await` it for a client that you close yourself.

    What is not given comes from the environment: the URL from HOCKET_SERVER (else it is
    hocket://127.0.0.1:4150), the token from HOCKET_TOKEN, the files of TLS from HOCKET_TLS_CA,
    HOCKET_TLS_CERT and HOCKET_TLS_KEY. `host:port` will do for a URL, and `host` for port 4150;
    without a scheme, TLS is spoken if one of these files is named.

    Several hosts may be given, separated by commas: they are tried in turn, now and whenever the
    connection is lost. Raises NoConnection when none of them answers.

    If the process ends and the client is not closed, what was sent is delivered and what was
    acknowledged is committed all the same, if that takes no more than `exit_timeout` seconds; what
    is lost then is said on stderr.

    With `tracing` whatever is published has a span of OpenTelemetry, and carries its context: see
    `hocket.tracing`. It needs the extra `tracing`.
    """
    timeout = check_timeout(timeout)
    exit_seconds = check_timeout(exit_timeout, "exit_timeout")
    there = destination(url, token, tls_ca, tls_cert, tls_key)
    seconds = 10.0 if timeout is None else max(timeout, 0.1)

    async def open_client() -> AsyncClient:
        connector = AioConnector(there.target, there.context, seconds)
        client = AsyncClient(
            connector,
            token=there.token,
            name=name,
            closing=connector.wait_closed,
            exit_timeout=exit_seconds,
            reach=there.reach(name, seconds),
            tracing=tracing,
        )
        with there.blamed():
            await client._open(timeout)
        return client

    return Opening(open_client, "hocket.aio.connect(...)")


def embedded(
    path: str | PathLike[str] | None = None,
    *,
    exit_timeout: float | None = EXIT_SECONDS,
    tracing: bool = False,
) -> Opening[AsyncClient]:
    """A client of a broker of its own in this process, which ends with the client.

    `async with` it, or `await` it for a client that you close yourself. `path` is the data
    directory; None for a temporary one, which is removed at the end. The broker has threads of its
    own, so that it does not keep the loop waiting.
    """
    exit_seconds = check_timeout(exit_timeout, "exit_timeout")

    async def open_client() -> AsyncClient:
        loop = asyncio.get_running_loop()
        # Opening and closing a broker reads and syncs files: not for the loop's thread.
        starting = loop.run_in_executor(None, start_broker, path)
        try:
            broker, end = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_end_again)
            raise

        def close() -> Awaitable[None]:  # begins at once, also if nobody awaits what it returns
            return loop.run_in_executor(None, end)

        try:
            client = AsyncClient(
                EmbeddedConnector(broker),
                name="embedded",
                closing=close,
                exit_timeout=exit_seconds,
                tracing=tracing,
            )
        except BaseException:
            await close()
            raise
        await client._open(None)
        return client

    return Opening(open_client, "hocket.aio.embedded(...)")


def _end_again(starting: asyncio.Future[tuple[Any, Callable[[], None]]]) -> None:
    """End the broker that was being started when its user gave up."""
    if not starting.cancelled() and starting.exception() is None:
        starting.get_loop().run_in_executor(None, starting.result()[1])
