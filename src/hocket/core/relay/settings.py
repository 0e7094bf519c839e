"""What can be set for the relay tree, in microseconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000
DEPTH_MAX = 64  # of a tree; more ancestors than this are a circle
ASK_AGAIN = 2  # ticks without an answer: the question or the answer may be lost


@dataclass(slots=True)
class RelaySettings:
    """Silence is counted in ticks: a clock may be set, a count may not.

    A crash of the parent is noticed within `wait_us + silent_us`. If the grandparent does not
    answer either (`attach_us`), delivery still goes on within five seconds.
    """

    children_max: int = 16  # k: the tree's depth is about log_k of the nodes that take part
    window_bytes: int = 64 << 20  # of the recent batches in memory; one batch is kept in any case
    node_bytes: int = 256 << 20  # the same of all partitions of a node together
    fetch_bytes: int = 1 << 20  # the credit of one fetch
    wait_us: int = SECOND  # how long an answer may wait for data
    silent_us: int = 3 * SECOND  # after the wait; then the parent counts as dead
    tick_us: int = SECOND  # waits end, and silence is counted, at ticks; at most `wait_us`
    attach_us: int = 500_000  # a candidate that has not answered by then is passed over
    redirects_max: int = 16  # a longer chain of redirects is a circle
    retry_us: int = SECOND  # after a search without success; up to as much again is added
    child_us: int = 10 * SECOND  # a child that is silent for this time is dropped
    idle_us: int = 5 * SECOND  # a node with nobody to serve leaves the tree after this time
    collapse_us: int = 60 * SECOND  # a superfluous relay sends its children up after this time

    @property
    def silent_ticks(self) -> int:
        """Ticks of silence after which a node that owes an answer counts as dead."""
        return self.ticks(self.wait_us + self.silent_us)

    def capped(self, credit_bytes: int) -> int:
        """How many bytes an answer may have, whatever credit was given: what others call their
        credit does not fill the memory of this node."""
        return min(credit_bytes, self.fetch_bytes)

    def ticks(self, time_us: int) -> int:
        return max(1, -(-time_us // self.tick_us))

    def depth_for(self, consumers: int) -> int:
        """How deep a tree for so many consumers must be, if each node has all its children."""
        depth, level, capacity = 1, self.children_max, self.children_max
        while capacity < consumers and depth < DEPTH_MAX:
            depth += 1
            level *= self.children_max
            capacity += level
        return depth
