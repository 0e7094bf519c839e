"""The chapters on a ring at rest: how long routes are, and what its maintenance costs."""

from __future__ import annotations

from math import log2
from time import perf_counter

from hocket.core.ring.settings import SECOND, RingSettings
from hocket.sim.scale.asking import Asking, ask_for
from hocket.sim.scale.figures import Cell, Chapter, Options, Table, share
from hocket.sim.scale.quiet import without_collecting
from hocket.sim.scale.statistics import histogram, mean
from hocket.sim.scale.world import World, fingers_only

LOOKUPS = 4_000  # for each measurement of hops and shares

STABILIZING = ("GetState", "StateIs", "Notify", "Busy")
ROUTING = ("GetCloser", "CloserAre")
PROBING = ("Ping", "Pong")


def formula_hops(nodes: int) -> float:
    """Chord's formula: half of the binary logarithm of the number of nodes."""
    return log2(nodes) / 2


# --- routes ---------------------------------------------------------------------------------------


def lookups(options: Options) -> Chapter:
    """Hops of lookups, by fingers alone, and with all nodes that a node has heard of as routes."""
    rows: list[list[Cell]] = []
    series: dict[str, object] = {"sizes": options.sizes()}
    for size in options.sizes():
        options.say(f"lookups: {size:,} nodes")
        with World(options.seed, fingers_only()) as world, without_collecting():
            world.build(size)
            answers = ask_for(world, LOOKUPS, 20)
        curve = _with_cache(size, options)
        rows.append(
            [
                size,
                formula_hops(size),
                answers.mean_hops,
                answers.p99_hops,
                answers.probes / answers.asked,
                mean(answers.duration_us) / 1000,
                share(answers.right_share),
                curve[0],
                curve[-1],
            ]
        )
        series[str(size)] = {
            "hops": list(histogram(answers.hops).items()),
            "mean": answers.mean_hops,
            "p99": answers.p99_hops,
            "cached": curve,
        }
    columns = [
        "nodes>", "½ log₂ N>", "hops, mean>", "hops, p99>", "questions>", "time, ms>", "right>",
        "first lookup of a node>", "its 200th>",
    ]  # fmt: skip
    return Chapter("lookups", [Table("lookups", columns, rows)], series, options.run())


def _with_cache(size: int, options: Options) -> list[float]:
    """Mean hops for a few nodes that ask often: routes get shorter as a node hears of others."""
    askers, each = 40, 200
    with World(options.seed) as world, without_collecting():
        world.build(size)
        chance = world.scheduler.random("askers")
        addresses = chance.sample(list(world.members), min(askers, size))
        curve: list[float] = []
        batch = 10
        for _ in range(each // batch):
            asking = Asking(world, per_second=len(addresses) * batch, askers=addresses)
            world.run_seconds(1)
            asking.stop()
            world.run_seconds(1)
            curve.append(asking.answers.mean_hops)
    return curve


# --- maintenance ----------------------------------------------------------------------------------


def maintenance(options: Options) -> Chapter:
    """The messages of a ring at rest, by kind, compared with the formulas."""
    rows: list[list[Cell]] = []
    series: dict[str, object] = {}
    for size in options.sizes():
        options.say(f"maintenance: {size:,} nodes for {options.seconds} s")
        began = perf_counter()
        with World(options.seed) as world, without_collecting():
            world.build(size)
            built = perf_counter()
            world.run_seconds(options.seconds)
            events = world.scheduler.events
            sent = {
                kind: count / size / options.seconds for kind, count in world.wires.sent.items()
            }
            settled = world.unsettled() == 0
        ended = perf_counter()
        options.say(
            f"maintenance: {size:,} nodes: built in {built - began:.1f} s, {events:,} events in "
            f"{ended - built:.1f} s{'' if settled else '; NOT ideal at the end'}"
        )
        rows += _maintenance_rows(size, sent, world.settings)
        series[str(size)] = {"sent": sent, "events": events}
    columns = ["nodes>", "for", "messages a node and second>", "formula>", "the formula"]
    return Chapter("maintenance", [Table("maintenance", columns, rows)], series, options.run())


def _maintenance_rows(
    size: int, sent: dict[str, float], settings: RingSettings
) -> list[list[Cell]]:
    def together(kinds: tuple[str, ...]) -> float:
        return sum(sent.get(kind, 0.0) for kind in kinds)

    period = settings.stabilize_us / SECOND
    finger = settings.finger_us / SECOND
    beacon = settings.beacon_us / SECOND
    named = (*STABILIZING, *ROUTING, *PROBING, "BeaconIs")
    others = sum(count for kind, count in sent.items() if kind not in named)
    rows: list[list[Cell]] = [
        [size, "stabilization", together(STABILIZING), 3 / period, "3 / T"],
        [
            size,
            "lookups of fingers",
            together(ROUTING),
            2 * formula_hops(size) / finger,
            "2 · ½ log₂ N / 60 s",
        ],
        [
            size,
            "choice of the nearest finger",
            together(PROBING),
            2 * settings.finger_candidates / finger,
            "2 · candidates / 60 s",
        ],
        [size, "beacon", together(("BeaconIs",)), (size - 1) / size / beacon, "1 / 5 s"],
    ]
    total = sum(sent.values())
    if others:
        rows.append([size, "others", others, None, ""])
    rows.append([size, "all", total, None, ""])
    return rows
