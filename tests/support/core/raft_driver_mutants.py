"""Drivers of Raft that leave out one of the things that a driver owes: each must be found out.

With each stands a seed of `rehearse` that finds it, searched from 0 on; anew by
`python -m tests.support.core.raft_driver_mutants`.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from hocket.core.raft import events, messages
from hocket.core.raft.group import Saved
from hocket.errors import Busy, HocketError
from hocket.log.model import HardState, RecoveredGroup
from tests.support.core.raft_driver import GROUP, Driver, Parcel
from tests.support.core.raft_rehearsal import rehearse

RUNS_MAX = 300  # what a search for one mutant may take


class SpeaksBeforeItsVoteIsDurable(Driver):
    def _carry_out(self, effect: events.Effect, parcel: Parcel | None) -> None:
        if isinstance(effect, events.PersistVote):
            state = HardState(effect.term, effect.vote)
            self.store.replicated.persist(GROUP, state, lambda: None)
        else:
            super()._carry_out(effect, parcel)


class BeginsWithoutItsVote(Driver):
    def _saved(self, found: RecoveredGroup | None) -> Saved:
        return replace(super()._saved(found), vote="")


class AnswersBeforeTheFlush(Driver):
    def _carry_out(self, effect: events.Effect, parcel: Parcel | None) -> None:
        super()._carry_out(effect, parcel)
        if isinstance(effect, events.Store | events.Enter):
            _, _, end = self.store.replicated.bounds(GROUP)
            self.tell(events.Flushed(end.next_index - 1, end.term))


class CutsNothing(Driver):
    def _carry_out(self, effect: events.Effect, parcel: Parcel | None) -> None:
        if not isinstance(effect, events.Truncate):
            super()._carry_out(effect, parcel)


class AnswersBeforeItHasInstalled(Driver):
    def _install(self, parcel: Parcel) -> None:
        super()._install(parcel)
        self._waits = False
        self.tell(events.Flushed(parcel.message.index, parcel.message.index_term))


class AppendsBeforeWhatRaftEnters(Driver):
    def append(self, body: bytes) -> bool:
        todo, self._todo = self._todo, type(self._todo)()
        waits, self._waits = self._waits, False
        done = super().append(body)
        self._todo.extendleft(reversed(todo))
        self._waits = waits
        return done


class IsTooBusyToFollow(Driver):
    def _heard_entries(self, parcel: Parcel, message: messages.Entries) -> None:
        try:
            self.store.admit(GROUP, len(parcel.data))
        except Busy:
            return
        super()._heard_entries(parcel, message)


class DoesNotTellWhatIsGone(Driver):
    def _tell_what_is_gone(self) -> None:
        pass


class ReadsBeforeItHasApplied(Driver):
    def _answer_reads(self) -> None:
        for read in self._reads:
            self._watch.answers(self.name, read)
        self._reads.clear()


# Each with the seed of the first run that finds it.
MUTANTS: dict[type[Driver], int] = {
    SpeaksBeforeItsVoteIsDurable: 85,
    BeginsWithoutItsVote: 90,
    AnswersBeforeTheFlush: 5,
    CutsNothing: 5,
    AnswersBeforeItHasInstalled: 5,
    AppendsBeforeWhatRaftEnters: 10,
    IsTooBusyToFollow: 46,
    DoesNotTellWhatIsGone: 3,
    ReadsBeforeItHasApplied: 2,
}


def found_by(driver: type[Driver], seed: int) -> str:
    """What the run of this seed finds: a breach, or that the core or the log would not have it."""
    try:
        rehearse(seed, driver=driver)
    except (AssertionError, HocketError, LookupError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def search(driver: type[Driver]) -> tuple[int, str]:
    for seed in range(RUNS_MAX):
        found = found_by(driver, seed)
        if found:
            return seed, found
    return RUNS_MAX, ""


if __name__ == "__main__":
    for mutant in MUTANTS:
        sys.stdout.write(f"    {mutant.__name__}: %d,  # %s\n" % search(mutant))
        sys.stdout.flush()
