"""A node in a simulated world with simulated clients, and what must be true of it afterwards.

The clients here speak frames by themselves and keep a diary of what they were told; the checks
read the diaries and the log. They do not use `hocket.client`: a client that repaired what the
broker got wrong would hide it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from hocket import frames
from hocket.frames import packed, unpacked
from hocket.log.settings import LogSettings
from hocket.model import Limits, Start, TopicConfig
from hocket.node.node import Node
from hocket.node.settings import TICK_US, NodeSettings
from hocket.sim.clock import SimClock
from hocket.sim.disk import SimDisk
from hocket.sim.executor import SimExecutor
from hocket.sim.network import SimNetwork
from hocket.sim.scheduler import Scheduler
from hocket.wire import batch as batches

TOPIC = "orders"
PARTITIONS = 3
SECOND = 1_000_000


class World:
    """One seed: a node that may crash and come back, a disk, a network, and clients."""

    def __init__(self, seed: int | str, *, settings: Callable[[], LogSettings]) -> None:
        self.scheduler = Scheduler(seed)
        self.random = self.scheduler.random("world")
        self.network = SimNetwork(self.scheduler)
        self.disk = SimDisk()
        self.clock = SimClock(self.scheduler)
        self._settings = settings
        self._entropy = self.scheduler.random("entropy")
        self.executor: SimExecutor | None = None
        self.node: Node | None = None
        self.crashes = 0
        self.start_node()

    def node_settings(self) -> NodeSettings:
        return NodeSettings(name="node", limits=Limits(), log=self._settings())

    def start_node(self) -> None:
        self.executor = SimExecutor(self.scheduler)
        self.node = Node(
            self.node_settings(),
            disk=self.disk,
            executor=self.executor,
            clock=self.clock,
            network=self.network,
            entropy=self._entropy.randbytes,
        )
        self.network.node = self.node
        self._tick(self.node)

    def _tick(self, node: Node) -> None:
        if node is self.node:
            node.tick()
            self.scheduler.after(TICK_US, lambda: self._tick(node))

    def crash(self) -> None:
        """As `kill -9` and a power failure at once: what was not synced may be gone, or torn."""
        assert self.executor is not None
        self.crashes += 1
        self.node = None
        self.network.node_died()
        self.executor.crash()
        self.disk.crash(self.scheduler.random("disk"))

    def run(self, microseconds: int) -> None:
        self.scheduler.run_until(self.scheduler.now_us() + microseconds)

    def until(self, condition: Callable[[], bool], seconds: int, what: str) -> None:
        deadline = self.scheduler.now_us() + seconds * SECOND
        while not condition():
            assert self.scheduler.now_us() < deadline, f"not within {seconds} s: {what}"
            self.run(TICK_US)


class Client:
    """The common part: connects, greets, asks, and begins again when the connection is lost."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connection: int | None = None
        self._last_request = 0
        self._answers: dict[int, Callable[[frames.Frame], None]] = {}
        self._connect()

    def _connect(self) -> None:
        self.connection = self.world.network.connect(self)
        if self.connection is None:
            self.world.scheduler.after(20_000, self._connect)
        else:
            self.ask(frames.Hello, lambda _answer: self.begin(), client=type(self).__name__)

    def begin(self) -> None:
        """Greeted."""

    def ask(self, kind: type, answered: Callable[[frames.Frame], None], **fields: object) -> None:
        self._last_request += 1
        self._answers[self._last_request] = answered
        self.send(kind(self._last_request, **fields))

    def send(self, frame: frames.Frame, payload: bytes = b"") -> None:
        if self.connection is not None:
            self.world.network.send_to_node(self.connection, frame, payload)

    def received(self, frame: frames.Frame, payload: memoryview) -> None:
        if frame.request:
            self._answers.pop(frame.request)(frame)
        else:
            self.told(frame, payload)

    def told(self, frame: frames.Frame, payload: memoryview) -> None:
        if not isinstance(frame, frames.Goodbye):
            raise AssertionError(f"{type(self).__name__} was told {frame}")

    def lost(self) -> None:
        self.connection = None
        self._answers.clear()
        self.world.scheduler.after(1 + self.world.random.randrange(20_000), self._connect)


