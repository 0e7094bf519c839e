"""A connect to a broker in another process, from the name to the connection.

A name is looked up at a node, which also gives a ticket. The process is then called directly at the
address that it offers; if it cannot be reached there, or offers none, or somebody else answers
there, through the node that it is connected to. What was looked up is remembered while its ticket
is good, and forgotten when the process refuses, or is gone: then the name is looked up once more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from hocket import frames, tickets
from hocket.adapters.tls import reason_of
from hocket.adapters.transport import Transport
from hocket.addresses import Address
from hocket.errors import (
    HocketError,
    NoConnection,
    NotAllowed,
    ProtocolError,
    ReplyLost,
    UnknownBroker,
    WrongKind,
    from_code,
)
from hocket.frames import Frame
from hocket.remote.connection import Connection, NamesLoop
from hocket.remote.dialling import Dial, Dials, Tls, pinned_context
from hocket.remote.node_link import Conversation, NodeLink, parse_address
from hocket.remote.opening import Calling
from hocket.remote.reach import Reach

if TYPE_CHECKING:
    from typing import Protocol

    class Caller(Protocol):
        """Who connects: a queue broker or a thread broker (`remote.callers`)."""

        kind: str

        def wants(self) -> bool:
            """Whether anybody still waits for the answer."""

        def fields(self) -> dict[str, object]: ...

        def accepted(self, opening: Calling, fields: dict[str, Any], way: str) -> None: ...

        def refused(self, error: HocketError) -> None: ...


DIRECT_SECONDS = 2.0  # after so long the way through the node is tried
PIPE_SECONDS = 10.0
LOOK_UP_SECONDS = 10.0  # how long a node is looked for that knows names
REMEMBERED_SECONDS = tickets.LIFE_US / 2e6
RETRY_US = 100_000
FORGOTTEN_AT_ONCE = 2  # more than one comes with each look-up, so old ones do not pile up


class Found:
    """Where a name is, for a while."""

    __slots__ = ("answer", "until")

    def __init__(self, answer: frames.NameIs) -> None:
        self.answer = answer
        self.until = monotonic() + REMEMBERED_SECONDS


class Directory:
    """Names that were looked up; on the loop's thread."""

    def __init__(self, link: NodeLink, loop: NamesLoop) -> None:
        self._link = link
        self._loop = loop
        self._found: dict[str, Found] = {}

    def forget(self, name: str) -> bool:
        """Whether there was something to forget."""
        return self._found.pop(name, None) is not None

    def _remember(self, name: str, answer: frames.NameIs) -> None:
        self._found.pop(name, None)
        self._found[name] = Found(answer)  # last: in the order in which they are forgotten
        now = monotonic()
        for each in list(islice(self._found, FORGOTTEN_AT_ONCE)):
            if self._found[each].until <= now:
                del self._found[each]

    def look_up(self, name: str, done: Callable[[frames.NameIs | HocketError], None]) -> None:
        known = self._found.get(name)
        if known is not None and known.until > monotonic():
            done(known.answer)
        else:
            self._ask(name, done, monotonic() + LOOK_UP_SECONDS)

    def _ask(
        self, name: str, done: Callable[[frames.NameIs | HocketError], None], until: float
    ) -> None:
        def answered(answer: Frame | HocketError) -> None:
            if isinstance(answer, frames.NameIs):
                self._remember(name, answer)
                done(answer)
            elif isinstance(answer, NoConnection | ReplyLost) and monotonic() < until:
                self._loop.after(RETRY_US, partial(self._ask, name, done, until))
            else:
                assert isinstance(answer, HocketError)
                done(answer)

        self._link.ask(frames.FindName(0, name), answered)


