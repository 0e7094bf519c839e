"""`hocket dlq`: the dead letters of a topic, looked at and replayed."""

from __future__ import annotations

import pytest

import hocket as library
from tests.support.cli import Hocket, fails
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


def test_a_table_of_all_says_which_were_replayed(hocket: Hocket, poisoned: str):
    hocket("dlq", "replay", poisoned, "--max", "1").text()
    lines = [line.split() for line in hocket("dlq", "list", poisoned, "--all").text().splitlines()]
    assert lines[0][4] == "REPLAYED"
    assert [line[4] for line in lines[1:]] == ["yes", "no"]


def test_dead_letters_are_given_back_to_their_index(hocket: Hocket, poisoned: str):
    assert hocket("consume", poisoned, "--index", "other").code == 0
    back = ("dlq", "replay", poisoned, "--index", "workers")
    assert hocket(*back, "--max", "1").text() == f"1 message of {poisoned} given back to workers\n"
    assert hocket(*back, "--json").json() == {"topic": poisoned, "replayed": 1}
    assert hocket(*back, "--json").json()["replayed"] == 0
    assert hocket("consume", poisoned, "--index", "other").text() == ""
    shown = hocket(
        "consume", poisoned, "--index", "workers", "--mode", "shared", "--format", "{offset}"
    )
    assert shown.text() == "0\n1\n"
    fails(hocket("dlq", "replay", "no-such-topic", "--index", "workers"), 3, "no-such-topic")


def test_an_index_that_is_not_there_is_given_nothing(hocket: Hocket, poisoned: str):
    replay = ("dlq", "replay", poisoned)
    fails(hocket(*replay, "--index", "wrokers"), 3, f"topic '{poisoned}' has no index 'wrokers'")
    both = hocket(*replay, "--index", "workers", "--of-index", "workers")
    fails(both, 2, "--index", "--of-index", "choose one")
    assert len(hocket("dlq", "list", poisoned, "--json").json()) == 2


def test_what_the_topic_does_not_keep_any_more_cannot_be_given_back(
    hocket: Hocket, server: str, poisoned: str
):
    with library.connect(server) as client:
        client.delete_messages(poisoned, [1])
    outcome = hocket("dlq", "replay", poisoned, "--index", "workers")
    fails(outcome, 2, "offset 0", "is not kept", "published to the topic again")
    rows = hocket("dlq", "list", poisoned, "--all", "--json").json()
    assert [row["replayed"] for row in rows] == [False, False]


def test_a_purge_asks_and_deletes(hocket: Hocket, poisoned: str):
    fails(hocket("dlq", "purge", poisoned), 2, "2 dead letters", "--yes")
    fails(hocket("dlq", "purge", "no-such-topic"), 3, "no-such-topic")
    fails(hocket("dlq", "purge", poisoned, "--older-than", "long"), 2, "30d")
    assert len(hocket("dlq", "list", poisoned, "--json").json()) == 2
    assert hocket("dlq", "purge", poisoned, "--older-than", "1h").text() == (
        f"0 dead letters of {poisoned} deleted\n"
    )
    purge = ("dlq", "purge", poisoned, "--yes")
    assert hocket(*purge, "--index", "nobody", "--json").json()["purged"] == 0
    assert hocket(*purge, "--index", "workers", "--json").json() == {
        "topic": poisoned, "purged": 2,
    }  # fmt: skip
    assert hocket("dlq", "list", poisoned, "--all", "--json").json() == []
    assert hocket(*purge).text() == f"0 dead letters of {poisoned} deleted\n"


def test_an_index_may_be_named(hocket: Hocket, poisoned: str):
    assert hocket("dlq", "list", poisoned, "--index", "nobody", "--json").json() == []
    replay = ("dlq", "replay", poisoned, "--json", "--of-index")
    assert hocket(*replay, "nobody").json()["replayed"] == 0
    assert hocket(*replay, "workers").json()["replayed"] == 2
    assert hocket("consume", poisoned, "--start", "3", "--format", "{offset}").text() == "3\n4\n"


def test_none_is_an_empty_table_and_an_unknown_topic_an_error(hocket: Hocket, topic: str):
    assert len(hocket("dlq", "list", topic).text().splitlines()) == 1
    for command in ("list", "replay"):
        ended = hocket("dlq", command, "no-such-topic")
        assert ended.code == 3
        assert "no topic 'no-such-topic'" in ended.stderr
