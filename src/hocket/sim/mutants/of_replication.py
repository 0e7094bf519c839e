"""Bugs of those who keep a partition together: of Raft, of its driver, and of the partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hocket.core.partition.dedupe import Dedupe, Duplicate
from hocket.core.partition.partition import Partition
from hocket.core.raft import elections, following
from hocket.core.raft.events import (
    Committed,
    Effect,
    Leads,
    PersistVote,
    Send,
    Truncate,
)
from hocket.core.raft.group import Group
from hocket.core.raft.leading import Leading
from hocket.core.raft.messages import Accepted, AskVote, Entries
from hocket.log.model import Fault, HardState
from hocket.node.background.retention import Retention
from hocket.node.raft_mail import State
from hocket.node.replication import copies as copies_module, saved as saved_module
from hocket.node.replication.copies import Copies
from hocket.node.replication.partition_machine import PartitionMachine
from hocket.node.replication.replica import Replica
from hocket.node.running.partitions import Hosted
from hocket.sim.mutants.mutant import Replacements, mutant

# --- what counts as stored ------------------------------------------------------------------------


@mutant(seeds=30)
def count_what_is_not_on_the_own_disk() -> Replacements:
    """A leader counts itself as soon as it has appended an entry."""
    accepted = Leading.accepted

    def count(leading: Leading, sender: str, message: Accepted, now_us: int) -> list[Effect]:
        leading.own.matched = leading.group.outline.last
        return accepted(leading, sender, message, now_us)

    return [(Leading, "accepted", count)]


@mutant(seeds=30)
def accept_before_it_is_durable() -> Replacements:
    """A follower answers for entries that are on their way to its disk."""
    take = following.take_entries

    def accept(group: Group) -> Effect:
        return Send(group.leader, Accepted(group.term, group.stored, group.stored))

    def take_and_accept(group: Group, message: Entries) -> list[Effect]:
        effects = take(group, message)
        return [*effects, accept(group)] if group.stored >= message.last else effects

    return [(following, "accept", accept), (following, "take_entries", take_and_accept)]


@mutant(seeds=60)
def vote_before_it_is_durable() -> Replacements:
    """Term and vote are on their way to the disk when the vote is sent."""

    def persist(replica: Replica[Any], effect: PersistVote, _data: bytes) -> None:
        if replica.serves and replica.raft.leading is None:
            replica._cease(replica.leader)
        state = HardState(effect.term, effect.vote)
        replica.log.replicated.persist(replica.group, state, lambda: None)

    return [(Replica, "_persist_vote", persist)]


@mutant(seeds=60)
def forget_the_vote() -> Replacements:
    """A node that starts again does not know whom it has voted for."""
    found_in = saved_module.found_in

    def forget(*arguments: Any) -> saved_module.Found:
        found = found_in(*arguments)
        found.saved.vote = ""
        return found

    return [(copies_module, "found_in", forget)]


@mutant(seeds=30)
def forget_the_term() -> Replacements:
    """A node that starts again takes the term of its last entry for the newest."""
    found_in = saved_module.found_in

    def forget(*arguments: Any) -> saved_module.Found:
        found = found_in(*arguments)
        found.saved.term = max((term for _last, term in found.saved.runs), default=0)
        found.saved.vote = ""
        return found

    return [(copies_module, "found_in", forget)]


@mutant(seeds=60)
def vote_for_who_is_behind() -> Replacements:
    """Votes are given whatever the candidate's log lacks."""

    def any_log(_group: Group, _last: int, _last_term: int) -> bool:
        return True

    return [(Group, "is_behind", any_log)]


@mutant(seeds=60)
def vote_twice() -> Replacements:
    """In one term everybody who asks is given the vote."""
    answer = elections.answer

    def again(group: Group, sender: str, question: AskVote) -> tuple[bool, list[Effect]]:
        if group.term == question.term and group.vote != group.host.me:
            group.vote = ""
            group.leader = ""
        return answer(group, sender, question)

    return [(elections, "answer", again)]


@mutant(seeds=60)
def vote_with_a_damaged_log() -> Replacements:
    """A copy whose log was damaged votes and leads as if nothing had been in it."""

    def none(_replica: Replica[Any]) -> list[Fault]:
        return []

    return [(Replica, "_faults", property(none))]


# --- leading, and ceasing to ----------------------------------------------------------------------


@mutant(seeds=30)
def serve_before_the_first_entry() -> Replacements:
    """Whoever is elected serves at once, with what it knows as committed."""
    leads = Replica._leads

    def serve(replica: Replica[Any], effect: Leads, data: bytes) -> None:
        leads(replica, effect, data)
        replica.serves = True
        replica.machine.serve(effect.term)

    return [(Replica, "_leads", serve)]


@mutant(seeds=30)
def keep_what_was_proposed() -> Replacements:
    """Who leads no more keeps what it had proposed as if it were committed."""

    def stop(machine: PartitionMachine, leader: str) -> None:
        machine._leadership.stops(machine._hosted, leader)

    return [(PartitionMachine, "stop", stop)]


@mutant(seeds=30)
def acknowledge_when_stepping_down() -> Replacements:
    """Who leads no more tells those who wait that all is well."""
    stop = PartitionMachine.stop

    def acknowledge(machine: PartitionMachine, leader: str) -> None:
        machine._partitions.durable(machine._hosted.group, machine.core.last_index)
        stop(machine, leader)

    return [(PartitionMachine, "stop", acknowledge)]


