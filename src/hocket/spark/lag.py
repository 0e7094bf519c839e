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
        self._at: dict[str, dict[int, int]] = {}  # as the broker was told
        self._complaint = ""

    def move(self, name: str, offsets: Offsets, ends: dict[str, list[int]]) -> None:
        """Everything before `offsets` is done with. `ends` are those of all partitions of a topic.

        A failure is a warning, for the query is none the worse; where retention is to be held back
        it is an error, for then records may be removed that nobody has read.
        """
        for topic, places in offsets.items():
            if topic not in ends:
                self._at.pop(topic, None)  # deleted, and its index with it
                continue
            wanted = _whole(places, ends[topic])
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
        if set(wanted) != set(self._at.get(topic, ())):  # it is new here, or the topic has grown
            self._lookout.ask(lambda client: self._create(client, topic, name, wanted))
        try:
            self._seek(topic, name, wanted)
        except UnknownIndex:  # somebody deleted it, or the topic, which is there again
            self._lookout.ask(lambda client: self._create(client, topic, name, wanted))
            self._seek(topic, name, wanted)

    def _seek(self, topic: str, name: str, wanted: dict[int, int]) -> None:
        timeout = self._lookout.timeout
        self._lookout.ask(lambda client: client.seek(topic, name, wanted, timeout=timeout))

    def _create(self, client: Client, topic: str, name: str, wanted: dict[int, int]) -> None:
        """Only a consumer makes an index and says whether it holds: so be one, for a moment."""
        timeout = self._lookout.timeout
        found = {each.name: each for each in client.indexes(topic, timeout=timeout)}.get(name)
        if found is not None:
            _refuse_another_s(found)
            if not self._hold_retention and not found.hold_retention:
                return  # it is as it should be; partitions that came later are held, or not, anew
        client.subscribe(
            topic,
            index=name,
            positions=wanted,
            hold_retention=self._hold_retention,
            credit_bytes=1,  # nothing is going to be read
            timeout=timeout,
        ).close(timeout)

    def _complain(self, topic: str, name: str, error: HocketError) -> None:
        text = f"the lag of index {name!r} of topic {topic!r} cannot be kept: {error}"
        if text != self._complaint:
            log.warning("%s. The query goes on", text)
            self._complaint = text


def _refuse_another_s(index: IndexDescription) -> None:
    """To move the index of a consumer would make it skip records, or read them twice."""
    if index.mode != "own":
        who = f"it is of mode {index.mode}, and so the place of consumers that share it"
    elif any(each.attached for each in index.partitions):
        who = "a consumer is reading with it now"
    else:
        return
    raise OutOfRange(
        f"the index is not this query's: {who}; give the query another name with the option index "
        "(or kafka.group.id)"
    )


def _whole(places: dict[int, int], ends: list[int]) -> dict[int, int]:
    """An index is of all partitions: those that the query does not read are not behind.

    Partitions that it will read, and has not yet, are among `places` at 0; so is one that ends
    before the query's place, since it was made anew.
    """
    found = {partition: places.get(partition, end) for partition, end in enumerate(ends)}
    return {partition: at if at <= ends[partition] else 0 for partition, at in found.items()}
