"""Changes of the metadata that are asked for at a node which does not decide on them.

`HandingOn` hands a client's request on to the root, and answers the client when this node has
applied what came of it. `TakingOver` is what the root does: it serves what others hand on, by the
very code that serves clients of its own, as the user that the other node names. What that user may
do, the root decides by what it knows itself. Every node has both, and any may be the root next.

If the root changes before a request is answered, the request is sent to the next one, under the
same number: every entry says which request it carries out, so that none is carried out twice. A
request is served only in the term that it was sent for. So none that came late is served by a node
that has led before, and does again, when the one who asked has long been answered by another.

A token is made by the node that was asked; only its hash leaves that node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hocket import frames
from hocket.core.group0.forwards import Answer, Effect, Forwards, Root, Send
from hocket.core.group0.messages import Forward, Forwarded
from hocket.core.metadata.access import Access
from hocket.core.origin import Asked, Origin
from hocket.core.ring.contact import Contact
from hocket.core.session.session import (
    TRUSTED,
    Caller,
    Demand,
    Hangup,
    Reply,
    Session,
    failure,
)
from hocket.errors import HocketError, ProtocolError
from hocket.frames import Frame
from hocket.model import TopicConfig
from hocket.node.identity import audit, tokens
from hocket.node.replication.group0 import Group0
from hocket.node.requests.access import Guarding
from hocket.node.running.own_requests import HANDED_ON
from hocket.node.wiring import Servant, Wiring
from hocket.version import __version__
from hocket.wire import frame_codec

CHANGES: frozenset[type] = frozenset(
    {
        frames.CreateTopic, frames.AlterTopic, frames.DeleteTopic, frames.CreateUser,
        frames.RenewToken, frames.DeleteUser, frames.SetRoles, frames.CreateRole,
        frames.DeleteRole, frames.AddGrant, frames.RemoveGrant, frames.SetCluster,
        frames.RegisterName, frames.ReleaseName,
    }
)  # fmt: skip


class HandedOn:
    """Which frames of clients go on to the root: it changes with who that is."""

    def __init__(self, group0: Group0) -> None:
        self._group0 = group0

    def __contains__(self, kind: object) -> bool:
        return not self._group0.leads and kind in CHANGES


NOTHING = memoryview(b"")
TEXT_MAX = 4000  # characters of an error that are sent to another node
REFUSED_KEPT = 1_000  # refusals that are remembered, to be told again

Sending = Callable[[Contact, Forward | Forwarded], None]


class HandingOn:
    def __init__(self, wiring: Wiring, guarding: Guarding) -> None:
        self._wiring = wiring
        self._guarding = guarding
        self._forwards = Forwards(0)
        self._origins: dict[int, Origin] = {}  # by number
        self._send: Sending = lambda _to, _message: None
        self._root: Callable[[], Root | None] = lambda: None
        wiring.metadata.origin_of = self._origin_of

    def begin(self, forwards: Forwards, root: Callable[[], Root | None], send: Sending) -> None:
        """`root()` is whoever leads now."""
        self._forwards, self._root, self._send = forwards, root, send
        self._forwards.applied_through(self._wiring.metadata.applied_index)

    def serve(self, connection: int, session: Session, demand: Demand) -> None:
        self._ask(Origin(connection, 0, demand.frame.request), session, demand.frame)

    def create(self, origin: Origin, name: str, config: TopicConfig) -> None:
        """A topic for the node itself."""
        self._ask(origin, self._own_session(), frames.CreateTopic(origin.request, name, config))

    def release(self, origin: Origin, name: str, lease: bytes) -> None:
        """A name whose process this node has lost."""
        self._ask(origin, self._own_session(), frames.ReleaseName(origin.request, name, lease))

    def _own_session(self) -> Session:
        return Session(
            self._wiring.catalogue, node=self._wiring.name, software="", caller=TRUSTED,
            limits=self._wiring.settings.limits,
        )  # fmt: skip

    def _ask(self, origin: Origin, session: Session, frame: Frame) -> None:
        token = token_hash = ""
        if isinstance(frame, frames.CreateUser | frames.RenewToken):
            token = tokens.make_token(frame.name, self._wiring.entropy)
            token_hash = tokens.hash_token(token)
        rights, caller = session.rights, session.caller
        forward = Forward(
            0, rights.user, rights.trusted, caller.address, token_hash, frame_codec.encode(frame)
        )
        effects = self._forwards.ask(forward, self._root())
        self._origins[forward.number] = origin
        if token:
            self._guarding.handed_on(origin, session, token)
        self._carry_out(effects)

    def heard(self, sender: Contact, message: Forwarded) -> None:
        self._carry_out(self._forwards.heard(sender, message))

    def tick(self) -> None:
        if self._forwards.is_waiting:  # else it costs the search for the root, ten times a second
            self._carry_out(self._forwards.tick(self._root()))

    def applied(self, index: int) -> None:
        """Everything up to this entry of the metadata has taken effect."""
        self._carry_out(self._forwards.applied_through(index))

    def installed(self) -> None:
        """The state was replaced by another: it says what of ours was done."""
        done = self._wiring.metadata.done
        for number, origin in list(self._origins.items()):
            is_done = done.index_of(Asked(self._wiring.log.store_id, number)) is not None
            if is_done and self._forwards.applied(number):
                del self._origins[number]
                answer = self._guarding.answer_to(origin, is_done=True)
                self._wiring.network.send(origin.connection, answer)

    def _origin_of(self, asked: Asked) -> Origin | None:
        """Who waits here for the entry that carries this request out."""
        is_ours = asked.node == self._wiring.log.store_id
        if not is_ours or not self._forwards.applied(asked.number):
            return None
        return self._origins.pop(asked.number)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect.to, effect.message)
            else:
                self._answer(effect)

    def _answer(self, effect: Answer) -> None:
        origin = self._origins.pop(effect.number)
        answer = self._guarding.answer_to(origin, is_done=effect.error is None)
        if effect.error is not None:
            answer = failure(origin.request, effect.error)
        self._wiring.network.send(origin.connection, answer)


@dataclass(slots=True)
class Served:
    """A request of another node that is being carried out."""

    asked: Asked
    sender: Contact
    message: Forward


class TakingOver:
    def __init__(
        self, wiring: Wiring, access: Access, servants: dict[type, Servant], group0: Group0
    ) -> None:
        self._wiring = wiring
        self._group0 = group0
        self._access = access
        self._servants = servants
        self._last = 0
        self._serving: dict[int, Served] = {}  # by the number that the request has here
        self._refused: dict[Asked, Forwarded] = {}  # the oldest first
        self._send: Sending = lambda _to, _message: None
        wiring.network.answer_to(self._answered, connection=HANDED_ON)

    def begin(self, send: Sending) -> None:
        self._send = send

    def ceased(self) -> None:
        """This node leads no more. Whoever has handed something on asks the next root."""
        self._serving.clear()
        self._refused.clear()

    def again(self, number: int) -> None:
        """A request had to wait for a moment."""
        served = self._serving.pop(number, None)
        if served is not None:
            self.heard(served.sender, served.message)

    def heard(self, sender: Contact, message: Forward) -> None:
        if not self._group0.leads or message.term != self._group0.term:
            return  # who has sent it will know better soon
        asked = Asked(sender.node, message.number)
        done = self._wiring.metadata.done
        index = done.index_of(asked)
        if index is not None:  # it was done, and the answer lost
            self._send(sender, Forwarded(message.number, index, term=message.term))
        elif asked in self._refused:
            self._send(sender, self._refused[asked])
        elif not done.is_too_old(asked) and not self._is_serving(asked):
            self._serve(sender, asked, message)

    def _is_serving(self, asked: Asked) -> bool:
        return any(served.asked == asked for served in self._serving.values())

    def _serve(self, sender: Contact, asked: Asked, message: Forward) -> None:
        self._last += 1
        self._serving[self._last] = Served(asked, sender, message)
        try:
            frame = frame_codec.decode(message.frame, CHANGES, "among what is handed on")
        except ProtocolError as error:
            self._answered(failure(self._last, error))
            return
        frame.request = self._last
        session = self._session(sender, message)
        self._wiring.asked, self._wiring.asked_hash = asked, message.token_hash
        try:
            for effect in session.step(frame):
                self._carry_out(session, frame, effect)
        finally:
            self._wiring.asked, self._wiring.asked_hash = None, ""

    def _session(self, sender: Contact, message: Forward) -> Session:
        where = f"{message.address or 'within the process'} by way of node {sender.node}"
        session = Session(
            self._wiring.catalogue,
            node=self._wiring.name,
            software=f"hocket {__version__}",
            limits=self._wiring.settings.limits,
            caller=Caller(address=where, trusted=message.trusted),
            access=self._access,
        )
        session.greet_as(message.user)
        return session

    def _carry_out(self, session: Session, frame: Frame, effect: Reply | Hangup | Demand) -> None:
        if isinstance(effect, Demand):
            try:
                self._servants[type(frame)](HANDED_ON, session, effect, NOTHING)
            except HocketError as error:
                self._refuse(session, frame, failure(frame.request, error))
        else:
            assert isinstance(effect.frame, frames.Failure)
            self._refuse(session, frame, effect.frame)

    def _refuse(self, session: Session, frame: Frame, answer: frames.Failure) -> None:
        audit.denied_if(session, frame, answer)
        self._answered(answer)

    def _answered(self, answer: Frame) -> None:
        served = self._serving.pop(answer.request, None)
        if served is None:
            return  # this node has ceased to lead since
        metadata, asked = self._wiring.metadata, served.asked
        if isinstance(answer, frames.Failure):
            told = Forwarded(
                asked.number, metadata.applied_index, answer.code, answer.message[:TEXT_MAX],
                answer.may_have_happened, served.message.term,
            )  # fmt: skip
            self._refused[asked] = told
            if len(self._refused) > REFUSED_KEPT:
                del self._refused[next(iter(self._refused))]
        else:
            index = metadata.done.index_of(asked)
            assert index is not None
            told = Forwarded(asked.number, index, term=served.message.term)
        self._send(served.sender, told)
