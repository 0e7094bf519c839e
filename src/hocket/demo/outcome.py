"""What a scene of the demo gives back, and how it fails."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Outcome:
    """One line of the table."""

    connections: int
    messages: int
    size: int  # bytes, both ways
    note: str
    seconds: float = 0.0


def check(fact: bool, promise: str) -> None:
    if not fact:
        raise SystemExit(f"demo failed: {promise}")
