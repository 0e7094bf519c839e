"""Where a request goes: the nodes that a client knows, who leads what, and the sessions to them.

Rule 1: whoever is asked and does not lead says who does (`notHere`), and has done nothing. So
everything may follow such an answer, also what must not be done twice.
Rule 2: there is one session to each node that is needed. The first session goes to any node, in the
order of the URL and then of what was heard; it is kept for as long as the client. A session to a
named node is over as soon as its link is lost, and whoever used it asks the first session again.
Rule 3: there is no end to trying, since every wait has the caller's timeout; but after HOPS_MAX
moves in a row, and after every node that cannot be reached, there is a pause, longer each time.
After some pauses the other nodes are asked who leads, in turn with the first session's: a node that
is cut off from the others does not know, and cannot know that others do.
Rule 4: an address at which a node answered is that node's, whatever others say: a node need not
know by which address its clients reach it.
Rule 5: a topic whose partitions are on several nodes (`severalNodes`) is *spread*. Who leads each
partition is asked for (FindLeaders), and asked for anew whenever somebody was asked in vain. Each
owner of such a topic is for the partitions of one node; `located` tells it that the leaders are
known, and it opens itself there, or is split.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from hocket.addresses import DEFAULT_PORT, Address, parse_port, split_address
from hocket.client_core.outbox import Outbox
from hocket.client_core.session.answers import Unreachable, again, closed
from hocket.client_core.session.backoff import Backoff
from hocket.client_core.session.patience import GREETING_OF_LEADER_US, GREETING_US
from hocket.client_core.session.session import Owner, Route, Session
from hocket.cluster_model import NodeAddress, NodeDescription
from hocket.errors import (
    BadName,
    HocketError,
    NotHere,
    OutOfRange,
    ProtocolError,
    SeveralNodes,
)
from hocket.frames import FindLeaders, Frame, LeadersAre, Welcome, unpacked
from hocket.model import SECOND_US
from hocket.timers import Timer

HOPS_MAX = 3  # moves to a node that was just named, before there is a pause
PAUSES_ALONE = 5  # pauses after which the first session's node is not asked alone any more
IDLE_US = 60 * SECOND_US  # a session that nobody has used for so long is closed
ADDRESSES_MAX = 1000  # that are remembered, whatever a broker says
MISSED_MAX = 2  # greetings of a node, then it has the whole time for the next one
TRIED_MAX = 6  # of what was tried last, an error tells so many


Located = Callable[[HocketError | None], None]


@dataclass(slots=True)
class Search:
    """How a leader is looked for, since somebody last answered for it.

    An owner has a search of its own: that another one is served, by some of the same partitions,
    says nothing about the others.
    """

    backoff: Backoff
    hops: int = 0  # moves since the last pause
    pauses: int = 0
    tried: deque[str] = field(default_factory=lambda: deque(maxlen=TRIED_MAX))


class Router:
    def __init__(
        self,
        outbox: Outbox,
        *,
        target: str,
        addresses: Sequence[Address | None],
        watched: bool = True,
        name: str = "",
        token: str = "",
    ) -> None:
        self.outbox = outbox
        self.losses: dict[object, str] = {}  # see session.Session
        self._watched, self._name, self._token = watched, name, token
        self._numbers = count(1)
        self._missed: dict[str, int] = {}  # how often a node was tried and did not greet us
        self._nodes: dict[str, Address] = {}  # where each node is reached, as far as we heard
        self._leaders: dict[str, str] = {}  # of topics of one node: the node that was named last
        # Of topics that are spread: who leads each partition, empty where nobody is known to.
        self._spread: dict[str, list[str]] = {}
        self._locating: dict[str, list[Located]] = {}  # who waits for the leaders of a topic
        self._searches: dict[Route | Owner, Search] = {}  # of what nobody has answered for yet
        # Of partitions that were sought elsewhere: who refused, and whom it named. That holds for
        # the next answer to who leads what, and no longer: who was named may refuse, too.
        self._hints: dict[Route, tuple[str, str]] = {}
        self._by_node: dict[str, Session] = {}  # the sessions to nodes that were named
        self._pauses: list[Timer] = []  # of those who wait to ask again
        self._idle: set[int] = set()  # the sessions that had nothing to do at the last look
        self._idle_timer: Timer | None = None
        self.first = Session(
            outbox, target=target, addresses=addresses, watched=watched, name=name, token=token,
            router=self, losses=self.losses,
        )  # fmt: skip
        self.sessions: dict[int, Session] = {0: self.first}

    # --- where does this go ----------------------------------------------------------------------

    def where(self, route: Route) -> Session:
        node = self.leader_of(route)
        session = None if not node else self._session_to(node)
        return self._adviser(route.topic) if session is None else session

    def _adviser(self, topic: str) -> Session:
        """Whom to ask who leads the topic: see rule 3."""
        pauses = [each.pauses for route, each in self._open_searches() if route.topic == topic]
        turn = max(pauses, default=0) - PAUSES_ALONE
        if turn < 0:
            return self.first
        others = [node for node in self._nodes if node != self.first.node_id]
        node = [*others, ""][turn % (len(others) + 1)]
        return (self._session_to(node) if node else None) or self.first

    def leader_of(self, route: Route) -> str:
        """The node that is thought to lead it; empty: nobody is known to, or there are several."""
        leaders = self._spread.get(route.topic)
        if leaders is None:
            return self._leaders.get(route.topic, "")
        if route.partition < 0 and leaders and leaders.count(leaders[0]) == len(leaders):
            return leaders[0]
        return leaders[route.partition] if 0 <= route.partition < len(leaders) else ""

    def leaders(self, topic: str) -> Sequence[str] | None:
        """Who leads each partition, empty where nobody is known to; None: it is not spread."""
        return self._spread.get(topic)

    def is_spread(self, topic: str, partitions: int) -> None:
        """The topic has so many partitions, always; who leads them is told by `notHere` alone."""
        self._spread.setdefault(topic, [""] * partitions)

    def served(self, route: Route, owner: Owner | None = None) -> None:
        """Somebody answers for it: the owner, if there is one, is open."""
        self._searches.pop(owner or route, None)
        self._hints.pop(route, None)

    def tried(self, topic: str, partition: int = -1) -> str:
        """What was tried for it since somebody last answered for it, each once, in words.

        Without a partition: for the topic, and for each of its partitions.
        """
        searches = [
            search
            for route, search in self._open_searches()
            if route.topic == topic and partition in (-1, route.partition)
        ]
        return "; ".join(dict.fromkeys(each for search in searches for each in search.tried))

    def misplaced(
        self, asked: Session, route: Route, error: HocketError, owner: Owner | None = None
    ) -> Session | None:
        """Somebody asked here in vain. Who is to be asked at once; None: nobody, see `pause`."""
        search = self._search(owner or route)
        search.tried.append(_in_words(asked, error))
        self._name_leader(route, "")
        self._hints.pop(route, None)
        if not isinstance(error, NotHere) or not error.node:
            return None
        self.nodes_are([NodeAddress(error.node, error.address)])
        if error.node == asked.node_id or search.hops >= HOPS_MAX:
            return None
        session = self._session_to(error.node)
        if session is not None:
            search.hops += 1
            self._name_leader(route, error.node)
            self._hints[route] = asked.node_id, error.node
        return session

    def root_is_away(self, asked: Session, route: Route, error: HocketError) -> None:
        """The node that was asked knows of no root: it, or another one, may in a moment."""
        self._search(route).tried.append(f"{_who(asked)}: {error}")

    def _search(self, what: Route | Owner) -> Search:
        search = self._searches.get(what)
        if search is None:
            search = self._searches[what] = Search(Backoff(self.outbox.random))
        return search

    def _open_searches(self) -> list[tuple[Route, Search]]:
        """Those of owners that have ended are forgotten."""
        for what in list(self._searches):
            if not isinstance(what, Route) and not what.session.has(what):
                del self._searches[what]
        return [
            (what if isinstance(what, Route) else what.route, search)
            for what, search in self._searches.items()
        ]

    def _name_leader(self, route: Route, node: str) -> None:
        leaders = self._spread.get(route.topic)
        if leaders is None:
            self._leaders[route.topic] = node
        elif 0 <= route.partition < len(leaders):
            leaders[route.partition] = node

    def pause(self, what: Route | Owner, action: Callable[[], object]) -> Timer:
        """Have somebody asked again by `action`, after a while, or as the client ends."""
        search = self._searches.get(what)
        delay_us = 0
        if search is not None:  # else somebody else has found it meanwhile
            search.hops = 0
            search.pauses += 1
            delay_us = search.backoff.next_us()
        timer = self.outbox.arm(delay_us, action)
        self._pauses = [each for each in self._pauses if not each.cancelled]
        self._pauses.append(timer)
        return timer

    def redirect(self, owner: Owner, error: NotHere | SeveralNodes) -> bool:
        if not owner.session.has(owner):
            return False
        if isinstance(error, SeveralNodes):
            is_news = owner.route.topic not in self._spread
            self._spread.setdefault(owner.route.topic, [])
            if is_news or self._may_hop(owner, error):
                _move(owner, self.first)
                self.locate_for(owner)
            else:
                self._pause(owner)
            return True
        if not error.node and owner.route.topic not in self._spread:
            return False
        session = self.misplaced(owner.session, owner.route, error, owner)
        if session is None:
            self._pause(owner)
        elif owner.route.topic in self._spread:
            _move(owner, self.first)
            self.locate_for(owner)  # its partitions may have gone to more than one node
        else:
            self.open_at(owner, session)
        return True

    def _may_hop(self, owner: Owner, error: HocketError) -> bool:
        """Whether to ask at once who leads its partitions: somebody has just said so, wrongly."""
        search = self._search(owner)
        search.tried.append(f"{_who(owner.session)}: {error}")
        search.hops += 1
        return search.hops <= HOPS_MAX

    def open_at(self, owner: Owner, session: Session) -> None:
        _move(owner, session)
        if session.state == "ready":
            owner.open_again()

    def open_at_leader(self, owner: Owner, node: str = "") -> None:
        node = node or self.leader_of(owner.route)
        session = self._session_to(node) if node else None
        if session is not None:
            self.open_at(owner, session)
            return
        topic, partition = owner.route
        nobody = f"nobody is known to lead partition {partition} of topic {topic!r}"
        self._search(owner).tried.append(nobody)
        self._pause(owner)

    def _pause(self, owner: Owner) -> None:
        _move(owner, self.first)
        self.pause(owner, partial(self._try_again, owner))

    def _try_again(self, owner: Owner) -> None:
        if owner.session is not self.first or not self.first.has(owner):
            return  # it has ended
        if owner.route.topic in self._spread:
            self.locate_for(owner)
        elif not owner.is_asked_for:  # by way of another link, that came while it waited
            self.open_at(owner, self.where(owner.route))  # others may have found it meanwhile

    # --- topics that are spread ------------------------------------------------------------------

    def locate(self, topic: str, located: Located) -> None:
        """Ask who leads each partition. `located` is told when that is known, or why it is not."""
        waiting = self._locating.get(topic)
        if waiting is not None:
            waiting.append(located)
            return
        self._locating[topic] = [located]
        self._ask_who_leads(topic, self._adviser(topic))

    def _ask_who_leads(self, topic: str, asked: Session) -> None:
        def answered(answer: Frame | HocketError) -> None:
            if isinstance(answer, HocketError) and asked is not self.first:
                # It was asked for advice only. That it permits nothing, say, is worth telling.
                for route, search in self._open_searches():
                    if route.topic == topic:
                        search.tried.append(f"{_who(asked)}: {answer}")
                self._ask_who_leads(topic, self.first)
            else:
                self._found(topic, answer)

        try:
            asked.request(FindLeaders(0, topic), answered, repeatable=True)
        except HocketError as error:  # the client was closed
            self._found(topic, error)

    def locate_for(self, owner: Owner) -> None:
        def located(error: HocketError | None) -> None:
            if owner.session.has(owner):  # else it has ended meanwhile
                owner.located(error)

        self.locate(owner.route.topic, located)

    def _found(self, topic: str, answer: Frame | HocketError) -> None:
        error: HocketError | None = None
        if isinstance(answer, LeadersAre) and answer.leaders:
            self.nodes_are(answer.nodes)
            nodes = [each.node for each in answer.nodes]
            self._leaders.pop(topic, None)
            self._spread[topic] = [
                self._led_by(Route(topic, number), nodes[place] if place < len(nodes) else "")
                for number, place in enumerate(unpacked(answer.leaders))
            ]
            self._hints = {r: hint for r, hint in self._hints.items() if r.topic != topic}
        elif isinstance(answer, HocketError):
            error = answer
        else:
            error = ProtocolError(f"{type(answer).__name__} came in answer to FindLeaders")
        for located in self._locating.pop(topic):
            located(None if error is None else again(error))

    def _led_by(self, route: Route, named: str) -> str:
        """Who leads it, if a node names this one: whoever keeps it knows more than others do."""
        asked, leader = self._hints.get(route, ("", ""))
        return leader if named and named == asked else named

    # --- nodes -----------------------------------------------------------------------------------

    def greeted(self, session: Session, welcome: Welcome) -> None:
        address = session.address
        self._missed.pop(welcome.id, None)
        if welcome.id and address is not None:
            self._nodes[welcome.id] = address
        self.nodes_are(welcome.nodes)

    def nodes_are(self, nodes: Iterable[NodeAddress | NodeDescription]) -> None:
        """Remember what is new; the first session may go on by it."""
        met = {each.node_id for each in self.sessions.values() if each.state == "ready"}
        for each in nodes:
            address = _parsed(each.address)
            if address is None or each.node in met:  # rule 4
                continue
            self._nodes[each.node] = address
            addresses = self.first.addresses
            if address not in addresses and len(addresses) < ADDRESSES_MAX:
                addresses.append(address)

    def session_at(self, node: NodeAddress) -> Session | None:
        """The session to this node; None: its address is none that one could go to."""
        self.nodes_are([node])
        return self._session_to(node.node)

    def _session_to(self, node: str) -> Session | None:
        """The session to the node, which is opened if there is none; None: nobody said where."""
        if self.first.node_id == node and self.first.state == "ready":
            return self.first
        session = self._by_node.get(node)
        if session is not None:
            return session
        address = self._nodes.get(node)
        if address is None or self.first.failure is not None:
            return None
        was_missed = self._missed.get(node, 0) >= MISSED_MAX
        number = next(self._numbers)
        session = Session(
            self.outbox, target=f"node {node} at {address}", addresses=[address],
            watched=self._watched, name=self._name, token=self._token, number=number, router=self,
            cluster=self.first.cluster, losses=self.losses,
            greeting_us=GREETING_US if was_missed else GREETING_OF_LEADER_US,
        )  # fmt: skip
        self.sessions[number] = self._by_node[node] = session
        session.start()
        self._look_for_idle_later()
        return session

    # --- sessions that end -----------------------------------------------------------------------

    def unreachable(self, session: Session, error: HocketError) -> bool:
        if session is self.first:
            return False
        if session.node_id:
            self.outbox.report("warning", "lost the connection to %s: %s", session.target, error)
        else:
            for node in [node for node, each in self._by_node.items() if each is session]:
                self._missed[node] = self._missed.get(node, 0) + 1
        owners = session.owners()
        for owner in owners:
            session.remove(owner)
        gone = Unreachable(f"{session.target} is not reached: {error}")
        session.close(gone)
        for owner in owners:
            self.misplaced(session, owner.route, gone, owner)
            self._pause(owner)
        return True

    def ended(self, session: Session, error: HocketError) -> None:
        if session is self.first:
            for other in list(self._by_node.values()):
                other.close(again(error))
            for pause in self._pauses:
                pause()
        else:
            del self.sessions[session.number]
            self._by_node = {
                node: each for node, each in self._by_node.items() if each is not session
            }

    def _look_for_idle_later(self) -> None:
        if self._idle_timer is None:
            self._idle_timer = self.outbox.arm(IDLE_US // 2, self._look_for_idle)

    def _look_for_idle(self) -> None:
        self._idle_timer = None
        idle = {number for number, each in self.sessions.items() if each.is_idle} - {0}
        for number in idle & self._idle:
            self.sessions[number].close(closed("the session"))
        self._idle = idle - self._idle
        if self._by_node:
            self._look_for_idle_later()

    # --- all of them -----------------------------------------------------------------------------

    def owners(self) -> list[Owner]:
        return [owner for session in self.sessions.values() for owner in session.owners()]

    def deliver(self) -> bool:
        """Have all owners send off what gathers; True once everything is acknowledged."""
        delivered = [session.deliver() for session in self.sessions.values()]
        return all(delivered)

    def close(self, error: HocketError) -> None:
        self.first.close(error)

    def forked(self, error: HocketError) -> None:
        for session in self.sessions.values():
            session.forked(error)

    def go_on(self, error: HocketError) -> None:
        """Another engine drives all this now, and cannot use the present links."""
        for session in list(self._by_node.values()):
            self.unreachable(session, error)
        self.first.go_on(error)


def _move(owner: Owner, session: Session) -> None:
    """Have the owner be of this session; whoever is ready, or becomes it, opens the owner."""
    owner.session.remove(owner)
    owner.session = session
    session.adopt(owner)


def _parsed(text: str) -> Address | None:
    """None: it is no address that one could go to; what a broker says is not to be trusted."""
    try:
        host, port = split_address(text)
        if not host:  # a node that has left: nobody knows where it is
            return None
        return Address(host, DEFAULT_PORT if port is None else parse_port(port, least=1))
    except (BadName, OutOfRange):
        return None


def _in_words(asked: Session, error: HocketError) -> str:
    if isinstance(error, NotHere):
        there = f"node {error.node}" + (f" at {error.address}" if error.address else "")
        return f"{_who(asked)} names {there}"
    return str(error)


def _who(asked: Session) -> str:
    return f"node {asked.node_id}" if asked.node_id else asked.target
