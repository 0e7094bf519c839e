"""C2: a message of a shared index is with one consumer at a time, whoever leads its partition.

A lease that a leader has given lasts, for its consumer, until it ends by the leader's clock; also
if that leader is stopped, cut off or gone. A consumer that has come to the next leader has said
there what it holds, so its leases by former ones mean nothing any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hocket.sim.checkers.copies_checker import CopiesChecker

if TYPE_CHECKING:
    from hocket.node.running.shared_index import SharedIndex
    from hocket.sim.cluster import Cluster
    from hocket.sim.copies_view import Copy

SLACK_US = 5_000  # timers and clocks of machines go differently, by two thousandths at most


class Lease(NamedTuple):
    machine: str
    life: int  # of the machine, and
    term: int  # of the leader
    identity: bytes
    until_us: int


class NoMessageIsLeasedTwice(CopiesChecker):
    name = "no_message_is_leased_twice"
    sentence = "A message of a shared index is leased to one consumer at a time."

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._leases: dict[tuple[int, str], dict[int, list[Lease]]] = {}  # group, index -> offset
        # Who has been at a leader: group, index, machine, life, term -> identities.
        self._known: dict[tuple[int, str, str, int, int], set[bytes]] = {}

    def look(self, copy: Copy) -> None:
        node = copy.machine.node if copy.serves else None
        if node is None:
            return
        for shared in node.node._wiring.shares._shared.values():
            if shared.groups.get(copy.story.partition) == copy.story.group:
                self._look_at(copy, shared)

    def _look_at(self, copy: Copy, shared: SharedIndex) -> None:
        now_us, clock_us = self._cluster.now_us, copy.machine.clock.now_us()
        leases = shared.core._leases[copy.story.partition]
        if leases.settings.failover == "fast":
            return
        me = copy.machine.name, copy.life, copy.term
        known = self._known.setdefault((copy.story.group, shared.index, *me), set())
        identities = {each.number: each.identity for each in shared.core._consumers.values()}
        known.update(identities.values())
        identities |= {number: identity for identity, number in shared.core._vanished.items()}
        table = self._leases.setdefault((copy.story.group, shared.index), {})
        for offset, others in list(table.items()):
            table[offset] = [
                each for each in others
                if each[:3] != me and each.until_us > now_us and each.identity not in known
            ]  # fmt: skip
            if not table[offset]:
                del table[offset]
        for start, end, holder, deadline in leases.all_leases():
            identity, left_us = identities.get(holder), deadline - clock_us
            if identity is None or left_us <= 0:
                continue
            lease = Lease(*me, identity, now_us + left_us - SLACK_US)
            for offset in range(start, end):
                self.seen += 1
                self._compare(copy, offset, table.get(offset, []), lease)
                table.setdefault(offset, []).append(lease)

    def _compare(self, copy: Copy, offset: int, others: list[Lease], lease: Lease) -> None:
        for other in others:
            if other.identity != lease.identity:
                raise self.broken(
                    f"{copy.name} has leased {offset} to {lease.identity.hex()}, in term "
                    f"{lease.term}; {other.machine} had, in term {other.term}, leased it to "
                    f"{other.identity.hex()} for {other.until_us - self._cluster.now_us} us more"
                )
