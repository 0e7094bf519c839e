"""Which topics and partitions are read: parsed, and found in a broker."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

import hocket
from hocket import Client
from hocket.errors import BadName, OutOfRange, UnknownPartition, UnknownTopic
from hocket.spark.selection import Selection
from hocket.spark.values import Given


def select(**options: str) -> Selection:
    return Selection.parse(Given(options))


@pytest.fixture
def client() -> Iterator[Client]:
    with hocket.embedded() as found:
        yield found


def test_exactly_one_way_must_be_given() -> None:
    with pytest.raises(OutOfRange, match="subscribe, subscribePattern, assign; none is given"):
        select()
    with pytest.raises(OutOfRange, match="only one of subscribe and assign"):
        select(subscribe="a", assign='{"a":[0]}')


def test_named_topics_are_found_with_all_their_partitions(client: Client) -> None:
    client.create_topic("orders", partitions=3)
    client.create_topic("payments")
    client.create_topic("other")
    selection = select(subscribe=" payments , orders,payments,")
    assert selection.topics == ("orders", "payments")
    assert selection.find(client) == {"orders": [0, 1, 2], "payments": [0]}
    client.alter_topic("payments", partitions=2)
    assert selection.find(client) == {"orders": [0, 1, 2], "payments": [0, 1]}


def test_a_named_topic_must_be_there(client: Client) -> None:
    client.create_topic("orders")
    for selection in (select(subscribe="orders,gone"), select(assign='{"gone":[0]}')):
        with pytest.raises(UnknownTopic, match="gone"):
            selection.find(client)


def test_a_pattern_matches_whole_names_and_what_comes_later(client: Client) -> None:
    selection = select(subscribePattern="orders-[a-z]+|special")
    assert selection.find(client) == {}
    for topic in ("orders-eu", "orders-us", "my-orders-eu", "orders-eu2", "special"):
        client.create_topic(topic, partitions=2)
    assert selection.find(client) == {"orders-eu": [0, 1], "orders-us": [0, 1], "special": [0, 1]}


def test_a_topic_that_vanishes_while_a_pattern_is_matched_is_none(client: Client) -> None:
    client.create_topic("orders")
    listed = client.topics()
    client.delete_topic("orders")
    client.topics = lambda **_: listed  # type: ignore[method-assign]
    assert select(subscribePattern=".*").find(client) == {}


def test_assigned_partitions_must_be_there(client: Client) -> None:
    client.create_topic("orders", partitions=3)
    client.create_topic("payments")
    selection = select(assign='{"payments":[0],"orders":[2,0,2]}')
    assert selection.find(client) == {"orders": [0, 2], "payments": [0]}
    with pytest.raises(UnknownPartition, match="partition 3, 7 of topic 'orders'"):
        select(assign='{"orders":[7,1,3]}').find(client)


@pytest.mark.parametrize(
    ("words", "option", "text"),
    [
        ("subscribe is empty", "subscribe", " "),
        ("list of topics", "subscribe", ",,"),
        ("a topic in subscribe", "subscribe", "orders;payments"),
        ("regular expression", "subscribePattern", "orders("),
        ("subscribePattern is empty", "subscribePattern", ""),
        ("assign is not JSON", "assign", "orders"),
        ("at character 12", "assign", '{"orders":[0'),
        ("'orders' twice", "assign", '{"orders":[0],"orders":[1]}'),
        ("names no topic", "assign", "{}"),
        ("must look like", "assign", "[1]"),
        ("must list the partitions", "assign", '{"orders":0}'),
        ("must list the partitions", "assign", '{"orders":[]}'),
        ("partitions are numbers", "assign", '{"orders":[-1]}'),
        ("partitions are numbers", "assign", '{"orders":[true]}'),
        ("partitions are numbers", "assign", '{"orders":["0"]}'),
        ("partitions are numbers", "assign", '{"orders":[4096]}'),
        ("a topic in assign", "assign", '{"not a name":[0]}'),
    ],
)
def test_what_is_refused(words: str, option: str, text: str) -> None:
    with pytest.raises((OutOfRange, BadName), match=words) as caught:
        select(**{option: text})
    assert option in str(caught.value)


def test_it_is_picklable() -> None:
    for selection in (
        select(subscribe="a,b"),
        select(subscribePattern="a.*"),
        select(assign='{"a":[0,1]}'),
    ):
        assert pickle.loads(pickle.dumps(selection)) == selection
