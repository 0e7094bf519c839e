"""The hash of a run, and its last lines in words."""

from __future__ import annotations

import hashlib

from hocket.sim.trace import HASHED_TOGETHER, TOLD_MAX, Trace

START_US = 5_000_000


def traced(*lines: tuple[int, str, str]) -> str:
    trace = Trace(START_US)
    for line in lines:
        trace.event(*line)
    return trace.hash()


def test_the_same_events_give_the_same_hash_and_others_another():
    lines = [(START_US + each, "n1", "n2 Ping 1") for each in range(HASHED_TOGETHER + 3)]
    assert traced(*lines) == traced(*lines)
    assert traced(*lines) != traced(*lines[:-1])
    for other in ((START_US, "n1", "n2 Ping 2"), (START_US, "n3", "n2 Ping 1"), (6, "n1", "")):
        assert traced(other, *lines[1:]) != traced(*lines)
    assert traced(lines[1], lines[0], *lines[2:]) != traced(*lines)


def test_looking_at_the_hash_changes_nothing():
    trace = Trace(START_US)
    trace.event(START_US, "n1", "a")
    first = trace.hash()
    assert trace.hash() == first
    trace.event(START_US, "n1", "b")
    assert trace.hash() == traced((START_US, "n1", "a"), (START_US, "n1", "b")) != first


def test_the_hash_is_over_one_line_an_event():
    """It is compared between machines, so what goes into it is said here once more."""
    assert (
        traced((1, "n1", "x"), (2, "n2", ""))
        == hashlib.blake2b(b"1 n1 x\n2 n2 \n", digest_size=16).hexdigest()
    )


def test_what_is_told_counts_with_its_values():
    one, other = Trace(START_US), Trace(START_US)
    one.tell(START_US, "n1", "stands still for {} ms", 3)
    other.tell(START_US, "n1", "stands still for {} ms", 4)
    assert one.hash() != other.hash()


def test_the_timeline_has_the_newest_lines_in_words():
    trace = Trace(START_US)
    for number in range(TOLD_MAX + 10):
        trace.tell(START_US + number * 1_000_000, "n1", "gives up {}/{}", f"n{number}", 1)
    lines = trace.timeline()
    assert len(lines) == TOLD_MAX
    assert lines[-1] == f"{TOLD_MAX + 9:10.6f}  n1    gives up n{TOLD_MAX + 9}/1"
    assert trace.timeline(2) == lines[-2:]
