"""What befalls nodes that keep replicas. Each fault is a generator: it lasts from `next` to `next`.

A fault that leaves a majority of every partition must not stop its clients: not while it lasts, and
not when it ends.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random

import hocket
from hocket.node_frames import HelloAccepted, HelloRefused
from tests.support.cluster.certified import certify
from tests.support.cluster.disks import SmallDisk
from tests.support.cluster.networks import Room
from tests.support.cluster.processes import READY_SECONDS, Cluster, Process, wait_for
from tests.support.cluster.stranger import STORE, Stranger, nonsense

SILENCE_SECONDS = 5.0  # beyond the longest election timeout
DOWN_SECONDS_MAX = 1.0
LED_SECONDS = 30.0
FIRST_GROUP = 1  # of the topic, which is the first that was made
BEGINS = "hocket.node: store "  # what a node says first
SAYS_SECONDS = 10.0
ANOTHER_CLUSTER = "6" * 32
NONSENSE = (
    f"it is no member of group {FIRST_GROUP}",
    "entry 3 does not match its checksum",
    "a message of Raft of the unknown kind 99",
)
IDENTITY = ("hocket.json", "hocket.copy.json", "node.json")  # which store a directory is

Fault = Iterator[None]


@dataclass
class Faults:
    """`names` are those of the nodes that keep replicas; the first is the root."""

    cluster: Cluster
    names: list[str]
    topic: str
    client: hocket.Client
    chance: Random
    room: Room | None = None
    disks: Mapping[str, SmallDisk] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ids = {self.cluster[name].node: name for name in self.names}
        self._lost = 0

    # --- who is who ------------------------------------------------------------------------------

    def leaders(self) -> list[str]:
        """Of each partition the name of the node that leads it; empty: nobody is known to."""
        found = self.client.describe(self.topic).partitions
        return [self._ids.get(each.leader, "") for each in found]

    def homes(self) -> list[str]:
        found = self.client.describe(self.topic).partitions
        return [self._ids[each.replicas[0]] for each in found]

    def wait_led(self) -> list[str]:
        found: list[str] = []

        def are_led() -> bool:
            found[:] = self.leaders()
            return all(found)

        wait_for(are_led, LED_SECONDS, self.leaders)
        return found

    def wait_even(self, seconds: float = 60.0) -> None:
        """All replicas have everything."""

        def are_even() -> bool:
            partitions = self.client.describe(self.topic).partitions
            return all({each.lag for each in p.replica_states} == {0} for p in partitions)

        wait_for(are_even, seconds, lambda: self.client.describe(self.topic))

    def wait_at_home(self, seconds: float = 60.0) -> None:
        """Every partition is led by its home again, so that load is spread."""
        wait_for(
            lambda: self.leaders() == self.homes(),
            seconds,
            lambda: f"led by {self.leaders()}, at home at {self.homes()}",
        )

    def _leader(self) -> str:
        return self.wait_led()[0]

    def _follower(self) -> str:
        """Of the first partition, too; where nodes are more than replicas some have none of it."""
        leader = self._leader()
        kept = {self._ids[each] for each in self.client.describe(self.topic).partitions[0].replicas}
        return self.chance.choice([name for name in self.names if name in kept - {leader}])

    # --- deaths ----------------------------------------------------------------------------------

    def _kill(self, *names: str) -> Fault:
        for name in names:
            self.cluster[name].kill()
        yield
        time.sleep(self.chance.uniform(0, DOWN_SECONDS_MAX))  # how long they stay away
        self.cluster.restart(*names)

    def leader_killed(self) -> Fault:
        return self._kill(self._leader())

    def follower_killed(self) -> Fault:
        return self._kill(self._follower())

    def root_killed(self) -> Fault:
        return self._kill(self.names[0])

    def two_killed(self) -> Fault:
        """Of five replicas; the leader is one of them."""
        leader = self._leader()
        return self._kill(leader, self.chance.choice([n for n in self.names if n != leader]))

    def all_killed(self) -> Fault:
        """So nobody can go on before they are back."""
        for name in self.names:
            self.cluster[name].kill()
        self.cluster.restart(*self.names)
        yield

    def leader_ended(self) -> Fault:
        """SIGTERM, as when a node is brought up to date."""
        name = self._leader()
        assert self.cluster[name].end() == 0
        yield
        self.cluster.restart(name)

    def leader_stopped(self) -> Fault:
        """SIGSTOP: its connections stay, and it takes no part. When it wakes, another one leads."""
        node = self.cluster[self._leader()]
        node.stop()
        yield
        time.sleep(SILENCE_SECONDS)
        node.go_on()

    def leader_stopped_shortly(self) -> Fault:
        """About as long as it takes until another one is elected."""
        node = self.cluster[self._leader()]
        node.stop()
        time.sleep(self.chance.uniform(0.5, 4.0))
        node.go_on()
        yield

    def directory_lost(self) -> Fault:
        """A node loses its data, and comes back as another store; then the data is found again.

        With its old identity and nothing else it does not start: its votes and what it had
        acknowledged would be forgotten. It is not the root, without which no store is let in.
        """
        leader = self._leader()
        name = self.chance.choice([each for each in self.names[1:] if each != leader])
        old = self.cluster[name]
        old.kill()
        kept = old.data.with_name(f"{old.name}-kept")
        old.data.rename(kept)
        old.data.mkdir()
        for file in IDENTITY:
            shutil.copy(kept / file, old.data)
        old.begin(*self.cluster.options)
        assert old.wait_end(READY_SECONDS) == 1, old.said()
        assert "without which the log cannot be read" in old.said().splitlines()[-1], old.said()
        shutil.rmtree(old.data)
        self._lost += 1
        other = self.cluster.add(f"{old.name}-{self._lost}")
        other.host, other.prefix, other.url = old.host, old.prefix, old.url
        if old.tls_ca is not None:
            certify(self.cluster, other, old.host)
        seed = self.cluster[next(name for name in self.names if name != old.name)]
        other.start("--join", seed.address, *self.cluster.options)
        yield
        described = self.client.describe(self.topic).partitions
        assert not any(other.node in each.replicas for each in described)
        other.kill()
        kept.rename(old.data)
        self.cluster.restart(old.name)

    def follower_full(self) -> Fault:
        """Of a topic with one partition, so that it leads nothing; nor is it the root."""
        leader = self._leader()
        name = self.chance.choice([n for n in self.names[1:] if n != leader])
        return self._fill(name)

    def leader_full(self) -> Fault:
        """It hands its leadership over, and so does the root if it is that."""
        return self._fill(self._leader())

    def _fill(self, name: str) -> Fault:
        self.disks[name].fill()
        yield
        time.sleep(SILENCE_SECONDS)
        self.disks[name].free()
        self.wait_even()

    def stranger_speaks(self) -> Fault:
        """To the leader and to a follower, in the name of a store that is no member; in plain."""
        assert self.room is None
        cluster = self.cluster[self.names[0]].ring().cluster
        for name in (self._leader(), self._follower()):
            node = self.cluster[name]
            with Stranger(node.address, cluster) as stranger:
                assert isinstance(stranger.answer, HelloAccepted)
                for _ in range(3):
                    stranger.say(nonsense(FIRST_GROUP))
                wait_for(partial(_refuses_once, node), SAYS_SECONDS, node.said)
            with Stranger(node.address, ANOTHER_CLUSTER) as stranger:
                assert isinstance(stranger.answer, HelloRefused)
        yield

    # --- cuts ------------------------------------------------------------------------------------

    def _cut(self, pairs: list[tuple[int, int]]) -> Fault:
        assert self.room is not None
        self.room.cut(pairs)
        yield
        time.sleep(SILENCE_SECONDS)
        self.room.mend()

    def _numbers(self, name: str) -> tuple[int, list[int]]:
        number = self.names.index(name) + 1
        return number, [each for each in range(1, len(self.names) + 1) if each != number]

    def leader_cut_off(self) -> Fault:
        """From the other nodes. Clients reach it."""
        one, others = self._numbers(self._leader())
        return self._cut([*((one, each) for each in others), *((each, one) for each in others)])

    def leader_mute(self) -> Fault:
        """What it says to the other nodes does not come; it hears them."""
        one, others = self._numbers(self._leader())
        return self._cut([(one, each) for each in others])

    def leader_deaf(self) -> Fault:
        one, others = self._numbers(self._leader())
        return self._cut([(each, one) for each in others])

    def two_cut_apart(self) -> Fault:
        """The leader and one follower; all others hear both."""
        leader, follower = self._leader(), self._follower()
        one, other = (self._numbers(name)[0] for name in (leader, follower))
        return self._cut([(one, other), (other, one)])

    def root_cut_off(self) -> Fault:
        one, others = self._numbers(self.names[0])
        return self._cut([*((one, each) for each in others), *((each, one) for each in others)])

    def leader_unplugged(self) -> Fault:
        """Nobody reaches it, clients neither."""
        assert self.room is not None
        number = self._numbers(self._leader())[0]
        self.room.unplug(number)
        yield
        time.sleep(SILENCE_SECONDS)
        self.room.plug_in(number)


def _refuses_once(node: Process) -> bool:
    """Whether the node has said once, in this life, what is wrong with each kind of nonsense."""
    said = node.said()
    life = said[said.rfind(BEGINS) :]
    return all(life.count(f"refused what node {STORE} says: {each}") == 1 for each in NONSENSE)


DEATHS = (
    Faults.leader_killed, Faults.follower_killed, Faults.root_killed, Faults.all_killed,
    Faults.leader_ended, Faults.leader_stopped, Faults.leader_stopped_shortly,
    Faults.directory_lost, Faults.stranger_speaks,
)  # fmt: skip
CUTS = (
    Faults.leader_cut_off, Faults.leader_mute, Faults.leader_deaf, Faults.two_cut_apart,
    Faults.root_cut_off, Faults.leader_unplugged,
)  # fmt: skip
