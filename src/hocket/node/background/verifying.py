"""Whether what a commit names is staged in a partition of this node, durably, as it is named."""

from __future__ import annotations

from collections.abc import Callable

from hocket.core.transactions.events import Verify
from hocket.errors import HocketError, TransactionConflict
from hocket.node.running.partitions import Hosted
from hocket.node.wiring import Wiring


class Verifying:
    def __init__(self, wiring: Wiring, *, founded: bool) -> None:
        self._wiring = wiring
        self._founded = founded  # this node has founded its cluster, or is alone

    def verify(
        self,
        decider: int,
        hosted: Hosted,
        asked: Verify,
        told: Callable[[HocketError | None], None],
    ) -> None:
        """Have `told` why this cannot be committed; None if it can.

        What is staged stays so, whoever leads. That something is not staged is said by a leader
        that has just confirmed that it leads: an old one does not know what came to the next.
        """

        def confirmed(leads: bool) -> None:
            if leads and self._wiring.partitions.get(hosted.group) is hosted:
                told(self._verified(decider, hosted, asked))

        error = self._verified(decider, hosted, asked)
        if hosted.copy is None or not isinstance(error, TransactionConflict):
            told(error)
        else:  # without an answer the decider asks again
            hosted.copy.authority.confirm(confirmed)

    def _verified(self, decider: int, hosted: Hosted, asked: Verify) -> HocketError | None:
        """Why this is not staged here as it is named, or cannot be committed; None if it can.

        In a cluster of an older version each node has decided on its own topics by itself. What the
        founder has decided it hands over; what others have decided they keep from being repeated.
        """
        own = self._wiring.deciders.own
        known = own.core.decided.get(asked.transaction)
        if decider != own.group and not self._founded and known and asked.number <= known.number:
            return TransactionConflict(
                f"transaction {asked.transaction!r} number {asked.number} cannot be committed: in "
                f"an older version the node of topic {asked.participants[0].topic!r} has "
                f"{known.fate} number {known.number} of it by itself; use a higher number"
            )
        return hosted.core.stages.verify((asked.transaction, asked.number), asked.participants)
