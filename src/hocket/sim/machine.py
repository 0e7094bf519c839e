"""One simulated machine: a disk, clocks, a way to its clients, and the production node on it.

A machine has lives. A crash ends one: its timers and jobs never happen, its disk loses what was not
synced, its clients' connections break. The next begins on the same disk. While a machine is
*stalled* (a loop that is stuck, a process that is suspended) nothing happens on it; messages and
timers wait, and all come at once when it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, get_args

from hocket.core.raft.membership import Configuration
from hocket.core.relay.messages import RelayMessage
from hocket.core.ring.contact import Contact
from hocket.node.cluster.cluster_node import ClusterNode
from hocket.node.cluster.ring_member import MemberSettings
from hocket.node.settings import TICK_US, NodeSettings
from hocket.sim.disk import SimDisk
from hocket.sim.executor import SimExecutor
from hocket.sim.links import SimLinks
from hocket.sim.network import SimNetwork
from hocket.sim.scheduler import Scheduler
from hocket.sim.swarm import Options, log_settings
from hocket.timers import Timer

if TYPE_CHECKING:
    from random import Random

PPM = 1_000_000
RELAYED = frozenset(get_args(RelayMessage))
DISK_US_MAX = 2_000  # that a read or a write takes, as a rule
LEAVING_US_MAX = 5_000_000  # a node that cannot say goodbye goes without


class Gated(Timer):
    """A timer of a machine: when it is due it asks whether the machine stands still, or is gone."""

    __slots__ = ("_time",)

    def __init__(self, action: Callable[[], object], time: MachineTime) -> None:
        self.action = action
        self._time = time

    def __call__(self) -> None:
        time = self._time
        if time.backlog is not None:
            time.backlog.append(self)
            return
        action, self.action = self.action, None
        if action is not None and not time.ended:
            # As in `Machine.turn`: half of all events are timers of machines.
            machine = time.machine
            machine.site.active = machine
            action()
            if machine.node is not None:
                machine.node.node.end_turn()


class MachineTime(Scheduler):
    """The scheduler as one machine has it: it stalls with the machine and ends with it, its
    timers run a little fast or slow, and its streams of chance are the machine's own."""

    def __init__(self, machine: Machine, scheduler: Scheduler) -> None:
        self.machine = machine
        self._under = scheduler
        self._rate_ppm = machine.drift_ppm
        self.backlog: list[Timer] | None = None  # while stalled: what waits
        self.ended = False

    def now_us(self) -> int:
        return self._under.time_us

    def random(self, stream: str) -> Random:
        return self._under.random(f"{self.machine.name}/{stream}")

    def at(self, time_us: int, action: Callable[[], None]) -> Timer:
        timer = Gated(action, self)
        under = self._under
        now_us = under.time_us
        under.timers.put(time_us if time_us > now_us else now_us, timer)
        return timer

    def after(self, delay_us: int, action: Callable[[], None]) -> Timer:
        timer = Gated(action, self)
        under = self._under
        if delay_us > 0:
            delay_us += delay_us * self._rate_ppm // PPM
        under.timers.put(under.time_us + max(delay_us, 0), timer)
        return timer

    def do(self, action: Callable[[], object]) -> None:
        """Now, or when the machine goes on."""
        if self.backlog is not None:
            self.backlog.append(Gated(action, self))
        elif not self.ended:
            self.machine.turn(action)

    def stall(self) -> None:
        if self.backlog is None:
            self.backlog = []

    def resume(self) -> None:
        """What has waited happens now, in the order in which it came, one event each."""
        backlog, self.backlog = self.backlog, None
        for timer in backlog or ():
            self._under.put(0, timer)


class DriftingClock:
    """A wall clock that is wrong from the start, and grows more so."""

    def __init__(self, scheduler: Scheduler, *, skew_us: int, drift_ppm: int) -> None:
        self._scheduler = scheduler
        self._start_us = scheduler.now_us()
        self.skew_us = skew_us
        self.drift_ppm = drift_ppm

    def now_us(self) -> int:
        now_us = self._scheduler.time_us
        if not self.drift_ppm:
            return now_us + self.skew_us
        return now_us + self.skew_us + (now_us - self._start_us) * self.drift_ppm // PPM


