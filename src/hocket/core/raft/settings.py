"""The settings of Raft. Times are microseconds."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000


@dataclass(slots=True)
class RaftSettings:
    """All members of a group should have the same settings."""

    heartbeat_us: int = SECOND // 2
    election_us: int = 2 * SECOND  # the least election timeout; Python's loops pause now and then
    election_jitter_us: int = 2 * SECOND  # chance adds up to this, so that one is first
    stagger_us: int = SECOND // 10  # between followers that all see the leader's process gone
    stall_us_max: int = SECOND  # a leader that stood still for so long steps down
    idle_us: int = 5 * SECOND  # a group with nothing to do for so long falls quiet
    snapshot_us: int = 60 * SECOND  # a snapshot that has not arrived by then is sent again
    entries_max: int = 1_024  # in one message
    in_flight_max: int = 64  # messages with entries, to one peer, that are not answered
    pre_vote: bool = True  # False, of either: for comparisons with other implementations
    check_quorum: bool = True  # a leader without majority steps down; who hears a leader is bound
