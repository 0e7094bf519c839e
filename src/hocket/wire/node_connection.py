"""One end of a link between two nodes: bytes in and messages out, messages in and bytes out.

The rules are those of `wire.framing`, and `LINK_RULES` says who may send what. The node that dials
the link speaks on it; the one that accepts the link answers the hello, and after that it sends
nothing but heartbeats: what it has to say goes over a link that it dials itself.

The port is that of clients, too. So the one that dials may be answered by a broker that knows no
links, or that refuses everybody just now: by the Failure that a client would get. It is taken for a
HelloRefused of the same code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hocket.errors import MessageTooLarge, ProtocolError
from hocket.frames import Failure
from hocket.node_frames import (
    PAYLOAD_BYTES_MAX,
    Heartbeat,
    HelloAccepted,
    HelloRefused,
    NodeHello,
)
from hocket.wire import frame_codec
from hocket.wire.framing import HEADER_BYTES_MAX, NODE_MARK, FrameStream, as_bytes, framed
from hocket.wire.node_codec import LINK_FRAMES, REASON_MAX, TEXT_MAX, Envelope, NodeCodec

if TYPE_CHECKING:
    from typing_extensions import Buffer

Side = Literal["dialler", "acceptor"]
LinkPhase = Literal["silent", "greeted", "open", "refused"]


class LinkRule(NamedTuple):
    """What one side may send in one phase."""

    kinds: frozenset[type]
    messages: bool  # and all that cores say
    situation: str


_NONE: frozenset[type] = frozenset()
LINK_RULES: dict[tuple[LinkPhase, Side], LinkRule] = {
    ("silent", "dialler"): LinkRule(frozenset({NodeHello}), False, "before the hello"),
    ("silent", "acceptor"): LinkRule(_NONE, False, "before the hello"),
    ("greeted", "dialler"): LinkRule(_NONE, False, "before the answer to the hello"),
    ("greeted", "acceptor"): LinkRule(
        frozenset({HelloAccepted, HelloRefused}), False, "as the answer to the hello"
    ),
    ("open", "dialler"): LinkRule(frozenset({Heartbeat}), True, "on an open link"),
    ("open", "acceptor"): LinkRule(
        frozenset({Heartbeat}), False, "from the node that has accepted the link"
    ),
    # A hello may have been under way when a broker refused everybody.
    ("refused", "dialler"): LinkRule(frozenset({NodeHello}), False, "after a refusal"),
    ("refused", "acceptor"): LinkRule(_NONE, False, "after a refusal"),
}
NEXT_LINK_PHASE: dict[tuple[LinkPhase, type], LinkPhase] = {
    ("silent", NodeHello): "greeted",
    ("silent", HelloRefused): "refused",  # the Failure of a broker
    ("greeted", HelloAccepted): "open",
    ("greeted", HelloRefused): "refused",
}


class NodeConnection(FrameStream[Envelope]):
    """One end of a link.

    Receiving and sending may happen on two threads, but each on one at a time. After a
    ProtocolError, whichever side caused it, every call but `farewell` raises one: close the
    connection. Messages that came before the breach are always returned first.

    `payload_bytes_max` is what this side takes. An acceptor says it in its HelloAccepted, and a
    dialler takes it over from there.
    """

    __slots__ = ("_codec", "_foreign", "_peer", "_permitted", "payload_bytes_max", "phase", "side")

    def __init__(
        self, side: Side, codec: NodeCodec, payload_bytes_max: int = PAYLOAD_BYTES_MAX
    ) -> None:
        super().__init__(NODE_MARK)
        self.side: Side = side
        self.phase: LinkPhase = "silent"
        self.payload_bytes_max = payload_bytes_max
        self._codec = codec
        self._peer: Side = "acceptor" if side == "dialler" else "dialler"
        self._foreign = False  # the frame that is being received is that of a broker to a client
        said = frozenset(codec.classes) - set(LINK_FRAMES)
        self._permitted = {
            key: rule.kinds | said if rule.messages else rule.kinds
            for key, rule in LINK_RULES.items()
        }

    # --- receiving -------------------------------------------------------------------------------

    def messages(self, count: int) -> list[Envelope]:
        """`count` bytes were put into the buffer: the messages that are complete now, whole."""
        fill = self._codec.fill
        return [fill(envelope, payload) for envelope, payload in self.buffer_updated(count)]

    def received(self, data: Buffer) -> list[Envelope]:
        """The messages that are complete with these bytes, which lie somewhere else."""
        fill = self._codec.fill
        return [fill(envelope, payload) for envelope, payload in self.receive(data)]

    def _opened(self, header: memoryview, payload_length: int) -> Envelope:
        if self._foreign:
            return self._refused_as_a_client(header)
        key = (self.phase, self._peer)
        envelope = self._codec.decode_header(
            header, self._permitted[key], LINK_RULES[key].situation
        )
        message = envelope.message
        announced = self._codec.payload_bytes(message)
        if announced != payload_length:
            raise ProtocolError(
                f"{type(message).__name__} has a payload of {payload_length} bytes; its header "
                f"says {announced}"
            )
        self._passed(message)
        return envelope

    def _beyond(self, length: int, payload_length: int) -> int:
        if length ^ NODE_MARK <= HEADER_BYTES_MAX:  # it had no mark, and was given one here
            length ^= NODE_MARK
            if self.side == "acceptor" or self.phase not in ("silent", "greeted"):
                raise ProtocolError("the frame of a client is not allowed on a link of nodes")
            if length <= self._header_bytes_max and not payload_length:
                self._foreign = True
                return length
        return super()._beyond(length, payload_length)

    def _refused_as_a_client(self, header: memoryview) -> Envelope:
        failure = frame_codec.decode(header, {Failure}, "from a broker that a node has called")
        assert isinstance(failure, Failure)
        refused = HelloRefused(failure.code[:TEXT_MAX], failure.message[:REASON_MAX])
        self._passed(refused)
        return Envelope(refused)

    # --- sending ---------------------------------------------------------------------------------

    def send(
        self, message: Any, from_incarnation: int = 0, to_incarnation: int = 0
    ) -> list[Buffer]:
        """The buffers to write, in this order, for this message; batches are not copied.

        Raises MessageTooLarge if the frame is more than the other side takes, OutOfRange or
        WrongType if a field does not fit; then nothing has happened. Raises ProtocolError if this
        side may not send the message now; then the link has failed.
        """
        self._check_alive()
        key = (self.phase, self.side)
        if type(message) not in self._permitted[key] and type(message) in self._codec.classes:
            raise self._failed(
                f"{type(message).__name__} is not allowed {LINK_RULES[key].situation}"
            )
        header, payload = self._codec.encode(message, from_incarnation, to_incarnation)
        buffers = [as_bytes(each) for each in payload]
        length = sum(map(len, buffers))
        if len(header) > self._header_bytes_max or length > self._payload_bytes_max:
            raise MessageTooLarge(
                f"{type(message).__name__} takes {len(header)} + {length} bytes; at most "
                f"{self._header_bytes_max} + {self._payload_bytes_max} (header + payload) are "
                f"allowed {self._situation()}"
            )
        self._passed(message)
        return framed(header, buffers, NODE_MARK)

    def farewell(self) -> list[Buffer]:
        """What to write before closing, after the other side broke the protocol: it says why."""
        assert self.error is not None, "farewell is for a link that has failed"
        if self.side == "dialler" or self.phase in ("open", "refused"):
            return []
        refused = HelloRefused("failed", str(self.error)[:REASON_MAX])
        return framed(self._codec.encode(refused)[0], [], NODE_MARK)

    # --- both ------------------------------------------------------------------------------------

    def _passed(self, message: Any) -> None:
        """An allowed message was received or sent: change the phase if it ends one."""
        if self.phase == "open":
            return
        if isinstance(message, HelloAccepted):
            if self.side == "dialler":
                self.payload_bytes_max = message.payload_bytes_max
            self._header_bytes_max = HEADER_BYTES_MAX
            self._payload_bytes_max = self.payload_bytes_max
        self.phase = NEXT_LINK_PHASE.get((self.phase, type(message)), self.phase)

    def _situation(self) -> str:
        return "on this link" if self.phase == "open" else "before the answer to the hello"
