"""The example cold_tier: it is a storage tier, on the local file system and in memory."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest

from hocket.errors import CorruptData
from hocket.plugins.found import Unusable
from hocket.plugins.testing import BrokerWith, StorageTierSuite, broker_with
from tests.plugins.test_conformance import example
from tests.plugins.test_tiers import QUICK, SMALL, expected, fill, partition, read_all
from tests.support.threads import until

ColdTier: Any = example("cold_tier").ColdTier


class TestLocalFiles(StorageTierSuite):
    def open_tier(self, path: Path) -> Any:
        return ColdTier(ColdTier.Settings(url=path.as_uri()))


class TestMemory(StorageTierSuite):
    def open_tier(self, path: Path) -> Any:
        return ColdTier(ColdTier.Settings(url=f"memory:/{path}"))


class Unsteady(ColdTier):  # type: ignore[misc]
    """Its place can be lost, or hang."""

    lost = False
    gate = threading.Event()

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        files = self._files

        class Files:
            def __getattr__(self, name: str) -> Any:
                Unsteady.gate.wait(30)
                if Unsteady.lost:
                    raise ConnectionError("the bucket does not answer")
                return getattr(files, name)

        self._files = Files()


def settings(path: Path, **more: object) -> dict[str, dict[str, object]]:
    return {
        "unsteady": {
            "url": f"memory:/{path}", "after-days": 0.0, "deadline-seconds": 0.5, **more,
        }
    }  # fmt: skip


def wait_until_away(broker: BrokerWith) -> None:
    until(lambda: partition(broker).tier_bytes > 3 * partition(broker).disk_bytes, timeout=20)


@pytest.mark.parametrize("how", ["lost", "slow"])
def test_a_store_that_is_lost_or_slow_harms_reads_of_it_alone(how: str, tmp_path: Path):
    Unsteady.lost = False
    Unsteady.gate.set()
    with broker_with(Unsteady, path=tmp_path, node=QUICK, settings=settings(tmp_path)) as broker:
        broker.client.create_topic("t", **SMALL)
        fill(broker)
        wait_until_away(broker)
        Unsteady.lost = how == "lost"
        if how == "slow":
            Unsteady.gate.clear()
        with (
            broker.client.subscribe("t", index="i", start="earliest") as subscription,
            pytest.raises(CorruptData, match=r"offsets 0 to .* storage tier 'unsteady'"),
        ):
            subscription.receive(10)
        broker.client.create_topic("u", **SMALL)
        fill(broker, "u")  # what is new is taken, and stays on the disk meanwhile
        assert partition(broker, "u").tier_bytes == 0
        Unsteady.lost = False
        Unsteady.gate.set()
        until(lambda: partition(broker, "u").tier_bytes > 0, timeout=30)
        assert read_all(broker) == expected()


def test_local_bytes_keep_the_youngest_on_disk(tmp_path: Path):
    Unsteady.gate.set()
    Unsteady.lost = False
    given = settings(tmp_path, **{"after-days": 30.0, "local-bytes": 8_000})
    with broker_with(Unsteady, path=tmp_path, node=QUICK, settings=given) as broker:
        broker.client.create_topic("t", **SMALL)
        fill(broker)
        until(lambda: 0 < partition(broker).disk_bytes <= 9_000, timeout=20)
        assert partition(broker).disk_bytes > 4_000
        assert read_all(broker) == expected()


def test_a_local_directory_that_is_not_there_is_not_made(tmp_path: Path):
    tier = ColdTier(ColdTier.Settings(url=(tmp_path / "unmounted").as_uri()))
    with pytest.raises(NotADirectoryError, match="there is no directory"):
        tier.store("a/1/x.log", io.BytesIO(b"x"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "the setting 'url' is missing"),
        ({"url": "nonsense://x"}, "Protocol not known: nonsense"),
        ({"url": "memory://x", "after-days": -1.0}, "must be 0 or more"),
        ({"url": "memory://x", "days": 1}, "the setting 'days' is unknown"),
    ],
)
def test_wrong_settings_keep_the_node_from_starting(given: dict[str, object], words: str):
    with pytest.raises(Unusable, match=words), broker_with(ColdTier, settings={"coldtier": given}):
        pass
