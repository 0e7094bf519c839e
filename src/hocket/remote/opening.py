"""How a connection between two brokers in two processes begins.

The process that is called speaks first (GREETING), so that the caller proves what it knows over a
number which is new. The caller says whom it calls and shows its ticket (CALL). The called broker
accepts, or says why not. From ACCEPT on the connection carries messages, or bytes of a channel.

All of it runs on the loop's thread, but for the answer of a queue broker, which is given on its
pump.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from hocket import errors, tickets
from hocket.adapters.transport import Transport
from hocket.errors import (
    HocketError,
    NotAllowed,
    ProtocolError,
    UnknownBroker,
    WrongKind,
)
from hocket.remote import peer_frames
from hocket.remote.connection import Carrier, Connection, NamesLoop
from hocket.remote.peer_frames import HEADER, VERSION, Kind, field, opening, secret

if TYPE_CHECKING:
    from hocket.remote.connection import Part

OPENING_US = 10_000_000  # a process that says nothing for so long is hung up on
TEXT_MAX = 2000  # characters of a reason


class Opening:
    """Either side of a connection until it is open; see `connection.Carrier`."""

    def __init__(self, loop: NamesLoop, transport: Transport, begun: bytes = b"") -> None:
        """`begun` has come already."""
        self._begun = begun
        self._frames: deque[bytes] = deque()
        self._rest = b""
        self.connection = Connection(loop, transport, self)
        self._timer = loop.after(OPENING_US, self._late)
        self._over = False

    def start(self) -> None:
        self.connection.start(self._begun)

    def send(self, frame: bytes) -> None:
        self._frames.append(frame)
        self.connection.flush()

    def go_on_with(self, carrier: Carrier) -> None:
        """The connection is open."""
        self._over = True
        self._timer.cancel()
        self.connection.carrier = carrier
        self.connection.flush()
        if self._rest:
            rest, self._rest = self._rest, b""
            try:
                carrier.feed(rest)
            except ProtocolError as error:
                self.connection.fail(f"the other process speaks nonsense: {error}")

    def waits(self) -> bool:
        return bool(self._frames)

    def gather(self) -> list[Part]:
        parts: list[Part] = []
        while self._frames:
            parts.append(self._frames.popleft())
        return parts

    def target(self) -> memoryview | None:
        return None

    def filled(self, _count: int) -> None:
        raise AssertionError("nothing large is expected")

    def owed(self) -> None:
        """Nothing is."""

    def wake_readers(self) -> None:
        """Nobody waits."""

    def feed(self, data: bytes | memoryview) -> None:
        self._rest += data
        while not self._over and len(self._rest) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._rest)
            peer_frames.check_header(kind, length, opened=False)
            end = HEADER.size + length
            if len(self._rest) < end:
                return
            body, self._rest = self._rest[HEADER.size : end], self._rest[end:]
            self.heard(Kind(kind), peer_frames.read_opening(body))

    def heard(self, kind: Kind, fields: dict[str, Any]) -> None:
        raise NotImplementedError

    def lost(self, why: str) -> None:
        raise NotImplementedError

    def _late(self) -> None:
        if not self._over:
            self.connection.fail("the other process did not say in time what it wants")


# --- the side that calls --------------------------------------------------------------------------


class Call(Protocol):
    """What a call wants, and what comes of it (`remote.calling`)."""

    def fields(self) -> dict[str, object]:
        """What is said about the caller: its name, kind, port and limits."""

    def accepted(self, opening: Calling, fields: dict[str, Any]) -> None: ...

    def refused(self, error: HocketError, *, answered: bool) -> None:
        """`answered`: the other process has said so, and there is no use in trying another way."""


class Calling(Opening):
    def __init__(
        self, loop: NamesLoop, transport: Transport, call: Call, name: str, ticket: tickets.Issued,
        begun: bytes = b"",
    ) -> None:  # fmt: skip
        super().__init__(loop, transport, begun)
        self._call = call
        self._name = name
        self._ticket = ticket
        self._nonce = os.urandom(tickets.NONCE_BYTES)
        self._owners_nonce = b""

    def give_up(self) -> None:
        """Nobody wants the answer any more."""
        self._over = True
        self.connection.close()

    def heard(self, kind: Kind, fields: dict[str, Any]) -> None:
        if kind is Kind.GREETING and not self._owners_nonce:
            if field(fields, "version", int) != VERSION:
                raise ProtocolError(f"the other process speaks version {fields['version']}")
            self._owners_nonce = secret(fields, "nonce")
            # From now on the answer may take as long as the other broker likes.
            self._timer.cancel()
            self.send(
                opening(
                    Kind.CALL,
                    to=self._name,
                    ticket=self._ticket.ticket.hex(),
                    nonce=self._nonce.hex(),
                    proof=self._proof("caller").hex(),
                    **self._call.fields(),
                )
            )
        elif kind is Kind.ACCEPT and self._owners_nonce:
            if not tickets.same(secret(fields, "proof"), self._proof("owner")):
                raise ProtocolError("the other process does not know the key of its name")
            self._call.accepted(self, fields)
        elif kind is Kind.REFUSE:
            text = field(fields, "text", str)
            error = _error(field(fields, "error", str), text)
            self._over = True
            self.connection.close()
            self._call.refused(error, answered=True)
        else:
            raise ProtocolError(f"{kind.name} came out of turn")

    def _proof(self, side: str) -> bytes:
        return tickets.proof(self._ticket.secret, side, self._owners_nonce, self._nonce)

    def lost(self, why: str) -> None:
        if not self._over:
            self._over = True
            error = UnknownBroker(f"the process of broker {self._name!r} is gone: {why}")
            self._call.refused(error, answered=False)


# --- the side that is called ----------------------------------------------------------------------


class Owned(Protocol):
    """Which names this process has (`remote.manager`)."""

    def key_of(self, name: str) -> bytes | None: ...

    def take_call(self, answering: Answering, fields: dict[str, Any]) -> None:
        """Somebody who may call a name of ours does: have the call accepted or refused."""


class Answering(Opening):
    def __init__(
        self, loop: NamesLoop, transport: Transport, owned: Owned, way: str, begun: bytes = b""
    ) -> None:
        super().__init__(loop, transport, begun)
        self._owned = owned
        self.way = way
        self._nonce = os.urandom(tickets.NONCE_BYTES)
        self._proof = b""
        self.name = ""
        self.user = ""
        self.on_lost: Callable[[str], None] = lambda _why: None

    def start(self) -> None:
        self._frames.append(opening(Kind.GREETING, version=VERSION, nonce=self._nonce.hex()))
        super().start()

    def heard(self, kind: Kind, fields: dict[str, Any]) -> None:
        if kind is not Kind.CALL or self._proof:
            raise ProtocolError(f"{kind.name} came out of turn")
        self._timer.cancel()
        try:
            self._check(fields)
            self._owned.take_call(self, fields)
        except HocketError as error:
            if isinstance(error, ProtocolError):
                raise
            self.refuse(error)

    def _check(self, fields: dict[str, Any]) -> None:
        self.name = field(fields, "to", str)
        key = self._owned.key_of(self.name)
        if key is None:
            raise UnknownBroker(f"no broker is called {self.name!r} here")
        ticket, nonce = secret(fields, "ticket"), secret(fields, "nonce")
        now_us = time.time_ns() // 1000
        self.user, known = tickets.read(key, self.name, ticket, now_us)
        if not tickets.same(
            secret(fields, "proof"), tickets.proof(known, "caller", self._nonce, nonce)
        ):
            raise NotAllowed(f"the ticket for {self.name!r} is not the caller's, or of another key")
        self._proof = tickets.proof(known, "owner", self._nonce, nonce)

    def accept_frame(self, **fields: object) -> bytes:
        return opening(Kind.ACCEPT, proof=self._proof.hex(), **fields)

    def refuse(self, error: HocketError) -> None:
        """Say why not, and hang up."""
        if self._over:
            return
        self._over = True
        self._timer.cancel()
        self.send(opening(Kind.REFUSE, error=type(error).__name__, text=str(error)[:TEXT_MAX]))
        self.connection.close_when_sent()

    def lost(self, why: str) -> None:
        if not self._over:
            self._over = True
            self.on_lost(why)


def _error(name: str, text: str) -> HocketError:
    """The error of this name; an unknown one is still an error."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, HocketError):
        with suppress(TypeError):  # it wants more than a text: no broker refuses with it
            return kind(text)
    return HocketError(text)


def wrong_kind(name: str, kind: str, caller: str, callers_kind: str) -> WrongKind:
    return WrongKind(f"{name!r} is a {kind} broker, {caller!r} a {callers_kind} one")
