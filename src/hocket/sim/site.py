"""Where a simulation takes place: machines, the links between them, and what only a watcher sees.

Nothing here takes part in the protocol: production nodes talk to each other, and the site knows
what they cannot know, namely which of them are really alive. Faults and the workload act on a site;
`cluster` puts the three together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.core.ring.circle import SIZE, distance, position_of
from hocket.core.ring.contact import Contact
from hocket.sim.copies_view import CopiesView
from hocket.sim.links import SimLinks
from hocket.sim.machine import Machine
from hocket.sim.scheduler import Scheduler
from hocket.sim.trace import Trace

if TYPE_CHECKING:
    from hocket.sim.ring_view import CoreLike
    from hocket.sim.swarm import Options

SEEDS_MAX = 3  # addresses that a joining node is told


class Site:
    def __init__(self, seed: int, options: Options) -> None:
        self.seed = seed
        self.options = options
        self.scheduler = Scheduler(seed)
        self.cluster = "n0"  # its store has founded it
        self.started_at_us = self.scheduler.now_us()
        self.trace = Trace(self.started_at_us)
        self.links = SimLinks(self.scheduler, options.weather(), self.trace)
        self.copies = CopiesView()
        self.machines: list[Machine] = []
        self.active: Machine | None = None  # the machine on which this event happened
        self.ring_moved = False  # by this event, apart from what happened on the active machine
        self.tree_moved = False
        self.clients_moved = False  # one was handed something, or mended something
        self.metadata_moved: Machine | None = None  # on which it was, by this event
        self.is_safety_phase = True
        self.deceived_at_us: int | None = None  # when a living node was first taken for dead
        self.deceptions = 0
        self.fails: list[tuple[int, Contact]] = []  # crashes and leaves: when, and whose life
        self.relay_crashes: list[tuple[int, Contact]] = []  # of nodes that had relays
        self._chance = self.scheduler.random("cluster")
        self._root: Machine | None = None  # who was seen to lead last
        for _ in range(options.nodes):
            self.add_machine()

    # --- machines ----------------------------------------------------------------------------

    @property
    def founder(self) -> Machine:
        return self.machines[0]

    @property
    def root(self) -> Machine:
        """Who leads group 0, in the newest term; while nobody does, who did last."""
        leading = [machine for machine in self.machines if machine.leads]
        if leading:
            self._root = max(leading, key=lambda each: each.node.node.group0.term)  # type: ignore[union-attr]
        return self._root or self.founder

    def found(self) -> None:
        """The founder's first life begins, and it becomes the root of a cluster of one."""
        self.founder.boot()
        while not self.founder.leads:
            self.scheduler.advance()

    def add_machine(self) -> Machine:
        number = len(self.machines)
        machine = Machine(self, f"n{number}", self._position(number))
        self.machines.append(machine)
        return machine

    def _position(self, number: int) -> int:
        if self.options.spread == "even":
            return number * 5 % 16 * (SIZE // 16)
        if self.options.spread == "crowded":  # side by side, across the circle's zero
            return (number * 5 % 16 - 8) % SIZE
        return position_of(f"{self.seed}/n{number}")

    def capacity_of(self, _machine: Machine) -> int:
        """How many partitions it takes, relative to others."""
        return 1

    def seeds(self, *, but: Machine | None = None) -> list[str]:
        """As somebody would write them into a configuration file: the founder, and some others."""
        others = [
            machine.address
            for machine in self.machines[1:]
            if machine is not but and machine.lives and not machine.gone
        ]
        self._chance.shuffle(others)
        addresses = [self.founder.address, *others[: SEEDS_MAX - 1]]
        self._chance.shuffle(addresses)
        return addresses

    # --- what the site knows and nodes do not ------------------------------------------------

    @property
    def now_us(self) -> int:
        return self.scheduler.now_us()

    @property
    def events(self) -> int:
        return self.scheduler.events

    @property
    def successors(self) -> int:
        return self.options.successors

    @property
    def deceived(self) -> bool:
        return self.deceived_at_us is not None

    def rings(self) -> list[CoreLike]:
        """The cores of all machines that are up."""
        return [machine.node.ring.core for machine in self.machines if machine.node is not None]

    def registered(self) -> tuple[Contact, ...]:
        """All whom the registry has, by position; nobody while there is no root."""
        root = self.root
        return () if root.node is None else root.node.node.registering.members()[1]

    def owner_of(self, key: int) -> Contact | None:
        """The first living member at or after the key."""
        members = [machine.me for machine in self.machines if machine.is_member]
        return min(
            (me for me in members if me is not None),
            key=lambda me: distance(key, me.position),
            default=None,
        )

    def successor_machine(self, key: int) -> Machine:
        return min(self.machines, key=lambda machine: distance(key, machine.position))

    def may_lose(self, machine: Machine) -> bool:
        """Whether nothing is lost for good if the machine never comes back, or its disk lies."""
        return not machine.keeps

    def has_no_other_copy(self, _machine: Machine) -> bool:
        """Whether it holds what no other machine has, as far as places are known."""
        return False

    def knows_places(self) -> bool:
        """Whether it is known of all partitions which machines have them."""
        return True

    def lost_for_good(self) -> None:
        """Machines are gone that hold what no others have."""

    # --- what happens ------------------------------------------------------------------------

    def failed(self, machine: Machine) -> None:
        """It is about to crash, or to leave."""
        if machine.me is not None:
            self.fails.append((self.now_us, machine.me))

    def ending(self, machine: Machine) -> None:
        """A life of this machine ends now."""
        assert machine.node is not None
        if machine.node.relays.cores and machine.me is not None:
            self.relay_crashes.append((self.now_us, machine.me))
        machine.seen_me = None
        self.copies.died(machine)
        self.ring_moved = self.tree_moved = True

    def convicted(self, by: Machine, contact: Contact) -> None:
        """A node gives another one up. We know whether it is right."""
        accused = next((each for each in self.machines if each.name == contact.node), None)
        lives = accused is not None and accused.me == contact and not accused.leaving
        self.tell(by, "gives up {}/{}{}", contact.node, contact.incarnation,
                  ", which lives" if lives else "")  # fmt: skip
        if lives:
            self.deceptions += 1
            if self.deceived_at_us is None:
                self.deceived_at_us = self.now_us

    def look_at(self, machine: Machine) -> None:
        """An event has changed its place on the ring."""
        node = machine.node
        assert node is not None
        machine.seen_changes = node.ring.changes
        core = node.ring.core
        if machine.seen_me is not None and machine.seen_me != core.me:
            self.tell(machine, "begins again as life {}", core.me.incarnation)
            if self.deceived:  # else nobody had a reason to, and the checkers shall say so
                self.fails.append((self.now_us, machine.seen_me))
        machine.seen_me = core.me
        before = core.predecessor.node if core.predecessor is not None else "-"
        self.tell(
            machine, "is {}: {} < {}/{} < {}", str(core.standing), before, machine.name,
            core.me.incarnation, " ".join(each.node for each in core.successors) or "-",
        )  # fmt: skip

    def tell(self, machine: Machine | None, text: str, *values: object) -> None:
        self.trace.tell(self.now_us, machine.name if machine else "-", text, *values)
