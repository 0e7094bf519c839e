"""What a node does with what its store recovered: the metadata first, and words about all of it.

Decisions on transactions are in a log of their own. In a directory of an older version they are in
the metadata's log, and are carried over once: the new log begins with a snapshot of them, behind
the index at which the metadata's log ends, so that decisions keep their numbers.

Losses in the metadata's log were accepted by the operator, or the store would not have been opened.
What they changed is as it was before. Records whose topic is among it are not deleted: they get a
new topic.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable

from hocket.core.metadata.catalogue import Topic
from hocket.core.metadata.metadata import GROUP
from hocket.log.model import RecoveredGroup
from hocket.log.settings import GroupSettings
from hocket.log.vital import accept_command
from hocket.model import DECISIONS
from hocket.node.running.deciders import replay
from hocket.node.running.partitions import Hosted
from hocket.node.wiring import Wiring

log = logging.getLogger("hocket.node")


def recover_metadata(wiring: Wiring, own: RecoveredGroup) -> None:
    """Bring the machines to the state that their log was left in."""
    metadata = wiring.metadata
    wiring.metadata_term = own.term + 1
    # Of a node that belonged to a cluster, it has a line about that before the state.
    metadata.restore(own.snapshot_index, own.snapshot.rpartition(b"\n")[2])
    losses = deque(loss for loss in own.losses if loss.next_index - 1 > own.snapshot_index)
    is_lossy = bool(own.losses)
    for header, body in own.entries:
        while losses and losses[0].next_index <= header.index:
            metadata.lost(losses.popleft().next_index)
        metadata.replayed(header.kind, header.index, bytes(body))
    if metadata.indexes.last + 1 < own.next_index:
        is_lossy = True
        metadata.lost(own.next_index)
    if is_lossy:
        log.warning(
            "the metadata goes on without entries that are lost, as was accepted: %s; check "
            "topics, users, roles and grants", "; ".join(map(str, own.damage)),
        )  # fmt: skip
        wiring.metadata_is_whole = False


def adopt(wiring: Wiring, orphans: Iterable[int]) -> None:
    """Make topics for logs that belong to none and whose deletion is not known."""
    for topic in wiring.catalogue.adopt(orphans):
        log.warning(
            "the topic of log %d is lost with its name: the log is topic %r now",
            topic.groups[0], topic.name,
        )  # fmt: skip
    wiring.metadata.changed()


def recover_decisions(wiring: Wiring, own: RecoveredGroup | None) -> None:
    """Bring the node's own decider to the state that its log was left in; there is none of old."""
    seat = wiring.deciders.own
    decider = seat.core
    if own is None:
        last, term = wiring.metadata.indexes.last, wiring.metadata_term - 1
        decider.go_on_behind(last)
        _, state = decider.snapshot()
        wiring.log.install(DECISIONS, last, term, json.dumps(state).encode(), lambda: None)
        seat.term = term + 1
    else:
        seat.term = own.term + 1
        replay(decider, own)
        if own.losses:
            log.warning(
                "the decisions on transactions go on without entries that are lost, as was "
                "accepted: %s", "; ".join(map(str, own.damage)),
            )  # fmt: skip
    wiring.log.configure(DECISIONS, GroupSettings())


def host(
    wiring: Wiring, topic: Topic, numbers: list[int], recovered: dict[int, RecoveredGroup]
) -> list[Hosted]:
    """Host these partitions of the topic, in order, which this node alone keeps; returns them.

    With each of them, the log in which its delayed messages wait.
    """
    now_us = wiring.clock.now_us()
    found: list[Hosted] = []
    for number in numbers:
        group = topic.groups[number]
        known = recovered.pop(group, None)
        found.append(
            wiring.partitions.host(topic.name, number, group, topic.config, known, now_us=now_us)
        )
    for number in numbers[: bisect_left(numbers, len(topic.waiting))]:
        group, goal = topic.waiting[number], topic.groups[number]
        known = recovered.pop(group, None)
        wiring.partitions.host(
            topic.name, number, group, topic.config, known, now_us=now_us, waits_for=goal
        )
    return found


def tell(wiring: Wiring) -> None:
    """Say what was recovered, and what is damaged."""
    store = wiring.log
    log.info("%s", store.summary)
    for remark in store.remarks:
        log.warning("%s", remark)
    for hosted in wiring.partitions:
        problem = store.stats(hosted.group).problem
        if problem:
            log.warning(
                "%s is damaged: %s; put the data directory back from a copy, or go on without what "
                "is lost: %s", hosted.where, problem,
                accept_command(wiring.settings.log.where, hosted.group),
            )  # fmt: skip
    problem = store.stats(GROUP).problem
    if problem:  # in what is history by now: the state does not depend on it
        log.warning("the metadata's log is damaged: %s", problem)