class OutgoingCall:
    """One connect; see `opening.Call`."""

    def __init__(
        self,
        loop: NamesLoop,
        reach: Reach,
        link: NodeLink,
        directory: Directory,
        caller: Caller,
        name: str,
        dials: Dials,
        track: Callable[[Connection], None],
    ) -> None:
        """`track` is told of the connection that comes of it."""
        self._dials = dials
        self._track = track
        self._loop = loop
        self._reach = reach
        self._link = link
        self._directory = directory
        self._caller = caller
        self._name = name
        self._again = False  # the name was looked up anew
        self._way = "direct"
        self._found: frames.NameIs
        self._why_not_direct = ""
        self._dialling: Dial | None = None
        self._talk: Conversation | None = None
        self._opening: Calling | None = None

    def start(self) -> None:
        self._directory.look_up(self._name, self._looked_up)

    def give_up(self) -> None:
        """Nobody waits for the answer any more."""
        if self._dialling is not None:
            self._dialling.cancel()
        if self._talk is not None:
            self._talk.close()
        if self._opening is not None:
            self._opening.give_up()

    def fields(self) -> dict[str, object]:
        return {"kind": self._caller.kind, **self._caller.fields()}

    def accepted(self, opening: Calling, fields: dict[str, Any]) -> None:
        self._caller.accepted(opening, fields, self._way)

    def refused(self, error: HocketError, *, answered: bool) -> None:
        stale = isinstance(error, UnknownBroker | NotAllowed) and self._directory.forget(self._name)
        if stale and not self._again:
            self._again = True
            self.start()
        elif not answered and self._way == "direct":  # somebody else may listen there
            self._through_node(str(error))
        else:
            self._caller.refused(error)

    def _looked_up(self, found: frames.NameIs | HocketError) -> None:
        if not self._caller.wants():
            return
        if isinstance(found, HocketError):
            self._caller.refused(found)
            return
        if found.kind != self._caller.kind:
            self._caller.refused(
                WrongKind(
                    f"{self._name!r} is a {found.kind} broker; connect to it from one of its kind"
                )
            )
            return
        self._found = found
        if not found.address:
            self._through_node("it offers no address")
        elif self._reach.context is not None and not found.fingerprint:
            self._through_node("it speaks no TLS there")
        else:
            self._directly()

    # --- directly -------------------------------------------------------------------------------

    def _directly(self) -> None:
        self._way = "direct"
        found = self._found
        try:
            address = parse_address(found.address)
        except HocketError as error:
            self._through_node(str(error))
            return
        tls = None
        if found.fingerprint:
            tls = Tls(pinned_context(), address.host, found.fingerprint)
        self._dial(address, tls, DIRECT_SECONDS, self._reached)

    def _dial(
        self,
        address: Address,
        tls: Tls | None,
        seconds: float,
        done: Callable[[Transport | OSError], None],
    ) -> None:
        self._dialling = self._dials.dial(address, tls, seconds, done)
        self._dialling.start()

    def _reached(self, outcome: Transport | OSError) -> None:
        self._dialling = None
        if isinstance(outcome, OSError):
            self._through_node(f"{self._found.address}: {reason_of(outcome)}")
        else:
            self._open(outcome)

    def _open(self, transport: Transport, begun: bytes = b"") -> None:
        ticket = tickets.Issued(self._found.ticket, self._found.secret)
        self._opening = Calling(self._loop, transport, self, self._name, ticket, begun)
        self._track(self._opening.connection)
        self._opening.start()

    # --- through a node -------------------------------------------------------------------------

    def _through_node(self, why: str) -> None:
        if not self._caller.wants():
            return
        self._way, self._why_not_direct = "node", why
        address = self._link.address
        if self._found.node:
            address = parse_address(self._found.node)
        assert address is not None
        tls = self._reach.context and Tls(self._reach.context, address.host)
        self._dial(address, tls or None, PIPE_SECONDS, self._node_reached)

    def _node_reached(self, outcome: Transport | OSError) -> None:
        self._dialling = None
        if isinstance(outcome, OSError):
            self._no_way(reason_of(outcome))
            return
        self._talk = Conversation(
            self._loop, outcome, self._reach,
            opened=self._node_welcomes, heard=self._node_says, lost=self._node_lost,
        )  # fmt: skip

    def _node_welcomes(self, _welcome: frames.Welcome) -> None:
        assert self._talk is not None
        self._talk.send(frames.OpenPipe(2, self._name))
        self._talk.answers_within(PIPE_SECONDS)

    def _node_says(self, frame: Frame) -> None:
        talk, self._talk = self._talk, None
        assert talk is not None
        if isinstance(frame, frames.PipeIs):
            self._open(*talk.hand_over())
            return
        talk.close()
        if isinstance(frame, frames.Failure):
            error = from_code(frame.code, frame.message)
            if isinstance(error, UnknownBroker):
                error = UnknownBroker(f"{error}, and directly: {self._why_not_direct}")
            self.refused(error, answered=True)
        else:
            self.refused(ProtocolError(f"{type(frame).__name__} is no answer"), answered=True)

    def _node_lost(self, error: HocketError) -> None:
        self._talk = None
        self._no_way(str(error))

    def _no_way(self, why: str) -> None:
        error = UnknownBroker(
            f"the process of broker {self._name!r} cannot be reached: directly, "
            f"{self._why_not_direct}; through its node, {why}"
        )
        self.refused(error, answered=True)
