"""Runs a suite of contests, ours against peers, in one process and interleaved.

Rule 1: nothing here knows what is measured; a contender is a name and a function from a count to
        a sample (metric name -> value). Suites for other levels reuse this file as it is.
Rule 2: every contender of a contest gets the same count in every round, and the order is turned
        round from one round to the next, so that neither side always runs on the warmer machine.

`ours` and `peer_value` are medians over the rounds. The peer of a row is the one that it names, or
the one with the best median in this very run. `ratio` is the quotient of the two medians, taken so
that more is better for us. `spread` is [lower quartile, upper quartile] of the ratios of the single
rounds.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks import report

ROUNDS_DEFAULT = 9  # at least 5 are asked of us; more steady the medians on a busy machine
ROUNDS_QUICK = 2  # a smoke test: shows that everything runs, says nothing about speed
WARM_UP_PART = 10  # before the rounds every contender runs once with a tenth of the count

tqdm.monitor_interval = 0  # no thread that watches: it would run beside what is measured

Sample = Mapping[str, float]
Samples = dict[str, list[Sample]]  # contender name -> one sample for each round


@dataclass(slots=True)
class Contender:
    """One side of a contest: `measure(count)` does the work and returns what it saw."""

    name: str
    measure: Callable[[int], Sample]


@dataclass(slots=True)
class Row:
    """One line of the results: which metric of a contest is compared, and what is asked of it."""

    name: str
    metric: str
    unit: str
    at_least: float | None  # the ratio asked for; None: the row is only shown
    aim: float | None = None
    less_is_better: bool = False
    also: tuple[str, ...] = ()  # further metrics of ours, shown beside the row
    note: str = ""
    why: str = ""  # shown when the row falls short: what the profile says
    against: str | None = None  # the peer; None: the best of all


@dataclass(slots=True)
class Contest:
    """What is measured together: ours, its peers, and the rows read out of their samples."""

    ours: Contender
    peers: Sequence[Contender]
    rows: Sequence[Row]
    count: int
    quick_count: int
    rounds: int | None = None  # None: as many as all others; else with this count all the same
    settings: Sequence[str] = field(default_factory=tuple)  # what makes it fair, for the page


def fixed(name: str, **sample: float) -> Contender:
    """A peer that is a number and not a program: a ceiling, say."""
    return Contender(name, lambda _count: sample)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]


# --- measuring -----------------------------------------------------------------------------------


def run_contest(contest: Contest, *, rounds: int, count: int, title: str = "") -> Samples:
    contenders = [contest.ours, *contest.peers]
    samples: Samples = {contender.name: [] for contender in contenders}
    with tqdm(total=(rounds + 1) * len(contenders), desc=title, unit="run", leave=False) as shown:
        for contender in contenders:
            contender.measure(max(1, count // WARM_UP_PART))
            shown.update()
        for number in range(rounds):
            for contender in contenders if number % 2 == 0 else reversed(contenders):
                gc.collect()  # nobody pays for the garbage of the one before
                samples[contender.name].append(contender.measure(count))
                shown.update()
    return samples


def values_of(samples: Samples, name: str, metric: str) -> list[float]:
    return [sample[metric] for sample in samples[name]]


def peer_of(contest: Contest, row: Row, samples: Samples) -> str:
    if row.against is not None:
        return row.against
    choose = min if row.less_is_better else max
    names = [peer.name for peer in contest.peers]
    return choose(names, key=lambda name: statistics.median(values_of(samples, name, row.metric)))


def ratio_of(row: Row, ours: float, peer: float) -> float:
    return peer / ours if row.less_is_better else ours / peer


def quartiles(values: Sequence[float]) -> list[float]:
    if len(values) < 2:
        return [values[0], values[0]]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


def judge(contest: Contest, row: Row, samples: Samples) -> dict[str, Any]:
    """The finished row, as it is written to the JSON file."""
    peer = peer_of(contest, row, samples)
    our_values = values_of(samples, contest.ours.name, row.metric)
    peer_values = values_of(samples, peer, row.metric)
    ours, peer_value = statistics.median(our_values), statistics.median(peer_values)
    ratio = ratio_of(row, ours, peer_value)
    by_round = [ratio_of(row, *pair) for pair in zip(our_values, peer_values, strict=True)]
    return {
        "row": row.name,
        "ours": ours,
        "peer": peer,
        "peer_value": peer_value,
        "unit": row.unit,
        "ratio": ratio,
        "spread": quartiles(by_round),
        "at_least": row.at_least,
        "met": None if row.at_least is None else ratio >= row.at_least,
        "aim": row.aim,
        "better": "less" if row.less_is_better else "more",
        "rounds": len(our_values),
        "ours_by_round": our_values,
        "peer_by_round": peer_values,
        "other_peers": {
            other.name: statistics.median(values_of(samples, other.name, row.metric))
            for other in contest.peers
            if other.name != peer
        },
        "also": {
            name: statistics.median(values_of(samples, contest.ours.name, name))
            for name in row.also
        },
        "settings": list(contest.settings),
        "note": row.note,
        "why": row.why,
    }


# --- the command ---------------------------------------------------------------------------------


def parse_arguments(suite: str, arguments: Sequence[str] | None, rounds: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{suite}", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=None, help=f"default {rounds}")
    parser.add_argument("--quick", action="store_true", help="few messages, 2 rounds: a smoke test")
    parser.add_argument(
        "--rows",
        metavar="SUBSTRING",
        action="append",
        help="only the rows with this in their name; may be given several times",
    )
    parser.add_argument(
        "--merge",
        action="store_true",
        help="put the rows of this run in the place of those of their names in the files, which "
        "keep the others; each row says when it was measured",
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="where the files go; by default benchmarks/results, for whole runs only",
    )
    chosen = parser.parse_args(arguments)
    if chosen.merge and chosen.quick:
        parser.error("the numbers of a --quick run mean nothing: they are not merged")
    chosen.rounds = chosen.rounds or (ROUNDS_QUICK if chosen.quick else rounds)
    return chosen


def choose_rows(contests: Sequence[Contest], substrings: Sequence[str] | None) -> list[Contest]:
    wanted = [each.lower() for each in substrings or [""]]
    chosen = []
    for contest in contests:
        contest.rows = [
            row for row in contest.rows if any(each in row.name.lower() for each in wanted)
        ]
        if contest.rows:
            chosen.append(contest)
    return chosen


def results_directory(chosen: argparse.Namespace) -> Path | None:
    """A quick run or one of some rows must not replace the results of a whole run by accident."""
    if chosen.results:
        return Path(chosen.results)
    if chosen.quick or (chosen.rows and not chosen.merge):
        return None
    return Path(__file__).parent / "results"


def main(
    suite: str,
    title: str,
    contests: Sequence[Contest],
    arguments: Sequence[str] | None = None,
    *,
    rounds: int = ROUNDS_DEFAULT,
    about: Mapping[str, str] | None = None,
) -> int:
    """Run the suite, print its table, write SUITE.json, SUITE.md and SUITE.png.

    `about` is what the page says of this run beside the machine: versions, what was left out.
    """
    chosen = parse_arguments(suite, arguments, rounds)
    order = [row.name for contest in contests for row in contest.rows]
    contests = choose_rows(contests, chosen.rows)
    if not contests:
        print(f"no row has {' or '.join(chosen.rows)} in its name", file=sys.stderr)
        return 2
    directory = results_directory(chosen)
    machine = {**report.describe_machine(), **(about or {})}
    other_work = report.OtherWork()
    started = time.perf_counter()
    results = []
    for number, contest in enumerate(contests, start=1):
        name = f"[{number}/{len(contests)}] " + "; ".join(row.name for row in contest.rows)
        begun, others = time.perf_counter(), report.OtherWork()
        count = contest.quick_count if chosen.quick else contest.count
        rounds = contest.rounds or chosen.rounds
        samples = run_contest(contest, rounds=rounds, count=count, title=name)
        measured = report.when_and_where(others) | {"count": f"{count:,}"}
        judged = [judge(contest, row, samples) | {"measured": measured} for row in contest.rows]
        ratios = ", ".join(f"{result['ratio']:.2f}x" for result in judged)
        print(f"{name} {ratios} ({time.perf_counter() - begun:.1f} s)", file=sys.stderr)
        results += judged
        if chosen.merge and directory:  # at once: a run that is cut off keeps what it has measured
            each = dict.fromkeys(("date", "took", "other processes"), "see each row")
            rows = report.merged(report.kept(directory, suite), judged, order)
            report.write(directory, suite, title, rows, machine | each)
    machine["took"] = f"{time.perf_counter() - started:.0f} s"
    machine["other processes"] = other_work.describe()
    if chosen.quick:
        machine["beware"] = "a --quick run: a smoke test whose numbers mean nothing"
    print(report.text_table(results))
    print(f"other processes took {machine['other processes']}")
    if directory is None:
        print("(not written to files: not a whole run, and no --results DIR)", file=sys.stderr)
    else:
        if not chosen.merge:
            report.write(directory, suite, title, results, machine)
        print(f"written: {directory / suite}.json, .md, .png", file=sys.stderr)
    return 0
