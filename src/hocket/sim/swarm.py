"""What a seed decides before anything happens: which faults strike, how often, and all sizes.

A run in which everything goes wrong all the time explores little: it never gets anywhere. So each
seed switches on its own subset of the faults ("swarm testing", Groce et al., ISSTA 2012), and draws
its own rates. Limits are tiny, so that a run of a minute crosses every border.

Runs have a temper. A *still* one has no faults at all: what breaks there is plainly broken. In a
*single* one a relay crashes now and then, and nothing else happens: there the time that repair
takes can be measured. In a *split* one the network is cut in halves, for so long that each of them
becomes a ring of its own. In a *stopped* one all machines are stopped in order at once, and come
back by what they remember. In a *calm* one nothing happens that could make a living node look dead
for long, so failure detection is as good as perfect, and the ring's invariants are demanded all the
way: they rest on that. In a *wild* one there are cuts, clogs and long stalls; once somebody has
been deceived, the ring only has to become whole again after the faults stop.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

from hocket.core.raft.settings import RaftSettings
from hocket.core.relay.settings import RelaySettings
from hocket.core.ring.settings import RingSettings
from hocket.log.settings import LogSettings
from hocket.sim.links import Weather

SECOND = 1_000_000

CALM = (
    "loss", "duplication", "reordering", "tails", "breaks", "slow", "join", "join_storm", "leave",
    "crash", "flap", "amnesia", "stall", "slow_disk", "clocks",
)  # fmt: skip
WILD = (*CALM, "cut", "cut_one_way", "cut_partly", "clog", "long_stall")
# Faults that a partition with several replicas survives, and one with a single replica does not; or
# that would keep all others of a run from happening.
OF_REPLICAS = (
    "leader_crash", "blackout", "lost_for_good", "bit_flip", "lost_write", "misdirected_write",
    "sync_error", "full_disk", "leader_cut", "leader_stall",
)  # fmt: skip
DECEIVING = ("leader_cut", "leader_stall")  # of those, what makes a living node look dead
GUARDED = ("leader_crash", "lost_for_good", "full_disk")  # those that stop one machine, or none
EVERY, SINGLE_AT, SPLIT_AT = 16, 5, 11  # seed % 16 == 5: single; seed % 16 == 11: split
RARE, SMALL_AT = 64, 17  # seed % 64 == 17: a ring that stays small, and loses a machine for good
STOPPED_AT = 49  # seed % 64 == 49: all machines are stopped in order at once, and started again
REPLICATED_AT = (6, 7, 9, 12, 13, 14, 15)  # in these topics have several replicas ...
BEYOND_AT = 13  # ... and in these more of them are lost than can be borne
TRANSACTING_AT = 15  # one of those, in which some publish by transactions, too
ALWAYS = ("crash", "join")  # in every run with faults: without churn the ring has nothing to do


@dataclass(slots=True)
class Options:
    """All that a seed decides; printed with a failing seed."""

    temper: str
    faults: tuple[str, ...]  # the kinds that may strike
    guarded: bool  # no node is crashed that the ring's proof needs
    fault_every_us: int  # on the average
    safety_us: int  # how long faults strike
    nodes: int  # at the beginning
    nodes_max: int  # together with nodes that join
    successors: int
    spread: str  # of positions: "hashed", "even" or "crowded"
    routes_max: int
    parallel_probes: int
    loss: float
    duplication: float
    reordering: float
    tails: float
    tail_us_max: int
    skew_us_max: int
    drift_ppm_max: int  # of wall clocks and of timers
    topics: int
    partitions: int  # of each topic
    producers: int  # of each topic
    batches: int  # of each producer and partition
    record_bytes_max: int
    consumers: int
    slow_consumers: float  # the share of those that give credit late
    credit_bytes: int
    children_max: int  # of a relay
    window_bytes: int  # that a relay keeps
    fetch_bytes: int  # credit of a fetch
    lookups_every_us: int  # on the average
    changes_every_us: int = 0  # of topics and users, on the average; 0: there are none
    raft_entries: int = 8  # of a group, in one message
    subscribers: int = 0  # of each topic, with an index each
    workers: int = 0  # of each topic, with one shared index
    replicas: tuple[int, ...] = ()  # of each topic; one of those that are not named
    holders: int = 0  # machines that may be given replicas
    publishers: int = 0  # of each topic with several replicas: they send single messages
    kept_bytes: int | None = None  # of each partition; None: all of it
    transactors: int = 0  # of a topic of their own with three replicas
    keyed: bool = False  # records have keys, and of replicated topics the index is shared by key
    beyond: bool = False  # a majority of some replicas is lost for good: their group has to stop
    popular: int = 32  # more subscribers of a partition than this are served at their homes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def has(self, kind: str) -> bool:
        return kind in self.faults

    def weather(self) -> Weather:
        return Weather(
            loss=self.loss,
            duplication=self.duplication,
            reordering=self.reordering,
            tails=self.tails,
            tail_us_max=self.tail_us_max,
        )

    def ring(self) -> RingSettings:
        return RingSettings(
            successors=self.successors,
            stabilize_us=SECOND,
            retry_us=50_000,
            query_us=200_000,
            query_us_min=60_000,
            query_us_max=300_000,
            suspicion_us_min=500_000,
            finger_us=3 * SECOND,
            finger_candidates=3,
            parallel_probes=self.parallel_probes,
            lookup_us_max=3 * SECOND,
            routes_max=self.routes_max,
            beacon_us=SECOND,
            beacon_stale_us=6 * SECOND,
            rejoin_jitter_us=2 * SECOND,
            registry_reply_max=max(4, self.successors),
        )

    def relay(self) -> RelaySettings:
        return RelaySettings(
            children_max=self.children_max,
            window_bytes=self.window_bytes,
            fetch_bytes=self.fetch_bytes,
            idle_us=3 * SECOND,
            collapse_us=8 * SECOND,
        )

    def replicas_of(self, topic: int) -> int:
        return self.replicas[topic] if topic < len(self.replicas) else 1

    def raft(self) -> RaftSettings:
        """A fifth of a server's times, and messages so small that many are under way."""
        return RaftSettings(
            heartbeat_us=SECOND // 10,
            election_us=SECOND * 4 // 10,
            election_jitter_us=SECOND * 4 // 10,
            stagger_us=SECOND // 50,
            stall_us_max=SECOND // 5,
            idle_us=SECOND,
            snapshot_us=3 * SECOND,
            entries_max=self.raft_entries,
            in_flight_max=4,
        )


