"""`hocket log ...` on the data directory of a broker that has stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

import hocket as package
from tests.support.cli import Hocket, Outcome, fails


def run(*args: str) -> Outcome:
    return Hocket("hocket://unused")("log", *args)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one topic, two partitions, three batches in the first of them."""
    with package.embedded(tmp_path / "data") as client:
        client.create_topic("t", partitions=2)
        for batch in range(3):
            for message in range(10):
                client.publish("t", b"%d-%d" % (batch, message), partition=0)
    return tmp_path / "data"


def damage(data: Path) -> None:
    """One byte of one message."""
    (segment,) = (path for path in data.glob("groups/*/*.log") if b"1-5" in path.read_bytes())
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"1-5", b"1-6", 1))


def test_all_is_well(data: Path):
    text = run("verify", str(data)).text()
    assert text.startswith("store ")
    assert "3 logs" in text  # the catalogue and two partitions
    assert text.endswith("\nno damage\n")
    report = run("verify", str(data), "--json").json()
    assert report["ok"] is True
    assert report["damage"] == []
    assert report.keys() >= {"ok", "store_id", "groups", "entries", "bytes", "damage", "remarks"}


def test_damage_is_found_named_and_accepted(data: Path):
    damage(data)
    outcome = run("verify", str(data))
    assert outcome.code == 1
    assert b"offsets 15 to 15" in outcome.stdout
    assert "accept-loss" in outcome.stderr
    found = run("verify", str(data), "--json")
    assert found.code == 1
    (one,) = found.json()["damage"]
    assert (one["start"], one["end"], one["accepted"]) == (15, 16, False)

    fails(run("accept-loss", str(data), f"{one['log']}"), 2, "--yes")
    accepted = run("accept-loss", str(data), f"{one['log']}", "--yes").text()
    assert accepted.startswith("accepted: offsets 15 to 15")
    assert "no damage" in run("accept-loss", str(data), f"{one['log']}", "--yes").text()
    again = run("verify", str(data))
    assert again.code == 0
    assert b"accepted" in again.stdout


def test_what_is_no_data_directory(tmp_path: Path):
    fails(run("verify", str(tmp_path)), 1, str(tmp_path))
    fails(run("verify", str(tmp_path / "none")), 2, "none")
    fails(run("accept-loss", str(tmp_path), "1", "--yes"), 1, str(tmp_path))


def test_a_directory_in_use(data: Path):
    with package.embedded(data):
        fails(run("verify", str(data)), 1, "data")
