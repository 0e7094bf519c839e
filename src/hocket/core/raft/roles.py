"""The roles of a node in its group, and what leads from one to another.

The table is the whole truth: a role changes by `follows` only, and what is not in the table does
not happen. The diagram of docs/internals/raft.md is drawn from it.
"""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    FOLLOWER = "follower"  # learners, too
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Cause(Enum):
    SILENCE = "no leader was heard for an election timeout, or its process is gone"
    BACKING = "a majority would vote for it"
    MAJORITY = "a majority has voted for it"
    REFUSAL = "a majority refuses"
    CALL = "the leader hands its leadership over to it"
    LEADER = "a leader of its term speaks"
    NEWER_TERM = "it hears of a newer term"
    NO_QUORUM = "no majority has answered for an election timeout"
    STALL = "it stood still itself for too long"
    NO_VOTE = "a configuration is in force in which it has no vote"


TABLE: dict[tuple[Role, Cause], Role] = {
    (Role.FOLLOWER, Cause.SILENCE): Role.PRE_CANDIDATE,
    (Role.FOLLOWER, Cause.CALL): Role.CANDIDATE,
    (Role.FOLLOWER, Cause.NEWER_TERM): Role.FOLLOWER,
    (Role.PRE_CANDIDATE, Cause.SILENCE): Role.PRE_CANDIDATE,
    (Role.PRE_CANDIDATE, Cause.BACKING): Role.CANDIDATE,
    (Role.PRE_CANDIDATE, Cause.REFUSAL): Role.FOLLOWER,
    (Role.PRE_CANDIDATE, Cause.LEADER): Role.FOLLOWER,
    (Role.PRE_CANDIDATE, Cause.NEWER_TERM): Role.FOLLOWER,
    (Role.CANDIDATE, Cause.SILENCE): Role.PRE_CANDIDATE,
    (Role.CANDIDATE, Cause.MAJORITY): Role.LEADER,
    (Role.CANDIDATE, Cause.REFUSAL): Role.FOLLOWER,
    (Role.CANDIDATE, Cause.LEADER): Role.FOLLOWER,
    (Role.CANDIDATE, Cause.NEWER_TERM): Role.FOLLOWER,
    (Role.LEADER, Cause.NEWER_TERM): Role.FOLLOWER,
    (Role.LEADER, Cause.NO_QUORUM): Role.FOLLOWER,
    (Role.LEADER, Cause.STALL): Role.FOLLOWER,
    (Role.LEADER, Cause.NO_VOTE): Role.FOLLOWER,
}


def follows(role: Role, cause: Cause) -> Role:
    return TABLE[role, cause]
