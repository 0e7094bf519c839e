"""I2, SufficientPrincipals. The ring cannot forget a member that no list of successors skips; r + 1
such members keep the ring from falling apart."""

from __future__ import annotations

from hocket.sim.checkers.ring_checker import RingChecker
from hocket.sim.ring_view import RingView


class ThereAreEnoughPrincipals(RingChecker):
    name = "there_are_enough_principals"
    sentence = "At least r + 1 members are skipped by no extended successor list."

    def look(self, view: RingView) -> None:
        if len(view.principals) <= view.successors:
            skipped = "\n".join(
                f"{view.by_spot[spot]} is skipped by {by}" for spot, by in view.skipped.items()
            )
            raise self.broken(f"{len(view.principals)} with r = {view.successors}\n{skipped}")