def log_settings(store_id: str) -> LogSettings:
    """Limits so small that every border is crossed often."""
    return LogSettings(
        new_store_id=store_id,
        wal_file_bytes=8192,
        wal_file_bytes_min=8192,
        wal_files_kept=1,  # the log has its own worlds; here a full disk is full sooner
        commit_bytes_max=4096,
        checkpoint_bytes=6000,
        checkpoint_interval_us=2 * SECOND,
        mark_after_us=500_000,
        slab_bytes=2048,
        slab_bytes_min=512,
        index_interval_bytes=512,
        reserve_bytes=4096,
    )


@dataclass(slots=True)
class _Draw:
    """Draw one value after the other. Draw a new one last, so that the others stay the same."""

    chance: Random
    faults: tuple[str, ...] = field(default=())

    def share(self, kind: str, least: float, most: float) -> float:
        drawn = round(self.chance.uniform(least, most), 4)
        return drawn if kind in self.faults else 0.0

    def amount(self, kind: str, least: int, most: int) -> int:
        drawn = self.chance.randint(least, most)
        return drawn if kind in self.faults else 0


def options_of(seed: int) -> Options:
    """The same for the same seed, on any machine."""
    options = _tempered(seed)
    chance = Random(f"{seed}/popular")
    # There are few subscribers: 0 sends every one of them home, 1 sends them to and fro.
    popular = chance.choice([0, 32] if options.temper == "still" else [0, 0, 1, 32])
    return replace(options, popular=popular)


