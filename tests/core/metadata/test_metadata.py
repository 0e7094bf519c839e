"""The machines that share one log: order, replay, snapshots, and formats of other versions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hocket.core.metadata.access import Access
from hocket.core.metadata.catalogue import Catalogue
from hocket.core.metadata.metadata import CATALOGUE, Indexes, Metadata, asker_of, with_asker
from hocket.core.metadata.preferences import Preferences
from hocket.core.metadata.registry import Registry
from hocket.core.metadata.roster import Change
from hocket.core.origin import Asked
from hocket.core.ring.contact import Contact
from hocket.errors import NewerFormat
from hocket.model import Grant, TopicConfig
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

    def applied(self, index: int, body: bytes, origin: object) -> list[tuple[int, object]]:
        number = json.loads(body)["number"]
        self.numbers.append(number)
        return [(number, origin)]

    def replace(self, index: int, state: dict[str, Any]) -> list[str]:
        self.restore(index, state)
        return [f"replaced at {index}"]

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


def test_who_leads_no_more_judges_by_what_is_committed_alone():
    metadata = Metadata()
    indexes = metadata.indexes
    catalogue, access = Catalogue(indexes=indexes), Access(indexes)
    registry, preferences = Registry(indexes), Preferences(indexes)
    for kind, machine in enumerate((catalogue, access, registry, preferences), CONFIG):
        metadata.register(kind, f"machine {kind}", machine)
    node = Contact(5, "n5", 1, "a5:1", "")

    def propose() -> list[int]:
        proposed = [
            catalogue.create(origin(1), "orders", TopicConfig()),
            access.change(origin(2), Change("createUser", "ann", ("admin",), token_hash="hash")),
            registry.enrol(node, origin(3)),
            preferences.set_replication(origin(4), 3, nodes=3),
        ]
        for kind, each in enumerate(proposed, CONFIG):
            metadata.appended(kind, each.index)
        return [each.index for each in proposed]

    metadata.entered(1)
    assert propose() == [2, 3, 4, 5]
    assert metadata.withdraw() == [origin(1), origin(2), origin(3), origin(4)]
    assert (indexes.last, metadata.durable(5)) == (0, [])
    assert (catalogue.topics, registry.members, preferences.replication_to_come) == ({}, (), 1)
    assert propose() == [1, 2, 3, 4], "nothing of it counts any more"
    assert len(metadata.durable(4)) == 4


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
    with pytest.raises(NewerFormat, match=r"entry 1 .* kind 99"):
        Shared().metadata.replayed(99, 1, b"")
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


# --- entries of another node ---------------------------------------------------------------------


def test_an_entry_of_another_proposer_takes_effect_when_it_is_durable_here():
    shared = Shared()
    body = shared.create("a")
    again = Shared()
    again.metadata.followed(CONFIG, 1, body)
    again.metadata.followed(0, 2, b"")
    assert again.metadata.indexes.last == 2
    assert not again.catalogue.topics
    ((kind, changed),) = again.metadata.durable(1)
    assert (kind, changed.origin, changed.change.topic) == (CONFIG, None, "a")
    assert again.metadata.durable(2) == []
    assert again.metadata.applied_index == 2
    with pytest.raises(AssertionError):
        again.metadata.followed(CONFIG, 4, body)
    with pytest.raises(NewerFormat, match=r"entry 3 .* kind 99"):
        again.metadata.followed(99, 3, b"")


def test_an_entry_that_changes_nothing_takes_an_index():
    shared = Shared()
    shared.metadata.appended(0, shared.metadata.indexes.take())
    shared.count(7)
    assert shared.metadata.durable(2) == [(OTHER, 7)]


def test_an_entry_says_who_asked_and_whoever_waits_here_is_its_origin():
    shared = Shared()
    mine, other = Asked("me", 7), Asked("other", 7)
    body = b'{"number": 5}'
    assert asker_of(body) is None
    assert asker_of(b'{"name": "\\"asked\\""}') is None
    assert asker_of(b'{"name": "asked"}') is None
    assert asker_of(with_asker(body, mine)) == mine
    shared.metadata.followed(OTHER, 1, with_asker(body, mine))
    assert shared.metadata.durable(1) == [(OTHER, (5, None))]
    shared.metadata.origin_of = lambda asked: "client" if asked.node == "me" else None
    shared.metadata.followed(OTHER, 2, with_asker(body, mine._replace(number=8)))
    shared.metadata.followed(OTHER, 3, with_asker(body, other))
    assert shared.metadata.durable(3) == [(OTHER, (5, "client")), (OTHER, (5, None))]
    assert [shared.metadata.done.index_of(each) for each in (mine, other)] == [1, 3]


def test_what_was_done_is_remembered_by_proposer_replay_and_snapshot():
    asked = Asked("other", 7)
    shared = Shared()
    assert b"done" not in shared.metadata.snapshot()[1]  # older versions can read that
    append = shared.catalogue.create(origin(1), "a", TopicConfig())
    shared.metadata.appended(CONFIG, append.index, asked)
    shared.metadata.durable(1)
    assert shared.metadata.done.index_of(asked) == 1
    replayed, restored, replaced = Shared(), Shared(), Shared()
    replayed.metadata.replayed(CONFIG, 1, with_asker(append.body, asked))
    restored.metadata.restore(*shared.metadata.snapshot())
    replaced.metadata.replace(*shared.metadata.snapshot())
    for each in (replayed, restored, replaced):
        assert each.metadata.done.index_of(asked) == 1
        assert each.metadata.snapshot() == shared.metadata.snapshot()


def test_the_state_is_replaced_at_run_time_and_the_difference_told():
    shared = Shared()
    shared.create("a")
    shared.count(10)
    shared.metadata.durable(2)
    again = Shared()
    again.create("b")
    again.metadata.durable(1)
    index, snapshot = shared.metadata.snapshot()
    again.metadata.check(snapshot)
    changes = again.metadata.replace(index, snapshot)
    kinds = [(kind, change if kind == OTHER else change.change.kind) for kind, change in changes]
    assert kinds == [(CONFIG, "delete"), (CONFIG, "create"), (OTHER, "replaced at 2")]
    assert again.metadata.snapshot() == shared.metadata.snapshot()
    with pytest.raises(NewerFormat):
        again.metadata.check(b'{"voting": {}}')
    assert again.count(30) == 3
    with pytest.raises(AssertionError):  # an entry is on its way
        again.metadata.replace(index, snapshot)


def test_what_an_older_version_kept_here_goes_where_it_is_kept_now_and_is_written_no_more():
    class Taking:
        def __init__(self) -> None:
            self.taken: list[object] = []

        def restore(self, index: int, state: dict[str, Any]) -> None:
            self.taken.append((index, state))

        def replayed(self, index: int, body: bytes) -> None:
            self.taken.append((index, body))

    taking = Taking()
    for machine in (taking, None):
        shared = Shared()
        shared.metadata.retire(6, "transactions", machine)
        shared.metadata.restore(1, b'{"transactions": {"x": 1}}')
        shared.metadata.replayed(6, 2, b"entry")
        shared.metadata.followed(6, 3, b"entry")
        assert shared.metadata.durable(3) == []
        assert b"transactions" not in shared.metadata.snapshot()[1]
    assert taking.taken == [(1, {"x": 1}), (2, b"entry")]


# --- entries that may be committed ---------------------------------------------------------------


class InDoubt:
    """A node that was started from a state in which `bob` publishes; behind it the log says more.

    What it says is not known to be committed: `bob` was deleted.
    """

    def __init__(self) -> None:
        before = Metadata()
        access = self._registered(before)
        for number, change in enumerate(
            (
                Change("createUser", "ann", ("admin",), token_hash="-"),
                Change("createRole", "writer"),
                Change("addGrant", "writer", grant=Grant("publish", "orders")),
                Change("createUser", "bob", ("writer",), token_hash="-"),
            )
        ):
            before.appended(OTHER, access.change(origin(number), change).index)
        before.durable(4)
        self.metadata = Metadata()
        self.access = self._registered(self.metadata)
        self.metadata.restore(*before.snapshot())
        self.deleted = Change("deleteUser", "bob").encode()
        self.metadata.in_doubt(0, 5, b"")  # an empty entry leaves nothing in doubt
        assert self.bob_publishes()
        self.metadata.in_doubt(OTHER, 6, self.deleted)
        self.metadata.in_doubt(0, 7, b"")

    def _registered(self, metadata: Metadata) -> Access:
        access = Access(metadata.indexes)
        metadata.register(CONFIG, CATALOGUE, Catalogue(indexes=metadata.indexes))
        metadata.register(OTHER, "access", access)
        return access

    def bob_publishes(self) -> bool:
        return self.access.decide("bob", "publish", "orders").allowed


def test_what_is_in_doubt_is_not_in_force_until_it_is_known_what_the_log_has_in_its_place():
    node = InDoubt()
    assert not node.bob_publishes()
    node.metadata.followed(0, 5, b"")
    node.metadata.durable(5)
    assert not node.bob_publishes(), "what became of the sixth entry is not known"
    node.metadata.followed(0, 6, b"")  # the deletion was never committed: another entry is there
    node.metadata.durable(6)
    assert node.bob_publishes()
    assert not node.access.is_in_doubt


def test_what_was_in_doubt_and_is_committed_stays_out_of_force():
    node = InDoubt()
    node.metadata.followed(0, 5, b"")
    node.metadata.followed(OTHER, 6, node.deleted)
    node.metadata.durable(6)
    assert not node.bob_publishes()
    assert not node.access.is_in_doubt


def test_a_state_that_another_node_has_sent_settles_what_it_reaches_to():
    for index, settled in ((5, False), (6, True)):
        node = InDoubt()
        _, snapshot = node.metadata.snapshot()
        node.metadata.replace(index, snapshot)
        assert node.bob_publishes() == settled
        assert node.access.is_in_doubt != settled
