"""The broker's second front door: Cap'n Proto RPC, for clients in every language that has it.

A thin adapter: each login is a client of the broker in its own process, and each capability a face
of what that client has open. `schema/rpc.capnp` is the contract, docs/guide/rpc.md the guide.
"""

from __future__ import annotations

from hocket.rpc.endpoint import Endpoint

__all__ = ["Endpoint"]
