"""How the partitions of a topic fan out, asked of all nodes: `hocket ring --topic` at any of them.

A node that does not answer within a second is named as silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hocket import frames
from hocket.cluster_model import TreeNode
from hocket.core.placement.trees import GetTrees, TreeMessage, TreesAre
from hocket.core.ring.contact import Contact
from hocket.core.session.session import Demand, Session
from hocket.errors import Busy, ProtocolError
from hocket.frames import packed, unpacked
from hocket.model import PartitionId
from hocket.node.cluster.relays import Relays
from hocket.node.node import Node
from hocket.node.wiring import Servant
from hocket.ports import Cancellable, Links, Timers

ANSWER_US = 1_000_000  # for all answers
QUESTIONS_MAX = 100  # of clients, under way at a time: each is one to every node


@dataclass(slots=True)
class _Question:
    connection: int
    request: int
    left: dict[str, None]  # nodes that have not answered
    found: list[TreeNode] = field(default_factory=list)
    patience: Cancellable | None = None


class Trees:
    def __init__(
        self, node: Node, relays: Relays, *, me: Callable[[], Contact], timers: Timers, links: Links
    ) -> None:
        self._node = node
        self._relays = relays
        self._me = me
        self._timers = timers
        self._links = links
        self._questions: dict[int, _Question] = {}
        self._last = 0

    def servants(self) -> dict[type, Servant]:
        return {frames.DescribeTree: self._describe}

    def _describe(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        if len(self._questions) >= QUESTIONS_MAX:
            raise Busy(f"{QUESTIONS_MAX} trees are being described at this moment; try again")
        topic = demand.topic
        assert topic is not None
        me = self._me()
        _version, members = self._node.registering.members()
        others = [each for each in members if each.node != me.node]
        self._last += 1
        number = self._last
        question = _Question(connection, demand.frame.request, {each.node: None for each in others})
        question.found += self._own(topic.name, list(topic.groups))
        self._questions[number] = question
        ask = GetTrees(number, topic.name, packed(topic.groups))
        for each in others:
            self._links.send(me, each._replace(incarnation=0), ask)
        if not others:
            self._end(number)
        else:
            question.patience = self._timers.after(ANSWER_US, lambda: self._end(number))

    def heard(self, sender: Contact, message: TreeMessage) -> None:
        if isinstance(message, GetTrees):
            if len(message.groups) % 8:
                raise ProtocolError(f"groups of {len(message.groups)} bytes, not a multiple of 8")
            places = tuple(self._own(message.topic, unpacked(message.groups)))
            self._links.send(self._me(), sender, TreesAre(message.request, places))
            return
        question = self._questions.get(message.request)
        if question is None or sender.node not in question.left:
            return
        del question.left[sender.node]
        question.found += message.nodes
        if not question.left:
            self._end(message.request)

    def close(self) -> None:
        for question in self._questions.values():
            if question.patience is not None:
                question.patience.cancel()
        self._questions.clear()

    def _own(self, topic: str, groups: list[int]) -> Iterator[TreeNode]:
        """The places of this node in the trees of these partitions."""
        for number, group in enumerate(groups):
            served = self._node.feeding.served(group)  # directly, as their leader
            core = self._relays.cores.get(PartitionId(topic, number, group))
            if core is None and served is None:
                continue
            consumers, given_bytes = served or (0, 0)
            parent, children, reads_log = "", [], served is not None
            if core is not None:
                consumers += len(core.consumers)
                given_bytes += core.consumers.given_bytes + core.sent_bytes
                parent = "" if core.parent is None else core.parent.node
                children = list(core.children)
                reads_log = reads_log or core.is_owner
            yield TreeNode(
                number, self._me().node, parent,
                tuple(each.contact.node for each in children),
                tuple(each.sent_bytes for each in children),
                consumers, given_bytes, served is not None, reads_log,
            )  # fmt: skip

    def _end(self, number: int) -> None:
        question = self._questions.pop(number, None)
        if question is None:
            return
        if question.patience is not None:
            question.patience.cancel()
        found = sorted(question.found, key=lambda each: (each.partition, each.node))
        answer = frames.TreeIs(question.request, tuple(found), tuple(question.left))
        self._node.answer(question.connection, answer)
