"""I2, SufficientPrincipals. A member that every list knows, or passes by on the wrong side of
nobody, cannot be forgotten by the ring; r + 1 of them keep it from falling apart."""

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
