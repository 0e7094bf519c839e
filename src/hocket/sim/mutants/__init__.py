"""Planted bugs: each must be found by the checkers within the seeds it states.

They are the proof that the checkers can fail and that the seeds are harsh enough. A mutant that is
not found shows a checker that is missing, or a simulation that is too mild. They are the only part
of the simulator that knows the insides of the cores, as whoever breaks something must.
"""

from __future__ import annotations

from hocket.sim.mutants.mutant import Mutant
from hocket.sim.mutants.of_group0 import OF_GROUP_0
from hocket.sim.mutants.of_replication import OF_REPLICATION
from hocket.sim.mutants.of_sharing import OF_SHARING
from hocket.sim.mutants.of_the_clients import OF_THE_CLIENTS
from hocket.sim.mutants.of_the_links import OF_THE_LINKS
from hocket.sim.mutants.of_the_log import OF_THE_LOG
from hocket.sim.mutants.of_the_relay import OF_THE_RELAY
from hocket.sim.mutants.of_the_ring import OF_THE_RING
from hocket.sim.mutants.of_transactions import OF_TRANSACTIONS

__all__ = ["MUTANTS", "Mutant"]

_ALL = (
    *OF_THE_RING, *OF_THE_RELAY, *OF_THE_LINKS, *OF_GROUP_0, *OF_THE_CLIENTS, *OF_REPLICATION,
    *OF_THE_LOG, *OF_TRANSACTIONS, *OF_SHARING,
)  # fmt: skip
MUTANTS: dict[str, Mutant] = {each.name: each for each in _ALL}
