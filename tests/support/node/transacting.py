"""A simulated world with transactions in it, in which the power can be cut at any named point.

The points are: every write and sync of the disk, every frame between client and node, and all that
the decider and the partitions say to each other. `World.points` is the list of those that were
passed, in order; `cut_at` is the number of the one at which the power fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from hocket import frames
from hocket.core.partition.stages import Stages, crc_of
from hocket.core.transactions import decider as transactions
from hocket.frames import unpacked
from hocket.log.settings import LogSettings
from hocket.model import Participant, TopicConfig
from hocket.node.settings import NodeSettings
from hocket.sim.disk import PowerLoss
from hocket.wire import batch as batches
from hocket.wire.entry import unpack_header
from tests.support.node import simulated
from tests.support.node.simulated import PARTITIONS, SECOND, TOPIC

TIMEOUT_US = 3 * SECOND
OTHERS = {  # frames that have nothing to do with transactions
    "Hello", "Welcome", "OpenSubscription", "SubscriptionOpened", "Deliver", "Credit", "Commit",
}  # fmt: skip
ID = "pipeline"


def tiny() -> LogSettings:
    return LogSettings(
        wal_file_bytes=8192,
        wal_file_bytes_min=8192,
        commit_bytes_max=4096,
        checkpoint_bytes=6000,
        checkpoint_interval_us=SECOND // 4,
        mark_after_us=50_000,
        slab_bytes=2048,
        slab_bytes_min=512,
        index_interval_bytes=512,
        reserve_bytes=4096,
    )


class World(simulated.World):
    def __init__(self, seed: int | str, *, cut_at: int | None = None) -> None:
        self.points: list[str] = []
        self.cut_at = cut_at
        self.cut: str | None = None  # the point at which the power has failed
        self.promised: Counter[int] = Counter()  # records committed, per partition
        super().__init__(seed, settings=tiny)
        send = self.network.send

        def send_to_far(connection, frame, payload=()):
            wire = self.network._wires.get(connection)
            if wire is not None and not isinstance(wire.far, _Watched):
                wire.far = _Watched(self, wire.far)
            send(connection, frame, payload)

        self.network.send = send_to_far  # type: ignore[method-assign]

    def node_settings(self) -> NodeSettings:
        return replace(super().node_settings(), transaction_timeout_us=TIMEOUT_US)

    def start_node(self) -> None:
        super().start_node()
        assert self.node is not None
        self.disk.before = lambda operation, path: self.pass_by(
            f"disk: {operation} {path.partition('/')[0] or 'root'}"
        )
        received = self.node.received

        def receive(connection, frame, payload):
            self.pass_by(f"node gets {type(frame).__name__}")
            received(connection, frame, payload)

        self.node.received = receive  # type: ignore[method-assign]
        transactions_ = self.node.transactions
        decider = self.node._wiring.deciders.own.core
        carry_out, step = transactions_._carry_out, decider.step

        def carried_out(seat, effect):
            self.pass_by(f"decider says {type(effect).__name__}")
            carry_out(seat, effect)

        def stepped(event):
            if not isinstance(event, transactions.Tick):
                self.pass_by(f"decider hears {type(event).__name__}")
            return step(event)

        transactions_._carry_out = carried_out  # type: ignore[method-assign]
        decider.step = stepped  # type: ignore[method-assign]

    def pass_by(self, point: str) -> None:
        if self.cut is not None or point.rpartition(" ")[2] in OTHERS:
            return  # it fails once
        if len(self.points) == self.cut_at:
            self.cut = point
            raise PowerLoss(point)
        self.points.append(point)

    def run(self, microseconds: int) -> None:
        end = self.scheduler.now_us() + microseconds
        try:
            self.scheduler.run_until(end)
        except PowerLoss:
            self.crash()
            self.scheduler.run_until(self.scheduler.now_us() + self.random.randrange(1, 50_000))
            self.start_node()
            self.scheduler.run_until(max(end, self.scheduler.now_us()))

    def stages(self) -> Iterable[Stages]:
        assert self.node is not None
        return (hosted.core.stages for hosted in self.node._wiring.partitions)

    @property
    def is_at_rest(self) -> bool:
        """Nothing is staged, and nothing decided is unfinished."""
        assert self.node is not None
        decider = self.node._wiring.deciders.own.core
        return not any(self.stages()) and not decider._unfinished and not decider._aborts


class _Watched:
    """A client's end of a connection, with a point in front of whatever arrives."""

    def __init__(self, world: World, far: simulated.Client) -> None:
        self._world = world
        self._far = far

    def received(self, frame: frames.Frame, payload: memoryview) -> None:
        self._world.pass_by(f"client gets {type(frame).__name__}")
        self._far.received(frame, payload)

    def lost(self) -> None:
        self._far.lost()


