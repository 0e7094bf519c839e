"""Requests of clients about the cluster: its ring, its nodes, and who owns a key."""

from __future__ import annotations

from collections.abc import Callable

from hocket import frames
from hocket.cluster_model import NodeDescription, NodeState, RingNode
from hocket.core.ring.circle import position_of
from hocket.core.ring.events import Located, NotLocated
from hocket.core.ring.views import ViewIs, is_ideal
from hocket.core.session.session import Demand, Session, failure
from hocket.errors import Busy
from hocket.node.cluster.inspecting import Gathered, Inspecting
from hocket.node.cluster.ring_member import RingMember
from hocket.node.node import Node
from hocket.node.wiring import Servant

LOOKUPS_MAX = 1_000  # of clients, under way at a time: each may wait for nodes that are dead


class Describing:
    def __init__(
        self,
        node: Node,
        ring: RingMember,
        inspecting: Inspecting,
        name_of: Callable[[str], str],
    ) -> None:
        self._node = node
        self._ring = ring
        self._inspecting = inspecting
        self._name_of = name_of  # of a node, by its id; empty: not known
        self._lookups = 0  # under way

    def servants(self) -> dict[type, Servant]:
        return {
            frames.DescribeRing: self._describe_ring,
            frames.LookUpKey: self._look_up,
            frames.ListNodes: self._list_nodes,
        }

    def _describe_ring(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        request = demand.frame.request
        length = self._ring.settings.ring.successors

        def done(gathered: Gathered) -> None:
            is_whole = not gathered.silent and is_ideal(gathered.views, length)
            self._node.answer(
                connection,
                frames.RingIs(
                    request,
                    self._node.cluster,
                    is_whole,
                    length,
                    tuple(_ring_node(view) for view in gathered.views),
                    tuple(contact.node for contact in gathered.silent),
                ),
            )

        self._inspecting.gather(done)

    def _look_up(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.LookUpKey)
        if self._lookups >= LOOKUPS_MAX:
            raise Busy(f"{self._lookups} keys are being looked up at this node; try again")
        self._lookups += 1
        position = position_of(frame.key)

        def done(found: Located | NotLocated) -> None:
            self._lookups -= 1
            if isinstance(found, NotLocated):
                error = Busy(
                    f"the owner of {frame.key!r} was not found: this node is not on the ring, or "
                    "the ring is changing; try again"
                )
                self._node.answer(connection, failure(frame.request, error))
                return
            hops = tuple(contact.node for contact in found.route)
            answer = frames.KeyIsOwned(frame.request, position, found.owners[0].node, hops)
            self._node.answer(connection, answer)

        self._ring.find(position, done, by_fingers=not frame.cached)

    def _list_nodes(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.ListNodes)
        request = frame.request
        _version, members = self._node.registering.members()
        left = self._node.registering.left
        core = self._ring.core
        if frame.known:
            known = {member.node: member for member in (*members, *core.small.members)}
            found = (
                NodeDescription(
                    each.node, self._name_of(each.node), each.address, "alive", each.position,
                    each.domain,
                )
                for each in sorted(known.values())
            )  # fmt: skip
            self._node.answer(connection, frames.NodesAre(request, tuple(found)))
            return

        def done(gathered: Gathered) -> None:
            alive = {view.me.node: view for view in gathered.views}
            known = {member.node: member for member in (*left, *members, *core.small.members)}
            known |= {node: view.me for node, view in alive.items()}
            dead = {contact.node for contact in (*left, *core.pointers.deaths.convicted)}
            nodes = []
            for contact in sorted(known.values()):
                view = alive.get(contact.node)
                state: NodeState = "alive"
                if view is None:
                    state = "dead" if contact.node in dead else "suspect"
                name = self._name_of(contact.node) if view is None else view.name
                nodes.append(
                    NodeDescription(
                        contact.node, name, contact.address, state, contact.position, contact.domain
                    )
                )
            self._node.answer(connection, frames.NodesAre(request, tuple(nodes)))

        self._inspecting.gather(done, others=[*members, *core.small.members])


def _ring_node(view: ViewIs) -> RingNode:
    return RingNode(
        view.me.node,
        view.name,
        view.me.address,
        view.me.position,
        tuple(contact.node for contact in view.successors),
        "" if view.predecessor is None else view.predecessor.node,
        tuple(contact.node for contact in view.fingers),
    )
