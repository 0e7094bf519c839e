"""A client of the cluster: it speaks through the cores of the real one.

It drives the router, the sessions and whatever a user holds (calls, producers, subscriptions) of
`hocket.client_core` as the engines of `hocket.client` do, over simulated connections and in
simulated time. What these cores mend by themselves would hide what the cluster does wrong. So all
of it is counted (`mended`), and what no cluster may bring about, and a real client would put right
or pass over, is `Unexpected` here and ends the run: an answer that nobody has asked for, a frame
that breaks the protocol, a report of anything but a link that is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hocket import frames
from hocket.addresses import Address
from hocket.client_core.calls.asking import Asking
from hocket.client_core.consuming.feed import Feed
from hocket.client_core.outbox import (
    Arm,
    Dial,
    HangUp,
    Listen,
    Outbox,
    Report,
    Send,
    Tell,
    Wake,
)
from hocket.client_core.session.router import Router
from hocket.errors import Closed, HocketError, NoConnection, NotHere, ProtocolError, SeveralNodes
from hocket.frames import Frame

if TYPE_CHECKING:
    from hocket.client_core.calls.call import Call
    from hocket.client_core.session.session import Session
    from hocket.sim.machine import Machine
    from hocket.sim.site import Site

T = TypeVar("T")

RETRY_US = 20_000
DIAL_US = 1_000  # until a link is open, or refused
OF_LINKS = ("lost the connection to ", "the broker at %s says goodbye")  # so these reports begin

_ELSEWHERE = (NotHere.code, SeveralNodes.code)

# What a client has to mend only if something has failed. That it is shown the way to another node
# ("redirected"), or refused something that is not there yet ("refused"), is no failure.
REPAIRS = (
    "links lost", "dialled again", "begun again", "asked again", "opened again", "pushed again",
    "ended by the node", "subscribed anew",
)  # fmt: skip


class Unexpected(AssertionError):
    """A client was told what no client may be told."""


class SimLink:
    """One link of a client: the far end of a simulated connection."""

    def __init__(self, client: Client, session: Session, number: int, machine: Machine) -> None:
        self._client = client
        self.session = session
        self.number = number
        self.machine = machine
        self.connection: int | None = None
        self.heard = 0
        self.asked: dict[int, None] = {}  # requests that were sent here and are not answered

    def open(self) -> None:
        if self.number not in self._client.links:
            return  # it was given up
        self.connection = self.machine.network.connect(self)
        if self.connection is None:
            self._gone("it is down")
        else:
            self._client.turn(partial(self.session.link_opened, self.number))

    def received(self, frame: Frame, payload: memoryview) -> None:
        self.heard += 1
        self._client.look_at(self, frame)
        self._client.turn(partial(self.session.received, self.number, frame, payload))
        error = self.session.last_error
        if isinstance(error, ProtocolError):
            raise Unexpected(f"{self._client.name} was told {frame}: {error}")

    def lost(self) -> None:
        self._gone("the connection broke")

    def _gone(self, why: str) -> None:
        self.connection = None
        if self._client.links.pop(self.number, None) is not None:
            error = NoConnection(f"{self.machine.name}: {why}")
            self._client.lost(self)
            self._client.turn(partial(self.session.link_lost, self.number, error))


class Client:
    """Begins at one machine, and goes on by every other one that it hears of."""

    roams = True  # else it stays with its machine

    def __init__(self, site: Site, machine: Machine, name: str) -> None:
        self.site = site
        self.name = name
        self.machine = machine  # where it begins
        self.chance = site.scheduler.random(name)
        self.mended: Counter[str] = Counter()  # what the cores put right by themselves
        self.feeds = 0  # that it has asked for
        self.links: dict[int, SimLink] = {}
        self.answered_by: int | None = None  # the link by which the last answer came
        self.outbox = Outbox(site.scheduler.random(f"client of {name}"))
        self._dialled: dict[int, None] = {}  # sessions that had a link, or tried to
        self._unanswered: dict[tuple[int, int], None] = {}  # session and request: its link was lost
        self.asked: Asking | None = None  # last
        self.router = self._begin()

    # --- lives -------------------------------------------------------------------------------

    def _begin(self) -> Router:
        self._dialled.clear()
        self._unanswered.clear()
        # As in a URL with two addresses.
        named = dict.fromkeys([self.machine, self.site.root] if self.roams else [self.machine])
        self._named = list(named)
        self.router = Router(
            self.outbox, target=self.machine.name, addresses=[*map(_address, self._named)],
            name=self.name,
        )  # fmt: skip
        self.turn(self.router.first.start)
        return self.router

    def begin_again(self) -> None:
        """The first machine was down when this client began, so that its session is over."""
        failure = self.router.first.failure
        if failure is None:
            return
        if not isinstance(failure, NoConnection):
            raise Unexpected(f"{self.name} was told {failure!r}")
        self.mend("begun again")
        self.machine = self.another_machine()
        self._begin()

    def another_machine(self) -> Machine:
        """Where to begin instead of a machine that was down: as a rule it is waited for."""
        return self.machine

    def some_machine(self) -> Machine:
        """Any that runs; the present one if none does."""
        running = [each for each in self.site.machines if each.up and not each.leaving]
        return self.chance.choice(running) if running else self.machine

    def move_to(self, machine: Machine) -> None:
        """Be killed, and begin as a new process at this machine. Nobody says goodbye."""
        links, self.links = list(self.links.values()), {}
        self.turn(partial(self.router.close, Closed(f"{self.name} was killed")))
        for link in links:
            if link.connection is not None:
                link.machine.network.cut(link.connection)
        self.machine = machine
        self._begin()

    # --- turns -------------------------------------------------------------------------------

    def ask(self, call: Call[T], answered: Callable[[T | HocketError], None]) -> None:
        """Make the call. Raises why the session is over, if it is."""

        def put(answer: Frame | HocketError) -> None:
            self.outbox.effects.append(Tell(lambda: answered(call.outcome(answer))))

        def begin() -> None:
            self.asked = Asking(self.router, call.frame, put, repeatable=not call.changes)

        self.turn(begin)

    def turn(self, act: Callable[[], object]) -> None:
        self.outbox.now_us = self.site.now_us
        act()
        effects = self.outbox.effects
        while effects:
            effect = effects.popleft()
            if isinstance(effect, Send):
                self._send(effect)
            elif isinstance(effect, Arm):
                self.site.scheduler.at(effect.due_us, partial(self._due, effect))
            elif isinstance(effect, Dial):
                self._dial(effect)
            elif isinstance(effect, HangUp):
                self._hang_up(effect)
            elif isinstance(effect, Listen):
                link = self.links[effect.link]
                link.session.heard(link.number, link.heard)
            elif isinstance(effect, Wake):
                effect.wake_ups.carry_out()
            elif isinstance(effect, Tell):
                effect.tell()
            elif isinstance(effect, Report):
                self.reported(effect)
        if self.router.first.failure is not None:
            self.site.scheduler.after(RETRY_US, self.begin_again)

    def _due(self, effect: Arm) -> None:
        if not effect.timer.cancelled:
            self.turn(effect.timer)

    def mend(self, kind: str) -> None:
        self.mended[kind] += 1
        self.site.clients_moved = True

    def reported(self, report: Report) -> None:
        """Links come and go, and are counted. Whatever else users would be told is a mistake."""
        if not report.text.startswith(OF_LINKS):
            raise Unexpected(f"{self.name} reports: {report.text % report.facts}")

    def fed_at(self, machine: Machine) -> int:
        """Of how many partitions it takes the bytes at this machine, though another leads them."""
        return sum(
            len(owner.partitions)
            for link in self.links.values()
            if link.machine is machine
            for owner in link.session.owners()
            if isinstance(owner, Feed)
        )

    # --- links -------------------------------------------------------------------------------

    def _send(self, effect: Send) -> None:
        link, frame = self.links.get(effect.link), effect.frame
        if link is None or link.connection is None:
            return
        if frame.request and not isinstance(frame, frames.Done):
            link.asked[frame.request] = None
            if (link.session.number, frame.request) in self._unanswered:
                self.mend("asked again")
        # What is staged for a transaction is bound to its producer's id, wherever it goes on.
        opens_again = (isinstance(frame, frames.OpenSubscription) and frame.resumes) or (
            isinstance(frame, frames.OpenProducer) and frame.producer_id and not frame.transaction
        )
        if opens_again:
            self.mend("opened again")
        self.feeds += isinstance(frame, frames.OpenFeed)
        link.machine.network.send_to_node(link.connection, frame, b"".join(effect.payload))

    def look_at(self, link: SimLink, frame: Frame) -> None:
        """What a node says, before a core makes the best of it."""
        if frame.request and not isinstance(frame, frames.Ping):
            if frame.request not in link.asked:
                raise Unexpected(f"{self.name} was answered {frame}, and has not asked that")
            del link.asked[frame.request]
            self.answered_by = link.number
        if isinstance(frame, frames.Failure | frames.PushRefused):
            self.mended["redirected" if frame.code in _ELSEWHERE else "refused"] += 1
        elif isinstance(frame, frames.HandleEnded):
            self.mend("ended by the node")

    def _dial(self, effect: Dial) -> None:
        session = self.router.sessions.get(effect.session)
        if session is None:
            return
        if effect.session in self._dialled:
            self.mend("dialled again")
        self._dialled[effect.session] = None
        found = [each for each in self.site.machines if _address(each) == effect.address]
        if not self.roams:
            found = [self.machine]
        elif session is self.router.first and all(each.gone for each in self._named):
            # Nobody comes back to any address in its URL: names are given to other machines then.
            found = [self.site.root]
        if not found:  # the machine that was there has lost its disk, and is another one now
            error = NoConnection(f"nobody is at {effect.address}")
            refused = partial(session.link_lost, effect.link, error)
            self.mend("links lost")
            self.site.scheduler.after(DIAL_US, partial(self.turn, refused))
            return
        link = SimLink(self, session, effect.link, found[0])
        self.links[effect.link] = link
        self.site.scheduler.after(DIAL_US, link.open)

    def _hang_up(self, effect: HangUp) -> None:
        link = self.links.pop(effect.link, None)
        if link is None:
            return
        if link.session.state != "closed" or link.session.last_error is not None:
            self.lost(link)  # not for want of use, but for what was heard, or was not
        if link.connection is not None:
            link.machine.network.cut(link.connection)

    def lost(self, link: SimLink) -> None:
        self.mend("links lost")
        for request in link.asked:
            self._unanswered[link.session.number, request] = None


def _address(machine: Machine) -> Address:
    host, _, port = machine.address.partition(":")
    return Address(host, int(port))
