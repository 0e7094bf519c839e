"""`hocket publish` against a broker."""

from __future__ import annotations

import pytest

from hocket.model import MESSAGE_BYTES_MAX, partition_of
from tests.support.cli import Hocket, fails, json_lines
from tests.support.threads import until


def test_it_prints_where_the_message_was_put(hocket: Hocket, topic: str):
    assert hocket("publish", topic, "one").text() == f"{topic}/0/0\n"
    assert hocket("publish", topic, "two").text() == f"{topic}/0/1\n"
    assert hocket("publish", topic, "three", "--json").json() == {
        "topic": topic,
        "partition": 0,
        "offset": 2,
    }


def test_key_headers_and_value_arrive(hocket: Hocket, topic_of_four: str):
    hocket(
        "publish", topic_of_four, "välue", "--key", "k1", "--header", "a=1", "--header", "b=x=y"
    ).text()
    (message,) = json_lines(hocket("consume", topic_of_four, "--json").stdout)
    timestamp = message.pop("timestamp")
    assert timestamp.endswith("Z")
    assert message == {
        "topic": topic_of_four,
        "partition": partition_of(b"k1", 4),
        "offset": 0,
        "key": "k1",
        "value": "välue",
        "headers": {"a": "1", "b": "x=y"},
    }


def test_a_partition_can_be_chosen(hocket: Hocket, topic_of_four: str):
    assert (
        hocket("publish", topic_of_four, "x", "--partition", "3")
        .text()
        .startswith(f"{topic_of_four}/3/")
    )
    fails(hocket("publish", topic_of_four, "x", "--partition", "4"), 3, "4")


@pytest.mark.parametrize("dash", [[], ["-"]])
@pytest.mark.parametrize("data", [b"", b"two\nlines\n", bytes(range(256))])
def test_stdin_is_one_message(hocket: Hocket, topic: str, dash: list[str], data: bytes):
    hocket("publish", topic, *dash, stdin=data).text()
    assert hocket("consume", topic).stdout == data + b"\n"


def test_an_empty_value_is_a_message(hocket: Hocket, topic: str):
    hocket("publish", topic, "", stdin=b"not this").text()
    assert hocket("consume", topic).stdout == b"\n"


def test_bytes_of_the_command_line_arrive_as_they_are(hocket: Hocket, topic: str):
    hocket.run("publish", topic, b"\xff\xfe").text()  # type: ignore[arg-type]
    assert hocket("consume", topic).stdout == b"\xff\xfe\n"


def test_it_may_be_delayed(hocket: Hocket, topic: str):
    fails(hocket("publish", topic, "x", "--delay", "1h"), 1, "takes no delayed messages")
    hocket("topic", "alter", topic, "--delayed")
    assert hocket("publish", topic, "later", "--delay", "3600").text() == f"{topic}/0/-1\n"
    past = ["--deliver-at", "2020-01-01T00:00:00Z"]
    assert hocket("publish", topic, "now", *past, "--json").json()["offset"] == -1
    until(lambda: hocket("consume", topic).text() == "now\n", what="what is due is there")
    described = hocket("topic", "describe", topic, "--json").json()
    assert described["partitions"][0]["waiting"] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--delay", "soon"], ["--delay", "must look like"]),
        (["--delay", "-5m"], ["--delay", "must look like"]),
        (["--delay", "400d"], ["366d at most"]),
        (["--deliver-at", "tomorrow"], ["--deliver-at", "no time in ISO format"]),
        (["--deliver-at", "2030-01-01T00:00:00"], ["--deliver-at", "time zone", "Z for UTC"]),
        (["--delay", "5m", "--deliver-at", "2030-01-01T00:00:00Z"], ["not both"]),
    ],
)
def test_a_delay_that_makes_no_sense_is_a_usage_error(options: list[str], words: list[str]):
    nowhere = Hocket("hocket://127.0.0.1:1")  # nobody is asked
    for command in (["publish", "t", "x"], ["produce", "t", "--file", __file__]):
        fails(nowhere(*command, *options), 2, *words)


def test_an_unknown_topic(hocket: Hocket):
    fails(hocket("publish", "nowhere", "x"), 3, "nowhere")


def test_a_message_that_is_too_large_is_refused_and_nothing_is_stored(hocket: Hocket, topic: str):
    outcome = hocket("publish", topic, stdin=bytes(MESSAGE_BYTES_MAX + 1))
    fails(outcome, 1, f"{MESSAGE_BYTES_MAX}")
    assert hocket("consume", topic).stdout == b""
