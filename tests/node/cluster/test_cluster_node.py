"""What a cluster needs of a node: its registry in the log, and its committed batches to hand on."""

from __future__ import annotations

import logging

import pytest

from hocket.core.relay.messages import Piece
from hocket.core.ring.contact import Contact
from hocket.errors import StorageFull
from hocket.log.settings import LogSettings
from hocket.model import PartitionId
from hocket.node.running.committed_log import CommittedLog
from hocket.node.running.partitions import Hosted
from hocket.wire import batch as batches
from tests.support.node.simulated import PARTITIONS, SECOND, TOPIC, Admin, Producer, World

A = Contact(10, "a", 1, "a:1")
B = Contact(20, "b", 1, "b:1")


class Watching:
    """As a cluster node does it."""

    def __init__(self, world: World) -> None:
        assert world.node is not None
        self.log: CommittedLog = world.node.committed_log()
        self.events: list[tuple[str, PartitionId, int]] = []
        world.node.watch(self)

    def hosted(self, hosted: Hosted) -> None:
        self.log.add(self._tell("hosted", hosted), hosted)

    def advanced(self, hosted: Hosted) -> None:
        self._tell("advanced", hosted)

    def dropped(self, hosted: Hosted) -> None:
        self.log.remove(self._tell("dropped", hosted))

    def _tell(self, what: str, hosted: Hosted) -> PartitionId:
        partition_id = PartitionId(hosted.core.topic, hosted.core.number)
        self.events.append((what, partition_id, hosted.core.high_watermark))
        return partition_id

    def read(
        self,
        world: World,
        partition_id: PartitionId,
        offset: int,
        end: int,
        bytes_max: int = 1 << 20,
    ):
        got: list[tuple[Piece, ...]] = []
        self.log.read(partition_id, offset, end, bytes_max, got.append)
        world.until(lambda: bool(got), 5, "a read")
        return got[0]


@pytest.fixture
def world() -> World:
    return World("cluster parts", settings=LogSettings)


def filled(world: World) -> tuple[Watching, Producer]:
    watching = Watching(world)
    Admin(world)
    producer = Producer(world, "p", batches_max=6)
    world.until(lambda: producer.finished, 60, "all is acknowledged")
    return watching, producer


def values_of(pieces: tuple[Piece, ...]) -> list[bytes]:
    return [value for piece in pieces for value in batches.parse(memoryview(piece.data)).values()]


def test_a_watcher_hears_of_partitions_and_of_every_advance(world):
    watching, producer = filled(world)
    kinds = [what for what, _partition_id, _end in watching.events]
    assert kinds[:PARTITIONS] == ["hosted"] * PARTITIONS
    for number in range(PARTITIONS):
        ends = [
            end
            for _what, partition_id, end in watching.events
            if partition_id == PartitionId(TOPIC, number)
        ]
        assert ends == sorted(ends)
        assert ends[-1] == sum(map(len, producer.sent[number]))


def test_one_that_begins_to_watch_is_told_of_what_is_there(world):
    filled(world)
    late = Watching(world)
    assert sorted(partition_id for _what, partition_id, _end in late.events) == [
        PartitionId(TOPIC, number) for number in range(PARTITIONS)
    ]


def test_batches_come_whole_and_in_order(world):
    watching, producer = filled(world)
    for number in range(PARTITIONS):
        partition_id = PartitionId(TOPIC, number)
        pieces = watching.read(world, partition_id, 0, 1 << 40)
        assert values_of(pieces) == [value for made in producer.sent[number] for value in made]
        assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
        first = watching.read(world, partition_id, 0, 1 << 40, bytes_max=1)
        assert first == pieces[:1]  # one at least
        assert watching.read(world, partition_id, pieces[2].start, pieces[3].end) == pieces[2:4]


def test_what_is_not_there_is_not_read(world):
    watching, _producer = filled(world)
    end = watching.events[-1][2]
    partition_id = watching.events[-1][1]
    assert watching.read(world, partition_id, end, end + 5) == ()
    assert watching.read(world, partition_id, 0, 0) == ()
    assert watching.read(world, PartitionId("nobody's", 0), 0, 1) == ()
    assert watching.log.end(partition_id) == end
    watching.log.remove(partition_id)
    assert watching.read(world, partition_id, 0, 1) == ()
    assert watching.log.end(partition_id) == 0


def enrolled(world: World, who: Contact):
    done: list[tuple[int, tuple[Contact, ...]]] = []
    world.node.registering.enrol(who, lambda *registry: done.append(registry))
    world.node.end_turn()
    world.run(SECOND)
    return done


def test_nodes_are_entered_when_it_is_durable_and_known_after_a_power_failure(world):
    done: list[object] = []
    world.node.registering.enrol(A, lambda *registry: done.append(registry))
    world.node.end_turn()
    assert done == []  # not durable yet
    world.run(SECOND)
    assert done == [(1, (A,))]
    assert enrolled(world, B) == [(2, (A, B))]
    world.crash()
    world.start_node()
    assert world.node.registering.members() == (2, (A, B))


def test_what_is_known_already_is_answered_at_once(world):
    enrolled(world, A)
    done: list[object] = []
    world.node.registering.enrol(A, lambda *registry: done.append(registry))
    world.node.registering.strike(B, lambda *registry: done.append(registry))
    assert done == [(1, (A,)), (1, (A,))]


def test_who_lost_its_disk_and_comes_to_its_old_address_takes_the_place_of_the_old_one(world):
    """The old one will never answer there again, and a small ring would wait for it for ever."""
    enrolled(world, A)
    enrolled(world, B)
    anew = B._replace(node="anew", position=B.position + 1)
    assert enrolled(world, anew) == [(4, (A, anew))]
    assert world.node.registering.left == (B,)
    assert world.node.registering.address_of(B.node) == ""  # another one is there
    elsewhere = B._replace(incarnation=B.incarnation + 1, address="elsewhere:1")
    assert enrolled(world, elsewhere) == [(5, (A, elsewhere, anew))]
    assert world.node.registering.left == ()


def test_who_leaves_is_struck_out(world):
    enrolled(world, A)
    done: list[object] = []
    world.node.registering.strike(A, lambda *registry: done.append(registry))
    world.node.end_turn()
    world.run(SECOND)
    assert done == [(2, ())]
    # It may be back, and serve, before it is entered again.
    assert world.node.registering.address_of(A.node) == A.address


def test_a_position_that_is_taken_is_told_to_the_operator(world, caplog):
    enrolled(world, A)
    with caplog.at_level(logging.WARNING, "hocket.node"):
        assert enrolled(world, B._replace(position=A.position)) == []
    assert "its position belongs to a" in caplog.text


def test_without_room_nobody_is_entered_and_nobody_is_answered(world, monkeypatch, caplog):
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise StorageFull("the disk is full")

    monkeypatch.setattr(world.node.registering._wiring.partitions, "admit", refuse)
    assert enrolled(world, A) == []
    assert "cannot write the registry" in caplog.text
    assert world.node.registering.members() == (0, ())