class Admin(Client):
    """Creates the topic, however often that takes."""

    created = False

    def begin(self) -> None:
        self.ask(
            frames.CreateTopic,
            self._answered,
            topic=TOPIC,
            config=TopicConfig(
                partitions=PARTITIONS, memory_retention_us=2 * SECOND, segment_bytes_max=4096
            ),
        )

    def _answered(self, answer: frames.Frame) -> None:
        exists = isinstance(answer, frames.Failure) and answer.code == "topicExists"
        assert exists or isinstance(answer, frames.Done), answer
        self.created = True


class Producer(Client):
    """Pushes numbered batches into every partition, and again what was not acknowledged."""

    PACE_US = 40_000  # a batch is made after as long, at most

    def __init__(self, world: World, name: str, *, batches_max: int) -> None:
        self.name = name
        self.random = world.scheduler.random(f"producer {name}")
        self.batches_max = batches_max  # per partition
        self.sent: dict[int, list[list[bytes]]] = {n: [] for n in range(PARTITIONS)}
        self.acked: dict[int, dict[int, int]] = {n: {} for n in range(PARTITIONS)}
        self.unacked: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)  # oldest sequence
        self.producer_id = b""
        self.handle = 0
        self.duplicates_sent = 0
        super().__init__(world)
        world.scheduler.after(1000, self._produce)

    @property
    def finished(self) -> bool:
        return all(self.unacked[n] == self.batches_max for n in self.unacked)

    def begin(self) -> None:
        self.ask(
            frames.OpenProducer, self._opened, topic=TOPIC, producer_id=self.producer_id, epoch=0
        )

    def _opened(self, answer: frames.Frame) -> None:
        if isinstance(answer, frames.Failure):
            assert answer.code == "unknownTopic", answer
            self.world.scheduler.after(10_000, self.begin)
            return
        assert isinstance(answer, frames.ProducerOpened)
        self.producer_id, self.handle = answer.producer_id, answer.handle
        stored = unpacked(answer.sequences)
        for partition, made in self.sent.items():
            # Whatever was acknowledged is stored; what was not may be.
            assert self.unacked[partition] <= stored[partition] <= len(made)
            for sequence in range(self.unacked[partition], len(made)):
                self.duplicates_sent += sequence < stored[partition]
                self._push(partition, sequence)

    def _produce(self) -> None:
        self.world.scheduler.after(1 + self.random.randrange(self.PACE_US), self._produce)
        partition = self.random.randrange(PARTITIONS)
        made = self.sent[partition]
        in_flight = len(made) - self.unacked[partition]
        if not self.handle or len(made) == self.batches_max or in_flight >= 8:
            return
        size = self.random.choice([0, 1, 30, 300])
        made.append(
            [
                b"%s/%d/%d/%d:%s" % (self.name.encode(), partition, len(made), n, bytes(size))
                for n in range(self.random.randrange(1, 5))
            ]
        )
        self._push(partition, len(made) - 1)

    def _push(self, partition: int, sequence: int) -> None:
        entry = batches.encode(
            self.sent[partition][sequence],
            timestamps=self.world.clock.now_us(),
            codec=self.random.choice(["none", "lz4"]),
            producer_id=self.producer_id,
            sequence=sequence,
        )
        self.send(frames.Push(0, self.handle, partition), entry)

    def told(self, frame: frames.Frame, payload: memoryview) -> None:
        if isinstance(frame, frames.PushAcked):
            offsets = unpacked(frame.offsets)
            first = frame.sequence + 1 - len(offsets)
            for sequence, offset in enumerate(offsets, first):
                known = self.acked[frame.partition].setdefault(sequence, offset)
                assert known == offset, f"{sequence} was at {known}, now at {offset}"
            self.unacked[frame.partition] = max(self.unacked[frame.partition], frame.sequence + 1)
        elif isinstance(frame, frames.PushRefused):
            raise AssertionError(f"{self.name} was refused: {frame}")
        else:
            super().told(frame, payload)

    def lost(self) -> None:
        self.handle = 0
        super().lost()


