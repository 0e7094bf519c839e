"""What errors say to people: numbers that one can read, and names by the rule that they broke."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hocket
from hocket import frames
from hocket.deadline import Deadline, check_seconds, in_digits, in_seconds
from hocket.errors import BadName, HocketError, OutOfRange, Timeout
from hocket.model import NAME_RULE, check_pattern, duration_us
from tests.support.client.sockets import ScriptedServer, usual

SOURCE = Path(hocket.__file__).parent
LONG = re.compile(r"\d\.\d{6}")  # a float that nobody wants to read
UNEVEN = 0.1 + 0.2  # 0.30000000000000004


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.0, "0 s"), (1e-9, "less than 1 ms"), (0.001, "0.001 s"), (0.05, "0.05 s"),
        (UNEVEN, "0.3 s"), (1, "1 s"), (1.5, "1.5 s"), (9.999873219000008, "10 s"), (30.0, "30 s"),
        (99.95, "100 s"), (100, "100 s"), (1234.5678, "1235 s"), (86400, "86400 s"),
        (float("inf"), "inf s"), (None, "any time"),
    ],
)  # fmt: skip
def test_a_length_of_time_has_three_digits(seconds, text):
    assert in_seconds(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(-UNEVEN, "-0.3"), (1, "1"), (float("nan"), "nan"), (1e300, "1e+300"), ("7x", "'7x'")],
)
def test_a_number_that_somebody_gave_is_shown_as_they_would_write_it(number, text):
    assert in_digits(number) == text


def test_a_very_long_number_is_cut():
    assert len(in_digits(10**400)) == 80


@pytest.mark.parametrize(
    "call",
    [
        lambda: check_seconds(-UNEVEN, "timeout"),
        lambda: duration_us(-UNEVEN),
        lambda: hocket.connect("a", timeout=-UNEVEN),
    ],
)
def test_a_number_out_of_range(call):
    with pytest.raises(OutOfRange, match=r"not -0\.3$"):
        call()


def test_a_missed_deadline():
    assert str(Deadline(UNEVEN).missed("a read")) == "a read: nothing within 0.3 s"


def test_what_a_client_waited_for_in_vain():
    def mute(frame, payload):
        return usual(frame, payload) if isinstance(frame, frames.Hello) else ()

    short = UNEVEN / 10  # 0.030000000000000006
    with ScriptedServer(mute) as server, hocket.connect(server.url) as client:
        for call in (
            lambda: client.topics(timeout=short),
            lambda: client.create_topic("t", timeout=short),
            lambda: client.publish("t", b"x", timeout=short),
            lambda: client.producer("t", timeout=short),
            lambda: client.subscribe("t", index="i", timeout=short),
        ):
            with pytest.raises(Timeout) as caught:
                call()
            assert re.search(r"\b0\.0\d{1,3} s\b", str(caught.value))  # or what was left of it
            assert not LONG.search(str(caught.value))


def test_no_text_has_seconds_that_did_not_go_through_the_helper():
    """`f"{timeout} s"` prints all 17 digits of a float, and `{timeout:g} s` a number like 1e+06."""
    pattern = re.compile(r"(?<!\$)\{[^{}\"]+\} s\b|%[grs] s\b")
    elsewhere = ("sim/", "demo/", "cli/commands/sim", "cli/output.py")  # of these, for reports
    found = [
        f"{name}:{number}: {line.strip()}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not (name := path.relative_to(SOURCE).as_posix()).startswith(elsewhere)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line) and name != "deadline.py"
    ]
    assert found == []


BAD_NAME = "Bücher"


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("a topic's name", lambda client: client.create_topic(BAD_NAME)),
        ("a topic's name", lambda client: client.publish(BAD_NAME, b"x")),
        ("a topic's name", lambda client: client.producer(BAD_NAME)),
        ("a topic's name", lambda client: client.subscribe(BAD_NAME)),
        ("an index's name", lambda client: client.subscribe("t", index=BAD_NAME)),
        ("an index's name", lambda client: client.delete_index("t", BAD_NAME)),
        ("a user's name", lambda client: client.create_user(BAD_NAME)),
        ("a role's name", lambda client: client.create_role(BAD_NAME)),
        ("a transaction's id", lambda client: client.transaction(BAD_NAME)),
    ],
)
def test_a_bad_name_is_told_the_rule(what, call):
    with ScriptedServer() as server, hocket.connect(server.url) as client:
        before = len(server.received)
        with pytest.raises(BadName) as caught:
            call(client)
        assert str(caught.value) == f"{what} must be {NAME_RULE}; got {BAD_NAME!r}"
        assert len(server.received) == before  # nothing was sent
    assert "ASCII letters, digits, . _ -" in NAME_RULE


def test_a_bad_pattern_is_told_the_rule():
    rule = r"\(ASCII letters, digits, \. _ -, and \* for any run of them\); got 'Bü\*'"
    with pytest.raises(HocketError, match=rule):
        check_pattern("Bü*")
