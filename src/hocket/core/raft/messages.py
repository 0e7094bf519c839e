"""What the nodes of a group say to each other, and what nodes say of all their groups at once.

Every message of a group has the sender's term; of a pre-vote, the term that is being tried. Entries
and snapshots are messages whose bytes the driver adds: here is what Raft needs to know of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hocket.core.raft.membership import Configuration
from hocket.core.raft.outline import Run

# --- of one group ---------------------------------------------------------------------------------


@dataclass(slots=True)
class AskVote:
    """May I lead in this term? (RequestVote)"""

    term: int
    last: int  # the candidate's last entry ...
    last_term: int  # ... and its term
    pre: bool = False  # would you? Nobody's term or vote changes (dissertation 9.6)
    handed_over: bool = False  # the leader itself wants it: whoever is bound to it is free


@dataclass(slots=True)
class VoteIs:
    term: int  # of a pre-vote that is granted: the term that was asked for; else the voter's
    asked: int  # the term that was asked for
    granted: bool
    pre: bool = False


@dataclass(slots=True)
class Entries:
    """Entries that follow the entry `previous` (AppendEntries). There may be none: a probe."""

    term: int
    previous: int
    previous_term: int
    runs: tuple[Run, ...]  # what the entries are of: the last index and the term of each run
    commit: int  # the leader's
    changes: tuple[tuple[int, Configuration], ...] = ()  # which of the entries are configurations

    @property
    def last(self) -> int:
        return self.runs[-1][0] if self.runs else self.previous


@dataclass(slots=True)
class Accepted:
    """The log here is the leader's, up to `stored`; and durable, up to `flushed`."""

    term: int
    stored: int
    flushed: int  # at most `stored`; only this counts for a commit


@dataclass(slots=True)
class Rejected:
    """The entry `previous` is not here. What is here, at most at that index, is `last`."""

    term: int
    previous: int
    last: int
    last_term: int


@dataclass(slots=True)
class Snapshot:
    """The state behind the entry `index`, in place of all entries up to it (InstallSnapshot)."""

    term: int
    index: int
    index_term: int
    configuration: Configuration  # in force behind that entry


@dataclass(slots=True)
class Heartbeat:
    """A sign of life of one group's leader; `Beat` has those of all groups."""

    term: int
    commit: int


@dataclass(slots=True)
class Outdated:
    """The answer to a leader of an older term."""

    term: int


@dataclass(slots=True)
class CampaignNow:
    """The leader hands its leadership over to you (TimeoutNow, dissertation 3.10)."""

    term: int


@dataclass(slots=True)
class Confirm:
    """Do you still follow me? Reads wait for it (dissertation 6.4)."""

    term: int
    round: int  # the leader's own count: a round is never used again within a term


@dataclass(slots=True)
class Confirmed:
    term: int
    round: int


@dataclass(slots=True)
class AskRead:
    """From which index on may I read?"""

    term: int
    number: int  # the asker's own count, over all its lives


@dataclass(slots=True)
class ReadIs:
    term: int
    number: int
    index: int | None  # None: I do not lead; ask again when you know who does


# --- of all groups of a node ----------------------------------------------------------------------


Line = tuple[int, int, int]  # group, term, commit


@dataclass(slots=True)
class Beat:
    """The heartbeats of all groups that the sender leads and the receiver belongs to.

    Without a line it is a mere sign of life, by which groups live that have fallen quiet.
    """

    life: int  # of the sender: another one means that its process was gone
    sequence: int
    lines: list[Line]
    quiet: list[Line]  # more lines: these groups have nothing to do; fall quiet if you agree


@dataclass(slots=True)
class BeatAnswer:
    """All groups of that beat are well, but for these."""

    life: int  # of the beat
    sequence: int
    apart: list[tuple[int, int]]  # groups that do not follow the sender, with the term here, or 0
    behind: list[int]  # groups that cannot commit what the leader has: is their log the leader's?
    awake: list[int]  # groups that do not fall quiet, though they should


GroupMessage = (
    AskVote
    | VoteIs
    | Entries
    | Accepted
    | Rejected
    | Snapshot
    | Heartbeat
    | Outdated
    | CampaignNow
    | Confirm
    | Confirmed
    | AskRead
    | ReadIs
)
NodeMessage = Beat | BeatAnswer
