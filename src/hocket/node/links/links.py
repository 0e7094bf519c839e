"""All links of a node: those it dials, to send; and those from other nodes, to read.

`send` is the real `ports.Links`: it never waits, and may lose. What comes is handed to the receiver
on the node's thread, with the sender's contact made from its Hello: a node speaks for itself only.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from hocket.adapters import socket_owner
from hocket.adapters.loop import Loop
from hocket.adapters.transport import Certificate, Transport
from hocket.core.ring import greeting
from hocket.core.ring.contact import Contact
from hocket.errors import HocketError
from hocket.node.identity.refusals import Refusals
from hocket.node.links import faults
from hocket.node.links.incoming import Incoming
from hocket.node.links.outgoing import Outgoing
from hocket.node.messages import CODEC
from hocket.node_frames import HelloAccepted, HelloRefused, NodeHello
from hocket.ports import Executor
from hocket.wire.framing import NODE_MARK, framed
from hocket.wire.node_codec import ITEMS_MAX, Envelope

log = logging.getLogger("hocket.links")
COMPLAINTS_MAX = 64  # that are not made again
LINKS_MAX = 4096  # from other nodes, and to them


class Receiver(Protocol):
    def heard(self, sender: Contact, to_incarnation: int, message: object) -> None: ...
    def link_lost(self, contact: Contact) -> None:
        """A link from this node or to it broke, or could not be made."""

    def link_broken(self, node: str) -> None:
        """The same, of a node that the ring has not spoken to by this link."""

    def process_gone(self, node: str) -> None:
        """A link to this node broke, and nobody listens there any more."""

    def link_refused(self, address: str, answer: HelloRefused) -> None:
        """The node there does not let this one in."""


@dataclass(frozen=True, slots=True)
class Own:
    """This node, as it introduces itself."""

    hello: NodeHello
    successors: Callable[[], int]  # the length of successor lists
    positions: Callable[[], tuple[int, ...]]  # the positions that are taken, sorted
    root: Callable[[], str]  # the address of group 0's root, as far as is known
    certificate_fault: Callable[[Certificate, str], str]  # of a node with this store id
    is_starting: Callable[[], bool] = lambda: False  # it does not serve clients yet
    # By default, and when the cluster was founded; 0: not known.
    replications: Callable[[], tuple[int, int]] = lambda: (0, 0)


class NodeLinks:
    def __init__(
        self,
        own: Own,
        *,
        loop: Loop,
        executor: Executor,
        chance: Random,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        refusals: Refusals | None = None,
        is_of_another_user: Callable[[int], bool] = socket_owner.is_of_another_user,
    ) -> None:
        self.own = own
        self.loop = loop
        self.executor = executor
        self.chance = chance
        self.tls = tls
        self._is_of_another_user = is_of_another_user  # who is at the other end of a descriptor
        self.receiver: Receiver
        self.names: dict[str, str] = {}  # of nodes that we have met, by their ids
        self.refusals: dict[str, HelloRefused] = {}  # by address: who refuses us, and why
        self._audited = refusals or Refusals()
        self._out: dict[str, Outgoing] = {}  # by address
        self._in: dict[str, Incoming] = {}  # by node: the link that is open
        self._strangers: dict[Incoming, None] = {}  # not greeted yet, or refused
        self._unflushed: list[Outgoing] = []
        self._complaints: dict[str, None] = {}  # that were made, the oldest first
        self._wanted: dict[str, tuple[Contact, Callable[[], None]]] = {}  # by address: see `reach`
        self._closed = False

    # --- ports.Links -----------------------------------------------------------------------------

    def send(self, sender: Contact, to: Contact, message: object) -> None:
        if self._closed:
            return
        link = self._out.get(to.address)
        if to.incarnation and (link is None or to != link.contact):
            fault = faults.of_position(to)
            if fault:  # some node names it, and nobody may choose its place
                self._audited.node(to.address, fault)
                return
        link = link or self._link_to(to.address)
        if link is None:
            return
        if to.incarnation:
            link.contact = to
        try:
            header, payload = CODEC.encode(message, sender.incarnation, to.incarnation)
        except HocketError as error:  # a fault of ours: nobody else could have made this message
            log.error("a %s cannot be sent: %s", type(message).__name__, error)  # noqa: TRY400
            return
        views = [memoryview(each) for each in framed(header, list(payload), NODE_MARK)]
        frame = [view for view in views if len(view)]  # an empty one would look like a full socket
        # Votes and answers of Raft come in a message that may have a payload, and has none.
        is_bulk = type(message) in CODEC.with_payload and any(map(len, payload))
        link.send(frame, is_bulk=is_bulk)

    def _forget_one(self) -> bool:
        """Others name addresses, and not all lead to a node: those must not keep us from dialling
        one that does. The oldest link that rests is forgotten; there may be none."""
        for address, link in self._out.items():
            if link.state == "resting":
                link.close()
                del self._out[address]
                self.refusals.pop(address, None)
                self._wanted.pop(address, None)
                return True
        return False

    def _link_to(self, address: str) -> Outgoing | None:
        """None: there are too many."""
        link = self._out.get(address)
        if link is None and (len(self._out) < LINKS_MAX or self._forget_one()):
            link = self._out[address] = Outgoing(address, self)
        return link

    def reach(self, contact: Contact, then: Callable[[], None]) -> None:
        """Call `then` when this node has answered at its address: now, or soon. If it does not,
        that is logged."""
        if contact.node == self.own.hello.node:
            then()
            return
        link = self._link_to(contact.address)
        if link is None:
            return
        if link.state == "open":
            self._reached(link.node, contact, then)
        else:
            self._wanted[contact.address] = contact, then
            link.call()

    def _reached(self, answers: str, contact: Contact, then: Callable[[], None]) -> None:
        if answers == contact.node:
            then()
        else:
            self._complain_of(contact, f"node {answers} answers there")

    def _complain_of(self, contact: Contact, why: str) -> None:
        what = f"node {contact.node} says that it is at {contact.address}, and {why}"
        if what not in self._complaints:
            self._complaints[what] = None
            if len(self._complaints) > COMPLAINTS_MAX:
                del self._complaints[next(iter(self._complaints))]
            log.warning("%s: it is not let in. Start it with an --advertise that leads to it", what)

    # --- what the shell calls --------------------------------------------------------------------

    def accept(self, transport: Transport, from_address: str, begun: bytes) -> None:
        """Somebody has connected and begun with the magic word of links."""
        if self._closed or len(self._in) + len(self._strangers) >= LINKS_MAX:
            transport.close()
            return
        link = Incoming(transport, from_address, self)
        self._strangers[link] = None
        link.start(begun)

    def flush(self) -> None:
        """The turn is over: write what it left to be sent."""
        unflushed, self._unflushed = self._unflushed, []
        for link in unflushed:
            link.flush()

    def close(self) -> None:
        self._closed = True
        for outgoing in self._out.values():
            outgoing.close()
        for incoming in [*self._in.values(), *self._strangers]:
            incoming.close()

    def forked(self) -> None:
        """See `forking`: close this process's copies of the sockets."""
        self._closed = True
        for outgoing in self._out.values():
            outgoing.forked()
        for incoming in [*self._in.values(), *self._strangers]:
            incoming.forked()

    @property
    def open_links(self) -> tuple[int, int]:
        """How many links are open: to other nodes, and from them."""
        return sum(link.state == "open" for link in self._out.values()), len(self._in)

    # --- outgoing links --------------------------------------------------------------------------

    def hello(self) -> NodeHello:
        return replace(self.own.hello, starting=self.own.is_starting())

    def fault_of(self, transport: Transport, answer: HelloAccepted) -> str:
        own = self.own
        if answer.node == own.hello.node:
            return "it is this very node, or a copy of its data directory"
        if answer.cluster != own.hello.cluster:
            return f"it belongs to cluster {answer.cluster}, and this node to {own.hello.cluster}"
        if self.tls() is not None:
            return own.certificate_fault(transport.certificate, answer.node)
        return faults.ANOTHER_USER if self._is_of_another_user(transport.fileno()) else ""

    def accepted(self, link: Outgoing, answer: HelloAccepted) -> None:
        self._met(answer.node, answer.name, link.address)
        self.refusals.pop(link.address, None)
        wanted = self._wanted.pop(link.address, None)
        if wanted is not None:
            self._reached(answer.node, *wanted)

    def refused(self, link: Outgoing, answer: HelloRefused) -> None:
        self.refusals[link.address] = answer
        self.receiver.link_refused(link.address, answer)

    def distrusted(self, link: Outgoing, why: str) -> None:
        self._audited.node(link.address, why)

    def lost(self, link: Outgoing) -> None:
        wanted = self._wanted.pop(link.address, None)
        if wanted is not None:
            self._complain_of(wanted[0], "cannot be reached there")
        if link.contact is not None:
            self.receiver.link_lost(link.contact)
        elif link.node:
            self.receiver.link_broken(link.node)

    def gone(self, link: Outgoing) -> None:
        self.receiver.process_gone(link.node)

    def flush_later(self, link: Outgoing) -> None:
        self._unflushed.append(link)

    # --- incoming links --------------------------------------------------------------------------

    def judge(self, link: Incoming, hello: NodeHello) -> HelloAccepted | HelloRefused:
        own = self.own
        mine = own.hello
        before = self._in.get(hello.node)
        has_tls = self.tls() is not None
        fault = own.certificate_fault(link.transport.certificate, hello.node) if has_tls else ""
        refused = greeting.refusal(
            hello, cluster=mine.cluster, node=mine.node, address=mine.address, boot=mine.boot,
            known=None if before is None else _known(before), has_tls=has_tls,
            from_address=link.from_address, certificate_fault=fault,
            namesake=self._namesake(hello),
            is_of_another_user=not has_tls and self._is_of_another_user(link.transport.fileno()),
            changers=mine.changers, changers_may_differ=mine.changers_may_differ,
        )  # fmt: skip
        if refused is not None:
            self._audited.link(link.from_address, hello.node, refused.code, refused.text)
            return refused
        if hello.cluster:
            self._met(hello.node, hello.name, hello.address)
            del self._strangers[link]
            self._in[hello.node] = link
            if before is not None:
                before.close()  # half open, or of a process that is gone
            ours = self._out.get(hello.address)
            if ours is not None:
                ours.is_there()
        replication, founded = own.replications()
        return HelloAccepted(
            cluster=mine.cluster,
            node=mine.node,
            name=mine.name,
            software=mine.software,
            successors=own.successors(),
            positions=some_of(own.positions()),
            root=own.root(),
            replication=replication,
            founded_replication=founded,
        )

    def _namesake(self, hello: NodeHello) -> greeting.Namesake | None:
        """Another node that is alive, as far as this one knows, and has this name."""
        if not hello.name:
            return None
        here = (link.hello for link in self._in.values() if link.hello is not None)
        for each in (self.own.hello, *here):
            if each.name == hello.name and each.node != hello.node:
                return greeting.Namesake(each.node, each.address)
        return None

    def _met(self, node: str, name: str, address: str) -> None:
        if self.names.get(node) == name:
            return
        self.names.pop(node, None)
        self.names[node] = name
        if len(self.names) > LINKS_MAX:
            del self.names[next(iter(self.names))]
        if name and name == self.own.hello.name:  # both serve already: nothing is refused any more
            log.warning("the node %s at %s has the name %r, as this node does: start one of the "
                        "two anew with another --name", node, address, name)  # fmt: skip

    def turned_away(self, link: Incoming, why: str) -> None:
        self._audited.link(link.from_address, "", "failed", why)

    def take(self, link: Incoming, envelope: Envelope) -> None:
        message, incarnation, to_incarnation = envelope
        hello = link.hello
        assert hello is not None
        link.incarnation = incarnation
        self.receiver.heard(_contact(hello, incarnation), to_incarnation, message)

    def ended(self, link: Incoming) -> None:
        self._strangers.pop(link, None)
        hello = link.hello
        if hello is None or self._in.get(hello.node) is not link:
            return
        del self._in[hello.node]
        if link.incarnation and not self._closed:
            self.receiver.link_lost(_contact(hello, link.incarnation))


def _contact(hello: NodeHello, incarnation: int) -> Contact:
    return Contact(
        hello.position, hello.node, incarnation, hello.address, hello.domain, hello.capacity
    )


def some_of(positions: tuple[int, ...]) -> tuple[int, ...]:
    """As many as a greeting may name, spread over all: who joins looks for a wide gap."""
    return positions[:: -(-len(positions) // ITEMS_MAX) or 1]


def _known(link: Incoming) -> greeting.Incoming:
    assert link.hello is not None
    return greeting.Incoming(link.hello.address, link.hello.boot)
