"""The clients of this process: one for each broker and login, kept from task to task.

A login is expensive on purpose, and Spark reuses its worker processes, so a client outlives the
task that it was made for. A client ends with the process, or when it is broken; the next task then
gets a new one. A forked child never uses the clients that it inherited: their threads stayed in the
parent.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hocket.addresses import Address
from hocket.client.connection.address import Target, parse_url
from hocket.client.faces.blocking.client import Client
from hocket.client.faces.blocking.connecting import connect
from hocket.errors import (
    AnotherCluster,
    BadName,
    HocketError,
    NoConnection,
    NotAllowed,
    OutOfRange,
    Timeout,
)

if TYPE_CHECKING:
    from hocket.spark.options import ConnectionOptions

CONNECT_SECONDS = 10.0  # for each address that gives no answer at all
CLOSE_SECONDS = 1.0  # at the end of the process, where nobody waits any more
RETRY_SECONDS = 0.1


@dataclass(slots=True)
class _Kept:
    process: int = field(default_factory=os.getpid)
    lock: threading.Lock = field(default_factory=threading.Lock)
    clients: dict[tuple[ConnectionOptions, str], Client] = field(default_factory=dict)


_kept = _Kept()
_inherited: list[_Kept] = []  # kept, so that these are never collected: their threads are gone


def client_of(
    options: ConnectionOptions, *, first: str = "", patience: float = 0.0, cluster: str = ""
) -> Client:
    """The client of this process for that broker; do not close it.

    `first` is where a partition's leader was last seen. If it looks like an address, it is tried
    before the others. Raises NoConnection if no address answers. `patience` is for how many seconds
    to go on trying, for a broker that is just being restarted. Raises AnotherCluster if the broker
    that answers is not of the `cluster` with this id, where both are known.
    """
    target = _with_first(parse_url(options.url), first)
    key = (options, str(target))
    deadline = time.monotonic() + patience
    kept = _of_this_process()
    with kept.lock:
        client = kept.clients.get(key)
        while client is None or not _is_usable(client):
            if client is not None:
                _close(kept.clients.pop(key))
                client = None
            try:
                client = _connected(options, target)
            except NoConnection:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_SECONDS)
            else:
                kept.clients[key] = client
    if cluster and client.cluster and client.cluster != cluster:
        raise AnotherCluster(
            f"the broker at {target} is of cluster {client.cluster}, and this query works with "
            f"cluster {cluster}, whose offsets and transactions mean nothing there. Point the "
            "query to its own cluster, or begin anew with another checkpointLocation"
        )
    return client


def close_all() -> None:
    """Close all clients, at the end of the process or of a test."""
    kept = _of_this_process()
    with kept.lock:
        while kept.clients:
            _close(kept.clients.popitem()[1])


atexit.register(close_all)


def _of_this_process() -> _Kept:
    global _kept
    if _kept.process != os.getpid():
        _inherited.append(_kept)
        _kept = _Kept()
    return _kept


def _close(client: Client) -> None:
    with suppress(HocketError):
        client.close(CLOSE_SECONDS)


def _is_usable(client: Client) -> bool:
    """Whether the client works. If it only lost its link it finds another, so it does."""
    return not client._closed and client._engine.session.failure is None


def _with_first(target: Target, first: str) -> Target:
    if ":" not in first:  # the name of a node, which is no address
        return target
    try:
        (address,) = parse_url(f"hocket://{first}").addresses
    except (BadName, OutOfRange, ValueError):
        return target
    others = tuple(each for each in target.addresses if each != address)
    return Target((address, *others), target.tls)


def _connected(options: ConnectionOptions, target: Target) -> Client:
    """Try each address first once: one that does not answer may use up all of a connect's time."""
    token = _token(options)
    failure: HocketError | None = None
    for addresses in _turns(target.addresses):
        try:
            return connect(
                str(Target(addresses, target.tls)),
                token=token or "",  # given: whoever runs a task is nobody else by its variables
                tls_ca=options.tls_ca,
                tls_cert=options.tls_cert,
                tls_key=options.tls_key,
                timeout=CONNECT_SECONDS,
                name="spark",
            )
        except (NoConnection, Timeout) as error:
            failure = error
    assert failure is not None
    raise NoConnection(str(failure)) from failure


def _turns(addresses: tuple[Address, ...]) -> list[tuple[Address, ...]]:
    return [addresses[at:] + addresses[:at] for at in range(len(addresses))]


def _token(options: ConnectionOptions) -> str | None:
    if options.token_file is None:
        return options.token
    try:
        token = Path(options.token_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise NotAllowed(
            f"the token file {options.token_file!r} (option tokenFile) cannot be read: {why}; it "
            "has to be there on every machine that runs a task"
        ) from None
    if not token:
        raise NotAllowed(f"the token file {options.token_file!r} (option tokenFile) is empty")
    return token
