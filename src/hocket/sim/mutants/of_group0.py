"""Bugs of group 0: of the root, of those who follow it, and of requests that are handed on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hocket.core.group0.forwards import Forwards
from hocket.core.group0.messages import Forward, Forwarded
from hocket.core.metadata.done import Done
from hocket.core.metadata.metadata import GROUP, Metadata
from hocket.core.origin import Asked
from hocket.core.raft.events import Leads
from hocket.core.raft.membership import Configuration
from hocket.core.ring.contact import Contact
from hocket.node.cluster.cluster_node import ClusterNode
from hocket.node.replication import saved
from hocket.node.replication.group0 import Group0
from hocket.node.replication.replica import Replica
from hocket.node.requests.handing_on import TakingOver
from hocket.node.requests.registering import Registering
from hocket.sim.mutants.mutant import Replacements, mutant, replaced


@mutant(seeds=20)
def do_a_request_twice() -> Replacements:
    """The root does not look whether it has carried a request out already."""

    def serve(taking_over: TakingOver, sender: Contact, message: Forward) -> None:
        asked = Asked(sender.node, message.number)
        if taking_over._group0.leads and not taking_over._is_serving(asked):
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

    def answer(forwards: Forwards, _sender: Contact, message: Forwarded) -> list[Any]:
        if message.number not in forwards:
            return []
        return [forwards._answer(message.number, message)]

    return [(Forwards, "heard", answer)]


@mutant(seeds=120)
def forget_who_was_stopped_in_order() -> Replacements:
    """A node that starts again does not look for the others where they were before they left."""
    start = ClusterNode.start

    def forget(node: ClusterNode, seeds: Sequence[str] = ()) -> None:
        with replaced(Registering, "left", ()):
            start(node, seeds)

    return [(ClusterNode, "start", forget)]


@mutant(seeds=40)
def serve_changes_before_the_first_entry() -> Replacements:
    """A node that was elected serves at once, though it has not applied all that was committed."""
    leads = Replica._leads

    def serve(replica: Replica[Any], effect: Leads, data: bytes) -> None:
        leads(replica, effect, data)
        if replica.group == GROUP:
            replica.serves = True
            replica.machine.serve(replica.raft.group.term)

    return [(Replica, "_leads", serve)]


@mutant(seeds=40)
def keep_what_was_proposed_when_deposed() -> Replacements:
    """A root that leads no more goes on to judge by what it has proposed, and counts on with it."""

    def keep(_metadata: Metadata) -> list[Any]:
        return []

    return [(Metadata, "withdraw", keep)]


@mutant(seeds=40)
def tell_what_is_not_committed() -> Replacements:
    """A change takes effect at the root when it is appended, though a crash may take it back."""
    appended = Group0._appended

    def take_effect(group0: Group0, index: int) -> None:
        appended(group0, index)
        group0.took_effect(group0._wiring.metadata.durable(index))

    return [(Group0, "_appended", take_effect)]


@mutant(seeds=40)
def forget_the_members_in_snapshots() -> Replacements:
    """Who belongs to the group is not part of a snapshot: a node that starts again has forgotten
    it."""

    def nobody(_snapshot: bytes) -> Configuration:
        return Configuration(())

    return [(saved, "configuration_in", nobody)]


OF_GROUP_0 = (
    do_a_request_twice,
    forget_what_was_done_in_snapshots,
    answer_before_it_is_applied,
    serve_changes_before_the_first_entry,
    keep_what_was_proposed_when_deposed,
    tell_what_is_not_committed,
    forget_the_members_in_snapshots,
    forget_who_was_stopped_in_order,
)
