"""Faults that machines with replicas are struck by: leaders die, disks fail, lie and are full.

A partition with one replica does not survive most of these. So a disk is damaged, or a machine lost
for good, only if every partition has a majority of its replicas on machines that are sound
(`Site.may_lose`), and group 0 a majority of its voters.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from hocket.sim.disk import Lies

if TYPE_CHECKING:
    from random import Random

    from hocket.sim.machine import Machine
    from hocket.sim.site import Site

DOWN_US = (50_000, 4_000_000)
BLACKOUT_US = (50_000, 1_500_000)  # until a machine is back
CUT_US = (500_000, 2_500_000)  # some election timeouts
STALL_US = (700_000, 2_500_000)
HEALED_US = (1_000, 400_000)  # it hears of the new leader, and cuts its log back
FLIPS_MAX = 3
LYING_US = (100_000, 2_000_000)  # then the power fails
LYING_SHARE = 0.2  # of sectors
NOT_YET_US = 1_000_000  # until it is looked again whether there is a topic
FULL_US = (200_000, 1_200_000)  # a producer gives up after three seconds
ROOM_BYTES_MAX = 3_000  # that a full disk has left
FAILED_US = (1_000, 1_000_000)  # after an error, until somebody starts the node again


class Striking(Protocol):
    """What these need of the faults of a run."""

    def pick(self, chance: Random, fits: Callable[[Machine], bool]) -> Machine | None: ...
    def may_stop(self, machine: Machine) -> bool: ...
    def can_do_without(self, *machines: Machine) -> bool: ...
    def crash(self, machine: Machine, *, power: bool) -> None: ...
    def restart_later(self, machine: Machine, delay_us: int) -> None: ...
    def later(self, delay_us: int, action: Callable[[], None]) -> None: ...
    def count(self, kind: str) -> None: ...
    def stall(
        self, machine: Machine | None, chance: Random, duration_us: tuple[int, int]
    ) -> bool: ...


class ReplicaFaults:
    def __init__(self, site: Site, faults: Striking) -> None:
        self._site = site
        self._faults = faults
        self.strikes: dict[str, Callable[[Random], bool]] = {
            "leader_crash": self._leader_crash,
            "blackout": self._blackout,
            "lost_for_good": self._lost_for_good,
            "bit_flip": self._bit_flip,
            "lost_write": partial(self._lie, misdirects=False),
            "misdirected_write": partial(self._lie, misdirects=True),
            "sync_error": self._sync_error,
            "full_disk": self._full_disk,
            "leader_cut": self._leader_cut,
            "leader_stall": self._leader_stall,
        }

    def _leads(self, machine: Machine) -> bool:
        return machine.node is not None and any(each.serves for each in machine.node.replicas)

    def _follows_only(self, machine: Machine) -> bool:
        return self._has_help(machine) and not self._leads(machine)

    def _has_help(self, machine: Machine) -> bool:
        """Others have all that it holds. Of what is on one machine alone nothing is promised to
        clients while its disk fails or is full: they are told so."""
        is_held = machine.holds and not machine.is_founder
        site = self._site
        return is_held and site.knows_places() and not site.has_no_other_copy(machine)

    def _crash(self, machine: Machine, *, power: bool, down_us: int) -> None:
        self._faults.crash(machine, power=power)
        self._faults.restart_later(machine, down_us)

    def _leader_crash(self, chance: Random) -> bool:
        machine = self._faults.pick(chance, self._leads)
        if machine is None or not self._faults.may_stop(machine):
            return False
        self._crash(machine, power=chance.random() < 0.5, down_us=chance.randint(*DOWN_US))
        return True

    def _blackout(self, chance: Random) -> bool:
        """The power fails for all machines at once, and they come back one after the other."""
        if self._site.options.guarded:
            return False
        machines = [each for each in self._site.machines if each.up and not each.leaving]
        for machine in machines:
            self._crash(machine, power=True, down_us=chance.randint(*BLACKOUT_US))
        return bool(machines)

    def _leader_cut(self, chance: Random) -> bool:
        """A leader is cut off from all other machines, and not from its clients: it goes on to take
        what it cannot commit, while others elect another one. When it is back, that is cut off its
        log; soon afterwards it is often killed."""
        machine = self._faults.pick(chance, self._leads)
        site = self._site
        others = [each.address for each in site.machines if each is not machine]
        if machine is None or site.links.is_cut or not others:
            return False
        site.tell(machine, "is cut off, and leads")
        site.links.cut([machine.address], others)
        self._faults.later(chance.randint(*CUT_US), partial(self._heal, machine, chance))
        return True

    def _leader_stall(self, chance: Random) -> bool:
        """A leader stands still for so long that others elect another one."""
        machine = self._faults.pick(chance, lambda each: self._leads(each) and not each.stalled)
        return self._faults.stall(machine, chance, STALL_US)

    def _heal(self, machine: Machine, chance: Random) -> None:
        self._site.tell(None, "all cuts are healed")
        self._site.links.heal()
        if chance.random() < 0.6:
            self._faults.later(chance.randint(*HEALED_US), partial(self._kill, machine, chance))

    def _kill(self, machine: Machine, chance: Random) -> None:
        if machine.up and not machine.leaving and self._faults.may_stop(machine):
            self._crash(machine, power=chance.random() < 0.7, down_us=chance.randint(*DOWN_US))

    def _lost_for_good(self, chance: Random) -> bool:
        machine = self._faults.pick(chance, self._is_spare_holder)
        if machine is None or not self._faults.may_stop(machine):
            return False
        self._faults.crash(machine, power=chance.random() < 0.5)
        machine.gone = True
        return True

    def lose_a_majority(self) -> None:
        """Of the replicas of the first topic, for good: fewer than a majority stay."""
        site = self._site
        story = next(iter(site.copies.stories.values()), None)
        if story is None or not site.knows_places():
            if site.is_safety_phase:
                self._faults.later(NOT_YET_US, self.lose_a_majority)
            return
        left = [each for each in site.machines if each.name in story.voters and not each.gone]
        count = len(left) - story.majority + 1
        lost: list[Machine] = []
        for machine in left:
            if len(lost) < count and self._faults.can_do_without(*lost, machine):
                lost.append(machine)
        if len(lost) < count:
            return  # group 0 would be lost with them
        for machine in lost:
            if machine.restart is not None:
                machine.restart.cancel()
                machine.restart = None
            if machine.up:
                self._faults.crash(machine, power=True)
            machine.gone = True
        site.lost_for_good()
        self._faults.count("majority_lost")

    def _is_spare_holder(self, machine: Machine) -> bool:
        return machine.holds and self._is_spare(machine)

    def _is_spare(self, machine: Machine) -> bool:
        return self._site.may_lose(machine) and self._faults.can_do_without(machine)

    def _to_damage(self, chance: Random) -> Machine | None:
        """A machine whose disk may be damaged, now or again.

        Any machine may become a voter of group 0, and of three voters one may be damaged.
        """
        machine = self._faults.pick(chance, lambda each: each.holds)
        if machine is None:
            return None
        is_first = not any(each.is_damaged and not each.gone for each in self._site.machines)
        if not (machine.is_damaged or (is_first and self._is_spare(machine))):
            return None
        return machine if self._faults.may_stop(machine) else None

    def _bit_flip(self, chance: Random) -> bool:
        """While the machine is down: what was read before is in its memory, and is right."""
        machine = self._to_damage(chance)
        if machine is None:
            return False
        machine.is_damaged = True
        self._crash(machine, power=chance.random() < 0.5, down_us=chance.randint(*DOWN_US))
        files = [(name, size) for name, size in machine.disk.files().items() if size]
        for _ in range(chance.randint(1, FLIPS_MAX)):
            name, size = chance.choice(files)
            machine.disk.flip(name, chance.randrange(size), 1 << chance.randrange(8))
        return True

    def _lie(self, chance: Random, *, misdirects: bool) -> bool:
        """Some writes of the next seconds are lost, or land elsewhere; then the power fails."""
        machine = self._to_damage(chance)
        if machine is None:
            return False
        machine.is_damaged = True
        self._site.tell(machine, "has a disk that lies")
        machine.disk.lie(Lies(chance, LYING_SHARE, misdirects))
        self._faults.later(chance.randint(*LYING_US), partial(self._shows, machine, chance))
        return True

    def _shows(self, machine: Machine, chance: Random) -> None:
        machine.disk.lie(None)
        if machine.up and not machine.leaving:
            self._crash(machine, power=True, down_us=chance.randint(*DOWN_US))

    def _sync_error(self, chance: Random) -> bool:
        """The store stops for good at the first error; somebody starts the node again."""
        machine = self._faults.pick(chance, self._has_help)
        if machine is None:
            return False
        self._site.tell(machine, "has a disk that fails")

        def fail(operation: str, path: str) -> None:
            if operation == "sync":
                machine.has_failed = True
                raise OSError(errno.EIO, "the simulated disk fails", path)

        machine.disk.before = fail
        life = machine.lives
        self._faults.later(
            chance.randint(*FAILED_US), partial(self._start_again, machine, life, chance)
        )
        return True

    def _start_again(self, machine: Machine, life: int, chance: Random) -> None:
        machine.disk.behave()
        if machine.up and machine.lives == life and not machine.leaving:
            self._crash(machine, power=True, down_us=chance.randint(*FAILED_US))

    def _full_disk(self, chance: Random) -> bool:
        machine = self._faults.pick(chance, self._follows_only)
        is_any_full = any(each.disk.capacity_bytes is not None for each in self._site.machines)
        if machine is None or is_any_full:
            return False
        self._site.tell(machine, "has a full disk")
        room = chance.randrange(ROOM_BYTES_MAX)
        machine.disk.capacity_bytes = sum(machine.disk.files().values()) + room
        self._faults.later(chance.randint(*FULL_US), partial(self._make_room, machine))
        return True

    def _make_room(self, machine: Machine) -> None:
        machine.disk.capacity_bytes = None
