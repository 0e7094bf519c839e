"""A request about partitions that several nodes lead: each is asked for its own.

Rule 1: the answer is given when every partition is answered for, or as soon as a node has refused.
Rule 2: what was done at one node stays done if another refuses or is silent. So an error says that
the request may have happened as soon as any node may have done its part, unless it is a question.
Rule 3: a topic may have grown since its leaders were asked for, and nobody who is asked for some
partitions knows that all are meant. So who leads what is asked again at the same time; that costs a
small request, and no time after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from hocket import frames
from hocket.client_core.calls.part import Part
from hocket.client_core.session.answers import is_read_only
from hocket.client_core.session.router import Router
from hocket.client_core.session.session import Route, Session
from hocket.errors import (
    HocketError,
    OutOfRange,
    ProtocolError,
    RootAway,
    SeveralNodes,
    UnknownIndex,
    UnknownPartition,
)
from hocket.frames import Frame, packed, unpacked
from hocket.model import IndexDescription
from hocket.timers import Timer

Spreadable = (
    frames.FindOffsets
    | frames.DeleteMessages
    | frames.ListIndexes
    | frames.SeekIndex
    | frames.DeleteIndex
)


class Spread:
    """One request to each node that leads partitions of it, and one answer made of theirs."""

    __slots__ = (
        "_answers", "_frame", "_is_over", "_located", "_missing", "_parts", "_put", "_refusal",
        "_repeatable", "_router", "_timer", "_topic", "_wanted",
    )  # fmt: skip

    def __init__(
        self,
        router: Router,
        frame: Spreadable,
        put: Callable[[Frame | HocketError], None],
        *,
        repeatable: bool,
    ) -> None:
        self._router = router
        self._frame = frame
        self._topic = frame.topic
        self._put = put
        self._repeatable = repeatable
        self._is_over = False
        self._located = False  # who leads what was asked for since this began
        # The partitions that are meant, as far as they are known; None: nothing was asked yet.
        self._wanted: list[int] | None = None
        self._parts: dict[tuple[int, ...], Part] = {}  # by partitions, those not answered
        self._answers: list[tuple[tuple[int, ...], Frame]] = []
        self._missing: dict[tuple[int, ...], HocketError] = {}  # where there is no such index
        self._timer: Timer | None = None  # of a pause
        self._refusal: RootAway | None = None  # the answer to who leads what, if it was that

    def ask(self) -> None:
        """Raises if the client is closed."""
        self._router.first.check_open()
        leaders = self._router.leaders(self._topic)
        if leaders and all(leaders) and self._is_about(len(leaders)):
            self._want(len(leaders))
        self._locate()

    @property
    def session(self) -> Session:
        """Of the first that has not answered."""
        return next((each.session for each in self._parts.values()), self._router.first)

    @property
    def refusal(self) -> RootAway | None:
        """Why it is asked again, or one of its parts is: nobody knows just now what there is."""
        refusals = (part.refusal for part in self._parts.values())
        return next((each for each in refusals if each is not None), self._refusal)

    @property
    def missing(self) -> str:
        """The partitions that nobody has answered for, in words."""
        late = sorted(number for numbers in self._parts for number in numbers)
        many = "s" if len(late) > 1 else ""
        return f" for partition{many} {', '.join(map(str, late))}" if late else ""

    @property
    def left(self) -> bool:
        if not self._parts:
            return self._timer is None and self._router.first.link is not None
        return all(part.left for part in self._parts.values())

    @property
    def may_have_happened(self) -> bool:
        if is_read_only(self._frame):
            return False
        return bool(self._answers) or any(p.may_have_happened for p in self._parts.values())

    def cancel(self) -> None:
        self._is_over = True
        for part in self._parts.values():
            part.cancel()
        self._forget_refusal()
        if self._timer is not None:
            self._timer.cancel()

    # --- which partitions are meant --------------------------------------------------------------

    def _is_about(self, partitions: int) -> bool:
        """Whether it can be meant for a topic of so many partitions."""
        frame = self._frame
        is_for_all = isinstance(frame, frames.DeleteMessages) and not frame.partitions
        return not is_for_all or len(unpacked(frame.offsets)) == partitions  # type: ignore[union-attr]

    def _want(self, partitions: int) -> None:
        """The topic has so many partitions: ask for those that were not asked for yet."""
        named = unpacked(self._frame.partitions)
        before = self._wanted or []
        self._wanted = named or list(range(partitions))
        self._scatter([each for each in self._wanted if each not in before])

    def _locate(self) -> None:
        self._timer = None
        self._located = False
        self._router.locate(self._topic, self._found)

    def _found(self, error: HocketError | None) -> None:
        if self._is_over:
            return
        if isinstance(error, RootAway):
            self._refusal = error
            self._router.root_is_away(self._router.first, Route(self._topic), error)
            self._timer = self._router.pause(Route(self._topic), self._locate)
            return
        self._forget_refusal()
        self._located = True
        leaders = self._router.leaders(self._topic)
        if error is not None or leaders is None:
            assert error is not None  # or the leaders would be known
            self._fail(error)
        elif not self._is_about(len(leaders)):
            self._fail(
                OutOfRange(
                    f"topic {self._topic!r} has {len(leaders)} partitions: name an offset for each"
                )
            )
        else:
            self._want(len(leaders))
            self._finish()

    def _forget_refusal(self) -> None:
        if self._refusal is not None:
            self._refusal = None
            self._router.served(Route(self._topic))

    # --- asking ----------------------------------------------------------------------------------

    def _scatter(self, numbers: Iterable[int]) -> None:
        by_leader: dict[str, list[int]] = {}
        for number in numbers:
            node = self._router.leader_of(Route(self._topic, number))
            by_leader.setdefault(node, []).append(number)
        for some in by_leader.values():
            self._ask_for(tuple(some), self._frame_for(some))

    def _ask_for(self, numbers: tuple[int, ...], frame: Spreadable) -> None:
        route = Route(self._topic, numbers[0])
        answered = partial(self._answered, numbers, frame)
        part = Part(self._router, frame, route, answered, repeatable=self._repeatable)
        self._parts[numbers] = part
        part.ask()

    def _frame_for(self, numbers: Sequence[int]) -> Spreadable:
        frame = self._frame
        if isinstance(frame, frames.DeleteMessages):
            assert self._wanted is not None
            offsets = dict(zip(self._wanted, unpacked(frame.offsets), strict=True))
            chosen = packed(offsets[number] for number in numbers)
            return replace(frame, partitions=packed(numbers), offsets=chosen)
        return replace(frame, partitions=packed(numbers))

    def _answered(
        self, numbers: tuple[int, ...], frame: Spreadable, answer: Frame | HocketError
    ) -> None:
        if self._is_over:
            return
        part = self._parts.pop(numbers)
        if isinstance(answer, SeveralNodes):
            self._look_again(part.session, numbers, answer)
        elif isinstance(answer, UnknownPartition) and self._was_made_anew(numbers):
            self._forget(numbers)  # there are fewer now; those that are left are asked for
            if self._located:
                self._found(None)
        elif isinstance(answer, HocketError) and not _is_missing(frame, answer):
            self._fail(answer)
        elif isinstance(answer, HocketError):
            self._missing[numbers] = answer
            self._finish()
        elif not _fits(frame, numbers, answer):
            said, asked = type(answer).__name__, type(frame).__name__
            error = ProtocolError(f"{said} came in answer to {asked}, and makes no sense there")
            error.may_have_happened = part.may_have_happened
            self._fail(error)
        else:
            self._answers.append((numbers, answer))
            if isinstance(answer, frames.Indexes) and answer.next:
                assert isinstance(frame, frames.ListIndexes)
                self._ask_for(numbers, replace(frame, after=answer.next))
            self._finish()

    def _look_again(self, asked: Session, numbers: tuple[int, ...], error: HocketError) -> None:
        """Whoever was asked for these has not all of them: find out who has."""
        self._forget(numbers)
        if self._located:  # else somebody is finding out just now
            self._located = False
            route = Route(self._topic, numbers[0])
            self._router.misplaced(asked, route, error)
            self._timer = self._router.pause(route, self._locate)

    def _was_made_anew(self, numbers: tuple[int, ...]) -> bool:
        """Whether the topic may have, or has, fewer partitions than when it was asked for these."""
        leaders = self._router.leaders(self._topic) or ()
        return not self._frame.partitions and (not self._located or numbers[-1] >= len(leaders))

    def _forget(self, numbers: tuple[int, ...]) -> None:
        """They are to be asked for anew, if they are meant."""
        assert self._wanted is not None
        self._wanted = [each for each in self._wanted if each not in numbers]

    # --- the answer ------------------------------------------------------------------------------

    def _fail(self, error: HocketError) -> None:
        error.may_have_happened |= self.may_have_happened
        self.cancel()
        self._put(error)

    def _finish(self) -> None:
        if self._is_over or self._parts or not self._located:
            return
        missing, self._missing = self._missing, {}
        if missing and not self._answers:
            self._fail(next(iter(missing.values())))
        elif missing and isinstance(self._frame, frames.SeekIndex):
            for numbers in missing:  # it has not been there yet: the topic has grown, say
                frame = replace(self._frame, partitions=packed(numbers), elsewhere=True)
                self._ask_for(numbers, frame)
        else:
            self._is_over = True
            self._put(merged(self._answers))


def _is_missing(frame: Spreadable, error: HocketError) -> bool:
    """Whether it says that the index is not there, which is no matter if another node has it."""
    told = isinstance(frame, frames.SeekIndex) and frame.elsewhere
    return isinstance(error, UnknownIndex) and not told


def _fits(frame: Spreadable, numbers: tuple[int, ...], answer: Frame) -> bool:
    """Whether it can be the answer for these partitions."""
    if isinstance(frame, frames.FindOffsets | frames.SeekIndex):
        return isinstance(answer, frames.Offsets) and len(answer.offsets) == 8 * len(numbers)
    if isinstance(frame, frames.ListIndexes):
        return isinstance(answer, frames.Indexes)
    return isinstance(answer, frames.Done)


def merged(answers: Sequence[tuple[tuple[int, ...], Frame]]) -> Frame:
    """One answer, made of those of several nodes; with each, the partitions that it is for."""
    first = answers[0][1]
    if isinstance(first, frames.Offsets):
        offsets = {
            number: offset
            for numbers, answer in answers
            if isinstance(answer, frames.Offsets)
            for number, offset in zip(numbers, unpacked(answer.offsets), strict=True)
        }
        return frames.Offsets(0, packed(offsets[number] for number in sorted(offsets)))
    if isinstance(first, frames.Indexes):
        found: dict[str, IndexDescription] = {}
        for _, answer in answers:
            if isinstance(answer, frames.Indexes):
                for each in answer.indexes:
                    known = found.get(each.name)
                    found[each.name] = each if known is None else joined(known, each)
        return frames.Indexes(0, tuple(found[name] for name in sorted(found)))
    return first


def joined(one: IndexDescription, other: IndexDescription) -> IndexDescription:
    """An index as two nodes describe it, each in its own partitions."""
    partitions = sorted((*one.partitions, *other.partitions), key=lambda each: each.partition)
    held = one.hold_retention or other.hold_retention
    return replace(one, hold_retention=held, partitions=tuple(partitions))
