"""Transactions in hard times: full disks, retention, deleted topics, clients that vanish."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hocket import frames
from hocket.core.partition.stages import crc_of
from hocket.errors import StorageFull
from hocket.log.store import LogStore
from hocket.model import DECISIONS, Participant, TopicConfig
from hocket.node.background.transactions import LEFT_OVER_US
from hocket.node.settings import NodeSettings
from hocket.wire import batch as batches
from hocket.wire.entry import unpack_header
from tests.node.test_hard_times import Asker
from tests.support.node.simulated import SECOND
from tests.support.node.transacting import TIMEOUT_US, World

ID = b"p" * 16
ROOM = 150_000  # on a disk that is about to be full


class Transacting(Asker):
    """Stages and decides by hand."""

    handle = 0

    def topic(self, name: str, **config: object) -> None:
        made = self.answer(frames.CreateTopic, topic=name, config=TopicConfig(**config))  # type: ignore[arg-type]
        assert isinstance(made, frames.Done)

    def open(
        self, topic: str, number: int = 0, *, by: bytes = ID, transaction: str = "job"
    ) -> frames.Frame:
        answer = self.answer(
            frames.OpenProducer, topic=topic, producer_id=by, transaction=transaction, number=number
        )
        if isinstance(answer, frames.ProducerOpened):
            self.handle = answer.handle
        return answer

    def entry(self, sequence: int, *values: bytes, by: bytes = ID) -> bytes:
        return batches.encode(values, timestamps=5, producer_id=by, sequence=sequence)

    def stage(self, entry: bytes, partition: int = 0) -> frames.Frame:
        before = len(self.heard)
        self.send(frames.Push(0, self.handle, partition), entry)
        self.world.until(lambda: len(self.heard) > before, 10, "an answer to a push")
        return self.heard[-1]

    def staged(self, topic: str, *sizes: int, number: int = 0, by: bytes = ID) -> Participant:
        """Batches of one record each, of so many bytes, in partition 0."""
        assert isinstance(self.open(topic, number, by=by), frames.ProducerOpened)
        entries = [self.entry(n, bytes(size), by=by) for n, size in enumerate(sizes)]
        for entry in entries:
            assert isinstance(self.stage(entry), frames.PushAcked)
        crc = crc_of(unpack_header(entry).body_crc for entry in entries)
        return Participant(topic, 0, by, len(entries), len(entries), crc)

    def commit(self, *named: Participant, number: int = 0) -> frames.Frame:
        return self.answer(
            frames.CommitTransaction, transaction="job", number=number, participants=named
        )

    def abort(self, *producers: bytes, number: int = 0) -> frames.Frame:
        return self.answer(
            frames.AbortTransaction, transaction="job", number=number, producers=producers
        )

    def end_of(self, topic: str) -> int:
        described = self.answer(frames.DescribeTopic, topic=topic)
        assert isinstance(described, frames.Topics)
        return described.topics[0].partitions[0].end


def code_of(answer: frames.Frame) -> str:
    assert isinstance(answer, frames.Failure | frames.PushRefused), answer
    assert answer.message
    return answer.code


@pytest.fixture
def world() -> World:
    return World("transactions in hard times")


@pytest.fixture
def client(world: World) -> Transacting:
    made = Transacting(world)
    made.topic("t")
    return made


def stages_of(world: World) -> list:
    return [stage for stages in world.stages() for stage in stages.producers.values()]


class Patient(World):
    """A stage is idle after a day, as by default."""

    def node_settings(self) -> NodeSettings:
        default = NodeSettings().transaction_timeout_us
        return replace(super().node_settings(), transaction_timeout_us=default)


# --- vanished clients ----------------------------------------------------------------------------


def test_what_nobody_touches_is_aborted_by_the_decider_once_its_producer_is_gone(world, client):
    named = client.staged("t", 10, 10)
    world.run(3 * TIMEOUT_US)
    assert len(stages_of(world)) == 1  # its producer is connected
    other = Transacting(world)
    world.network.cut(client.connection)
    world.until(lambda: not stages_of(world), 10, "it is dropped")
    assert code_of(other.open("t")) == "transactionAborted"  # it is the same producer
    assert code_of(other.commit(named)) == "transactionAborted"
    assert other.end_of("t") == 0
    again = other.staged("t", 10, 10, by=b"q" * 16)  # another one, under the same number
    assert isinstance(other.commit(again), frames.Done)
    assert other.end_of("t") == 2


def test_what_is_touched_now_and_then_stays(world, client):
    client.staged("t", 10)
    world.network.cut(client.connection)
    for sequence in range(1, 5):
        world.run(TIMEOUT_US // 2)
        other = Transacting(world)
        other.open("t")
        assert isinstance(other.stage(other.entry(sequence, b"x")), frames.PushAcked)
        world.network.cut(other.connection)
    assert len(stages_of(world)[0].batches) == 5


def test_a_restart_is_no_reason_to_drop_anything(world, client):
    named = client.staged("t", 10, 10)
    world.crash()
    world.start_node()
    world.run(TIMEOUT_US // 2)
    assert len(stages_of(world)) == 1
    assert isinstance(Transacting(world).commit(named), frames.Done)


def test_only_the_producers_that_are_idle_are_aborted(world, client):
    """A part that came early waits for one that comes late, for as long as it is told to."""
    early = client.staged("t", 10)
    world.network.cut(client.connection)
    world.run(TIMEOUT_US * 2 // 3)
    late = Transacting(world)
    named = late.staged("t", 10, by=b"q" * 16)
    world.network.cut(late.connection)
    world.until(lambda: len(stages_of(world)) == 1, 10, "the early one is dropped")
    other = Transacting(world)
    assert code_of(other.commit(early, named)) == "transactionAborted"
    assert isinstance(other.commit(named), frames.Done)
    assert other.end_of("t") == 1


def test_what_is_left_over_of_a_committed_number_is_dropped_long_before_it_is_idle():
    world = Patient("left over")
    client = Transacting(world)
    client.topic("t")
    client.topic("elsewhere")
    client.staged("elsewhere", 10, by=b"q" * 16)
    client.staged("elsewhere", 10, number=1, by=b"r" * 16)
    named = client.staged("t", 10)
    assert isinstance(client.commit(named), frames.Done)
    world.run(3 * LEFT_OVER_US)
    assert len(stages_of(world)) == 2  # they are connected, and may yet find out for themselves
    world.network.cut(client.connection)
    world.until(lambda: len(stages_of(world)) == 1, 200, "it is dropped")
    assert stages_of(world)[0].key.number == 1


def test_who_was_aborted_stays_so_after_a_restart(world, client):
    named = client.staged("t", 10)
    again = client.staged("t", 10, by=b"q" * 16)
    assert isinstance(client.abort(ID), frames.Done)
    for _ in range(2):  # the second time perhaps from a snapshot
        world.crash()
        world.start_node()
        client = Transacting(world)
        assert code_of(client.commit(named)) == "transactionAborted"
        assert code_of(client.open("t")) == "transactionAborted"
        assert [stage.key.producer_id for stage in stages_of(world)] == [b"q" * 16]
        world.run(2 * SECOND)
    assert isinstance(client.commit(again), frames.Done)
    assert client.end_of("t") == 1


def test_an_abort_names_producers(world, client):
    named = client.staged("t", 10)
    assert code_of(client.abort()) == "outOfRange"
    assert code_of(client.abort(b"short")) == "outOfRange"
    assert isinstance(client.abort(b"q" * 16), frames.Done)  # who has staged nothing
    assert isinstance(client.commit(named), frames.Done)
    assert code_of(client.abort(ID)) == "transactionConflict"


def test_a_drop_that_meets_a_full_disk_is_made_up_for(world, client):
    client.staged("t", 10)
    admit = LogStore.admit

    def refuse(self, group, size, *, reserved=False, **more):
        if 0 < group < DECISIONS and reserved:
            raise StorageFull("no room")
        admit(self, group, size, reserved=reserved, **more)

    LogStore.admit = refuse  # type: ignore[method-assign]
    try:
        assert isinstance(client.abort(ID), frames.Done)
        assert len(stages_of(world)) == 1
    finally:
        LogStore.admit = admit  # type: ignore[method-assign]
    world.network.cut(client.connection)
    world.until(lambda: not stages_of(world), 10, "it is dropped")


# --- retention -----------------------------------------------------------------------------------


def test_retention_does_not_take_what_is_staged(world):
    """Not even where the log has been empty since before it was staged, after restarts too."""
    client = Transacting(world)
    client.topic("t", disk_retention_us=SECOND, segment_bytes_max=1024, memory_retention_us=0)
    publish = batches.encode([bytes(500)] * 3, timestamps=5)
    client.answer(frames.Publish, publish, topic="t", partition=0)
    named = client.staged("t", 300, 300, 300, 300, 300)
    for _ in range(3):
        client.answer(frames.Publish, publish, topic="t", partition=0)
        world.run(3 * SECOND)
    world.crash()
    world.start_node()
    client = Transacting(world)
    client.open("t")  # so that nobody thinks that it is gone
    client.answer(frames.Publish, publish, topic="t", partition=0)
    world.run(3 * SECOND)
    described = client.answer(frames.DescribeTopic, topic="t")
    assert isinstance(described, frames.Topics)
    assert described.topics[0].partitions[0].start == 15  # all that was published is gone
    assert isinstance(client.commit(named), frames.Done)
    assert client.end_of("t") == 20
    world.run(5 * SECOND)
    files = [name for name in world.disk.files() if name.startswith("groups/1/")]
    assert len(files) <= 2, "what was staged is not kept for ever"


# --- a full disk ---------------------------------------------------------------------------------


def test_a_roll_forward_waits_for_room_and_goes_on_by_itself(world, client):
    named = client.staged("t", *[800] * 8)
    world.run(SECOND)
    admit = LogStore.admit
    full = True

    def refuse(self, group, size, *, reserved=False, **more):
        if full and 0 < group < DECISIONS and reserved:
            raise StorageFull("no room")
        admit(self, group, size, reserved=reserved, **more)

    LogStore.admit = refuse  # type: ignore[method-assign]
    try:
        asked: list[frames.Frame] = []
        client._answers[900] = asked.append
        client.send(frames.CommitTransaction(900, "job", 0, (named,)))
        world.run(5 * SECOND)
        assert asked == []
        assert client.end_of("t") == 0
        full = False
        world.until(lambda: bool(asked), 5, "it goes on")
    finally:
        LogStore.admit = admit  # type: ignore[method-assign]
    assert isinstance(asked[0], frames.Done)
    assert client.end_of("t") == 8


def fill_up(world: World, client: Transacting) -> int:
    """Publish until the disk is full."""
    for stored in range(400):
        data = batches.encode([bytes(1000)], timestamps=5)
        answer = client.answer(frames.Publish, data, topic="t", partition=0)
        if isinstance(answer, frames.Failure):
            assert answer.code == "storageFull"
            return stored
    raise AssertionError("the disk is never full")


def test_others_cannot_take_the_room_of_what_is_staged(world, client):
    """So what is decided can be published on a disk that is full for everybody else."""
    named = client.staged("t", *[1000] * 30)
    world.run(SECOND)
    world.disk.capacity_bytes = sum(world.disk.files().values()) + ROOM
    stored = fill_up(world, client)
    world.run(5 * SECOND)
    assert world.disk.free_bytes() > 60_000
    assert isinstance(client.commit(named), frames.Done)
    assert client.end_of("t") == 30 + stored


def test_without_the_reserve_others_would_take_it(world, client, monkeypatch):
    """The mutant of the rule, so that the test before shows something."""
    monkeypatch.setattr(LogStore, "_admit_beside_reserved", lambda self, size: None)
    client.staged("t", *[1000] * 30)
    world.run(SECOND)
    world.disk.capacity_bytes = sum(world.disk.files().values()) + ROOM
    fill_up(world, client)
    world.run(5 * SECOND)
    assert world.disk.free_bytes() < 60_000


# --- deleted topics ------------------------------------------------------------------------------


def test_a_topic_deleted_before_the_decision_fails_the_commit(world, client):
    client.topic("gone")
    named = [client.staged("t", 10), client.staged("gone", 10, by=b"q" * 16)]
    client.answer(frames.DeleteTopic, topic="gone")
    assert code_of(client.commit(*named)) == "unknownTopic"
    client.topic("gone")
    assert code_of(client.commit(*named)) == "transactionConflict"  # another one of that name
    assert isinstance(client.commit(named[0]), frames.Done)
    assert (client.end_of("t"), client.end_of("gone")) == (1, 0)


def test_a_topic_deleted_between_decision_and_apply_takes_its_records_with_it(world, client):
    client.topic("gone")
    named = [client.staged("t", 10), client.staged("gone", 10, by=b"q" * 16)]
    assert world.node is not None
    begin = world.node.transactions._rolling.begin
    held: list = []
    world.node.transactions._rolling.begin = lambda apply, _by: held.append(apply)  # type: ignore[method-assign]
    asked: list[frames.Frame] = []
    client._answers[900] = asked.append
    client.send(frames.CommitTransaction(900, "job", 0, tuple(named)))
    world.until(lambda: len(held) >= 2, 5, "it is decided")
    client.answer(frames.DeleteTopic, topic="gone")
    client.topic("gone")
    world.node.transactions._rolling.begin = begin  # type: ignore[method-assign]
    world.until(lambda: bool(asked), 10, "it is done")
    assert isinstance(asked[0], frames.Done)
    assert (client.end_of("t"), client.end_of("gone")) == (1, 0)
    world.until(lambda: world.is_at_rest, 10, "nothing is left of it")


# --- limits and bad input ------------------------------------------------------------------------


class Narrow(World):
    def node_settings(self) -> NodeSettings:
        return replace(
            super().node_settings(), staged_bytes_max=2100, staged_batches_max=3, stages_max=2
        )


def test_limits_are_told_and_change_nothing():
    world = Narrow("narrow")
    client = Transacting(world)
    client.topic("t")
    client.open("t")
    large = client.entry(0, bytes(1900))
    assert code_of(client.stage(client.entry(0, bytes(3000)))) == "limitExceeded"
    assert isinstance(client.stage(large), frames.PushAcked)
    assert code_of(client.stage(client.entry(1, bytes(100)))) == "limitExceeded"
    assert isinstance(client.stage(large), frames.PushAcked)  # it is here already
    client.abort(ID)
    client.open("t", 1)
    for sequence in range(3):
        assert isinstance(client.stage(client.entry(sequence, b"x")), frames.PushAcked)
    assert code_of(client.stage(client.entry(3, b"x"))) == "limitExceeded"
    client.open("t", 1, by=b"q" * 16)
    assert isinstance(client.stage(client.entry(0, b"x", by=b"q" * 16)), frames.PushAcked)
    client.open("t", 1, by=b"r" * 16)
    assert code_of(client.stage(client.entry(0, b"x", by=b"r" * 16))) == "limitExceeded"
    assert len(stages_of(world)) == 2


def test_what_was_never_staged_cannot_be_committed(world, client):
    named = client.staged("t", 10, 10)
    for wrong, code in (
        (replace(named, producer_id=b"q" * 16), "transactionConflict"),
        (replace(named, batches=1, records=1), "transactionConflict"),
        (replace(named, records=3), "transactionConflict"),
        (replace(named, crc=named.crc ^ 1), "transactionConflict"),
        (replace(named, partition=5), "unknownTopic"),
        (replace(named, topic="none"), "unknownTopic"),
        (replace(named, producer_id=b"short"), "outOfRange"),
        (replace(named, batches=0), "outOfRange"),
    ):
        assert code_of(client.commit(wrong)) == code, wrong
    assert code_of(client.commit(named, named)) == "outOfRange"
    assert code_of(client.commit(named, number=1)) == "transactionConflict"
    assert client.end_of("t") == 0
    assert isinstance(client.commit(named), frames.Done)
    assert client.end_of("t") == 2


def test_who_stages_has_an_id_and_a_name(world, client):
    assert code_of(client.open("t", by=bytes(16))) == "outOfRange"
    assert code_of(client.open("t", transaction="a b")) == "badName"
    assert code_of(client.open("none")) == "unknownTopic"
    client.open("t")
    assert code_of(client.stage(client.entry(1, b"x"))) == "transactionAborted"


def test_what_another_attempt_has_staged_is_dropped_by_the_commit(world, client):
    client.staged("t", 10, 10, by=b"q" * 16)
    named = client.staged("t", 10)
    assert isinstance(client.commit(named), frames.Done)
    assert client.end_of("t") == 1
    assert not stages_of(world)
    again = client.staged("t", 20, by=b"r" * 16)  # too late, and the same
    assert isinstance(client.commit(again), frames.Done)
    world.until(lambda: not stages_of(world), 5, "it is dropped")
    assert client.end_of("t") == 1


def test_participants_forget_what_the_decider_has_finished(world, client):
    for number in range(5):
        named = client.staged("t", 10, number=number, by=b"%016d" % number)
        assert isinstance(client.commit(named, number=number), frames.Done)
    world.run(3 * SECOND)
    assert [stages.applied for stages in world.stages()] == [{}]
    world.crash()
    world.start_node()
    assert code_of(Transacting(world).commit(number=3)) == "transactionConflict"


def test_a_damaged_stage_is_reported_and_harms_nobody_else(world, caplog):
    client = Transacting(world)
    client.topic("t", segment_bytes_max=1024, memory_retention_us=0)
    named = client.staged("t", 300, 300, 300, 300)
    world.run(2 * SECOND)
    path = next(n for n in world.disk.files() if n.startswith("groups/1/") and n.endswith(".log"))
    world.disk.flip(path, 200)
    client.send(frames.CommitTransaction(900, "job", 0, (named,)))
    world.run(5 * SECOND)
    assert [r.message.partition(":")[0] for r in caplog.records] == [
        "transaction 'job' number 0 is committed, and cannot be published in group 1"
    ]
    assert client.end_of("t") == 0
    world.disk.flip(path, 200)  # somebody has put a copy back
    world.until(lambda: client.end_of("t") == 4, 5, "it goes on")
