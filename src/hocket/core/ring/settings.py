"""The settings of the ring. Times are microseconds."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000


@dataclass(slots=True)
class RingSettings:
    """All nodes of one ring should have the same settings."""

    successors: int = 8  # r, the length of successor lists: r - 1 neighbours may die at once
    stabilize_us: int = 10 * SECOND
    retry_us: int = 50_000  # the wait after `Busy`; chance adds up to as much again
    query_us: int = 500_000  # the timeout of a question to a node whose speed is not known yet
    query_us_min: int = 100_000  # the adaptive timeout stays between these two
    query_us_max: int = 2 * SECOND
    suspicion_us_min: int = 2 * SECOND  # no node is given up in less time than this
    direct_probes: int = 3
    indirect_probes: int = 2
    finger_us: int = 60 * SECOND  # one finger is renewed per period
    finger_candidates: int = 4  # the one with the shortest round trip becomes the finger
    parallel_probes: int = 2  # of an urgent lookup
    lookup_us_max: int = 10 * SECOND
    routes_max: int = 16_384  # nodes that are kept for shorter routes
    beacon_us: int = 5 * SECOND
    beacon_stale_us: int = 30 * SECOND  # a node without news for so long looks for another ring
    rejoin_jitter_us: int = 5 * SECOND  # nodes that were cut off do not all come back at once
    registry_reply_max: int = 64  # members named to a node that joins a large ring
