"""The topic broker for asyncio: the names of `hocket`, to be awaited."""

from __future__ import annotations

from hocket.client.faces.aio.connecting import connect, embedded

__all__ = ["connect", "embedded"]