class Surroundings(Protocol):
    """What a machine needs of the site that it stands on."""

    scheduler: Scheduler
    options: Options
    cluster: str
    links: SimLinks
    active: Machine | None
    tree_moved: bool

    def capacity_of(self, machine: Machine) -> int: ...
    def convicted(self, by: Machine, contact: Contact) -> None: ...
    def ending(self, machine: Machine) -> None: ...


class Machine:
    def __init__(self, site: Surroundings, name: str, position: int) -> None:
        self.name = name
        self.address = f"{name}:4150"
        self.position = position
        self.keeps = False  # it holds what the run needs: it comes back after every crash
        self.holds = False  # it may be given replicas; it comes back unless others have them, too
        self.node: ClusterNode | None = None  # None: it is down
        self.lives = 0
        self.stalled = False
        self.leaving = False
        self.gone = False  # for good
        self.is_damaged = False  # its disk has lied: others must be able to do without it
        self.left = False  # it is down because it left, and is in nobody's list
        self.has_failed = False  # its disk, in this life: nothing more is written
        self.restart: Timer | None = None  # it is down, and comes back then
        self._known_configurations: list[Configuration] = []  # in its last life
        self.seen_changes = 0  # of the ring member, by the site
        self.seen_me: Contact | None = None
        self.seen_metadata = -1  # how far it had applied the metadata, when it was looked at last
        self.site = site
        self._scheduler = site.scheduler
        chance = site.scheduler.random(f"{name}/clock")
        options = site.options
        self.drift_ppm = chance.randint(-options.drift_ppm_max, options.drift_ppm_max)
        self.clock = DriftingClock(
            site.scheduler,
            skew_us=chance.randint(-options.skew_us_max, options.skew_us_max),
            drift_ppm=self.drift_ppm,
        )
        self.disk = SimDisk()
        self._disk_us_max = DISK_US_MAX
        self._door = MachineTime(self, site.scheduler)  # of the clients; outlives a life
        self.network = SimNetwork(self._door)
        self.time = MachineTime(self, site.scheduler)
        self._executor = SimExecutor(self.time)

    @property
    def up(self) -> bool:
        return self.node is not None

    @property
    def reachable(self) -> bool:
        """It runs, and every other machine's messages get to it."""
        return self.up and not self.stalled and not self.site.links.is_cut_off(self.address)

    @property
    def is_member(self) -> bool:
        """It runs, and belongs to a ring as far as it knows."""
        return self.node is not None and self.node.ring.core.standing in ("member", "small")

    @property
    def waits_to_join(self) -> bool:
        """It runs, and stays away for a while: it has come back too often."""
        if self.node is None:
            return False
        joining = self.node.ring.core.joining
        return joining is not None and not joining.has_begun

    @property
    def is_founder(self) -> bool:
        return self.name == self.site.cluster

    @property
    def leads(self) -> bool:
        """It runs, and is the root as far as it knows."""
        return self.node is not None and self.node.group0.leads

    def configurations(self) -> list[Configuration]:
        """Those of group 0 that it knows: the one in force, and those that are under way.

        While it is down, those that it knew then: it comes back with them.
        """
        if self.node is None:
            return [] if self.gone else self._known_configurations
        replica = self.node.node.group0.replica
        if replica is None:
            return []
        group = replica.raft.group
        return [group.configuration, *(change for _index, change in group.changes)]

    @property
    def me(self) -> Contact | None:
        """Its life on the ring, if it is up."""
        return None if self.node is None else self.node.ring.core.me

    # --- lives -----------------------------------------------------------------------------

    def boot(self) -> None:
        """Its next life begins; it is not on the ring yet."""
        assert self.node is None
        self.lives += 1
        self.left = False
        self.has_failed = False
        self.restart = None
        self.time = MachineTime(self, self._scheduler)
        self._executor = SimExecutor(self.time, delay_us_max=self._disk_us_max)
        random = self.time.random
        node = self.node = ClusterNode(
            NodeSettings(
                name=self.name,
                cluster=self.site.cluster,
                log=log_settings(self.name),
                popular=self.site.options.popular,
            ),
            self._member_settings(),
            disk=self.disk,
            executor=self._executor,
            clock=self.clock,
            network=self.network,
            timers=self.time,
            links=self.site.links,
            chance=random("chance"),
            entropy=random("entropy").randbytes,
            relay=self.site.options.relay(),
            raft=self.site.options.raft(),
        )
        node.ring.on_died.append(partial(self.site.convicted, self))
        self.network.node = node.node
        self.seen_changes = 0
        self.seen_me = node.ring.core.me
        self.seen_metadata = -1
        self.site.links.open(self.address, self)
        self._tick(node)

    def begin(self, members: tuple[Contact, ...], root: str) -> None:
        """As a member of exactly this ring, which all its members begin with."""
        node = self.node
        assert node is not None
        self.turn(lambda: node.ring.begin(members, root))

    def start(self, seeds: Sequence[str]) -> None:
        """Its next life, which enters the ring by way of these addresses."""
        self.boot()
        node = self.node
        assert node is not None
        self.turn(lambda: node.start(seeds))

    def does_not_start(self) -> None:
        """Its disk is damaged in such a way that it must not go on."""
        self.node = None
        self.gone = True
        self.time.ended = True
        self.network.node = None
        self.disk.kill()

    def _member_settings(self) -> MemberSettings:
        return MemberSettings(
            node=self.name,
            address=self.address,
            position=self.position,
            capacity=self.site.capacity_of(self),
            ring=self.site.options.ring(),
        )

    def _tick(self, node: ClusterNode) -> None:
        node.tick()
        self.time.after(TICK_US, lambda: self._tick(node))

    def turn(self, action: Callable[[], object]) -> None:
        """Everything that happens on this machine happens by way of this."""
        self.site.active = self
        action()
        node = self.node
        if node is not None:
            node.node.end_turn()

    def crash(self, *, power: bool) -> None:
        """The process is killed; with `power` so is the machine: unsynced data is lost, and
        nobody's connection is told."""
        self._end(silently=power)
        self._executor.crash()
        if power:
            self.disk.crash(self._scheduler.random(f"{self.name}/disk"))
        else:
            self.disk.kill()

    def leave(self, left: Callable[[], None]) -> None:
        """Say goodbye to the ring, then stop; `left` is called when it has."""
        node = self.node
        assert node is not None
        self.leaving = True
        deadline_us = self._scheduler.now_us() + LEAVING_US_MAX
        self.turn(node.ring.leave)

        def look() -> None:
            over = node.ring.core.standing == "outside"
            if over or self._scheduler.now_us() >= deadline_us:
                node.node.say_goodbye("the machine is going down")
                node.close()
                self._end(silently=False)
                self.disk.kill()
                left()
            else:
                self.time.after(TICK_US, look)

        self.time.after(TICK_US, look)

    def _end(self, *, silently: bool) -> None:
        if self.stalled:
            self.resume()
        self.site.ending(self)
        self._known_configurations = self.configurations()
        self.node = None
        self.leaving = False
        self.time.ended = True
        self.network.node_died()
        self.site.links.shut(self.address, silently=silently)

    # --- what comes from other machines ------------------------------------------------------

    def heard(self, sender: Contact, to_incarnation: int, message: object) -> None:
        node = self.node
        assert node is not None
        if type(message) in RELAYED:
            self.site.tree_moved = True
        time = self.time
        if time.backlog is not None or time.ended:
            time.do(partial(node.heard, sender, to_incarnation, message))
            return
        self.site.active = self  # as in `turn`: most that happens on machines is this
        node.heard(sender, to_incarnation, message)
        if self.node is not None:
            self.node.node.end_turn()

    def link_lost(self, contact: Contact) -> None:
        node = self.node
        assert node is not None
        self.time.do(lambda: node.link_lost(contact))

    def process_gone(self, contact: Contact) -> None:
        """It was dialled again, and nobody is there."""
        node = self.node
        assert node is not None
        self.time.do(lambda: node.link_broken(contact.node, process_gone=True))

    # --- faults ------------------------------------------------------------------------------

    def slow_disk(self, delay_us_max: int) -> None:
        self._disk_us_max = delay_us_max
        if self.node is not None:
            self._executor.delay_us_max = delay_us_max

    def stall(self) -> None:
        self.stalled = True
        self.time.stall()
        self._door.stall()

    def resume(self) -> None:
        self.stalled = False
        self.time.resume()
        self._door.resume()
