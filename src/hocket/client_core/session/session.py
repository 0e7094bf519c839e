"""The conversation with a broker: links that come and go, requests and their answers.

Rule 1: nothing here does I/O, logs, waits, or reads a clock. It is told what has happened, by one
thread at a time; what it wants done it puts into the outbox. It knows links by their numbers.
Rule 2: an answer belongs to a request of this link; whatever an old link still says is ignored.
Rule 3: a request is sent again on the next link only if it is `repeatable`: if doing it twice does
no harm. If the link breaks before any other request is answered, nobody knows whether it was
carried out, and its answer is ReplyLost.
Rule 4: a session belongs to the cluster that it met first. If a link leads to another one, the
session is at its end, and nothing but Hello was sent there.

Producers and subscriptions (owners) outlive links. Each opens itself anew when a link is up, behind
the requests that were waiting, so that a repeated seek comes before the subscription it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from hocket import frames
from hocket.addresses import Address
from hocket.client_core.outbox import Dial, HangUp, Level, Listen, Outbox, WakeUps
from hocket.client_core.session import patience
from hocket.client_core.session.answers import again, cannot_connect, error_of, is_read_only
from hocket.client_core.session.backoff import Backoff
from hocket.client_core.session.delivered import Delivered, each_of
from hocket.cluster_model import NodeAddress, NodeDescription
from hocket.deadline import in_seconds
from hocket.errors import (
    AnotherCluster,
    Closed,
    HocketError,
    NoConnection,
    NotAllowed,
    NotHere,
    NotHocket,
    ProtocolError,
    ReplyLost,
    SeveralNodes,
    TooManyAttempts,
    WrongVersion,
)
from hocket.frames import Frame
from hocket.model import SECOND_US, Limits
from hocket.timers import Timer

if TYPE_CHECKING:
    from typing_extensions import Buffer

Answer = Callable[[Frame | HocketError], None]
State = Literal["down", "opening", "greeting", "ready", "closed"]

_OF_HANDLES = frozenset(
    {
        frames.Deliver,
        frames.Lease,
        frames.PushAcked,
        frames.PushRefused,
        frames.Moved,
        frames.HandleEnded,
        frames.PartitionsChanged,
    }
)


class Route(NamedTuple):
    """What is asked about: a topic, or one partition of it. A router says where that goes."""

    topic: str
    partition: int = -1  # -1: all of them, which one node has, or the first session says who


class Owner(Protocol):
    """A producer or a subscription, or the part of one that is for the partitions of one node.

    It is open at that node while there is a link.
    """

    session: Session  # another one, when its partitions are found to be elsewhere

    @property
    def topic(self) -> str: ...

    @property
    def route(self) -> Route:
        """Of the first of its partitions, if it is for some of them."""

    def located(self, error: HocketError | None) -> None:
        """The leaders of a topic that is spread are known, or will not be, for this reason.

        The owner opens itself where its partitions are (`Routing.open_at`), split if that is at
        several nodes.
        """

    @property
    def is_asked_for(self) -> bool: ...  # its node has opened it, or was asked to and is silent

    def open_again(self) -> None:
        """There is a link, and a reason to try once more, unless it is open or has ended."""

    def link_up(self) -> None: ...
    def link_down(self) -> None: ...
    def received(self, frame: Frame, payload: memoryview) -> None: ...
    def deliver(self) -> bool:
        """Send off what gathers; True once nothing that was taken over is on its way any more."""

    def remains(self) -> str:
        """What of all that was taken over is not known to have arrived, in words; "": nothing."""

    def end(self, error: HocketError) -> None:
        """The session is over, for this reason."""

    def forked(self, error: HocketError) -> None:
        """See `forking`: refuse whatever is asked from now on, with this error."""


@dataclass(slots=True, eq=False)
class Request:
    frame: Frame
    payload: Sequence[Buffer]
    answer: Answer
    repeatable: bool
    left: bool = False  # it was sent on the current link
    exposed: bool = False  # it was sent on some link, so that a broker may have carried it out


class Routing(Protocol):
    """What a session tells and asks the router of its client."""

    def greeted(self, session: Session, welcome: frames.Welcome) -> None: ...

    def nodes_are(self, nodes: Iterable[NodeAddress | NodeDescription]) -> None: ...

    def unreachable(self, session: Session, error: HocketError) -> bool:
        """The link is lost, or did not come about; True: the session is over with that."""

    def ended(self, session: Session, error: HocketError) -> None: ...

    def where(self, route: Route) -> Session:
        """The session by which requests about it go."""

    def leader_of(self, route: Route) -> str:
        """The node that is thought to lead it; empty: nobody is known to, or there are several."""

    def leaders(self, topic: str) -> Sequence[str] | None:
        """Who leads each partition, empty where nobody is known to; None: it is not spread."""

    def is_spread(self, topic: str, partitions: int) -> None:
        """The topic has so many partitions, always; who leads them is told by `notHere` alone."""

    def locate(self, topic: str, located: Callable[[HocketError | None], None]) -> None:
        """Ask who leads each partition. `located` is told when that is known, or why it is not."""

    def locate_for(self, owner: Owner) -> None:
        """`locate`, and tell the owner, unless it has ended by then."""

    def open_at(self, owner: Owner, session: Session) -> None:
        """Have the owner be of this session, and opened there as soon as there is a link."""

    def open_at_leader(self, owner: Owner, node: str = "") -> None:
        """The same, where the partition of its route is led; if nobody knows, look again later.

        `node`: whom to ask, if that is known already.
        """

    def served(self, route: Route, owner: Owner | None = None) -> None:
        """Whoever was asked has answered for it; the owner, if there is one, is open."""

    def redirect(self, owner: Owner, error: NotHere | SeveralNodes) -> bool:
        """The owner is to be opened elsewhere; False: the error does not say where."""

    def session_at(self, node: NodeAddress) -> Session | None: ...

    @property
    def first(self) -> Session: ...

    def misplaced(self, asked: Session, route: Route, error: HocketError) -> Session | None:
        """Somebody asked here in vain. Who is to be asked at once; None: nobody, see `pause`."""

    def pause(self, what: Route | Owner, action: Callable[[], object]) -> Timer:
        """Have the first session asked again by `action`, after a while, or as the client ends."""

    def tried(self, topic: str, partition: int = -1) -> str:
        """What was tried for the topic since somebody last answered for it, in words."""


class Session:
    """A client's conversation with a broker, over one link after another."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        target: str,
        addresses: Sequence[Address | None] = (None,),
        watched: bool = True,
        name: str = "",
        token: str = "",
        number: int = 0,
        router: Routing | None = None,
        cluster: str = "",
        losses: dict[object, str] | None = None,
        greeting_us: int = patience.GREETING_US,
    ) -> None:
        self.outbox = outbox
        self.router = router  # None: there is one session, and one node
        self.number = number  # among the sessions of its client
        self.target = target  # for people: where the links lead
        self.addresses = list(addresses)  # tried in turn; more may be learnt
        self.address: Address | None = None  # the one that was tried last
        self.limits = Limits()
        self.delivered = Delivered()
        self.features: tuple[str, ...] = ()  # of the broker, as it said last
        self.cluster = cluster  # the id of the broker's cluster: once known it never changes
        self.node = self.software = ""  # of the broker, as it said last
        self.node_id = ""  # of the node that the link leads to; empty: it did not say
        self.state: State = "down"
        self.link: int | None = None  # the number of the link that is open
        self.failure: HocketError | None = None  # why the session is closed
        self.handles: dict[int, Owner] = {}
        self.changed = WakeUps(outbox)  # called when the session becomes ready or closed
        self.last_error: HocketError | None = None  # why the last link was lost, or not opened
        self._watched = watched
        self._name = name
        self._token = token
        self._numbers = count(1)
        self._pending: dict[int, Request] = {}
        self._owners: dict[Owner, None] = {}
        # Producers that have lost something which nobody was told of yet; some of them have ended.
        self.losses: dict[object, str] = {} if losses is None else losses
        self._backoff = Backoff(outbox.random)
        self._dialled = 0  # the number of the last link that was asked for
        self._opens = 0  # links opened, or tried to open
        self._tries = 0  # of those, since the last Welcome
        self._greeting_us = greeting_us  # unless there are addresses that were not tried yet
        self._given_us = greeting_us
        self._was_ready = False
        self._was_refused = False  # in words of Hocket, by whoever was greeted last
        self._ready_since_us = 0
        self._heard = 0
        self._looks = 0  # for silence
        self._silence_us = patience.SILENCE_US
        self._timer: Timer | None = None  # of the current state: greeting, silence, or back-off

    # --- links -----------------------------------------------------------------------------------

    def start(self) -> None:
        self._timer = None
        self.state = "opening"
        self.address = self.addresses[self._opens % len(self.addresses)]
        self._opens += 1
        self._tries += 1
        self._dialled = self.outbox.new_link()
        self.outbox.effects.append(Dial(self.number, self._dialled, self.address))
        has_others = self._tries < len(self.addresses)
        self._given_us = patience.GREETING_IN_COMPANY_US if has_others else self._greeting_us
        if self._given_us < patience.GREETING_US:
            self._timer = self.after(self._given_us, self._greeting_missed)

    def link_opened(self, link: int) -> None:
        if self.state != "opening" or link != self._dialled:  # closed in the meantime
            self.outbox.effects.append(HangUp(link))
            return
        self.state = "greeting"
        self.link = link
        if self._timer is None:
            self._timer = self.after(patience.GREETING_US, self._greeting_missed)
        self._was_refused = False
        hello = frames.Hello(next(self._numbers), client=self._name, token=self._token)
        hello.features = (frames.LINE_END, frames.ALIKE)
        self.outbox.send(link, hello)

    def link_lost(self, link: int, error: HocketError) -> None:
        """The link is gone, or did not come about."""
        if self.state in ("down", "closed") or link != self._dialled:
            return
        was_ready = self.state == "ready"
        is_news = str(error) != str(self.last_error)
        self._let_go(error)
        if self.router is not None and self.router.unreachable(self, error):
            return
        if isinstance(error, Closed):  # the broker in our own process is gone for good
            self.close(error)
            return
        if not self._was_ready and self._opens >= len(self.addresses):
            self.close(cannot_connect(self.target, error, self._was_refused))
            return
        if was_ready:
            lost = "lost the connection to %s: %s; trying again"
            self.report("warning", lost, self.target, error)
            if self.outbox.now_us - self._ready_since_us >= patience.STABLE_US:
                self._backoff.reset()
        elif isinstance(error, NotHocket) and is_news:  # a broker may come back there; tell people
            self.report("warning", "%s; trying again", error)
        delay = self._backoff.next_us() if self._was_ready else 0
        self._timer = self.after(delay, self.start)

    def received(self, link: int, frame: Frame, payload: memoryview) -> None:
        if link != self.link:
            return
        try:
            kind = type(frame)
            if kind in _OF_HANDLES:
                self._received_for_owner(frame, payload)
            elif kind is frames.DeliverAlike:
                for each in each_of(frame):  # type: ignore[arg-type]
                    self._received_for_owner(each, payload)
            elif self.state == "greeting":
                self._greeted(frame)
            elif kind is frames.Goodbye:
                reason = frame.reason  # type: ignore[union-attr]
                self.report("info", "the broker at %s says goodbye: %s", self.target, reason)
            elif kind is frames.Ping:
                self.send(frames.Done(frame.request))
            else:
                self._answered(frame)
        except ProtocolError as error:
            self._drop(error)

    def close(self, error: HocketError) -> None:
        """End the session for good. Whatever waits for an answer gets this error."""
        if self.state == "closed":
            return
        link = self.link
        self.failure = error
        self._stop_timer()
        self.state, self.link = "closed", None
        self.handles.clear()
        for owner in list(self._owners):  # before their requests fail, so that they expect it
            owner.end(error)
        self._owners.clear()
        pending, self._pending = self._pending, {}
        for request in pending.values():
            answer = again(error)
            answer.may_have_happened |= request.exposed and not is_read_only(request.frame)
            request.answer(answer)
        if link is not None:
            self.outbox.effects.append(HangUp(link))
        self.changed.wake_all()
        if self.router is not None:
            self.router.ended(self, error)

    def forked(self, error: HocketError) -> None:
        """See `forking`: this is a copy, and the conversation is the parent's."""
        self.failure = error
        self.state, self.link, self._timer = "closed", None, None
        owners, self._owners = list(self._owners), {}
        self.handles, self._pending, self.losses = {}, {}, {}
        for owner in owners:
            owner.forked(error)

    def go_on(self, error: HocketError) -> None:
        """Another engine drives this now; it cannot use the present link, for this reason."""
        if self.state != "closed":
            self._let_go(error)
            self.start()

    def _let_go(self, error: HocketError) -> None:
        """The link is gone. Owners hear of that before their requests fail."""
        self._stop_timer()
        self.state, self.link, self.last_error = "down", None, error
        self.handles.clear()
        for owner in list(self._owners):
            owner.link_down()
        for number, request in list(self._pending.items()):
            if request.left and not request.repeatable:
                del self._pending[number]
                request.answer(
                    ReplyLost(
                        f"the connection to {self.target} broke before {_name(request.frame)} was "
                        f"answered, so it may have been carried out: {error}"
                    )
                )
            request.left = False

    def _drop(self, error: HocketError) -> None:
        link = self.link
        if link is not None:
            self.outbox.effects.append(HangUp(link))
            self.link_lost(link, error)

    def _greeted(self, frame: Frame) -> None:
        if isinstance(frame, frames.Failure):
            error = error_of(frame)
            self._was_refused = True
            may_pass = isinstance(error, TooManyAttempts) and self._was_ready
            if isinstance(error, WrongVersion | NotAllowed) and not may_pass:
                self.close(error)  # the next link would hear the same
            else:
                self._drop(error)
            return
        if not isinstance(frame, frames.Welcome):
            raise ProtocolError(f"{_name(frame)} came instead of Welcome")
        if frame.version != frames.PROTOCOL_VERSION:
            raise ProtocolError(f"the broker chose version {frame.version}, which was not offered")
        if self.cluster and frame.cluster and frame.cluster != self.cluster:
            self.close(self._another_cluster(frame))
            return
        self.cluster = self.cluster or frame.cluster
        self._stop_timer()
        self.state = "ready"
        self.limits = frame.limits
        self.features = frame.features
        self.node, self.software, self.node_id = frame.node, frame.software, frame.id
        self._was_ready = True
        self._tries = 0
        self._ready_since_us = self.outbox.now_us
        if self._watched:
            self._heard = -1
            has_company = any(each.node != self.node_id for each in frame.nodes)
            self._silence_us = (
                patience.SILENCE_IN_COMPANY_US if has_company else patience.SILENCE_US
            )
            self._timer = self.after(self._silence_us, self._look_for_silence)
        if self.router is not None:
            self.router.greeted(self, frame)
        for request in list(self._pending.values()):
            self._send(request)
        for owner in list(self._owners):
            owner.link_up()
        self.changed.wake_all()

    def _greeting_missed(self) -> None:
        self._timer = None
        whom, seconds = self.address or self.target, in_seconds(self._given_us / SECOND_US)
        error = NoConnection(f"{whom} did not answer within {seconds}")
        if self.link is not None:
            self._drop(error)
        else:  # it is still being opened: what comes of that, `link_opened` hangs up on
            self.link_lost(self._dialled, error)

    def _look_for_silence(self) -> None:
        assert self.link is not None
        self._timer = None
        self.outbox.effects.append(Listen(self.link))

    def heard(self, link: int, heard: int) -> None:
        """What was heard on the link so far, by some count that grows with every byte."""
        if link != self.link:
            return
        if heard == self._heard:  # not even an answer to our last Ping
            seconds = in_seconds(2 * self._silence_us / SECOND_US)
            self._drop(NoConnection(f"nothing was heard for {seconds}"))
            return
        self._heard = heard
        self._looks += 1
        asks = (
            self._silence_us == patience.SILENCE_US or self._looks % patience.NODES_ASKED_EVERY == 0
        )
        if self.router is not None and self.node_id and asks:  # as good as a Ping
            self.request(frames.ListNodes(0, known=True), self._nodes_answered)
        else:
            self.request(frames.Ping(0), lambda _answer: None)
        self._timer = self.after(self._silence_us, self._look_for_silence)

    def _nodes_answered(self, answer: Frame | HocketError) -> None:
        if isinstance(answer, frames.NodesAre) and self.router is not None:
            self.router.nodes_are(answer.nodes)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _another_cluster(self, frame: frames.Welcome) -> AnotherCluster:
        return AnotherCluster(
            f"{self.target} led to cluster {frame.cluster} (node {frame.node}), and this client "
            f"belongs to cluster {self.cluster}: either the URL names brokers that do not belong "
            "together, or a broker's data directory was replaced. Nothing was sent there. If that "
            "broker is the right one, open a new client"
        )

    # --- requests --------------------------------------------------------------------------------

    def request(
        self,
        frame: Frame,
        answer: Answer,
        *,
        payload: Sequence[Buffer] = (),
        repeatable: bool = False,
    ) -> Request:
        """Send now, or once there is a link. `answer` is called once, unless it is cancelled."""
        self.check_open()
        frame.request = next(self._numbers)
        request = Request(frame, payload, answer, repeatable)
        self._pending[frame.request] = request
        if self.state == "ready":
            self._send(request)
        return request

    def cancel(self, request: Request) -> None:
        self._pending.pop(request.frame.request, None)

    def send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Send a frame that has no answer; for owners that have a handle, and so a link."""
        assert self.link is not None
        self.outbox.send(self.link, frame, payload)

    def not_sent(self, link: int, frame: Frame, error: HocketError) -> None:
        """The frame cannot be put into a frame of the wire, so nothing of it was sent."""
        request = self._pending.pop(frame.request, None) if link == self.link else None
        if request is None:
            if not frame.request:
                raise error
            return  # it was cancelled
        request.left = request.exposed = False
        request.answer(error)

    def after(self, delay_us: int, action: Callable[[], object]) -> Timer:
        return self.outbox.arm(delay_us, action)

    def report(self, level: Level, text: str, *facts: object) -> None:
        self.outbox.report(level, text, *facts)

    def check_open(self) -> None:
        if self.failure is not None:
            raise again(self.failure)

    def _send(self, request: Request) -> None:
        self.send(request.frame, request.payload)
        request.left = request.exposed = True

    def _answered(self, frame: Frame) -> None:
        request = self._pending.pop(frame.request, None)
        if request is not None:
            request.answer(error_of(frame) if isinstance(frame, frames.Failure) else frame)
        elif isinstance(frame, frames.Failure) and not frame.request:
            self.report("warning", "%s reports: %s (%s)", self.target, frame.message, frame.code)

    # --- owners ----------------------------------------------------------------------------------

    def add(self, owner: Owner) -> None:
        self.check_open()
        self._owners[owner] = None
        if self.state == "ready":
            owner.link_up()

    def place_of(self, route: Route) -> Session:
        """The session by which requests about it go."""
        return self if self.router is None else self.router.where(route)

    def served(self, route: Route, owner: Owner | None = None) -> None:
        """This node has answered for it, or has opened the owner."""
        if self.router is not None:
            self.router.served(route, owner)

    def redirect(self, owner: Owner, error: HocketError) -> bool:
        """Have the owner opened at another node, or at several, if the error says so."""
        return (
            isinstance(error, NotHere | SeveralNodes)
            and self.router is not None
            and self.router.redirect(owner, error)
        )

    def adopt(self, owner: Owner) -> None:
        """`add` without opening it: somebody will see to that."""
        self._owners[owner] = None

    def has(self, owner: Owner) -> bool:
        return owner in self._owners

    def owners(self) -> list[Owner]:
        return list(self._owners)

    @property
    def is_idle(self) -> bool:
        """Nobody has anything open or asked here."""
        return not self._owners and all(
            isinstance(each.frame, frames.Ping | frames.ListNodes)
            for each in self._pending.values()
        )

    def deliver(self) -> bool:
        """Have all owners send off what gathers; True once everything is acknowledged."""
        delivered = [owner.deliver() for owner in list(self._owners)]  # each is to be asked
        return all(delivered)

    def remove(self, owner: Owner) -> None:
        self._owners.pop(owner, None)

    def close_handle(self, handle: int, answer: Answer = lambda _answer: None) -> None:
        self.handles.pop(handle, None)
        self.request(frames.CloseHandle(0, handle), answer)

    def _received_for_owner(self, frame: Frame, payload: memoryview) -> None:
        owner = self.handles.get(frame.handle)  # type: ignore[union-attr]
        if owner is None:  # the handle was closed while the frame was on its way
            return
        if isinstance(frame, frames.HandleEnded) and not frame.commits:
            del self.handles[frame.handle]
        owner.received(frame, payload)


def _name(frame: Frame) -> str:
    return type(frame).__name__
