"""The connections of a running node, by number: those over TCP and those within the process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from hocket.adapters.loop import Loop
from hocket.adapters.transport import Transport
from hocket.core.session.session import Caller
from hocket.errors import HocketError, ProtocolError
from hocket.frames import Frame
from hocket.model import SECOND_US, Limits
from hocket.node.door.pipe import Pipe
from hocket.node.door.strangers import Strangers
from hocket.node.door.tcp_peer import Links, TcpPeer
from hocket.node.identity.refusals import Refusals
from hocket.node.settings import HELLO_TIMEOUT_US

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from hocket.node.node import Node


class Peer(Protocol):
    """The far end of one connection."""

    def send(self, frame: Frame, payload: Sequence[Buffer]) -> None: ...
    def close(self) -> None: ...
    def set_reading(self, reading: bool) -> None: ...


class Connections:
    """The real `ports.Network`: numbers the peers, and stops reading from all when the node asks.

    It also sees to it that no peer keeps a connection without saying or taking anything.
    """

    def __init__(
        self, loop: Loop, limits: Limits, *, hello_timeout_us: int = HELLO_TIMEOUT_US
    ) -> None:
        self.loop = loop
        self.limits = limits
        self.node: Node
        self.reading = True
        self.starting = False  # clients are told to come back a little later
        self.links: Links | None = None  # in a cluster: who takes over other nodes' links
        self._patience = hello_timeout_us / SECOND_US
        self._expected: OrderedDict[TcpPeer, float] = OrderedDict()  # until when, in this order
        self._resumed_at = 0.0
        self._peers: dict[int, Peer] = {}
        self._pipes: set[Pipe] = set()
        self.strangers = Strangers()
        self.refusals = Refusals()
        self._last = 0
        self._unflushed: list[TcpPeer] = []

    def add(self, make: Callable[[int], Peer], caller: Caller) -> int:
        self._last += 1
        self._peers[self._last] = make(self._last)
        self.node.connected(self._last, caller)
        return self._last

    def accept(self, transport: Transport, caller: Caller, place: str) -> None:
        """Begin a connection over TCP. The node hears of it after the transport's handshake.

        `place` is where it comes from, for people: with the port.
        """
        self._last += 1
        peer = TcpPeer(self._last, transport, self, caller, place)
        self._peers[self._last] = peer
        self.expect(peer)
        peer.start()

    def splice(self, one: int, other: int) -> None:
        """From now on these two connections are the ends of a pipe."""
        peers = [self._peers.get(number) for number in (one, other)]
        halves = [peer.hand_over_half() for peer in peers if isinstance(peer, TcpPeer)]
        both = [half for half in halves if half is not None]
        if len(both) == 2:
            pipe = Pipe(self.loop, both[0], both[1], self._pipes.discard)
            self._pipes.add(pipe)
            pipe.start()
        else:
            for half in both:
                half.transport.close()
            for number in (one, other):
                self.close(number)

    def remove(self, number: int) -> None:
        if self._peers.pop(number, None) is not None:
            self.node.disconnected(number)

    @property
    def total(self) -> int:
        """How many there were, with those that are open."""
        return self._last

    def __len__(self) -> int:
        return len(self._peers)

    def send(self, connection: int, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        peer = self._peers.get(connection)
        if peer is not None:
            peer.send(frame, payload)

    def close(self, connection: int) -> None:
        peer = self._peers.get(connection)
        if peer is not None:
            peer.close()

    def pause(self) -> None:
        self._set_reading(False)

    def resume(self) -> None:
        self._set_reading(True)

    def _set_reading(self, reading: bool) -> None:
        self.reading = reading
        self._resumed_at = monotonic()
        for peer in list(self._peers.values()):
            peer.set_reading(reading)

    def expect(self, peer: TcpPeer) -> None:
        """The peer must say Hello, or take its last bytes, in time; else it is `overdue`."""
        self._expected[peer] = monotonic() + self._patience
        self._expected.move_to_end(peer)

    def expect_no_more(self, peer: TcpPeer) -> None:
        self._expected.pop(peer, None)

    def tick(self) -> None:
        self.strangers.tick()
        self.refusals.tick()
        now = monotonic()
        could_hear = self.reading and self._resumed_at + self._patience <= now
        while self._expected and next(iter(self._expected.values())) <= now:
            peer, _ = self._expected.popitem(last=False)
            if peer.is_silent and not could_hear:  # its Hello may be there, and we did not read
                self.expect(peer)
            else:
                peer.overdue()

    def abort_unknown(self) -> None:
        """Hang up on peers that the node does not know, and so cannot say goodbye to."""
        for peer in list(self._expected):
            if not peer.is_known:
                peer.abort()

    def abort(self) -> None:
        """Hang up on all peers that are left."""
        for peer in [*self._peers.values(), *self._expected]:
            if isinstance(peer, TcpPeer):
                peer.abort()
        for pipe in list(self._pipes):
            pipe.close()

    def forked(self) -> None:
        """See `forking`: close this process's copies of the sockets."""
        for peer in [*self._peers.values(), *self._expected]:
            if isinstance(peer, TcpPeer):
                peer.forked()
        for pipe in self._pipes:
            pipe.forked()

    def flush_later(self, peer: TcpPeer) -> None:
        self._unflushed.append(peer)

    def flush(self) -> None:
        """The turn is over: write what it left to be sent.

        Who was told last comes first: a batch is acknowledged, and then given to its consumers.
        They wait for it, and its producer is busy with the next.
        """
        unflushed, self._unflushed = self._unflushed, []
        for peer in reversed(unflushed):
            peer.flush()


class LocalPeer:
    """A client in the same process: frames are handed over as they are, with no bytes made."""

    def __init__(
        self,
        number: int,
        connections: Connections,
        received: Callable[[Frame, memoryview], None],
        lost: Callable[[HocketError], None],
    ) -> None:
        self._number = number
        self._connections = connections
        self._received = received
        self._lost = lost

    def send(self, frame: Frame, payload: Sequence[Buffer]) -> None:
        # A copy: the client may keep a payload for as long as it likes, while the log uses its
        # memory again. Besides, the client gets one run of bytes instead of slices.
        self._received(frame, memoryview(b"".join(payload)))

    def close(self) -> None:
        self._connections.remove(self._number)
        self._lost(ProtocolError("the broker has closed the connection"))

    def set_reading(self, reading: bool) -> None:
        """Within the process nothing can be left unread; the client's window bounds what comes."""
