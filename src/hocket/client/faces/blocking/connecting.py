"""How a blocking client is made: `hocket.connect` and `hocket.embedded`."""

from __future__ import annotations

from os import PathLike

from hocket.client.connection.destination import destination
from hocket.client.connection.embedded import EmbeddedConnector, start_broker
from hocket.client.connection.tcp import TcpConnector
from hocket.client.connection.tls import Path
from hocket.client.engines.leaving import EXIT_SECONDS
from hocket.client.faces.blocking.client import Client
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
) -> Client:
    """A client of the broker at `hocket://host:port`; `hockets://` for TLS.

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
    seconds = check_timeout(exit_timeout, "exit_timeout")
    there = destination(url, token, tls_ca, tls_cert, tls_key)
    patience = 10.0 if timeout is None else max(timeout, 0.1)
    connector = TcpConnector(there.target, there.context, patience)
    with there.blamed():
        return Client(
            connector,
            token=there.token,
            name=name,
            timeout=timeout,
            exit_timeout=seconds,
            reach=there.reach(name, patience),
            tracing=tracing,
        )


def embedded(
    path: str | PathLike[str] | None = None,
    *,
    exit_timeout: float | None = EXIT_SECONDS,
    tracing: bool = False,
) -> Client:
    """A client of a broker of its own in this process, which ends with the client.

    `path` is the data directory; None for a temporary one, which is removed at the end.
    """
    seconds = check_timeout(exit_timeout, "exit_timeout")
    broker, end = start_broker(path)
    connector = EmbeddedConnector(broker)
    try:
        return Client(
            connector, name="embedded", closing=end, exit_timeout=seconds, tracing=tracing
        )
    except BaseException:
        end()
        raise