@mutant(seeds=60)
def keep_the_handles_of_a_deposed_leader() -> Replacements:
    """Who leads no more does not tell those who have something open there."""

    def keep(_copies: Copies, _hosted: Hosted, _error: Exception) -> None:
        return

    return [(Copies, "_end_handles", keep)]


@mutant(seeds=60)
def lose_what_was_proposed() -> Replacements:
    """Who leads no more forgets its proposals, though others may commit them."""

    def lose(replica: Replica[Any]) -> None:
        replica._known = replica.log.replicated.bounds(replica.group)[2].next_index - 1
        replica._tail.clear()

    return [(Replica, "_keep_uncommitted", lose)]


@mutant(seeds=60)
def commit_entries_of_older_terms() -> Replacements:
    """A leader commits entries of others because a majority has them (paper 5.4.2)."""
    init = Leading.__init__

    def begin(leading: Leading, group: Group, now_us: int) -> None:
        init(leading, group, now_us)
        leading.first = group.commit + 1

    return [(Leading, "__init__", begin)]


# --- following ------------------------------------------------------------------------------------


@mutant(seeds=30)
def apply_what_is_not_committed() -> Replacements:
    """A follower applies entries as they come."""
    keep = Replica._keep

    def apply(replica: Replica[Any], data: bytes, entries: Iterable[Any]) -> None:
        keep(replica, data, entries)
        if not replica.serves and replica.raft.leading is None:
            while replica._tail:
                replica.machine.apply(replica._tail.popleft().entry)

    return [(Replica, "_keep", apply)]


@mutant(seeds=60)
def keep_a_tail_that_was_cut_off() -> Replacements:
    """Entries that were cut off the log are applied later all the same."""

    def cut(replica: Replica[Any], effect: Truncate, _data: bytes) -> None:
        replica.log.replicated.truncate(replica.group, effect.first - 1)

    return [(Replica, "_truncate", cut)]


@mutant(seeds=30)
def pass_over_an_entry() -> Replacements:
    """Now and then a follower does not apply an entry that is committed."""
    committed = Replica._committed

    def pass_over(replica: Replica[Any], effect: Committed, data: bytes) -> None:
        if not replica.serves and replica._tail and effect.index % 10 == 0:
            replica._tail.popleft()
        committed(replica, effect, data)

    return [(Replica, "_committed", pass_over)]


@mutant(seeds=100)
def apply_again_what_a_state_has() -> Replacements:
    """Entries that an installed state knows are applied again as they are filled in."""
    installed = Replica._installed

    def forget(replica: Replica[Any], state: State) -> None:
        installed(replica, state)
        replica._known = 0

    return [(Replica, "_installed", forget)]


# --- the partition --------------------------------------------------------------------------------


@mutant(seeds=30)
def store_what_is_sent_again() -> Replacements:
    """A batch that is stored already is stored once more."""
    judge = Dedupe.judge

    def forgetful(dedupe: Dedupe, *arguments: Any) -> Any:
        verdict = judge(dedupe, *arguments)
        return None if isinstance(verdict, Duplicate) else verdict

    return [(Dedupe, "judge", forgetful)]


@mutant(seeds=30)
def forget_producers_in_snapshots() -> Replacements:
    """Which batches are stored is not part of a partition's snapshot."""

    def nothing(_dedupe: Dedupe, _entry: int) -> dict[str, list[object]]:
        return {}

    return [(Dedupe, "snapshot", nothing)]


@mutant(seeds=30)
def forget_indexes_in_snapshots() -> Replacements:
    """Where indexes are is not part of a partition's snapshot."""
    snapshot = Partition.snapshot

    def forget(partition: Partition) -> tuple[int, bytes]:
        applied, partition.cursors.applied = partition.cursors.applied, {}
        try:
            return snapshot(partition)
        finally:
            partition.cursors.applied = applied

    return [(Partition, "snapshot", forget)]


@mutant(seeds=60)
def remove_old_records_without_an_entry() -> Replacements:
    """Each node moves the start of the logs that it leads as it sees fit."""
    tick = Retention.tick

    def remove(retention: Retention, now_us: int) -> None:
        if now_us >= retention._due_us:
            for hosted in list(retention._wiring.partitions):
                start = retention._planned_log_start(hosted, now_us)
                if hosted.copy is not None and start > hosted.core.start:
                    hosted.core.start = hosted.core._next_start = start
                    retention._wiring.log.set_log_start(hosted.group, start)
        tick(retention, now_us)

    return [(Retention, "tick", remove)]


OF_REPLICATION = (
    count_what_is_not_on_the_own_disk,
    accept_before_it_is_durable,
    vote_before_it_is_durable,
    forget_the_vote,
    forget_the_term,
    vote_for_who_is_behind,
    vote_twice,
    vote_with_a_damaged_log,
    serve_before_the_first_entry,
    keep_what_was_proposed,
    acknowledge_when_stepping_down,
    keep_the_handles_of_a_deposed_leader,
    lose_what_was_proposed,
    commit_entries_of_older_terms,
    apply_what_is_not_committed,
    keep_a_tail_that_was_cut_off,
    pass_over_an_entry,
    apply_again_what_a_state_has,
    store_what_is_sent_again,
    forget_producers_in_snapshots,
    forget_indexes_in_snapshots,
    remove_old_records_without_an_entry,
)
