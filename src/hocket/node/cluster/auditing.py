"""The audit logs of all nodes, asked of them for an admin: `hocket audit` at any node.

A node that does not answer within a second is named as silent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hocket.core.placement.auditing import AuditHolds, AuditMessage, GetAudit, Page, joined
from hocket.core.ring.contact import Contact
from hocket.errors import Busy
from hocket.node.node import Node
from hocket.ports import Cancellable, Links, Timers

ANSWER_US = 1_000_000  # for all answers
QUESTIONS_MAX = 100  # of clients, under way at a time: each is one to every node

Done = Callable[[Page, tuple[str, ...]], None]


@dataclass(slots=True)
class _Question:
    done: Done
    left: dict[str, None]  # nodes that have not answered
    told: list[AuditHolds] = field(default_factory=list)
    patience: Cancellable | None = None


class Auditing:
    """The `Auditors` of a node in a cluster (`node.requests.auditing`)."""

    def __init__(
        self, node: Node, *, me: Callable[[], Contact], timers: Timers, links: Links
    ) -> None:
        self._node = node
        self._me = me
        self._timers = timers
        self._links = links
        self._questions: dict[int, _Question] = {}
        self._last = 0

    def gather(self, since_us: int, done: Done) -> None:
        if len(self._questions) >= QUESTIONS_MAX:
            raise Busy(f"the audit log is read {QUESTIONS_MAX} times at this moment; try again")
        me = self._me()
        _version, members = self._node.registering.members()
        others = [each for each in members if each.node != me.node]
        self._last += 1
        number = self._last
        question = _Question(done, {each.node: None for each in others})
        question.told.append(self._own(number, since_us))
        self._questions[number] = question
        for each in others:
            self._links.send(me, each._replace(incarnation=0), GetAudit(number, since_us))
        if not others:
            self._end(number)
        else:
            question.patience = self._timers.after(ANSWER_US, lambda: self._end(number))

    def heard(self, sender: Contact, message: AuditMessage) -> None:
        if isinstance(message, GetAudit):
            self._links.send(self._me(), sender, self._own(message.request, message.since_us))
            return
        question = self._questions.get(message.request)
        if question is None or sender.node not in question.left:
            return
        del question.left[sender.node]
        question.told.append(message)
        if not question.left:
            self._end(message.request)

    def close(self) -> None:
        for question in self._questions.values():
            if question.patience is not None:
                question.patience.cancel()
        self._questions.clear()

    def _own(self, request: int, since_us: int) -> AuditHolds:
        page = self._node.trail.since(since_us)
        return AuditHolds(request, tuple(page.records), page.next_us > 0)

    def _end(self, number: int) -> None:
        question = self._questions.pop(number, None)
        if question is None:
            return
        if question.patience is not None:
            question.patience.cancel()
        question.done(joined(question.told), tuple(question.left))
