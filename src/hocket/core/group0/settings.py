"""The settings of group 0. A tick is that of the node, a tenth of a second."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Group0Settings:
    ask_ticks: int = 5  # a node that hears no leader asks another node who leads, so often
    answer_ticks_max: int = 50  # a request that was handed on is refused after this
    repeat_ticks: int = 10  # a request that was handed on is sent again after this
