"""What partitions hold, asked of the nodes that hold them: `hocket topic list` at any node.

A node that does not answer in time is not asked again for a moment: what a client asks of many of
its topics one after the other shall not wait for it each time. The moment ends when the node says
anything: it is back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hocket.core.placement.descriptions import (
    GROUPS_MAX,
    DescriptionMessage,
    GetPartitions,
    PartitionsAre,
)
from hocket.core.ring.contact import Contact
from hocket.model import PartitionDescription
from hocket.node.node import Node
from hocket.ports import Cancellable, Links, Timers

ANSWER_US = 1_000_000  # for an answer
SILENT_US = 2_000_000  # for how long a node that did not answer is not asked again
QUESTIONS_MAX = 10_000  # that wait for an answer

Told = dict[int, PartitionDescription]  # by their numbers


@dataclass(slots=True)
class _Inquiry:
    """Of one topic: some questions to one node, and what was answered so far."""

    node: str
    done: Callable[[Told], None]
    left: set[int] = field(default_factory=set)  # questions without an answer
    told: Told = field(default_factory=dict)
    patience: Cancellable | None = None


class Descriptions:
    """The `Others` of a node in a cluster (`node.requests.topics`)."""

    def __init__(
        self,
        node: Node,
        *,
        me: Callable[[], Contact],
        timers: Timers,
        links: Links,
        catch_up: Callable[[Callable[[], None]], None],
    ) -> None:
        """`catch_up` calls its argument when this node may know of groups that are new."""
        self._node = node
        self._me = me
        self._catch_up = catch_up
        self._timers = timers
        self._links = links
        self._inquiries: dict[int, _Inquiry] = {}  # by the number of the question
        self.silent: dict[str, Cancellable] = {}  # nodes that are not asked for a moment
        self._last = 0

    def ask(self, node: str, groups: Sequence[int], done: Callable[[Told], None]) -> None:
        to = self._contact(node)
        if to is None or node in self.silent or len(self._inquiries) >= QUESTIONS_MAX:
            done({})
            return
        inquiry = _Inquiry(node, done)
        for start in range(0, len(groups), GROUPS_MAX):
            self._last += 1
            inquiry.left.add(self._last)
            self._inquiries[self._last] = inquiry
            question = GetPartitions(self._last, tuple(groups[start : start + GROUPS_MAX]))
            self._links.send(self._me(), to, question)
        inquiry.patience = self._timers.after(ANSWER_US, lambda: self._too_late(inquiry))

    def heard(self, sender: Contact, message: DescriptionMessage) -> None:
        if isinstance(message, GetPartitions):
            groups = message.groups[:GROUPS_MAX]
            if len(self._node.described(groups)) == len(groups):
                self._tell(sender, message.request, groups)
            else:  # who asks may know of a topic that was made a moment ago, and not yet here
                self._catch_up(lambda: self._tell(sender, message.request, groups))
            return
        inquiry = self._inquiries.get(message.request)
        if inquiry is None or inquiry.node != sender.node:
            return
        del self._inquiries[message.request]
        inquiry.left.remove(message.request)
        inquiry.told |= {each.partition: each for each in message.partitions}
        if not inquiry.left:
            self._end(inquiry)

    def spoke(self, node: str) -> None:
        """The node has said something, to whatever part of this one."""
        moment = self.silent.pop(node, None)
        if moment is not None:
            moment.cancel()

    def _tell(self, asker: Contact, request: int, groups: Sequence[int]) -> None:
        found = self._node.described(groups)
        self._links.send(self._me(), asker, PartitionsAre(request, found))

    def close(self) -> None:
        for inquiry in self._inquiries.values():
            if inquiry.patience is not None:
                inquiry.patience.cancel()
        for moment in self.silent.values():
            moment.cancel()
        self._inquiries.clear()
        self.silent.clear()

    def _too_late(self, inquiry: _Inquiry) -> None:
        for number in inquiry.left:
            del self._inquiries[number]
        node = inquiry.node
        if not inquiry.told and node not in self.silent:
            self.silent[node] = self._timers.after(SILENT_US, lambda: self._ask_again(node))
        self._end(inquiry)

    def _ask_again(self, node: str) -> None:
        del self.silent[node]

    def _end(self, inquiry: _Inquiry) -> None:
        if inquiry.patience is not None:
            inquiry.patience.cancel()
        inquiry.done(inquiry.told)

    def _contact(self, node: str) -> Contact | None:
        """Whichever life of the node is there; None: nobody knows the node."""
        known = self._node.registering.known(node)
        return None if known is None else known._replace(incarnation=0)
