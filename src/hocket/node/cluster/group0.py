"""This node's part in group 0, beside Raft: who leads it, who votes in it, and what follows.

Whoever leads group 0 is the root of the ring, and its term is the epoch of its beacons. It has all
nodes of the registry among the members of the group: a few as voters (`core.group0.voters`), the
others as learners. A node that hears no leader asks the nodes that it knows, one after the
other: what it has of the log may be too old to name the members of today, or it is new and has
nothing. It believes only who is a member as far as it knows, or who was named to it by a node that
it has asked, of its own cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hocket.core.group0.forwards import Forwards, Root
from hocket.core.group0.messages import Forward, Forwarded, RootIs, WhoLeads
from hocket.core.group0.settings import Group0Settings
from hocket.core.group0.voters import voters_for
from hocket.core.metadata.metadata import GROUP
from hocket.core.raft.events import Propose
from hocket.core.raft.membership import Configuration, Mode
from hocket.core.raft.progress import Progress
from hocket.core.ring.contact import Contact, seed
from hocket.node.cluster.ring_member import RingMember
from hocket.node.node import Node
from hocket.node.replication.replicas import Replicas
from hocket.ports import Links

log = logging.getLogger("hocket.node")
LAG_MAX = 1_000  # entries that a node may lack and be made a voter
COMPLAINTS_MAX = 100


class MetadataGroup:
    def __init__(
        self, node: Node, ring: RingMember, *, links: Links, settings: Group0Settings
    ) -> None:
        self.caught_up = False  # once in this life this node had all that the root had
        self.on_caught_up: list[Callable[[], None]] = []
        self.on_leading: list[Callable[[], None]] = []
        self.seeds: tuple[str, ...] = ()  # addresses by which the cluster may be found
        self._node = node
        self._ring = ring
        self._links = links
        self._settings = settings
        self._replicas: Replicas | None = None
        self._seen: dict[str, Contact] = {}  # where nodes are that have spoken, by store
        self._named: Contact | None = None  # the root, as a node says that was asked
        # By store: the life of it that is known, and the same as what `contact_of` gives.
        self._contacts: dict[str, tuple[Contact, Contact]] = {}
        self._silence = 0  # ticks since a leader was known, or asked for
        self._turn = 0
        self._request = 0
        self._is_reading = False
        # The version of the registry, members and who is fit, when the members were right.
        self._settled_for: tuple[int, Configuration, set[str]] | None = None
        self._complaints: set[str] = set()
        node.handing_on.begin(Forwards(ring.core.me.incarnation, settings), self.root, self._send)
        node.taking_over.begin(self._send)

    def begin(self, replicas: Replicas, term_min: int) -> None:
        self._replicas = replicas
        self._node.replicate_by(replicas, self, term_min)

    # --- who leads -------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        return self._node.group0.leads

    def root(self) -> Root | None:
        """Who leads, and may be asked for changes."""
        group0 = self._node.group0
        if group0.leader == self._ring.settings.node:
            return Root(self._ring.core.me, group0.term) if group0.leads else None
        contact = self.contact_of(group0.leader) if group0.leader else None
        return None if contact is None else Root(contact, group0.term)

    def contact_of(self, node: str) -> Contact | None:
        """Whichever life of the node is there; None: nobody knows the node."""
        known, seen = self._node.registering.known(node), self._seen.get(node)
        if known is not None and seen is not None and seen.incarnation >= known.incarnation:
            known = seen
        if known is None and self._named is not None and self._named.node == node:
            known = self._named
        if known is None:
            return None
        told = self._contacts.get(node)
        if told is None or told[0] is not known:  # there is one for every message that is sent
            told = self._contacts[node] = known, known._replace(incarnation=0)
        return told[1]

    def begins(self, term: int) -> None:
        self._ring.lead(term)
        for tell in self.on_leading:
            tell()

    def ends(self) -> None:
        self._ring.cease()

    def changed(self) -> None:
        group0 = self._node.group0
        contact = self.contact_of(group0.leader) if group0.leader else None
        if contact is not None:
            self._ring.elected(group0.term, contact.address)

    # --- what other nodes say --------------------------------------------------------------------

    def spoke(self, sender: Contact) -> None:
        """A node has said something, about whatever: so it is where it says it is."""
        if self._seen.get(sender.node) is sender:
            return  # as ever: every message comes by here
        known = self._node.registering.known(sender.node)
        if known is not None and sender.incarnation >= known.incarnation:
            self._seen[sender.node] = sender

    def heard(self, sender: Contact, message: Any) -> None:
        if isinstance(message, Forward):
            if self._node.registering.known(sender.node) is None:
                self._complain(f"node {sender.node} hands a request on, and is no member")
            else:
                self._node.taking_over.heard(sender, message)
        elif isinstance(message, Forwarded):
            self._node.handing_on.heard(sender, message)
        elif isinstance(message, WhoLeads):
            self._asked(sender, message)
        else:
            assert isinstance(message, RootIs)
            self._told(sender, message)

    def _asked(self, sender: Contact, message: WhoLeads) -> None:
        cluster = self._node.cluster
        if message.cluster != cluster:
            self._complain(
                f"node {sender.node} belongs to the cluster {message.cluster}, and this is "
                f"{cluster}"
            )
            self._send(sender, RootIs(message.request, cluster, "", "", 0))
            return
        root = self.root()
        if root is not None:
            who = root.contact
            self._send(sender, RootIs(message.request, cluster, who.node, who.address, root.term))

    def _told(self, sender: Contact, message: RootIs) -> None:
        if message.request != self._request or not self._request:
            return  # nobody has asked for it
        if message.cluster != self._node.cluster:
            self._complain(
                f"this node belongs to the cluster {self._node.cluster}, and node {sender.node} "
                f"to {message.cluster}: it cannot follow the metadata there"
            )
        elif message.node and message.term >= self._node.group0.term:
            assert self._replicas is not None
            self._named = seed(message.address)._replace(node=message.node)
            self._replicas.named[GROUP] = message.node

    def _complain(self, what: str) -> None:
        if what not in self._complaints and len(self._complaints) < COMPLAINTS_MAX:
            self._complaints.add(what)
            log.error("%s", what)

    # --- time ------------------------------------------------------------------------------------

    def tick(self) -> None:
        self._look_for_leader()
        if self.leads:
            self._look_after_members()
        if not self.caught_up and not self._is_reading and self._node.group0.leader:
            self._is_reading = True
            self._node.group0.read(self._was_read)
        self._node.handing_on.tick()

    def _was_read(self, is_read: bool) -> None:
        self._is_reading = False
        if is_read and not self.caught_up:
            self.caught_up = True
            for tell in self.on_caught_up:
                tell()

    def _look_for_leader(self) -> None:
        """Ask another node who leads, if this one knows nobody who does."""
        group0 = self._node.group0
        if group0.leader:
            self._silence = 0
            return
        self._silence += 1
        if self._silence % self._settings.ask_ticks != 1:
            return
        addresses = list(dict.fromkeys(self._addresses()))
        if not addresses:
            return
        self._turn += 1
        if self._turn % 8 == 1:
            self._request += 1  # answers to the last few questions count
        to = seed(addresses[self._turn % len(addresses)])
        self._links.send(self._ring.core.me, to, WhoLeads(self._request, self._node.cluster))

    def _addresses(self) -> Iterable[str]:
        me = self._ring.settings
        known = self._node.registering
        found = [
            self._ring.core.root_address,
            *self.seeds,
            *(each.address for each in self._seen.values()),
            *(each.address for each in (*known.members()[1], *known.left)),
        ]
        return (each for each in found if each and each != me.address)

    # --- who votes -------------------------------------------------------------------------------

    def _look_after_members(self) -> None:
        """Propose the members that the group should have, if they are others than it has."""
        replica, replicas = self._node.group0.replica, self._replicas
        assert replica is not None
        assert replicas is not None
        group, leading = replica.raft.group, replica.raft.leading
        if leading is None or replica.is_blocked or group.changes or group.configuration.is_joint:
            return
        registry = self._node.registering
        version, members = registry.members()
        me = self._ring.settings.node
        if not any(each.node == me for each in members):
            return  # it is not entered yet, or about to go: the next root decides
        now = group.configuration
        answering = {each for each in leading.peers if replicas.has_answered_lately(each)} | {me}
        fit = self._alive(leading.peers) & ({*now.voters} | answering) | {me}
        seen = version, now, fit
        if seen == self._settled_for:
            return  # as it was ten times in the last second
        voters = voters_for(members, leader=me, voters=now.voters, fit=fit)
        everybody = {each.node for each in (*members, *registry.left)}
        learners = tuple(sorted(everybody - {*voters}))
        if voters == now.voters and learners == now.learners:
            self._settled_for = seen
            return
        mode = Mode.AUTO
        if voters == now.voters:
            mode = Mode.SIMPLE
        elif 2 * len(answering & {*voters}) <= len(voters):
            # The change would be in force as soon as most of the old voters have it, if need be
            # under the next root. If most of the new ones are dead then, nobody can lead any more.
            return
        else:
            log.info("%d nodes vote in group 0 from now on: %s", len(voters), ", ".join(voters))
        replica.tell(Propose(voters, learners, mode))

    def _alive(self, peers: Mapping[str, Progress]) -> set[str]:
        """Those who live, as far as the ring knows, and have come as far as this node."""
        dead = {each.node: each.incarnation for each in self._ring.core.pointers.deaths.convicted}
        assert self._node.group0.replica is not None
        last = self._node.group0.replica.raft.group.outline.last
        return {
            each.node
            for each in self._node.registering.members()[1]
            if dead.get(each.node, -1) < each.incarnation
            and each.node in peers
            and peers[each.node].matched + LAG_MAX > last
            and peers[each.node].matched
        }

    def _send(self, to: Contact, message: object) -> None:
        if to.node == self._ring.settings.node:  # this node was asked by itself, and is the root
            self.heard(self._ring.core.me, message)
        else:
            self._links.send(self._ring.core.me, to, message)
