"""Plays the traces of a partition, and tests the reader of all traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.core import traces
from tests.support.core.partition_script import Stage
from tests.support.core.traces import MalformedTrace, Step, read, written

FOLDER = Path(__file__).parents[1] / "traces" / "partition"
SITUATIONS = sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_trace(situation):
    traces.play(FOLDER / f"{situation}.txt", Stage().carry_out)


def test_the_traces_were_found():
    assert {"produce_and_ack", "crash_and_replay", "slow_consumer_without_credit"} <= set(
        SITUATIONS
    )


# --- the reader ----------------------------------------------------------------------------------

TEXT = """\
# Why this comes first,
# in two lines.
double 2
----
4
and no more

double 3
----
6
"""


def double(line: str) -> list[str]:
    _, number = line.split()
    return [str(2 * int(number)), *(["and no more"] if number == "2" else [])]


@pytest.fixture
def trace(tmp_path, monkeypatch):
    monkeypatch.delenv("HOCKET_REWRITE", raising=False)
    path = tmp_path / "doubling.txt"
    path.write_text(TEXT)
    return path


def test_what_is_read_is_what_was_written():
    assert read(TEXT) == [
        Step("# Why this comes first,\n# in two lines.", "double 2", "4\nand no more"),
        Step("", "double 3", "6"),
    ]
    assert written(read(TEXT)) == TEXT


def test_a_trace_that_is_true_is_played_to_its_end(trace):
    played = []
    traces.play(trace, lambda line: played.append(line) or double(line))
    assert played == ["double 2", "double 3"]


def test_a_trace_that_is_not_true_fails_with_file_and_command(trace):
    trace.write_text(TEXT.replace("6", "7"))
    with pytest.raises(AssertionError, match=r"in doubling.txt, at: double 3"):
        traces.play(trace, double)


def test_a_command_that_breaks_is_named(trace):
    trace.write_text("double x\n----\n")
    with pytest.raises(ValueError) as caught:
        traces.play(trace, double)
    assert caught.value.__notes__ == ["in doubling.txt, at: double x"]


def test_a_trace_is_written_anew_on_demand(trace, monkeypatch):
    trace.write_text("# as it should be\ndouble 2\n\ndouble 3\n----\n7\n")
    monkeypatch.setenv("HOCKET_REWRITE", "1")
    traces.play(trace, double)
    assert trace.read_text() == "# as it should be\n" + TEXT.split("\n", 2)[2]


def test_what_brings_nothing_about_says_so(trace, monkeypatch):
    trace.write_text("nothing\n")
    monkeypatch.setenv("HOCKET_REWRITE", "1")
    traces.play(trace, lambda _line: [])
    assert trace.read_text() == "nothing\n----\n(nothing)\n"


@pytest.mark.parametrize(
    "text",
    ["# only words", "----\n4\n", "double 2\n4\n", "double 2\n----\n4\n----\n5\n", ""],
)
def test_a_malformed_trace_is_refused(text):
    with pytest.raises(MalformedTrace):
        read(text + "\n\ndouble 3\n----\n6\n")
