"""The machines that share one log: order, replay, snapshots, and formats of other versions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hocket.core.metadata.access import Access
from hocket.core.metadata.catalogue import Catalogue
from hocket.core.metadata.metadata import CATALOGUE, Indexes, Metadata
from hocket.core.metadata.roster import Change
from hocket.errors import NewerFormat
from hocket.model import TopicConfig
from tests.support.core.logged import origin

CONFIG, OTHER = 3, 7  # kinds of entries


class Counter:
    """A machine whose entries are numbers, and whose state is the list of them."""

    def __init__(self, indexes: Indexes) -> None:
        self.numbers: list[int] = []
        self._indexes = indexes
        self._pending: list[tuple[int, int]] = []

    def add(self, number: int) -> int:
        index = self._indexes.take()
        self._pending.append((index, number))
        return index

    def durable(self, index: int) -> list[int]:
        done = [number for at, number in self._pending if at <= index]
        del self._pending[: len(done)]
        self.numbers += done
        return done

    def replayed(self, index: int, body: bytes) -> None:
        self.numbers.append(int(body))

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        return 0, {"numbers": list(self.numbers)}

    def restore(self, index: int, state: dict[str, Any]) -> None:
        self.numbers = list(state["numbers"])


class Shared:
    def __init__(self) -> None:
        self.metadata = Metadata()
        self.catalogue = Catalogue(indexes=self.metadata.indexes)
        self.counter = Counter(self.metadata.indexes)
        self.metadata.register(CONFIG, CATALOGUE, self.catalogue)
        self.metadata.register(OTHER, "counter", self.counter)

    def create(self, name: str) -> bytes:
        append = self.catalogue.create(origin(1), name, TopicConfig())
        self.metadata.appended(CONFIG, append.index)
        return append.body

    def count(self, number: int) -> int:
        index = self.counter.add(number)
        self.metadata.appended(OTHER, index)
        return index


def test_machines_take_their_indexes_from_one_count():
    shared = Shared()
    shared.create("a")
    assert shared.count(10) == 2
    shared.create("b")
    assert shared.metadata.indexes.last == shared.catalogue.last_index == 3


def test_changes_take_effect_in_the_order_of_the_log():
    shared = Shared()
    shared.count(10)
    shared.create("a")
    shared.count(20)
    done = shared.metadata.durable(2)
    assert [(kind, change if kind == OTHER else change.change.topic) for kind, change in done] == [
        (OTHER, 10),
        (CONFIG, "a"),
    ]
    assert shared.counter.numbers == [10]
    assert shared.metadata.applied_index == 2
    assert shared.metadata.durable(3) == [(OTHER, 20)]
    assert shared.metadata.durable(3) == []


def test_a_snapshot_has_what_is_committed_of_every_machine_and_opens_again():
    shared = Shared()
    shared.create("a")
    shared.count(10)
    shared.metadata.durable(2)
    shared.count(20)  # on its way only
    index, snapshot = shared.metadata.snapshot()
    assert index == 2
    again = Shared()
    again.metadata.restore(index, snapshot)
    assert again.catalogue.topics == shared.catalogue.topics
    assert again.counter.numbers == [10]
    assert again.count(30) == 3


def test_replay_goes_to_the_machine_of_the_kind_and_passes_over_entries_without_content():
    shared = Shared()
    body = shared.create("a")
    again = Shared()
    again.metadata.restore(0, b"")
    again.metadata.replayed(CONFIG, 1, body)
    again.metadata.replayed(0, 2, b"")
    again.metadata.replayed(OTHER, 3, b"7")
    assert list(again.catalogue.topics) == ["a"]
    assert again.counter.numbers == [7]
    assert again.metadata.applied_index == 3
    assert again.count(8) == 4


def test_a_snapshot_of_the_catalogue_alone_opens_as_it_was_written_of_old():
    shared = Shared()
    shared.create("a")
    shared.metadata.durable(1)
    _, state = shared.catalogue.snapshot()
    again = Shared()
    again.metadata.restore(1, json.dumps(state).encode())
    assert again.catalogue.topics == shared.catalogue.topics
    assert again.counter.numbers == []
    assert again.metadata.snapshot()[0] == 1


def test_what_a_newer_version_wrote_is_refused_and_not_passed_over():
    with pytest.raises(NewerFormat, match=r"entry 1 .* kind 9"):
        Shared().metadata.replayed(9, 1, b"")
    with pytest.raises(NewerFormat, match="part 'voting'"):
        Shared().metadata.restore(1, b'{"voting": {}}')


def test_the_real_machines_do_not_mind_each_other():
    metadata = Metadata()
    catalogue, access = Catalogue(indexes=metadata.indexes), Access(metadata.indexes)
    metadata.register(CONFIG, CATALOGUE, catalogue)
    metadata.register(OTHER, "access", access)
    entries = []
    for kind, append in (
        (CONFIG, catalogue.create(origin(1), "a", TopicConfig())),
        (OTHER, access.change(origin(2), Change("createRole", "reader"))),
        (CONFIG, catalogue.create(origin(3), "b", TopicConfig())),
    ):
        metadata.appended(kind, append.index)
        entries.append((kind, append.index, append.body))
    metadata.durable(3)
    again = Metadata()
    topics, roles = Catalogue(indexes=again.indexes), Access(again.indexes)
    again.register(CONFIG, CATALOGUE, topics)
    again.register(OTHER, "access", roles)
    for entry in entries:
        again.replayed(*entry)
    assert topics.topics == catalogue.topics
    assert roles.committed.roles == access.committed.roles
    assert again.snapshot() == metadata.snapshot()


def test_behind_entries_that_are_lost_the_count_goes_on():
    shared = Shared()
    body = shared.create("a")
    again = Shared()
    again.metadata.lost(4)
    assert (again.metadata.indexes.last, again.metadata.applied_index) == (3, 3)
    again.metadata.replayed(CONFIG, 4, body)
    assert list(again.catalogue.topics) == ["a"]
    assert again.count(1) == 5
    with pytest.raises(AssertionError):
        again.metadata.lost(5)
