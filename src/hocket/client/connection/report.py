"""How a core says something that is for the log: the engine that drives the core writes it there.

Cores do no logging, so that a test or a simulation hears what they say instead.
"""

from __future__ import annotations

from typing import Literal, Protocol

Level = Literal["info", "warning"]


class Report(Protocol):
    def __call__(self, level: Level, text: str, *facts: object) -> None:
        """`facts` are what `text` is formatted with, by %."""
