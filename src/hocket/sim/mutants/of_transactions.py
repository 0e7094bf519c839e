"""Bugs of transactions on topics that several nodes keep: one or more for each of their rules.

The rules are those of `docs/internals/transactions.md`: what is staged is kept by a majority before
the decision (1), only the decider aborts (2), what was applied is known whatever else is forgotten
(3), transactions of one id are applied in the order of their decisions (4), a number that is
decided stays as it was decided (6). Of rule 8, atomic and not isolated, there are three: nothing of
a transaction is shown before its decision is durable, nothing ever of an aborted one, and who is
told of a commit can read it everywhere, though its partitions show it one by one. That what is
staged has room on every disk (5) is shown, with a planted bug, by
`tests/node/replication/test_transactions.py`.
"""

from __future__ import annotations

from typing import Any

from hocket.core.partition.events import Batch, Effect, StageAcked, StageBatch
from hocket.core.partition.partition import Partition
from hocket.core.partition.stages import Stages
from hocket.core.transactions.decider import Decider
from hocket.core.transactions.events import Answer, AppendDecision, Applied, Apply, CommitAsked
from hocket.core.transactions.participants import by_group
from hocket.core.transactions.state import Decided, PendingCommit
from hocket.node.background.transactions import Transactions
from hocket.node.replication.deciders import DeciderMachine
from hocket.sim.mutants.mutant import Replacements, mutant


@mutant(seeds=200)
def acknowledge_a_stage_before_a_majority_has_it() -> Replacements:
    """Rule 1: who stages a batch is told so at once, and it counts for the decision."""
    stage = Partition._stage
    verify = Stages.verify

    def acknowledge(partition: Partition, event: StageBatch) -> list[Effect]:
        return [*stage(partition, event), StageAcked(event.origin, event.batch.sequence)]

    def count_all(stages: Stages, *arguments: Any) -> Any:
        durable = {each: each.durable for each in stages.producers.values()}
        for each in durable:
            each.durable = len(each.batches)
        try:
            return verify(stages, *arguments)
        finally:
            for each, before in durable.items():
                each.durable = before

    return [(Partition, "_stage", acknowledge), (Stages, "verify", count_all)]


@mutant(seeds=200)
def forget_stages_in_snapshots() -> Replacements:
    """Rule 1: what is staged is not part of a partition's snapshot."""
    snapshot = Stages.snapshot

    def forget(stages: Stages) -> dict[str, Any]:
        return {**snapshot(stages), "stages": []}

    return [(Stages, "snapshot", forget)]


@mutant(seeds=200)
def drop_stages_when_the_leader_changes() -> Replacements:
    """Rule 2: a new leader drops what nobody has decided on, and does not ask."""
    served = Transactions.partition_served

    def drop(transactions: Transactions, hosted: Any) -> None:
        served(transactions, hosted)
        for each in list(hosted.core.stages.producers.values()):
            transactions._drop_here([hosted], each.key.name, (each.key.producer_id,))

    return [(Transactions, "partition_served", drop)]


@mutant(seeds=200)
def forget_how_far_a_roll_forward_was() -> Replacements:
    """Rule 3: a new leader begins anew with what the old one had published in part."""

    def never(_stages: Stages, _batch: Batch) -> bool:
        return False

    return [(Stages, "recognises", never)]


@mutant(seeds=200)
def forget_what_was_applied_in_snapshots() -> Replacements:
    """Rule 3: which transactions were applied is not part of a partition's snapshot."""
    snapshot = Stages.snapshot

    def forget(stages: Stages) -> dict[str, Any]:
        return {**snapshot(stages), "applied": [], "forgotten": 0, "forgotten_of": []}

    return [(Stages, "snapshot", forget)]


