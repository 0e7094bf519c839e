"""What nodes say to each other about the groups that they have in common, as it goes over a link.

A node sends each other node one `RaftMail` in a turn, for all groups. Nearly all that Raft says are
a few numbers, so a message is a row of numbers (`rows`). What is more than numbers is a piece of
the payload: the entries of a log, as they stand in it; or the state of a group, for a replica whose
log begins anew. Pieces stand in the order of the rows that have one.

Rule: whatever comes, `opened` returns messages or raises ProtocolError, nothing else. That entries
are whole is looked at here; whether they follow the log, by the log itself.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from crc32c import crc32c

from hocket.core.raft.membership import Configuration
from hocket.core.raft.messages import (
    Accepted,
    AskRead,
    AskVote,
    Beat,
    BeatAnswer,
    CampaignNow,
    Confirm,
    Confirmed,
    Entries,
    GroupMessage,
    Heartbeat,
    Outdated,
    ReadIs,
    Rejected,
    Snapshot,
    VoteIs,
)
from hocket.errors import CorruptData, ProtocolError
from hocket.log.model import LogEnd
from hocket.model import EntryKind
from hocket.wire.entry import HEADER_BYTES, Header, unpack_header

_ROW = struct.Struct("<7Q")  # kind, group, term, and four more, by kind
_LINE = struct.Struct("<3Q")  # group, term, commit
_PAIR = struct.Struct("<2Q")  # group, term
# Two ends of a log, each as index, offset, CRC and term; the log's start; bytes of configuration.
_STATE = struct.Struct("<10Q")
_CRC_BYTES = 4  # of a state: CRC-32C of all that follows it
ROW_BYTES = _ROW.size
ROWS_MAX = 8_192  # in one mail
MEMBERSHIP = int(EntryKind.MEMBERSHIP)


class Piece(NamedTuple):
    """Entries of a log, or a state. The receiver looks at it where it has arrived: it keeps none of
    it, so nothing is copied."""

    start: int
    end: int
    data: bytes | memoryview

    def __deepcopy__(self, _known: object) -> Piece:
        """A memoryview cannot be copied; its bytes can."""
        return Piece(self.start, self.end, bytes(self.data))


@dataclass(slots=True)
class RaftMail:
    rows: bytes
    pieces: tuple[Piece, ...] = ()


@dataclass(slots=True)
class RaftBeat:
    """`core.raft.messages.Beat`, packed."""

    life: int
    sequence: int
    lines: bytes
    quiet: bytes


@dataclass(slots=True)
class RaftBeatAnswer:
    life: int
    sequence: int
    apart: bytes
    behind: bytes
    awake: bytes


ReplicationMessage = RaftMail | RaftBeat | RaftBeatAnswer


class State(NamedTuple):
    """What is sent with a `Snapshot`: the state of the group, and how the receiver's log begins.

    The state may be of a later entry than the log begins behind: the entries up to there follow.
    """

    end: LogEnd  # of the log whose last entry is the last that the state knows
    begin: LogEnd  # the receiver's log is empty, and goes on here
    log_start: int
    body: bytes


class Letter(NamedTuple):
    """One message about one group, with what belongs to it."""

    group: int
    message: GroupMessage
    data: bytes | memoryview = b""  # of Entries: the entries; of a Snapshot: the packed `State`
    first: int = 0  # of Entries with data: the first index
    end: int = 0


class Stored(NamedTuple):
    """An entry that came with Entries."""

    header: Header
    at: int  # where it begins in the data


def entries_in(data: bytes | memoryview) -> list[Stored]:
    """The entries that stand back to back in the data. Raises ProtocolError."""
    found = []
    at = 0
    try:
        while at < len(data):
            header = unpack_header(data, at)
            found.append(Stored(header, at))
            at += header.size
    except CorruptData as error:
        raise ProtocolError(f"entries of another node: {error}") from error
    if at != len(data):
        raise ProtocolError(f"entries of another node end {at - len(data)} bytes too early")
    return found


def body_of(data: bytes | memoryview, entry: Stored) -> memoryview:
    start = entry.at + HEADER_BYTES
    return memoryview(data)[start : start + entry.header.length]


# --- configurations -------------------------------------------------------------------------------


def packed_configuration(configuration: Configuration) -> bytes:
    return json.dumps(fields_of(configuration)).encode()


def fields_of(configuration: Configuration) -> dict[str, Any]:
    """As JSON has it. Every checkpoint has those of all groups, so this copies nothing."""
    return {name: getattr(configuration, name) for name in configuration.__slots__}


def configuration_of(body: bytes) -> Configuration:
    try:
        fields = json.loads(body)
        names = ("voters", "outgoing", "learners", "next_learners")
        groups = {name: tuple(map(str, fields.pop(name))) for name in names}
        return Configuration(**groups, leaves_by_itself=bool(fields["leaves_by_itself"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(f"no configuration of a group: {bytes(body)!r:.200}") from error


def packed_state(state: State, configuration: Configuration) -> bytes:
    members = packed_configuration(configuration)
    numbers = _STATE.pack(*state.end, *state.begin, state.log_start, len(members))
    packed = b"".join((numbers, members, state.body))
    return crc32c(packed).to_bytes(_CRC_BYTES, "little") + packed


def opened_state(data: bytes | memoryview) -> tuple[State, Configuration]:
    """Raises ProtocolError."""
    data = bytes(data)
    at = _CRC_BYTES + _STATE.size
    if len(data) < at:
        raise ProtocolError(f"a state of {len(data)} bytes is cut short")
    if crc32c(memoryview(data)[_CRC_BYTES:]) != int.from_bytes(data[:_CRC_BYTES], "little"):
        raise ProtocolError("a state does not match its checksum")
    *numbers, log_start, size = _STATE.unpack_from(data, _CRC_BYTES)
    members = data[at : at + size]
    if len(members) != size:
        raise ProtocolError("a state is cut short in its configuration")
    state = State(LogEnd(*numbers[:4]), LogEnd(*numbers[4:]), log_start, data[at + size :])
    return state, configuration_of(members)


# --- rows -----------------------------------------------------------------------------------------


def row_of(letter: Letter) -> bytes:
    message = letter.message
    kind, pack = _PACKERS[type(message)]
    return _ROW.pack(kind, letter.group, message.term, *pack(message, letter))


def opened(mail: RaftMail) -> list[Letter]:
    """The messages of a mail. Raises ProtocolError."""
    if len(mail.rows) % ROW_BYTES:
        raise ProtocolError(f"rows of {len(mail.rows)} bytes are not whole")
    pieces = iter(mail.pieces)
    letters = []
    data: bytes | memoryview
    for kind, group, term, a, b, c, has_piece in _ROW.iter_unpack(mail.rows):
        unpack = _OPENERS.get(kind)
        if unpack is None:
            raise ProtocolError(f"a message of Raft of the unknown kind {kind}")
        data = b""
        if has_piece:
            piece = next(pieces, None)
            if piece is None:
                raise ProtocolError("a message of Raft lacks its payload")
            data = piece.data
        letters.append(Letter(group, unpack(term, a, b, c, data), data))
    return letters


def _entries(
    term: int, previous: int, previous_term: int, commit: int, data: bytes | memoryview
) -> Entries:
    runs: list[tuple[int, int]] = []
    changes = []
    following = previous + 1
    last_term = previous_term
    for entry in entries_in(data):
        header = entry.header
        if header.index != following or not last_term <= header.term <= term:
            raise ProtocolError(
                f"entry {header.index} of term {header.term} came where {following} was to come, "
                f"of a term between {last_term} and {term}"
            )
        padding = data[entry.at + HEADER_BYTES + header.length : entry.at + header.size]
        if crc32c(body_of(data, entry)) != header.body_crc or any(padding):
            raise ProtocolError(f"entry {header.index} does not match its checksum")
        if runs and runs[-1][1] == header.term:
            runs[-1] = (header.index, header.term)
        else:
            runs.append((header.index, header.term))
        if header.kind == MEMBERSHIP:
            changes.append((header.index, configuration_of(bytes(body_of(data, entry)))))
        following, last_term = header.index + 1, header.term
    return Entries(term, previous, previous_term, tuple(runs), commit, tuple(changes))


def _snapshot(
    term: int, index: int, index_term: int, _c: int, data: bytes | memoryview
) -> Snapshot:
    state, configuration = opened_state(data)
    if (state.begin.next_index - 1, state.begin.term) != (index, index_term):
        raise ProtocolError(f"a snapshot behind entry {index} has a log that begins elsewhere")
    if state.end.next_index < state.begin.next_index:
        raise ProtocolError(f"a snapshot behind entry {index} has an older state")
    return Snapshot(term, index, index_term, configuration)


Pack = Callable[[Any, Letter], tuple[int, int, int, int]]
Open = Callable[[int, int, int, int, bytes | memoryview], GroupMessage]

_TABLE: tuple[tuple[type, int, Pack, Open], ...] = (
    (AskVote, 1,
     lambda m, _l: (m.last, m.last_term, m.pre | m.handed_over << 1, 0),
     lambda t, a, b, c, _d: AskVote(t, a, b, bool(c & 1), bool(c & 2))),
    (VoteIs, 2,
     lambda m, _l: (m.asked, m.granted | m.pre << 1, 0, 0),
     lambda t, a, b, _c, _d: VoteIs(t, a, bool(b & 1), bool(b & 2))),
    (Entries, 3,
     lambda m, letter: (m.previous, m.previous_term, m.commit, bool(letter.data)),
     _entries),
    (Accepted, 4,
     lambda m, _l: (m.stored, m.flushed, 0, 0),
     lambda t, a, b, _c, _d: Accepted(t, a, b)),
    (Rejected, 5,
     lambda m, _l: (m.previous, m.last, m.last_term, 0),
     lambda t, a, b, c, _d: Rejected(t, a, b, c)),
    (Snapshot, 6,
     lambda m, _l: (m.index, m.index_term, 0, 1),
     _snapshot),
    (Heartbeat, 7, lambda m, _l: (m.commit, 0, 0, 0), lambda t, a, _b, _c, _d: Heartbeat(t, a)),
    (Outdated, 8, lambda _m, _l: (0, 0, 0, 0), lambda t, _a, _b, _c, _d: Outdated(t)),
    (CampaignNow, 9, lambda _m, _l: (0, 0, 0, 0), lambda t, _a, _b, _c, _d: CampaignNow(t)),
    (Confirm, 10, lambda m, _l: (m.round, 0, 0, 0), lambda t, a, _b, _c, _d: Confirm(t, a)),
    (Confirmed, 11, lambda m, _l: (m.round, 0, 0, 0), lambda t, a, _b, _c, _d: Confirmed(t, a)),
    (AskRead, 12, lambda m, _l: (m.number, 0, 0, 0), lambda t, a, _b, _c, _d: AskRead(t, a)),
    (ReadIs, 13,
     lambda m, _l: (m.number, 0 if m.index is None else m.index + 1, 0, 0),
     lambda t, a, b, _c, _d: ReadIs(t, a, b - 1 if b else None)),
)  # fmt: skip
_PACKERS = {message: (kind, pack) for message, kind, pack, _open in _TABLE}
_OPENERS = {kind: open_ for _message, kind, _pack, open_ in _TABLE}

# --- beats ----------------------------------------------------------------------------------------


def packed_beat(beat: Beat | BeatAnswer) -> RaftBeat | RaftBeatAnswer:
    if isinstance(beat, Beat):
        lines = _lines(beat.lines) if beat.lines else b""
        quiet = _lines(beat.quiet) if beat.quiet else b""
        return RaftBeat(beat.life, beat.sequence, lines, quiet)
    if not (beat.apart or beat.behind or beat.awake):  # as a rule all is well
        return RaftBeatAnswer(beat.life, beat.sequence, b"", b"", b"")
    return RaftBeatAnswer(
        beat.life,
        beat.sequence,
        b"".join(_PAIR.pack(*pair) for pair in beat.apart),
        _numbers(beat.behind),
        _numbers(beat.awake),
    )


def opened_beat(beat: RaftBeat | RaftBeatAnswer) -> Beat | BeatAnswer:
    """Raises ProtocolError."""
    try:
        if isinstance(beat, RaftBeat):
            lines = list(_LINE.iter_unpack(beat.lines)) if beat.lines else []
            quiet = list(_LINE.iter_unpack(beat.quiet)) if beat.quiet else []
            return Beat(beat.life, beat.sequence, lines, quiet)
        if not (beat.apart or beat.behind or beat.awake):
            return BeatAnswer(beat.life, beat.sequence, [], [], [])
        apart = list(_PAIR.iter_unpack(beat.apart))
        behind, awake = (
            [number for (number,) in struct.iter_unpack("<Q", each)]
            for each in (beat.behind, beat.awake)
        )
    except struct.error as error:
        raise ProtocolError(f"a heartbeat is not whole: {error}") from error
    return BeatAnswer(beat.life, beat.sequence, apart, behind, awake)


def _lines(lines: list[tuple[int, int, int]]) -> bytes:
    return b"".join(_LINE.pack(*line) for line in lines)


def _numbers(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)
