"""`hocket consume`: a value per line, and an index that moves past what was written."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from hocket import connect
from tests.support.cli import HOCKET, Hocket, but_for_new_indexes, environment, fails, json_lines
from tests.support.threads import PATIENCE, until


def publish(hocket: Hocket, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        hocket("publish", topic, value, "--partition", f"{partition}").text()


def position(hocket: Hocket, topic: str, index: str) -> Any:
    (found,) = hocket("index", "lag", topic, index, "--json").json()
    return found["partitions"][0]["position"]


def test_it_prints_what_is_there_and_ends(hocket: Hocket, topic: str):
    assert hocket("consume", topic).text() == ""
    publish(hocket, topic, "one", "", "three")
    assert hocket("consume", topic).text() == "one\n\nthree\n"
    assert hocket("consume", topic).text() == "one\n\nthree\n"  # without an index, again


@pytest.mark.parametrize(
    ("start", "values"),
    [
        ("earliest", "a\nb\nc\n"),
        ("latest", ""),
        ("1", "b\nc\n"),
        ("3", ""),
        ("2020-01-01T00:00:00", "a\nb\nc\n"),
        ("2999-01-01", ""),
    ],
)
def test_it_begins_where_it_is_told(hocket: Hocket, topic: str, start: str, values: str):
    publish(hocket, topic, "a", "b", "c")
    assert hocket("consume", topic, "--start", start).text() == values


def test_long_ago_is_a_place_to_begin_and_to_end(hocket: Hocket, server: str, topic: str):
    now = time.time_ns() // 1000
    hour = 3_600_000_000
    with connect(server) as client, client.producer(topic) as producer:
        for hours in (30, 5, 1):
            producer.send(f"{hours}h ago".encode(), timestamp=now - hours * hour)
    everything = "30h ago\n5h ago\n1h ago\n"
    begin = {"40d": everything, "1d": "5h ago\n1h ago\n", "2h30m": "1h ago\n", "5m": ""}
    for start, values in begin.items():
        assert hocket("consume", topic, "--start", start).text() == values
    fails(hocket("consume", topic, "--start", "90000d"), 2, "100 years")
    for option in ("--start", "--to"):
        fails(hocket("consume", topic, option, str(1 << 63)), 2, f"'{option}'", "2**63 - 1")
    iso = datetime.fromtimestamp((now - 2 * hour) / 1e6, UTC).isoformat()
    end = {
        "1d": "30h ago\n", "2h30m": "30h ago\n5h ago\n", "latest": everything, "0": "",
        "2": "30h ago\n5h ago\n", "99": everything, iso: "30h ago\n5h ago\n",
        "2999-01-01": everything,
    }  # fmt: skip
    for to, values in end.items():
        assert hocket("consume", topic, "--to", to).text() == values, to
    assert hocket("consume", topic, "--start", "1d", "--to", "2h").text() == "5h ago\n"
    assert hocket("consume", topic, "--start", "2h", "--to", "1d").text() == ""


def test_an_index_goes_no_further_than_to(hocket: Hocket, topic: str):
    publish(hocket, topic, "a", "b", "c")
    assert hocket("consume", topic, "--index", "i", "--to", "2").text() == "a\nb\n"
    assert position(hocket, topic, "i") == 2
    assert hocket("consume", topic, "--index", "i", "--to", "2").text() == ""
    assert hocket("consume", topic, "--index", "i", "--to", "latest").text() == "c\n"


def test_an_offset_to_end_at_is_of_one_partition(hocket: Hocket, topic_of_four: str):
    publish(hocket, topic_of_four, "a", "b", "c", partition=1)
    fails(hocket("consume", topic_of_four, "--to", "2", "--index", "i"), 2, "--partition", "4")
    assert hocket("index", "list", topic_of_four, "--json").json() == []  # nothing was made
    fails(hocket("consume", "nowhere", "--to", "2"), 3, "nowhere")
    assert hocket("consume", topic_of_four, "--to", "2", "--partition", "1").text() == "a\nb\n"


@pytest.mark.parametrize("more", [(), ("--index", "i"), ("--index", "s", "--mode", "shared")])
def test_a_template_shows_keys_and_places(hocket: Hocket, topic_of_four: str, more: tuple[str]):
    hocket("publish", topic_of_four, "v", "--key", "k", "--header", "h=x", "--partition", "2")
    shown = hocket(
        "consume", topic_of_four, "--format", "{partition}/{offset} {key}={value} {headers}", *more
    )
    assert shown.text() == '2/0 k=v {"h": "x"}\n'


def test_indexes_of_topics_that_come_later_are_told_too(hocket: Hocket, topic: str):
    first, second = f"{topic}.a", f"{topic}.b"
    hocket("topic", "create", first).text()
    args = ("consume", f"{topic}.*", "--follow", "--index", "i", "--mode", "shared")
    with hocket.process(*args) as process:
        assert process.stderr is not None
        assert f"made the index 'i' of '{first}'" in process.stderr.readline().decode()
        hocket("topic", "create", second).text()
        assert f"made the index 'i' of '{second}'" in process.stderr.readline().decode()
        process.send_signal(signal.SIGTERM)
        assert process.stderr.read().decode() == "hocket: interrupted\n"  # each is told once


def test_max_ends_it_early(hocket: Hocket, topic: str):
    publish(hocket, topic, "a", "b", "c")
    assert hocket("consume", topic, "--max", "2").text() == "a\nb\n"
    assert hocket("consume", topic, "--max", "9").text() == "a\nb\nc\n"


def test_partitions_can_be_chosen(hocket: Hocket, topic_of_four: str):
    for partition in range(4):
        publish(hocket, topic_of_four, f"p{partition}", partition=partition)
    everything = hocket("consume", topic_of_four).text().split()
    assert sorted(everything) == ["p0", "p1", "p2", "p3"]
    some = hocket("consume", topic_of_four, "--partition", "1", "--partition", "3").text().split()
    assert sorted(some) == ["p1", "p3"]
    fails(hocket("consume", topic_of_four, "--partition", "9"), 3, "9")


def test_json_has_everything_and_bytes_that_are_no_text(hocket: Hocket, topic: str):
    hocket("publish", topic, "--header", "h=v", stdin=b"\xff\n").text()
    hocket("publish", topic, "text", "--key", "k").text()
    first, second = json_lines(hocket("consume", topic, "--json").stdout)
    assert first.keys() == {
        "topic", "partition", "offset", "timestamp", "key", "value", "headers",
    }  # fmt: skip
    assert (first["value"], first["key"], first["headers"]) == (
        {"base64": "/wo="},
        None,
        {"h": "v"},
    )
    assert (second["value"], second["key"], second["offset"]) == ("text", "k", 1)


# --- with an index -------------------------------------------------------------------------------


def test_an_index_goes_on_where_it_was(hocket: Hocket, topic: str):
    publish(hocket, topic, "a", "b", "c")
    assert hocket("consume", topic, "--index", "i", "--max", "1").text() == "a\n"
    assert hocket("consume", topic, "--index", "i", "--start", "earliest").text() == "b\nc\n"
    assert hocket("consume", topic, "--index", "i").text() == ""
    assert hocket("consume", topic, "--index", "other").text() == "a\nb\nc\n"


def test_a_batch_is_acknowledged_as_far_as_it_was_printed(hocket: Hocket, topic: str):
    hocket.run("produce", topic, stdin=b"".join(b"%d\n" % n for n in range(1000)))
    assert len(hocket("consume", topic, "--index", "i", "--max", "10").text().split()) == 10
    assert position(hocket, topic, "i") == 10
    assert hocket("consume", topic, "--index", "i", "--max", "1").text() == "10\n"


def test_without_acks_the_index_stays(hocket: Hocket, topic: str):
    publish(hocket, topic, "a", "b")
    assert hocket("consume", topic, "--index", "i", "--no-ack").text() == "a\nb\n"
    assert position(hocket, topic, "i") == 0


def test_a_reader_that_leaves_ends_it_quietly_and_only_what_was_written_is_acknowledged(
    hocket: Hocket, topic: str
):
    data = b"".join(b"%099d\n" % count for count in range(20_000))  # far more than a pipe holds
    hocket.run("produce", topic, stdin=data)
    with hocket.process("consume", topic, "--index", "i") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"%099d\n" % 0
        process.stdout.close()
        assert process.wait(PATIENCE) == 0
        assert but_for_new_indexes(process.stderr.read().decode()) == ""
    reached = position(hocket, topic, "i")
    assert 1 <= reached <= 10_000
    rest = hocket("consume", topic, "--index", "i").stdout
    assert rest == data[reached * 100 :]


def test_a_reader_that_leaves_moves_an_index_one_batch_at_most(hocket: Hocket, topic: str):
    publish(hocket, topic, *map(str, range(20)))  # a batch each; a pipe holds them all
    with hocket.process("consume", topic, "--index", "i") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.readline()  # the index is made
        until(lambda: position(hocket, topic, "i") >= 1)  # one is written, and nobody has read it
        process.stdout.close()
        assert process.wait(PATIENCE) == 0
    assert position(hocket, topic, "i") == 1


def test_an_index_that_is_made_is_said(hocket: Hocket, topic: str):
    publish(hocket, topic, "a")
    for more in ((), ("--no-ack",), ("--mode", "shared")):
        made = hocket("consume", topic, "--index", f"i{len(more)}", *more)
        assert "hocket: made the index" in made.stderr
        assert "hocket index delete" in made.stderr
    again = hocket("consume", topic, "--index", "i0")
    assert (again.code, again.stderr) == (0, "")
    fails(hocket("consume", topic, "--index", "typo", "--no-create"), 3, "typo", "i0")
    fails(hocket("consume", topic, "--index", "typo", "--no-create", "--mode", "shared"), 3, "typo")
    assert "typo" not in hocket("index", "list", topic).text()
    assert hocket("consume", topic, "--index", "i0", "--no-create").text() == ""


def test_tables_for_a_reader_that_leaves_end_quietly_too(hocket: Hocket, topic: str):
    script = '"$@" | true; echo "${PIPESTATUS[0]}"'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *HOCKET, "topic", "list"],
        capture_output=True,
        env=environment(HOCKET_SERVER=hocket.url),
        timeout=PATIENCE,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"0\n", b"")


# --- following -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_follow_waits_for_more_until_it_is_interrupted(
    hocket: Hocket, topic: str, number: int, code: int
):
    publish(hocket, topic, "before")
    with hocket.process("consume", topic, "--index", "i", "--follow") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"before\n"
        publish(hocket, topic, "after")
        assert process.stdout.readline() == b"after\n"
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stdout) == (code, b"")
    assert but_for_new_indexes(stderr.decode()) == "hocket: interrupted\n"
    assert position(hocket, topic, "i") == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_nobody_reads_acknowledges_exactly_what_was_written(
    hocket: Hocket, topic: str, number: int
):
    hocket.run("produce", topic, stdin=b"".join(b"%099d\n" % count for count in range(5_000)))
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as printed:
        with hocket.process("consume", topic, "--index", "i", stdout=writer) as process:
            until(lambda: not select.select([], [writer], [], 0)[1], what="the pipe is full")
            os.close(writer)
            process.send_signal(number)
            assert process.wait(PATIENCE) == 128 + number
        count = len(printed.read()) // 100
    assert count > 300
    assert position(hocket, topic, "i") == count


def test_follow_from_the_end_prints_only_what_is_new(hocket: Hocket, topic: str):
    publish(hocket, topic, "old")
    args = ("consume", topic, "--index", "i", "--start", "latest", "--follow", "--max", "1")
    with hocket.process(*args) as process:
        until(lambda: hocket("index", "list", topic, "--json").json())
        publish(hocket, topic, "new")
        stdout, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stdout) == (0, b"new\n")


def test_without_follow_it_ends_although_more_keeps_coming(hocket: Hocket, topic: str):
    publish(hocket, topic, "a")
    with hocket.process("produce", topic) as producer:
        assert producer.stdin is not None
        for _ in range(3):
            producer.stdin.write(b"more\n" * 1000)
            producer.stdin.flush()
            lines = hocket("consume", topic).text().splitlines()
            assert lines[0] == "a"
        producer.communicate(timeout=PATIENCE)


# --- what goes wrong -----------------------------------------------------------------------------


def test_an_unknown_topic(hocket: Hocket):
    fails(hocket("consume", "nowhere"), 3, "nowhere")
    fails(hocket("consume", "nowhere", "--follow"), 3, "nowhere")
    fails(hocket("consume", "nowhere", "--index", "i"), 3, "nowhere")


def test_a_topic_that_is_deleted_while_it_is_followed(hocket: Hocket, topic: str):
    publish(hocket, topic, "a")
    with hocket.process("consume", topic, "--follow") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"a\n"
        hocket("topic", "delete", topic, "--yes").text()
        _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert topic.encode() in stderr
    assert b"Traceback" not in stderr


def test_several_topics_and_patterns(hocket: Hocket, topic: str):
    names = [f"{topic}.{part}" for part in "abc"]
    for name in names:
        hocket("topic", "create", name).text()
        publish(hocket, name, f"1 {name}", f"2 {name}")
    hocket("topic", "create", f"{topic}.dlq").text()
    publish(hocket, f"{topic}.dlq", "a dead letter")
    everything = sorted(f"{number} {name}" for name in names for number in (1, 2))
    assert sorted(hocket("consume", f"{topic}.*").text().splitlines()) == everything
    assert sorted(hocket("consume", *names, "--index", "i").text().splitlines()) == everything
    assert hocket("consume", *names, "--index", "i").text() == ""
    shared = ("--index", "s", "--mode", "shared")
    assert sorted(hocket("consume", f"{topic}.*", *shared).text().splitlines()) == everything
    found = json_lines(hocket("consume", f"{topic}.*", "--max", "3", "--json").stdout)
    assert {each["topic"] for each in found} <= set(names)
    fails(hocket("consume", *names, "--partition", "0"), 2, "--partition is about one topic")
    fails(hocket("consume", names[0], f"{topic}.none"), 3, f"{topic}.none")


@pytest.mark.parametrize("mode", [(), ("--index", "i"), ("--index", "i", "--mode", "shared")])
def test_a_topic_of_a_pattern_that_is_deleted_meanwhile_is_left_out(
    hocket: Hocket, topic: str, mode: tuple[str, ...]
):
    names = [f"{topic}.{part}" for part in "ab"]
    for name in names:
        hocket("topic", "create", name).text()
        data = b"".join(b"%s %060d\n" % (name.encode(), count) for count in range(10_000))
        hocket.run("produce", name, stdin=data)
    with hocket.process("consume", f"{topic}.*", *mode) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        kept, deleted = sorted(names, key=lambda name: name.encode() not in first)
        hocket("topic", "delete", deleted, "--yes").text()
        lines = [first, *process.stdout]
        assert process.wait(PATIENCE) == 0
    found = [line for line in lines if line.startswith(kept.encode())]
    assert len(found) == 10_000


def test_a_pattern_that_nothing_matches_is_said(hocket: Hocket, topic: str):
    none = hocket("consume", f"{topic}.none.*", "--index", "i")
    assert (none.code, none.stdout) == (0, b"")
    assert f"there is no topic yet that matches '{topic}.none.*'" in none.stderr
    typo = ("consume", f"{topic}*", "--index", "typo", "--no-create")
    fails(hocket(*typo), 3, f"no topic that matches '{topic}*' has an index 'typo'")
    fails(hocket(*typo, "--mode", "shared"), 3, "has an index 'typo'")
