"""How much of a partition's log may go: a plan from plain numbers, which the node carries out.

Whole segments go, the oldest first: each whose youngest record is too old, and, however young, as
many as it takes to be within the limit of bytes. A segment that an index holds back stays in any
case, and so does everything behind it. A segment without records has no age, and moves nothing:
what lies before it may be a loss that nobody has been told of yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Segment(Protocol):
    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...


def plan_log_start(
    segments: Sequence[Segment],
    *,
    log_start: int,
    now_us: int,
    retention_us: int | None,
    bytes_max: int | None,
    held_from: int | None,
) -> int:
    """The new log start; never less than `log_start`."""
    excess = sum(segment.bytes for segment in segments) - (bytes_max or 0)
    for segment in segments:
        expired = retention_us is not None and segment.max_timestamp < now_us - retention_us
        too_much = bytes_max is not None and excess > 0
        held = held_from is not None and segment.end_offset > held_from
        if held or not (expired or too_much):
            break
        if segment.end_offset > segment.base_offset:
            log_start = max(log_start, segment.end_offset)
        excess -= segment.bytes
    return log_start
