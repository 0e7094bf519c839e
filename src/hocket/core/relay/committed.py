"""Which offsets of the partition are committed and can still be read."""

from __future__ import annotations


class Committed:
    """Only `intake` changes it; every other component reads it."""

    __slots__ = ("end", "start")

    def __init__(self) -> None:
        self.start = 0  # known at the owner only: retention has removed what is before it
        self.end = 0  # as far as this node knows
