"""Questions to a group that are answered when this node has applied all that was committed before.

Raft says which entry that is (`ReadReady`); the token of its question is a call that answers it,
once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from hocket.core.raft.events import ReadReady

Answered = Callable[[bool], None]


class Reads:
    def __init__(self) -> None:
        self._open: dict[Answered, bool] = {}  # those that are not answered
        self._waiting: deque[tuple[int, Answered]] = deque()  # for this entry to be applied

    def ask(self, answered: Answered) -> Answered:
        """The token for Raft: a call that tells the answer."""

        def tell(is_read: bool) -> None:
            if self._open.pop(tell, False):
                answered(is_read)

        self._open[tell] = True
        return tell

    def ready(self, effect: ReadReady, applied: int) -> None:
        answered: Any = effect.token
        if effect.index <= applied:
            answered(True)
        else:
            self._waiting.append((effect.index, answered))

    def applied(self, index: int) -> None:
        """All entries up to this one are applied."""
        while self._waiting and self._waiting[0][0] <= index:
            self._waiting.popleft()[1](True)

    def give_up(self) -> None:
        """This node follows from now on: what waits to be applied is not waited for."""
        waiting, self._waiting = self._waiting, deque()
        for _index, answered in waiting:
            answered(False)

    def close(self) -> None:
        for answered in list(self._open):
            answered(False)
