"""What the measurements say: rows against what is asked and against peers, and one table of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import report
from benchmarks.fanout.measure import Load
from benchmarks.fanout.redis_streams import ALWAYS
from benchmarks.runner import Contender, Contest, Row, Sample, Samples, fixed, judge

SPREAD, LEADER = "hocket, spread", "hocket, all at the leader"
SPREAD_MAX = 1.3  # times the mean, for the busiest node and for the leader, from 100 consumers on
LINKS_MAX = 1.3  # times what the owner sends to other nodes with 100 consumers, with 1,000
POPULAR_FROM = 100
# Seen with the collector switched off in all of our processes; shown where a row falls short.
WHY = {
    "p50": "it stays 1.15 to 1.18 ms when nothing collects garbage in any of our processes: what "
    "is left is Python's work for each batch and consumer",
    "p99": "it is 2.5 to 2.8 ms when nothing collects garbage in any of our processes: collecting "
    "what is new takes a millisecond or two at a time, the rest is Python's work for each batch",
}

Crowds = Mapping[int, Mapping[str, Sample]]  # consumers -> side -> what it did

TABLE = (
    ("p50", "p50, ms"),
    ("p99", "p99, ms"),
    ("egress", "owner's egress, KiB/s"),
    ("links", "to other nodes, KiB/s"),
    ("most", "busiest node, of mean"),
    ("leader", "leader, of mean"),
    ("server cpu", "servers' cores"),
    ("client cpu", "clients' cores"),
)
HEADINGS = ("consumers", "side", *(heading for _, heading in TABLE))


def named(name: str) -> Contender:
    return Contender(name, lambda _count: {})


def of_one_node(samples: Samples, load: Load) -> list[dict[str, Any]]:
    """A row for each durability: like is compared with like."""
    setting = (
        f"one node, {load.rate:,} messages/s of {load.value_bytes} B, {load.consumers} "
        "consumers in one process, each with an index of its own and acknowledging; from when "
        "a message was due until its consumer had it"
    )
    collector = (
        "before they begin, producers and consumers of every side set aside what they have loaded, "
        "so that Python's collector does not go through it"
    )
    memory = {name: found for name, found in samples.items() if name not in ("hocket", ALWAYS)}
    synced = {name: found for name, found in samples.items() if name in ("hocket", ALWAYS)}
    return [
        *_of_durability(
            load, memory, "memory",
            [setting, "nobody waits for the disk: ours has durability memory, the peers sync now "
             "and then, which is their default", collector],
        ),
        *_of_durability(
            load, synced, "on disk",
            [setting, "ours is on disk before anybody gets it, its default; Redis syncs each "
             "write before it answers", collector],
        ),
    ]  # fmt: skip


def _of_durability(
    load: Load, samples: Samples, durability: str, settings: Sequence[str]
) -> list[dict[str, Any]]:
    if len(samples) < 2:
        return []
    ours, *peers = samples
    contest = Contest(
        named(ours), [named(peer) for peer in peers], [], count=1, quick_count=1, settings=settings
    )
    also = ("server cpu", "client cpu", "egress")
    name = f"{load.consumers} consumers at {load.rate:,}/s, {durability}"
    return [
        judge(
            contest,
            Row(f"{name}, {part}", part, "ms", 1.0, less_is_better=True, also=also, why=why),
            samples,
        )
        for part, why in WHY.items()
    ]  # fmt: skip


def of_five_nodes(crowds: Crowds, load: Load) -> list[dict[str, Any]]:
    setting = (
        f"five nodes, {load.rate} messages/s of {load.value_bytes} B; each consumer is a client by "
        f"itself; {load.looking_max} look at every message, and the others count bytes, 20 times a "
        "second; all processes on this machine",
        "peers: one server each",
    )
    found = []
    for count, sides in crowds.items():
        samples: Samples = {name: [sample] for name, sample in sides.items()}
        peers = [named(name) for name in sides if name != SPREAD]
        contest = Contest(named(SPREAD), peers, [], count=1, quick_count=1, settings=setting)
        name = f"{count:,} consumer{'s' if count > 1 else ''}"
        rows = [
            Row(f"{name}, p50", "p50", "ms", None, less_is_better=True, against=LEADER),
            Row(f"{name}, p99", "p99", "ms", None, less_is_better=True, against=LEADER),
            Row(f"{name}, owner's egress", "egress", "KiB/s", None, less_is_better=True,
                against=LEADER),
        ]  # fmt: skip
        found += [judge(contest, row, samples) for row in rows]
        if count >= POPULAR_FROM:
            found += spread_rows(name, sides[SPREAD], setting)
    popular = [count for count in crowds if count >= POPULAR_FROM]
    if len(popular) > 1:
        found.append(flat_row(popular[0], popular[-1], crowds, setting))
    return found


def spread_rows(name: str, sample: Sample, setting: Sequence[str]) -> list[dict[str, Any]]:
    asked = fixed("asked", most=SPREAD_MAX, leader=SPREAD_MAX)
    contest = Contest(named(SPREAD), [asked], [], count=1, quick_count=1, settings=setting)
    samples: Samples = {SPREAD: [sample], "asked": [asked.measure(1)]}
    rows = [
        Row(f"{name}, busiest node, times the mean", "most", "x", 1.0, less_is_better=True),
        Row(f"{name}, the leader's, times the mean", "leader", "x", 1.0, less_is_better=True),
    ]
    return [judge(contest, row, samples) for row in rows]


def flat_row(few: int, many: int, crowds: Crowds, setting: Sequence[str]) -> dict[str, Any]:
    """That the owner sends other nodes no more for many consumers than for few."""
    grown = crowds[many][SPREAD]["links"] / crowds[few][SPREAD]["links"]
    asked = fixed("asked", grown=LINKS_MAX)
    contest = Contest(named(SPREAD), [asked], [], count=1, quick_count=1, settings=setting)
    row = Row(f"owner to other nodes, {many:,} consumers to {few}", "grown", "x", 1.0,
              less_is_better=True)  # fmt: skip
    return judge(contest, row, {SPREAD: [{"grown": grown}], "asked": [asked.measure(1)]})


def lines(crowds: Crowds) -> list[tuple[str, ...]]:
    return [
        (f"{count:,}", name, *(shown(sample, metric) for metric, _ in TABLE))
        for count, sides in crowds.items()
        for name, sample in sides.items()
    ]


def shown(sample: Sample, metric: str) -> str:
    return report.number(sample[metric]) if metric in sample else ""


def text_table(crowds: Crowds) -> str:
    table = [HEADINGS, *lines(crowds)]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    )


def section(crowds: Crowds) -> str:
    table = [HEADINGS, ["---"] * len(HEADINGS), *lines(crowds)]
    text = ["## All that was measured on five nodes", "", *map(report.markdown_line, table), ""]
    return "\n".join([*text, "![consumers](fanout_consumers.png)", ""])
