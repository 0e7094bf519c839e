"""Those who make a topic, and those who write to it until all is acknowledged.

They speak through the cores of the real client (`client`), which push again what was not
acknowledged and follow a topic to its node. What they mend is counted, and what they must never
have to mend is a mistake.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hocket import frames
from hocket.client_core.calls import topics
from hocket.client_core.producing.core import ProducerCore
from hocket.client_core.producing.delivery import Pusher
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.outgoing import Outcome, Outgoing, Positions, Stamp
from hocket.client_core.producing.publishing import PublishPusher
from hocket.errors import (
    HocketError,
    NoConnection,
    NotEnoughNodes,
    ReplyLost,
    RootAway,
    UnknownTopic,
)
from hocket.model import PartitionId, TopicConfig
from hocket.sim.client import RETRY_US, Client, Unexpected
from hocket.wire import batch as batches

if TYPE_CHECKING:
    from hocket.sim.machine import Machine
    from hocket.sim.site import Site

AWAY_US = 300_000  # after which something is asked again that the root could not be asked
IN_FLIGHT_MAX = 8  # batches of a producer and partition
KEYS = (b"a", b"b", b"c", b"d")  # of records, where they have some
PUSH_EVERY_US = 400_000  # on the average ...
PUSH_OFTEN_US = 120_000  # ... and where old records go: there must be some
FOREVER_US = 1 << 60  # a producer gives nothing up: the cluster must take it in the end

Logs = dict[PartitionId, dict[int, bytes]]  # what was told to be stored, by offset


class Offered(NamedTuple):
    """A batch that is on its way."""

    values: list[bytes]
    behind: int  # the end of what was acknowledged in its partition when it was made


class Ack(NamedTuple):
    """A batch that was acknowledged."""

    place: PartitionId
    start: int
    end: int
    behind: int  # as above
    by: str


@dataclass
class Ledger:
    """What all producers were told is stored."""

    logs: Logs = field(default_factory=dict)
    ends: dict[PartitionId, int] = field(default_factory=dict)
    acks: list[Ack] = field(default_factory=list)

    def begin(self, place: PartitionId) -> None:
        self.logs[place] = {}
        self.ends[place] = 0

    def acknowledged(self, place: PartitionId, start: int, offered: Offered, by: str) -> None:
        log = self.logs[place]
        for offset, value in enumerate(offered.values, start):
            if log.setdefault(offset, value) != value:
                raise Unexpected(f"{by}: offset {offset} was {log[offset]!r}, now {value!r}")
        end = start + len(offered.values)
        self.ends[place] = max(self.ends[place], end)
        self.acks.append(Ack(place, start, end, offered.behind, by))


class Founder(Client):
    """Creates a topic; tries again until it is there.

    It asks one machine alone, which is there to the end.
    """

    roams = False

    def __init__(
        self, site: Site, machine: Machine, topic: str, replicas: int, partitions: int = 0
    ) -> None:
        """`partitions`: that it has instead of as many as the seed says."""
        self.topic = topic
        self.partitions = partitions or site.options.partitions
        self.replicas = replicas
        self.created = False
        super().__init__(site, machine, f"founder of {topic}")
        self._found()

    def _found(self) -> None:
        # Workers do not hold retention back.
        kept_bytes = self.site.options.kept_bytes if self.replicas > 1 else None
        config = TopicConfig(
            partitions=self.partitions,
            replication=self.replicas,
            memory_retention_us=2_000_000,
            segment_bytes_max=1024 if kept_bytes else 4096,
            disk_bytes_max=kept_bytes,
        )
        try:
            self.ask(topics.create_topic(self.topic, config, exist_ok=True), self._answered)
        except HocketError:  # its first machine was down
            self.site.scheduler.after(AWAY_US, self._found)

    def _answered(self, outcome: HocketError | None) -> None:
        if isinstance(outcome, RootAway | NoConnection | ReplyLost | NotEnoughNodes):
            self.site.scheduler.after(AWAY_US, self._found)
        elif outcome is not None:
            raise Unexpected(f"{self.name} was answered {outcome!r}")
        else:
            self.created = True


class SurePusher(Pusher):
    """What no cluster may bring about, and a producer would put right, is a mistake here."""

    producer: SureProducerCore

    def _opened(self, frame: frames.ProducerOpened) -> None:
        if self.producer_id not in (b"", frame.producer_id):
            name = self.producer.name
            raise Unexpected(f"{name} had to begin anew: its id is not known any more")
        super()._opened(frame)

    def _learn_fates(self, gathering: Gathering, expected: int) -> None:
        if not gathering.agrees(expected):
            raise Unexpected(
                f"{self.producer.name} was acknowledged more than the {expected} batches that the "
                f"leader of partition {gathering.partition} has"
            )
        super()._learn_fates(gathering, expected)


class SureProducerCore(ProducerCore):
    pusher_kind = SurePusher
    name = ""


class SurePublishPusher(SurePusher, PublishPusher):
    """The same, of single publishes."""


class SurePublishCore(SureProducerCore):
    pusher_kind = SurePublishPusher


class Producer(Client):
    """Sends numbered batches to every partition of a topic, until they are acknowledged."""

    core_kind: type[SureProducerCore] = SureProducerCore
    kind = "producer"

    def __init__(
        self, site: Site, machine: Machine, topic: str, number: int, ledger: Ledger
    ) -> None:
        self.topic = topic
        self.stopped = False
        self.made = dict.fromkeys(range(site.options.partitions), 0)  # by partition: batches
        self.core: SureProducerCore | None = None
        self._ledger = ledger
        super().__init__(site, machine, f"{self.kind} {topic}/{number}")
        self._open()
        self._later()

    @property
    def finished(self) -> bool:
        """Whether it has sent something, and all of it is acknowledged."""
        return self.core is not None and any(self.made.values()) and not self.core.count()

    def _open(self) -> None:
        core = self.core_kind(
            self.router.first, self.topic, ProducerOptions(linger_us=0, delivery_us=FOREVER_US),
            self._settle,
        )  # fmt: skip
        core.name = self.name
        try:
            self.turn(core.open)
        except HocketError:  # its first machine was down
            self.site.scheduler.after(RETRY_US, self._open)
        else:
            self.core = core

    def _later(self) -> None:
        every_us = PUSH_OFTEN_US if self.site.options.kept_bytes else PUSH_EVERY_US
        delay_us = round(self.chance.expovariate(1 / every_us))
        self.site.scheduler.after(delay_us, self._produce)

    def _produce(self) -> None:
        options, core = self.site.options, self.core
        if self.stopped and any(self.made.values()):
            return
        self._later()
        if core is not None and isinstance(core.failure, UnknownTopic | NoConnection):
            self._open()  # the topic was not there yet, or its machine was not
            return
        partition = self.chance.randrange(options.partitions)
        number = self.made[partition]
        if core is None or not core.is_open or number == options.batches:
            return
        gathering = core.gatherings[partition]
        if len(gathering.queue) >= IN_FLIGHT_MAX:
            return
        self.made[partition] += 1
        head = f"{self.name}/{partition}/{number}/".encode()
        values = [
            b"%s%d:%s" % (head, each, bytes(self.chance.randrange(options.record_bytes_max)))
            for each in range(self.chance.randrange(1, 5))
        ]
        self.turn(partial(self._send_batch, core, gathering, values))

    def _send_batch(self, core: ProducerCore, gathering: Gathering, values: list[bytes]) -> None:
        """As one batch: checkers know how large it can be."""

        keys = [KEYS[len(each) % len(KEYS)] for each in values]

        def encoded(stamp: Stamp) -> bytes:
            return batches.encode(
                values, timestamps=self.site.now_us, producer_id=stamp.producer_id,
                epoch=stamp.epoch, sequence=stamp.sequence,
                keys=keys if self.site.options.keyed else None,
            )  # fmt: skip

        place = PartitionId(self.topic, gathering.partition)
        offered = Offered(values, self._ledger.ends[place])
        if not core.offer_entry(gathering, encoded, len(values), waiter=offered):
            raise Unexpected(f"{self.name} has no room for {values!r}")

    def _settle(self, batch: Outgoing, outcome: Outcome) -> None:
        if not isinstance(outcome, Positions):
            raise Unexpected(f"{self.name} was told {outcome!r} of {batch.count} records")
        if batch.pushes > 1:
            self.mend("pushed again")
        place = PartitionId(self.topic, outcome.partition)
        ((_, offered),) = batch.waiters
        self._ledger.acknowledged(place, outcome.start, offered, self.name)
        self.site.clients_moved = True


class Publisher(Producer):
    """Publishes messages one by one, as those do who hold no producer."""

    core_kind = SurePublishCore
    kind = "publisher"
