"""How evenly partitions and consumers lie on the nodes.

Positions and placement come from the functions that nodes use. Things move only when nodes come
and go, so there is no network and no clock here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from random import Random

from hocket.core.placement.homes import home_of
from hocket.core.placement.placement import NEIGHBOURHOOD, Placeable, place
from hocket.core.ring.circle import candidates, choose, position_of
from hocket.core.ring.contact import Contact
from hocket.sim.scale.figures import Cell, Chapter, Options, Table
from hocket.sim.scale.statistics import max_to_mean, mean, percentile

KEYS_EACH = 50  # as many as in the published figure
REPLICAS = 3
PARTITIONS_EACH = 30  # 90 replicas a node
CONSUMERS_EACH = 20


class Town:
    """Nodes at their positions, and the load of each."""

    def __init__(self, seed: object, count: int, *, chosen: bool) -> None:
        self.nodes: list[Placeable] = []  # by position
        self._seed = seed
        self._chosen = chosen
        self._positions: list[int] = []
        self._made = 0
        for _ in range(count):
            self.join()

    def join(self) -> Placeable:
        name = f"node-{self._made}"
        self._made += 1
        identity = f"{self._seed}/{name}".encode()
        position = (
            choose(candidates(identity), self._positions) if self._chosen else position_of(identity)
        )
        node = Placeable(Contact(position, name, 1, name))
        self.nodes.insert(bisect_left(self._positions, position), node)
        insort(self._positions, position)
        return node

    def leave(self, node: Placeable) -> None:
        at = bisect_left(self._positions, node.contact.position)
        del self._positions[at], self.nodes[at]

    def at(self, position: int) -> Placeable:
        """The node at this position, or the next one."""
        return self.nodes[bisect_left(self._positions, position) % len(self.nodes)]

    def clear(self) -> None:
        for node in self.nodes:
            node.load = 0.0

    def loads(self) -> list[float]:
        return [node.load for node in self.nodes]


def balance(options: Options) -> Chapter:
    """The greatest load of a node, compared with the mean load."""
    rows: list[list[Cell]] = []
    for size in options.sizes()[1:] or options.sizes():
        options.say(f"balance: {size:,} nodes")
        plain = Town(options.seed, size, chosen=False)
        chosen = Town(options.seed, size, chosen=True)
        for name, town in (("hash of the name", plain), ("best of 16", chosen)):
            rows.append(_keys(town, size, name))
        for name, town in (("hash of the name", plain), ("best of 16", chosen)):
            rows.append(_replicas(town, size, name, REPLICAS))
        rows.append(_replicas(chosen, size, "best of 16", NEIGHBOURHOOD))
        rows.append(_after_moves(chosen, size, options.seed))
        for name, town in (("hash of the name", plain), ("best of 16", chosen)):
            rows.append(_consumers(town, size, name, choice=False))
        rows.append(_consumers(chosen, size, "best of 16", choice=True))
    columns = ["nodes>", "what", "positions", "chosen among", "max / mean>", "p99 / mean>"]
    return Chapter("balance", [Table("balance", columns, rows)], {}, options.run())


def _row(town: Town, size: int, what: str, positions: str, among: str) -> list[Cell]:
    loads = town.loads()
    row: list[Cell] = [size, what, positions, among, max_to_mean(loads)]
    return [*row, percentile(loads, 0.99) / mean(loads)]


def _keys(town: Town, size: int, positions: str) -> list[Cell]:
    town.clear()
    for number in range(size * KEYS_EACH):
        town.at(position_of(f"key-{number}")).load += 1
    return _row(town, size, f"{KEYS_EACH} keys a node", positions, "the successor")


def _partition_keys(size: int) -> list[int]:
    return [position_of(f"partition-{number}") for number in range(size * PARTITIONS_EACH)]


def _place(
    town: Town, key: int, neighbourhood: int, members: Sequence[Contact] = ()
) -> list[Contact]:
    """Choose where the replicas go, and change the loads of those that get or lose one."""
    holders = [town.at(member.position) for member in members]
    for holder in holders:
        holder.has_replica = True
    placed = place(key, town.nodes, REPLICAS, neighbourhood)
    for contact in placed:
        node = town.at(contact.position)
        node.load += not node.has_replica
    for holder in holders:
        holder.has_replica = False
        holder.load -= holder.contact not in placed
    return placed


def _replicas(town: Town, size: int, positions: str, neighbourhood: int) -> list[Cell]:
    town.clear()
    for key in _partition_keys(size):
        _place(town, key, neighbourhood)
    among = f"the next {neighbourhood}"
    return _row(town, size, f"{REPLICAS} replicas a partition", positions, among)


def _after_moves(town: Town, size: int, seed: object) -> list[Cell]:
    """Replace nodes one after the other, on average each once: does the balance drift?"""
    town.clear()
    placed = {key: _place(town, key, NEIGHBOURHOOD) for key in _partition_keys(size)}
    held: dict[Contact, dict[int, None]] = {node.contact: {} for node in town.nodes}
    for key, contacts in placed.items():
        for contact in contacts:
            held[contact][key] = None
    chance = Random(f"{seed}/moves")
    for _ in range(size):
        leaver = town.nodes[chance.randrange(len(town.nodes))]
        town.leave(leaver)
        for key in held.pop(leaver.contact):
            rest = [contact for contact in placed[key] if contact != leaver.contact]
            again = placed[key] = _place(town, key, NEIGHBOURHOOD, rest)
            for contact in rest:
                del held[contact][key]
            for contact in again:
                held[contact][key] = None
        held[town.join().contact] = {}
    what = f"... after {size:,} leaves and joins"
    return _row(town, size, what, "best of 16", f"the next {NEIGHBOURHOOD}")


def _consumers(town: Town, size: int, positions: str, *, choice: bool) -> list[Cell]:
    town.clear()
    count = size * CONSUMERS_EACH
    for number in range(count):
        name = f"consumer-{number}"
        if choice:
            home = home_of(name, town.nodes, number / size)
            assert home is not None
            town.at(home.position).load += 1
        else:
            town.at(position_of(name)).load += 1
    among = "two, where the first is full" if choice else "the successor"
    return _row(town, size, f"{CONSUMERS_EACH} consumers a node", positions, among)