class Admin(simulated.Admin):
    def begin(self) -> None:
        config = TopicConfig(
            partitions=PARTITIONS, memory_retention_us=SECOND // 5, segment_bytes_max=8192
        )
        self.ask(frames.CreateTopic, self._answered, topic=TOPIC, config=config)


class Stager(simulated.Client):
    """Stages one transaction and, if it is the one to do so, has it decided; tries until it is."""

    def __init__(
        self,
        world: World,
        name: str,
        number: int,
        *,
        then: str = "commit",
        after_us: int = 1000,
        transaction: str = ID,
        batches_each: int = 2,
        record_bytes: int = 0,
        partitions: Iterable[int] = range(PARTITIONS),
    ) -> None:
        self.name = name
        self.transaction = transaction
        self.number = number
        self.then = then  # "commit", "abort", or "vanish"
        self.after_us = after_us
        self.values = {
            partition: [
                [
                    b"%s/%d/%d/%d/%d/" % (name.encode(), number, partition, at, n)
                    + bytes(record_bytes)
                    for n in range(3)
                ]
                for at in range(batches_each)
            ]
            for partition in partitions
        }
        self.acked = dict.fromkeys(self.values, 0)
        self.entries: dict[tuple[int, int], bytes] = {}
        self.producer_id = b""
        self.outcome = ""  # "committed", "aborted", or the code of what went wrong for good
        self.vanished = False
        self.handle = 0
        self._deciding = False
        super().__init__(world)

    @property
    def finished(self) -> bool:
        return bool(self.outcome) or self.vanished

    @property
    def records(self) -> dict[int, list[bytes]]:
        return {p: [v for values in made for v in values] for p, made in self.values.items()}

    def vanish(self) -> None:
        self.vanished = True
        if self.connection is not None:
            self.world.network.cut(self.connection)

    def _connect(self) -> None:
        if not self.finished:
            super()._connect()

    def begin(self) -> None:
        self.ask(
            frames.OpenProducer,
            self._opened,
            topic=TOPIC,
            producer_id=self.producer_id,
            transaction=self.transaction,
            number=self.number,
        )

    def _opened(self, answer: frames.Frame) -> None:
        if isinstance(answer, frames.Failure):
            if answer.code == "unknownTopic":
                self.world.scheduler.after(10_000, self.begin)
            else:
                self.outcome = answer.code
            return
        assert isinstance(answer, frames.ProducerOpened)
        self.producer_id, self.handle = answer.producer_id, answer.handle
        if self._deciding:  # what was asked for is asked again; the stage may be gone by now
            self._decide()
            return
        expected = unpacked(answer.sequences)
        for partition, made in self.values.items():
            assert expected[partition] >= self.acked[partition], "what was acknowledged is gone"
            for sequence in range(self.acked[partition], len(made)):
                self._push(partition, sequence)

    def _push(self, partition: int, sequence: int) -> None:
        if (partition, sequence) not in self.entries:
            self.entries[partition, sequence] = batches.encode(
                self.values[partition][sequence],
                timestamps=self.world.clock.now_us(),
                codec="none",
                producer_id=self.producer_id,
                sequence=sequence,
            )
        self.send(frames.Push(0, self.handle, partition), self.entries[partition, sequence])

    def told(self, frame: frames.Frame, payload: memoryview) -> None:
        if isinstance(frame, frames.PushAcked):
            assert not frame.offsets
            self.acked[frame.partition] = max(self.acked[frame.partition], frame.sequence + 1)
            staged = all(self.acked[p] == len(made) for p, made in self.values.items())
            if staged and not self._deciding:
                if self.then == "vanish":
                    self.vanish()
                else:
                    self._deciding = True
                    self.world.scheduler.after(self.after_us, self._decide)
        elif not isinstance(frame, frames.HandleEnded):
            super().told(frame, payload)

    def participants(self) -> tuple[Participant, ...]:
        return tuple(
            Participant(
                TOPIC, partition, self.producer_id, len(made), sum(map(len, made)),
                crc_of(unpack_header(self.entries[partition, at]).body_crc
                       for at in range(len(made))),
            )
            for partition, made in self.values.items()
        )  # fmt: skip

    def _decide(self) -> None:
        if self.finished:
            return
        if self.then == "commit":
            self.ask(
                frames.CommitTransaction,
                self._decided,
                transaction=self.transaction,
                number=self.number,
                participants=self.participants(),
            )
        else:
            self.ask(
                frames.AbortTransaction,
                self._decided,
                transaction=self.transaction,
                number=self.number,
                producers=(self.producer_id,),
            )

    def _decided(self, answer: frames.Frame) -> None:
        if isinstance(answer, frames.Done):
            is_news = not self.outcome  # else it asked twice, and is told again
            self.outcome = "committed" if self.then == "commit" else "aborted"
            if is_news:
                self._check_readable()
            return
        assert isinstance(answer, frames.Failure)
        if answer.code in ("busy", "storageFull"):
            self.world.scheduler.after(20_000, self._decide)
        else:
            self.outcome = answer.code

    def _check_readable(self) -> None:
        """What is committed can be read now, not some time later."""
        promised = self.world.promised
        if self.outcome == "committed":
            for partition, records in self.records.items():
                promised[partition] += len(records)
        if self.world.node is not None:
            for hosted in self.world.node._wiring.partitions:
                assert hosted.core.high_watermark >= promised[hosted.core.number]


