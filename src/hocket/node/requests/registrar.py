"""What a node on the ring asks of the registry of nodes: types, with no registry and no ring.

`requests.registering` is the production registrar, and `cluster.ring_member` asks it. Both need
these types; a broker that is alone must not load the ring for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hocket.core.ring.contact import Contact

Enrolled = Callable[[int, tuple[Contact, ...]], None]  # the registry's version, and its members


class Registrar(Protocol):
    """The registry of nodes, which the root keeps. `done` is called when a change is durable."""

    def enrol(self, who: Contact, done: Enrolled) -> None: ...
    def strike(self, who: Contact, done: Enrolled) -> None: ...
    def members(self) -> tuple[int, tuple[Contact, ...]]:
        """The registry's version, and all members, ordered by position."""
