"""Bugs of indexes, own and shared, of partitions that several nodes keep, and of dead letters."""

from __future__ import annotations

from typing import Any

from hocket.core.partition import partition as partition_module
from hocket.core.sharing import events
from hocket.core.sharing.keys import Key, KeyOrder
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.state import ShareState
from hocket.node.background.dead_letters import Unit
from hocket.node.running.settlements import Settlements
from hocket.sim.mutants.mutant import Replacements, mutant


@mutant(seeds=60)
def lease_what_is_not_reserved() -> Replacements:
    """A leader leases whatever is there, and the log says nothing of it before."""

    def all_of_it(leases: Leases) -> int:
        return leases.end

    def nothing(_leases: Leases) -> int:
        return 0

    return [(Leases, "_leasable_end", all_of_it), (Leases, "reservation_wanted", nothing)]


@mutant(seeds=60)
def lease_what_a_former_leader_may_have_leased() -> Replacements:
    """A new leader leases at once what lies below the reservation."""
    open_ = Leases._open

    def at_once(leases: Leases, state: ShareState, now_us: int) -> None:
        high, state.high = state.high, 0
        try:
            open_(leases, state, now_us)
        finally:
            state.high = high

    return [(Leases, "_open", at_once)]


@mutant(seeds=60)
def answer_acks_before_they_are_committed() -> Replacements:
    """A settlement is answered as soon as it is on its way to the log."""
    decided = Settlements.decided

    def at_once(settlements: Settlements, effect: events.Answer) -> None:
        decided(settlements, events.Answer(effect.consumer, effect.token, effect.refused, 0))

    return [(Settlements, "decided", at_once)]


@mutant(seeds=30)
def forget_counts_that_others_have_logged() -> Replacements:
    """Who follows does not count deliveries, and begins with none when it leads."""
    decoded = partition_module._decoded

    def forget(body: bytes) -> tuple[Any, Any]:
        changes, shares = decoded(body)
        for change in shares.values():
            change.counts.clear()
        return changes, shares

    return [(partition_module, "_decoded", forget)]


@mutant(seeds=120)
def bury_as_another_producer_in_each_term() -> Replacements:
    """The id under which a dead letter is stored follows from the leader's term, too."""
    producer_id = Unit.producer_id

    def another(unit: Unit, start: int, end: int, what: str = "") -> bytes:
        return producer_id(unit, start, end, f"{what}/{unit.hosted.term}")

    return [(Unit, "producer_id", another)]


@mutant(seeds=60)
def lease_a_key_that_another_one_has() -> Replacements:
    """A key goes to its new owner while the former one has messages of it."""
    refresh = KeyOrder._refresh

    def at_once(keys: KeyOrder, key: Key) -> None:
        holders, keys._holders = keys._holders, {}
        try:
            refresh(keys, key)
        finally:
            keys._holders = holders

    return [(KeyOrder, "_refresh", at_once)]


@mutant(seeds=60)
def forget_own_indexes_that_others_have_logged() -> Replacements:
    """Who follows does not learn how far own indexes are, and has none of them when it leads."""
    decoded = partition_module._decoded

    def forget(body: bytes) -> tuple[Any, Any]:
        changes, shares = decoded(body)
        return {name: each for name, each in changes.items() if each is None}, shares

    return [(partition_module, "_decoded", forget)]


OF_SHARING = (
    lease_what_is_not_reserved,
    lease_what_a_former_leader_may_have_leased,
    answer_acks_before_they_are_committed,
    forget_counts_that_others_have_logged,
    bury_as_another_producer_in_each_term,
    lease_a_key_that_another_one_has,
    forget_own_indexes_that_others_have_logged,
)
