"""A call: one request, and how its answer is read. An engine makes it (`Engine.call`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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


def outcomes(calls: Sequence[Call[T]], answers: Sequence[Frame | HocketError]) -> list[T]:
    """What the answers mean; raises the first error among them."""
    found: list[T] = []
    for call, answer in zip(calls, answers, strict=True):
        outcome = call.outcome(answer)
        if isinstance(outcome, HocketError):
            raise outcome
        found.append(outcome)
    return found
