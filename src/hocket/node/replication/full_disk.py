"""A leader whose disk is full hands over what it leads: another node may have room.

Rule 1: not in the middle of a request that is refused, but at the end of its turn.
Rule 2: to one voter after the other, of those that keep up. Who is full itself does not take over,
        and while all are, the leader goes on to lead, and to refuse what is sent.
Rule 3: after all were tried there is a pause.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from hocket.core.raft.progress import Pace
from hocket.errors import HocketError, StorageFull
from hocket.log.store import LogStore
from hocket.node.replication.homecoming import BEHIND_MAX, Groups

log = logging.getLogger("hocket.replication")

ROUND_US = 30_000_000  # after which those that did not take over are tried again
NEEDED_BYTES = 64 << 10  # so much a node has room for that takes over


@dataclass(slots=True)
class _Round:
    """Attempts to hand one group over."""

    began_us: int
    tried: list[str] = field(default_factory=list)


class FullDisk:
    def __init__(self, groups: Groups, store: LogStore) -> None:
        self._groups = groups
        self._log = store
        self.lacking: dict[int, None] = {}  # groups of which something was refused in this turn
        self._rounds: dict[int, _Round] = {}

    def lacks_room(self, group: int) -> None:
        """Something that was to be appended to this group was refused, for want of room."""
        self.lacking[group] = None

    def forget(self, group: int) -> None:
        self.lacking.pop(group, None)
        self._rounds.pop(group, None)

    def may_take_over(self, group: int) -> bool:
        try:
            self._log.admit(group, NEEDED_BYTES)
        except StorageFull:
            return False
        except HocketError:  # that is no matter of room
            return True
        return True

    def hand_over(self, now_us: int) -> None:
        """The turn is over: have others lead what lacks room here."""
        lacking, self.lacking = self.lacking, {}
        for group in lacking:
            self._hand_over(group, now_us)

    def _hand_over(self, group: int, now_us: int) -> None:
        replica = self._groups.get(group)
        if replica is None or not replica.serves or replica.raft.leading is None:
            return
        if replica.raft.leading.successor:  # it is being handed over
            return
        attempts = self._rounds.get(group)
        if attempts is None or now_us - attempts.began_us >= ROUND_US:
            attempts = self._rounds[group] = _Round(now_us)
        last, voters = replica.raft.group.outline.last, replica.raft.group.configuration.all_voters
        for each in replica.raft.leading.others:
            keeps_up = each.pace is Pace.STREAMING and each.matched + BEHIND_MAX >= last
            if (
                each.peer in voters
                and each.peer not in attempts.tried
                and keeps_up
                and not self._groups.is_silent(each.peer)
            ):
                attempts.tried.append(each.peer)
                log.warning("the disk is full: node %s is to lead group %d", each.peer, group)
                replica.hand_over(each.peer)
                return
