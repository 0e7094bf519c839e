"""`hocket topic ...` against a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hocket import connect
from hocket.cli.commands import topic as topic_commands
from hocket.cli.server_options import Server
from hocket.errors import NotEnoughNodes, NotHere
from hocket.model import PartitionDescription, ReplicaState, TopicConfig, TopicDescription
from tests.support.cli import Hocket, fails
from tests.support.threads import until


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
        "delayed": False,
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
        "disk_reads", "leader", "replicas", "problem", "waiting", "known",
        "replica_states", "tier_bytes", "under_replicated",
    }  # fmt: skip
    assert full["memory_bytes"] > 0
    assert full["memory_reads"] >= 1
    lines = hocket("topic", "describe", topic_of_four).text().splitlines()
    head = next(at for at, line in enumerate(lines) if "PARTITION" in line)
    assert lines[head].split()[:3] == ["PARTITION", "START", "END"]
    assert [line.split()[:3] for line in lines[head + 1 : head + 5]] == [
        ["0", "0", "0"], ["1", "0", "0"], ["2", "0", "3"], ["3", "0", "0"],
    ]  # fmt: skip


def test_describe_fits_eighty_columns(hocket: Hocket, server: str):
    name = "n" * 255
    hocket("topic", "create", name, "--partitions", "20").text()
    lines = hocket("topic", "describe", name).text().splitlines()
    assert max(map(len, lines)) <= 80
    heads = [line.split() for line in lines if "PARTITION " in line]
    assert [head[0] for head in heads] == ["PARTITION"] * 2
    assert " ".join(word for head in heads for word in head[1:]) == (
        "START END IN MEMORY MEMORY DISK MEMORY READS DISK READS LEADER REPLICAS"
    )
    with connect(server) as client:
        client.delete_topic(name)


LARGE = 123_456_789_012


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_a_description_with_all_that_is_long_fits(columns: int):
    node = "a-node-with-a-long-name"
    description = TopicDescription(
        "t" * 255,
        TopicConfig(partitions=120),
        tuple(
            PartitionDescription(
                number, start=LARGE, end=LARGE, memory_start=LARGE, memory_bytes=LARGE,
                disk_bytes=LARGE, memory_reads=LARGE, disk_reads=LARGE, leader=node,
                replicas=tuple(f"{at}-{node}" for at in range(7)),
            )
            for number in range(120)
        ),
    )  # fmt: skip
    shown = topic_commands.described(description, {"i" * 255: LARGE}, columns)
    assert max(map(len, shown.splitlines())) <= columns
    for part in ("TOPIC", "119", "REPLICAS", "6-a-node-wi…", "were removed"):
        assert part.lower() in shown.lower()
    assert "".join(shown.split()).count("t" * 255) == 1
    assert (shown.count("PARTITION ") == 1) is (columns == 200)


def test_what_is_not_known_is_not_shown_as_nothing(monkeypatch: pytest.MonkeyPatch):
    where = "it is on node n1, which does not answer"
    here = PartitionDescription(0, 3, 10, 3, 5, 6, 7, 8, "n0", ("n0",))
    away = PartitionDescription(1, 0, 0, 0, 0, 0, 0, 0, "", ("n1",), where, known=False)
    topic = TopicDescription(
        "t", TopicConfig(partitions=3), (here, away, replace(away, partition=2))
    )
    rows = topic_commands.described(topic, {}, 200).splitlines()
    assert [row.split() for row in rows if row.strip().startswith(("0 ", "1 ", "2 "))] == [
        ["0", "3", "10", "3", "5", "B", "6", "B", "7", "8", "n0", "n0"],
        ["1", *"-------", "-", "n1"],
        ["2", *"-------", "-", "n1"],
    ]
    assert rows[-1] == f"partitions 1, 2: {where}"
    summary = topic_commands._summary(topic)
    assert summary == {
        "topic": "t", "partitions": 3, "nodes": ["n0", "n1"], "messages": None,
        "memory_bytes": None, "disk_bytes": None, "tier_bytes": None,
        "problem": f"topic 't': {where}", "under_replicated": 0,
    }  # fmt: skip
    known = topic_commands._summary(replace(topic, partitions=(here,)))
    assert (known["messages"], known["problem"]) == (7, None)

    class Asked:
        def __enter__(self) -> Asked:
            return self

        def __exit__(self, *_: object) -> None: ...
        def topics(self, **_: object) -> list[str]:
            return ["t"]

        def tree(self, *_: object, **__: object) -> None:
            raise NotEnoughNodes("it is alone")

        def describe(self, *_: object, **__: object) -> TopicDescription:
            return topic

        def indexes(self, *_: object, **__: object) -> None:
            raise NotHere("elsewhere")

    monkeypatch.setattr(Server, "connect", lambda _self: Asked())
    hocket = Hocket("hocket://127.0.0.1:1")
    listed = hocket("topic", "list")
    assert listed.stdout.decode().splitlines()[1].split() == ["t", "3", "2", "-", "-", "-"]
    assert f"topic 't': {where}" in listed.stderr
    assert hocket("topic", "list", "--json").json() == [summary]
    partitions = hocket("topic", "describe", "t", "--json").json()["partitions"]
    assert [each["end"] for each in partitions] == [10, None, None]
    assert [each["problem"] for each in partitions] == ["", where, where]
    fails(hocket("topic", "alter", "t", "--disk-bytes", "1GiB"), 2, "may delete", where, "--yes")


def test_nodes_are_shown_by_their_names_where_the_broker_tells_them():
    ids = tuple(character * 32 for character in "abc")
    states = tuple(ReplicaState(node, "follower", 3, 10, 0) for node in ids)
    partition = PartitionDescription(0, 3, 10, 3, 5, 6, 7, 8, ids[0], ids, replica_states=states)
    topic = TopicDescription("t", TopicConfig(), (partition,))
    names = {ids[0]: "node-1", ids[1]: "node-2"}
    shown = topic_commands.described(topic, {}, 200, names)
    assert "node-1  node-1,node-2,ccccccccccc…" in shown
    assert [row.split()[1] for row in shown.splitlines() if "follower" in row] == [
        "node-1", "node-2", "ccccccccccc…",
    ]  # fmt: skip


def test_a_copy_that_is_behind_is_shown(monkeypatch: pytest.MonkeyPatch):
    states = (
        ReplicaState("n0", "leader", 3, 10, 0),
        ReplicaState("n1", "follower", 3, 10, 2),
        ReplicaState("n2", "follower", 3, 7, 40, behind=True),
    )
    whole = PartitionDescription(
        0, 3, 10, 3, 5, 6, 7, 8, "n0", ("n0", "n1", "n2"), replica_states=states[:2]
    )
    less = replace(whole, partition=1, replica_states=states)
    gone = tuple(ReplicaState(f"n{at}", "unknown", behind=True) for at in range(3))
    lost = replace(whole, partition=2, known=False, problem="away", replica_states=gone)
    topic = TopicDescription("t", TopicConfig(partitions=3), (whole, less, lost))
    shown = topic_commands.described(topic, {}, 200).splitlines()
    table = shown[next(at for at, row in enumerate(shown) if "FLUSHED" in row) :]
    assert [row.split() for row in table[:6]] == [
        ["PARTITION", "REPLICA", "ROLE", "FLUSHED", "LAG", "BEHIND"],
        ["0", "n0", "leader", "10", "0", "no"],
        ["0", "n1", "follower", "10", "2", "no"],
        ["1", "n0", "leader", "10", "0", "no"],
        ["1", "n1", "follower", "10", "2", "no"],
        ["1", "n2", "follower", "7", "40", "yes"],
    ]
    assert table[6].split() == ["2", "n0", "unknown", "-", "-", "yes"]
    assert shown[-1].startswith("partitions 1, 2: under-replicated: ")
    assert topic_commands._summary(topic)["under_replicated"] == 2
    assert topic_commands._summary(replace(topic, partitions=(whole,)))["under_replicated"] == 0

    class Asked:
        def __enter__(self) -> Asked:
            return self

        def __exit__(self, *_: object) -> None: ...
        def topics(self, **_: object) -> list[str]:
            return ["t"]

        def tree(self, *_: object, **__: object) -> None:
            raise NotEnoughNodes("it is alone")

        def describe(self, *_: object, **__: object) -> TopicDescription:
            return replace(topic, partitions=(whole, less))

        def indexes(self, *_: object, **__: object) -> tuple[()]:
            return ()

    monkeypatch.setattr(Server, "connect", lambda _self: Asked())
    hocket = Hocket("hocket://127.0.0.1:1")
    head, row = hocket("topic", "list").text().splitlines()
    assert head.split()[:4] == ["TOPIC", "PARTITIONS", "NODES", "BEHIND"]
    assert row.split()[:4] == ["t", "2", "3", "1"]
    assert hocket("topic", "list", "--json").json()[0]["under_replicated"] == 1
    described = hocket("topic", "describe", "t", "--json").json()["partitions"]
    assert [each["under_replicated"] for each in described] == [False, True]
    assert [each["behind"] for each in described[1]["replica_states"]] == [False, False, True]


def test_a_delete_without_a_terminal_needs_yes(hocket: Hocket, topic: str):
    fails(hocket("topic", "delete", topic), 2, "no terminal to ask", "--yes")
    assert f"{topic}\n" in hocket("topic", "list", "--names").text()


def test_a_delete_of_nothing_says_so_before_it_asks(hocket: Hocket):
    outcome = hocket("topic", "delete", "nosuch")
    fails(outcome, 3, "nosuch")
    assert "--yes" not in outcome.stderr


def test_list_is_a_table_or_json(hocket: Hocket, topic_of_four: str):
    hocket("publish", topic_of_four, "x")
    rows = {each["topic"]: each for each in hocket("topic", "list", "--json").json()}
    row = rows[topic_of_four]
    assert (row["partitions"], row["messages"]) == (4, 1)
    assert row.keys() == {
        "topic", "partitions", "nodes", "messages", "memory_bytes", "disk_bytes", "tier_bytes",
        "problem", "under_replicated",
    }  # fmt: skip
    assert row["problem"] is None
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


# --- what would be deleted -----------------------------------------------------------------------


def test_shortening_what_is_kept_asks_and_says_how_much_would_go(hocket: Hocket, topic: str):
    for _ in range(3):
        hocket("publish", topic, "x").text()
    shorter = ("topic", "alter", topic, "--memory-retention", "0s", "--disk-retention", "0s")
    fails(hocket(*shorter), 2, "up to 3 messages of 3", "older than 0s", "--yes")
    assert hocket("topic", "describe", topic, "--json").json()["config"]["disk_retention_us"]
    assert hocket("topic", "alter", topic, "--disk-retention", "1d").text() == ""  # none is older
    assert hocket(*shorter, "--yes").text() == ""
    assert hocket("topic", "describe", topic, "--json").json()["config"]["disk_retention_us"] == 0


def test_less_room_for_messages_asks_too(hocket: Hocket, topic: str):
    hocket("publish", topic, "x" * 5000).text()
    hocket("topic", "alter", topic, "--memory-retention", "0s").text()  # so that it is in a file

    def is_on_disk() -> bool:
        described = hocket("topic", "describe", topic, "--json").json()
        return described["partitions"][0]["disk_bytes"] > 5000

    until(is_on_disk)
    fails(hocket("topic", "alter", topic, "--disk-bytes", "1000"), 2, "about", "KiB", "--yes")
    assert hocket("topic", "alter", topic, "--disk-bytes", "1GB").text() == ""


def test_what_contradicts_itself_is_refused(hocket: Hocket, topic: str):
    contradiction = ("--memory-retention", "1h", "--disk-retention", "5m")
    fails(hocket("topic", "create", "odd", *contradiction), 2, "on disk for 5m", "memory for 1h")
    fails(hocket("topic", "alter", topic, *contradiction, "--yes"), 2, "memory for 1h")
    assert hocket("topic", "create", "short", "--disk-retention", "5m").text() == ""
    fails(hocket("topic", "alter", "short", "--memory-retention", "10m"), 2, "memory for 10m")


def test_what_an_index_lost_is_shown(hocket: Hocket):
    options = ("--memory-retention", "0s", "--disk-bytes", "3000", "--segment-bytes", "1KiB")
    hocket("topic", "create", "rolling", *options).text()
    hocket("publish", "rolling", "first").text()
    hocket("consume", "rolling", "--index", "slow").text()
    for _ in range(20):
        hocket("publish", "rolling", "x" * 500).text()

    def start() -> int:
        partition = hocket("topic", "describe", "rolling", "--json").json()["partitions"][0]
        return int(partition["start"]) if partition["disk_bytes"] <= 3000 else 0

    until(lambda: start() > 5)
    lost = start() - 1
    described = hocket("topic", "describe", "rolling")
    assert f"index slow: {lost} messages were removed before they were consumed" in described.text()
    assert hocket("topic", "describe", "rolling", "--json").json()["lost"] == {"slow": lost}
    for command in (("index", "list", "rolling"), ("index", "lag", "rolling", "slow")):
        shown = hocket(*command)
        assert f"hocket: index 'slow': {lost} messages were removed" in shown.stderr
        assert "LOST" in shown.stdout.decode()
        (row,) = hocket(*command, "--json").json()
        assert (row["lost"], row["partitions"][0]["lost"]) == (lost, lost)
    consumed = hocket("consume", "rolling", "--index", "slow")
    assert f"hocket: {lost} messages were removed, by retention say" in consumed.stderr
    (row,) = hocket("index", "list", "rolling", "--json").json()
    assert (row["lag"], row["lost"]) == (0, lost)
