"""The work of a cluster: records are published and consumed, keys are looked up, and topics and
users are changed.

Producers speak through the cores of the real client (`client`), which push again what was not
acknowledged and follow a topic to its node. What they mend is counted, and what they must never
have to mend is a mistake. Consumers use the relays of any machine, and keep a diary of what was
delivered. When its machine dies, a consumer goes on at another, at the same offset. Lookups ask any
machine for any key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hocket import frames
from hocket.client_core.calls import topics
from hocket.client_core.producing.core import ProducerCore
from hocket.client_core.producing.delivery import Pusher
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.outgoing import Outcome, Outgoing, Positions, Stamp
from hocket.core.relay.messages import Piece
from hocket.core.ring.circle import SIZE, position_of
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Located, NotLocated
from hocket.errors import HocketError, NoConnection, ReplyLost, RootAway, UnknownTopic
from hocket.model import PartitionId, TopicConfig
from hocket.sim.administrator import Administrator
from hocket.sim.client import RETRY_US, Client, Unexpected
from hocket.sim.subscribers import Office, Subscriber, Worker
from hocket.wire import batch as batches

if TYPE_CHECKING:
    from hocket.sim.machine import Machine
    from hocket.sim.site import Site

AWAY_US = 300_000  # after which something is asked again that the root could not be asked
IN_FLIGHT_MAX = 8  # batches of a producer and partition
PUSH_EVERY_US = 400_000  # on the average
FOREVER_US = 1 << 60  # a producer gives nothing up: the cluster must take it in the end
ADMINISTRATORS = 2
MOVE_EVERY_US = 15_000_000  # on average, until a consumer moves to another machine
CREDIT_US = 5_000  # at most, until a consumer gives its credit back
SLOW_US = 3_000_000  # the same for a slow consumer; when faults are over all are quick


Logs = dict[
    PartitionId, dict[int, bytes]
]  # by partition and offset: what producers were told is stored


class Founder(Client):
    """Creates a topic; tries again until it is there.

    It asks one machine alone, which is there to the end.
    """

    roams = False

    def __init__(self, site: Site, machine: Machine, topic: str) -> None:
        self.topic = topic
        self.created = False
        super().__init__(site, machine, f"founder of {topic}")
        self._found()

    def _found(self) -> None:
        config = TopicConfig(
            partitions=self.site.options.partitions,
            memory_retention_us=2_000_000,
            segment_bytes_max=4096,
        )
        try:
            self.ask(topics.create_topic(self.topic, config, exist_ok=True), self._answered)
        except HocketError:  # its first machine was down
            self.site.scheduler.after(AWAY_US, self._found)

    def _answered(self, outcome: HocketError | None) -> None:
        if isinstance(outcome, RootAway | NoConnection | ReplyLost):
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


class Producer(Client):
    """Sends numbered batches to every partition of a topic, until they are acknowledged."""

    def __init__(self, site: Site, machine: Machine, topic: str, number: int, logs: Logs) -> None:
        self.topic = topic
        self.stopped = False
        self.made = dict.fromkeys(range(site.options.partitions), 0)  # by partition: batches
        self.core: SureProducerCore | None = None
        self._logs = logs
        super().__init__(site, machine, f"producer {topic}/{number}")
        self._open()
        self._later()

    @property
    def finished(self) -> bool:
        """Whether it has sent something, and all of it is acknowledged."""
        return self.core is not None and any(self.made.values()) and not self.core.count()

    def _open(self) -> None:
        core = SureProducerCore(
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
        delay_us = round(self.chance.expovariate(1 / PUSH_EVERY_US))
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

        def encoded(stamp: Stamp) -> bytes:
            return batches.encode(
                values, timestamps=self.site.now_us, producer_id=stamp.producer_id,
                epoch=stamp.epoch, sequence=stamp.sequence,
            )  # fmt: skip

        if not core.offer_entry(gathering, encoded, len(values), waiter=values):
            raise Unexpected(f"{self.name} has no room for {values!r}")

    def _settle(self, batch: Outgoing, outcome: Outcome) -> None:
        if not isinstance(outcome, Positions):
            raise Unexpected(f"{self.name} was told {outcome!r} of {batch.count} records")
        if batch.pushes > 1:
            self.mend("pushed again")
        log = self._logs[PartitionId(self.topic, outcome.partition)]
        ((_, values),) = batch.waiters
        for offset, value in enumerate(values, outcome.start):
            if log.setdefault(offset, value) != value:
                raise Unexpected(f"{self.name}: offset {offset} was {log[offset]!r}, now {value!r}")


class Consumer:
    """Consumes one partition through the relays of the machine that it is on."""

    def __init__(
        self,
        site: Site,
        number: int,
        partition_id: PartitionId,
        *,
        slow: bool,
        delivered: Callable[[Consumer, int], None],
        log_id: Callable[[PartitionId], PartitionId | None],
    ) -> None:
        self.number = number
        self.partition_id = partition_id
        self.log_id = partition_id  # with its group, once it is on a machine
        self._log_id = log_id
        self.slow = slow
        self.machine: Machine | None = None  # None: it is on no machine just now
        self.diary: list[tuple[int, bytes]] = []  # offset and value, as they came
        self.next_offset = 0
        self.started_at_us = 0  # on this machine
        self.credit_bytes = site.options.credit_bytes
        self.outstanding_bytes = 0  # delivered, and no credit given for it yet
        self.deliveries = 0
        self._site = site
        self._delivered = delivered
        self._chance = site.scheduler.random(f"consumer {number}")
        self._handle = 0
        self._life = 0  # counts its starts, to tell what comes late for an earlier one
        self._begin()

    def _begin(self) -> None:
        machines = [machine for machine in self._site.machines if machine.is_member]
        log_id = self._log_id(self.partition_id)
        if not machines or log_id is None:
            self._site.scheduler.after(RETRY_US, self._begin)
            return
        self.log_id = log_id
        self._start(self._chance.choice(machines))
        if self._site.is_safety_phase:
            delay_us = round(self._chance.expovariate(1 / MOVE_EVERY_US))
            self._site.scheduler.after(delay_us, partial(self._move, self._life))

    def _start(self, machine: Machine) -> None:
        self._life += 1
        self.machine = machine
        self.started_at_us = self._site.now_us
        self.outstanding_bytes = 0
        node = machine.node
        assert node is not None
        life = self._life

        def start() -> None:
            self._handle = node.relays.consume(
                self.log_id, self.next_offset, self.credit_bytes, partial(self._deliver, life)
            )

        machine.turn(start)

    def _move(self, life: int) -> None:
        """Stop on this machine, and begin again on another."""
        if life != self._life or not self._site.is_safety_phase or self.machine is None:
            return
        machine, handle = self.machine, self._handle
        node = machine.node
        assert node is not None
        self.machine = None
        machine.turn(lambda: node.relays.stop(handle))
        self._site.tell(machine, "consumer {} stops at {}", self.number, self.next_offset)
        self._site.scheduler.after(self._chance.randrange(100_000), self._begin)

    def machine_died(self) -> None:
        self.machine = None
        self._life += 1
        self._site.scheduler.after(self._chance.randrange(1_000_000), self._begin)

    def _deliver(self, life: int, pieces: tuple[Piece, ...], end: int) -> None:
        if life != self._life:
            return  # it was on its way when the consumer stopped
        taken = 0
        self.deliveries += 1
        wanted = self.next_offset
        for number, piece in enumerate(pieces):
            taken += len(piece.data)
            batch = batches.parse(memoryview(piece.data), 0)
            # The first batch may begin before the wanted offset, if it contains it. Any other
            # repetition goes into the diary, where a checker finds it.
            is_whole = number == 0 and piece.start <= wanted < piece.end
            skipped = wanted - batch.base_offset if is_whole else 0
            for offset, value in enumerate(batch.values(skipped), batch.base_offset + skipped):
                self.diary.append((offset, bytes(value)))
                self.next_offset = offset + 1
        self._delivered(self, end)
        self.outstanding_bytes += taken
        dawdles = self.slow and self._site.is_safety_phase
        delay_us = self._chance.randrange(SLOW_US if dawdles else CREDIT_US)
        self._site.scheduler.after(delay_us, partial(self._give_credit, life, taken))

    def _give_credit(self, life: int, taken: int) -> None:
        machine = self.machine
        if life != self._life or machine is None or machine.node is None:
            return
        self.outstanding_bytes -= taken
        machine.time.do(partial(machine.node.relays.credit, self._handle, taken))


@dataclass(slots=True)
class Lookup:
    """A lookup that has ended, with the truth at its beginning and at its end."""

    machine: str
    key: int
    asked_at_us: int
    ended_at_us: int
    owners: tuple[Contact, ...]  # none: not found
    route: tuple[Contact, ...]
    truth: tuple[Contact | None, Contact | None]  # the live successor of the key, then and now


class Workload:
    def __init__(self, site: Site) -> None:
        self.consumers: list[Consumer] = []
        self.lookups: list[Lookup] = []
        self.lookups_open = 0
        self.deliveries = 0
        self.owners: dict[PartitionId, Machine] = {}  # of those that are made: who holds them
        self.logs: Logs = {}
        self._log_ids: dict[PartitionId, PartitionId] = {}  # with their groups
        self.producers: list[Producer] = []
        self.administrators: list[Administrator] = []
        self.subscribers: list[Subscriber] = []
        self.workers: list[Worker] = []
        self.offices: list[Office] = []
        self.founders: list[Founder] = []
        self._site = site
        self._chance = site.scheduler.random("workload")
        self._keys = site.scheduler.random("lookups")
        self._admins = site.scheduler.random("administrators")
        self._readers = site.scheduler.random("subscribers")
        for number in range(site.options.topics):  # before they start: they get partitions
            self._founder_of(_topic(number)).keeps = True

    def begin(self) -> None:
        site, options = self._site, self._site.options
        for number in range(options.topics):
            self._found(_topic(number))
        partition_ids = list(self.logs)
        for number in range(options.consumers):
            # Mostly the first partition: fan-out needs a crowd.
            partition_id = (
                partition_ids[0]
                if self._chance.random() < 0.7
                else self._chance.choice(partition_ids)
            )
            slow = self._chance.random() < options.slow_consumers
            delay_us = self._chance.randrange(options.safety_us // 2)
            site.scheduler.after(delay_us, partial(self._consume, number, partition_id, slow))
        if options.changes_every_us:
            for number in range(ADMINISTRATORS):
                machine = self._admins.choice(site.machines)
                every_us = ADMINISTRATORS * options.changes_every_us
                self.administrators.append(Administrator(site, machine, number, every_us))
        for number in range(options.topics):
            self._subscribe_to(f"topic-{number}")
        self._look_up_later()

    def _subscribe_to(self, topic: str) -> None:
        site, options = self._site, self._site.options
        for number in range(options.subscribers):
            machine = self._readers.choice(site.machines)
            self.subscribers.append(Subscriber(site, machine, topic, number))
        if options.workers:
            office = Office(topic, "shared")
            self.offices.append(office)
            for number in range(options.workers):
                machine = self._readers.choice(site.machines)
                self.workers.append(Worker(site, machine, office, number))

    def _found(self, topic: str) -> None:
        site, options = self._site, self._site.options
        machine = self._founder_of(topic)
        for partition in range(options.partitions):
            self.logs[PartitionId(topic, partition)] = {}
        self.founders.append(Founder(site, machine, topic))
        self.producers += [
            Producer(site, machine, topic, number, self.logs) for number in range(options.producers)
        ]

    def _founder_of(self, topic: str) -> Machine:
        return self._site.successor_machine(position_of(topic))

    def _consume(self, number: int, partition_id: PartitionId, slow: bool) -> None:
        self.consumers.append(
            Consumer(
                self._site,
                number,
                partition_id,
                slow=slow,
                delivered=self._delivered,
                log_id=self.log_id,
            )
        )

    def log_id(self, partition_id: PartitionId) -> PartitionId | None:
        """With the group of its log; None: no machine that is up has the partition yet."""
        known = self._log_ids.get(partition_id)
        if known is None:
            for machine in self._site.machines:
                for each in machine.node.partition_ids() if machine.node is not None else ():
                    if each._replace(group=0) == partition_id:
                        known = self._log_ids[partition_id] = each
                        self.owners[partition_id] = machine
        return known

    def stop(self) -> None:
        """Publish nothing new; what was begun is finished.

        A producer that no fault let begin begins now: a run without a record shows nothing.
        """
        for producer in self.producers:
            producer.stopped = True
        for administrator in self.administrators:
            administrator.stopped = True

    @property
    def clients(self) -> list[Client]:
        """All who speak through the cores of the real client."""
        return [
            *self.founders, *self.producers, *self.administrators, *self.subscribers, *self.workers,
        ]  # fmt: skip

    def mended(self) -> Counter[str]:
        """What the cores of all clients have put right by themselves, by kind."""
        return sum((each.mended for each in self.clients), Counter())

    def unfinished(self) -> str:
        """What is not acknowledged, or not delivered to every consumer; empty if nothing."""
        for founder in self.founders:
            if not founder.created:
                return f"{founder.topic} is not created"
        for producer in self.producers:
            if not producer.finished:
                return f"{producer.name} waits for acknowledgements"
        for administrator in self.administrators:
            if not administrator.idle:
                return f"{administrator.name} waits for an answer"
        return self._unread()

    def _unread(self) -> str:
        """What is not delivered to every consumer, or not acknowledged; empty if nothing."""
        for subscriber in self.subscribers:
            for partition_id, log in self.logs.items():
                done = subscriber.committed.get(partition_id.partition, 0)
                if partition_id.topic == subscriber.topic and done < len(log):
                    return f"{subscriber.name} has committed {done} of {len(log)} in {partition_id}"
        for office in self.offices:
            if office.lag != 0:
                return f"the workers of {office.topic} are behind by {office.lag}"
        for consumer in self.consumers:
            end = len(self.logs[consumer.partition_id])
            if consumer.next_offset < end:
                where = consumer.machine.name if consumer.machine else "no machine"
                return (
                    f"consumer {consumer.number} on {where} has {consumer.partition_id.topic}/"
                    f"{consumer.partition_id.partition} up to {consumer.next_offset}, not {end}"
                )
        return ""

    def machine_died(self, machine: Machine) -> None:
        for consumer in self.consumers:
            if consumer.machine is machine:
                consumer.machine_died()

    def _delivered(self, consumer: Consumer, end: int) -> None:
        self.deliveries += 1
        self._site.tree_moved = True
        self._site.trace.event(
            self._site.now_us, f"c{consumer.number}", f"{consumer.next_offset} {end}"
        )

    # --- lookups -----------------------------------------------------------------------------

    def _look_up_later(self) -> None:
        delay_us = round(self._keys.expovariate(1 / self._site.options.lookups_every_us))
        self._site.scheduler.after(delay_us, self._look_up)

    def _look_up(self) -> None:
        self._look_up_later()
        machines = [
            machine for machine in self._site.machines if machine.is_member and not machine.stalled
        ]
        if machines:
            self.look_up(self._keys.choice(machines), self._key())

    def _key(self) -> int:
        """A key anywhere, or right at a machine's position, where off-by-one mistakes show."""
        if self._keys.random() < 0.5:
            return self._keys.randrange(SIZE)
        machine = self._keys.choice(self._site.machines)
        return (machine.position + self._keys.choice([-1, 0, 1])) % SIZE

    def look_up(self, machine: Machine, key: int) -> None:
        site = self._site
        node = machine.node
        assert node is not None
        asked_at_us, truth = site.now_us, site.owner_of(key)
        self.lookups_open += 1

        def found(answer: Located | NotLocated) -> None:
            self.lookups_open -= 1
            owners: tuple[Contact, ...] = ()
            route: tuple[Contact, ...] = ()
            if isinstance(answer, Located):
                owners, route = answer.owners, answer.route
            ended_at_us = site.now_us
            self.lookups.append(
                Lookup(
                    machine.name, key, asked_at_us, ended_at_us, owners, route,
                    (truth, site.owner_of(key)),
                )
            )  # fmt: skip

        machine.turn(lambda: node.ring.find(key, found))


def _topic(number: int) -> str:
    return f"topic-{number}"
