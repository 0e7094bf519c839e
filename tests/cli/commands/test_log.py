"""`hocket log ...` on the data directory of a broker that has stopped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from time import monotonic, sleep

import pytest

import hocket as package
from hocket.errors import CorruptData
from hocket.log.directory import salt_of
from hocket.log.wal_scan import envelopes
from tests.support.cli import Hocket, Outcome, fails
from tests.support.threads import PATIENCE


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
    assert "4 logs" in text  # the metadata, the decisions, and two partitions
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


# --- the directory of a broker that was killed ---------------------------------------------------


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """As `kill -9` leaves it: one topic with a message in it, all in the write-ahead log."""
    with package.embedded(tmp_path / "alive") as client:
        client.create_topic("t")
        client.publish("t", b"a message", partition=0)
        deadline = monotonic() + PATIENCE
        while not is_marked(tmp_path / "alive"):
            assert monotonic() < deadline
            sleep(0.01)
        shutil.copytree(tmp_path / "alive", tmp_path / "killed")
    return tmp_path / "killed"


def is_marked(data: Path) -> bool:
    """The last envelope says that those before it are durable."""
    salt = salt_of(json.loads((data / "hocket.json").read_bytes())["store"])
    found = [
        each
        for path in sorted(data.glob("wal/*.wal"))
        for each in envelopes(path.read_bytes(), int(path.stem), salt)
    ]
    return not found[-1].header.content_bytes


def flip(data: Path, words: bytes) -> None:
    (path,) = (each for each in data.glob("wal/*.wal") if words in each.read_bytes())
    content = bytearray(path.read_bytes())
    content[content.index(words)] ^= 1
    path.write_bytes(content)


def test_a_lost_message_of_a_killed_broker(killed: Path):
    flip(killed, b"a message")
    with package.embedded(killed) as client:
        assert client.publish("t", b"more", partition=0).offset == 1
        assert "offsets 0 to 0" in client.describe("t").partitions[0].problem
        with pytest.raises(CorruptData, match="offsets 0 to 0"), client.subscribe("t") as messages:
            messages.receive(timeout=PATIENCE)
    assert run("verify", str(killed)).code == 1
    run("accept-loss", str(killed), "--all", "--yes").text()
    with package.embedded(killed) as client, client.subscribe("t") as messages:
        assert messages.receive(timeout=PATIENCE).value == b"more"
    assert run("verify", str(killed)).code == 0


def test_damaged_metadata_of_a_killed_broker(killed: Path):
    flip(killed, b'"create"')
    serve = Hocket("hocket://unused")
    command = f"hocket log accept-loss {killed} 0"
    fails(serve("serve", "--data", str(killed)), 1, "entry 1 of kind config", command)
    fails(run("accept-loss", str(killed)), 2, "--all")
    fails(run("accept-loss", str(killed), "0", "--all", "--yes"), 2, "--all")
    accepted = run("accept-loss", str(killed), "0", "--yes").text()
    assert "entry 1 of kind config" in accepted
    assert "no damage" in run("accept-loss", str(killed), "0", "--yes").text()
    assert "no log has damage" in run("accept-loss", str(killed), "--all", "--yes").text()
    with package.embedded(killed) as client:
        (topic,) = client.topics()
        with client.subscribe(topic) as messages:
            assert messages.receive(timeout=PATIENCE).value == b"a message"


def test_a_wal_that_was_cut(killed: Path):
    (wal,) = (path for path in killed.glob("wal/*.wal") if b"a message" in path.read_bytes())
    with wal.open("r+b") as file:
        file.truncate(1024)
    serve = Hocket("hocket://unused")
    fails(serve("serve", "--data", str(killed)), 1, "is cut short", "accept-loss")
    outcome = run("verify", str(killed))
    assert outcome.code == 1
    assert b"is cut short" in outcome.stdout
    accepted = run("accept-loss", str(killed), "--all", "--yes").text()
    assert "logs that nothing was found of" in accepted
    with package.embedded(killed) as client:
        for topic in client.topics():
            client.publish(topic, b"more")
