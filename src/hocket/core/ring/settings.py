"""What can be set for the ring. Times are microseconds."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000


@dataclass(slots=True)
class RingSettings:
    successors: int = 8  # the list's length, r: so many neighbours may die at once, less one
    stabilize_us: int = 10 * SECOND
    retry_us: int = 50_000  # after Busy, and up to as much again
    query_us: int = 500_000  # for an answer, before anything is known about the other node's speed
    query_us_min: int = 100_000  # the adaptive timeout stays between these
    query_us_max: int = 2 * SECOND
    suspicion_us_min: int = 2 * SECOND  # nobody is given up in less time than this
    direct_probes: int = 3
    indirect_probes: int = 2
    finger_us: int = 60 * SECOND  # one finger is looked at every so often
    finger_candidates: int = 4  # of which the nearest by round trip becomes the finger
    parallel_probes: int = 2  # of a lookup
    lookup_us_max: int = 10 * SECOND
    routes_max: int = 16_384  # nodes heard of that are kept for shorter routes
    beacon_us: int = 5 * SECOND
    beacon_stale_us: int = 30 * SECOND  # then we look whether there is another ring
    rejoin_jitter_us: int = 5 * SECOND  # those cut off do not all come back at once
    registry_reply_max: int = 64  # contacts told to a node that joins a large ring
