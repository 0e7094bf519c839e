"""A call: one request, and how its answer is read. An engine makes it (`Engine.call`).

A question whose answer may be too long for one frame is a `PagedCall`: the engine asks for one part
after the other (`Engine.call_paged`), and users notice nothing of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hocket.client_core.session.answers import is_read_only
from hocket.errors import HocketError, ProtocolError
from hocket.frames import Frame

T = TypeVar("T")


@dataclass(slots=True)
class Call(Generic[T]):
    """One request, and how its answer is read."""

    frame: Frame
    result: Callable[[Any], T]  # makes the result of the answer
    expects: type[Frame]
    changes: bool = False  # it changes something, and must not be sent twice
    forgives: type[HocketError] | None = None  # an error that means: it was so already

    def outcome(self, answer: Frame | HocketError) -> T | HocketError:
        if isinstance(answer, HocketError):
            if self.forgives is not None and isinstance(answer, self.forgives):
                return self.result(None)
            return answer
        if not isinstance(answer, self.expects):
            return ProtocolError(
                f"{type(answer).__name__} came in answer to {type(self.frame).__name__}"
            )
        return self.result(answer)


@dataclass(slots=True)
class PagedCall(Generic[T]):
    """A question that is asked in parts. A broker that knows of no parts answers all at once."""

    ask: Callable[[str], Frame]  # the request for what comes after this place; "": the first part
    expects: type[Frame]
    result: Callable[[list[Any]], T]  # makes the result of all answers

    def part(self, after: str) -> Call[Any]:
        return Call(self.ask(after), _as_it_is, self.expects)


def _as_it_is(answer: Any) -> Any:
    return answer


def outcomes(calls: Sequence[Call[T]], answers: Sequence[Frame | HocketError]) -> list[T]:
    """What the answers mean; raises the first error among them.

    What was asked for together may have happened as soon as one of the others has.
    """
    found: list[T] = []
    errors: list[HocketError] = []
    for call, answer in zip(calls, answers, strict=True):
        outcome = call.outcome(answer)
        if isinstance(outcome, HocketError):
            errors.append(outcome)
        else:
            found.append(outcome)
    if errors:
        done = bool(found) and not is_read_only(calls[0].frame)
        errors[0].may_have_happened |= done or any(each.may_have_happened for each in errors)
        raise errors[0]
    return found
