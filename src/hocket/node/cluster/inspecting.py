"""Gathers how all nodes see the ring: asks those it knows, then those whom they name.

A node that does not answer in time is silent: dead, stopped, or cut off from here.

One question of a client is one to every node. So a few are under way at a time, whatever clients
ask; those who ask meanwhile share the next one, which begins after they have asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hocket.core.ring.contact import Contact
from hocket.core.ring.views import ON_THE_RING, GetView, ViewIs, named_in, view_of
from hocket.node.cluster.ring_member import RingMember
from hocket.ports import Cancellable, Links, Timers

ANSWER_US = 1_000_000  # for an answer; who is asked later than others gets as long
WHOLE_US = 5_000_000  # for all answers, whomever they name
ASKED_MAX = 4_000
UNDER_WAY_MAX = 4  # questions to all nodes at a time


@dataclass(slots=True)
class Gathered:
    views: list[ViewIs]  # of the nodes on the ring, sorted by position
    silent: list[Contact]  # that a node on the ring counts on, sorted by position


Done = Callable[[Gathered], None]


@dataclass(slots=True)
class _Question:
    done: list[Done]
    whole: Cancellable
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
        # Who waits for the next question to begin, by whether more are asked than others name.
        self._waiting: dict[bool, list[tuple[Done, list[Contact]]]] = {False: [], True: []}
        self._last = 0

    def own_view(self, request: int = 0) -> ViewIs:
        return view_of(self._ring.core, request, self._name)

    def gather(self, done: Done, others: Iterable[Contact] = ()) -> None:
        """`done` is called once, within seconds. `others` are asked although nobody names them."""
        asked = list(others)
        if len(self._questions) >= UNDER_WAY_MAX:
            self._waiting[bool(asked)].append((done, asked))
        else:
            self._begin([done], asked)

    def _begin(self, done: list[Done], others: list[Contact]) -> None:
        self._last += 1
        number = self._last
        whole = self._timers.after(WHOLE_US, lambda: self._end(number))
        question = self._questions[number] = _Question(done, whole)
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
        if sender.address in question.views:
            return  # it has answered: who names others all the time does not keep us waiting
        question.views[sender.address] = message
        if message.standing in ON_THE_RING:
            self._ask(message.request, question, named_in(message))
        self._end_if_done(message.request, question)

    def close(self) -> None:
        for question in self._questions.values():
            _cancel(question)
        self._questions.clear()
        for waiting in self._waiting.values():
            waiting.clear()

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
        _cancel(question)
        views = [view for view in question.views.values() if view.standing in ON_THE_RING]
        views.sort(key=lambda view: view.me)
        counted_on = dict.fromkeys(each for view in views for each in _leaned_on(view))
        answered = {view.me.node for view in question.views.values()}
        silent = {each.node: each for each in counted_on if each.node not in answered}
        gathered = Gathered(views, sorted(silent.values()))
        for done in question.done:
            done(gathered)
        self._go_on()

    def _go_on(self) -> None:
        """There is room for another question: all who wait for it share it."""
        for kind, waiting in self._waiting.items():
            if waiting and len(self._questions) < UNDER_WAY_MAX:
                self._waiting[kind] = []
                others = dict.fromkeys(each for _, asked in waiting for each in asked)
                self._begin([done for done, _ in waiting], list(others))


def _cancel(question: _Question) -> None:
    question.whole.cancel()
    if question.patience is not None:
        question.patience.cancel()


def _leaned_on(view: ViewIs) -> list[Contact]:
    """Those without whom the ring is not whole: a stale finger does no harm."""
    named = list(view.successors)
    return named if view.predecessor is None else [*named, view.predecessor]
