"""`hocket produce`: a message per line, and an account of what was sent."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from hocket.cli.progress import Progress
from hocket.model import partition_of
from tests.support.cli import Hocket, fails, json_lines, unread
from tests.support.threads import PATIENCE, noise, until

LINES = b"one\n\nthree\n\xff\x00\r\nlast without end"
VALUES = [b"one", b"", b"three", b"\xff\x00\r", b"last without end"]


def stored(hocket: Hocket, topic: str) -> int:
    described = hocket("topic", "describe", topic, "--json").json()
    return sum(each["end"] for each in described["partitions"])


def interrupt(process: subprocess.Popen[bytes], number: int) -> tuple[int, str]:
    process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE)
    return process.returncode, stderr.decode()


def in_file(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "input"
    path.write_bytes(data)
    return str(path)


def test_every_line_of_stdin_is_a_message(hocket: Hocket, topic: str):
    outcome = hocket.run("produce", topic, stdin=LINES)
    assert (outcome.code, outcome.stdout) == (0, b"")
    assert outcome.stderr.startswith(f"hocket: produced 5 messages (31 B) to {topic} in ")
    assert outcome.stderr.count("\n") == 1  # no bar where there is no terminal
    assert hocket("consume", topic).stdout == b"".join(value + b"\n" for value in VALUES)


def test_every_line_of_a_file_is_a_message(hocket: Hocket, topic: str, tmp_path: Path):
    outcome = hocket("produce", topic, "--file", in_file(tmp_path, LINES))
    assert outcome.code == 0
    assert "produced 5 messages" in outcome.stderr
    assert hocket("consume", topic).stdout == b"".join(value + b"\n" for value in VALUES)


def test_no_input_is_no_message(hocket: Hocket, topic: str, tmp_path: Path):
    outcome = hocket("produce", topic, "--file", in_file(tmp_path, b""))
    assert outcome.code == 0
    assert "produced 0 messages (0 B)" in outcome.stderr
    assert stored(hocket, topic) == 0


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_many_lines_in_order(hocket: Hocket, topic: str, tmp_path: Path, codec: str):
    data = b"".join(b"%d %s\n" % (count, b"x" * (count % 80)) for count in range(50_000))
    path = in_file(tmp_path, data)
    outcome = hocket("produce", topic, "--file", path, "--codec", codec, "--linger", "0")
    assert "produced 50,000 messages" in outcome.stderr
    assert hocket("consume", topic).stdout == data


def test_lines_with_keys(hocket: Hocket, topic_of_four: str, tmp_path: Path):
    lines = [b"%d=v%d=" % (count % 10, count) for count in range(100)]
    path = in_file(tmp_path, b"\n".join(lines))
    assert hocket("produce", topic_of_four, "--file", path, "--key-separator", "=").code == 0
    messages = json_lines(hocket("consume", topic_of_four, "--json").stdout)
    assert len(messages) == 100
    for key in map(str, range(10)):
        own = [message for message in messages if message["key"] == key]
        assert [message["value"] for message in own] == [f"v{n}=" for n in range(int(key), 100, 10)]
        assert {message["partition"] for message in own} == {partition_of(key.encode(), 4)}


def test_a_delimiter_of_ones_own(hocket: Hocket, topic: str, tmp_path: Path):
    path = in_file(tmp_path, b"a\nb\0c\0")
    assert hocket("produce", topic, "--file", path, "--delimiter", "\\0").code == 0
    values = [message["value"] for message in json_lines(hocket("consume", topic, "--json").stdout)]
    assert values == ["a\nb", "c"]


# --- what goes wrong -----------------------------------------------------------------------------


def test_a_line_without_a_key_ends_it_and_what_came_before_is_sent(
    hocket: Hocket, topic: str, tmp_path: Path
):
    path = in_file(tmp_path, b"a:1\nb:2\noops\nc:3\n")
    outcome = hocket("produce", topic, "--file", path, "--key-separator", ":")
    fails(outcome, 1, "line 3", "b':'", "The 2 before it are sent")
    assert hocket("consume", topic).stdout == b"1\n2\n"


def test_a_line_that_is_too_large_ends_it_and_what_came_before_is_sent(
    hocket: Hocket, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("hocket.cli.commands.produce.MESSAGE_BYTES_MAX", 1 << 20)
    for ending in (b"", b"\nlater\n"):
        path = in_file(tmp_path, b"small\n" + b"x" * (3 << 20) + ending)
        fails(hocket("produce", topic, "--file", path), 1, "line 2", "1.0 MiB", "--delimiter")
    assert hocket("consume", topic).stdout == b"small\nsmall\n"


def test_an_unknown_topic_is_told_before_anything_is_read(hocket: Hocket):
    with hocket.process("produce", "nowhere") as process:
        assert process.wait(PATIENCE) == 3  # its stdin is still open
        assert b"nowhere" in process.stderr.read()  # type: ignore[union-attr]


def test_a_topic_that_is_deleted_meanwhile_ends_it_with_an_account(hocket: Hocket, topic: str):
    with hocket.process("produce", topic) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        until(lambda: stored(hocket, topic) == 2)
        hocket("topic", "delete", topic, "--yes").text()
        _, stderr = process.communicate(b"three\n", timeout=PATIENCE)
    assert process.returncode == 3
    assert topic.encode() in stderr
    assert b"at least 2 are stored" in stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_read_before_an_interrupt_is_sent(
    hocket: Hocket, topic: str, number: int, code: int
):
    with hocket.process("produce", topic, "--linger", "1h") as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\nhalf a li")
        process.stdin.flush()
        # With such a linger nothing is stored yet; that the lines were read shows in its pipe.
        until(lambda: unread(process.stdin) == 0)
        ended, stderr = interrupt(process, number)
    assert ended == code
    assert stderr == "hocket: interrupted; all that was read, 3 messages, is sent\n"
    assert hocket("consume", topic).stdout == b"one\ntwo\nhalf a li\n"


def test_lines_are_sent_as_they_come(hocket: Hocket, topic: str):
    with hocket.process("produce", topic) as process:
        assert process.stdin is not None
        for count in (1, 2, 3):
            process.stdin.write(b"a line\n")
            process.stdin.flush()
            until(lambda count=count: stored(hocket, topic) == count)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0


# --- progress ------------------------------------------------------------------------------------


def test_lines_are_delayed(hocket: Hocket, topic: str, tmp_path: Path):
    lines_of = ["--file", in_file(tmp_path, LINES)]
    refused = hocket("produce", topic, "--delay", "5m", *lines_of)
    assert (refused.code != 0, "takes no delayed messages" in refused.stderr) == (True, True)
    hocket("topic", "alter", topic, "--delayed")
    assert hocket("topic", "describe", topic, "--json").json()["config"]["delayed"] is True
    hocket("produce", topic, "--delay", "1h", *lines_of)
    due = ["--file", in_file(tmp_path, b"due\n")]
    hocket("produce", topic, "--deliver-at", "2020-01-01T00:00:00Z", *due)
    until(lambda: stored(hocket, topic) == 1, what="what is due is there")
    assert hocket("consume", topic).stdout == b"due\n"
    lines = hocket("topic", "describe", topic).text().splitlines()
    assert "delayed      yes" in lines
    at = next(at for at, line in enumerate(lines) if line.startswith("PARTITION"))
    assert lines[at].split()[:4] == ["PARTITION", "START", "END", "WAITING"]
    assert lines[at + 1].split()[:4] == ["0", "0", "1", "5"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--delay", "soon"], "must look like"),
        (["--deliver-at", "tomorrow"], "no time in ISO format"),
        (["--deliver-at", "2030-01-01T00:00:00"], "time zone"),
        (["--delay", "5m", "--deliver-at", "2030-01-01T00:00:00Z"], "not both"),
    ],
)
def test_a_delay_that_makes_no_sense_is_told_before_anything_is_read(
    hocket: Hocket, topic: str, options: list[str], words: str, tmp_path: Path
):
    outcome = hocket("produce", topic, *options, "--file", in_file(tmp_path, LINES))
    assert (outcome.code != 0, words in outcome.stderr) == (True, True), outcome.stderr
    assert stored(hocket, topic) == 0


def test_a_bar_shows_bytes_messages_and_rate(hocket: Hocket, topic: str, tmp_path: Path):
    path = in_file(tmp_path, noise(3 << 20).replace(b"\n", b"x") + b"\n")
    outcome = hocket("produce", topic, "--file", path, "--progress")
    bar, summary = outcome.stderr.rstrip("\n").rsplit("\n", 1)
    assert summary.startswith("hocket: produced 1 message (3.0 MiB)")
    assert "100%" in bar
    assert "| 1 message (3.0 MiB): " in bar
    assert "B/s" in bar


def test_the_bar_is_told_what_the_broker_has_acknowledged(
    hocket: Hocket, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    told: list[int] = []

    class Recording(Progress):
        def add_stored(self, count: int) -> None:
            told.append(count)
            super().add_stored(count)

    monkeypatch.setattr("hocket.cli.commands.produce.Progress", Recording)
    path = in_file(tmp_path, b"a line\n" * 1000)
    outcome = hocket("produce", topic, "--file", path, "--progress")
    assert sum(told) == 1000
    bar, said, _ = outcome.stderr.rpartition("hocket: produced ")
    assert said
    assert "100%|" in bar
    assert bar.rstrip().rpartition("| ")[2].startswith("1,000 messages (6.8 KiB): ")


def test_the_summary_counts(monkeypatch: pytest.MonkeyPatch):
    clock = iter([100.0, 102.0])
    monkeypatch.setattr("hocket.cli.progress.time.monotonic", lambda: next(clock))
    progress = Progress(shown=False, total_bytes=None)
    for messages in (1000, 500):
        progress.add_messages(messages)
        progress.add_bytes(2048)
    assert progress.summary("orders") == (
        "produced 1,500 messages (4.0 KiB) to orders in 2.0 s: 750 messages/s, 2.0 KiB/s"
    )
