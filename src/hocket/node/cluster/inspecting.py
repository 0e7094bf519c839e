"""Gathers how all nodes see the ring: asks those it knows, then those whom they name.

A node that does not answer in time is silent: dead, stopped, or cut off from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hocket.core.ring.contact import Contact
from hocket.core.ring.views import ON_THE_RING, GetView, ViewIs, named_in, view_of
from hocket.node.cluster.ring_member import RingMember
from hocket.ports import Cancellable, Links, Timers

ANSWER_US = 1_000_000  # for an answer; who is asked later than others gets as long
ASKED_MAX = 10_000


@dataclass(slots=True)
class Gathered:
    views: list[ViewIs]  # of the nodes on the ring, sorted by position
    silent: list[Contact]  # that a node on the ring counts on, sorted by position


@dataclass(slots=True)
class _Question:
    done: Callable[[Gathered], None]
    asked: dict[str, Contact] = field(default_factory=dict)  # by address
    views: dict[str, ViewIs] = field(default_factory=dict)  # by address
    patience: Cancellable | None = None


class Inspecting:
    def __init__(self, ring: RingMember, name: str, *, timers: Timers, links: Links) -> None:
        self._ring = ring
        self._name = name
        self._timers = timers
        self._links = links
        self._questions: dict[int, _Question] = {}  # by number
        self._last = 0

    def own_view(self, request: int = 0) -> ViewIs:
        return view_of(self._ring.core, request, self._name)

    def gather(self, done: Callable[[Gathered], None], others: Iterable[Contact] = ()) -> None:
        """`done` is called once, within seconds. `others` are asked although nobody names them."""
        self._last += 1
        number = self._last
        question = self._questions[number] = _Question(done)
        me = self._ring.core.me
        own = self.own_view()
        question.asked[me.address] = me
        question.views[me.address] = own
        self._ask(number, question, [*named_in(own), *others])
        self._end_if_done(number, question)

    def heard(self, sender: Contact, message: GetView | ViewIs) -> None:
        if isinstance(message, GetView):
            self._links.send(self._ring.core.me, sender, self.own_view(message.request))
            return
        question = self._questions.get(message.request)
        if question is None or sender.address not in question.asked:
            return
        question.views[sender.address] = message
        if message.standing in ON_THE_RING:
            self._ask(message.request, question, named_in(message))
        self._end_if_done(message.request, question)

    def close(self) -> None:
        for question in self._questions.values():
            if question.patience is not None:
                question.patience.cancel()
        self._questions.clear()

    def _ask(self, number: int, question: _Question, contacts: Iterable[Contact]) -> None:
        for contact in contacts:
            if contact.address in question.asked or len(question.asked) >= ASKED_MAX:
                continue
            question.asked[contact.address] = contact
            # To whichever life is there: a node that is back after a fault shall answer as well.
            self._links.send(self._ring.core.me, contact._replace(incarnation=0), GetView(number))
            if question.patience is not None:
                question.patience.cancel()
            question.patience = self._timers.after(ANSWER_US, lambda: self._end(number))

    def _end_if_done(self, number: int, question: _Question) -> None:
        if len(question.views) == len(question.asked):
            self._end(number)

    def _end(self, number: int) -> None:
        question = self._questions.pop(number, None)
        if question is None:
            return
        if question.patience is not None:
            question.patience.cancel()
        views = [view for view in question.views.values() if view.standing in ON_THE_RING]
        views.sort(key=lambda view: view.me)
        counted_on = dict.fromkeys(each for view in views for each in _leaned_on(view))
        answered = {view.me.node for view in question.views.values()}
        silent = {each.node: each for each in counted_on if each.node not in answered}
        question.done(Gathered(views, sorted(silent.values())))


def _leaned_on(view: ViewIs) -> list[Contact]:
    """Those without whom the ring is not whole: a stale finger does no harm."""
    named = list(view.successors)
    return named if view.predecessor is None else [*named, view.predecessor]
