"""Numbers for what one node asks of others."""

from __future__ import annotations


class Requests:
    """One count of request numbers for all who ask."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0  # 0 is the number of what nobody asked for

    def take(self) -> int:
        self.last += 1
        return self.last
