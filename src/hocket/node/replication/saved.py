"""What of Raft is kept in a group's snapshot, and how a group finds itself again in its log.

A snapshot of a group that several nodes keep is a line of JSON about Raft, and behind it the state
of the machine. The line has the configuration that was in force, and which entries of the log are
of which term: the log's files do not tell that without being read from end to end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hocket.core.raft.group import Group, Saved
from hocket.core.raft.membership import Configuration
from hocket.core.raft.outline import Run
from hocket.errors import CorruptData
from hocket.log.model import RecoveredGroup
from hocket.log.replicated import ReplicatedLogs
from hocket.node.raft_mail import MEMBERSHIP, configuration_of, fields_of
from hocket.wire.entry import Header

Entry = tuple[Header, memoryview]


@dataclass(slots=True)
class Found:
    """What a group finds when its life at this node begins."""

    saved: Saved
    index: int  # the last entry that the machine's state knows
    state: bytes  # of the machine; empty: none
    entries: list[Entry]  # of the log, behind that
    ahead: list[Run] = field(default_factory=list)  # of entries that the state knows
    damage: str = ""  # why the log cannot be used


def wrapped(group: Group, applied: int, state: bytes, ahead: Sequence[Run] = ()) -> bytes:
    """A snapshot with what Raft needs; `ahead` are runs of entries that the log may not have yet.

    A state that came from another node is ahead of the log until that is filled. If the node
    crashes meanwhile, the entries that were filled in are told by these runs alone.
    """
    outline = group.outline
    last = min(applied, outline.last)
    runs = outline.runs(outline.start + 1, last) if last > outline.start else ()
    runs += tuple((end, term) for end, term in ahead if last < end <= applied)
    line: dict[str, Any] = {
        "configuration": fields_of(group.configuration),
        "start": outline.start,
        "start_term": outline.term_of(outline.start),
        "runs": runs,
    }
    return json.dumps(line).encode() + b"\n" + state


def is_wrapped(snapshot: bytes) -> bool:
    """False: it was made while the group was kept without Raft, as the metadata may have been."""
    return b"\n" in snapshot


def is_of_raft(recovered: RecoveredGroup | None) -> bool:
    """Whether this is the log of a group that several nodes keep, or were about to."""
    return recovered is not None and (bool(recovered.state.term) or is_wrapped(recovered.snapshot))


def machine_state(snapshot: bytes) -> bytes:
    return snapshot.partition(b"\n")[2]


def configuration_in(snapshot: bytes) -> Configuration:
    """That of a wrapped snapshot."""
    line = json.loads(snapshot.partition(b"\n")[0])
    return configuration_of(json.dumps(line["configuration"]).encode())


def runs_in(snapshot: bytes) -> list[Run]:
    if not snapshot:
        return []
    line = json.loads(snapshot.partition(b"\n")[0])
    return [(last, term) for last, term in line["runs"]]


def new_group(voters: Sequence[str]) -> Found:
    return Found(Saved(Configuration(tuple(sorted(voters)))), 0, b"", [])


def found_in(
    recovered: RecoveredGroup, log: ReplicatedLogs, group: int, voters: Sequence[str]
) -> Found:
    """The group as its log has it. `voters` are those of its founding.

    What lies behind damage is cut off: it is not part of the log for Raft, and the leader sends it
    again.
    """
    found = new_group(voters)
    saved = found.saved
    saved.term, saved.vote = recovered.state
    found.entries = list(recovered.entries)
    _cut_off_what_is_lost(found, recovered, log, group)
    start, start_term, runs = 0, 0, list[Run]()
    if recovered.snapshot and not is_wrapped(recovered.snapshot):
        start, start_term = recovered.snapshot_index, recovered.snapshot_term
        found.index, found.state = start, recovered.snapshot
    elif recovered.snapshot:
        line = json.loads(recovered.snapshot.partition(b"\n")[0])
        saved.configuration = configuration_in(recovered.snapshot)
        start, start_term = line["start"], line["start_term"]
        runs = found.ahead = runs_in(recovered.snapshot)
        found.index, found.state = recovered.snapshot_index, machine_state(recovered.snapshot)
    for header, _body in found.entries:
        if runs and runs[-1][1] == header.term:
            runs[-1] = header.index, header.term
        else:
            runs.append((header.index, header.term))
    first, _durable, end = log.bounds(group)
    saved.start = min(first, end.next_index) - 1
    saved.start_term = _term_at(saved.start, start, start_term, runs)
    saved.runs = _between(runs, saved.start, end.next_index - 1)
    saved.changes = [
        (header.index, configuration_of(bytes(body)))
        for header, body in found.entries
        if header.kind == MEMBERSHIP
    ]
    saved.committed = found.index
    saved.term = max(saved.term, *(term for _last, term in saved.runs), saved.start_term)
    return found


def _cut_off_what_is_lost(
    found: Found, recovered: RecoveredGroup, log: ReplicatedLogs, group: int
) -> None:
    known = recovered.snapshot_index  # what is lost up to here, the state knows
    lost = [loss.first_index for loss in recovered.losses if loss.next_index > known + 1]
    if not lost:
        return
    first = max(min(lost), known + 1)
    found.entries = [each for each in found.entries if each[0].index < first]
    try:
        log.truncate(group, first - 1)
    except CorruptData as error:
        found.damage = str(error)


def _between(runs: Sequence[Run], start: int, end: int) -> list[Run]:
    """The runs of the entries behind `start`, up to `end`, which is where the log ends."""
    found: list[Run] = []
    for last, term in runs:
        if last > start and start < end:
            start = min(last, end)
            found.append((start, term))
    return found


def _term_at(index: int, start: int, start_term: int, runs: Sequence[Run]) -> int:
    if index <= start:
        return start_term
    return next((term for last, term in runs if index <= last), start_term)
