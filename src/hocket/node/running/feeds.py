"""Feeds: what consumers take here of partitions that another node leads.

Their subscriptions are open at the leader, which looks after indexes, commits and seeks, and has
sent them here for the bytes (`core.placement.crowd`). The bytes come by the relays of this node.

Credit is one for all partitions of a feed, and each partition has a part of it. What comes back is
given to the partitions in the order in which they were served: whichever was meant, all of it comes
back, so that no partition waits for ever, and no more is under way than was allowed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from hocket.core.partition.subscription import READ_BYTES_MAX
from hocket.core.relay.messages import Piece
from hocket.errors import Busy, NotEnoughNodes
from hocket.frames import Deliver, HandleEnded, Moved
from hocket.model import SECOND_US, PartitionId
from hocket.node.running.hooks import Given, Hooks
from hocket.node.running.sessions import Address
from hocket.node.running.traffic import Traffic
from hocket.ports import Network

LOOK_US = SECOND_US
# A feed that has no way to the leader for so many looks is ended: its consumer asks the leader.
LOST_LOOKS = 3


class Relaying(Protocol):
    """The relays of this node (`node.cluster.relays`)."""

    def consume(
        self,
        partition_id: PartitionId,
        offset: int,
        credit_bytes: int,
        deliver: Callable[[tuple[Piece, ...], int], None],
        lost: Callable[[int], None] | None = None,
    ) -> int: ...
    def credit(self, consumer: int, bytes: int) -> None: ...  # noqa: A002
    def stop(self, consumer: int) -> None: ...
    def is_rooted(self, partition_id: PartitionId) -> bool: ...


@dataclass(slots=True, eq=False)
class _Part:
    partition_id: PartitionId
    next: int  # the offset that comes next
    consumer: int = 0  # its number at the relays


@dataclass(slots=True, eq=False)
class _Feed:
    address: Address
    parts: list[_Part]
    given: deque[tuple[_Part, int]] = field(default_factory=deque)  # bytes not given back as credit
    lost_looks: int = 0


class Feeds:
    def __init__(
        self, network: Network, traffic: Traffic, ended: Callable[[Address], None], hooks: Hooks
    ) -> None:
        self.relays: Relaying | None = None  # None: this node is in no cluster
        self._network = network
        self._traffic = traffic
        self._ended = ended
        self._hooks = hooks
        self._open: dict[Address, _Feed] = {}
        self._next_look_us = 0

    def check_relays(self) -> Relaying:
        if self.relays is None:
            raise NotEnoughNodes("this broker is alone: it hands nothing on for another node")
        return self.relays

    def open(
        self, address: Address, places: Sequence[tuple[PartitionId, int]], credit_bytes: int
    ) -> None:
        """The consumer knows its handle by now."""
        relays = self.check_relays()
        feed = _Feed(address, [_Part(each, offset) for each, offset in places])
        self._open[address] = feed
        for part, share in zip(feed.parts, _shares(credit_bytes, len(feed.parts)), strict=True):
            part.consumer = relays.consume(
                part.partition_id, part.next, share,
                partial(self._deliver, feed, part), partial(self._lost, feed, part),
            )  # fmt: skip

    def give_credit(self, address: Address, amount: int) -> None:
        feed = self._open.get(address)
        if feed is None:
            return
        relays = self.check_relays()
        back: dict[_Part, int] = {}
        while amount and feed.given:
            part, size = feed.given.popleft()
            taken = min(size, amount)
            amount -= taken
            back[part] = back.get(part, 0) + taken
            if taken < size:
                feed.given.appendleft((part, size - taken))
        for part, share in zip(feed.parts, _shares(amount, len(feed.parts)), strict=True):
            share += back.get(part, 0)
            if share:
                relays.credit(part.consumer, share)

    def close(self, address: Address) -> None:
        feed = self._open.pop(address, None)
        if feed is not None:
            relays = self.check_relays()
            for part in feed.parts:
                relays.stop(part.consumer)

    def end(self, address: Address, code: str, message: str) -> None:
        """End the feed from the broker's side, and tell its consumer why."""
        if address in self._open:
            self.close(address)
            self._ended(address)
            connection, handle = address
            self._network.send(connection, HandleEnded(0, handle, code, message))

    def end_topic(self, topic: str, code: str, message: str) -> None:
        for address, feed in list(self._open.items()):
            if feed.parts[0].partition_id.topic == topic:
                self.end(address, code, message)

    def tick(self, now_us: int) -> None:
        """End feeds that have no way to the leader: it may be another, or this node is cut off."""
        if not self._open or now_us < self._next_look_us:
            return
        self._next_look_us = now_us + LOOK_US
        relays = self.check_relays()
        rooted: dict[PartitionId, bool] = {}
        for address, feed in list(self._open.items()):
            for part in feed.parts:
                if part.partition_id not in rooted:
                    rooted[part.partition_id] = relays.is_rooted(part.partition_id)
            is_rooted = all(rooted[part.partition_id] for part in feed.parts)
            feed.lost_looks = 0 if is_rooted else feed.lost_looks + 1
            if feed.lost_looks >= LOST_LOOKS:
                self.end(address, Busy.code, "this node has no way to the leader just now")

    # --- what relays say -------------------------------------------------------------------------

    def _deliver(self, feed: _Feed, part: _Part, pieces: tuple[Piece, ...], end: int) -> None:
        connection, handle = feed.address
        for some in _frames_of(pieces):
            offset = max(part.next, some[0].start)
            part.next = some[-1].end
            size = sum(len(piece.data) for piece in some)
            feed.given.append((part, size))
            self._traffic.records_given += part.next - offset
            self._traffic.bytes_given += size
            deliver = Deliver(0, handle, part.partition_id.partition, offset, end)
            payload = [piece.data for piece in some]
            self._network.send(connection, deliver, payload)
            if self._hooks.on_deliver is not None:
                where = part.partition_id
                given = Given(
                    feed.address, where.topic, where.partition, offset, part.next,
                    part.next - offset, payload,
                )  # fmt: skip
                self._hooks.on_deliver(given)

    def _lost(self, feed: _Feed, part: _Part, first: int) -> None:
        connection, handle = feed.address
        lost = max(0, first - part.next)
        part.next = first
        moved = Moved(0, handle, part.partition_id.partition, first, lost)
        self._network.send(connection, moved)


def _shares(amount: int, count: int) -> list[int]:
    """The amount in so many parts, as even as can be."""
    each, rest = divmod(amount, count)
    return [each + (number < rest) for number in range(count)]


def _frames_of(pieces: tuple[Piece, ...]) -> Iterator[tuple[Piece, ...]]:
    """The pieces of one frame after the other: one, and more within READ_BYTES_MAX."""
    begin = size = 0
    for number, piece in enumerate(pieces):
        if number > begin and size + len(piece.data) > READ_BYTES_MAX:
            yield pieces[begin:number]
            begin, size = number, 0
        size += len(piece.data)
    yield pieces[begin:]
