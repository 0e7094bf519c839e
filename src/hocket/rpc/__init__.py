"""The broker's second front door: Cap'n Proto RPC, for clients in every language that has it.

This package is a thin adapter. Each login is a client of the broker, in the broker's own process,
and each capability stands for something that this client has open. `schema/rpc.capnp` is the
contract, docs/guide/rpc.md the guide.
"""

from __future__ import annotations

from hocket.rpc.endpoint import Endpoint

__all__ = ["Endpoint"]