def _tempered(seed: int) -> Options:
    options = _drawn(seed)
    if seed % RARE == SMALL_AT:
        return _small(options)
    if seed % RARE == STOPPED_AT:
        return _stopped(options)
    if seed % EVERY == SINGLE_AT:
        return _single(options)
    if seed % EVERY in REPLICATED_AT:
        options = _replicated(options, Random(f"{seed}/replication"))
        if seed % EVERY == TRANSACTING_AT:
            options = replace(options, transactors=2)
        return _beyond(options) if seed % EVERY == BEYOND_AT else options
    return _split(options) if seed % EVERY == SPLIT_AT else options


def _single(options: Options) -> Options:
    """One partition with a crowd at it, and crashes far from each other."""
    return replace(
        options, temper="single", faults=("crash",), guarded=True, fault_every_us=12 * SECOND,
        safety_us=50 * SECOND, nodes=10, nodes_max=10, loss=0.0, duplication=0.0, reordering=0.0,
        tails=0.0, skew_us_max=0, drift_ppm_max=0, topics=1, partitions=1, producers=1,
        batches=150, consumers=12, slow_consumers=0.0, credit_bytes=20_000, children_max=2,
    )  # fmt: skip


def _small(options: Options) -> Options:
    """Four machines that live by the registry. One in five crashes is for good: then a name stays
    in the registry that nobody answers to, and lookups have to pass it by for long."""
    return replace(
        options, temper="calm", faults=("crash",), guarded=True, fault_every_us=8 * SECOND,
        safety_us=50 * SECOND, nodes=4, nodes_max=4, successors=3, loss=0.0, duplication=0.0,
        reordering=0.0, tails=0.0, skew_us_max=0, drift_ppm_max=0, topics=1, partitions=1,
        producers=1, batches=5, consumers=1, slow_consumers=0.0, lookups_every_us=SECOND // 10,
        changes_every_us=0, subscribers=0, workers=0,
    )  # fmt: skip


def _stopped(options: Options) -> Options:
    """Few machines, which an operator stops all at once, in order, and starts again, now and then.
    They come back by what they remember. Some of the rings stabilize, and some are small."""
    nodes = 3 + options.nodes % 3
    return replace(
        options, temper="stopped", faults=("shutdown", "crash"), guarded=False,
        fault_every_us=4 * SECOND, safety_us=50 * SECOND, nodes=nodes, nodes_max=nodes, loss=0.0,
        duplication=0.0, reordering=0.0, tails=0.0, skew_us_max=0, drift_ppm_max=0,
    )  # fmt: skip


def _replicated(options: Options, chance: Random) -> Options:
    """Topics with several replicas, and faults that they must survive.

    There are few machines and little else to do, so that most of what happens happens to replicas.
    """
    replicas = chance.choice([(3,), (3,), (3,), (3, 2), (3, 1), (5,), (5, 3)])
    nodes = max(replicas) + chance.choice([0, 0, 1, 2])
    guarded = options.guarded and chance.random() < 0.3
    kinds = tuple(kind for kind in OF_REPLICAS if chance.random() < 0.4)
    if options.temper != "wild":
        kinds = tuple(kind for kind in kinds if kind not in DECEIVING)
    if guarded:
        kinds = tuple(kind for kind in kinds if kind in GUARDED)
    faults = options.faults + (kinds if options.temper != "still" else ())
    # Where older records go, a copy that was away is sent the state. Consumers are not waited for
    # there, and would miss something.
    kept_bytes = chance.choice([None, None, 4_096])
    consumers = 0 if kept_bytes else chance.choice([1, 2, 3])
    return replace(
        options, faults=faults, guarded=guarded, kept_bytes=kept_bytes,
        fault_every_us=chance.choice([300_000, 600_000, 1_000_000]), nodes=nodes,
        nodes_max=nodes + 2, replicas=replicas, holders=chance.randint(max(replicas), nodes),
        topics=len(replicas), partitions=chance.choice([1, 1, 2]), producers=chance.choice([1, 2]),
        batches=chance.choice([20, 40]) * (2 if kept_bytes else 1), consumers=consumers,
        subscribers=1, publishers=1, workers=chance.choice([0, 2]), lookups_every_us=2 * SECOND,
        changes_every_us=chance.choice([0, SECOND]), keyed=chance.choice([False, True]),
    )  # fmt: skip


