"""Bugs of the relay tree."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from hocket.core.relay import downstream, upstream
from hocket.core.relay.children import Children
from hocket.core.relay.consumers import Consumer, Consumers
from hocket.core.relay.messages import NotAttached, Piece
from hocket.core.relay.outbox import Turn
from hocket.core.relay.upstream import Upstream
from hocket.core.ring.contact import Contact
from hocket.model import PartitionId
from hocket.node.cluster.cluster_node import ClusterNode
from hocket.node.running.committed_log import CommittedLog, Done, Held, pieces_of
from hocket.node.running.partitions import Hosted
from hocket.sim.mutants.mutant import Replacements, mutant


@mutant(seeds=60)
def serve_past_the_committed_end() -> Replacements:
    """What is appended is handed on, whether it is committed or not."""

    def advanced(node: ClusterNode, hosted: Hosted) -> None:
        partition_id = PartitionId(hosted.core.topic, hosted.core.number, hosted.group)
        node.relays.advanced(partition_id, hosted.core.start, hosted.core.end)

    def read(
        log: CommittedLog,
        partition_id: PartitionId,
        offset: int,
        end: int,
        bytes_max: int,
        done: Done,
    ) -> None:
        hosted = log._hosted.get(partition_id)
        found = None
        if hosted is not None and hosted.core.start <= offset < hosted.core.end:
            found = log._log.read(
                hosted.group,
                offset,
                bytes_max=bytes_max,
                end_offset=end,
                done=partial(log._read, hosted, done),
            )
            if found is None:
                return
        done(() if found is None else pieces_of(found))

    return [(ClusterNode, "advanced", advanced), (CommittedLog, "read", read)]


@mutant(seeds=60)
def a_copy_hands_on_what_it_stores() -> Replacements:
    """A replica that roots a tree hands on all that its log has, whether it is committed or not."""

    def held(log: CommittedLog, hosted: Hosted) -> Held:
        return Held(hosted.core.start, log._log.replicated.bounds(hosted.group)[2].next_offset)

    def copy_of(log: CommittedLog, partition_id: PartitionId) -> Held | None:
        hosted = log._copy(partition_id.group)
        return None if hosted is None else held(log, hosted)

    def advanced(node: ClusterNode, hosted: Hosted) -> None:
        partition_id = PartitionId(hosted.core.topic, hosted.core.number, hosted.group)
        node.relays.copy_advanced(partition_id, held(node._committed, hosted))

    committed = CommittedLog.read

    def read(
        log: CommittedLog,
        partition_id: PartitionId,
        offset: int,
        end: int,
        bytes_max: int,
        done: Done,
    ) -> None:
        hosted = log._copy(partition_id.group)
        if hosted is None or not hosted.core.start <= offset < held(log, hosted).end:
            committed(log, partition_id, offset, end, bytes_max, done)
            return
        found = log._log.read(
            hosted.group,
            offset,
            bytes_max=bytes_max,
            end_offset=end,
            done=partial(log._read, hosted, done),
        )
        if found is not None:
            done(pieces_of(found))

    return [
        (CommittedLog, "copy_of", copy_of),
        (ClusterNode, "_copy_advanced", advanced),
        (CommittedLog, "read", read),
    ]


@mutant(seeds=20)
def more_children_than_allowed() -> Replacements:
    """A relay takes every newcomer as its child."""

    def room(_children: Children) -> int:
        return 1

    return [(Children, "room", property(room))]


@mutant(seeds=60)
def resume_at_the_newest() -> Replacements:
    """A node that has lost its parent goes on at the newest record, not where it was."""
    leave = Upstream.leave

    def forget(core: Upstream, candidates: Iterable[Contact]) -> Turn:
        end = core._downstream._committed.end
        core._recent.reset(end)
        for consumer in core._downstream._consumers:
            consumer.next_offset = max(consumer.next_offset, end)
        return leave(core, candidates)

    return [(Upstream, "leave", forget)]


@mutant(seeds=20)
def accept_a_gap() -> Replacements:
    """A consumer that has fallen behind goes on where the recent batches begin."""
    serve = Consumers.serve

    def skip(consumers: Consumers) -> None:
        for consumer in consumers:
            if consumer.is_eager and not consumers._recent.is_empty:
                consumer.next_offset = max(consumer.next_offset, consumers._recent.start)
        serve(consumers)

    return [(Consumers, "serve", skip)]


@mutant(seeds=40)
def ignore_a_silent_parent() -> Replacements:
    """A child whose parent is dead, or has forgotten it, goes on waiting for it."""

    def wait(core: Upstream) -> Turn:
        core._silent = 0
        return False

    def wait_too(core: Upstream, _sender: Contact, _message: NotAttached) -> Turn:
        core._fetch = None
        return False

    return [(Upstream, "parent_died", wait), (Upstream, "not_attached", wait_too)]


@mutant(seeds=20)
def send_without_credit() -> Replacements:
    """A consumer is given all there is, whatever it has room for."""

    def eager(_consumer: Consumer) -> bool:
        return True

    def fits(_consumer: Consumer, _pieces: tuple[Piece, ...]) -> bool:
        return True

    return [(Consumer, "is_eager", property(eager)), (Consumer, "fits", fits)]


@mutant(seeds=10)
def forget_the_credit() -> Replacements:
    """Credit that a consumer gives back is not counted."""

    def credit(_consumer: Consumer, _count_bytes: int) -> None:
        pass

    return [(Consumer, "credit", credit)]


@mutant(seeds=100)
def no_cycle_check() -> Replacements:
    """A node that has lost its parent asks its children first, and nobody minds a cycle."""
    leave = Upstream.leave

    def names(_contacts: Iterable[Contact], _node: Contact) -> bool:
        return False

    def look_below(core: Upstream, candidates: Iterable[Contact]) -> Turn:
        return leave(core, (*core._downstream.children.contacts, *candidates))

    return [
        (upstream, "names", names),
        (downstream, "names", names),
        (Upstream, "leave", look_below),
    ]


OF_THE_RELAY = (
    serve_past_the_committed_end,
    a_copy_hands_on_what_it_stores,
    more_children_than_allowed,
    resume_at_the_newest,
    accept_a_gap,
    ignore_a_silent_parent,
    send_without_credit,
    forget_the_credit,
    no_cycle_check,
)
