"""What everything in a node that serves requests or works in the background shares.

`Wiring` only holds the pieces together: what a piece does stands in the piece's own file. The few
methods here are those that need several pieces at once.
"""

from __future__ import annotations

from collections.abc import Callable

from hocket import frames
from hocket.core.metadata.catalogue import Catalogue
from hocket.core.metadata.metadata import GROUP, Metadata
from hocket.core.session.session import Demand, Session
from hocket.errors import ShuttingDown
from hocket.frames import Frame
from hocket.log.store import LogStore
from hocket.node.running.deliveries import Deliveries
from hocket.node.running.own_requests import NetworkWithin
from hocket.node.running.partitions import Partitions, plain_entry
from hocket.node.running.sessions import Address, Sessions
from hocket.node.running.sharing import Shares
from hocket.node.settings import NodeSettings
from hocket.ports import Clock, Network

Servant = Callable[[int, Session, Demand, memoryview], None]  # serves one kind of request


class Wiring:
    __slots__ = (
        "catalogue", "clock", "cluster", "deliveries", "entropy", "log", "metadata",
        "metadata_term", "name", "network", "partitions", "sessions", "settings", "shares",
    )  # fmt: skip

    def __init__(
        self,
        settings: NodeSettings,
        *,
        log: LogStore,
        clock: Clock,
        network: Network,
        entropy: Callable[[int], bytes],
    ) -> None:
        self.name = settings.name or log.store_id
        self.cluster = settings.cluster or log.store_id  # a node alone has founded its cluster
        self.settings = settings
        self.log = log
        self.clock = clock
        self.network = NetworkWithin(network)
        self.entropy = entropy
        self.metadata = Metadata()
        self.metadata_term = 1
        self.catalogue = Catalogue(indexes=self.metadata.indexes)
        self.sessions = Sessions()
        self.partitions = Partitions(log)
        self.deliveries = Deliveries(
            log, self.network, self.partitions, self.sessions.forget_handle
        )
        self.shares = Shares(log, self.network, clock, self.partitions, self.sessions.forget_handle)

    def append_metadata(self, kind: int, index: int, body: bytes) -> None:
        """Append an entry of one of the machines of group 0. The entry was admitted there."""
        self.metadata.appended(kind, index)
        entry = plain_entry(kind, self.metadata_term, index, 0, body)
        self.log.append(GROUP, entry, admitted=True)

    def close_subscription(self, address: Address, *, graceful: bool) -> None:
        """Close the subscription with an own or a shared index there; nothing if there is none."""
        self.deliveries.close(address)
        self.shares.close(address, graceful=graceful)

    def end_subscription(self, address: Address, code: str, message: str) -> None:
        """End the subscription from the broker's side, and tell its consumer why."""
        self.deliveries.end(address, code, message)
        self.shares.end(address, code, message)

    def disconnect(self, connection: int) -> None:
        """The connection is gone: so are its session and its subscriptions."""
        session = self.sessions.pop(connection, None)
        if session is not None:
            for handle in session.handles:
                self.close_subscription((connection, handle), graceful=False)

    def hang_up(self, connection: int, last_word: Frame | None) -> None:
        """Close the connection from the broker's side, after `last_word` if there is one."""
        session = self.sessions.get(connection)
        if isinstance(last_word, frames.Goodbye) and session and not session.greeted:
            last_word = frames.Failure(0, ShuttingDown.code, last_word.reason)
        if last_word is not None:
            self.network.send(connection, last_word)
        self.network.close(connection)
        self.disconnect(connection)
