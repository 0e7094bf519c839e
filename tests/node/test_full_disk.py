"""A full disk is no trap: whatever makes room works on it, at once and after a restart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hocket import frames
from hocket.frames import packed, unpacked
from hocket.log.settings import LogSettings
from hocket.log.verify import accept_loss
from hocket.model import Grant, Start, TopicConfig
from hocket.wire import batch as batches
from tests.node.test_hard_times import Asker
from tests.support.brokers.forging import unopenable
from tests.support.node.damaged import stored
from tests.support.node.simulated import SECOND, World


def small() -> LogSettings:
    return LogSettings(
        wal_file_bytes=64 << 10,
        wal_file_bytes_min=16 << 10,
        checkpoint_bytes=32 << 10,
        checkpoint_interval_us=SECOND,
        reserve_bytes=16 << 10,
        wal_reserve_bytes=64 << 10,
    )


BIG = TopicConfig(segment_bytes_max=32 << 10, memory_retention_us=0)


class FullDisk:
    """A node whose disk has not one byte left."""

    def __init__(
        self,
        seed: object,
        *,
        big: TopicConfig = BIG,
        index: str = "",
        role: str = "",
        first: bytes = b"",
    ) -> None:
        self.world = World(f"full disk/{seed}", settings=small)
        self.admin = Asker(self.world)
        self.admin.answer(frames.CreateTopic, topic="big", config=big)
        self.admin.answer(frames.CreateTopic, topic="other", config=TopicConfig())
        self.consumer: frames.Frame | None = None
        if index:
            self.consumer = self.admin.answer(
                frames.OpenSubscription, topic="big", index=index, hold_retention=True
            )
        if role:
            self.admin.answer(frames.CreateRole, name=role)
            self.admin.answer(frames.AddGrant, role=role, grant=Grant("subscribe", "big"))
        if first:
            answer = self.admin.answer(frames.Publish, first, topic="big", partition=0)
            assert isinstance(answer, frames.Published), answer
        used = sum(self.world.disk.files().values())
        self.world.disk.capacity_bytes = used + (400 << 10)
        self.stored = 0
        while isinstance(self.published("big", 5000), frames.Published):
            self.stored += 1
        self.world.run(3 * SECOND)
        self.world.disk.capacity_bytes = sum(self.world.disk.files().values())  # others were quick

    def published(self, topic: str, size: int) -> frames.Frame:
        batch = batches.encode([bytes(size)], timestamps=self.world.clock.now_us())
        return self.admin.answer(frames.Publish, batch, topic=topic, partition=0)

    def restart(self) -> None:
        self.world.crash()
        self.world.start_node()
        self.admin = Asker(self.world)

    def make_sure_it_is_full(self) -> None:
        assert self.stored > 20
        refused = self.published("other", 20_000)
        assert isinstance(refused, frames.Failure)
        assert refused.code == "storageFull"
        assert "the disk of" in refused.message

    def has_room(self) -> bool:
        return isinstance(self.published("other", 20_000), frames.Published)

    def wait_for_room(self) -> None:
        self.world.until(self.has_room, 10, "there is room again")


def delete(full: FullDisk) -> frames.Frame:
    return full.admin.answer(frames.DeleteTopic, topic="big")


def shorten(full: FullDisk) -> frames.Frame:
    config = TopicConfig(
        segment_bytes_max=BIG.segment_bytes_max, memory_retention_us=0, disk_retention_us=SECOND
    )
    return full.admin.answer(frames.AlterTopic, topic="big", config=config)


def limit(full: FullDisk) -> frames.Frame:
    config = TopicConfig(
        segment_bytes_max=BIG.segment_bytes_max, memory_retention_us=0, disk_bytes_max=64 << 10
    )
    return full.admin.answer(frames.AlterTopic, topic="big", config=config)


@pytest.mark.parametrize("restarts", [0, 1, 2])
@pytest.mark.parametrize("tidy", [delete, shorten, limit])
def test_deleting_and_shortening_work_and_make_room(
    tidy: Callable[[FullDisk], frames.Frame], restarts: int
):
    full = FullDisk(f"{tidy.__name__}/{restarts}")
    for _ in range(restarts):
        full.restart()
    full.make_sure_it_is_full()
    assert isinstance(tidy(full), frames.Done)
    full.wait_for_room()


@pytest.mark.parametrize("restarts", [0, 1])
def test_retention_goes_on(restarts: int):
    kept = TopicConfig(
        segment_bytes_max=BIG.segment_bytes_max, memory_retention_us=0,
        disk_retention_us=60 * SECOND,
    )  # fmt: skip
    full = FullDisk(f"retention/{restarts}", big=kept)
    for _ in range(restarts):
        full.restart()
    full.make_sure_it_is_full()
    full.world.run(60 * SECOND)
    full.wait_for_room()


SHORT = TopicConfig(
    segment_bytes_max=BIG.segment_bytes_max, memory_retention_us=0, disk_retention_us=SECOND
)


@pytest.mark.parametrize("restarts", [0, 1])
def test_an_index_that_held_everything_back_can_be_deleted(restarts: int):
    full = FullDisk(f"deleted index/{restarts}", big=SHORT, index="slow")
    for _ in range(restarts):
        full.restart()
    full.make_sure_it_is_full()
    deleted = full.admin.answer(frames.DeleteIndex, topic="big", index="slow")
    assert isinstance(deleted, frames.Done)
    full.wait_for_room()


def test_acks_of_an_index_that_holds_everything_back_make_room():
    full = FullDisk("acks", big=SHORT, index="slow")
    full.make_sure_it_is_full()
    assert isinstance(full.consumer, frames.SubscriptionOpened)
    commit = packed([0, full.stored])
    acked = full.admin.answer(frames.Commit, handle=full.consumer.handle, positions=commit)
    assert isinstance(acked, frames.Done)
    full.wait_for_room()


def test_an_index_can_be_opened_and_moved_on_a_full_disk_after_a_restart():
    full = FullDisk("attach", big=SHORT, index="slow")
    full.restart()
    full.make_sure_it_is_full()
    opened = full.admin.answer(frames.OpenSubscription, topic="big", index="slow")
    assert isinstance(opened, frames.SubscriptionOpened)
    sought = full.admin.answer(frames.SeekIndex, topic="big", index="slow", start=Start("latest"))
    assert isinstance(sought, frames.Offsets)
    full.wait_for_room()


def test_acks_without_end_leave_room_for_tidying():
    full = FullDisk("many acks", big=SHORT, index="slow")
    full.make_sure_it_is_full()
    assert isinstance(full.consumer, frames.SubscriptionOpened)
    refused = None
    for _ in range(2000):
        commit = packed([0, 1])
        answer = full.admin.answer(frames.Commit, handle=full.consumer.handle, positions=commit)
        if isinstance(answer, frames.Failure):
            refused = answer.code
            break
    assert refused == "storageFull"
    assert isinstance(delete(full), frames.Done)
    full.wait_for_room()


def test_a_node_starts_on_a_full_disk_and_serves_readers():
    full = FullDisk("start")
    full.restart()
    full.make_sure_it_is_full()
    full.admin.answer(frames.OpenSubscription, topic="big", credit_bytes=1 << 20)
    full.world.run(SECOND)
    delivered = [each for each in full.admin.heard if isinstance(each, frames.Deliver)]
    assert delivered
    assert delivered[-1].end == full.stored


def test_a_node_starts_on_a_full_disk_and_tells_of_damage_in_the_log():
    full = FullDisk("damage")
    world = full.world
    world.disk.capacity_bytes = None  # for one record in the log, behind the last checkpoint
    assert isinstance(full.published("other", 100), frames.Published)
    world.run(SECOND // 2)  # a mark says that the record is durable
    (record,) = (each for each in stored(world.disk) if each.header.length in range(100, 300))
    world.crash()
    world.disk.flip(record.path, record.body_position + record.header.length // 2)
    world.disk.capacity_bytes = sum(world.disk.files().values())
    for _ in range(3):  # the room for saying it is needed once
        world.start_node()
        full.admin = Asker(world)
        described = full.admin.answer(frames.DescribeTopic, topic="other")
        assert isinstance(described, frames.Topics)
        assert "offsets 0 to 0" in described.topics[0].partitions[0].problem
        world.crash()
    world.start_node()
    full.admin = Asker(world)
    full.make_sure_it_is_full()
    assert isinstance(delete(full), frames.Done)
    full.wait_for_room()
    full.restart()
    described = full.admin.answer(frames.DescribeTopic, topic="other")
    assert isinstance(described, frames.Topics)
    assert "offsets 0 to 0" in described.topics[0].partitions[0].problem
    assert full.has_room()


def test_a_loss_is_accepted_on_a_full_disk():
    full = FullDisk("accepting")
    world = full.world
    world.disk.capacity_bytes = None
    assert isinstance(full.published("other", 100), frames.Published)
    world.run(SECOND // 2)
    (record,) = (each for each in stored(world.disk) if each.header.length in range(100, 300))
    world.crash()
    world.disk.flip(record.path, record.body_position + record.header.length // 2)
    world.disk.capacity_bytes = sum(world.disk.files().values())
    assert accept_loss(world.disk, record.group)
    world.start_node()
    full.admin = Asker(world)
    described = full.admin.answer(frames.DescribeTopic, topic="other")
    assert isinstance(described, frames.Topics)
    assert described.topics[0].partitions[0].problem == ""


@pytest.mark.parametrize("restarts", [0, 1])
def test_rights_are_taken_away_on_a_full_disk(restarts: int):
    full = FullDisk(f"rights/{restarts}", role="readers")
    for _ in range(restarts):
        full.restart()
    full.make_sure_it_is_full()
    grant = Grant("subscribe", "big")
    taken = full.admin.answer(frames.RemoveGrant, role="readers", grant=grant)
    assert isinstance(taken, frames.Done)
    assert isinstance(full.admin.answer(frames.DeleteRole, name="readers"), frames.Done)
    refused = full.admin.answer(frames.CreateRole, name="others")
    assert isinstance(refused, frames.Failure)
    assert refused.code == "storageFull"


def test_an_index_passes_what_cannot_be_read_on_a_full_disk():
    full = FullDisk("skip", big=SHORT, index="slow", first=unopenable())
    full.make_sure_it_is_full()
    skipped = full.admin.answer(
        frames.SkipUnreadable, topic="big", index="slow", partition=0, offset=0
    )
    assert isinstance(skipped, frames.Offsets)
    assert unpacked(skipped.offsets) == [2]


def test_the_reserve_is_used_without_a_list_of_files():
    """As in a directory of an earlier version, which has no list."""
    full = FullDisk("no list")
    full.world.crash()
    full.world.disk.remove("wal.files")
    full.world.disk.sync_directory("")
    full.world.disk.capacity_bytes = sum(full.world.disk.files().values())
    full.world.start_node()
    full.admin = Asker(full.world)
    full.make_sure_it_is_full()
    assert isinstance(delete(full), frames.Done)
    full.wait_for_room()
    full.restart()
    assert full.has_room()
