"""Hocket: messaging for Python, from a ring buffer between two threads to a topic broker.

    hocket.local      byte channels and message queues within a process
    hocket.connect    a client of a broker
    hocket.embedded   a broker in this process, and a client of it
    hocket.aio        both for asyncio, with the same names
    hocket.values     what `value=` takes: types, and coders of your own
    hocket.errors     the errors that Hocket raises on purpose, all below HocketError

The classes exported here are those of the objects that users hold: they are for annotations and
for `isinstance`, and nobody calls them. `connect` and `embedded` give a `Client`, a client gives
producers, subscriptions and transactions, a subscription gives messages and batches of them.

Every name is loaded when it is first used, so that a program that only wants `hocket.local` does
not load the broker's client, nor what that client needs.
"""

from __future__ import annotations

import atexit
import sys
from importlib import import_module

from hocket.version import __version__

TYPE_CHECKING = False  # as type checkers know it; `typing` takes longer to load than all of this
if TYPE_CHECKING:
    from hocket import aio as aio, errors as errors, local as local, values as values
    from hocket.client.faces.aio.client import AsyncClient as AsyncClient
    from hocket.client.faces.aio.producer import AsyncProducer as AsyncProducer
    from hocket.client.faces.aio.subscription import AsyncSubscription as AsyncSubscription
    from hocket.client.faces.aio.transaction import AsyncTransaction as AsyncTransaction
    from hocket.client.faces.blocking.client import Client as Client
    from hocket.client.faces.blocking.connecting import connect as connect, embedded as embedded
    from hocket.client.faces.blocking.producer import Producer as Producer
    from hocket.client.faces.blocking.subscription import Subscription as Subscription
    from hocket.client.faces.blocking.transaction import Transaction as Transaction
    from hocket.client_core.consuming.message import Message as Message, MessageBatch as Batch
    from hocket.model import Position as Position

__all__ = [
    "AsyncClient",
    "AsyncProducer",
    "AsyncSubscription",
    "AsyncTransaction",
    "Batch",
    "Client",
    "Message",
    "Position",
    "Producer",
    "Subscription",
    "Transaction",
    "__version__",
    "aio",
    "connect",
    "embedded",
    "errors",
    "local",
    "values",
]

# The module that each name lives in; its name there, where that is another one, follows a colon.
_HOMES = {
    "AsyncClient": "hocket.client.faces.aio.client",
    "AsyncProducer": "hocket.client.faces.aio.producer",
    "AsyncSubscription": "hocket.client.faces.aio.subscription",
    "AsyncTransaction": "hocket.client.faces.aio.transaction",
    "Batch": "hocket.client_core.consuming.message:MessageBatch",
    "Client": "hocket.client.faces.blocking.client",
    "Message": "hocket.client_core.consuming.message",
    "Position": "hocket.model",
    "Producer": "hocket.client.faces.blocking.producer",
    "Subscription": "hocket.client.faces.blocking.subscription",
    "Transaction": "hocket.client.faces.blocking.transaction",
    "connect": "hocket.client.faces.blocking.connecting",
    "embedded": "hocket.client.faces.blocking.connecting",
}
_MODULES = ("aio", "errors", "local", "values")

if not TYPE_CHECKING:  # a type checker that saw it would take every misspelt name for one of ours

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"hocket.{name}")
        if name in _HOMES:
            module, _, other_name = _HOMES[name].partition(":")
            return getattr(import_module(module), other_name or name)
        raise AttributeError(f"module 'hocket' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _leave() -> None:
    """The process ends: have what clients were given delivered; see `client.engines.leaving`.

    Registered here, and so early that whatever the program itself registers is called before.
    """
    for name in ("hocket.client.engines.leaving", "hocket.client.connection.embedded"):
        if name in sys.modules:  # else nothing of it was ever used
            sys.modules[name].leave()


atexit.register(_leave)
