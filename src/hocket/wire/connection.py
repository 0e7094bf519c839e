"""One end of a client's connection: bytes in and frames out, frames in and bytes out.

Rule 1: nothing here knows a socket, a thread or a clock; the driver of a connection moves bytes.
Rule 2: nothing is believed before it is checked: what `framing` checks, then the kind against
`RULES` before the frame is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from hocket.errors import MessageTooLarge, ProtocolError
from hocket.frames import (
    ALIKE,
    Access,
    AuditIs,
    ClusterIs,
    Deliver,
    DeliverAlike,
    Done,
    Explained,
    Failure,
    Frame,
    Goodbye,
    HandleEnded,
    Hello,
    Indexes,
    KeyIsOwned,
    LeadersAre,
    Lease,
    Moved,
    NameIs,
    NamesAre,
    NodesAre,
    Offsets,
    PartitionsChanged,
    Ping,
    PipeIs,
    PipeWanted,
    PluginsAre,
    ProducerOpened,
    Publish,
    Published,
    Push,
    PushAcked,
    PushRefused,
    RingIs,
    Settled,
    SubscriptionOpened,
    TokenIssued,
    Topics,
    TreeIs,
    Welcome,
)
from hocket.model import Limits
from hocket.wire.frame_codec import decode, encode
from hocket.wire.framing import HEADER_BYTES_MAX, NODE_MARK, FrameStream, as_bytes, framed
from hocket.wire.strangers import FIRST_BYTES_MAX, stranger

if TYPE_CHECKING:
    from typing_extensions import Buffer

Received = list[tuple[Frame, memoryview]]
Role = Literal["client", "server"]
Phase = Literal["silent", "greeted", "open", "refused"]


class Rule(NamedTuple):
    """What one side may send in one phase."""

    kinds: frozenset[type[Frame]]
    situation: str


_BY_EITHER: frozenset[type[Frame]] = frozenset({Goodbye, Ping, Done})
_BY_SERVER: frozenset[type[Frame]] = _BY_EITHER | {
    Failure, Topics, Offsets, ProducerOpened, PushAcked, PushRefused, Published,
    SubscriptionOpened, Deliver, Moved, HandleEnded, PartitionsChanged, Indexes, Lease, Settled,
    TokenIssued, Access, Explained, RingIs, KeyIsOwned, NodesAre,
    AuditIs,
    LeadersAre,
    ClusterIs,
    TreeIs,
    NameIs, NamesAre, PipeWanted, PipeIs, DeliverAlike, PluginsAre,
}  # fmt: skip
_BY_CLIENT: frozenset[type[Frame]] = _BY_EITHER | (
    frozenset(get_args(Frame)) - _BY_SERVER - {Hello, Welcome}
)

RULES: dict[tuple[Phase, Role], Rule] = {
    ("silent", "client"): Rule(frozenset({Hello}), "from a client before its Hello"),
    ("silent", "server"): Rule(frozenset({Failure}), "from a server before the client's Hello"),
    ("greeted", "client"): Rule(frozenset(), "from a client before the Welcome"),
    ("greeted", "server"): Rule(frozenset({Welcome, Failure}), "as the answer to Hello"),
    ("open", "client"): Rule(_BY_CLIENT, "from a client"),
    ("open", "server"): Rule(_BY_SERVER, "from a server after its Welcome"),
    # A Hello may have been under way when the server refused.
    ("refused", "client"): Rule(frozenset({Hello}), "from a client that was refused"),
    ("refused", "server"): Rule(frozenset({Goodbye}), "from a server that has refused"),
}
NEXT_PHASE: dict[tuple[Phase, type[Frame]], Phase] = {
    ("silent", Hello): "greeted",
    ("silent", Failure): "refused",
    ("greeted", Welcome): "open",
    ("greeted", Failure): "refused",
}
WITH_PAYLOAD: frozenset[type[Frame]] = frozenset({Push, Publish, Deliver, DeliverAlike, Lease})


class Connection(FrameStream[Frame]):
    """One end of a connection.

    Receiving and sending may happen on two threads, but each on one at a time. After a
    ProtocolError, whichever side caused it, every call but `farewell` raises one: close the
    connection. Frames that came before the breach are always returned first; the error is then
    raised by the next call, and `error` holds it at once.

    A client takes over the limits that the server's Welcome names; they hold in both directions.
    """

    __slots__ = ("_peer", "is_of_node", "limits", "phase", "role", "takes_alike")

    def __init__(self, role: Role, limits: Limits | None = None) -> None:
        super().__init__()
        self.role: Role = role
        self.limits = Limits() if limits is None else limits
        self.phase: Phase = "silent"
        self.is_of_node = False  # the first frame was a node's: see wire.node_connection
        self.takes_alike = False  # the client at the other end knows DeliverAlike
        self._peer: Role = "server" if role == "client" else "client"

    # --- receiving -------------------------------------------------------------------------------

    def _opened(self, header: memoryview, payload_length: int) -> Frame:
        rule = RULES[self.phase, self._peer]
        frame = decode(header, rule.kinds, rule.situation)
        if payload_length and type(frame) not in WITH_PAYLOAD:
            raise ProtocolError(f"{type(frame).__name__} has a payload; it may not have one")
        self._passed(frame)
        return frame

    def _beyond(self, length: int, payload_length: int) -> int:
        if length ^ NODE_MARK > HEADER_BYTES_MAX:
            try:
                return super()._beyond(length, payload_length)
            except ProtocolError as error:
                if self.phase not in ("silent", "greeted"):
                    raise
                raise stranger(bytes(self.unread[:FIRST_BYTES_MAX]), str(error)) from None
        self.is_of_node = self.role == "server" and self.phase == "silent"
        raise ProtocolError(
            "this is the frame of a node to another node, and here is none that takes links"
            if self.is_of_node
            else f"the frame of a node is not allowed {self._situation()}"
        )

    # --- sending ---------------------------------------------------------------------------------

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> list[Buffer]:
        """The buffers to write, in this order, for this frame; the payload is not copied.

        `len` of each buffer is in bytes. Raises MessageTooLarge if the frame is more than the other
        side takes, OutOfRange or WrongType if a field does not fit; then nothing has happened.
        Raises ProtocolError if this side may not send the frame now; then the connection has
        failed.
        """
        self._check_alive()
        rule = RULES[self.phase, self.role]
        if type(frame) not in rule.kinds:
            raise self._failed(f"{type(frame).__name__} is not allowed {rule.situation}")
        if payload and type(frame) not in WITH_PAYLOAD:
            raise self._failed(f"{type(frame).__name__} has a payload; it may not have one")
        buffers = [as_bytes(each) for each in payload]
        length = sum(map(len, buffers))
        header = encode(frame)
        if len(header) > self._header_bytes_max or length > self._payload_bytes_max:
            raise MessageTooLarge(
                f"{type(frame).__name__} takes {len(header)} + {length} bytes; at most "
                f"{self._header_bytes_max} + {self._payload_bytes_max} (header + payload) are "
                f"allowed {self._situation()}"
            )
        self._passed(frame)
        return framed(header, buffers)

    def farewell(self) -> list[Buffer]:
        """What to write before closing, after the other side broke the protocol: it says why."""
        assert self.error is not None, "farewell is for a connection that has failed"
        reason = str(self.error)
        if self.phase == "open":
            return framed(encode(Goodbye(0, reason)), [])
        if self.role == "server" and self.phase != "refused":
            return framed(encode(Failure(0, ProtocolError.code, reason)), [])
        return []  # a client that is not welcome yet has nothing to say

    # --- both ------------------------------------------------------------------------------------

    def _passed(self, frame: Frame) -> None:
        """An allowed frame was received or sent: change the phase if it ends one."""
        if self.phase == "open":
            if type(frame) is PipeIs and self.role == "client":
                self.handed_over = True
            return
        if isinstance(frame, Hello):
            self.takes_alike = ALIKE in frame.features
        if isinstance(frame, Welcome):
            if self.role == "client":
                self.limits = frame.limits
            self._header_bytes_max = HEADER_BYTES_MAX
            self._payload_bytes_max = self.limits.frame_bytes_max
        self.phase = NEXT_PHASE.get((self.phase, type(frame)), self.phase)

    def _situation(self) -> str:
        return "on this connection" if self.phase == "open" else "before the Welcome"
