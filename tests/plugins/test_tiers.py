"""A storage tier in a whole broker: what clients see of it, and of a place that is lost or slow."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from hocket.errors import CorruptData
from hocket.log.settings import LogSettings
from hocket.log.tier.place import problem_of
from hocket.node.settings import NodeSettings
from hocket.plugins import TierRules, hook
from hocket.plugins.found import Unusable
from hocket.plugins.testing import BrokerWith, broker_with
from tests.support.threads import until

QUICK = NodeSettings(
    log=LogSettings(checkpoint_interval_us=50_000, checkpoint_spacing_us=20_000),
    retention_every_us=100_000,
)
MESSAGES = 40
SMALL: dict[str, Any] = {"segment_bytes": 2_048, "memory_retention": 0}


class Shelf:
    """Keeps segments in a directory. `gate` is shut when calls are to hang."""

    api = 1
    rules = TierRules(after=0.0, deadline=0.5, cache_bytes=1 << 20)
    gate = threading.Event()
    path = Path()

    @hook
    def storage_tier(self) -> Shelf:
        return self

    def _file(self, key: str) -> Path:
        self.gate.wait(30)
        if not self.path.exists():
            raise ConnectionError("the shelf is not there")
        return self.path / key

    def store(self, key: str, source: BinaryIO) -> None:
        self._file(key).parent.mkdir(parents=True, exist_ok=True)
        self._file(key).write_bytes(source.read())

    def fetch(self, key: str, target: BinaryIO) -> None:
        target.write(self._file(key).read_bytes())

    def remove(self, key: str) -> None:
        self._file(key).unlink(missing_ok=True)

    def keys(self, prefix: str) -> list[str]:
        found = self._file(prefix).rglob("*.log")
        return [each.relative_to(self.path).as_posix() for each in found]


@pytest.fixture(autouse=True)
def shelf(tmp_path: Path) -> Iterator[Path]:
    Shelf.path = tmp_path / "shelf"
    Shelf.path.mkdir()
    Shelf.gate.set()
    yield Shelf.path
    Shelf.gate.set()


def partition(broker: BrokerWith, topic: str = "t") -> Any:
    return broker.client.describe(topic).partitions[0]


def expected(count: int = MESSAGES) -> list[bytes]:
    return [b"%03d" % number + bytes(497) for number in range(count)]


def fill(broker: BrokerWith, topic: str = "t") -> None:
    with broker.client.producer(topic, linger=0, batch_bytes=600) as producer:
        for value in expected():
            producer.send(value)
            producer.flush(20)


@contextmanager
def filled(path: Path) -> Iterator[BrokerWith]:
    """A broker most of whose messages are on the shelf, and not on its disk."""
    with broker_with(Shelf, path=path, node=QUICK) as broker:
        broker.client.create_topic("t", **SMALL)
        fill(broker)
        until(lambda: partition(broker).tier_bytes > 3 * partition(broker).disk_bytes, timeout=20)
        yield broker


def read_all(broker: BrokerWith, count: int = MESSAGES) -> list[bytes]:
    with broker.client.subscribe("t", start="earliest") as subscription:
        return [subscription.receive(10).value for _ in range(count)]


def test_old_messages_are_read_back_from_the_tier(tmp_path: Path, shelf: Path):
    with filled(tmp_path / "data") as broker:
        kept = sum(each.stat().st_size for each in shelf.rglob("*.log"))
        assert kept >= partition(broker).tier_bytes > partition(broker).disk_bytes
        assert read_all(broker) == expected()
        state = broker.plugin("shelf").timings["storage_tier"]
        assert state.calls > 0
        assert state.failures == 0
    with broker_with(Shelf, path=tmp_path / "data", node=QUICK) as broker:
        assert partition(broker).tier_bytes > 10_000
        assert read_all(broker) == expected()


def test_a_lost_place_ends_reads_of_its_offsets_with_their_names(tmp_path: Path, shelf: Path):
    with filled(tmp_path / "data") as broker:
        shelf.rename(tmp_path / "lost")
        with (
            broker.client.subscribe("t", index="i", start="earliest") as subscription,
            pytest.raises(CorruptData, match="storage tier") as raised,
        ):
            subscription.receive(10)
        error = raised.value
        assert (error.topic, error.partition, error.start) == ("t", 0, 0)
        assert error.end is not None
        assert f"offsets 0 to {error.end - 1} cannot be read" in str(error)
        assert "see to the broker's storage tier and try again" in str(error)
        broker.client.publish("t", b"new")  # all else goes on
        with broker.client.subscribe("t", start="latest") as subscription:
            broker.client.publish("t", b"newer")
            assert subscription.receive(10).value == b"newer"
        until(lambda: "not there" in broker.plugin("shelf").problem, timeout=10)
        (tmp_path / "lost").rename(shelf)
        assert read_all(broker) == expected()


def test_a_place_that_hangs_delays_nobody_else_and_not_the_end(tmp_path: Path):
    with filled(tmp_path / "data") as broker:
        Shelf.gate.clear()
        with (
            broker.client.subscribe("t", start="earliest") as subscription,
            pytest.raises(CorruptData, match=r"has not answered within 0\.5 s"),
        ):
            subscription.receive(10)
        broker.client.publish("t", b"new")
    # The broker has closed while calls hang.
    Shelf.gate.set()
    with broker_with(Shelf, path=tmp_path / "data", node=QUICK) as broker:
        assert read_all(broker) == expected()


def test_a_shared_index_is_told_too_and_goes_on_when_the_place_is_back(tmp_path: Path, shelf: Path):
    with filled(tmp_path / "data") as broker:
        shelf.rename(tmp_path / "lost")
        with (
            broker.client.subscribe(
                "t", index="s", mode="shared", start="earliest"
            ) as subscription,
            pytest.raises(CorruptData, match="storage tier"),
        ):
            subscription.receive(10)
        (tmp_path / "lost").rename(shelf)
        with broker.client.subscribe(
            "t", index="s", mode="shared", start="earliest"
        ) as subscription:
            found = {subscription.receive(10).value for _ in range(MESSAGES)}
        assert found == set(expected())


def test_retention_and_deletion_reach_the_tier(tmp_path: Path, shelf: Path):
    with filled(tmp_path / "data") as broker:
        broker.client.alter_topic("t", disk_bytes=4_096)
        until(lambda: partition(broker).start > 20, timeout=20)
        until(lambda: sum(f.stat().st_size for f in shelf.rglob("*.log")) < 6_000, timeout=20)
        broker.client.delete_topic("t")
        until(lambda: not list(shelf.rglob("*.log")), timeout=20)


def test_without_its_plug_in_a_broker_serves_what_is_on_its_disk(tmp_path: Path, shelf: Path):
    with filled(tmp_path / "data"):
        pass

    class Idle:
        api = 1

        @hook
        def on_close(self) -> None:
            """Nothing."""

    with broker_with(Idle, path=tmp_path / "data", node=QUICK) as broker:
        with (
            broker.client.subscribe("t", start="earliest") as subscription,
            pytest.raises(CorruptData, match="plug-in for that is not enabled"),
        ):
            subscription.receive(10)
        broker.client.publish("t", b"new")
    shutil.rmtree(shelf)


class Second(Shelf):
    pass


class WithoutKeys:
    api = 1

    @hook
    def storage_tier(self) -> Any:
        return object()


class Fails(Shelf):
    @hook
    def storage_tier(self) -> Any:
        raise ConnectionError("nobody answers")


@pytest.mark.parametrize(
    ("plugins", "words"),
    [
        ((Shelf, Second), "'shelf' and 'second' are storage tiers, and a node has one at most"),
        ((WithoutKeys,), "'withoutkeys' has no storage tier: TypeError: a object has no method"),
        ((Fails,), "'fails' has no storage tier: ConnectionError: nobody answers"),
    ],
)
def test_what_is_no_tier_keeps_the_node_from_starting(plugins: tuple[type, ...], words: str):
    with pytest.raises(Unusable, match=words), broker_with(*plugins):
        pass


def test_an_open_plug_in_whose_tier_fails_is_left_out(tmp_path: Path):
    class Open(Fails):
        policy = "open"

    with broker_with(Open) as broker:
        broker.client.create_topic("t")


@pytest.mark.parametrize("rule", ["deadline", "sweep_every"])
def test_rules_that_no_clock_can_follow_are_told_at_the_start(rule: str):
    """They would end the node at the first read, or sweep."""
    for wrong in (0.0, float("inf"), float("nan")):
        assert f"`{rule}` of its rules must be" in problem_of(TierRules(**{rule: wrong}))
