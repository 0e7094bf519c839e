"""A node that does not know a topic, a token or a right asks the root once how far it is, and looks
again.

Every node has all metadata, but some of it a moment later than others. A client may have made a
topic at another node, and must not hear here that there is none; nor a new user, whose client comes
to every node that has some of its topic, that its token is wrong. So whoever asks for something
unknown or forbidden waits until this node has what the root had when it was asked, for a second at
most. If the root has not answered by then, this node does not know whether the thing is there, and
says that (`knows`). Then nobody waits again until there is a root to ask.

One question is under way at a time, for all who wait. Whoever comes meanwhile waits for the next
one: the answer to this one may be older than what it asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hocket.ports import Cancellable, Timers

PATIENCE_US = 1_000_000  # after which is said what is known here
PAUSE_US = 20_000  # between two questions: who asks for nonsense all the time costs the root little
RETRY_US = 50_000  # after a question that was lost, or while there is no root
WAITING_MAX = 1_000  # requests

Again = Callable[[], None]
Answered = Callable[[bool], None]


class CatchingUp:
    def __init__(
        self,
        ask: Callable[[Answered], None],
        *,
        timers: Timers,
        end_turn: Callable[[], None],
    ) -> None:
        """`ask` calls its argument with True when this node has what the root has, and with False
        if that cannot be known."""
        self.knows = True  # while `again` is called: the root has answered
        self._ask = ask
        self._timers = timers
        self._end_turn = end_turn
        self._number = 0  # of the last question
        self._asked: list[Again] = []  # wait for its answer
        self._waiting: list[Again] = []  # wait for the next question
        self._timer: Cancellable | None = None  # a question is under way, or was just answered
        self._retry: Cancellable | None = None  # the question is asked again
        self._is_in_turn = False  # whoever asks sees to the end of the turn
        self._is_away = False  # the root was waited for in vain: nobody waits for it again

    def __call__(self, again: Again) -> None:
        """Call `again` once, when it is worth while to look again."""
        if len(self._asked) + len(self._waiting) >= WAITING_MAX:
            self.knows = False
            again()
            return
        self._waiting.append(again)
        if self._timer is None:
            self._begin()

    def close(self) -> None:
        self._cancel()
        self._asked.clear()
        self._waiting.clear()

    def _cancel(self) -> None:
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._timer = self._retry = None

    def _begin(self) -> None:
        self._number += 1
        self._asked, self._waiting = self._waiting, []
        self._timer = self._timers.after(PATIENCE_US, self._too_late)
        self._question()

    def _answered(self, number: int, knows: bool) -> None:
        if number != self._number or not self._asked:
            return
        if knows or (self._is_away and self._is_in_turn):
            self._is_away = not knows
            self._look_again(knows=knows)
            if not self._is_in_turn:
                self._end_turn()
        elif self._retry is None:  # there is no root for the moment, or the question was lost
            self._retry = self._timers.after(RETRY_US, self._ask_again)

    def _ask_again(self) -> None:
        self._retry = None
        self._question()
        self._end_turn()

    def _question(self) -> None:
        self._is_in_turn = True
        self._ask(partial(self._answered, self._number))
        self._is_in_turn = False

    def _too_late(self) -> None:
        self._is_away = True
        self._look_again(knows=False)
        self._end_turn()

    def _look_again(self, *, knows: bool) -> None:
        self.knows = knows
        asked, self._asked = self._asked, []
        self._cancel()
        if not (knows and self._is_in_turn):  # else nobody else was asked, and it has cost nothing
            self._timer = self._timers.after(PAUSE_US, self._go_on)
        for again in asked:
            again()

    def _go_on(self) -> None:
        self._timer = None
        if self._waiting:
            self._begin()
            self._end_turn()