@mutant(seeds=200)
def answer_before_it_is_applied_everywhere() -> Replacements:
    """Rule 4: who asks is answered with the decision, and may have the next number decided."""
    apply = Decider._apply_everywhere
    commit_asked = Decider._commit_asked

    def answer(decider: Decider, transaction: str, known: Decided) -> list[Any]:
        effects = apply(decider, transaction, known)
        askers, known.askers = known.askers, []
        return [*effects, *(Answer(asker, None) for asker in askers)]

    def ask(decider: Decider, event: CommitAsked) -> list[Any]:
        unfinished, decider._unfinished = decider._unfinished, {}
        try:
            return commit_asked(decider, event)
        finally:
            decider._unfinished = {**unfinished, **decider._unfinished}

    return [(Decider, "_apply_everywhere", answer), (Decider, "_commit_asked", ask)]


@mutant(seeds=200)
def take_other_content_for_the_same() -> Replacements:
    """Rule 6: a number that is committed is done, whatever is staged for it now."""
    asked_again = Decider._asked_again

    def done(decider: Decider, event: CommitAsked, known: Decided) -> list[Any]:
        if event.number == known.number and not known.aborted and not known.unapplied:
            return [Answer(event.origin, None)]
        return asked_again(decider, event, known)

    return [(Decider, "_asked_again", done)]


@mutant(seeds=200)
def a_new_decider_forgets_what_was_decided() -> Replacements:
    """Rule 6: who leads a decider anew knows nothing that another one has decided."""
    serve = DeciderMachine.serve

    def forget(machine: DeciderMachine, term: int) -> None:
        machine.seat.core.decided.clear()
        machine.seat.core._unfinished.clear()
        serve(machine, term)

    return [(DeciderMachine, "serve", forget)]


@mutant(seeds=200)
def answer_when_the_first_partition_shows_it() -> Replacements:
    """Rule 8: who asks is answered as soon as one partition has applied it; others follow."""
    applied = Decider._applied

    def answer(decider: Decider, event: Applied) -> list[Any]:
        effects = applied(decider, event)
        known = decider.decided.get(event.transaction)
        if known is None or known.number != event.number:
            return effects
        return [*effects, *decider._answer_askers(known)]

    return [(Decider, "_applied", answer)]


@mutant(seeds=200)
def publish_before_the_decision_is_durable() -> Replacements:
    """Rule 8: partitions show a transaction whose decision may still be lost."""
    decide = Decider._decide

    def publish(decider: Decider, transaction: str, pending: PendingCommit) -> list[Any]:
        effects = decide(decider, transaction, pending)
        (entry,) = effects
        assert isinstance(entry, AppendDecision)
        for group, participants in by_group(pending.participants).items():
            named = tuple((each.producer_id, each.batches) for each in participants)
            effects.append(Apply(group, transaction, pending.number, entry.index, named))
        return effects

    return [(Decider, "_decide", publish)]


@mutant(seeds=200)
def publish_what_is_to_be_dropped() -> Replacements:
    """Rule 8: partition 0 publishes what is aborted: readers see that part of it."""
    drop = Transactions._drop_here

    def publish(
        transactions: Transactions, partitions: Any, name: Any, producers: tuple[bytes, ...]
    ) -> None:
        for hosted in list(partitions):
            staged = hosted.core.stages.droppable(name, producers)
            if staged and hosted.core.number == 0:
                named = tuple((each.key.producer_id, each.durable) for each in staged)
                apply = Apply(hosted.group, name[0], name[1], hosted.core.end, named)
                transactions._rolling.begin(apply, transactions._decider_of(name[0]))
            else:
                drop(transactions, [hosted], name, producers)

    return [(Transactions, "_drop_here", publish)]


OF_TRANSACTIONS = (
    acknowledge_a_stage_before_a_majority_has_it,
    forget_stages_in_snapshots,
    drop_stages_when_the_leader_changes,
    forget_how_far_a_roll_forward_was,
    forget_what_was_applied_in_snapshots,
    answer_before_it_is_applied_everywhere,
    take_other_content_for_the_same,
    a_new_decider_forgets_what_was_decided,
    answer_when_the_first_partition_shows_it,
    publish_before_the_decision_is_durable,
    publish_what_is_to_be_dropped,
)
