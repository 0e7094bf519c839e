"""A small store, as a killed broker left it, and all that the broker had acknowledged.

It has entries of every kind that a broker writes, in segments and behind the last checkpoint; all
flags and codecs of batches; files of every kind; a log with a loss that was accepted, and a deleted
one; an own and a shared index; transactions that are decided and such that are not; users, rights
given, and rights taken away as the last thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hocket import frames
from hocket.core.metadata.metadata import GROUP
from hocket.core.partition.stages import crc_of
from hocket.core.ring.contact import Contact
from hocket.frames import packed, unpacked
from hocket.log import verify
from hocket.log.directory import ACCEPTED
from hocket.model import Action, Grant, IndexDescription, Participant, Start, TopicConfig
from hocket.sim.disk import SimDisk
from hocket.wire import batch as batches, codec as codecs
from hocket.wire.entry import unpack_header
from tests.support.damage.life import SECOND, SimulatedLife, Talk, disk_with, files_of
from tests.support.damage.places import Place, mapped
from tests.support.damage.reading import Reading, Record, read

Partition = tuple[str, int]  # topic and number
FOR_EVER = TopicConfig(disk_retention_us=None)  # simulated clocks are years behind real ones
TOPICS = {
    "orders": replace(FOR_EVER, partitions=2, segment_bytes_max=6000),
    "ledger": replace(FOR_EVER, segment_bytes_max=1200),
    "work": replace(FOR_EVER, segment_bytes_max=2000),
    "short": replace(FOR_EVER, segment_bytes_max=1024, disk_bytes_max=1500),
    "scarred": FOR_EVER,
    "quiet": FOR_EVER,  # nothing happens to it behind the checkpoint
    "gone": FOR_EVER,
}
YOUNG = "young"  # a topic that no checkpoint knows
CODECS = ("none", *(codec.name for codec in codecs._CODECS))
USERS = ("ann", "bob", "carl", "dan", "eve", "mia")
ACTIONS: tuple[Action, ...] = ("publish", "subscribe", "admin")
WORKER = b"worker".ljust(16, b".")


@dataclass
class OpenTransaction:
    """Staged by a producer that has not decided yet."""

    name: str
    number: int
    participants: tuple[Participant, ...]
    values: dict[Partition, list[bytes]]


@dataclass
class Known:
    """What a broker has acknowledged."""

    groups: dict[Partition, int] = field(default_factory=dict)
    starts: dict[Partition, int] = field(default_factory=dict)
    ends: dict[Partition, int] = field(default_factory=dict)
    records: dict[Partition, dict[int, Record]] = field(default_factory=dict)
    removed: dict[Partition, dict[int, bytes]] = field(default_factory=dict)  # by retention: values
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    indexes: dict[str, tuple[IndexDescription, ...]] = field(default_factory=dict)
    sequences: dict[Partition, int] = field(default_factory=dict)  # of `producer`
    producer: bytes = b""
    tokens: dict[str, str] = field(default_factory=dict)
    void_tokens: list[str] = field(default_factory=list)
    access: frames.Access | None = None
    replication: int = 0  # the cluster's default
    allowed: dict[tuple[str, Action, str], bool] = field(default_factory=dict)
    members: tuple[Contact, ...] = ()
    transactions: list[OpenTransaction] = field(default_factory=list)

    @property
    def admin(self) -> str:
        return self.tokens["ann"]

    def partition_of(self, group: int) -> Partition | None:
        return next((at for at, number in self.groups.items() if number == group), None)


@dataclass
class Store:
    files: dict[str, bytes]
    known: Known
    now_us: int
    settled: bool = True  # a mark says that all of it is durable
    paths: str = ""  # only files whose paths begin with this are to be damaged


class _Builder:
    def __init__(self) -> None:
        self.known = Known()
        self.known.producer = b"the producer id."
        self.disk = SimDisk()
        self.sent: dict[Partition, dict[int, bytes]] = {}  # value by offset, as acknowledged
        self.now_us = 0
        self.lives = 0
        self.begin()

    # --- lives -----------------------------------------------------------------------------------

    def begin(self) -> None:
        self.lives += 1
        more = {"start_us": self.now_us + SECOND} if self.now_us else {}
        self.life = SimulatedLife(self.disk, seed=f"building {self.lives}", **more)
        self.admin: Talk = self.life.connect(trusted=True)

    def over(self) -> None:
        self.now_us = self.life.scheduler.now_us()

    def ask(self, kind: type, *fields: Any, payload: bytes = b"", **more: Any) -> Any:
        answer = self.admin.ask(kind, *fields, payload=payload, **more)
        assert not isinstance(answer, frames.Failure), answer
        return answer

    # --- what users do ---------------------------------------------------------------------------

    def entry(self, values: Sequence[bytes], **more: Any) -> bytes:
        return bytes(batches.encode(values, timestamps=self.life.clock.now_us(), **more))

    def publish(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        published = self.ask(frames.Publish, topic, partition, payload=self.entry(values))
        self.sent.setdefault((topic, partition), {}).update(enumerate(values, published.offset))

    def push_every_kind(self, topic: str, partition: int, word: bytes) -> None:
        """A batch with every combination of flags, by every codec, from one producer."""
        opened = self.ask(frames.OpenProducer, topic, self.known.producer)
        sequence = unpacked(opened.sequences)[partition]
        pushed: list[list[bytes]] = []
        payload = b""
        for codec in CODECS:
            for keys in (None, [b"a", b"b"], [b"a", None]):
                for headers in (None, [{"h": b"1"}, None], [{"h": None}, {"h": b"2"}]):
                    number = sequence + len(pushed)
                    values = [b"%s %d/%d " % (word, number, n) + b"x" * 40 for n in range(2)]
                    payload += self.entry(
                        values, keys=keys, headers=headers, codec=codec,
                        producer_id=self.known.producer, sequence=number,
                    )  # fmt: skip
                    pushed.append(values)
        self.admin.heard.clear()
        self.admin._send(frames.Push(0, opened.handle, partition), payload)
        acked: dict[int, int] = {}
        for frame, _ in self.admin.heard:
            assert isinstance(frame, frames.PushAcked), frame
            offsets = unpacked(frame.offsets)
            acked.update(enumerate(offsets, frame.sequence + 1 - len(offsets)))
        for number, values in enumerate(pushed, sequence):
            self.sent.setdefault((topic, partition), {}).update(enumerate(values, acked[number]))
        self.known.sequences[topic, partition] = sequence + len(pushed)
        self.ask(frames.CloseHandle, opened.handle)

    def stage(self, name: str, number: int, places: Sequence[Partition]) -> OpenTransaction:
        participants, staged = [], {}
        for topic, partition in places:
            opened = self.ask(frames.OpenProducer, topic, transaction=name, number=number)
            values = [b"%s %d of %s" % (name.encode(), number, topic.encode()), b"and more"]
            entry = self.entry(
                values, producer_id=opened.producer_id, keys=[b"k", None], codec="lz4"
            )
            self.admin._send(frames.Push(0, opened.handle, partition), entry)
            crc = crc_of([unpack_header(entry).body_crc])
            participants.append(
                Participant(topic, partition, opened.producer_id, 1, len(values), crc)
            )
            staged[topic, partition] = values
            self.ask(frames.CloseHandle, opened.handle)
        return OpenTransaction(name, number, tuple(participants), staged)

    def commit(self, open_one: OpenTransaction) -> None:
        self.ask(frames.CommitTransaction, open_one.name, open_one.number, open_one.participants)

    def move_own_index(self, topic: str, position: int) -> None:
        opened = self.ask(frames.OpenSubscription, topic, "audit", start=Start())
        self.ask(frames.Commit, opened.handle, packed((0, position)))
        self.ask(frames.CloseHandle, opened.handle)

    def settle_some(self, topic: str, ranges: Sequence[tuple[int, int]]) -> None:
        triples = packed(n for start, end in ranges for n in (0, start, end))
        opened = self.ask(
            frames.OpenSubscription, topic, "workers", "shared",
            consumer=WORKER, prefetch=100, credit_bytes=1 << 20, held=triples,
        )  # fmt: skip
        settled = self.ask(frames.Settle, opened.handle, "ack", triples)
        assert not settled.refused
        self.ask(frames.CloseHandle, opened.handle)

    def create_user(self, name: str, *roles: str) -> None:
        self.known.tokens[name] = self.ask(frames.CreateUser, name, roles).token

    def enrol(self, name: str, position: int) -> None:
        """As the root of a cluster does; one broker alone has no other node to enter."""
        contact = Contact(position, name, 1, f"{name}:4150")
        self.life.node.registering.enrol(contact, lambda *_: None)
        self.life.settle()

    # --- the story ---------------------------------------------------------------------------

    def scar(self) -> None:
        """A loss that the operator has accepted, and the file that it was found in."""
        for number in range(3):
            self.publish("scarred", [b"scarred %d" % number])
        self.life.tick(3)
        self.life.kill()
        self.over()
        group = self.known.groups["scarred", 0]
        places = [
            each for each in mapped(files_of(self.disk)).leaves if self._is_second(each, group)
        ]
        self.disk.flip(places[-1].path, places[-1].start)
        self.begin()
        self.life.close()
        self.over()
        assert verify.accept_loss(self.disk, group)
        self.begin()
        del self.sent["scarred", 0][1]
        self.publish("scarred", [b"after the loss"])
        self.life.checkpoint()

    def _is_second(self, place: Place, group: int) -> bool:
        if not place.name.endswith(f"of log {group}/body/value data"):
            return False
        data = files_of(self.disk)[place.path]
        return data[place.start : place.end] == b"scarred 1"

    def before_the_checkpoint(self) -> None:
        self.create_user("ann", "admin")
        self.admin = self.life.connect(self.known.admin)
        self.create_user("eve")
        for number in range(6):
            self.publish("orders", [b"plain %d" % number], partition=1)
            self.publish("ledger", [b"ledger %d/%d" % (number, n) for n in range(3)])
            self.publish("work", [b"job %d/%d" % (number, n) for n in range(2)])
            self.publish("short", [b"short lived %d " % number + b"." * 600])
            self.life.checkpoint()
        self.push_every_kind("orders", 0, b"old")
        self.publish("quiet", [b"quiet"])
        self.publish("gone", [b"gone"])
        self.move_own_index("ledger", 4)
        self.settle_some("work", [(0, 2), (4, 5)])
        self.commit(self.stage("pipeline", 1, [("ledger", 0), ("orders", 1)]))
        self.known.transactions.append(self.stage("left-open", 1, [("ledger", 0)]))
        self.ask(frames.CreateRole, "worker")
        self.ask(frames.CreateRole, "boss")
        for action in ("publish", "subscribe"):
            self.ask(frames.AddGrant, "worker", Grant(action, "orders"))
            self.ask(frames.AddGrant, "boss", Grant(action, "*"))
        for name in ("bob", "carl", "dan"):
            self.create_user(name, "worker")
        self.ask(frames.SetRoles, "carl", ("worker", "boss"))
        self.enrol("first", 1 << 40)
        self.life.tick(15)  # retention moves the start of "short"
        self.ask(frames.DeleteTopic, "gone")
        self.checkpoint_and_kill()

    def checkpoint_and_kill(self) -> None:
        """Kill the broker before it removes what it does not need: the next one uses it again."""
        done: list[object] = []
        self.life.node._wiring.log.checkpoint_now(done.append)
        while not done:
            self.life.scheduler.advance()
        self.kill_and_begin()
        self.publish("orders", [b"in front of what the file held before"], partition=1)
        self.kill_and_begin()

    def kill_and_begin(self) -> None:
        self.life.kill()
        self.over()
        self.begin()
        self.admin = self.life.connect(self.known.admin)

    def behind_the_checkpoint(self) -> None:
        self.push_every_kind("orders", 0, b"new")
        self.publish("orders", [b"new plain"], partition=1)
        self.publish("ledger", [b"new ledger"])
        self.publish("work", [b"new job 1", b"new job 2"])
        self.publish("scarred", [b"new scarred"])
        for number in range(4):
            self.publish("short", [b"new short %d " % number + b"." * 600])
        self.life.tick(15)
        # From now on nothing is removed, in whichever segments a later broker lays the records.
        self.ask(frames.AlterTopic, "short", replace(TOPICS["short"], disk_bytes_max=None))
        self.commit(self.stage("pipeline", 2, [("ledger", 0), ("orders", 1)]))
        self.known.transactions.append(
            self.stage("left-open-too", 1, [("ledger", 0), ("orders", 1)])
        )
        self.ask(frames.CreateTopic, YOUNG, FOR_EVER)
        self.publish(YOUNG, [b"young"])
        self.ask(frames.AlterTopic, "quiet", replace(FOR_EVER, segment_bytes_max=5000))
        self.create_user("mia", "worker")
        self.enrol("second", 1 << 50)
        self.ask(frames.SetCluster, 2)
        self.ask(frames.RegisterName, "mailbox", "mixed", b"l" * 16, b"k" * 32)
        self.move_own_index("ledger", 7)
        self.settle_some("work", [(2, 3), (7, 8)])
        self.known.void_tokens.append(self.known.tokens["dan"])
        self.known.tokens["dan"] = self.ask(frames.RenewToken, "dan").token
        self.ask(frames.SetRoles, "carl", ("worker",))
        self.known.void_tokens.append(self.known.tokens.pop("eve"))
        self.ask(frames.DeleteUser, "eve")
        self.ask(frames.RemoveGrant, "worker", Grant("publish", "orders"))
        self.publish("ledger", [b"the last"])

    def look(self) -> None:
        """Write down what the broker says now: it has acknowledged all of it."""
        known = self.known
        for topic in self.ask(frames.ListTopics).topics:
            known.topics[topic.name] = topic.config
            known.indexes[topic.name] = self.ask(frames.ListIndexes, topic.name).indexes
            (described,) = self.ask(frames.DescribeTopic, topic.name).topics
            for part in described.partitions:
                at = topic.name, part.partition
                known.starts[at], known.ends[at] = part.start, part.end
                reading: Reading = read(self.admin, *at, part.start, part.end)
                assert not reading.errors
                assert reading.stopped_at is None
                known.records[at] = reading.records
                known.removed[at] = {}
                for offset, value in self.sent[at].items():
                    if offset < part.start:
                        known.removed[at][offset] = value
                    else:
                        assert reading.records[offset].value == value
        known.access = self.ask(frames.DescribeAccess)
        known.replication = self.ask(frames.DescribeCluster).replication
        for user in known.tokens:
            for action in ACTIONS:
                for name in known.topics:
                    explained = self.ask(frames.ExplainAccess, user, action, name)
                    known.allowed[user, action, name] = explained.allowed
        known.members = self.life.node.registering.members()[1]

    def note_groups(self) -> None:
        topics = self.life.node._wiring.catalogue.topics
        self.known.groups = {
            (name, number): group
            for name, topic in topics.items()
            for number, group in enumerate(topic.groups)
        }

    def killed(self, *, settled: bool) -> Store:
        self.note_groups()
        if settled:
            self.life.tick(3)
        self.look()
        self.life.kill()
        self.over()
        assert GROUP not in self.known.groups.values()
        return Store(files_of(self.disk), self.known, self.now_us, settled)


def full_store() -> Store:
    """All that the head of this file names; the broker was idle before it was killed."""
    builder = _Builder()
    for name, config in TOPICS.items():
        builder.ask(frames.CreateTopic, name, config)
    builder.note_groups()
    builder.scar()
    builder.before_the_checkpoint()
    builder.behind_the_checkpoint()
    store = builder.killed(settled=True)
    known = store.known
    # Nobody may be in the store's good graces by mistake: these were taken away.
    assert not known.allowed["bob", "publish", "orders"]
    assert known.allowed["bob", "subscribe", "orders"]
    assert not known.allowed["carl", "publish", "ledger"]
    assert known.starts["short", 0] > 0
    return store


def young_store(*, settled: bool = True) -> Store:
    """A store without a checkpoint; if not `settled`, the broker was at work when it was killed."""
    builder = _Builder()
    builder.known.producer = b""
    for name in ("orders", "ledger"):
        builder.ask(frames.CreateTopic, name, FOR_EVER)
    builder.create_user("ann", "admin")
    builder.admin = builder.life.connect(builder.known.admin)
    builder.ask(frames.CreateRole, "worker")
    builder.ask(frames.AddGrant, "worker", Grant("publish", "orders"))
    builder.create_user("bob", "worker")
    builder.publish("orders", [b"the first"])
    builder.publish("ledger", [b"one", b"two"])
    builder.ask(frames.RemoveGrant, "worker", Grant("publish", "orders"))
    builder.publish("ledger", [b"three"])
    builder.publish("orders", [b"the last"])
    store = builder.killed(settled=settled)
    assert not store.known.allowed["bob", "publish", "orders"]
    return store


def forgiven_store() -> Store:
    """A loss was accepted, and no broker has started since: that is still in a file of its own."""
    store = young_store()
    at = "ledger", 0
    for place in mapped(store.files).leaves:
        data = store.files[place.path]
        if data[place.start : place.end] == b"onetwo":
            damaged = bytearray(data)
            damaged[place.start] ^= 1
            store.files[place.path] = bytes(damaged)
    disk = disk_with(store.files)
    assert verify.accept_loss(disk, store.known.groups[at])
    for offset in (0, 1):
        del store.known.records[at][offset]
    return replace(store, files=files_of(disk), paths=ACCEPTED)
