"""One TCP connection of a node, with or without TLS. Nothing here ever waits.

A connection begins with the transport's handshake. The node hears of the connection when that is
over, since only then the caller is known. `Connections` watches what must happen in time (the
Hello, the last bytes leaving), and calls `overdue` if it does not.

A client that is sent away is told why, and may still be sending. Closing a socket with unread bytes
would make the system discard our last words; so what still comes is read and thrown away until the
other end hangs up.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from hocket.adapters.loop import READ, WRITE, Loop
from hocket.adapters.tls import NotTls, TlsTransport, is_gone, reason_of
from hocket.adapters.transport import PlainTransport, Transport, write
from hocket.core.session.session import Caller
from hocket.errors import HocketError, ProtocolError, ShuttingDown
from hocket.frames import Access, Deliver, Failure, Frame, Indexes, Topics
from hocket.model import Limits
from hocket.node.door.alike import Alike
from hocket.node.door.pipe import Half
from hocket.node.door.strangers import HTTP_ANSWER, Strangers, described
from hocket.node.identity.refusals import Refusals
from hocket.node.node import Node
from hocket.wire.connection import Connection
from hocket.wire.framing import begins_a_link
from hocket.wire.strangers import Stranger, language

if TYPE_CHECKING:
    from typing_extensions import Buffer

log = logging.getLogger("hocket.node")

NO_TLS = "does not speak TLS, and this port does: it must use hockets:// instead of hocket://"
LINK_NO_TLS = (
    "a node came without TLS, and the nodes here talk by TLS only: give every node --tls-cert, "
    "--tls-key and --tls-ca (see: hocket certs node --help)"
)

# How much may wait to be sent beyond the credit that consumers gave: answers that nobody reads.
UNSENT_BYTES_MAX = 64 << 20
STARTING = "the node is starting, and has not caught up with its cluster yet; try again"
_NOWHERE = memoryview(bytearray(64 << 10))  # bytes that are thrown away are received here


class Links(Protocol):
    """Who takes over the connections of other nodes (`node.links`)."""

    def accept(self, transport: Transport, from_address: str, begun: bytes) -> None: ...


class Owner(Protocol):
    """What a peer needs of the connections that it is one of (`door.connections`)."""

    loop: Loop
    limits: Limits
    node: Node
    reading: bool  # whether the node takes frames now
    strangers: Strangers
    refusals: Refusals
    links: Links | None  # None: this node takes no links from other nodes
    starting: bool  # the node does not serve clients yet

    def expect(self, peer: TcpPeer) -> None:
        """Call `peer.overdue` unless `expect_no_more` comes in time."""

    def expect_no_more(self, peer: TcpPeer) -> None: ...

    def flush_later(self, peer: TcpPeer) -> None:
        """Call `peer.flush` at the end of the turn."""

    def remove(self, number: int) -> None: ...


class TcpPeer:
    def __init__(
        self, number: int, transport: Transport, owner: Owner, caller: Caller, place: str
    ) -> None:
        self._number = number
        self._transport = transport
        self._descriptor = transport.fileno()
        self._owner = owner
        self._loop = owner.loop
        self._caller = caller
        self._place = place
        self._wire = Connection("server", owner.limits)
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._alike = Alike()  # not queued yet, but sent before whatever is queued next
        self._is_known = False  # the handshake is over, and the node knows the connection
        self._closing = False  # nothing more is sent; it closes once all queued bytes have left
        self._lingers = False  # when all is sent, wait until the other end closes as well
        self._is_draining = False  # all is sent, and the other end has not closed yet
        self._closed = False
        self._reading = owner.reading
        self._reads_on = False  # `_read_on` is posted, for bytes that no readiness announces
        self._events = 0
        self._to_flush = False

    def start(self) -> None:
        self._shake_hands()
        self._watch()

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Queue a frame. Never raises: a fault of one connection must not stop others' work."""
        if self._closing or self._wire.error is not None:
            return
        if type(frame) is Deliver and self._wire.takes_alike:
            if self._alike.joins(frame, payload):
                return
            self._queue_alike()
            self._alike.hold(frame, payload)
            self._flush_later()
            return
        self._queue_alike()
        self._send(frame, payload)

    def _queue_alike(self) -> None:
        if self._alike:
            frame, payload = self._alike.take()
            if self._wire.error is None:
                self._send(frame, payload)

    def _send(self, frame: Frame, payload: Sequence[Buffer]) -> None:
        try:
            self._queue(self._wire.send(frame, payload))
        except HocketError as error:  # the frame is too large, or a field does not fit
            is_the_last_word = not frame.request or isinstance(frame, Failure)
            if is_the_last_word or self._wire.error is not None:
                log.warning("connection %d cannot be told of a %s: %s", self._number,
                            type(frame).__name__, error)  # fmt: skip
                self.close()  # later, not now: the caller is in the middle of something
                return
            listing = isinstance(frame, Topics | Indexes | Access)
            text = f"{error}; a newer client asks for it in parts" if listing else str(error)
            failure = Failure(frame.request, error.code, text, may_have_happened=not listing)
            self._queue(self._wire.send(failure))
        self._flush_later()

    def _flush_later(self) -> None:
        if not self._to_flush:
            self._to_flush = True
            self._owner.flush_later(self)

    def close(self) -> None:
        """Close when what is queued has left, or when that takes too long."""
        if self._closing:
            return
        self._closing = True
        self._owner.expect(self)
        self._flush_later()

    def flush(self) -> None:
        self._to_flush = True  # so that what is queued now does not ask for another flush
        self._queue_alike()
        self._to_flush = False
        if self._closed:
            return
        try:
            self._unsent_bytes -= write(self._transport, self._unsent)
        except OSError as error:
            self._lost(reason_of(error))
            return
        if self._unsent_bytes > self._owner.limits.credit_bytes_max + UNSENT_BYTES_MAX:
            self._lost("it does not read what it is sent")
        elif self._closing and not self._unsent:
            self._end()
        else:
            self._watch()

    def set_reading(self, reading: bool) -> None:
        self._reading = reading
        self._watch()

    def forked(self) -> None:
        self._closed = self._closing = True
        self._transport.forked()

    # --- time ------------------------------------------------------------------------------------

    @property
    def is_silent(self) -> bool:
        """The client has not said Hello yet, nor perhaps finished its handshake."""
        return not self._closing and self._wire.phase == "silent"

    def overdue(self) -> None:
        """The client has not said Hello, or not taken its last bytes, in time."""
        if self._closed:
            return
        if self._is_draining:
            self._shut()
        elif self._closing:
            self._lost("it does not take what it is sent")
        elif self.is_silent:
            if self._is_known:
                self._turn_away("there was no Hello in time")
            else:
                self._lost("the TLS handshake was not done in time")

    def abort(self) -> None:
        self._shut()

    @property
    def is_known(self) -> bool:
        """The node knows this connection."""
        return self._is_known

    # --- the handshake ---------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        try:
            self._transport.handshake()
        except BlockingIOError:
            return
        except NotTls as error:
            self._answer_in_plain(error.first)
        except OSError as error:
            if is_gone(error):
                self._say(f"the TLS handshake failed: {reason_of(error)}")
            else:
                self._owner.refusals.handshake(self._caller.address, reason_of(error))
            self._send_away()
        else:
            self._is_known = True
            caller = self._caller._replace(certified=self._transport.user)
            self._owner.node.connected(self._number, caller)

    def _answer_in_plain(self, first: bytes) -> None:
        """Tell a client that speaks no TLS so, in plain: it was given the wrong scheme."""
        assert isinstance(self._transport, TlsTransport)
        self._transport = PlainTransport(self._transport.plain)
        if language(first) == "HTTP":
            self._answer_http(first)
            return
        if begins_a_link(first):
            self._owner.refusals.link(self._caller.address, "", "plain", LINK_NO_TLS)
            self.send(Failure(0, "plain", LINK_NO_TLS))  # which a node takes for a HelloRefused
        else:
            self._owner.strangers.met(self._place, NO_TLS)
            why = "this port speaks TLS: use hockets:// instead of hocket://"
            self.send(Failure(0, ProtocolError.code, why))
        self._send_away()

    # --- writing ---------------------------------------------------------------------------------

    def _queue(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            view = memoryview(buffer)
            if view.nbytes:
                self._unsent.append(view)
                self._unsent_bytes += len(view)

    # --- reading ---------------------------------------------------------------------------------

    def _ready(self, events: int) -> None:
        if self._is_draining:
            self._drain()
            return
        if not self._is_known and not self._closing:
            self._shake_hands()
        if self._unsent and events & WRITE:
            self.flush()
        if self._is_known and (events & READ or self._transport.wants_write):
            self._read()
        self._watch()

    def _read_on(self) -> None:
        self._reads_on = False
        self._read()
        self._watch()

    def _read(self) -> None:
        node = self._owner.node
        transport = self._transport
        try:
            for _ in range(transport.reads_per_turn):
                if self._closing or self._closed or not self._reading:
                    return
                buffer = self._wire.get_buffer()
                count = transport.recv_into(buffer)
                if not count:
                    self._wire.received_end()
                    self._lost("")
                    return
                received = self._wire.buffer_updated(count)
                if received and self._owner.starting:
                    self._turn_away(STARTING, ShuttingDown.code)
                    return
                for frame, payload in received:
                    node.received(self._number, frame, payload)
                if self._wire.error is not None:
                    raise self._wire.error
                if transport.short_is_all and count < len(buffer):
                    return  # the socket is empty
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(reason_of(error))
        except ProtocolError as error:
            if self._wire.is_of_node and self._owner.links is not None:
                self._hand_over(self._owner.links)
            else:
                self._refuse(error)

    def _hand_over(self, links: Links) -> None:
        """Another node speaks: this is a link, and somebody else takes over the transport."""
        begun = bytes(self._wire.unread)
        self._closed = self._closing = True
        if self._events:
            self._loop.unregister(self._descriptor)
            self._events = 0
        self._owner.expect_no_more(self)
        self._owner.remove(self._number)
        links.accept(self._transport, self._caller.address, begun)

    def hand_over_half(self) -> Half | None:
        """This connection becomes half of a pipe; None if it is at its end already."""
        if self._closing or self._closed:
            return None
        self._closed = self._closing = True
        if self._events:
            self._loop.unregister(self._descriptor)
            self._events = 0
        self._owner.expect_no_more(self)
        self._owner.remove(self._number)
        self._queue_alike()
        return Half(self._transport, self._unsent)

    # --- endings ---------------------------------------------------------------------------------

    def _refuse(self, error: HocketError) -> None:
        """Tell the client, if that is possible, how it broke the protocol, and hang up."""
        if isinstance(error, Stranger):
            if language(error.first) == "HTTP":
                self._answer_http(error.first)
                return
            self._meet(error.first)
            self._queue(self._wire.farewell())
            self._send_away()
            return
        log.warning("connection %d broke the protocol: %s", self._number, error)
        self._queue(self._wire.farewell())
        self._send_away()

    def _meet(self, first: bytes) -> None:
        with_tls = isinstance(self._transport, TlsTransport)
        self._owner.strangers.met(self._place, described(first, with_tls=with_tls))

    def _answer_http(self, first: bytes) -> None:
        self._meet(first)
        self._queue([HTTP_ANSWER])
        self._send_away()

    def _turn_away(self, why: str, code: str = ProtocolError.code) -> None:
        """Refuse a client that is not welcome yet."""
        self._say(why)
        self.send(Failure(0, code, why))
        self._send_away()

    def _send_away(self) -> None:
        """Hang up after the last words. The peer stays among the connections until it is gone."""
        self._is_known = False
        self._owner.node.disconnected(self._number)
        self._lingers = True
        self.close()

    def _end(self) -> None:
        """All is sent: close, or wait for the other end to close."""
        if not self._lingers:
            self._shut()
            return
        try:
            self._transport.end_sending()
        except OSError:  # the other end is gone
            self._shut()
            return
        self._is_draining = True
        self._drain()

    def _drain(self) -> None:
        try:
            for _ in range(self._transport.reads_per_turn):
                if not self._transport.recv_into(_NOWHERE):
                    self._shut()
                    return
        except BlockingIOError:
            pass
        except OSError:
            self._shut()
        self._watch()

    def _lost(self, why: str) -> None:
        if why:
            self._say(why)
        self._shut()

    def _say(self, why: str) -> None:
        log.info("connection %d from %s: %s", self._number, self._caller.address, why)

    def _shut(self) -> None:
        if self._closed:
            return
        self._closed = self._closing = True
        if self._events:
            self._loop.unregister(self._descriptor)
            self._events = 0
        self._transport.close()
        self._unsent.clear()
        self._owner.expect_no_more(self)
        self._owner.remove(self._number)

    def _watch(self) -> None:
        if self._closed:
            return
        # What is flushed at the end of the turn needs no look, unless it does not leave then.
        wanted = WRITE if self._unsent and not self._to_flush else 0
        if self._is_draining:
            wanted = READ
        elif self._reading and not self._closing:
            if self._transport.wants_write:
                wanted = WRITE  # without READ, which would be announced again and again
            else:
                wanted |= READ
                if self._transport.unread and not self._reads_on:
                    self._reads_on = True
                    self._loop.post(self._read_on)
        if wanted == self._events:
            return
        if not self._events:
            self._loop.register(self._descriptor, wanted, self._ready)
        elif not wanted:
            self._loop.unregister(self._descriptor)
        else:
            self._loop.modify(self._descriptor, wanted, self._ready)
        self._events = wanted
