"""What a benchmark run leaves behind: a table for the terminal, a JSON file, a page and a plot."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

Result = Mapping[str, Any]

PEER_PACKAGES = ("culsans", "janus", "pyzmq", "uvloop")
HEADINGS = ("row", "ours", "peer", "peer's", "unit", "ratio", "spread", "at least", "aim", "met")


# --- numbers and words ---------------------------------------------------------------------------


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def verdict(result: Result) -> str:
    return {None: "shown", True: "yes", False: "NO"}[result["met"]]


def shortfall(result: Result) -> str:
    missing = 1 - result["ratio"] / result["at_least"]
    return f"{times(result['ratio'])} of {times(result['at_least'])} asked, {missing:.0%} short"


def cells(result: Result) -> tuple[str, ...]:
    low, high = result["spread"]
    return (
        result["row"],
        number(result["ours"]),
        result["peer"],
        number(result["peer_value"]),
        result["unit"],
        times(result["ratio"]),
        f"{low:.2f} to {high:.2f}",
        times(result["at_least"]) or "shown",
        times(result["aim"]),
        verdict(result),
    )


def describe_machine() -> dict[str, str]:
    """What the numbers depend on."""
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in PEER_PACKAGES)
    return {
        "date": date(),
        "processor": processor(),
        "system": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}, "
        f"switch interval {sys.getswitchinterval() * 1000:.0f} ms",
        "peers": packages,
    }


def date() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def processor() -> str:
    return f"{processor_name()}, {os.cpu_count()} cores"


def processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def family_seconds() -> float:
    """Processor time of this process and of all that it has started: brokers, Java, workers."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for found in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = found.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        process = int(found.parent.name)
        parents[process] = int(fields[1])
        ticks[process] = sum(map(int, fields[11:15]))  # its own, and of its children that ended
    family = {os.getpid()}
    while more := {each for each, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks[each] for each in family) / os.sysconf("SC_CLK_TCK")


class OtherWork:
    """How many cores other processes kept busy, on average, since this object was made.

    It matters more than one would think: with both cores free, two threads of one process sit on
    different cores and each hand-over costs some 50 us; beside other work they often share one
    core, and hand-overs are ten times as fast.
    """

    cores_max = 0.1  # beyond that the page warns

    def __init__(self) -> None:
        self.started = self.look()

    @staticmethod
    def look() -> tuple[float, float]:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy - family_seconds()

    def cores(self) -> float:
        (then, before), (now, after) = self.started, self.look()
        return max(0.0, (after - before) / max(now - then, 1e-9))

    def describe(self) -> str:
        cores = self.cores()
        warning = ": a busy machine, read the numbers with care" if cores > self.cores_max else ""
        return f"{cores:.2f} of {os.cpu_count()} cores on average{warning}"


def when_and_where(others: OtherWork) -> dict[str, str]:
    """Of a row that was measured just now. Rows of several runs can stand side by side with it."""
    return {"date": date(), "processor": processor(), "other processes": others.describe()}


# --- the table -----------------------------------------------------------------------------------


