"""A slice of `make test-damage`: a broker on a damaged store starts whole, names, or refuses."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from hocket.log import checkpoint
from hocket.log.envelope import MAGIC
from hocket.log.wal_files import number_of
from hocket.model import EntryKind
from hocket.wire import codec as codecs
from hocket.wire.columns import FLAGS_VALID
from hocket.wire.layout import Field, Layout
from tests.support.damage.cases import Case
from tests.support.damage.judge import judged
from tests.support.damage.mutants import MUTANTS, Mutant
from tests.support.damage.places import Files, Place
from tests.support.damage.suite import Suite, explained

SLICE, PARTS = 96, 8  # some seconds
TRIED = 12  # cases to find a planted bug with


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite()


# --- the store, and the places in it -------------------------------------------------------------


def test_a_layout_says_where_its_fields_lie():
    layout = Layout("8sIQ", ("magic", "crc", "length"))
    assert layout.fields == (Field("magic", 0, 8), Field("crc", 8, 12), Field("length", 12, 20))
    assert layout.struct.size == 20


def test_every_byte_of_every_file_lies_in_one_place(suite: Suite):
    for name, store in suite.stores.items():
        for path, data in store.files.items():
            leaves = [each for each in suite.found[name].leaves if each.path == path]
            assert all(one.end == other.start for one, other in pairwise(leaves)), path
            assert (leaves[0].start, leaves[-1].end) == (0, len(data)), path


def test_no_two_cases_have_one_name(suite: Suite):
    for store in suite.found.values():
        names = [str(place) for place in (*store.leaves, *store.wholes)]
        assert len(names) == len(set(names))
    assert len(suite.cases) >= 3000


def test_the_store_has_entries_of_every_kind(suite: Suite):
    """Behind the checkpoint, and those of partitions in segments, too."""
    entries = suite.found["full"].entries
    alone = {"noop", "membership"}  # no broker that is alone writes these
    kinds = {kind.name.lower() for kind in EntryKind} - alone
    assert {e.kind for e in entries if e.is_needed and ".wal" in e.path} == kinds
    assert {e.kind for e in entries if ".log" in e.path} == {"batch", "cursor", "control", "stage"}
    for ending in (".wal", ".log"):
        batches = [e.header for e in entries if e.kind == "batch" and e.path.endswith(ending)]
        assert {(b.flags, b.codec) for b in batches} >= {
            (flags, codec)
            for flags in FLAGS_VALID
            for codec in codecs.NUMBERS
            if codec != codecs.NAMED  # which a package has to bring
        }


def test_the_store_has_files_of_every_kind(suite: Suite):
    files = suite.stores["full"].files
    sorts = {re.sub(r"\d+", "N", path) for path in files}
    expected = {"checkpoint", "hocket.json", "reserve", "damaged/N.wal", "wal/N.wal"}
    assert sorts >= expected | {"groups/N/N-N.log", "groups/N/N-N.index"}
    assert any("accepted.json" in store.files for store in suite.stores.values())
    last = checkpoint.decode(files[checkpoint.PATH])
    assert last.deleted
    assert any(record.damage for record in last.groups.values())
    assert len(last.groups) > 5
    needed = {e.path for e in suite.found["full"].entries if e.is_needed and ".wal" in e.path}
    assert len(needed) > 2
    assert any(_older_envelopes(path, data) for path, data in files.items())


def _older_envelopes(path: str, data: bytes) -> list[int]:
    """Numbers of files that this one was before it was used again."""
    number = number_of(path.rpartition("/")[2])
    found = [
        int.from_bytes(data[match.end() : match.end() + 8], "little")
        for match in re.finditer(re.escape(MAGIC), data)
    ]
    return [each for each in found if number is not None and each < number]


# --- brokers on damaged stores -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["full", "young", "busy", "forgiven"])
def test_a_store_without_damage_is_whole(suite: Suite, name: str):
    class Untouched(Case):
        def damaged(self, files: Files) -> dict[str, bytes]:
            return dict(files)

    nothing = Untouched(Place("checkpoint", "nothing", 0, 0), "flip")
    outcome = judged(nothing, suite.stores[name], suite.found[name])
    assert not outcome.failures, explained(outcome)
    assert outcome.verdict == "whole"


@pytest.mark.parametrize("part", range(PARTS))
def test_a_slice_of_all_damaged_stores(suite: Suite, part: int):
    verdicts = set()
    for name in suite.slice(SLICE)[part::PARTS]:
        outcome = suite.run(name)
        assert not outcome.failures, explained(outcome)
        verdicts.add(outcome.verdict)
    assert len(verdicts) > 1


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(("groups/2/", ".log:all: remove"), id="a segment is gone"),
        pytest.param(("full/", ".wal:all: zero"), id="nothing is left of a file that was used"),
        pytest.param(("young/", ".wal:all: zero"), id="nothing is left of any metadata"),
        pytest.param(("full/", ".wal:all: foreign"), id="a file of another store"),
        pytest.param(
            ("young/", "envelope 0/", "length: cut"), id="the log is cut in its first word"
        ),
    ],
)
def test_what_damaged_stores_have_found(suite: Suite, texts: tuple[str, ...]):
    names = [name for name in suite.cases if all(text in name for text in texts)]
    assert names
    for name in names:
        outcome = suite.run(name)
        assert not outcome.failures, explained(outcome)


@pytest.mark.parametrize(("number", "verdict"), [(0, "named"), (1, "refused")])
def test_real_processes_on_a_real_disk(suite: Suite, number: int, verdict: str):
    outcome = suite.run(suite.served_slice[number])
    assert not outcome.failures, explained(outcome)
    assert outcome.verdict == verdict


# --- the judge can fail --------------------------------------------------------------------------


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(suite: Suite, mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    names = [name for name in suite.cases if all(text in name for text in mutant.found_by)]
    assert names, f"no case has {mutant.found_by} in its name"
    some = names[:: max(len(names) // TRIED, 1)]
    sound = suite.run(some[0])
    assert not sound.failures, explained(sound)
    mutant.plant(monkeypatch)
    assert any(suite.run(name).failures for name in some), f"{mutant.name}: {some}"
