"""`hocket dlq`: the dead letters of a topic, looked at and replayed."""

from __future__ import annotations

import pytest

import hocket as library
from tests.support.cli import Hocket
from tests.support.threads import until


@pytest.fixture
def poisoned(hocket: Hocket, server: str, topic: str) -> str:
    """A topic with three messages of which the index `workers` has rejected the first two."""
    with library.connect(server) as client:
        client.publish(topic, b"one", key=b"k", headers={"h": b"v"})
        client.publish(topic, b"two\n" + b"." * 100)
        client.publish(topic, b"\xff")
        with client.subscribe(topic, index="workers", mode="shared") as workers:
            for _ in range(2):
                workers.receive(timeout=10).reject("not so")
            workers.receive(timeout=10).ack()
        until(lambda: len(client.dead_letters(topic)) == 2)
    return topic


def test_a_table_says_where_each_came_from_and_why(hocket: Hocket, poisoned: str):
    lines = hocket("dlq", "list", poisoned).text().splitlines()
    assert lines[0].split() == ["INDEX", "PARTITION", "OFFSET", "DELIVERIES", "DIED", "REASON", "VALUE"]  # noqa: E501  # fmt: skip
    first, second = lines[1:]
    assert first.split()[:4] == ["workers", "0", "0", "1"]
    assert first.endswith("not so  one")
    assert second.endswith("not so  two " + "." * 33 + "...")


def test_json_has_all_of_it(hocket: Hocket, poisoned: str):
    row = hocket("dlq", "list", poisoned, "--json", "--max", "1").json()[0]
    assert row.pop("died") >= row.pop("timestamp")
    assert row == {
        "topic": poisoned, "partition": 0, "offset": 0, "index": "workers", "deliveries": 1,
        "reason": "not so", "replayed": False, "key": "k", "value": "one", "headers": {"h": "v"},
        "unreadable": "", "end": 1, "part": "1/1",
    }  # fmt: skip


def test_replayed_ones_are_published_again_and_listed_no_more(hocket: Hocket, poisoned: str):
    assert hocket("dlq", "replay", poisoned, "--max", "1").text() == (
        f"1 message published to {poisoned} again\n"
    )
    assert len(hocket("dlq", "list", poisoned, "--json").json()) == 1
    assert hocket("dlq", "replay", poisoned, "--json").json() == {"topic": poisoned, "replayed": 1}
    assert hocket("dlq", "list", poisoned, "--json").json() == []
    rows = hocket("dlq", "list", poisoned, "--all", "--json").json()
    assert [row["replayed"] for row in rows] == [True, True]
    consumed = hocket("consume", poisoned, "--start", "3", "--json").text()
    assert consumed.count("hocket-replayed") == 2


def test_an_index_may_be_named(hocket: Hocket, poisoned: str):
    assert hocket("dlq", "list", poisoned, "--index", "nobody", "--json").json() == []
    assert hocket("dlq", "replay", poisoned, "--index", "workers", "--json").json()["replayed"] == 2


def test_none_is_an_empty_table_and_an_unknown_topic_an_error(hocket: Hocket, topic: str):
    assert len(hocket("dlq", "list", topic).text().splitlines()) == 1
    for command in ("list", "replay"):
        ended = hocket("dlq", command, "no-such-topic")
        assert ended.code == 3
        assert "no topic 'no-such-topic'" in ended.stderr
