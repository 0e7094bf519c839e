"""The audit log of all nodes, read at any of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hocket import frames
from hocket.adapters.disk import DirectoryDisk
from hocket.cluster_model import AuditRecord
from hocket.core.placement.auditing import AuditHolds
from hocket.core.placement.descriptions import PartitionsAre
from hocket.node.identity import audit, trail as trails
from hocket.node.identity.trail import OLD, PATH, Trail
from hocket.sim.disk import SimDisk
from tests.support.node.cluster import SECOND, Asking, Nodes


class Clock:
    def __init__(self, now_us: int = 1_000) -> None:
        self.us = now_us

    def now_us(self) -> int:
        return self.us


def texts(trail: Trail, since_us: int = 0) -> list[str]:
    return [each.text for each in trail.since(since_us).records]


def test_records_outlive_the_node_and_a_torn_line_is_passed_over():
    disk, clock = SimDisk(), Clock()
    trail = Trail("n", disk, clock)
    trail.add("one")
    trail.add("two")  # at the same time, by the clock
    times = [each.time_us for each in trail.since(0).records]
    assert times == [1_000, 1_001]
    assert texts(trail, 1_001) == ["two"]
    file = disk.open(PATH)
    file.write([b'[5, "torn'], file.size())
    file.close()
    again = Trail("n", disk, Clock(10))
    assert texts(again) == ["one", "two"]
    again.add("three")  # the clock was put back
    assert again.since(0).records[-1].time_us == 1_002
    assert texts(Trail("n", disk, clock)) == ["one", "two", "three"]


def test_a_new_file_begins_at_its_beginning_though_the_old_one_was_not_followed_yet():
    disk = SimDisk()
    Trail("n", disk, Clock()).add("one")
    disk.rename(PATH, OLD)  # the node was killed right behind this
    Trail("n", disk, Clock()).add("two")
    assert disk.open(PATH).read(1, 0) == b"["
    assert texts(Trail("n", disk, Clock())) == ["one", "two"]


def test_two_files_take_turns(monkeypatch):
    monkeypatch.setattr(trails, "FILE_BYTES", 100)
    disk = SimDisk()
    trail = Trail("n", disk, Clock())
    for number in range(20):
        trail.add(f"record {number}")
    assert disk.exists(OLD)
    kept = texts(Trail("n", disk, Clock()))
    assert kept == [f"record {number}" for number in range(20 - len(kept), 20)]
    assert 3 <= len(kept) < 12


def test_a_disk_that_takes_nothing_is_said_once(monkeypatch, caplog):
    disk = SimDisk()
    trail = Trail("n", disk, Clock())
    monkeypatch.setattr(trail, "_write", _refuse)
    trail.add("one")
    trail.add("two")
    assert texts(trail) == ["one", "two"]
    assert caplog.text.count("cannot be kept on disk") == 1


def _refuse(_line: bytes) -> None:
    raise OSError(28, "No space left on device")


def test_a_real_file_holds_lines_of_json(tmp_path):
    trail = Trail("n", DirectoryDisk(tmp_path), Clock())
    trail.add("denied: naïve")
    assert json.loads((tmp_path / PATH).read_text()) == [1_000, "denied: naïve"]


def test_what_is_noted_on_a_thread_goes_to_the_trail_of_that_thread():
    outer: list[str] = []
    inner: list[str] = []
    with audit.kept_by(outer.append):
        audit.node_refused("here", "one")
        with audit.kept_by(inner.append):
            audit.node_refused("there", "two")
        audit.node_refused("here", "three")
    audit.node_refused("nowhere", "four")
    assert outer == ["denied: node at here: one", "denied: node at here: three"]
    assert inner == ["denied: node at there: two"]


# --- over the cluster ----------------------------------------------------------------------------


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def note(nodes: Nodes, number: int, *noted: str) -> None:
    for text in noted:
        nodes.machines[number].node.node.trail.add(text)  # type: ignore[union-attr]
        nodes.run(10)


def read(nodes: Nodes, number: int, since_us: int = 0) -> frames.AuditIs:
    answer = Asking(nodes, number).ask(frames.ReadAudit, since_us=since_us)
    assert isinstance(answer, frames.AuditIs)
    return answer


def test_any_node_tells_what_all_have_written_in_the_order_of_time(nodes):
    note(nodes, 1, "a")
    note(nodes, 2, "b")
    note(nodes, 0, "c")
    for number in range(3):
        found = read(nodes, number)
        assert [(each.node, each.text) for each in found.records] == [
            ("n1", "a"), ("n2", "b"), ("n0", "c"),
        ]  # fmt: skip
        assert (found.silent, found.next_us) == ((), 0)
    later = read(nodes, 1, found.records[1].time_us)
    assert [each.text for each in later.records] == ["b", "c"]


def test_a_node_that_is_down_is_named_within_a_second(nodes):
    note(nodes, 1, "a")
    note(nodes, 2, "b")
    nodes.crash(2)
    before = nodes.now_us
    found = read(nodes, 0)
    assert nodes.now_us - before < 2 * SECOND
    assert [each.text for each in found.records] == ["a"]
    assert found.silent == ("n2",)


def test_what_many_have_written_comes_in_pages(nodes):
    for number in range(3):
        note(nodes, number, *(f"{number}/{at}" for at in range(400)))
    found: list[str] = []
    since = 0
    pages = 0
    while True:
        page = read(nodes, 1, since)
        found += (each.text for each in page.records)
        pages += 1
        if not page.next_us:
            break
        since = page.next_us
    assert pages > 1
    assert found == [f"{number}/{at}" for number in range(3) for at in range(400)]


def test_only_admins_read_it(nodes):
    admin = Asking(nodes, 1)
    token = admin.token(frames.CreateUser, name="ann", roles=("admin",))
    admin.done(frames.CreateRole, name="reader")
    other = admin.token(frames.CreateUser, name="bob", roles=("reader",))
    nodes.settle()
    assert isinstance(Asking(nodes, 2, token).ask(frames.ReadAudit), frames.AuditIs)
    assert Asking(nodes, 2, other).refused(frames.ReadAudit).code == "notAllowed"


def test_answers_to_an_earlier_life_are_not_taken_for_answers_to_this_one():
    """They may be written late, and each life counts its questions from the start."""
    nodes = Nodes()
    nodes.put_on(2)
    Asking(nodes, 0).create("t")
    nodes.settle()
    asker, holder = (nodes.machines[number].node for number in (1, 2))
    assert asker is not None
    assert holder is not None
    me, other = asker.ring.core.me, holder.ring.core.me
    group = asker.node._wiring.catalogue.topics["t"].groups[0]
    (true,) = holder.node.described([group])
    nodes.crash(2)
    client = Asking(nodes, 1)
    described = client.begin(frames.DescribeTopic, topic="t")
    audited = client.begin(frames.ReadAudit)
    nodes.until(lambda: bool(asker.descriptions._inquiries), 5, "it is asked")
    lies = [
        PartitionsAre(number, (replace(true, end=99),)) for number in asker.descriptions._inquiries
    ] + [
        AuditHolds(number, (AuditRecord("n2", 1, "of old"),), False)
        for number in asker.auditing._questions
    ]
    assert len(lies) == 2
    old_life = me.incarnation + 1  # any but this one; 0 is none
    for lie in lies:
        nodes.machines[1].turn(lambda lie=lie: asker.heard(other, old_life, lie))
    topics, trail = client.answer_to(described), client.answer_to(audited)
    assert isinstance(topics, frames.Topics)
    assert isinstance(trail, frames.AuditIs)
    assert not topics.topics[0].partitions[0].known
    assert trail.silent == ("n2",)
    assert all(record.text != "of old" for record in trail.records)
