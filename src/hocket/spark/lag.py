"""The index of a streaming query: how far it has come, where everybody can see it.

Spark keeps the query's offsets in its checkpoint. Here they are told to the broker too, so that
`hocket index lag` shows the query like any other consumer, and, where that is wanted, so that
retention waits for it. Nothing is ever read back from it.

It moves when Spark asks for the next batch, which it does when the last one is done and logged: so
the lag is exact while a query is idle, and after Trigger.AvailableNow. Only after the old
Trigger.Once, where Spark does not ask again, the batch of that run counts as lag until the next.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hocket.client.faces.blocking.client import Client
from hocket.errors import HocketError, OutOfRange, UnknownIndex
from hocket.spark.lookout import Lookout

if TYPE_CHECKING:
    from hocket.model import IndexDescription
    from hocket.spark.offsets import Offsets
    from hocket.spark.options import ReadOptions

log = logging.getLogger("hocket.spark")


class QueryIndex:
    def __init__(self, options: ReadOptions, lookout: Lookout) -> None:
        self._hold_retention = options.hold_retention
        self._lookout = lookout
        self._at: dict[str, dict[int, int]] = {}  # what the broker was last told, by topic
        self._complaint = ""

    def move(self, name: str, offsets: Offsets, ends: dict[str, list[int]]) -> None:
        """Tell the broker that everything before `offsets` has been read.

        `ends` has the ends of all partitions of each topic. A failure is only logged, since the
        query itself goes on as well as before. With `holdRetention` a failure is an error, since
        records may be removed that the query has not read.
        """
        if not self._lookout.has_broker:
            return
        for topic, at in offsets.items():
            if topic not in ends:
                self._at.pop(topic, None)  # deleted, and its index with it
                continue
            wanted = _whole(at, ends[topic])
            if wanted == self._at.get(topic):
                continue
            try:
                self._put(topic, name, wanted)
            except HocketError as error:
                if self._hold_retention:
                    raise
                self._complain(topic, name, error)
            else:
                self._at[topic] = wanted

    def _put(self, topic: str, name: str, wanted: dict[int, int]) -> None:
        if set(wanted) != set(self._at.get(topic, ())):  # the topic is new here, or has grown
            self._lookout.ask(lambda client: self._create(client, topic, name, wanted))
        try:
            self._seek(topic, name, wanted)
        except UnknownIndex:  # the index, or the topic, was deleted and made again
            self._lookout.ask(lambda client: self._create(client, topic, name, wanted))
            self._seek(topic, name, wanted)

    def _seek(self, topic: str, name: str, wanted: dict[int, int]) -> None:
        timeout = self._lookout.timeout
        self._lookout.ask(lambda client: client.seek(topic, name, wanted, timeout=timeout))

    def _create(self, client: Client, topic: str, name: str, wanted: dict[int, int]) -> None:
        """Subscribe for a moment: only a consumer makes an index, or makes it hold records."""
        timeout = self._lookout.timeout
        found = {each.name: each for each in client.indexes(topic, timeout=timeout)}.get(name)
        if found is not None:
            _refuse_another_s(found)
            if not self._hold_retention and not found.hold_retention:
                return  # it is as it should be, also for partitions that came later
        client.subscribe(
            topic,
            index=name,
            positions=wanted,
            hold_retention=self._hold_retention,
            credit_bytes=1,  # nothing will be read
            timeout=timeout,
        ).close(timeout)

    def _complain(self, topic: str, name: str, error: HocketError) -> None:
        text = f"the lag of index {name!r} of topic {topic!r} cannot be kept: {error}"
        if text != self._complaint:
            log.warning("%s. The query goes on", text)
            self._complaint = text


def _refuse_another_s(index: IndexDescription) -> None:
    """Raise OutOfRange for an index of others: moving it would make them skip or repeat records."""
    if index.mode != "own":
        who = f"it is of mode {index.mode}, and belongs to the consumers that share it"
    elif any(each.attached for each in index.partitions):
        who = "a consumer is reading with it now"
    else:
        return
    raise OutOfRange(
        f"the index is not this query's: {who}; give the query another name with the option index "
        "(or kafka.group.id)"
    )


def _whole(offsets: dict[int, int], ends: list[int]) -> dict[int, int]:
    """The index's offset for every partition of the topic.

    A partition that the query does not read is at its end, so that it does not count as lag. A
    partition that the query will read and has not yet is in `offsets` with 0. A partition that ends
    before the query's offset was created again, and is at 0 too.
    """
    found = {partition: offsets.get(partition, end) for partition, end in enumerate(ends)}
    return {partition: at if at <= ends[partition] else 0 for partition, at in found.items()}
