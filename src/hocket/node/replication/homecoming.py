"""Leaderships go home: a node hands a group back to its first replica when that is there again.

Who dies is led no more, and when it is back it follows: so after some deaths the nodes that have
lived longest lead everything, and do all the work. Placement has spread the homes of partitions
evenly; hence whoever leads a group away from its home hands it over (Raft's leader transfer).

Rule 1: gently. One group at a time, and none before the home has kept up for some time with every
        group that this node leads and the home has, too.
Rule 2: not while any group that this node leads lacks a replica: what is missing comes first.
Rule 3: a home that did not take over is asked again later, and later each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from hocket.core.raft.leading import Leading
from hocket.core.raft.progress import Pace, Progress
from hocket.node.replication.replica import Replica

SECOND = 1_000_000
STEADY_US = 5 * SECOND  # for so long everybody has kept up
BEHIND_MAX = 256  # entries that one who keeps up may lack: under load some are always under way
AGAIN_US_MIN, AGAIN_US_MAX = 30 * SECOND, 960 * SECOND  # after one that failed; doubled each time


class Groups(Protocol):
    """The groups of this node, by number, and who is at the other end of them."""

    def get(self, group: int) -> Replica[Any] | None: ...
    def is_silent(self, peer: str) -> bool:
        """Nothing was heard of this node for some time."""


class Homecoming:
    def __init__(self, groups: Groups) -> None:
        self.homes: dict[int, str] = {}  # by group, the store id of its first replica
        self._groups = groups
        self._steady_since_us: int | None = None
        self._under_way = 0  # the group that is being handed over
        self._failures: dict[int, tuple[int, int]] = {}  # by group: how often, not again before

    def look(self, now_us: int) -> None:
        """Called with every beat: hand one group over, if one may go home now."""
        if self._under_way and not self._has_ended(self._under_way, now_us):
            return
        led = [
            (group, replica.raft.leading, home)
            for group, home in self.homes.items()
            if (replica := self._groups.get(group)) is not None
            and replica.serves
            and replica.raft.leading is not None
        ]
        away = [(group, home) for group, leading, home in led if home in leading.peers]
        if not away or not self._all_keep_up([leading for _, leading, _ in led], now_us):
            self._steady_since_us = None
            return
        if self._steady_since_us is None:
            self._steady_since_us = now_us
        if now_us - self._steady_since_us < STEADY_US:
            return
        for group, home in away:
            if now_us >= self._failures.get(group, (0, 0))[1]:
                self._hand_over(group, home)
                return

    def _hand_over(self, group: int, home: str) -> None:
        replica = self._groups.get(group)
        assert replica is not None
        self._under_way = group
        replica.hand_over(home)

    def _has_ended(self, group: int, now_us: int) -> bool:
        """Whether the attempt is over; and remember how it went."""
        replica = self._groups.get(group)
        leading = None if replica is None else replica.raft.leading
        if leading is not None and leading.successor:
            return False
        self._under_way = 0
        if leading is None:
            self._failures.pop(group, None)
        else:
            times = self._failures.get(group, (0, 0))[0]
            wait_us = min(AGAIN_US_MIN << times, AGAIN_US_MAX)
            self._failures[group] = min(times + 1, 8), now_us + wait_us
        return True

    def _all_keep_up(self, leadings: Iterable[Leading], now_us: int) -> bool:
        return all(
            self._keeps_up(leading, each, now_us) for leading in leadings for each in leading.others
        )

    def _keeps_up(self, leading: Leading, peer: Progress, now_us: int) -> bool:
        group = leading.group
        lacks = group.outline.last - peer.matched
        if self._groups.is_silent(peer.peer) or lacks > BEHIND_MAX:
            return False
        if group.is_quiet:  # it had everything when the group fell quiet, and would have woken it
            return True
        if peer.heard_us < now_us - group.host.settings.election_us:
            return False
        return not lacks or peer.pace is Pace.STREAMING
