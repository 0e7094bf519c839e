"""`hocket index ...` against a broker."""

from __future__ import annotations

import pytest

from hocket import connect
from tests.support.brokers.forging import forge, unopenable
from tests.support.cli import Hocket, fails


@pytest.fixture
def billing(hocket: Hocket, topic: str) -> str:
    """The topic, with five messages and the index `billing` behind the second."""
    for count in range(5):
        hocket("publish", topic, f"m{count}")
    assert hocket("consume", topic, "--index", "billing", "--max", "2").text() == "m0\nm1\n"
    return topic


def test_list_shows_every_index_with_its_lag(hocket: Hocket, billing: str):
    hocket("consume", billing, "--index", "audit")
    rows = hocket("index", "list", billing, "--json").json()
    assert {row["index"]: row["lag"] for row in rows} == {"audit": 0, "billing": 3}
    assert rows[0].keys() == {"index", "lag", "lost", "mode", "hold_retention", "partitions"}
    lines = hocket("index", "list", billing).text().splitlines()
    assert lines[0].split() == ["INDEX", "MODE", "PARTITIONS", "LAG", "LOST", "CONSUMED", "NOW", "HOLDS", "RETENTION"]  # noqa: E501  # fmt: skip
    assert [line.split() for line in lines[1:]] == [
        ["audit", "own", "1", "0", "0", "no", "no"],
        ["billing", "own", "1", "3", "0", "no", "no"],
    ]


def test_lag_is_per_partition(hocket: Hocket, billing: str):
    (row,) = hocket("index", "lag", billing, "billing", "--json").json()
    assert row["partitions"] == [
        {
            "partition": 0,
            "position": 2,
            "end": 5,
            "attached": False,
            "ahead": 0,
            "leased": 0,
            "lost": 0,
            "lag": 3,
        }
    ]
    lines = hocket("index", "lag", billing).text().splitlines()
    assert [line.split()[:5] for line in lines[1:]] == [["billing", "0", "2", "5", "3"]]


def test_without_a_topic_all_are_shown_and_the_worst_lag_comes_first(
    hocket: Hocket, billing: str, topic_of_four: str
):
    for partition, count in enumerate((1, 3, 0, 2)):
        for _ in range(count):
            hocket("publish", topic_of_four, "x", "--partition", f"{partition}")
    hocket("consume", topic_of_four, "--index", "slow", "--start", "latest")
    hocket("index", "reset", topic_of_four, "slow", "--to", "earliest")

    rows = hocket("index", "list", "--json").json()
    mine = [row for row in rows if row["topic"] in (billing, topic_of_four)]
    assert [(row["topic"], row["index"], row["lag"]) for row in mine] == [
        (topic_of_four, "slow", 6), (billing, "billing", 3),
    ]  # fmt: skip
    assert [row["lag"] for row in rows] == sorted((row["lag"] for row in rows), reverse=True)
    assert hocket("index", "lag", "--json").json() == rows

    lines = [line.split() for line in hocket("index", "list").stdout.decode().splitlines()]
    assert lines[0][:3] == ["TOPIC", "INDEX", "MODE"]
    assert [row[:5] for row in lines if row[0] == topic_of_four] == [
        [topic_of_four, "slow", "own", "4", "6"]
    ]
    lines = [line.split() for line in hocket("index", "lag").stdout.decode().splitlines()]
    assert lines[0][:3] == ["TOPIC", "INDEX", "PARTITION"]
    assert [(row[2], row[5]) for row in lines if row[0] == topic_of_four] == [
        ("1", "3"), ("3", "2"), ("0", "1"), ("2", "0"),
    ]  # fmt: skip
    fails(hocket("index", "lag", "nosuch"), 3, "nosuch")
    fails(hocket("index", "list", "a b"), 2, "'a b'")


@pytest.mark.parametrize(
    ("to", "position"), [("earliest", 0), ("latest", 5), ("1", 1), ("2020-01-01", 0)]
)
def test_reset_puts_it_elsewhere(hocket: Hocket, billing: str, to: str, position: int):
    assert hocket("index", "reset", billing, "billing", "--to", to, "--json").json() == [
        {"partition": 0, "position": position}
    ]
    expected = "".join(f"m{count}\n" for count in range(position, 5))
    assert hocket("consume", billing, "--index", "billing").text() == expected


def test_reset_of_one_partition_leaves_the_others(hocket: Hocket, topic_of_four: str):
    for partition in range(4):
        hocket("publish", topic_of_four, f"p{partition}", "--partition", f"{partition}")
    hocket("consume", topic_of_four, "--index", "billing")
    shown = hocket(
        "index", "reset", topic_of_four, "billing", "--to", "earliest", "--partition", "2"
    ).text()
    assert [line.split() for line in shown.splitlines()] == [["PARTITION", "POSITION"], ["2", "0"]]
    assert hocket("consume", topic_of_four, "--index", "billing").text() == "p2\n"


def test_delete_forgets_it(hocket: Hocket, billing: str):
    assert hocket("index", "delete", billing, "billing", "--yes").text() == ""
    assert hocket("index", "list", billing, "--json").json() == []
    assert hocket("consume", billing, "--index", "billing").text() == "m0\nm1\nm2\nm3\nm4\n"


@pytest.mark.parametrize(
    "command",
    [
        ["lag"],
        ["reset", "--to", "earliest"],
        ["skip", "--partition", "0", "--offset", "0"],
        ["delete", "--yes"],
    ],
    ids=lambda c: c[0],
)
def test_what_is_not_there(hocket: Hocket, topic: str, command: list[str]):
    name, *options = command
    fails(hocket("index", name, topic, "nobody", *options), 3, "nobody")
    fails(hocket("index", name, "nowhere", "nobody", *options), 3, "nowhere")


def test_list_of_a_topic_that_is_not_there(hocket: Hocket):
    fails(hocket("index", "list", "nowhere"), 3, "nowhere")


def test_reset_of_a_partition_that_is_not_there(hocket: Hocket, billing: str):
    outcome = hocket("index", "reset", billing, "billing", "--to", "0", "--partition", "7")
    fails(outcome, 3, "7")


def test_skip_does_what_the_consumer_was_told(hocket: Hocket, topic: str):
    hocket("publish", topic, "m0")
    with connect(hocket.url) as client:
        forge(client, topic, unopenable())
    hocket("publish", topic, "m3")
    outcome = hocket("consume", topic, "--index", "billing")
    assert outcome.stdout == b"m0\n"
    assert outcome.code != 0
    command = f"hocket index skip {topic} billing --partition 0 --offset 1"
    assert command in outcome.stderr
    again = hocket("consume", topic, "--index", "billing")  # m0 was acknowledged, and stays so
    assert (again.stdout, again.code) == (b"", outcome.code)
    shown = hocket(*command.split()[1:]).text().splitlines()
    assert [line.split() for line in shown] == [["PARTITION", "POSITION"], ["0", "3"]]
    assert hocket(*command.split()[1:], "--json").json() == {"partition": 0, "position": 3}
    assert hocket("consume", topic, "--index", "billing").text() == "m3\n"


def test_skip_moves_it_past_nothing_that_can_be_read(hocket: Hocket, billing: str):
    outcome = hocket("index", "skip", billing, "billing", "--partition", "0", "--offset", "2")
    fails(outcome, 2, "can be read")
