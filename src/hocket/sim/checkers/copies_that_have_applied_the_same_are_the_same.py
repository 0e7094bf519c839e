"""State machine safety: what a partition knows follows from the committed entries alone.

What is compared is what may be read, which batches of producers are stored, and where indexes are.
A partition that is being written to knows more than what is committed; it is looked at when nothing
is under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster
    from hocket.sim.copies_view import Copy


class CopiesThatHaveAppliedTheSameAreTheSame(CopiesChecker):
    name = "copies_that_have_applied_the_same_are_the_same"
    sentence = "Copies apply committed entries only, and those that applied the same are the same."

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._states: dict[tuple[int, int], tuple[str, Any]] = {}  # by group and index: whose, what

    def look(self, copy: Copy) -> None:
        was, story = copy.was, copy.story
        assert was is not None
        if copy.applied == was.applied and not copy.began:
            return
        if copy.applied > story.last:
            raise self.broken(
                f"{copy.name} has applied entry {copy.applied}; committed is {story.last}"
            )
        entry = story.entries.get(copy.applied)
        if entry is not None and copy.high_watermark != entry.header.end_offset:
            raise self.broken(
                f"{copy.name} can be read up to {copy.high_watermark}, and entry {copy.applied} "
                f"ends at {entry.header.end_offset}"
            )
        assert copy.replica is not None
        core = copy.replica.machine.core  # type: ignore[attr-defined]
        if core.last_index != core.applied_index or not core.is_settled:
            return
        self.seen += 1
        key, state = (story.group, copy.applied), _state(core)
        whose, known = self._states.setdefault(key, (copy.machine.name, state))
        if known != state:
            raise self.broken(
                f"{copy.name} and {whose}'s have applied entry {copy.applied}: {state}, {known}"
            )


def _state(core: Any) -> Any:
    producers = {
        producer_id.hex()[:8]: (each.epoch, each.next_sequence)
        for producer_id, each in core.dedupe.producers.items()
    }
    indexes = {name: each.encode() for name, each in core.cursors.applied.items()}
    shares = {
        name: (each.start, each.high, each.maps(), each.marks(), [*each.dying], each.rests())
        for name, each in core.shares.items()
    }
    return core.start, core.high_watermark, producers, indexes, shares, core.stages.snapshot()