class Log(simulated.Consumer):
    """Reads everything; in the end `records` is what the partitions hold."""

    def records(self) -> dict[int, list[bytes]]:
        found = {}
        for partition, seen in self.seen.items():
            assert sorted(seen) == list(range(len(seen))), "offsets are dense"
            found[partition] = [seen[offset] for offset in range(len(seen))]
        return found

    def is_complete(self) -> bool:
        """Whether all that the node shows was read."""
        node = self.world.node
        if node is None or not self.handle:
            return False
        ends = {h.core.number: h.core.high_watermark for h in node._wiring.partitions}
        return len(ends) == PARTITIONS and all(
            len(self.seen[partition]) == end for partition, end in ends.items()
        )


def published(log: dict[int, list[bytes]], stager: Stager) -> str:
    """ "all" or "nothing", each record once and in order; anything else is an error."""
    places = []
    wholes = []
    for partition, records in stager.records.items():
        found = [value for value in log[partition] if value in set(records)]
        assert found in ([], records), f"{stager.name}: {found} of {records} in {partition}"
        wholes.append(bool(found))
        if found:
            first = log[partition].index(records[0])
            places.append(log[partition][first : first + len(records)] == records)
    assert len(set(wholes)) == 1, f"{stager.name}: published in some partitions: {wholes}"
    return "all" if wholes[0] else "nothing"


def settle(world: World, condition: Callable[[], bool], what: str, seconds: int = 60) -> None:
    world.until(lambda: world.node is not None and condition(), seconds, what)
