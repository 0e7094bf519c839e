"""The compiled schema of the protocol between nodes; apart, since no client needs it."""

from __future__ import annotations

from typing import Any

from hocket.wire.schema import load

node_capnp: Any = load("node.capnp")
