"""`hocket consume --mode shared`: the work is shared, and only what was written is acknowledged."""

from __future__ import annotations

import signal

import pytest

from tests.support.cli import Hocket, but_for_new_indexes, fails, json_lines
from tests.support.threads import PATIENCE, until

SHARED = ("--index", "workers", "--mode", "shared")


def produce(hocket: Hocket, topic: str, count: int) -> None:
    hocket.run("produce", topic, stdin=b"".join(b"%d\n" % n for n in range(count)))


def lag(hocket: Hocket, topic: str) -> int:
    (found,) = hocket("index", "lag", topic, "workers", "--json").json()
    return int(found["lag"])


def test_it_prints_what_is_there_acknowledges_it_and_ends(hocket: Hocket, topic_of_four: str):
    produce(hocket, topic_of_four, 1000)
    lines = hocket("consume", topic_of_four, *SHARED).text().split()
    assert sorted(map(int, lines)) == list(range(1000))
    assert lag(hocket, topic_of_four) == 0
    assert hocket("consume", topic_of_four, *SHARED).text() == ""


def test_max_takes_no_more_than_it_prints(hocket: Hocket, topic: str):
    produce(hocket, topic, 100)
    assert hocket("consume", topic, *SHARED, "--max", "10").text().split() == [
        str(n) for n in range(10)
    ]
    assert lag(hocket, topic) == 90
    rest = json_lines(hocket("consume", topic, *SHARED, "--json").stdout)
    assert [int(each["value"]) for each in rest] == list(range(10, 100))


def test_json_tells_how_often_it_was_delivered(hocket: Hocket, topic: str):
    produce(hocket, topic, 1)
    (line,) = json_lines(hocket("consume", topic, *SHARED, "--json").stdout)
    assert (line["value"], line["delivery_count"]) == ("0", 1)


def test_key_order_and_settings_are_passed_on(hocket: Hocket, topic: str):
    produce(hocket, topic, 3)
    args = ("--index", "k", "--mode", "key_shared", "--lease", "5m", "--max-deliveries", "9")
    assert hocket("consume", topic, *args, "--prefetch", "1").text() == "0\n1\n2\n"
    (index,) = hocket("index", "list", topic, "--json").json()
    assert index["mode"] == "key_shared"


def test_some_partitions(hocket: Hocket, topic_of_four: str):
    for partition in range(4):
        hocket("publish", topic_of_four, f"p{partition}", "--partition", f"{partition}").text()
    args = (*SHARED, "--partition", "1", "--partition", "3")
    assert sorted(hocket("consume", topic_of_four, *args).text().split()) == ["p1", "p3"]


def test_an_own_index_cannot_be_shared(hocket: Hocket, topic: str):
    produce(hocket, topic, 1)
    hocket("consume", topic, "--index", "workers").text()
    fails(hocket("consume", topic, *SHARED), 1, "workers", "own")


def test_two_consumers_print_each_message_once(hocket: Hocket, topic: str):
    args = ("consume", topic, *SHARED, "--follow", "--prefetch", "2")
    with hocket.process(*args) as first, hocket.process(*args) as second:
        until(lambda: "workers" in hocket("index", "list", topic).text())
        produce(hocket, topic, 400)
        until(lambda: lag(hocket, topic) == 0)
        lines = []
        for process in (first, second):
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=PATIENCE)
            assert process.returncode == 130
            assert but_for_new_indexes(stderr.decode()) == "hocket: interrupted\n"
            lines += stdout.split()
    assert sorted(map(int, lines)) == list(range(400))


@pytest.mark.parametrize("count", [1, 600])
def test_a_reader_that_leaves_gives_the_rest_to_others(hocket: Hocket, topic: str, count: int):
    data = b"".join(b"%099d\n" % n for n in range(20_000))  # far more than a pipe holds
    hocket.run("produce", topic, stdin=data)
    with hocket.process("consume", topic, *SHARED) as process:
        assert process.stdout is not None
        for n in range(count):
            assert process.stdout.readline() == b"%099d\n" % n
        process.stdout.close()
        assert process.wait(PATIENCE) == 0
    left = lag(hocket, topic)
    assert 20_000 - left >= count
    rest = hocket("consume", topic, *SHARED).stdout
    assert rest == data[(20_000 - left) * 100 :]
