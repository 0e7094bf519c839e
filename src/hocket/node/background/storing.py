"""Batches that this node stores in partitions of other nodes, and those that others store here.

A batch is sent until it is answered; only so many are under way at a time. The producer of the
batch is known by an id that follows from what is stored, so what comes twice is stored once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hocket import frames
from hocket.core.metadata.catalogue import Topic
from hocket.core.origin import Origin
from hocket.core.partition import events
from hocket.core.placement.storing import (
    BatchStored,
    StoreBatch,
    StoredBatch,
    StoreOutcome,
    StoringMessage,
)
from hocket.errors import HocketError, NotHere, UnknownTopic, from_code
from hocket.frames import Frame
from hocket.model import OWN_PRODUCERS, SECOND_US
from hocket.node.background.transactions import Nobody, Others
from hocket.node.running.own_requests import OF_NODES
from hocket.node.running.partitions import batch_of
from hocket.node.wiring import Wiring
from hocket.wire.batch import check_entries

REPEAT_US = SECOND_US  # after this long without an answer a batch is sent again
SERVED_MAX = 256  # batches of other nodes that are on their way to the log
TEXT_MAX = 4000  # characters of an error that are sent to another node

Done = Callable[[HocketError | None], None]


@dataclass(slots=True, eq=False)
class _Sent:
    topic: str
    number: int  # of the partition
    group: int
    batch: StoredBatch
    done: Done
    told_us: int


class Storing:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self.others: Others = Nobody()
        self._last = 0  # begins with the time: answers to an earlier life are not taken for ours
        self._sent: dict[int, _Sent] = {}  # by number
        self._served: dict[int, tuple[str, int]] = {}  # by our number: the node and its number
        wiring.network.answer_to(self._stored_here, connection=OF_NODES)

    # --- the side that has a batch ---------------------------------------------------------------

    def store(self, topic: Topic, number: int, records: int, entry: bytes, done: Done) -> None:
        """Have the node that leads this partition store the batch. `done` is called once: then it
        is, durably, there, or the error says why it is not. Whoever is away is waited for."""
        now_us = self._wiring.clock.now_us()
        self._last = max(self._last + 1, now_us)
        batch = StoredBatch(0, records, entry)
        sent = _Sent(topic.name, number, topic.groups[number], batch, done, now_us)
        self._sent[self._last] = sent
        self._send(self._last, sent)

    def tick(self, now_us: int) -> None:
        for number, sent in list(self._sent.items()):
            if self._wiring.catalogue.is_deleted(sent.group):
                self._end(number, _deleted())
            elif abs(now_us - sent.told_us) >= REPEAT_US:
                sent.told_us = now_us
                self._send(number, sent)

    def _send(self, number: int, sent: _Sent) -> None:
        topic = self._topic_of(sent)
        if topic is None:
            return
        node = self._wiring.catalogue.leaders_of(topic)[sent.number]
        if node == self._wiring.catalogue.me:  # which leads it by now, or knows nobody who does
            self._end(number, _moved(topic))
        else:
            self.others.send(node, StoreBatch(number, sent.group, (sent.batch,)))

    def _topic_of(self, sent: _Sent) -> Topic | None:
        """None: it was deleted, or made anew."""
        topic = self._wiring.catalogue.topics.get(sent.topic)
        if topic is None or sent.group not in topic.groups[sent.number : sent.number + 1]:
            return None
        return topic

    def _end(self, number: int, error: HocketError | None) -> None:
        sent = self._sent.pop(number, None)
        if sent is not None:
            sent.done(error)

    # --- the side that holds the partition -------------------------------------------------------

    def heard(self, node: str, message: StoringMessage) -> None:
        if isinstance(message, StoreBatch):
            self._serve(node, message)
            return
        sent = self._sent.get(message.request)
        topic = None if sent is None else self._topic_of(sent)
        if sent is None or topic is None or node not in topic.replicas[sent.number]:
            return  # what another node says counts for nothing
        if message.outcome == "stored":
            self._end(message.request, None)
        elif message.outcome == "refused":
            self._end(message.request, from_code(message.code, message.text))
        elif message.outcome == "gone":
            self._end(message.request, _deleted())
        else:  # it is not theirs: whoever leads it, as far as is known then, is asked soon
            sent.told_us = 0

    def _serve(self, node: str, message: StoreBatch) -> None:
        if (node, message.request) in self._served.values() or len(self._served) >= SERVED_MAX:
            return  # it is on its way, or comes again
        hosted = self._wiring.partitions.get(message.group)
        if hosted is None:
            gone = self._wiring.catalogue.is_deleted(message.group)
            self._answer(node, message.request, "gone" if gone else "not_mine")
            return
        try:
            batches = [
                batch_of(info, memoryview(each.data))
                for each in message.batches
                for info in check_entries(memoryview(each.data))
            ]
            if len(batches) != 1 or not batches[0].producer_id.startswith(OWN_PRODUCERS):
                raise HocketError("a node stores one batch at a time, of a producer of its own")
            (batch,) = batches
            self._wiring.partitions.admit(hosted.group, len(message.batches[0].data))
        except HocketError as error:
            self._answer(node, message.request, "refused", error)
            return
        batch.crc = None  # stored again after a crash, it has another timestamp
        number = next(self._wiring.network.numbers)
        self._served[number] = (node, message.request)
        now_us = self._wiring.clock.now_us()
        self._wiring.partitions.step(
            hosted, events.Produce(Origin(OF_NODES, 0, number), batch, now_us)
        )

    def _stored_here(self, frame: Frame) -> None:
        """A batch of another node is stored here, or was refused."""
        node, request = self._served.pop(frame.request)
        if isinstance(frame, frames.Failure) and frame.code == NotHere.code:
            self._answer(node, request, "not_mine")
        elif isinstance(frame, frames.Failure):
            self._answer(node, request, "refused", from_code(frame.code, frame.message))
        else:
            self._answer(node, request, "stored")

    def _answer(
        self, node: str, request: int, outcome: StoreOutcome, error: HocketError | None = None
    ) -> None:
        code, text = ("", "") if error is None else (error.code, str(error)[:TEXT_MAX])
        self.others.send(node, BatchStored(request, outcome, code, text))


def _moved(topic: Topic) -> NotHere:
    return NotHere(f"it is not known yet who leads a partition of topic {topic.name!r}")


def _deleted() -> UnknownTopic:
    return UnknownTopic("the topic was deleted")
