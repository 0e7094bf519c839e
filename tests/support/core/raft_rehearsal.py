"""Three drivers of Raft on real logs, in one process: crashes lose what was not synced.

Looked at: one leader in a term; what was committed anywhere is the same everywhere, for ever (the
CRC of an entry covers the entries before it); a read is never older than what was committed when it
was asked; and at the end, after the power has failed everywhere, logs are the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from hocket.core.raft import events
from hocket.core.raft.membership import Configuration, Mode
from hocket.core.raft.settings import SECOND
from hocket.log.model import RawEntries
from hocket.sim.disk import PowerLoss, SimDisk
from hocket.sim.scheduler import Scheduler
from tests.support.core.raft_driver import GROUP, Driver, Parcel

NAMES = "abc"
FOUNDED = Configuration(tuple(NAMES))
HEALED_WITHIN_US = 120 * SECOND


class Broken(AssertionError):
    """What must hold does not."""


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


class Rehearsal:
    def __init__(self, seed: object, driver: type[Driver] = Driver) -> None:
        self.scheduler = Scheduler(seed)
        self.random = self.scheduler.random("steps")
        self._network = self.scheduler.random("network")
        self._driver = driver
        self.disks = {name: SimDisk() for name in NAMES}
        self.nodes: dict[str, Driver] = {}
        self._lives = 0
        self._losses = self.random.choice((0.0, 0.02, 0.2))
        self._cut = ""  # who is cut off from the others
        self.seen: Counter[str] = Counter()
        self._leaders: dict[int, str] = {}
        self.chosen: dict[int, int] = {}  # the CRC of what was committed, by index
        self._floors: dict[object, int] = {}
        for name in NAMES:
            self.restart(name)

    # --- what drivers ask for --------------------------------------------------------------------

    def post(self, parcel: Parcel) -> None:
        chance = self._network
        if parcel.sender != parcel.to and self._cut in (parcel.sender, parcel.to):
            return
        if chance.random() < self._losses:
            return
        for _ in range(2 if chance.random() < self._losses else 1):
            slow = chance.random() < self._losses
            delay_us = chance.randint(100, 2 * SECOND if slow else 5_000)
            self.scheduler.after(delay_us, partial(self._deliver, parcel))

    def _deliver(self, parcel: Parcel) -> None:
        node = self.nodes.get(parcel.to)
        if node is not None:
            node.heard(parcel)

    def does(self, name: str, effect: events.Effect) -> None:
        self.seen[type(effect).__name__] += 1
        if isinstance(effect, events.Leads):
            leader = self._leaders.setdefault(effect.term, name)
            demand(leader == name, f"{leader} and {name} lead in term {effect.term}")

    def commits(self, name: str, index: int, crc: int) -> None:
        known = self.chosen.setdefault(index, crc)
        demand(known == crc, f"{name} commits another entry {index}")

    def answers(self, name: str, read: events.ReadReady) -> None:
        applied = self.nodes[name].applied.index
        demand(applied >= self._floors[read.token], "what is read is too old")

    # --- what happens ----------------------------------------------------------------------------

    def restart(self, name: str) -> None:
        self._lives += 1
        self.nodes[name] = self._driver(
            name, self.disks[name], self.scheduler, self._lives, FOUNDED, self
        )

    def crash(self, name: str, *, power: bool) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            node.crash()
            if power:
                self.disks[name].crash(self.random)
            else:
                self.disks[name].kill()
            self.seen["crash"] += 1

    def _crash_soon(self, name: str) -> None:
        """In the middle of what its disk does."""
        left = self.random.randint(0, 12)

        def before(_operation: str, _path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerLoss(name)

        self.disks[name].before = before

    def run_for(self, duration_us: int) -> None:
        end_us = self.scheduler.now_us() + duration_us
        while self.scheduler.now_us() < end_us:
            try:
                self.scheduler.run_until(end_us)
            except PowerLoss as loss:
                self.crash(str(loss), power=True)

    def leader(self) -> Driver | None:
        leaders = [node for node in self.nodes.values() if node.raft.leading is not None]
        return max(leaders, key=lambda node: node.raft.group.term, default=None)

    def _append(self, _node: Driver) -> None:
        """At all that lead, at some moment: one who leads no more may not know it."""
        for name in NAMES:
            for _ in range(self.random.randint(1, 6)):
                body = self.random.randbytes(self.random.choice((0, 30, 200, 500)))
                delay_us = self.random.randint(0, 30_000)
                self.scheduler.after(delay_us, partial(self._append_now, name, body))

    def _append_now(self, name: str, body: bytes) -> None:
        node = self.nodes.get(name)
        if node is not None:
            self.seen["append"] += node.append(body)

    def _crash(self, node: Driver) -> None:
        chance = self.random.random()
        if chance < 0.4:
            self._crash_soon(node.name)
        else:
            self.crash(node.name, power=chance < 0.8)

    def _cut_off(self, node: Driver) -> None:
        self._cut = "" if self._cut else node.name

    def _change(self, node: Driver) -> None:
        if self.random.random() < 0.3:
            node.tell(events.Propose(None))
            return
        voters = self.random.sample(NAMES, self.random.choice((2, 3, 3)))
        learners = [name for name in NAMES if name not in voters and self.random.random() < 0.5]
        mode = self.random.choice(list(Mode))
        node.tell(events.Propose(tuple(voters), tuple(learners), mode))

    def _read(self, node: Driver) -> None:
        token = len(self._floors)
        self._floors[token] = max(self.chosen, default=0)
        node.tell(events.ReadAsked(token))

    def _transfer(self, node: Driver) -> None:
        node.tell(events.Transfer(self.random.choice(NAMES)))

    def step(self) -> None:
        steps: list[tuple[float, Callable[[Driver], None]]] = [
            (10, self._append), (2, self._crash), (1, self._cut_off), (2, self._change),
            (3, self._read), (0.5, self._transfer), (2, lambda node: node.compact()),
        ]  # fmt: skip
        act = self.random.choices([each for _, each in steps], [weight for weight, _ in steps])[0]
        leader = self.leader()
        if leader is not None and self.random.random() < 0.7:
            act(leader)
        elif self.nodes:
            act(self.nodes[self.random.choice(sorted(self.nodes))])
        for name in NAMES:
            if name not in self.nodes and self.random.random() < 0.15:
                self.restart(name)
        self.run_for(self.random.choice((0, 1_000, 20_000, 200_000, SECOND)))

    # --- the end ---------------------------------------------------------------------------------

    def heal(self) -> None:
        self._losses, self._cut = 0.0, ""
        for disk in self.disks.values():
            disk.before = lambda _operation, _path: None
        for name in NAMES:
            if name not in self.nodes:
                self.restart(name)
        healed = self.scheduler.run_until_true(self._is_healed, within_us=HEALED_WITHIN_US)
        demand(healed, "nobody leads, or somebody does not follow")

    def _members(self) -> list[Driver]:
        leader = self.leader()
        return (
            []
            if leader is None
            else [self.nodes[it] for it in leader.applied.configuration.members]
        )

    def _is_healed(self) -> bool:
        leader = self.leader()
        if leader is None or not leader.raft.leading or not leader.raft.leading.has_committed:
            return False
        _, _, end = leader.store.replicated.bounds(GROUP)
        return all(
            node.store.replicated.bounds(GROUP)[1] == end
            and node.applied == leader.applied
            and node.applied.index == end.next_index - 1
            for node in self._members()
        )

    def compare(self) -> None:
        """What can be read of the logs is the same bytes, and ends with what was chosen."""
        members = [node.name for node in self._members()]
        for name in members:
            self.crash(name, power=True)
            self.restart(name)
        logs = {name: self._read_all(self.nodes[name]) for name in members}
        last = max(self.chosen)
        for name, log in logs.items():
            end = self.nodes[name].store.replicated.end_at(GROUP, last)
            demand(end is not None and end.last_crc == self.chosen[last], f"{name} has lost {last}")
            for other in logs.values():
                both = sorted(log.keys() & other.keys())
                demand(all(log[at] == other[at] for at in both), "logs are different bytes")
                self.seen["compared"] += len(both)

    def _read_all(self, node: Driver) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        first, _, end = node.store.replicated.bounds(GROUP)
        for index in range(first, end.next_index):
            read: list[object] = []
            now = node.store.replicated.read_raw(
                GROUP, index, end_index=index + 1, bytes_max=1, done=read.append
            )
            if now is None:
                node.executor.drain()
            raw = now or read[0]
            assert isinstance(raw, RawEntries), raw
            found[index] = b"".join(raw.slices)
        return found


def rehearse(seed: object, steps: int = 60, driver: type[Driver] = Driver) -> Rehearsal:
    """A life of three nodes that follows from its seed."""
    world = Rehearsal(seed, driver)
    for _ in range(steps):
        world.step()
    world.heal()
    world.compare()
    return world
