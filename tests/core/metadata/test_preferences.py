"""What is set for the whole cluster, by plain calls."""

from __future__ import annotations

import pytest

from hocket.core.metadata.catalogue import Catalogue
from hocket.core.metadata.metadata import Metadata
from hocket.core.metadata.preferences import Changed, Preferences
from hocket.errors import NotEnoughNodes, OutOfRange
from hocket.model import TopicConfig
from tests.support.core.logged import origin


def test_nothing_is_set_at_first_and_a_change_takes_effect_when_it_is_durable():
    preferences = Preferences()
    assert (preferences.replication, preferences.founded) == (1, 1)
    assert preferences.snapshot() == (0, {})
    asked = preferences.set_replication(origin(1), 3, nodes=3)
    assert (preferences.replication, preferences.replication_to_come) == (1, 3)
    assert preferences.durable(asked.index) == [Changed(origin(1), 3)]
    assert (preferences.replication, preferences.founded) == (3, 1)


def test_the_founder_may_want_more_replicas_than_there_are_nodes():
    preferences = Preferences()
    assert not preferences.is_founded
    preferences.durable(preferences.found(None, 3).index)
    assert preferences.is_founded
    preferences.durable(preferences.set_replication(None, 2, nodes=3).index)
    assert (preferences.replication, preferences.founded) == (2, 3)


@pytest.mark.parametrize("wrong", [0, -1, 8])
def test_a_number_of_replicas_that_no_partition_has_is_refused(wrong):
    preferences = Preferences()
    for ask in (
        lambda: preferences.found(None, wrong),
        lambda: preferences.set_replication(None, wrong, nodes=9),
    ):
        with pytest.raises(OutOfRange, match=f"1 to 7 replicas, not {wrong}"):
            ask()
    assert preferences.replication_to_come == 1


@pytest.mark.parametrize(("nodes", "words"), [(1, "there is 1"), (2, "there are 2")])
def test_a_default_that_no_topic_could_have_is_refused(nodes, words):
    preferences = Preferences()
    with pytest.raises(NotEnoughNodes, match=f"3 replicas need 3 nodes, and {words}: no topic"):
        preferences.set_replication(None, 3, nodes=nodes)
    assert preferences.replication_to_come == 1


def test_what_was_set_survives_an_entry_of_another_node_and_a_snapshot():
    first, second = Preferences(), Preferences()
    bodies = [first.found(None, 3).body, first.set_replication(None, 2, nodes=3).body]
    first.durable(2)
    for index, body in enumerate(bodies, 1):
        second.replayed(index, body)
    assert second.snapshot() == first.snapshot() == (2, {"replication": 2, "founded": 3})
    third = Preferences()
    assert third.replace(*first.snapshot()) == [Changed(None, 2)]
    assert (third.replication, third.replication_to_come, third.founded) == (2, 2, 3)


def test_a_topic_that_is_made_behind_a_change_is_judged_by_it():
    metadata = Metadata()
    preferences = Preferences(metadata.indexes)
    catalogue = Catalogue(indexes=metadata.indexes, me="a")
    catalogue.nodes = lambda: 3
    catalogue.default_replication = lambda: preferences.replication_to_come
    catalogue.place = lambda _topic, numbers, count: [("a", "b", "c")[:count] for _ in numbers]
    preferences.set_replication(None, 3, nodes=3)
    catalogue.durable(catalogue.create(origin(1), "t", TopicConfig()).index)
    assert catalogue.topic("t").replication == 3


def test_a_snapshot_of_a_cluster_in_which_nothing_was_set_is_one_of_an_older_version():
    metadata = Metadata()
    metadata.register(10, "preferences", Preferences(metadata.indexes))
    assert metadata.snapshot() == (0, b"{}")