def text_table(results: Sequence[Result]) -> str:
    lines = [HEADINGS, *(cells(result) for result in results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in text)


def markdown_line(line: Sequence[str]) -> str:
    return "| " + " | ".join(line) + " |"


# --- the page ------------------------------------------------------------------------------------


def row_section(result: Result) -> list[str]:
    """All contenders of a row with their medians, its settings and notes, and what is missing."""
    low, high = result["spread"]
    unit = result["unit"]
    lines = [f"### {result['row']}", ""]
    if result["met"] is False:
        lines += [f"**Falls short: {shortfall(result)}.** {result['why'] or 'Not explained yet.'}"]
        lines += [""]
    lines += [f"- ours: {number(result['ours'])} {unit}"]
    lines += [f"- {result['peer']} (the peer): {number(result['peer_value'])} {unit}"]
    lines += [f"- {name}: {number(value)} {unit}" for name, value in result["other_peers"].items()]
    lines += [f"- ours, {name}: {number(value)}" for name, value in result["also"].items()]
    lines += [
        f"- {times(result['ratio'])}, rounds {result['rounds']}, spread {low:.2f} to {high:.2f}"
    ]
    lines += [f"- {text}" for text in result["settings"]]
    if measured := result.get("measured"):
        lines += ["- measured: " + ", ".join(f"{name} {text}" for name, text in measured.items())]
    if result["note"]:
        lines += [f"- {result['note']}"]
    return [*lines, ""]


def page(suite: str, title: str, results: Sequence[Result], machine: Mapping[str, str]) -> str:
    lines = [f"# {title}", "", f"Written by `make bench-{suite}`; do not edit by hand.", ""]
    lines += [f"- {name}: {value}" for name, value in machine.items()]
    lines += [
        "",
        "Ours and the peers run in turn in one process, in an order that alternates by round.",
        "`ours` and `peer's` are medians over the rounds; the peer is the one that the row names,",
        "or else the best of those listed in this run; `ratio` is their quotient (more is better",
        "for us); `spread` is the lower and the upper quartile of the rounds' own ratios, so on a",
        "restless machine `ratio` itself may lie outside it; `met` compares `ratio` with",
        "`at least`.",
        "",
        markdown_line(HEADINGS),
        markdown_line(["---"] * len(HEADINGS)),
        *(markdown_line(cells(result)) for result in results),
        "",
        f"![ratios]({suite}.png)",
        "",
        "## Row by row",
        "",
    ]
    for result in results:
        lines += row_section(result)
    return "\n".join(lines)


# --- the plot ------------------------------------------------------------------------------------

MET_COLOURS = {True: "#3a8f5c", False: "#c0504d", None: "#7f8fa6"}
AT_LEAST_COLOUR, AIM_COLOUR = "#c00000", "#e0a100"
RATIO_SHOWN_MAX = 8.0  # longer bars are cut here, their number still says how long they are
RATIO_SHOWN_MIN = 1 / 8


def within_plot(ratio: float) -> float:
    return min(max(ratio, RATIO_SHOWN_MIN), RATIO_SHOWN_MAX)


def draw_row(axes: Any, place: int, result: Result) -> None:
    """A bar from 1.0x to the ratio, the spread as a thin line over it, and the two marks."""
    ratio = within_plot(result["ratio"])
    low, high = map(within_plot, result["spread"])
    axes.barh(place, ratio - 1, left=1, height=0.5, color=MET_COLOURS[result["met"]], zorder=2)
    axes.plot([low, high], [place, place], "|-", color="black", markersize=8, zorder=4)
    right = max(ratio, high, 1)
    if result["at_least"] is not None:
        ends = [place - 0.4, place + 0.4]
        axes.plot([result["at_least"]] * 2, ends, color=AT_LEAST_COLOUR, linewidth=2.5, zorder=3)
        right = max(right, result["at_least"])
    if result["aim"] is not None:
        axes.plot(result["aim"], place, "D", color=AIM_COLOUR, markersize=7, zorder=3)
        right = max(right, result["aim"])
    axes.annotate(
        f"{times(result['ratio'])}  ({number(result['ours'])} {result['unit']})",
        (right, place),
        xytext=(9, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
    )


def draw_scale(axes: Any, results: Sequence[Result]) -> None:
    """A log scale, so that 2x and 0.5x lie equally far from 1x."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.axvline(1, color="black", linewidth=1, zorder=3)
    axes.set_xscale("log")
    lowest = min(within_plot(min(result["ratio"], result["spread"][0])) for result in results)
    axes.set_xlim(min(0.28, lowest / 1.15), RATIO_SHOWN_MAX * 2.8)  # room for the numbers
    axes.xaxis.set_major_locator(FixedLocator([2.0**power for power in range(-3, 4)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}x"))
    axes.set_xlabel("ratio to the peer, more is better (log scale)")
    labels = [f"{result['row']}\nagainst {result['peer']}" for result in results]
    axes.set_yticks(range(len(results)), labels, fontsize=8.5)
    axes.invert_yaxis()
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)


def plot(path: Path, title: str, results: Sequence[Result]) -> None:
    import matplotlib  # only here: it takes a second, and the table needs none of it

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    size = (11, 1.8 + 0.6 * len(results))
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    for place, result in enumerate(results):
        draw_row(axes, place, result)
    draw_scale(axes, results)
    axes.set_title(title)
    legend = [
        Patch(color=MET_COLOURS[True], label="met"),
        Patch(color=MET_COLOURS[False], label="not met"),
        Patch(color=MET_COLOURS[None], label="only shown"),
        Line2D([], [], color=AT_LEAST_COLOUR, linewidth=2.5, label="at least"),
        Line2D([], [], color=AIM_COLOUR, marker="D", linestyle="", label="aim"),
        Line2D([], [], color="black", marker="|", label="quartiles of the rounds"),
    ]
    figure.legend(handles=legend, loc="outside lower center", ncols=len(legend), frameon=False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def kept(directory: Path, suite: str) -> list[Result]:
    """The rows of the file, but for those that do not say when they were measured."""
    try:
        found: list[Result] = json.loads((directory / f"{suite}.json").read_text())
    except FileNotFoundError:
        return []
    return [result for result in found if "measured" in result]


def merged(
    before: Sequence[Result], results: Sequence[Result], order: Sequence[str]
) -> list[Result]:
    """The new rows, and those of before that are not among them, in the suite's order.

    Rows that the suite has not, or not any more, are left out.
    """
    found = {result["row"]: result for result in [*before, *results]}
    return [found[name] for name in order if name in found]


def write(
    directory: Path, suite: str, title: str, results: Sequence[Result], machine: Mapping[str, str]
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{suite}.json").write_text(json.dumps(results, indent=2) + "\n")
    (directory / f"{suite}.md").write_text(page(suite, title, results, machine))
    plot(directory / f"{suite}.png", title, results)
