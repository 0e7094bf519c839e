"""The catalogue by plain calls, and against a dictionary with crashes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hocket.core.metadata import catalogue as module
from hocket.core.metadata.catalogue import GROUP, AppendChange, Catalogue, Change, Changed
from hocket.core.origin import Origin
from hocket.errors import (
    BadName,
    HocketError,
    LimitExceeded,
    NotEnoughNodes,
    NotHere,
    OutOfRange,
    SeveralNodes,
    TopicExists,
    UnknownTopic,
)
from hocket.model import DECIDERS, DECISIONS, PARTITIONS_MAX, TopicConfig
from tests.support.core.logged import origin
from tests.support.threads import LONG

CONFIG = TopicConfig(partitions=2)
STORED = replace(CONFIG, replication=1)  # as older versions wrote what said nothing


def with_topic(name: str = "orders", config: TopicConfig = CONFIG) -> Catalogue:
    catalogue = Catalogue()
    catalogue.durable(catalogue.create(origin(1), name, config).index)
    return catalogue


# --- creating ------------------------------------------------------------------------------------


def test_a_topic_exists_once_its_creation_is_committed():
    catalogue = Catalogue()
    append = catalogue.create(origin(1), "orders", CONFIG)
    assert append.index == 1
    with pytest.raises(UnknownTopic):
        catalogue.topic("orders")
    change = Change("create", "orders", CONFIG, (1, 2), replicas=(("",), ("",)))
    assert Change.decode(append.body) == change
    assert catalogue.durable(1) == [Changed(origin(1), change, (1, 2))]
    topic = catalogue.topic("orders")
    assert (topic.name, topic.config, topic.groups) == ("orders", CONFIG, [1, 2])


def test_hearing_again_of_a_durable_change_does_nothing():
    catalogue = with_topic()
    assert catalogue.durable(1) == []
    assert catalogue.durable(0) == []
    assert catalogue.applied_index == 1


def test_changes_become_durable_in_order_and_together():
    catalogue = Catalogue()
    for request, name in enumerate("abc"):
        catalogue.create(origin(request), name, TopicConfig())
    assert [changed.change.topic for changed in catalogue.durable(2)] == ["a", "b"]
    assert [changed.change.topic for changed in catalogue.durable(3)] == ["c"]


def test_a_name_is_reserved_while_its_creation_is_on_its_way_and_taken_afterwards():
    catalogue = Catalogue()
    catalogue.create(origin(1), "orders", CONFIG)
    with pytest.raises(TopicExists, match="'orders' already"):
        catalogue.create(origin(2), "orders", CONFIG)
    catalogue.durable(1)
    with pytest.raises(TopicExists, match="'orders' already"):
        catalogue.create(origin(3), "orders", CONFIG)
    assert catalogue.last_index == 1


def test_no_group_is_that_of_the_catalogue_or_of_another_topic():
    catalogue = with_topic("a")
    append = catalogue.create(origin(2), "b", CONFIG)
    (changed,) = catalogue.durable(append.index)
    assert GROUP not in changed.groups
    assert not set(changed.groups) & set(catalogue.topic("a").groups)


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        (TopicConfig(partitions=0), OutOfRange, "1 to 4096 partitions, not 0"),
        (TopicConfig(partitions=-1), OutOfRange, "not -1"),
        (TopicConfig(partitions=PARTITIONS_MAX + 1), OutOfRange, "not 4097"),
        (TopicConfig(durability="paper"), OutOfRange, "'quorum' or 'memory', not 'paper'"),
        (TopicConfig(replication=0), OutOfRange, "1 or more, not 0"),
        (TopicConfig(segment_bytes_max=10), OutOfRange, "1024 bytes or more, not 10"),
        (TopicConfig(disk_bytes_max=-1), OutOfRange, "disk_bytes_max must be 0 or more, not -1"),
        (TopicConfig(replication=2), NotEnoughNodes, "2 replicas need 2 nodes, and there is 1"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_and_changes_nothing(config, error, words):
    catalogue = with_topic()
    for change in (catalogue.create, catalogue.alter):
        name = "new" if change == catalogue.create else "orders"
        with pytest.raises(error, match=words):
            change(origin(2), name, config)
    assert catalogue.last_index == 1
    assert catalogue.create(origin(3), "new", CONFIG).index == 2


def test_as_many_replicas_as_nodes_and_no_more():
    catalogue = Catalogue()
    catalogue.nodes = lambda: 3
    nodes = "abc"
    catalogue.place = lambda _topic, numbers, count: [tuple(nodes[:count]) for _ in numbers]
    asked = catalogue.create(origin(1), "a", TopicConfig(partitions=2, replication=3))
    catalogue.durable(asked.index)
    assert catalogue.topic("a").replicas == [("a", "b", "c")] * 2
    assert catalogue.loads == {"a": 2, "b": 2, "c": 2}
    nodes = "ab"  # one of the three is down
    with pytest.raises(NotEnoughNodes, match="3 replicas need 3 nodes that are there, and there"):
        catalogue.create(origin(1), "c", TopicConfig(replication=3))
    with pytest.raises(NotEnoughNodes, match="4 replicas need 4 nodes, and there are 3"):
        catalogue.create(origin(2), "b", TopicConfig(replication=4))


def test_the_largest_topic_there_may_be():
    catalogue = with_topic(config=TopicConfig(partitions=PARTITIONS_MAX))
    assert len(catalogue.topic("orders").groups) == PARTITIONS_MAX


def test_a_bad_name_is_told_from_an_unknown_one():
    catalogue = Catalogue()
    for name in ("", "a b", ".hidden"):
        with pytest.raises(BadName):
            catalogue.topic(name)
        with pytest.raises(BadName):
            catalogue.create(origin(1), name, CONFIG)
    with pytest.raises(UnknownTopic, match="hocket topic create orders"):
        catalogue.topic("orders")


def test_the_number_of_topics_is_limited(monkeypatch):
    monkeypatch.setattr(module, "TOPICS_MAX", 2)
    catalogue = with_topic("a")
    catalogue.durable(catalogue.create(origin(2), "b", CONFIG).index)
    with pytest.raises(LimitExceeded, match="2 topics"):
        catalogue.create(origin(3), "c", CONFIG)


def test_topics_on_their_way_count_as_topics(monkeypatch):
    monkeypatch.setattr(module, "TOPICS_MAX", 2)
    catalogue = with_topic("a")
    catalogue.create(origin(2), "b", CONFIG)
    with pytest.raises(LimitExceeded, match="2 topics"):
        catalogue.create(origin(3), "c", CONFIG)


# --- altering and deleting -----------------------------------------------------------------------


def test_a_topic_grows_by_new_groups_when_that_is_committed():
    catalogue = with_topic()
    append = catalogue.alter(origin(2), "orders", TopicConfig(partitions=3, disk_bytes_max=9))
    assert catalogue.topic("orders").groups == [1, 2]
    (changed,) = catalogue.durable(append.index)
    assert (changed.change.kind, changed.groups) == ("alter", (3,))
    assert catalogue.topic("orders").groups == [1, 2, 3]
    assert catalogue.topic("orders").config.disk_bytes_max == 9


def test_a_topic_is_altered_without_growing():
    catalogue = with_topic()
    append = catalogue.alter(origin(2), "orders", replace(CONFIG, durability="memory"))
    (changed,) = catalogue.durable(append.index)
    assert changed.groups == ()
    assert catalogue.topic("orders").config.durability == "memory"


def test_a_topic_never_shrinks():
    with pytest.raises(OutOfRange, match=r"has 2 partitions.* cannot be made smaller \(1\)"):
        with_topic().alter(origin(2), "orders", TopicConfig(partitions=1))


def test_a_deleted_topic_is_gone_with_its_groups_and_its_name_is_free():
    catalogue = with_topic()
    append = catalogue.delete(origin(2), "orders")
    assert catalogue.topic("orders").groups == [1, 2]
    assert catalogue.durable(append.index) == [
        Changed(origin(2), Change("delete", "orders"), (1, 2))
    ]
    with pytest.raises(UnknownTopic):
        catalogue.topic("orders")
    (changed,) = catalogue.durable(catalogue.create(origin(3), "orders", CONFIG).index)
    assert changed.groups == (3, 4)


def test_what_is_not_there_cannot_be_changed():
    catalogue = Catalogue()
    with pytest.raises(UnknownTopic):
        catalogue.alter(origin(1), "orders", CONFIG)
    with pytest.raises(UnknownTopic):
        catalogue.delete(origin(1), "orders")


def test_one_change_of_a_topic_at_a_time():
    catalogue = with_topic()
    catalogue.delete(origin(2), "orders")
    with pytest.raises(TopicExists, match="being changed by somebody else; try again"):
        catalogue.alter(origin(3), "orders", CONFIG)
    with pytest.raises(TopicExists, match="try again"):
        catalogue.delete(origin(4), "orders")
    with pytest.raises(TopicExists):
        catalogue.create(origin(5), "orders", CONFIG)


# --- recovery ------------------------------------------------------------------------------------


def test_the_snapshot_of_an_empty_catalogue_is_an_empty_catalogue():
    catalogue = Catalogue()
    catalogue.restore(*Catalogue().snapshot())
    assert (catalogue.topics, catalogue.last_index) == ({}, 0)


def test_a_snapshot_without_a_topic_still_knows_which_groups_it_had():
    catalogue = with_topic()
    catalogue.durable(catalogue.delete(origin(2), "orders").index)
    restored = Catalogue()
    restored.restore(*catalogue.snapshot())
    (changed,) = restored.durable(restored.create(origin(3), "orders", CONFIG).index)
    assert changed.groups == (3, 4)


def test_a_snapshot_holds_topics_as_they_are():
    catalogue = with_topic(config=TopicConfig(partitions=2, durability="memory", disk_bytes_max=7))
    restored = Catalogue()
    restored.restore(*catalogue.snapshot())
    assert restored.topics == catalogue.topics
    assert restored.applied_index == restored.last_index == 1


def test_a_hole_in_the_catalogue_is_never_replayed():
    body = Catalogue().create(origin(1), "orders", CONFIG).body
    with pytest.raises(AssertionError):
        Catalogue().replayed(2, body)


NAMES = ["a", "b", "c"]


class CatalogueAgainstDictionary(RuleBasedStateMachine):
    """The model: topics and groups by name, as far as it is committed, and what is on its way."""

    def __init__(self) -> None:
        super().__init__()
        self.catalogue = Catalogue()
        self.log: list[AppendChange] = []
        self.durable_index = 0
        self.topics: dict[str, tuple[TopicConfig, list[int]]] = {}
        self.on_their_way: list[tuple[str, str, TopicConfig]] = []
        self.used_groups: set[int] = {GROUP}  # by anything that was ever committed
        self.snapshots: list[tuple[int, dict[str, Any]]] = [Catalogue().snapshot()]
        self.requests = 0

    def ask(self, kind: str, name: str, config: TopicConfig = CONFIG) -> None:
        self.requests += 1
        pending = name in [other for _, other, _ in self.on_their_way]
        known = self.topics.get(name)
        allowed = (known is None) == (kind == "create") and not pending
        if kind == "alter" and known:
            allowed = allowed and config.partitions >= known[0].partitions
        asker = origin(self.requests)
        try:
            if kind == "create":
                append = self.catalogue.create(asker, name, config)
            elif kind == "alter":
                append = self.catalogue.alter(asker, name, config)
            else:
                append = self.catalogue.delete(asker, name)
        except HocketError:
            assert not allowed
        else:
            assert allowed
            self.log.append(append)
            assert append.index == len(self.log)
            self.on_their_way.append((kind, name, config))

    sizes = st.integers(1, 4)
    names = st.sampled_from(NAMES)

    @rule(name=names, partitions=sizes)
    def create(self, name: str, partitions: int) -> None:
        self.ask("create", name, TopicConfig(partitions))

    @rule(name=names, partitions=sizes, bytes_max=st.none() | st.integers(0, 9))
    def alter(self, name: str, partitions: int, bytes_max: int | None) -> None:
        self.ask("alter", name, TopicConfig(partitions, disk_bytes_max=bytes_max))

    @rule(name=names)
    def delete(self, name: str) -> None:
        self.ask("delete", name)

    @rule(count=st.integers(0, 3))
    def durable(self, count: int) -> None:
        self.durable_index = min(len(self.log), self.durable_index + count)
        for changed in self.catalogue.durable(self.durable_index):
            assert isinstance(changed.origin, Origin)
            self.committed(changed.groups, changed.change.kind, changed.change.topic)
        assert self.catalogue.applied_index == self.durable_index

    def committed(self, groups: tuple[int, ...], *what: str) -> None:
        kind, name, config = self.on_their_way.pop(0)
        assert (kind, name) == what
        if kind == "delete":
            assert list(groups) == self.topics.pop(name)[1]
            return
        assert not self.used_groups & set(groups), "a group number was used twice"
        self.used_groups |= set(groups)
        had = self.topics[name][1] if kind == "alter" else []
        assert len(had) + len(groups) == config.partitions
        self.topics[name] = (config, [*had, *groups])

    @rule()
    def take_snapshot(self) -> None:
        self.snapshots.append(self.catalogue.snapshot())

    @rule(which=st.integers(0, 5), survivors=st.integers(0, 3))
    def crash(self, which: int, survivors: int) -> None:
        self.durable(survivors)  # they were written, and nobody was told
        del self.log[self.durable_index :]
        self.on_their_way.clear()
        self.catalogue = self.recovered(self.snapshots[-1 - which % len(self.snapshots)])

    def recovered(self, snapshot: tuple[int, dict[str, Any]]) -> Catalogue:
        catalogue = Catalogue()
        catalogue.restore(*snapshot)
        for append in self.log[snapshot[0] : self.durable_index]:
            catalogue.replayed(append.index, append.body)
        return catalogue

    @invariant()
    def replay_equals_live_equals_model(self) -> None:
        recoveries = [self.recovered(snapshot) for snapshot in self.snapshots[-2:]]
        for catalogue in (self.catalogue, *recoveries, self.recovered(Catalogue().snapshot())):
            assert {
                name: (topic.config, topic.groups) for name, topic in catalogue.topics.items()
            } == self.topics
            assert all(name == topic.name for name, topic in catalogue.topics.items())
            assert catalogue.applied_index == self.durable_index


TestCatalogueAgainstDictionary = CatalogueAgainstDictionary.TestCase
TestCatalogueAgainstDictionary.settings = settings(
    max_examples=1_000 if LONG else 40, stateful_step_count=30, report_multiple_bugs=False
)


# --- entries that are lost -----------------------------------------------------------------------


def replay(*changes: Change) -> Catalogue:
    catalogue = Catalogue()
    for index, change in enumerate(changes, 1):
        catalogue.replayed(index, change.encode())
    return catalogue


def test_a_change_of_a_topic_that_never_was_changes_nothing_but_uses_its_groups_up():
    catalogue = replay(Change("alter", "orders", STORED, (7,)), Change("delete", "orders"))
    assert not catalogue.topics
    assert not catalogue.is_deleted(7)
    assert Change.decode(catalogue.create(origin(1), "new", CONFIG).body).groups == (8, 9)


def test_groups_without_a_topic_get_one_each():
    catalogue = replay(
        Change("create", "recovered.5", STORED, (1, 2)),
        Change("create", "gone", STORED, (3, 4)),
        Change("delete", "gone"),
    )
    assert [group for group in range(9) if catalogue.is_deleted(group)] == [3, 4]
    found = catalogue.adopt([9, 5])
    assert [(topic.name, topic.groups) for topic in found] == [
        ("recovered.5_", [5]),
        ("recovered.9", [9]),
    ]
    assert set(catalogue.topics) == {"recovered.5", "recovered.5_", "recovered.9"}
    assert Change.decode(catalogue.create(origin(1), "new", CONFIG).body).groups == (10, 11)
    again = Catalogue()
    again.restore(*catalogue.snapshot())
    assert again.topics == catalogue.topics


# --- contradictions ------------------------------------------------------------------------------

SHORT = TopicConfig(disk_retention_us=5_000_000, memory_retention_us=60_000_000)


def test_messages_are_not_kept_on_disk_for_a_shorter_time_than_in_memory():
    with pytest.raises(OutOfRange, match=r"on disk for 5s and in memory for 1m.*longer"):
        Catalogue().create(origin(1), "orders", SHORT)
    catalogue = with_topic(config=TopicConfig())
    with pytest.raises(OutOfRange, match="5s"):
        catalogue.alter(origin(2), "orders", SHORT)
    catalogue.alter(origin(2), "orders", replace(SHORT, memory_retention_us=5_000_000))


def test_a_topic_that_an_earlier_version_made_so_is_read_and_its_other_settings_change():
    catalogue = Catalogue()
    stored = replace(SHORT, replication=1)
    catalogue.replayed(1, Change("create", "orders", stored, (1,)).encode())
    assert catalogue.topic("orders").config == stored
    catalogue.durable(catalogue.alter(origin(2), "orders", replace(stored, partitions=2)).index)
    assert catalogue.topic("orders").config.partitions == 2
    with pytest.raises(OutOfRange, match="1s"):
        catalogue.alter(origin(3), "orders", replace(stored, disk_retention_us=1_000_000))


# --- homes and other nodes -----------------------------------------------------------------------


def of_two() -> Catalogue:
    """The catalogue of node `me`; a topic of the founder's, one of its own, one of another's."""
    addresses = {"other": "o:1"}
    catalogue = Catalogue(me="me", founder="first", address_of=lambda node: addresses.get(node, ""))
    catalogue.replayed(1, Change("create", "old", STORED, (1, 2)).encode())
    catalogue.durable(catalogue.create(origin(1), "mine", CONFIG).index)
    create_at(catalogue, "theirs", "other")
    return catalogue


def create_at(catalogue: Catalogue, name: str, *nodes: str, partitions: int = 2) -> None:
    """Make a topic whose partitions are on these nodes in turn."""
    put_on(catalogue, *nodes)
    append = catalogue.create(origin(1), name, TopicConfig(partitions=partitions))
    catalogue.durable(append.index)


def put_on(catalogue: Catalogue, *nodes: str) -> None:
    catalogue.place = lambda _topic, numbers, _count: [
        (nodes[number % len(nodes)],) for number in numbers
    ]


def test_a_partition_is_at_home_where_it_was_placed_and_of_old_with_the_founder():
    catalogue = of_two()
    homes = {name: topic.homes for name, topic in catalogue.topics.items()}
    assert homes == {"old": ["first"] * 2, "mine": ["me"] * 2, "theirs": ["other"] * 2}
    catalogue.check_here(catalogue.topic("mine"), (0, 1))
    with pytest.raises(NotHere, match=r"'theirs' are on node other, at o:1, and not on this"):
        catalogue.check_here(catalogue.topic("theirs"), (0, 1))
    with pytest.raises(NotHere, match="are on node first, and not") as raised:
        catalogue.check_here(catalogue.topic("old"), (1,))
    assert (raised.value.node, raised.value.address) == ("first", "")
    assert catalogue.unknown_here("other") == (
        "it is on node other, at o:1, which does not answer; what it holds is not known here"
    )
    assert Catalogue().address_of("anybody") == ""


def test_whether_partitions_are_here_is_said_of_those_that_are_meant():
    catalogue = of_two()
    create_at(catalogue, "spread", "me", "other", partitions=5)
    topic = catalogue.topic("spread")
    assert topic.homes == ["me", "other", "me", "other", "me"]
    assert [catalogue.is_here(catalogue.topic(name)) for name in ("mine", "theirs", "spread")] == [
        True, False, False,
    ]  # fmt: skip
    catalogue.check_here(topic, (4, 0))
    with pytest.raises(NotHere) as raised:
        catalogue.check_here(topic, (1, 3))
    assert raised.value.node == "other"
    with pytest.raises(SeveralNodes, match=r"'spread' that are meant are on 2 nodes"):
        catalogue.check_here(topic, range(5))


def test_partitions_that_a_topic_gets_later_are_placed_on_their_own():
    catalogue = of_two()
    put_on(catalogue, "third")
    asked = catalogue.alter(origin(1), "theirs", TopicConfig(partitions=4, delayed=True))
    (changed,) = catalogue.durable(asked.index)
    assert changed.change.replicas == (("third",), ("third",))
    assert catalogue.topic("theirs").homes == ["other", "other", "third", "third"]
    assert len(catalogue.topic("theirs").waiting) == 4
    again = Catalogue(me="me", founder="first")
    again.restore(*catalogue.snapshot())
    assert again.topics == catalogue.topics
    assert again.loads == catalogue.loads


def test_who_places_is_told_only_of_changes_that_may_be():
    catalogue = of_two()
    asked: list[tuple[str, range]] = []
    catalogue.place = lambda topic, numbers, _count: (
        asked.append((topic, numbers)) or [("me",)] * len(numbers)
    )
    with pytest.raises(OutOfRange):
        catalogue.create(origin(1), "huge", TopicConfig(partitions=1 << 40))
    with pytest.raises(TopicExists):
        catalogue.create(origin(1), "mine", CONFIG)
    assert asked == []
    catalogue.alter(origin(1), "mine", replace(CONFIG, partitions=3))
    catalogue.create(origin(1), "new", CONFIG)
    assert asked == [("mine", range(2, 3)), ("new", range(2))]


def test_loads_count_what_is_on_its_way_and_forget_what_was_deleted():
    catalogue = of_two()
    loads = {"first": 2, "me": 2, "other": 2}
    assert catalogue.loads == loads
    put_on(catalogue, "me", "other")
    append = catalogue.create(origin(1), "new", TopicConfig(partitions=3))
    assert catalogue.loads == {"first": 2, "me": 4, "other": 3}
    catalogue.durable(append.index)
    assert catalogue.loads == {"first": 2, "me": 4, "other": 3}
    catalogue.durable(catalogue.delete(origin(1), "new").index)
    assert catalogue.loads == loads
    catalogue.applied(9, Change("delete", "never was").encode(), None)
    catalogue.adopt([99])
    assert catalogue.loads == {**loads, "me": 3}


def test_an_entry_of_an_older_version_has_no_home_or_one_for_all():
    new = Change("create", "old", STORED, (1,), replicas=(("me",),))
    assert json.loads(new.encode())["home"] == "me"
    body = new.encode().replace(b', "home": "me"', b"")
    assert Change.decode(body) == replace(new, replicas=(("",),))
    body = new.encode().replace(b'"groups": [1]', b'"groups": [1, 2, 3]')
    assert Change.decode(body).replicas == (("me",),) * 3
    again = Catalogue(me="me", founder="me")
    _, state = of_two().snapshot()
    for topic in state["topics"]:
        del topic["home"]
    del state["deleted"]
    again.restore(3, state)
    assert all(map(again.is_here, again.topics.values()))


def test_many_partitions_on_few_nodes_name_each_node_once():
    change = Change(
        "create", "t", STORED, tuple(range(1, 5)), replicas=(("a" * 32,), ("b" * 32,)) * 2
    )
    assert change.encode().count(b"a" * 32) == 1
    assert Change.decode(change.encode()) == change


def test_which_groups_were_deleted_is_remembered_for_ever():
    catalogue = of_two()
    catalogue.durable(catalogue.delete(origin(1), "mine").index)
    assert [group for group in range(9) if catalogue.is_deleted(group)] == [3, 4]
    again = Catalogue()
    again.restore(*catalogue.snapshot())
    assert again.is_deleted(3)
    assert again.snapshot() == catalogue.snapshot()
    _, old = catalogue.snapshot()
    del old["deleted"]  # whatever an older version gave out, and no topic has, it has deleted
    again.restore(4, old)
    assert [group for group in range(9) if again.is_deleted(group)] == [3, 4]


def test_a_snapshot_says_nothing_of_changes_on_their_way():
    catalogue, other = of_two(), of_two()
    catalogue.create(origin(1), "coming", CONFIG)
    assert catalogue.snapshot() == other.snapshot()


def test_a_state_that_replaces_another_is_told_as_changes():
    catalogue, other = of_two(), of_two()
    for made in (
        catalogue.delete(origin(1), "old"),
        catalogue.alter(origin(1), "mine", replace(CONFIG, partitions=3)),
        catalogue.delete(origin(1), "theirs"),
    ):
        catalogue.durable(made.index)
    create_at(catalogue, "theirs", "me")
    create_at(catalogue, "new", "me", "other")
    index, state = catalogue.snapshot()
    changed = other.replace(index, state)
    assert [(each.change.kind, each.change.topic, each.groups) for each in changed] == [
        ("delete", "old", (1, 2)), ("delete", "theirs", (5, 6)), ("alter", "mine", (7,)),
        ("create", "theirs", (8, 9)), ("create", "new", (10, 11)),
    ]  # fmt: skip
    assert other.snapshot() == catalogue.snapshot()
    assert other.replace(index, state) == []


def test_a_log_whose_deletion_is_not_known_is_not_among_the_deleted():
    changed = of_two().replace(9, {"next_group": 1, "topics": [], "deleted": [[1, 2]]})
    assert [(each.change.topic, each.groups) for each in changed] == [
        ("old", (1,)), ("mine", ()), ("theirs", ()),
    ]  # fmt: skip


def test_no_topic_is_made_of_a_log_that_has_one_or_was_deleted():
    catalogue = of_two()
    catalogue.durable(catalogue.delete(origin(1), "mine").index)
    assert [topic.groups for topic in catalogue.adopt([1, 3, 4, 9])] == [[9]]


# --- the broker's own topics ---------------------------------------------------------------------


def with_deciders() -> Catalogue:
    catalogue = Catalogue(me="a", founder="a")
    catalogue.place = lambda _topic, numbers, _count: [("ab"[number % 2],) for number in numbers]
    catalogue.durable(catalogue.create_deciders().index)
    return catalogue


def test_the_deciders_have_groups_of_their_own_and_no_topic_gets_others_by_them():
    catalogue = with_deciders()
    deciders = catalogue.topics[DECIDERS]
    assert deciders.groups == list(range(DECISIONS + 1, DECISIONS + 9))
    assert not catalogue.loads
    catalogue.durable(catalogue.create(origin(1), "orders", CONFIG).index)
    assert catalogue.topic("orders").groups == [1, 2]
    again = Catalogue(me="a", founder="a")
    again.restore(*catalogue.snapshot())
    assert again.topics == catalogue.topics
    assert again.loads == catalogue.loads == {"a": 1, "b": 1}
    assert not any(map(catalogue.is_deleted, deciders.groups))
    assert catalogue.adopt([DECISIONS + 20]) == []


def test_the_deciders_are_made_once():
    catalogue = Catalogue()
    first = catalogue.create_deciders()
    with pytest.raises(TopicExists):
        catalogue.create_deciders()
    catalogue.durable(first.index)
    with pytest.raises(TopicExists):
        catalogue.create_deciders()


def test_clients_have_nothing_to_do_with_the_brokers_own_topics():
    catalogue = with_deciders()
    for ask in (
        lambda: catalogue.topic(DECIDERS),
        lambda: catalogue.delete(origin(1), DECIDERS),
        lambda: catalogue.alter(origin(1), DECIDERS, TopicConfig(partitions=9)),
        lambda: catalogue.create(origin(1), "_hocket.mine", CONFIG),
    ):
        with pytest.raises(BadName, match="the broker's own"):
            ask()
    with pytest.raises(UnknownTopic):
        catalogue.topic("_hocket.mine")


def test_three_nodes_keep_each_decider_and_the_first_stays():
    catalogue = with_deciders()
    with pytest.raises(NotEnoughNodes, match="3 nodes that are there"):
        catalogue.spread_deciders()
    catalogue.place = lambda _topic, numbers, _count: [("c", "b", "a") for _ in numbers]
    asked = catalogue.spread_deciders()
    with pytest.raises(NotEnoughNodes):  # it is on its way
        catalogue.spread_deciders()
    (changed,) = catalogue.durable(asked.index)
    assert changed.groups == ()
    assert catalogue.topics[DECIDERS].replicas == [("a", "c", "b"), ("b", "c", "a")] * 4
    assert catalogue.stores_of_group(DECISIONS + 2) == ("b", "c", "a")
    assert catalogue.home_of_group(DECISIONS + 2) == "b"
    assert not catalogue.loads
    again = Catalogue(me="a", founder="a")
    again.restore(*catalogue.snapshot())
    assert again.topics == catalogue.topics
    lost = Catalogue(me="a", founder="a")  # the entry that made them is lost
    lost.replayed(1, asked.body)
    assert lost.topics == {}


def test_a_log_has_a_home_as_long_as_its_topic_is_there():
    catalogue = with_deciders()
    delayed = replace(CONFIG, delayed=True)
    catalogue.durable(catalogue.create(origin(1), "orders", delayed).index)
    topic = catalogue.topic("orders")
    assert [catalogue.home_of_group(group) for group in topic.all_groups] == ["a", "b"] * 2
    assert catalogue.home_of_group(DECISIONS + 2) == "b"
    assert catalogue.home_of_group(99) is None
    catalogue.durable(catalogue.delete(origin(2), "orders").index)
    assert catalogue.home_of_group(topic.groups[0]) is None


# --- several replicas ----------------------------------------------------------------------------


def replicated(**config: Any) -> Catalogue:
    """This node, `b`, has one of the copies."""
    catalogue = Catalogue(me="b", founder="a")
    catalogue.nodes = lambda: 3
    catalogue.place = lambda _topic, numbers, count: [("a", "b", "c")[:count] for _ in numbers]
    asked = catalogue.create(origin(1), "t", TopicConfig(replication=3, **config))
    catalogue.durable(asked.index)
    return catalogue


def test_replicas_survive_an_entry_and_a_snapshot():
    catalogue = replicated(partitions=2)
    assert catalogue.topic("t").replicas == [("a", "b", "c")] * 2
    assert catalogue.topic("t").homes == ["a", "a"]
    again = Catalogue(me="b", founder="a")
    again.restore(*catalogue.snapshot())
    assert again.topics == catalogue.topics
    assert again.loads == catalogue.loads == {"a": 2, "b": 2, "c": 2}


def test_who_leads_is_what_this_node_has_heard_last():
    catalogue = replicated(partitions=2)
    topic = catalogue.topic("t")
    first, second = topic.groups
    with pytest.raises(NotHere, match="a leader is being elected") as unknown:
        catalogue.check_here(topic, [0])
    assert unknown.value.node == "b"  # who asks the same node again pauses before
    catalogue.leaders[first] = "c"
    with pytest.raises(NotHere) as elsewhere:
        catalogue.check_here(topic, [0])
    assert elsewhere.value.node == "c"
    catalogue.leaders[first] = "b"
    catalogue.check_here(topic, [0])
    assert not catalogue.is_here(topic)
    with pytest.raises(NotHere, match="a leader is being elected"):
        catalogue.check_here(topic, [0, 1])
    catalogue.leaders[second] = "c"
    with pytest.raises(SeveralNodes):
        catalogue.check_here(topic, [0, 1])
    catalogue.leaders[second] = "b"
    assert catalogue.is_here(topic)
    catalogue.durable(catalogue.delete(origin(2), "t").index)
    assert catalogue.leaders == {}


def test_a_node_without_a_copy_names_one_that_is_not_dead():
    catalogue = replicated()
    catalogue.me = "d"
    topic = catalogue.topic("t")
    assert catalogue.leader_of(topic, 0) == "a"
    catalogue.is_dead = lambda node: node == "a"
    assert catalogue.leader_of(topic, 0) == "b"
    catalogue.is_dead = lambda _node: True
    assert catalogue.leader_of(topic, 0) == "a"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (TopicConfig(replication=2, durability="memory"), "has one replica"),
        (TopicConfig(replication=2, delayed=True), "has one replica in this version"),
    ],
)
def test_what_cannot_be_replicated_is_refused_by_name(config, why):
    catalogue = Catalogue()
    catalogue.nodes = lambda: 3
    with pytest.raises(OutOfRange, match=why):
        catalogue.create(origin(1), "t", config)


def test_the_number_of_replicas_stays():
    catalogue = replicated()
    with pytest.raises(OutOfRange, match="has 3 replicas, and their number cannot be changed to 2"):
        catalogue.alter(origin(2), "t", TopicConfig(replication=2))
    catalogue.durable(catalogue.alter(origin(2), "t", TopicConfig(partitions=2)).index)
    assert catalogue.topic("t").config.replication == 3
    assert catalogue.topic("t").replicas == [("a", "b", "c")] * 2
    catalogue.nodes = lambda: 99
    with pytest.raises(OutOfRange, match="at most 7 replicas, not 8"):
        catalogue.create(origin(3), "u", TopicConfig(replication=8))


def defaulting(count: int, *, nodes: int = 3) -> Catalogue:
    """A cluster whose default is so many replicas."""
    catalogue = Catalogue(me="b", founder="a")
    catalogue.nodes = lambda: nodes
    catalogue.default_replication = lambda: count
    catalogue.place = lambda _topic, numbers, count: [("a", "b", "c")[:count] for _ in numbers]
    return catalogue


def test_a_topic_that_says_nothing_follows_the_default_and_keeps_what_it_was():
    catalogue = defaulting(3)
    catalogue.durable(catalogue.create(origin(1), "t", TopicConfig()).index)
    assert (catalogue.topic("t").config.replication, catalogue.topic("t").replication) == (None, 3)
    catalogue.default_replication = lambda: 1
    catalogue.durable(catalogue.alter(origin(1), "t", TopicConfig(partitions=2)).index)
    assert catalogue.topic("t").replicas == [("a", "b", "c")] * 2
    assert catalogue.topic("t").config.replication is None
    again = Catalogue(me="b", founder="a")
    again.restore(*catalogue.snapshot())
    assert again.topics == catalogue.topics
    # To say what is so already changes nothing but that the topic says it from now on.
    catalogue.durable(catalogue.alter(origin(1), "t", TopicConfig(2, replication=3)).index)
    assert catalogue.topic("t").config.replication == 3
    with pytest.raises(OutOfRange, match="has 3 replicas, and their number cannot be changed to 1"):
        catalogue.alter(origin(1), "t", TopicConfig(2, replication=1))


def test_a_default_of_more_replicas_than_nodes_refuses_topics_that_say_nothing():
    catalogue = defaulting(3, nodes=2)
    with pytest.raises(NotEnoughNodes, match=r"there are 2; the cluster's default is so many"):
        catalogue.create(origin(1), "t", TopicConfig())
    catalogue.durable(catalogue.create(origin(1), "t", TopicConfig(replication=1)).index)
    assert catalogue.topic("t").replication == 1


def test_a_topic_of_more_replicas_than_are_left_can_be_altered_and_not_grown():
    catalogue = replicated()
    catalogue.nodes = lambda: 2
    with pytest.raises(NotEnoughNodes, match="3 replicas need 3 nodes, and there are 2"):
        catalogue.alter(origin(2), "t", TopicConfig(partitions=2))
    catalogue.durable(catalogue.alter(origin(2), "t", TopicConfig(disk_retention_us=None)).index)
    assert catalogue.topic("t").config.disk_retention_us is None


def test_who_has_no_copy_believes_who_says_that_it_leads():
    catalogue = replicated()
    topic = catalogue.topic("t")
    catalogue.heard_leader(topic, 0, "c")
    assert catalogue.leaders == {}  # it has a copy, and knows better
    assert catalogue.holders_to_ask(topic, 0) == ["a", "c"]
    catalogue.me = "d"
    catalogue.heard_leader(topic, 0, "c")
    assert catalogue.leader_of(topic, 0) == "c"
    catalogue.is_dead = lambda node: node == "a"
    assert catalogue.holders_to_ask(topic, 0) == ["b", "c"]
    alone = of_two()
    assert alone.holders_to_ask(alone.topic("theirs"), 0) == ["other"]
    alone.heard_leader(alone.topic("theirs"), 0, "me")
    assert alone.leader_of(alone.topic("theirs"), 0) == "other"


def test_who_asks_again_is_sent_to_another_replica_while_nobody_is_known_to_lead():
    catalogue = replicated(partitions=2)
    catalogue.me = "d"
    topic = catalogue.topic("t")
    asked = [catalogue.leaders_of(topic) for _ in range(3)]
    assert sorted(asked) == [["a", "a"], ["b", "b"], ["c", "c"]]
