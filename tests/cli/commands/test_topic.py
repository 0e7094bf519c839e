"""`hocket topic ...` against a broker."""

from __future__ import annotations

import pytest

from tests.support.cli import Hocket, fails


def test_a_topic_from_its_birth_to_its_end(hocket: Hocket):
    assert hocket("topic", "create", "life", "--partitions", "2").text() == ""
    assert "life\n" in hocket("topic", "list", "--names").text()
    hocket("publish", "life", "x" * 100, "--partition", "1")
    assert hocket("topic", "alter", "life", "--partitions", "3").text() == ""
    assert len(hocket("topic", "describe", "life", "--json").json()["partitions"]) == 3
    assert hocket("topic", "delete", "life", "--yes").text() == ""
    assert "life\n" not in hocket("topic", "list", "--names").text()
    fails(hocket("topic", "describe", "life"), 3, "life")


def test_create_passes_every_option_on(hocket: Hocket):
    hocket(
        "topic", "create", "config", "--partitions", "2", "--replication", "1",
        "--memory-retention", "90s", "--memory-bytes", "1MiB", "--disk-retention", "forever",
        "--disk-bytes", "10GB", "--segment-bytes", "1MiB", "--durability", "memory",
    )  # fmt: skip
    described = hocket("topic", "describe", "config", "--json").json()
    assert described["config"] == {
        "partitions": 2,
        "replication": 1,
        "memory_retention_us": 90_000_000,
        "memory_bytes_max": 1 << 20,
        "disk_retention_us": None,
        "disk_bytes_max": 10_000_000_000,
        "durability": "memory",
        "segment_bytes_max": 1 << 20,
    }
    text = hocket("topic", "describe", "config").text()
    assert "in memory    90s, at most 1.0 MiB per partition\n" in text
    assert "on disk      forever, at most 9.3 GiB per partition\n" in text


def test_alter_changes_what_is_given_and_nothing_else(hocket: Hocket, topic: str):
    before = hocket("topic", "describe", topic, "--json").json()["config"]
    hocket("topic", "alter", topic, "--disk-retention", "1d", "--disk-bytes", "1GB").text()
    changed = hocket("topic", "describe", topic, "--json").json()["config"]
    expected = {"disk_retention_us": 86_400_000_000, "disk_bytes_max": 10**9}
    assert changed == {**before, **expected}
    hocket("topic", "alter", topic, "--disk-retention", "forever", "--disk-bytes", "unlimited")
    without = hocket("topic", "describe", topic, "--json").json()["config"]
    assert without == {**before, "disk_retention_us": None, "disk_bytes_max": None}


def test_describe_shows_each_partition(hocket: Hocket, topic_of_four: str):
    for count in range(3):
        hocket("publish", topic_of_four, f"{count}", "--partition", "2")
    hocket("consume", topic_of_four)
    described = hocket("topic", "describe", topic_of_four, "--json").json()
    assert described["topic"] == topic_of_four
    assert [(each["start"], each["end"]) for each in described["partitions"]] == [
        (0, 0), (0, 0), (0, 3), (0, 0),
    ]  # fmt: skip
    full = described["partitions"][2]
    assert full.keys() == {
        "partition", "start", "end", "memory_start", "memory_bytes", "disk_bytes", "memory_reads",
        "disk_reads", "leader", "replicas", "problem",
    }  # fmt: skip
    assert full["memory_bytes"] > 0
    assert full["memory_reads"] >= 1
    lines = hocket("topic", "describe", topic_of_four).text().splitlines()
    head = next(at for at, line in enumerate(lines) if "PARTITION" in line)
    assert lines[head].split()[:3] == ["PARTITION", "START", "END"]
    assert [line.split()[:3] for line in lines[head + 1 :]] == [
        ["0", "0", "0"], ["1", "0", "0"], ["2", "0", "3"], ["3", "0", "0"],
    ]  # fmt: skip


def test_list_is_a_table_or_json(hocket: Hocket, topic_of_four: str):
    hocket("publish", topic_of_four, "x")
    rows = {each["topic"]: each for each in hocket("topic", "list", "--json").json()}
    row = rows[topic_of_four]
    assert (row["partitions"], row["messages"]) == (4, 1)
    assert row.keys() == {"topic", "partitions", "messages", "memory_bytes", "disk_bytes"}
    lines = hocket("topic", "list").text().splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITIONS", "MESSAGES", "MEMORY", "DISK"]
    assert [topic_of_four, "4", "1"] in [line.split()[:3] for line in lines]


def test_a_topic_that_exists(hocket: Hocket, topic: str):
    fails(hocket("topic", "create", topic), 1, topic)
    assert hocket("topic", "create", topic, "--if-not-exists").text() == ""


@pytest.mark.parametrize("command", ["describe", "alter", "delete"])
def test_a_topic_that_does_not_exist(hocket: Hocket, command: str):
    more = {"alter": ["--partitions", "2"], "delete": ["--yes"]}.get(command, [])
    fails(hocket("topic", command, "nowhere", *more), 3, "nowhere")


def test_what_the_broker_refuses(hocket: Hocket, topic_of_four: str):
    fails(hocket("topic", "create", "wide", "--replication", "3"), 1, "3")
    fails(hocket("topic", "alter", topic_of_four, "--partitions", "2"), 2, "4")
    described = hocket("topic", "describe", topic_of_four, "--json").json()
    assert len(described["partitions"]) == 4
