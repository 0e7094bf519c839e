"""One run: a seed, a cluster, two phases, and a report.

In the *safety* phase faults strike, and after every event that changed something the checkers check
what must never be broken. In the *liveness* phase nothing goes wrong any more: cuts are healed,
machines that are dead for good stay dead, and within a bounded time the ring must be ideal, every
lookup right and every consumer complete. The phases are apart because a network that heals now and
then hides a system that is stuck for ever.
"""

from __future__ import annotations

import gc
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from hocket.sim.checkers import Violation, all_checkers
from hocket.sim.cluster import Cluster
from hocket.sim.faults import LIVES_MAX
from hocket.sim.machine import Machine
from hocket.sim.mutants import MUTANTS
from hocket.sim.report import Broken, Report
from hocket.sim.ring_view import snapshot
from hocket.sim.swarm import Options, options_of

SETTLING_PERIODS = 20  # of stabilization, within which the ring must be ideal
LOOK_EVERY_US = 500_000  # between two looks whether all is settled
STILL_US = 3_000_000  # after all is settled, in which nothing may change any more
LAST_LOOKUPS = 3  # of each machine, when all is settled
LAST_LOOKUPS_US = 5_000_000
WAIT_US_MAX = 300_000_000  # that a node has to wait which has joined too often
TIMELINE_LINES = 60
LINES_OF_TRACEBACK = 12

NOTHING_RAISES = "Nothing in the cluster raises an error that nobody expects."
ALL_BECOMES_RIGHT = "When faults have stopped, all becomes right within a bounded time."
CHECKERS_SEE = "Every checker looks at something."

# These checkers see something in every run; the others at least within a set of seeds.
SEEN_IN_EVERY_RUN = ("lookups_find_the_successor", "consumers_get_every_offset_once")


def run(seed: int, *, mutant: str | None = None, options: Options | None = None) -> Report:
    """The report of a run. The same seed and options give the same report.

    Without `options` the seed decides them.
    """
    planted = nullcontext() if mutant is None else MUTANTS[mutant].plant()
    with planted, _silent_nodes(), _without_collecting():
        return _Run(seed, mutant, options_of(seed) if options is None else options).run()


