"""Requests that a node has handed on to the root, until each is answered; exactly once.

Rule 1: a request keeps its number when it is sent again, so that it is carried out once, whoever
        is the root by then.
Rule 2: a request is answered when what it has changed is applied at this node: who asked can read
        here what was written. So is a refusal, when what it was judged by is applied.
Rule 3: a request that is not answered in time is refused. It may have happened if it was sent.
Rule 4: no request under way is `KEPT` numbers behind the newest: the root remembers that many.
Rule 5: only the word of the root counts that a request was sent to last, in that term. An earlier
        one may have refused what the next one carries out.

The entry that carries a request out says so itself (`core.metadata.done`). Therefore the answer of
the root is needed for refusals alone, and where the entry came within a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from hocket.core.group0.messages import Forward, Forwarded
from hocket.core.group0.settings import Group0Settings
from hocket.core.metadata.done import KEPT
from hocket.core.ring.contact import Contact
from hocket.errors import Busy, HocketError, RootAway, from_code

LIFE_BITS = 32  # of a number that count the requests of one life


class Root(NamedTuple):
    """Who leads group 0, in which term."""

    contact: Contact
    term: int


@dataclass(slots=True)
class Send:
    to: Contact
    message: Forward


@dataclass(slots=True)
class UnderWay:
    forward: Forward
    sent_to: Root | None = None  # last
    age: int = 0  # in ticks
    since_sent: int = 0
    answer: Forwarded | None = None  # waits for this node to catch up


@dataclass(slots=True)
class Answer:
    """The request is answered: it was done, or this is the error."""

    number: int
    error: HocketError | None


Effect = Send | Answer


class Forwards:
    """`life` is a number that no life of this node has had before."""

    def __init__(self, life: int, settings: Group0Settings | None = None) -> None:
        self._settings = settings or Group0Settings()
        self._last = life << LIFE_BITS
        self._under_way: dict[int, UnderWay] = {}  # by number; the oldest first
        self._applied = 0

    def __contains__(self, number: int) -> bool:
        return number in self._under_way

    def ask(self, forward: Forward, root: Root | None) -> list[Effect]:
        """Hand a request on; sets its number. Raises Busy, or RootAway if nobody leads."""
        if root is None:
            raise away(may_have_happened=False)
        oldest = next(iter(self._under_way), self._last + 1)
        if self._last + 1 - oldest >= KEPT:
            raise Busy(
                f"{len(self._under_way)} changes of this node are under way at the root, the first "
                "of them for some time; try again"
            )
        self._last += 1
        forward.number = self._last
        self._under_way[self._last] = request = UnderWay(forward)
        return [self._send(request, root)]

    def applied(self, number: int) -> bool:
        """The entry that carries this request out took effect here. False: nobody waits."""
        return self._under_way.pop(number, None) is not None

    def applied_through(self, index: int) -> list[Effect]:
        """Everything up to this entry has taken effect here."""
        self._applied = index
        return [
            self._answer(number, request.answer)
            for number, request in list(self._under_way.items())
            if request.answer is not None and request.answer.index <= index
        ]

    def heard(self, sender: Contact, message: Forwarded) -> list[Effect]:
        request = self._under_way.get(message.number)
        if request is None or request.sent_to is None:
            return []  # it came twice, or too late
        if (sender.node, message.term) != (request.sent_to.contact.node, request.sent_to.term):
            return []  # see rule 5
        request.answer = message
        return [self._answer(message.number, message)] if message.index <= self._applied else []

    @property
    def is_waiting(self) -> bool:
        """Whether a request is under way."""
        return bool(self._under_way)

    def tick(self, root: Root | None) -> list[Effect]:
        effects: list[Effect] = []
        for number, request in list(self._under_way.items()):
            request.age += 1
            request.since_sent += 1
            if request.age >= self._settings.answer_ticks_max:
                effects.append(self._give_up(number, request))
            elif root is not None and not (request.answer and _is_same(request.sent_to, root)):
                is_late = request.since_sent >= self._settings.repeat_ticks
                if is_late or not _is_same(request.sent_to, root):
                    effects.append(self._send(request, root))
        return effects

    def _send(self, request: UnderWay, root: Root) -> Send:
        request.sent_to = root
        request.since_sent = 0
        request.answer = None
        return Send(root.contact, replace(request.forward, term=root.term))

    def _give_up(self, number: int, request: UnderWay) -> Answer:
        del self._under_way[number]
        if request.answer is not None and request.answer.code:
            return Answer(number, _error(request.answer))
        where = "" if request.sent_to is None else request.sent_to.contact.address
        return Answer(number, away(where, may_have_happened=True))

    def _answer(self, number: int, answer: Forwarded) -> Answer:
        del self._under_way[number]
        return Answer(number, _error(answer) if answer.code else None)


def _error(answer: Forwarded) -> HocketError:
    error = from_code(answer.code, answer.text)
    error.may_have_happened = answer.may_have_happened
    return error


def _is_same(one: Root | None, other: Root) -> bool:
    return one is not None and (one.contact.node, one.term) == (other.contact.node, other.term)


def away(where: str = "", *, may_have_happened: bool) -> RootAway:
    who = f"the cluster's root at {where} does not answer"
    if not where:
        who = "no node is known to lead the cluster's metadata: a root is being elected, or too "
        who += "few of its voters are there"
    error = RootAway(
        f"{who}; topics, users and rights cannot be changed without it; reading and data go on. "
        + ("Look whether it was changed, and try again" if may_have_happened else "Try again later")
    )
    error.may_have_happened = may_have_happened
    return error


def deposed() -> RootAway:
    """What those hear who wait for a change at a node that leads no more."""
    error = RootAway(
        "this node has ceased to lead the cluster's metadata before the change was committed: "
        "look whether it was made, and try again"
    )
    error.may_have_happened = True
    return error
