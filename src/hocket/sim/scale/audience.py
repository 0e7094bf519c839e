"""The nodes of a world as relays of one popular partition, and what their consumers see.

The relays are `hocket.node.cluster.relays.Relays`, the driver of a real node. They run on top of
the real ring, and find their way by its lookups. The shape of the tree is read from the answers on
the wires.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

from hocket.core.relay.messages import Attach, Fetched, Piece
from hocket.core.relay.settings import RelaySettings
from hocket.core.ring.contact import Contact
from hocket.core.ring.messages import Message
from hocket.model import PartitionId
from hocket.node.cluster.relays import Relays
from hocket.node.cluster.ring_member import RingMember
from hocket.sim.scale.world import World

PARTITION_ID = PartitionId("popular", 0)
CREDIT_BYTES = 1 << 20
READ_US = 500  # that a read of the log takes
RING_MESSAGES = get_args(Message)


class PublishedLog:
    """The owner's log: its batches, and when each was published."""

    def __init__(self, world: World) -> None:
        self.pieces: list[Piece] = []
        self.published_us: list[int] = []  # by offset; each batch holds one record
        self._world = world

    @property
    def end(self) -> int:
        return len(self.pieces)

    def append(self, data: bytes) -> None:
        self.pieces.append(Piece(self.end, self.end + 1, data))
        self.published_us.append(self._world.now_us())

    def read(
        self,
        partition_id: PartitionId,  # noqa: ARG002 - there is one
        offset: int,
        end: int,
        bytes_max: int,
        done: Callable[[tuple[Piece, ...]], None],
    ) -> None:
        chosen: list[Piece] = []
        room = bytes_max
        for piece in self.pieces[offset:end]:
            room -= len(piece.data)
            if chosen and room < 0:
                break
            chosen.append(piece)
        self._world.scheduler.after(READ_US, partial(done, tuple(chosen)))


@dataclass(slots=True)
class Reader:
    """A consumer, and what was delivered to it."""

    began_us: int
    next_offset: int  # that must be delivered next
    number: int = 0
    first_us: int = 0  # the time of the first delivery
    latency_us: list[int] = field(default_factory=list)
    wrong: int = 0  # deliveries of another offset than the next


class Audience:
    def __init__(self, world: World) -> None:
        self.world = world
        self.relays: dict[str, Relays] = {}
        self.readers: dict[str, Reader] = {}
        self.parent: dict[str, str] = {}  # by node: the sender of the last answer it got
        self.depth: dict[str, int] = {}  # by node: steps to the owner
        self.sent_bytes: dict[str, int] = {}
        self.attaches_at_owner = 0
        self.log = PublishedLog(world)
        self._settings = RelaySettings()
        world.wires.watches[Fetched] = self._fetched
        world.wires.watches[Attach] = self._attach
        for member in world.members.values():
            self._equip(member)
        self.owner = world.contacts[len(world.contacts) // 3].address
        self.relays[self.owner].own(PARTITION_ID, 0, 0)

    def _equip(self, member: RingMember) -> None:
        world = self.world
        relays = Relays(
            me=lambda: member.core.me,
            clock=world.scheduler,
            timers=world.scheduler,
            links=world.wires,
            chance=world.scheduler.random("relay jitter"),
            find=member.find,
            settings=self._settings,
            log=self.log,
        )
        member.on_died.append(relays.died)
        address = member.settings.address
        self.relays[address] = relays

        def receive(sender: Contact, to_incarnation: int, message: Any) -> None:
            if isinstance(message, RING_MESSAGES):
                member.heard(sender, to_incarnation, message)
            else:
                relays.heard(sender, message)

        world.wires.attach(address, receive)

    # --- what happens -------------------------------------------------------

    def subscribe(self, address: str) -> None:
        """Begin a consumer on this node, at the current end of the log."""
        reader = Reader(self.world.now_us(), self.log.end)
        self.readers[address] = reader
        reader.number = self.relays[address].consume(
            PARTITION_ID,
            reader.next_offset,
            CREDIT_BYTES,
            partial(self._deliver, address, reader),
        )

    def publish(self, data: bytes) -> None:
        self.log.append(data)
        self.relays[self.owner].advanced(PARTITION_ID, 0, self.log.end)

    def keep_publishing(self, data: bytes, *, every_us: int, count: int) -> None:
        for number in range(count):
            self.world.scheduler.after(number * every_us, partial(self.publish, data))

    def crash(self, address: str) -> None:
        self.relays.pop(address).close()
        self.readers.pop(address, None)
        self.parent.pop(address, None)
        self.depth.pop(address, None)
        self.world.crash(address)

    def close(self) -> None:
        for relays in self.relays.values():
            relays.close()

    # --- what is seen -------------------------------------------------------

    def children(self) -> dict[str, int]:
        """How many children each node has; nodes without children are left out."""
        count: dict[str, int] = {}
        for parent in self.parent.values():
            count[parent] = count.get(parent, 0) + 1
        return count

    def behind(self) -> int:
        """How many consumers have not been delivered everything."""
        return sum(each.next_offset < self.log.end for each in self.readers.values())

    def _deliver(self, address: str, reader: Reader, pieces: tuple[Piece, ...], _end: int) -> None:
        now_us = self.world.now_us()
        reader.first_us = reader.first_us or now_us
        for piece in pieces:
            if piece.start != reader.next_offset:
                reader.wrong += 1
            reader.next_offset = piece.end
            reader.latency_us.append(now_us - self.log.published_us[piece.start])
        taken = sum(len(piece.data) for piece in pieces)
        if address in self.relays:
            self.relays[address].credit(reader.number, taken)

    def _fetched(self, sender: Contact, to: Contact, message: object) -> None:
        assert isinstance(message, Fetched)
        if to.address in self.relays:
            self.parent[to.address] = sender.address
            self.depth[to.address] = len(message.ancestors)
        size = sum(len(piece.data) for piece in message.pieces)
        self.sent_bytes[sender.address] = self.sent_bytes.get(sender.address, 0) + size

    def _attach(self, _sender: Contact, to: Contact, _message: object) -> None:
        self.attaches_at_owner += to.address == self.owner