@contextmanager
def _silent_nodes() -> Iterator[None]:
    """Simulated disks fail and lie all the time: what nodes log of it would hide the report."""
    logger = logging.getLogger("hocket")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """A run makes millions of objects and hardly any cycles: to look for those all the time took a
    fifth of it. They are collected when it is over."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
            gc.collect(1)  # what is older than the run was there before it


class _Run:
    def __init__(self, seed: int, mutant: str | None, options: Options) -> None:
        self._seed = seed
        self._mutant = mutant
        self._options = options
        self._cluster = Cluster(seed, options)
        self._checkers = all_checkers(self._cluster)
        self._of_ring = [each for each in self._checkers if each.looks_at == "ring"]
        self._of_tree = [each for each in self._checkers if each.looks_at == "tree"]
        self._of_metadata = [each for each in self._checkers if each.looks_at == "metadata"]
        self._of_copies = [each for each in self._checkers if each.looks_at == "copies"]
        self._of_clients = [each for each in self._checkers if each.looks_at == "clients"]
        self._reached = False

    def run(self) -> Report:
        violation: Broken | None = None
        try:
            self._live()
        except Violation as error:
            violation = self._broken(error.sentence, error.detail)
        except Exception as error:  # noqa: BLE001  # whatever it is, the report says so
            last = traceback.format_exception(error)[-LINES_OF_TRACEBACK:]
            violation = self._broken(NOTHING_RAISES, "".join(last))
        return self._report(violation)

    def _live(self) -> None:
        cluster = self._cluster
        cluster.begin()
        self._pass(self._options.safety_us)
        for checker in self._checkers:
            checker.before_healing()
        cluster.end_of_faults()
        settled = self._settle()
        if settled:
            for checker in self._checkers:
                checker.settled()
            self._pass(STILL_US)
            self._look_up_everywhere()
        for checker in self._checkers:
            checker.at_end()
        if not settled:
            raise Violation(ALL_BECOMES_RIGHT, f"not yet so: {self._unsettled()}")
        self._demand_that_checkers_saw()

    # --- time passes -------------------------------------------------------------------------

    def _pass(self, duration_us: int) -> None:
        scheduler = self._cluster.scheduler
        self._reached = False
        scheduler.after(duration_us, self._reach)
        cluster, advance = self._cluster, scheduler.advance
        while not self._reached:
            advance()
            if cluster.active or cluster.ring_moved or cluster.tree_moved or cluster.clients_moved:
                self._after_event()

    def _reach(self) -> None:
        self._reached = True

    def _after_event(self) -> None:
        cluster = self._cluster
        machine = cluster.active
        if machine is not None:
            cluster.active = None
            self._after_event_on(machine)
        if cluster.ring_moved:
            cluster.ring_moved = False
            for checker in self._of_ring:
                checker.after_event()
        if cluster.tree_moved:
            cluster.tree_moved = False
            for checker in self._of_tree:
                checker.after_event()
        if cluster.clients_moved:
            cluster.clients_moved = False
            for checker in self._of_clients:
                checker.after_event()

    def _after_event_on(self, machine: Machine) -> None:
        cluster, node = self._cluster, machine.node
        if node is None or node.ring.changes == machine.seen_changes:
            cluster.trace.event(cluster.scheduler.time_us, machine.name, "")
        else:
            cluster.look_at(machine)
            cluster.ring_moved = True
        if node is None:
            return
        index = node.node.metadata_index
        if index != machine.seen_metadata:
            cluster.metadata_moved = machine
            for checker in self._of_metadata:
                checker.after_event()
            machine.seen_metadata = index
        if cluster.copies.look(machine):
            for checker in self._of_copies:
                checker.after_event()

    # --- the end -----------------------------------------------------------------------------

    def _settle(self) -> bool:
        """Let time pass until all is as it should be; False if that takes too long.

        Time in which a node waits because it has joined too often does not count. But all time
        together is bounded too, so that a node which begins again for ever is noticed.
        """
        cluster, allowed_us = self._cluster, self._settling_us()
        deadline_us = cluster.now_us + allowed_us + self._waiting_us()
        waited_at_us = cluster.now_us
        while self._unsettled():
            if any(machine.waits_to_join for machine in cluster.machines):
                waited_at_us = cluster.now_us
            if cluster.now_us >= min(deadline_us, waited_at_us + allowed_us):
                return False
            self._pass(LOOK_EVERY_US)
        return True

    def _settling_us(self) -> int:
        """Twenty periods, and the time that the beacon rule needs before them."""
        ring = self._options.ring()
        finding_us = ring.beacon_stale_us + 10 * ring.beacon_us + ring.rejoin_jitter_us
        return SETTLING_PERIODS * ring.stabilize_us + finding_us

    def _waiting_us(self) -> int:
        """How long nodes may have to wait that have come back often."""
        joins = max(
            machine.node.ring.core.me.incarnation if machine.node else 1
            for machine in self._cluster.machines
        )
        return min((1 << min(joins + 1, 2 * LIVES_MAX)) * 1_000_000, WAIT_US_MAX)

    def _unsettled(self) -> str:
        """What is not yet as it should be; empty if everything is."""
        cluster = self._cluster
        for machine in cluster.machines:
            if (machine.up and not machine.is_member) or machine.restart is not None:
                return f"{machine.name} is not on the ring"
            if machine.up and machine.me not in cluster.registered():
                return f"{machine.name} is not in the registry"
        root = cluster.root.node
        for machine in cluster.machines:
            node = machine.node
            if node is not None and root is not None and not node.is_caught_up:
                return f"{machine.name} has not caught up with the metadata"
            if node is not None and root and node.node.metadata_index < root.node.metadata_index:
                return f"{machine.name} is behind with the metadata"
        view = snapshot(cluster.rings())
        if view.small:
            if view.members:
                return "some live by the registry and others do not"
            known = {tuple(sorted((core.me, *core.successors))) for core in cluster.rings()}
            if len(known) > 1:
                return f"nodes know {len(known)} different rings"
        elif view.difference is not None:
            return view.difference
        return cluster.workload.unfinished()

    def _look_up_everywhere(self) -> None:
        cluster = self._cluster
        chance = cluster.scheduler.random("last lookups")
        for machine in cluster.machines:
            if machine.up:
                for _ in range(LAST_LOOKUPS):
                    cluster.workload.look_up(machine, chance.getrandbits(64))
        self._pass(LAST_LOOKUPS_US)

    def _demand_that_checkers_saw(self) -> None:
        reads = self._options.consumers and not self._cluster.workload.given_up
        for checker in self._checkers:
            if not reads and checker.looks_at == "tree":
                continue
            if checker.name in SEEN_IN_EVERY_RUN and not checker.seen:
                raise Violation(CHECKERS_SEE, f"{checker.name} looked at nothing")

    # --- the report --------------------------------------------------------------------------

    def _broken(self, sentence: str, detail: str) -> Broken:
        return Broken(sentence, self._cluster.now_us - self._cluster.started_at_us, detail)

    def _report(self, violation: Broken | None) -> Report:
        cluster = self._cluster
        deceived_at_us = cluster.deceived_at_us
        return Report(
            seed=self._seed,
            ok=violation is None,
            events=cluster.events,
            checks={checker.name: checker.seen for checker in self._checkers},
            faults=cluster.fault_counts(),
            trace_hash=cluster.trace.hash(),
            options=self._options.to_json(),
            mutant=self._mutant,
            deceived_at_us=(
                None if deceived_at_us is None else deceived_at_us - cluster.started_at_us
            ),
            simulated_us=cluster.now_us - cluster.started_at_us,
            counts=cluster.counts(),
            violation=violation,
            timeline=cluster.trace.timeline(TIMELINE_LINES),
        )
