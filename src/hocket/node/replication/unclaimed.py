"""Logs that a node finds when it starts, and of which it does not know yet what they are for.

What a node knows of the metadata when it starts may be older than its logs: it learns from the root
which later entries are committed. Until then such logs are kept as they are (`Wiring.unclaimed`).
"""

from __future__ import annotations

from collections.abc import Iterable

from hocket.log.model import RecoveredGroup
from hocket.log.settings import GroupSettings
from hocket.model import DECIDERS, DECISIONS
from hocket.node.replication.saved import is_of_raft
from hocket.node.wiring import Wiring


def recover_deciders(
    wiring: Wiring, groups: Iterable[int], recovered: dict[int, RecoveredGroup]
) -> None:
    """Go on with deciders that this node has alone, as far as it knows.

    If the log of one is of Raft, other nodes keep it by now, and this node hears of that later.
    """
    for group in groups:
        if not is_of_raft(recovered.get(group)):
            wiring.deciders.host(group, recovered.pop(group, None))


def keep(wiring: Wiring, recovered: dict[int, RecoveredGroup]) -> None:
    """Keep logs as they are of which it is not known here that this node is to have them.

    What made their topic, or placed it here, is not committed as far as is known here, or lost.
    """
    catalogue = wiring.catalogue
    for group, known in recovered.items():
        if catalogue.is_deleted(group):  # that was the last thing that happened
            wiring.log.delete_group(group)
        elif group < DECISIONS or DECIDERS not in catalogue.topics or is_of_raft(known):
            wiring.unclaimed[group] = known
            wiring.log.configure(group, GroupSettings())
        # else it is a decider that another node holds by now