def _beyond(options: Options) -> Options:
    """So many machines that those who are lost are a minority, as the ring demands."""
    nodes = 2 * options.holders + 1
    return replace(options, beyond=True, guarded=False, nodes=nodes, nodes_max=nodes + 1)


def _split(options: Options) -> Options:
    """A cut that leaves two rings, and no other fault that would join them again.

    Nodes have room for all routes, as real ones do: those who lose all their successors go on with
    the nodes that they know.
    """
    nodes = 8 + options.nodes % 9
    return replace(
        options, temper="split", faults=("cut",), guarded=True, fault_every_us=3 * SECOND,
        safety_us=25 * SECOND, nodes=nodes, nodes_max=nodes, routes_max=64, loss=0.0,
        duplication=0.0, reordering=0.0, tails=0.0, skew_us_max=0, drift_ppm_max=0,
    )  # fmt: skip


def _drawn(seed: int) -> Options:
    chance = Random(f"{seed}/swarm")
    temper = chance.choices(["still", "calm", "wild"], [1, 9, 8])[0]
    draw = _Draw(chance, _faults(chance, temper))
    wild = temper == "wild"
    successors = chance.choice([2, 2, 3, 3, 4])
    nodes = _nodes(chance, successors)
    window_pieces = chance.choice([1, 3, 3, 10])
    record_bytes = chance.choice([8, 60, 60, 300])
    return Options(
        temper=temper,
        faults=draw.faults,
        guarded=not wild or chance.random() < 0.6,
        fault_every_us=chance.choice([300_000, 600_000, 1_000_000, 2_000_000]),
        safety_us=chance.choice([20, 30, 40]) * SECOND,
        nodes=nodes,
        nodes_max=min(16, nodes + chance.randint(2, 6)),
        successors=successors,
        spread=chance.choice(["hashed", "hashed", "even", "crowded"]),
        routes_max=chance.choice([0, 4, 8, 64]),
        parallel_probes=chance.choice([1, 2, 2, 3]),
        loss=draw.share("loss", 0.001, 0.2 if wild else 0.04),
        duplication=draw.share("duplication", 0.001, 0.2),
        reordering=draw.share("reordering", 0.001, 0.3),
        tails=draw.share("tails", 0.001, 0.05),
        tail_us_max=chance.choice([20_000, 100_000, 1_500_000 if wild else 100_000]),
        skew_us_max=draw.amount("clocks", 0, 60 * SECOND),
        drift_ppm_max=draw.amount("clocks", 0, 2_000),
        topics=chance.choice([1, 1, 2]),
        partitions=chance.choice([1, 1, 2]),
        producers=chance.choice([1, 1, 2]),
        batches=chance.choice([20, 40]),
        record_bytes_max=record_bytes,
        consumers=chance.randint(2, 12),
        slow_consumers=chance.choice([0.0, 0.0, 0.2, 0.5]),
        credit_bytes=chance.choice([200, 2_000, 20_000]),
        children_max=chance.choice([2, 2, 3, 4]),
        window_bytes=window_pieces * (4 * record_bytes + 120),
        fetch_bytes=chance.choice([300, 1_500, 1_500, 20_000]),
        lookups_every_us=chance.choice([200_000, 400_000]),
        changes_every_us=chance.choice([300_000, 1_000_000]),
        raft_entries=chance.choice([2, 8, 30]),
        subscribers=chance.choice([1, 1, 2]),
        workers=chance.choice([0, 2, 3]),
    )


def _faults(chance: Random, temper: str) -> tuple[str, ...]:
    if temper == "still":
        return ()
    kinds = WILD if temper == "wild" else CALM
    return tuple(kind for kind in kinds if chance.random() < 0.5 or kind in ALWAYS)


def _nodes(chance: Random, successors: int) -> int:
    """Mostly rings that stabilize; also rings of one, and rings that just outgrow the registry."""
    return chance.choice(
        [1, 2, successors, successors + 1, successors + 2, successors + 2, successors + 3,
         8, 8, 10, 12]
    )  # fmt: skip
