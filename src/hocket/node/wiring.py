"""What everything in a node that serves requests or works in the background shares.

`Wiring` only holds the pieces together: what a piece does stands in the piece's own file. The few
methods here are those that need several pieces at once.
"""

from __future__ import annotations

from collections.abc import Callable

from hocket import frames
from hocket.core.metadata.access import Access
from hocket.core.metadata.catalogue import Catalogue
from hocket.core.metadata.metadata import GROUP, Metadata, with_asker
from hocket.core.origin import Asked, Origin
from hocket.core.session.session import Demand, Session
from hocket.errors import ShuttingDown
from hocket.frames import Frame
from hocket.log.model import RecoveredGroup
from hocket.log.store import LogStore
from hocket.node.running.crowds import Crowds
from hocket.node.running.deciders import Deciders
from hocket.node.running.deliveries import Deliveries
from hocket.node.running.feeds import Feeds
from hocket.node.running.own_requests import NetworkWithin
from hocket.node.running.partitions import Partitions, plain_entry
from hocket.node.running.sessions import Address, Sessions
from hocket.node.running.sharing import Shares
from hocket.node.settings import NodeSettings
from hocket.ports import Clock, Network

Servant = Callable[[int, Session, Demand, memoryview], None]  # serves one kind of request


class Wiring:
    __slots__ = (
        "access", "asked", "asked_hash", "catalogue", "clock", "cluster", "crowds", "deciders",
        "deliveries", "entropy", "feeds", "hooks", "log", "metadata", "metadata_is_whole",
        "metadata_term", "name", "network", "on_metadata", "partitions", "sessions", "settings",
        "shares", "unclaimed",
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
        self.access: Access  # who may do what; the node sets it
        self.metadata_term = 1
        self.catalogue = Catalogue(
            indexes=self.metadata.indexes, me=log.store_id, founder=self.cluster
        )
        self.metadata_is_whole = True  # False: entries of it are lost
        self.asked: Asked | None = None  # while a request of another node is being served
        self.asked_hash = ""  # of the token that the other node has made for it
        # Told of each entry of the metadata that is appended here: its index.
        self.on_metadata: Callable[[int], None] = lambda _index: None
        # Logs of partitions whose topics are not known yet: the entries that made them are not
        # known to be committed.
        self.unclaimed: dict[int, RecoveredGroup] = {}
        self.sessions = Sessions()
        self.partitions = Partitions(log)
        self.deciders = Deciders(log)
        self.crowds = Crowds(log.store_id, settings.popular)
        self.deliveries = Deliveries(
            log, self.network, self.partitions, self.sessions.forget_handle, self.crowds
        )
        self.hooks = self.partitions.hooks
        self.feeds = Feeds(
            self.network, self.partitions.traffic, self.sessions.forget_handle, self.hooks
        )
        self.shares = Shares(log, self.network, clock, self.partitions, self.sessions.forget_handle)

    def append_metadata(self, kind: int, index: int, body: bytes) -> None:
        """Append an entry of one of the machines of group 0. The entry was admitted there."""
        if self.asked is not None:
            body = with_asker(body, self.asked)
        self.metadata.appended(kind, index, self.asked)
        entry = plain_entry(kind, self.metadata_term, index, 0, body)
        self.log.append(GROUP, entry, admitted=True)
        self.on_metadata(index)

    def answer(self, origin: Origin | None, answer: Callable[[int], Frame]) -> None:
        """Answer whoever asked, if anybody at this node did."""
        if origin is not None:
            self.network.send(origin.connection, answer(origin.request))

    def close_subscription(self, address: Address, *, graceful: bool) -> None:
        """Close the subscription, or the feed, that is open there; nothing if there is none."""
        self.deliveries.close(address)
        self.feeds.close(address)
        self.shares.close(address, graceful=graceful)

    def end_subscription(self, address: Address, code: str, message: str) -> None:
        """End the subscription, or the feed, from the broker's side, and tell its consumer why."""
        self.deliveries.end(address, code, message)
        self.feeds.end(address, code, message)
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
