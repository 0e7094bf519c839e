"""Retention on a real node: what keeps one partition from being trimmed concerns that one only."""

from __future__ import annotations

import pytest

from hocket.errors import CorruptData, HocketError, StorageFull
from hocket.log.settings import LogSettings
from hocket.node.background import retention
from tests.support.node.simulated import SECOND, Admin, Producer, World


@pytest.fixture
def world() -> World:
    """A node whose partitions all have records."""
    world = World("retention", settings=LogSettings)
    admin, producer = Admin(world), Producer(world, "filler", batches_max=8)
    world.until(lambda: admin.created and producer.finished, 60, "the topic is filled")
    return world


def trimmed(
    world: World, monkeypatch: pytest.MonkeyPatch, error: type[HocketError] | None
) -> list[bool]:
    """Which partitions are trimmed when the log refuses entries of the first one so."""
    assert world.node is not None
    partitions = world.node._wiring.partitions
    hosted = list(partitions)
    assert len(hosted) > 1
    admit = partitions.admit

    def refusing(group: int, *arguments: int, **more: bool) -> None:
        if error is not None and group == hosted[0].group:
            raise error("the log refuses entries")
        admit(group, *arguments, **more)

    monkeypatch.setattr(partitions, "admit", refusing)
    monkeypatch.setattr(retention, "plan_log_start", lambda *_arguments, **_more: 1)
    world.run(60 * SECOND)
    return [each.core.start == 1 for each in hosted]


def test_every_partition_is_trimmed(world: World, monkeypatch: pytest.MonkeyPatch):
    assert all(trimmed(world, monkeypatch, None))


def test_a_damaged_log_keeps_no_other_from_being_trimmed(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    first, *others = trimmed(world, monkeypatch, CorruptData)
    assert not first
    assert all(others)


def test_on_a_full_disk_all_wait_for_the_next_time(world: World, monkeypatch: pytest.MonkeyPatch):
    assert not any(trimmed(world, monkeypatch, StorageFull))
