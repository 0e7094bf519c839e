"""Deliveries that differ in their subscription alone: their payload is sent once.

Many subscriptions of one client to one topic, a gateway's say, are told the same at the same time.
They are told one after the other, so it is enough to look at the delivery before. What is held here
is sent before any other frame, and at the end of the turn, so the order of frames stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hocket.frames import Deliver, DeliverAlike, packed

if TYPE_CHECKING:
    from typing_extensions import Buffer

HANDLES_MAX = 1024  # of one frame


class Alike:
    """Falsy while nothing is held."""

    __slots__ = ("_first", "_handles", "_payload")

    def __init__(self) -> None:
        self._first: Deliver | None = None
        self._payload: Sequence[Buffer] = ()
        self._handles: list[int] = []

    def __bool__(self) -> bool:
        return self._first is not None

    def joins(self, frame: Deliver, payload: Sequence[Buffer]) -> bool:
        """Whether it differs in its handle alone from what is held; then it is held as well."""
        first = self._first
        if (
            first is None
            or not _are_same(payload, self._payload)
            or frame.offset != first.offset
            or frame.partition != first.partition
            or frame.end != first.end
            or len(self._handles) == HANDLES_MAX
        ):
            return False
        self._handles.append(frame.handle)
        return True

    def hold(self, frame: Deliver, payload: Sequence[Buffer]) -> None:
        """Nothing else is held."""
        self._first, self._payload = frame, payload
        self._handles = [frame.handle]

    def take(self) -> tuple[Deliver | DeliverAlike, Sequence[Buffer]]:
        """What is held, as one frame; it is held no more."""
        first, payload = self._first, self._payload
        assert first is not None
        self._first, self._payload = None, ()
        if len(self._handles) == 1:
            return first, payload
        handles = packed(self._handles)
        return DeliverAlike(0, handles, first.partition, first.offset, first.end), payload


def _are_same(these: Sequence[Buffer], those: Sequence[Buffer]) -> bool:
    """The same memory, without a look at what is in it."""
    return these is those or (
        len(these) == len(those)
        and all(one is other for one, other in zip(these, those, strict=True))
    )
