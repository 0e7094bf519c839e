"""Bugs of group 0: of the root that tells it, of those who follow, and of requests handed on."""

from __future__ import annotations

from typing import Any

from hocket.core.group0.events import Committed, Effect, Store
from hocket.core.group0.forwards import Forwards
from hocket.core.group0.learner import Learner
from hocket.core.group0.messages import Entries, Entry, Forward, Forwarded, SnapshotPiece
from hocket.core.metadata.done import Done
from hocket.core.metadata.metadata import NOOP
from hocket.core.origin import Asked
from hocket.core.ring.contact import Contact
from hocket.node.cluster.group0 import Telling
from hocket.node.requests.handing_on import TakingOver
from hocket.sim.mutants.mutant import Replacements, mutant


@mutant(seeds=100)
def install_a_stale_snapshot() -> Replacements:
    """A snapshot is installed though the node has come further than it leads."""
    piece = Learner._piece

    def take(learner: Learner, message: SnapshotPiece) -> list[Effect]:
        index, learner.index = learner.index, -1
        try:
            return piece(learner, message)
        finally:
            learner.index = index

    return [(Learner, "_piece", take)]


@mutant(seeds=20)
def skip_an_entry_after_a_reconnect() -> Replacements:
    """The first entry that comes after the root was asked again is passed over."""
    entries, ask = Learner._entries, Learner._ask
    asked_again: set[int] = set()

    def ask_again(learner: Learner, chance: float) -> list[Effect]:
        if learner._request:
            asked_again.add(id(learner))
        return ask(learner, chance)

    def pass_over(learner: Learner, message: Entries) -> list[Effect]:
        effects = entries(learner, message)
        for effect in effects:
            if isinstance(effect, Store) and id(learner) in asked_again:
                asked_again.discard(id(learner))
                first, *others = effect.entries
                empty = Entry(first.term, NOOP, first.index, b"")
                effect.entries = (empty, *others)
        return effects

    return [(Learner, "_ask", ask_again), (Learner, "_entries", pass_over)]


@mutant(seeds=20)
def do_a_request_twice() -> Replacements:
    """The root does not look whether it has carried a request out already."""

    def serve(taking_over: TakingOver, sender: Contact, message: Forward) -> None:
        asked = Asked(sender.node, message.number)
        if not taking_over._is_serving(asked):
            taking_over._serve(sender, asked, message)

    return [(TakingOver, "heard", serve)]


@mutant(seeds=20)
def forget_what_was_done_in_snapshots() -> Replacements:
    """Which requests were carried out is not part of a snapshot."""

    def nothing(_done: Done) -> dict[str, Any]:
        return {}

    return [(Done, "snapshot", nothing)]


@mutant(seeds=20)
def answer_before_it_is_applied() -> Replacements:
    """Who asked for a change is answered as soon as the root has made it."""

    def answer(forwards: Forwards, message: Forwarded) -> list[Any]:
        if message.number not in forwards:
            return []
        return [forwards._answer(message.number, message)]

    return [(Forwards, "heard", answer)]


@mutant(seeds=40)
def tell_what_is_not_committed() -> Replacements:
    """The root hands on what it has appended, though a crash may take it back."""

    def append(telling: Telling, term: int, kind: int, index: int, body: bytes) -> None:
        telling._step(Committed((Entry(term, kind, index, body),)))

    def durable(_telling: Telling, _index: int) -> None:
        return

    return [(Telling, "_append", append), (Telling, "_durable", durable)]


OF_GROUP_0 = (
    install_a_stale_snapshot,
    skip_an_entry_after_a_reconnect,
    do_a_request_twice,
    forget_what_was_done_in_snapshots,
    answer_before_it_is_applied,
    tell_what_is_not_committed,
)
