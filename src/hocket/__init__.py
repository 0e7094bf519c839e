"""Hocket: messaging for Python, from a ring buffer between two threads to a topic broker.

    hocket.local      byte channels and message queues within a process
    hocket.connect    a client of a broker
    hocket.embedded   a broker in this process, and a client of it
    hocket.aio        both for asyncio, with the same names

What belongs to the broker is loaded when it is first used, so that a program that only wants
`hocket.local` pays for nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hocket import aio
    from hocket.client.connection.embedded import embedded
    from hocket.client.faces.blocking.client import connect
    from hocket.model import Position

__version__ = "0.1.0"
__all__ = ["Position", "__version__", "aio", "connect", "embedded"]

_HOMES = {
    "connect": "hocket.client.faces.blocking.client",
    "embedded": "hocket.client.connection.embedded",
    "Position": "hocket.model",
}


def __getattr__(name: str) -> Any:
    if name == "aio":
        return import_module("hocket.aio")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'hocket' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES, "aio"]
