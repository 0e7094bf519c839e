"""The work of a cluster: records are published and consumed, keys are looked up, and topics and
users are changed.

Those who write are in `producers`, and those who subscribe in `subscribers`. Consumers use the
relays of any machine, and keep a diary of what was delivered. When its machine dies, a consumer
goes on at another, at the same offset. Lookups ask any machine for any key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from hocket.core.relay.messages import Piece
from hocket.core.ring.circle import SIZE, position_of
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Located, NotLocated
from hocket.model import DEAD_LETTERS, DECIDERS_COUNT, DECISIONS, Mode, PartitionId
from hocket.sim.administrator import Administrator
from hocket.sim.client import RETRY_US, Client
from hocket.sim.producers import Founder, Ledger, Logs, Producer, Publisher
from hocket.sim.subscribers import Office, Subscriber, Worker
from hocket.sim.transactors import PARTITIONS, REPLICAS, TOPIC, Transactor
from hocket.wire import batch as batches

if TYPE_CHECKING:
    from hocket.node.replication.replica import Replica
    from hocket.sim.copies_view import Story
    from hocket.sim.machine import Machine
    from hocket.sim.site import Site

ADMINISTRATORS = 2
MOVE_EVERY_US = 15_000_000  # on average, until a consumer moves to another machine
CREDIT_US = 5_000  # at most, until a consumer gives its credit back
SLOW_US = 3_000_000  # the same for a slow consumer; when faults are over all are quick


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
        # Of those that are made: who may hold them. Of several the group says who does.
        self.owners: dict[PartitionId, tuple[Machine, ...]] = {}
        self.ledger = Ledger()
        self.logs: Logs = self.ledger.logs
        # Of these nothing is demanded: too few of their copies are left that are sound ...
        self.given_up: dict[PartitionId, None] = {}
        self.silent: dict[PartitionId, None] = {}  # ... and of these a majority is gone for good
        self._log_ids: dict[PartitionId, PartitionId] = {}  # with their groups
        self.producers: list[Producer] = []
        self.administrators: list[Administrator] = []
        self.subscribers: list[Subscriber] = []
        self.workers: list[Worker] = []
        self.offices: list[Office] = []
        self.founders: list[Founder] = []
        self.transactors: list[Transactor] = []
        self._site = site
        self._chance = site.scheduler.random("workload")
        self._keys = site.scheduler.random("lookups")
        self._admins = site.scheduler.random("administrators")
        self._readers = site.scheduler.random("subscribers")
        self._writers = site.scheduler.random("transactors")
        for machine in site.machines[: site.options.holders]:
            machine.holds = True
        for number in range(site.options.topics):  # before they start: they get partitions
            self._founder_of(number).keeps = True

    def begin(self) -> None:
        site, options = self._site, self._site.options
        for number in range(options.topics):
            self._found(number)
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
            self._subscribe_to(number)
        self._transact()
        self._look_up_later()

    def _transact(self) -> None:
        site, count = self._site, self._site.options.transactors
        if count:
            self.founders.append(Founder(site, site.root, TOPIC, REPLICAS, PARTITIONS))
        for number in range(count):
            machine = self._writers.choice(site.machines)
            self.transactors.append(Transactor(site, machine, number))

    def _subscribe_to(self, at: int) -> None:
        site, options, topic = self._site, self._site.options, _topic(at)
        for number in range(options.subscribers):
            machine = self._readers.choice(site.machines)
            self.subscribers.append(Subscriber(site, machine, topic, number))
        is_replicated = options.replicas_of(at) > 1
        # Where older records go, workers would miss some, or keep them for long.
        if options.workers and not (is_replicated and options.kept_bytes):
            mode: Mode = "key_shared" if is_replicated and options.keyed else "shared"
            office = Office(topic, "shared", mode, rejects=is_replicated)
            self.offices.append(office)
            for number in range(options.workers):
                machine = self._readers.choice(site.machines)
                self.workers.append(Worker(site, machine, office, number))

    def _found(self, at: int) -> None:
        site, options, topic = self._site, self._site.options, _topic(at)
        machine = self._founder_of(at)
        for partition in range(options.partitions):
            self.ledger.begin(PartitionId(topic, partition))
        replicas = options.replicas_of(at)
        self.founders.append(Founder(site, machine, topic, replicas))
        kinds = [Producer] * options.producers + [Publisher] * (
            options.publishers if replicas > 1 else 0
        )
        self.producers += [
            kind(site, machine, topic, number, self.ledger) for number, kind in enumerate(kinds)
        ]

    def _founder_of(self, at: int) -> Machine:
        """Of a topic with one replica it is the home, if nobody else has capacity."""
        if self._site.options.holders:
            return self._site.root
        return self._site.successor_machine(position_of(_topic(at)))

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
                        self.owners[partition_id] = self._keepers(each, machine)
        return known

    def _keepers(self, log_id: PartitionId, owner: Machine) -> tuple[Machine, ...]:
        story = self._site.copies.stories.get(log_id.group)
        if story is None:
            return (owner,)
        return tuple(each for each in self._site.machines if each.name in story.voters)

    def may_lose(self, machine: Machine) -> bool:
        """Whether every partition is there without the machine: a majority has it elsewhere."""
        site = self._site
        sound = {each.name for each in site.machines if not (each.gone or each.is_damaged)}
        for partition_id in self.logs:
            if self.log_id(partition_id) is None:
                return False  # nobody knows yet who is to keep it
            story = site.copies.story_of(partition_id)
            if story is None:
                if machine in self.owners[partition_id]:
                    return False
            elif not _is_kept(story, machine, sound):
                return False
        # What is behind a message of its key waits until that one is among the dead letters.
        letters = self._letters()
        for story in site.copies.stories.values():
            if story.topic in letters and not _is_kept(story, machine, sound):
                return False
        return self._transactions_bear(machine, sound)

    def _letters(self) -> set[str]:
        return {each.topic + DEAD_LETTERS for each in self.offices}

    def is_held_up(self, office: Office) -> bool:
        """Whether messages wait for ever: for their partition, or for dead letters before them."""
        return self.is_given_up(office.topic) or self.has_lost_letters(office)

    def has_lost_letters(self, office: Office) -> bool:
        """Whether the dead letters have no majority any more, or were founded without one: a node
        that is gone may be chosen to keep them, before anybody has noticed."""
        sound = {each.name for each in self._site.machines if not (each.gone or each.is_damaged)}
        return any(
            len(sound.intersection(story.voters)) < story.majority
            for story in self._site.copies.stories.values()
            if story.topic == office.topic + DEAD_LETTERS
        )

    def _transactions_bear(self, machine: Machine, sound: set[str]) -> bool:
        """The same for what takes part in transactions, and who decides on them: three vote in each
        group by now, as its leader knows, and two of them are left."""
        if not self.transactors:
            return True
        left = sound - {machine.name}
        led = [
            replica.raft.group.configuration
            for each in self._site.machines
            for replica in (each.node.replicas if each.node is not None else ())
            if replica.serves and (replica.group > DECISIONS or self._is_transacted(replica))
        ]
        return len(led) == DECIDERS_COUNT + PARTITIONS and all(
            len(each.voters) == REPLICAS and len(left.intersection(each.all_voters)) >= 2
            for each in led
        )

    def _is_transacted(self, replica: Replica[Any]) -> bool:
        story = self._site.copies.stories.get(replica.group)
        return story is not None and story.topic == TOPIC

    def has_no_other_copy(self, machine: Machine) -> bool:
        """Whether a partition is on this machine alone: one without capacity gets it as well, if
        those who have some were away when it was made."""
        self.knows_places()
        return any(owners == (machine,) for owners in self.owners.values())

    def knows_places(self) -> bool:
        return None not in [self.log_id(each) for each in self.logs]

    def give_up_what_is_lost(self) -> None:
        """Of some partitions nothing is demanded any more, but that nobody lies about them.

        A copy that is damaged has no say, and may not come back: what others could do without is
        one too many when more of them are gone.
        """
        left = {each.name for each in self._site.machines if not each.gone}
        damaged = {each.name for each in self._site.machines if each.is_damaged}
        for partition_id in self.logs:
            story = self._site.copies.story_of(partition_id)
            if story is None:
                owners = self.owners.get(partition_id, ())
                voters, majority = [each.name for each in owners], len(owners)
            else:
                voters, majority = list(story.voters), story.majority
            if len(left.intersection(voters)) < majority:
                self.silent[partition_id] = None
            if len((left - damaged).intersection(voters)) < majority:
                self.given_up[partition_id] = None

    def is_given_up(self, topic: str) -> bool:
        return any(each.topic == topic for each in self.given_up)

    def stop(self) -> None:
        """Publish nothing new; what was begun is finished.

        A producer that no fault let begin begins now: a run without a record shows nothing.
        """
        for producer in self.producers:
            producer.stopped = True
        for administrator in self.administrators:
            administrator.stopped = True
        for transactor in self.transactors:
            transactor.stopped = True

    @property
    def clients(self) -> list[Client]:
        """All who speak through the cores of the real client."""
        return [
            *self.founders, *self.producers, *self.administrators, *self.subscribers, *self.workers,
            *self.transactors,
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
            if not producer.finished and not self.is_given_up(producer.topic):
                return f"{producer.name} waits for acknowledgements"
        for administrator in self.administrators:
            if not administrator.idle:
                return f"{administrator.name} waits for an answer"
        for transactor in self.transactors:
            if not transactor.finished:
                return f"{transactor.name} waits for its decision"
        return self._unread()

    def _unread(self) -> str:
        """What is not delivered to every consumer, or not acknowledged; empty if nothing."""
        for subscriber in self.subscribers:
            for partition_id, log in self.logs.items():
                if partition_id in self.given_up or partition_id.topic != subscriber.topic:
                    continue
                if self.is_given_up(subscriber.topic):
                    # A commit is one of all partitions, and waits for those that are lost.
                    is_done = subscriber.has_taken(partition_id.partition, len(log))
                else:
                    is_done = subscriber.has_committed(partition_id.partition, len(log))
                if not is_done:
                    done = subscriber.committed.get(partition_id.partition, 0)
                    return f"{subscriber.name} has committed {done} of {len(log)} in {partition_id}"
        for office in self.offices:
            if office.lag != 0 and not self.is_held_up(office):
                return f"the workers of {office.topic} are behind by {office.lag}"
        for consumer in self.consumers:
            end = len(self.logs[consumer.partition_id])
            if consumer.next_offset < end and consumer.partition_id not in self.given_up:
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


def _is_kept(story: Story, machine: Machine, sound: set[str]) -> bool:
    """Whether a majority of its copies is sound without the machine, or it has none."""
    left = [each for each in story.voters if each in sound and each != machine.name]
    return machine.name not in story.voters or len(left) >= story.majority