class Consumer(Client):
    """Reads everything through an index of its own, committing now and then."""

    def __init__(self, world: World, index: str) -> None:
        self.index = index
        self.random = world.scheduler.random(f"consumer {index}")
        self.handle = 0
        self.next: dict[int, int] = {}  # offset, per partition
        self.committed: dict[int, int] = {}  # as the broker has told us
        self.seen: dict[int, dict[int, bytes]] = {n: {} for n in range(PARTITIONS)}
        super().__init__(world)

    def begin(self) -> None:
        self.ask(
            frames.OpenSubscription,
            self._opened,
            topic=TOPIC,
            index=self.index,
            start=Start("earliest"),
            credit_bytes=2000,
        )

    def _opened(self, answer: frames.Frame) -> None:
        if isinstance(answer, frames.Failure):
            assert answer.code == "unknownTopic", answer
            self.world.scheduler.after(10_000, self.begin)
            return
        assert isinstance(answer, frames.SubscriptionOpened)
        self.handle = answer.handle
        numbers = unpacked(answer.positions)
        self.next = dict(zip(numbers[::2], numbers[1::2], strict=True))
        for partition, position in self.next.items():
            assert position >= self.committed.get(partition, 0), "the index went back"

    def told(self, frame: frames.Frame, payload: memoryview) -> None:
        if not isinstance(frame, frames.Deliver):
            super().told(frame, payload)
            return
        assert frame.offset == self.next[frame.partition]
        for position, _header in batches.iterate_entries(payload):
            batch = batches.parse(payload, position)
            skipped = max(0, self.next[frame.partition] - batch.base_offset)
            for offset, value in enumerate(batch.values(skipped), batch.base_offset + skipped):
                assert offset == self.next[frame.partition], "a gap or a repetition"
                assert offset < frame.end
                known = self.seen[frame.partition].setdefault(offset, value)
                assert known == value, "one offset, two records"
                self.next[frame.partition] = offset + 1
        self.send(frames.Credit(0, self.handle, len(payload)))
        if self.random.random() < 0.3:
            self._commit()

    def _commit(self) -> None:
        places = dict(self.next)
        pairs = packed(number for pair in places.items() for number in pair)

        def done(answer: frames.Frame) -> None:
            assert isinstance(answer, frames.Done), answer
            for partition, position in places.items():
                known = self.committed.get(partition, 0)
                self.committed[partition] = max(position, known)

        self.ask(frames.Commit, done, handle=self.handle, positions=pairs)


def check(world: World, producers: list[Producer], consumers: list[Consumer]) -> dict[str, int]:
    """What must be true in the end; how much was looked at."""
    looked = {"batches": 0, "records": 0, "consumed": 0}
    complete = consumers[0].seen  # every consumer has read all there is, from the beginning on
    for consumer in consumers:
        assert consumer.seen == complete, "two consumers saw different logs"
        looked["consumed"] += sum(map(len, consumer.seen.values()))
    for partition in range(PARTITIONS):
        log = complete[partition]
        assert sorted(log) == list(range(len(log))), "offsets are dense"
        looked["records"] += len(log)
        places: dict[bytes, list[int]] = {}
        for offset, value in sorted(log.items()):
            places.setdefault(value, []).append(offset)
        for producer in producers:
            made = producer.sent[partition]
            for sequence, offset in producer.acked[partition].items():
                values = [log.get(offset + n) for n in range(len(made[sequence]))]
                assert values == made[sequence], f"an acknowledged batch is lost: {sequence}"
                looked["batches"] += 1
            firsts = []
            for values in made:
                for value in values:
                    assert len(places[value]) == 1, f"stored {len(places[value])} times: {value!r}"
                firsts.append(places[values[0]][0])
            assert all(a < b for a, b in pairwise(firsts)), "batches of one producer out of order"
        everything = sum(len(v) for p in producers for v in p.sent[partition])
        assert len(log) == everything, "something is in the log that nobody sent"
    return looked
