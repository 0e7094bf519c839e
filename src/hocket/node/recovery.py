"""What a node does with what its store recovered: the metadata first, and words about all of it.

Losses in the metadata's log were accepted by the operator, or the store would not have been opened.
What they changed is as it was before. Records whose topic is among it are not deleted: they get a
new topic.
"""

from __future__ import annotations

import logging
from collections import deque

from hocket.core.metadata.metadata import GROUP
from hocket.log.model import RecoveredGroup
from hocket.log.store import accept_command
from hocket.node.wiring import Wiring

log = logging.getLogger("hocket.node")


def recover_metadata(
    wiring: Wiring, own: RecoveredGroup, others: dict[int, RecoveredGroup]
) -> None:
    """Bring the machines to the state that their log was left in; `others` are the other groups."""
    metadata = wiring.metadata
    wiring.metadata_term = own.term + 1
    metadata.restore(own.snapshot_index, own.snapshot)
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
        _adopt(wiring, others)


def _adopt(wiring: Wiring, others: dict[int, RecoveredGroup]) -> None:
    catalogue = wiring.catalogue
    homes = {
        group for topic in catalogue.topics.values() for group in (*topic.groups, *topic.waiting)
    }
    for topic in catalogue.adopt(others.keys() - homes - catalogue.deleted):
        log.warning(
            "the topic of log %d is lost with its name: the log is topic %r now",
            topic.groups[0], topic.name,
        )  # fmt: skip


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
