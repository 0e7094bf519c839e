"""What nodes say about the groups they have in common survives its encoding; nonsense is named."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from crc32c import crc32c
from hypothesis import given, strategies as st

from hocket.core.raft import messages as raft
from hocket.core.raft.membership import Configuration
from hocket.core.relay.messages import Piece
from hocket.errors import ProtocolError
from hocket.log.model import LogEnd
from hocket.model import EntryKind
from hocket.node import raft_mail as mails
from hocket.node.messages import CODEC
from hocket.node.raft_mail import Letter, RaftMail, State
from hocket.wire.entry import pack_header

NUMBERS = st.integers(0, 2**63 - 1)
MEMBERS = Configuration(("a", "b", "c"), learners=("d",))


def entry(index: int, term: int, body: bytes = b"", kind: int = EntryKind.NOOP) -> bytes:
    header = pack_header(length=len(body), kind=kind, term=term, index=index, body_crc=crc32c(body))
    return header + body + bytes(-len(body) % 8)


def sent(*letters: Letter) -> list[Letter]:
    """The letters, by way of the bytes of a link."""
    pieces = tuple(Piece(0, 1, each.data) for each in letters if each.data)
    mail = RaftMail(b"".join(map(mails.row_of, letters)), pieces)
    header, payload = CODEC.encode(mail)
    return mails.opened(CODEC.decode(header, b"".join(payload)).message)


def plain_messages() -> st.SearchStrategy[raft.GroupMessage]:
    """Of every kind that is nothing but numbers and flags."""
    kinds = [
        each
        for each in raft.GroupMessage.__args__
        if each not in (raft.Entries, raft.Snapshot, raft.ReadIs)
    ]
    made = [
        st.builds(kind, **{each.name: _values(each.type) for each in fields(kind)})
        for kind in kinds
    ]
    reads = st.builds(raft.ReadIs, NUMBERS, NUMBERS, st.none() | st.integers(0, 2**63 - 2))
    return st.one_of(*made, reads)


def _values(kind: object) -> st.SearchStrategy[object]:
    return st.booleans() if kind == "bool" else NUMBERS


@given(st.lists(st.tuples(NUMBERS, plain_messages()), min_size=1, max_size=20))
def test_messages_of_numbers_come_back(said):
    letters = sent(*(Letter(group, message) for group, message in said))
    assert [(each.group, each.message) for each in letters] == said


def test_entries_say_themselves_of_which_terms_they_are_and_which_are_configurations():
    body = mails.packed_configuration(MEMBERS)
    data = entry(8, 2) + entry(9, 2, b"abc") + entry(10, 3, body, EntryKind.MEMBERSHIP)
    (letter,) = sent(Letter(5, raft.Entries(3, 7, 1, (), 6), data))
    assert letter.message == raft.Entries(3, 7, 1, ((9, 2), (10, 3)), 6, ((10, MEMBERS),))
    assert letter.data == data


def test_a_probe_has_no_entries():
    (letter,) = sent(Letter(5, raft.Entries(3, 7, 1, (), 6)))
    assert letter.message == raft.Entries(3, 7, 1, (), 6)


def test_a_snapshot_has_the_state_and_where_the_log_begins():
    state = State(LogEnd(20, 100, 7, 3), LogEnd(8, 40, 6, 2), 35, b"the state")
    snapshot = raft.Snapshot(3, 7, 2, MEMBERS)
    (letter,) = sent(Letter(5, snapshot, mails.packed_state(state, MEMBERS)))
    assert letter.message == snapshot
    assert mails.opened_state(letter.data) == (state, MEMBERS)


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=5),
    st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=5),
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=5),
    st.lists(NUMBERS, max_size=5),
)
def test_beats_and_their_answers_come_back(lines, quiet, apart, numbers):
    for beat in (raft.Beat(1, 2, lines, quiet), raft.BeatAnswer(1, 2, apart, numbers, numbers)):
        header, _payload = CODEC.encode(mails.packed_beat(beat))
        assert mails.opened_beat(CODEC.decode(header).message) == beat


ENTRIES = mails.row_of(Letter(5, raft.Entries(3, 7, 1, (), 6), b"x"))


def summed(state: bytes) -> bytes:
    return crc32c(state).to_bytes(4, "little") + state


STATE = mails.packed_state(State(LogEnd(8, 0, 0, 2), LogEnd(8, 0, 0, 2), 0, b""), MEMBERS)
SNAPSHOT = mails.row_of(Letter(5, raft.Snapshot(3, 7, 2, MEMBERS), b"x"))


@pytest.mark.parametrize(
    ("rows", "data", "why"),
    [
        (ENTRIES[:-1], b"", "not whole"),
        (bytes([99]) + ENTRIES[1:], b"", "unknown kind 99"),
        (ENTRIES, b"", "lacks its payload"),
        (ENTRIES, b"nonsense", "entry header of 8 bytes"),
        (ENTRIES, entry(8, 2)[:-1] + b"\1", "does not match its checksum"),
        (ENTRIES, entry(8, 2, b"abc")[:-1] + b"\1", "does not match its checksum"),
        (ENTRIES, entry(8, 2, b"abc")[:-8], "too early"),
        (ENTRIES, entry(9, 2), "entry 9 of term 2 came where 8"),
        (ENTRIES, entry(8, 4), "of a term between 1 and 3"),
        (ENTRIES, entry(8, 2) + entry(9, 1), "of a term between 2 and 3"),
        (ENTRIES, entry(8, 2, b"{}", EntryKind.MEMBERSHIP), "no configuration"),
        (SNAPSHOT, b"short", "cut short"),
        (SNAPSHOT, summed(STATE[4 : 4 + 8 * 10 + 3]), "cut short in its configuration"),
        (SNAPSHOT, STATE[:-1] + b"?", "a state does not match its checksum"),
        (mails.row_of(Letter(5, raft.Snapshot(3, 9, 2, MEMBERS), b"x")), STATE, "elsewhere"),
        (
            SNAPSHOT,
            mails.packed_state(State(LogEnd(5, 0, 0, 2), LogEnd(8, 0, 0, 2), 0, b""), MEMBERS),
            "older state",
        ),
    ],
)
def test_nonsense_is_named(rows, data, why):
    pieces = (Piece(0, 1, data),) if data else ()
    with pytest.raises(ProtocolError, match=why):
        mails.opened(RaftMail(rows, pieces))


def test_a_beat_that_is_not_whole_is_named():
    beat = mails.packed_beat(raft.Beat(1, 2, [(1, 2, 3)], []))
    with pytest.raises(ProtocolError, match="not whole"):
        mails.opened_beat(replace(beat, lines=beat.lines[:-1]))
