"""The faults of a run: machines come, go, die and hang, links are cut.

Every kind of fault has a random stream of its own. Where crashes are *guarded*, no machine is
stopped whose failure the ring's proof excludes (Zave's preconditions of Fail), so that the
invariants are demanded without exception. A machine that holds a partition always comes back; a few
others stay dead, the root as well, as long as a majority of those who vote in group 0 does not.
What strikes machines with replicas is in `replica_faults`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hocket.errors import HocketError
from hocket.sim.machine import DISK_US_MAX
from hocket.sim.replica_faults import ReplicaFaults
from hocket.sim.ring_view import may_fail, snapshot

if TYPE_CHECKING:
    from random import Random

    from hocket.sim.machine import Machine
    from hocket.sim.site import Site
    from hocket.timers import Timer

LIVES_MAX = 5  # of one machine: a node that comes back often has to wait longer each time
STALL_US = (10_000, 300_000)  # too short for the node to be convicted
LONG_STALL_US = (200_000, 3_000_000)
DOWN_US = (50_000, 8_000_000)
STOPPED_US = 50_000  # in which all machines are told to stop
STARTED_US = (1_000, 400_000)  # until each is started again
CUT_US = (300_000, 12_000_000)
UNDER_WAY_US = 2_000_000  # the cut of a split run does not come before
CLOG_US = (50_000, 2_000_000)
SLOW_US = (1_000, 25_000)  # added to every message
SLOW_FOR_US = (1_000_000, 10_000_000)


class Faults:
    def __init__(self, site: Site) -> None:
        self.counts: dict[str, int] = {}
        self._site = site
        self._chance = site.scheduler.random("faults")
        self._is_single = site.options.temper == "single"
        self._is_split = site.options.temper == "split"
        self._next: Timer | None = None
        self._undo: list[Timer] = []  # cuts, clogs and the like that will end
        self._of_replicas = ReplicaFaults(site, self)
        strikes: dict[str, Callable[[Random], bool]] = {
            "breaks": self._break,
            "slow": self._slow,
            "join": self._join,
            "join_storm": self._join_storm,
            "leave": self._leave,
            "crash": self._crash,
            "flap": self._flap,
            "amnesia": self._amnesia,
            "shutdown": self._shutdown,
            "stall": self._stall,
            "long_stall": self._long_stall,
            "slow_disk": self._slow_disk,
            "cut": self._cut,
            "cut_one_way": self._cut_one_way,
            "cut_partly": self._cut_partly,
            "clog": self._clog,
            **self._of_replicas.strikes,
        }
        self._strikes = {kind: strikes[kind] for kind in strikes if site.options.has(kind)}

    def begin(self) -> None:
        if self._strikes:
            self._wait()
        if self._site.options.beyond:
            self.later(self._site.options.safety_us // 2, self._of_replicas.lose_a_majority)

    def stop(self) -> None:
        """End all faults: mend what can be mended, and start machines that were to come back."""
        if self._next is not None:
            self._next.cancel()
        for undo in self._undo:
            undo.cancel()
        site = self._site
        site.links.heal()
        for address in site.links.clogged:
            site.links.unclog(address)
        for machine in site.machines:
            site.links.slow(machine.address, 0)
            machine.slow_disk(DISK_US_MAX)
            machine.disk.behave()
            if machine.stalled:
                machine.resume()
            if machine.has_failed and machine.up and not machine.leaving:
                self.crash(machine, power=True)
                self._restart(machine)
            if machine.restart is not None:
                machine.restart.cancel()
                self._restart(machine)

    def _wait(self) -> None:
        mean_us = self._site.options.fault_every_us
        if self._is_single:
            delay_us = self._chance.randint(mean_us - mean_us // 20, mean_us + mean_us // 20)
        else:
            delay_us = round(self._chance.expovariate(1 / mean_us))
        self._next = self._site.scheduler.after(delay_us, self._strike)

    def _strike(self) -> None:
        self._wait()
        kind = self._chance.choice(list(self._strikes))
        if self._strikes[kind](self._site.scheduler.random(f"fault/{kind}")):
            self.count(kind)

    def count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    # --- machines that come and go -----------------------------------------------------------

    def _join(self, chance: Random) -> bool:
        del chance
        site = self._site
        if len(site.machines) >= site.options.nodes_max:
            return False
        site.add_machine().start(site.seeds())
        return True

    def _join_storm(self, chance: Random) -> bool:
        joined = [self._join(chance) for _ in range(chance.randint(2, 4))]
        return any(joined)

    def _leave(self, chance: Random) -> bool:
        machine = self.pick(chance, self._site.may_lose)
        if machine is None or not self.may_stop(machine):
            return False
        self._site.tell(machine, "leaves")
        self._site.failed(machine)
        comes_back = chance.random() < 0.3 and machine.lives < LIVES_MAX
        comes_back = comes_back or not self.can_do_without(machine)
        machine.gone = not comes_back  # from now on: no other may go that would be one too many
        machine.leave(lambda: self._left(machine, chance, comes_back=comes_back))
        return True

    def _left(
        self,
        machine: Machine,
        chance: Random,
        *,
        comes_back: bool,
        within: tuple[int, int] = DOWN_US,
    ) -> None:
        self._site.tell(machine, "has left")
        machine.left = True
        if comes_back:
            self.restart_later(machine, chance.randint(*within))

    def _shutdown(self, chance: Random) -> bool:
        """All machines are stopped in order, nearly at once, and started again, each as soon as it
        has ended and some time has passed."""
        machines = [each for each in self._site.machines if each.up and not each.leaving]
        for machine in machines:
            self.later(chance.randint(0, STOPPED_US), partial(self._stop, machine, chance))
        return bool(machines)

    def _stop(self, machine: Machine, chance: Random) -> None:
        if machine.up and not machine.leaving:
            self._site.tell(machine, "is stopped in order")
            self._site.failed(machine)
            machine.leave(lambda: self._left(machine, chance, comes_back=True, within=STARTED_US))

    def _crash(self, chance: Random) -> bool:
        fits = self._feeds_others if self._is_single else self._can_come_back
        machine = self.pick(chance, fits)
        if machine is None or not self.may_stop(machine):
            return False
        dies = (
            self._site.may_lose(machine) and chance.random() < 0.2 and self._may_stay_dead(machine)
        )
        self.crash(machine, power=chance.random() < 0.5)
        if dies:
            machine.gone = True
        else:
            self.restart_later(machine, chance.randint(*DOWN_US))
        return True

    def _flap(self, chance: Random) -> bool:
        """A machine crashes and comes back at once, two or three times."""
        machine = self.pick(chance, self._can_come_back)
        if machine is None or not self.may_stop(machine):
            return False
        self._flap_again(machine, chance, chance.randint(2, 3))
        return True

    def _flap_again(self, machine: Machine, chance: Random, times: int) -> None:
        fit = machine.up and not machine.leaving and self._can_come_back(machine)
        if not fit or not self.may_stop(machine):
            return
        self.crash(machine, power=False)
        self.restart_later(machine, chance.randint(1_000, 200_000))
        if times > 1:
            pause_us = chance.randint(200_000, 2_000_000)
            self.later(pause_us, lambda: self._flap_again(machine, chance, times - 1))

    def _amnesia(self, chance: Random) -> bool:
        """A machine is lost with its disk; a new one takes its place, under a new name."""
        site = self._site
        machine = self.pick(chance, self._site.may_lose)
        if machine is None or len(site.machines) >= site.options.nodes_max:
            return False
        if not (self.may_stop(machine) and self._may_stay_dead(machine)):
            return False
        self.crash(machine, power=True)
        machine.gone = True
        site.add_machine().start(site.seeds())
        return True

    def crash(self, machine: Machine, *, power: bool) -> None:
        self._site.tell(machine, "loses power" if power else "is killed")
        self._site.failed(machine)
        machine.crash(power=power)

    def restart_later(self, machine: Machine, delay_us: int) -> None:
        machine.restart = self._site.scheduler.after(delay_us, lambda: self._restart(machine))

    def _restart(self, machine: Machine) -> None:
        self._site.tell(machine, "starts again")
        try:
            machine.start(self._seeds(machine))
        except HocketError as error:
            if not machine.is_damaged:
                raise
            # What is damaged is not of one partition: the node says so, and does not start.
            self._site.tell(machine, "does not start: {}", str(error))
            machine.does_not_start()
            self.count("did_not_start")

    def _seeds(self, machine: Machine) -> list[str]:
        """By which it comes back. Where all are stopped at once a machine is told nothing: it knows
        by whom it has joined, and its founder nobody."""
        if self._site.options.has("shutdown"):
            return [] if machine.is_founder else [self._site.founder.address]
        return self._site.seeds(but=machine)

    def pick(self, chance: Random, fits: Callable[[Machine], bool]) -> Machine | None:
        machines = [
            machine
            for machine in self._site.machines
            if machine.up and not machine.leaving and fits(machine)
        ]
        return chance.choice(machines) if machines else None

    def _can_come_back(self, machine: Machine) -> bool:
        return machine.lives < LIVES_MAX

    def _feeds_others(self, machine: Machine) -> bool:
        """Whether the machine is a relay between an owner and others."""
        assert machine.node is not None
        return not machine.keeps and any(
            len(core.children) for core in machine.node.relays.cores.values()
        )

    def _may_stay_dead(self, machine: Machine) -> bool:
        """Whether this one may die for good: the dead must stay a minority."""
        machines = self._site.machines
        dead = sum(machine.gone and not machine.up for machine in machines)
        return 3 * (dead + 1) < len(machines) and self.can_do_without(machine)

    def can_do_without(self, *machines: Machine) -> bool:
        """Whether group 0 can go on without these, in whichever configuration somebody knows.

        A voter goes for good only while all others are there: one that is away may just be
        replaced by a node that is gone, which nobody has noticed yet.
        """
        lost = {each.name for each in machines}
        gone = lost | {each.name for each in self._site.machines if each.gone or each.is_damaged}
        away = {each.name for each in self._site.machines if not each.up} - gone
        halves = {
            half
            for each in self._site.machines
            for configuration in each.configurations()
            for half in configuration.halves
        }
        return all(
            2 * len({*half} - gone) > len(half) and not (lost & {*half} and away & {*half})
            for half in halves
            if half
        )

    def may_stop(self, machine: Machine) -> bool:
        """Whether Fail's preconditions hold for this machine; True where crashes are not guarded.

        A ring that lives by the registry may turn into one that stabilizes at any time, with those
        who are dead on its lists: one at a time is what the proof's first state can bear.
        """
        site = self._site
        if not site.options.guarded:
            return True
        assert machine.node is not None
        view = snapshot(site.rings())
        if view.small or not view.members:
            return all(other.up or other.left for other in site.machines)
        return may_fail(view, machine.node.ring.core.me, site.successors)

    # --- machines that hang ------------------------------------------------------------------

    def _stall(self, chance: Random) -> bool:
        return self._stall_for(chance, STALL_US)

    def _long_stall(self, chance: Random) -> bool:
        return self._stall_for(chance, LONG_STALL_US)

    def _stall_for(self, chance: Random, duration_us: tuple[int, int]) -> bool:
        return self.stall(
            self.pick(chance, lambda machine: not machine.stalled), chance, duration_us
        )

    def stall(self, machine: Machine | None, chance: Random, duration_us: tuple[int, int]) -> bool:
        if machine is None:
            return False
        duration = chance.randint(*duration_us)
        self._site.tell(machine, "stands still for {} ms", duration // 1000)
        machine.stall()
        life = machine.lives
        self.later(duration, lambda: self._go_on(machine, life))
        return True

    def _go_on(self, machine: Machine, life: int) -> None:
        if machine.stalled and machine.lives == life:
            self._site.tell(machine, "goes on")
            machine.resume()

    def _slow_disk(self, chance: Random) -> bool:
        machine = chance.choice(self._site.machines)
        slowest = [600_000] if self._site.options.replicas else []  # others go on without it
        machine.slow_disk(chance.choice([500, 20_000, 100_000, *slowest]))
        return True

    # --- links -------------------------------------------------------------------------------

    def _break(self, chance: Random) -> bool:
        """Between two machines, and often between one and a client as well."""
        machine = chance.choice(self._site.machines)
        connections = machine.network.connections
        is_cut = bool(connections) and chance.random() < 0.5
        if is_cut:
            machine.network.cut(chance.choice(connections))
        return self._site.links.break_one() or is_cut

    def _slow(self, chance: Random) -> bool:
        machine = chance.choice(self._site.machines)
        delay_us = chance.randint(*SLOW_US)
        self._site.tell(machine, "is slow by {} ms", delay_us // 1000)
        self._site.links.slow(machine.address, delay_us)
        self.later(chance.randint(*SLOW_FOR_US), lambda: self._site.links.slow(machine.address, 0))
        return True

    def _cut(self, chance: Random) -> bool:
        """Cut the network into two groups."""
        machines = list(self._site.machines)
        if len(machines) < 2:
            return False
        if self._is_split and (self._site.links.is_cut or not self._is_under_way):
            return False
        chance.shuffle(machines)
        size = chance.randint(1, len(machines) - 1)
        return self._cut_between(chance, machines[:size], machines[size:])

    @property
    def _is_under_way(self) -> bool:
        """Topics are there, so that a side without the root has something to do."""
        return self._site.now_us - self._site.started_at_us >= UNDER_WAY_US

    def _cut_one_way(self, chance: Random) -> bool:
        machines = list(self._site.machines)
        if len(machines) < 2:
            return False
        chance.shuffle(machines)
        size = chance.randint(1, len(machines) - 1)
        return self._cut_between(chance, machines[:size], machines[size:], one_way=True)

    def _cut_partly(self, chance: Random) -> bool:
        """Some machines do not reach some others, while all reach the rest."""
        machines = list(self._site.machines)
        if len(machines) < 3:
            return False
        chance.shuffle(machines)
        some = chance.randint(1, max(1, len(machines) // 3))
        return self._cut_between(chance, machines[:some], machines[some : 2 * some])

    def _cut_between(
        self, chance: Random, some: list[Machine], others: list[Machine], *, one_way: bool = False
    ) -> bool:
        site = self._site
        site.tell(
            some[0], "is cut off ({}): {} | {}", "one way" if one_way else "both ways",
            " ".join(machine.name for machine in some),
            " ".join(machine.name for machine in others),
        )  # fmt: skip
        site.links.cut(
            [machine.address for machine in some],
            [machine.address for machine in others],
            one_way=one_way,
        )
        if not self._is_split:  # in a split run the cut lasts until faults are over
            self.later(chance.randint(*CUT_US), self._heal)
        return True

    def _heal(self) -> None:
        self._site.tell(None, "all cuts are healed")
        self._site.links.heal()

    def _clog(self, chance: Random) -> bool:
        """Clog some machines' links one after the other, and unclog them in another order.

        FoundationDB calls this swizzle-clogging.
        """
        machines = list(self._site.machines)
        chance.shuffle(machines)
        chosen = machines[: chance.randint(1, min(4, len(machines)))]
        delay_us = 0
        for machine in chosen:
            self.later(delay_us, partial(self._clog_one, machine))
            delay_us += chance.randint(*CLOG_US) // 4
        chance.shuffle(chosen)
        for machine in chosen:
            delay_us += chance.randint(*CLOG_US) // 2
            self.later(delay_us, partial(self._unclog_one, machine))
        return True

    def _clog_one(self, machine: Machine) -> None:
        self._site.tell(machine, "is clogged")
        self._site.links.clog(machine.address)

    def _unclog_one(self, machine: Machine) -> None:
        self._site.tell(machine, "is unclogged")
        self._site.links.unclog(machine.address)

    def later(self, delay_us: int, action: Callable[[], None]) -> None:
        self._undo.append(self._site.scheduler.after(delay_us, action))
