"""Where the consumers of one partition are served: by its leader, or each by its home.

Rule 1: a partition with more than `popular` consumers is popular, and stays so until at most half
        as many were there for QUIET_LOOKS looks in a row.
Rule 2: consumers of a quiet partition are served by its leader. A popular partition is served by
        all nodes: a newcomer goes to its home (`homes`), and if that node is full, to the least
        full one. The leader is a node like the others.
Rule 3: whoever cannot be served elsewhere is served by the leader, and counts there.
Rule 4: `misplaced` names those who are to ask anew where they are served: some of those at a node
        that is too full or not there any more, and all that are elsewhere when all is quiet.

A node that is not too full takes a newcomer and is not too full afterwards. So whoever was moved is
not moved again for the same reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from hocket.core.placement.homes import FULL, home_of
from hocket.core.placement.placement import Placeable
from hocket.core.ring.contact import Contact

QUIET_LOOKS = 5  # consumers that open anew are not there for a moment
MOVES_MAX = 256  # at one look: each of them asks the leader


@dataclass(slots=True)
class Member:
    node: str  # where it is served
    is_movable: bool


class Crowd:
    __slots__ = ("_me", "_members", "_popular", "_quiet_looks", "at", "is_popular")

    def __init__(self, me: str, popular: int) -> None:
        self.is_popular = False
        self.at: Counter[str] = Counter()  # how many consumers each node serves
        self._me = me
        self._popular = popular
        self._quiet_looks = 0
        self._members: dict[Hashable, Member] = {}

    def __len__(self) -> int:
        return len(self._members)

    def join(self, consumer: Hashable, *, is_movable: bool) -> None:
        """A newcomer; the leader serves it, unless `move` says otherwise."""
        self._members[consumer] = Member(self._me, is_movable)
        self.at[self._me] += 1
        if len(self) > self._popular:
            self.is_popular = True

    def move(self, consumer: Hashable, node: str) -> None:
        member = self._members[consumer]
        self._less(member.node)
        member.node = node
        self.at[node] += 1

    def leave(self, consumer: Hashable) -> None:
        member = self._members.pop(consumer, None)
        if member is not None:
            self._less(member.node)

    def _less(self, node: str) -> None:
        self.at[node] -= 1
        if not self.at[node]:
            del self.at[node]

    def home(self, name: str, nodes: Sequence[Contact], avoid: Collection[str] = ()) -> str:
        """Where a newcomer of this name is to be served, who has joined. `nodes` are all live
        nodes, sorted by position."""
        able = self._able(nodes)
        mean = self._mean(able)
        wanted = [each for each in able if each.contact.node not in avoid]
        found = home_of(name, wanted, mean)
        if not self.is_popular or found is None:
            return self._me
        by_node = {each.contact.node: each for each in wanted}
        if by_node[found.node].fullness > FULL * mean:
            return min(wanted, key=lambda each: each.fullness).contact.node
        return found.node

    def misplaced(self, nodes: Sequence[Contact]) -> list[Hashable]:
        """To be called now and then: consumers that are to ask anew where they are served."""
        is_quiet = len(self) <= self._popular // 2
        self._quiet_looks = self._quiet_looks + 1 if is_quiet else 0
        if self._quiet_looks >= QUIET_LOOKS:
            self.is_popular = False
        able = self._able(nodes)
        if not able:  # this node is on no ring just now
            return []
        allowed: Counter[str] = Counter()
        if not self.is_popular:
            allowed[self._me] = len(self)
        else:
            mean = self._mean(able)
            for each in able:
                is_full = each.load > (FULL * mean) * each.capacity + 1
                share = int(mean * each.capacity)
                allowed[each.contact.node] = share if is_full else int(each.load)
        found: list[Hashable] = []
        for consumer, member in self._members.items():
            if allowed[member.node] > 0 or not member.is_movable:
                allowed[member.node] -= 1
            elif len(found) < MOVES_MAX:
                found.append(consumer)
        return found

    def _able(self, nodes: Sequence[Contact]) -> list[Placeable]:
        """All nodes serve consumers. A gateway, which takes no partitions, is there for clients."""
        return [Placeable(each, self.at.get(each.node, 0), max(1, each.capacity)) for each in nodes]

    def _mean(self, able: Sequence[Placeable]) -> float:
        return len(self) / sum(each.capacity for each in able) if able else 0.0
