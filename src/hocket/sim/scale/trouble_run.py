"""The chapters on a ring in trouble: churn, many crashes at once, a crowd that joins, a cut.

Crashes are silent: no node is told, and nodes find out by questions that are not answered.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hocket.core.ring.settings import SECOND
from hocket.sim.scale.asking import Answers, Asking, ask_for
from hocket.sim.scale.figures import Cell, Chapter, Options, Table, share
from hocket.sim.scale.quiet import without_collecting
from hocket.sim.scale.statistics import percentile
from hocket.sim.scale.world import World, fingers_only

LOOKUPS = 4_000
CHURN_RATES = (0.05, 0.1, 0.2, 0.4)  # joins a second, and as many crashes, for 1,000 nodes
CRASHED_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
CRASHED_AT_ONCE = 0.3
CROWD_SECONDS = 60
CUT_SECONDS = 60
BACK_SECONDS_MAX = 300  # after which waiting for an ideal ring is given up

# Ion Stoica et al., Chord: A Scalable Peer-to-peer Lookup Protocol for Internet Applications,
# IEEE/ACM Transactions on Networking 11(1), 2003, Table II: mean path length, and timeouts a
# lookup, by the share of 1,000 nodes that failed at once (successor lists of 20).
PUBLISHED_CRASHED = {
    0.0: (3.84, 0.0),
    0.1: (4.03, 0.60),
    0.2: (4.22, 1.17),
    0.3: (4.44, 2.02),
    0.4: (4.69, 3.23),
    0.5: (5.09, 5.10),
}


@dataclass(slots=True)
class WayBack:
    """How a ring in trouble became ideal. None: not reached within BACK_SECONDS_MAX."""

    in_order_seconds: int | None = None  # first successors are right: one ring
    ideal_seconds: int | None = None
    right: list[list[float]] = field(default_factory=list)  # second, share of right lookups
    astray: list[list[float]] = field(default_factory=list)  # second, share of wrong successors

    def right_within(self, seconds: float) -> float:
        """The share of right lookups among those asked in the first seconds."""
        early = [right for second, right in self.right if second < seconds]
        return sum(early) / len(early) if early else 0.0


def _seconds(taken: int | None) -> Cell:
    return f"> {BACK_SECONDS_MAX}" if taken is None else taken


def way_back(world: World, *, lookups_per_second: float = 40, every: int = 5) -> WayBack:
    """Let the ring mend itself, with lookups all the while, until it is ideal."""
    way = WayBack()
    asking = Asking(world, lookups_per_second)
    periods: list[tuple[int, Answers]] = []
    second = 0
    while second < BACK_SECONDS_MAX:
        astray = world.astray()
        way.astray.append([second, astray / len(world.members)])
        if not astray and way.in_order_seconds is None:
            way.in_order_seconds = second
        if not astray and not world.unsettled():
            way.ideal_seconds = second
            break
        world.run_seconds(1)
        second += 1
        if second % every == 0:
            periods.append((second - every, asking.turn_over()))
    asking.stop()
    world.run_seconds(world.settings.lookup_us_max / SECOND)
    periods.append((second - second % every, asking.answers))
    way.right = [[began, answers.right_share] for began, answers in periods if answers.asked]
    return way


# --- churn ----------------------------------------------------------------------------------------


def churn(options: Options) -> Chapter:
    """Lookups while nodes join and crash all the time."""
    size = min(options.nodes, 1_000)
    seconds = options.seconds * 5
    rows: list[list[Cell]] = []
    points: list[list[float]] = []
    for rate in CHURN_RATES:
        options.say(f"churn: {size:,} nodes, {rate} joins and crashes a second for {seconds} s")
        with World(options.seed, fingers_only()) as world, without_collecting():
            world.build(size)
            _keep_coming(world, rate)
            _keep_crashing(world, rate)
            _keep_looking(world)
            answers = ask_for(world, 10 * seconds, seconds)
            joins, crashes = world.joins, world.crashes
        rows.append(
            [
                rate,
                joins,
                crashes,
                answers.asked,
                answers.mean_hops,
                answers.p99_hops,
                answers.wasted_each,
                _in_10_000(answers, answers.unfound + answers.dead),
                _in_10_000(answers, answers.passed_over),
                _in_10_000(answers, answers.dead_first),
            ]
        )
        points.append([rate, answers.mean_hops, 1 - answers.right_share])
    columns = [
        "joins and crashes a second>", "joins>", "crashes>", "lookups>", "hops, mean>",
        "hops, p99>", "questions to the dead>", "of 10,000: not found>", "newcomer missed>",
        "right, but a dead one named first>",
    ]  # fmt: skip
    table = Table("churn", columns, rows)
    return Chapter("churn", [table], {"points": points, "nodes": size}, options.run())


def _in_10_000(answers: Answers, count: int) -> float:
    return 10_000 * count / answers.asked if answers.asked else 0.0


def _keep_coming(world: World, rate: float) -> None:
    chance = world.scheduler.random("joins")

    def come() -> None:
        world.join()
        world.scheduler.after(round(chance.expovariate(rate) * SECOND), come)

    world.scheduler.after(round(chance.expovariate(rate) * SECOND), come)


def _keep_crashing(world: World, rate: float) -> None:
    chance = world.scheduler.random("crashes")

    def crash() -> None:
        world.crash(world.victims(1, "victims")[0])
        world.scheduler.after(round(chance.expovariate(rate) * SECOND), crash)

    world.scheduler.after(round(chance.expovariate(rate) * SECOND), crash)


def _keep_looking(world: World) -> None:
    """The truth of who is on the ring, every second: a node may also leave it on its own."""

    def look() -> None:
        world.look()
        world.scheduler.after(SECOND, look)

    world.scheduler.after(SECOND, look)


# --- crashes at once ------------------------------------------------------------------------------


def crashed_at_once(options: Options) -> Chapter:
    """Lookups in the first second after many have crashed; then, at full size, the way back."""
    size = min(options.nodes, 1_000)
    settings = replace(fingers_only(), successors=20)  # as published
    rows: list[list[Cell]] = []
    points: list[list[float]] = []
    for crashed in CRASHED_SHARES:
        options.say(f"crash: {crashed:.0%} of {size:,} nodes")
        with World(options.seed, settings) as world, without_collecting():
            world.build(size)
            world.run_seconds(1)
            for address in world.victims(round(crashed * size), "victims"):
                world.crash(address)
            answers = ask_for(world, LOOKUPS, 1)
        hops, timeouts = PUBLISHED_CRASHED[crashed]
        rows.append(
            [
                share(crashed),
                answers.mean_hops,
                hops,
                answers.wasted_each,
                timeouts,
                share(answers.right_share),
                percentile(answers.duration_us, 0.99) / SECOND,
            ]
        )
        points.append([crashed, answers.mean_hops, answers.wasted_each, answers.right_share])
    columns = [
        "crashed>", "hops, mean>", "Chord's path length>", "questions to the dead>",
        "Chord's timeouts>", "right>", "time, p99, s>",
    ]  # fmt: skip
    table = Table("crash", columns, rows)
    recovery, way = _recovery(options)
    series = {"points": points, "astray": way.astray, "right": way.right}
    return Chapter("crash", [table, recovery], series, options.run())


def _recovery(options: Options) -> tuple[Table, WayBack]:
    size = options.nodes
    options.say(f"crash: {CRASHED_AT_ONCE:.0%} of {size:,} nodes, and the way back")
    with World(options.seed) as world, without_collecting():
        world.build(size)
        world.run_seconds(5)
        for address in world.victims(round(CRASHED_AT_ONCE * size), "victims"):
            world.crash(address)
        way = way_back(world)
        left = len(world.members)
        again = sum(member.core.me.incarnation > 1 for member in world.members.values())
    row: list[Cell] = [
        size,
        left,
        _seconds(way.in_order_seconds),
        _seconds(way.ideal_seconds),
        share(way.right_within(30)),
        share(way.right[-1][1]),
        again,
    ]
    columns = [
        "nodes>", "left>", "s until in order>", "s until ideal>", "right in the first 30 s>",
        "right at the end>", "had to join again>",
    ]  # fmt: skip
    return Table("recovery", columns, [row]), way


# --- a crowd --------------------------------------------------------------------------------------


def crowd(options: Options) -> Chapter:
    """Twice as many nodes within a minute."""
    size = options.nodes
    options.say(f"crowd: {size:,} nodes, and as many more within {CROWD_SECONDS} s")
    with World(options.seed) as world, without_collecting():
        world.build(size)
        chance = world.scheduler.random("joins")

        def joins(world: World = world) -> None:
            world.join()

        for _ in range(size):
            world.scheduler.after(chance.randrange(CROWD_SECONDS * SECOND), joins)
        asking = Asking(world, 40)
        world.run_seconds(CROWD_SECONDS)
        asking.stop()
        on_ring = len(world.contacts)
        way = way_back(world)
        meanwhile = asking.answers
    row: list[Cell] = [
        size,
        2 * size,
        on_ring,
        share(meanwhile.right_share),
        meanwhile.unfound,
        _seconds(way.in_order_seconds),
        _seconds(way.ideal_seconds),
    ]
    columns = [
        "nodes>", "then>", "on the ring after the minute>", "right meanwhile>", "not found>",
        "s until in order>", "s until ideal>",
    ]  # fmt: skip
    series = {"astray": way.astray, "right": way.right}
    return Chapter("crowd", [Table("crowd", columns, [row])], series, options.run())


# --- a cut ----------------------------------------------------------------------------------------


def cut(options: Options) -> Chapter:
    """Halves that cannot hear each other for a minute; then they can."""
    rows: list[list[Cell]] = []
    series: dict[str, object] = {}
    for size in options.sizes()[1:] or options.sizes():
        options.say(f"cut: {size:,} nodes in halves for {CUT_SECONDS} s, then healed")
        with World(options.seed) as world, without_collecting():
            world.build(size)
            far = set(world.victims(size // 2, "halves"))
            world.wires.cut({address: address in far for address in world.members})
            world.run_seconds(CUT_SECONDS)
            world.wires.heal()
            way = way_back(world)
            again = sum(member.core.me.incarnation > 1 for member in world.members.values())
        rows.append(
            [size, len(far), again, _seconds(way.in_order_seconds), _seconds(way.ideal_seconds),
             share(way.right[-1][1])]
        )  # fmt: skip
        series[str(size)] = {"astray": way.astray, "right": way.right}
    columns = [
        "nodes>", "cut off from the root>", "joined again>", "s until one ring in order>",
        "s until ideal>", "right at the end>",
    ]  # fmt: skip
    return Chapter("cut", [Table("cut", columns, rows)], series, options.run())
