"""The plots of a scale run, as SVG, drawn from the series of its chapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2
from pathlib import Path
from typing import Any

from hocket.errors import HocketError
from hocket.sim.scale.figures import Chapter
from hocket.sim.scale.trouble_run import PUBLISHED_CRASHED

OURS = "#1f77b4"
OTHER = "#ff7f0e"
FORMULA = "#777777"


class NoPlotting(HocketError):
    """The library that draws is not installed."""


def _pyplot() -> Any:
    try:
        import matplotlib  # only here: it takes a second, and tables need none of it
    except ImportError:
        raise NoPlotting("plots need matplotlib: pip install 'hocket[bench]'") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "hocket"  # the same figures give the same file
    from matplotlib import pyplot

    return pyplot


def plot(directory: Path, chapters: Sequence[Chapter]) -> list[Path]:
    """Draw those chapters that have a plot, and return the files that were written."""
    pyplot = _pyplot()
    written: list[Path] = []
    for chapter in chapters:
        draw = DRAWN.get(chapter.name)
        if draw is None:
            continue
        figure = draw(pyplot, chapter)
        path = directory / f"scale_{chapter.name}.svg"
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
        written.append(path)
    return written


def _axes(pyplot: Any, count: int = 1) -> tuple[Any, Any]:
    figure, axes = pyplot.subplots(1, count, figsize=(5.2 * count, 3.8), layout="constrained")
    for each in [axes] if count == 1 else axes:
        each.grid(color="#dddddd")
        each.set_axisbelow(True)
    return figure, axes


def lookups(pyplot: Any, chapter: Chapter) -> Any:
    figure, (grows, spread, cached) = _axes(pyplot, 3)
    sizes = chapter.series["sizes"]
    by_size = [chapter.series[str(size)] for size in sizes]
    grows.plot(sizes, [each["mean"] for each in by_size], "o-", color=OURS, label="mean")
    grows.plot(sizes, [each["p99"] for each in by_size], "s-", color=OTHER, label="p99")
    grows.plot(sizes, [log2(size) / 2 for size in sizes], "--", color=FORMULA, label="½ log₂ N")
    grows.set_xscale("log")
    grows.set_xlabel("nodes")
    grows.set_ylabel("hops")
    grows.set_title("path length, fingers only")
    grows.legend()
    for size, each in zip(sizes, by_size, strict=True):
        hops, shares = zip(*each["hops"], strict=True)
        spread.plot(hops, shares, "o-", label=f"{size:,} nodes")
        turns = range(10, 10 * len(each["cached"]) + 1, 10)
        cached.plot(turns, each["cached"], label=f"{size:,} nodes")
    spread.set_xlabel("hops")
    spread.set_ylabel("share of lookups")
    spread.set_title("how path lengths are spread")
    spread.legend()
    cached.set_xlabel("lookups that the node has made")
    cached.set_ylabel("hops, mean")
    cached.set_ylim(bottom=0)
    cached.set_title("with all nodes heard of as routes")
    cached.legend()
    return figure


def maintenance(pyplot: Any, chapter: Chapter) -> Any:
    figure, axes = _axes(pyplot)
    sizes = [name for name in chapter.series if name.isdigit()]
    kinds = sorted({kind for size in sizes for kind in chapter.series[size]["sent"]})
    bottom = [0.0] * len(sizes)
    names = [f"{int(size):,}" for size in sizes]
    for kind in kinds:
        heights = [chapter.series[size]["sent"].get(kind, 0.0) for size in sizes]
        if max(heights) < 0.002:
            continue  # too small to be seen
        axes.bar(names, heights, bottom=bottom, width=0.6, label=kind)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set_xlabel("nodes")
    axes.set_ylabel("messages a node and second")
    axes.set_title("what keeps the ring")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def churn(pyplot: Any, chapter: Chapter) -> Any:
    figure, (hops, wrong) = _axes(pyplot, 2)
    rates = [point[0] for point in chapter.series["points"]]
    hops.plot(rates, [point[1] for point in chapter.series["points"]], "o-", color=OURS)
    hops.set_ylim(bottom=0)
    hops.set_ylabel("hops, mean")
    wrong.plot(rates, [point[2] * 100 for point in chapter.series["points"]], "o-", color=OTHER)
    wrong.set_ylim(bottom=0)
    wrong.set_ylabel("lookups not right, %")
    for axes in (hops, wrong):
        axes.set_xlabel(f"joins, and crashes, a second ({chapter.series['nodes']:,} nodes)")
    hops.set_title("path length under churn")
    wrong.set_title("answers under churn")
    return figure


def crash(pyplot: Any, chapter: Chapter) -> Any:
    figure, (hops, wasted, back) = _axes(pyplot, 3)
    points = chapter.series["points"]
    crashed = [point[0] * 100 for point in points]
    published = [100 * share for share in PUBLISHED_CRASHED]
    for axes, place, name in ((hops, 1, "hops, mean"), (wasted, 2, "a lookup")):
        axes.plot(crashed, [point[place] for point in points], "o-", color=OURS, label="Hocket")
        theirs = [figures[place - 1] for figures in PUBLISHED_CRASHED.values()]
        axes.plot(published, theirs, "s--", color=FORMULA, label="Chord 2003, Table II")
        axes.set_xlabel("% of 1,000 nodes crashed at once")
        axes.set_ylabel(name)
        axes.set_ylim(bottom=0)
        axes.legend()
    hops.set_title("path length just after")
    wasted.set_title("questions to the dead (Chord: timeouts)")
    _mending(back, chapter.series)
    back.set_title(f"30 % of {chapter.run['nodes']:,} crashed: the way back")
    return figure


def _mending(axes: Any, series: dict[str, Any], name: str = "") -> None:
    seconds = [second for second, _ in series["astray"]]
    axes.plot(
        seconds,
        [100 * astray for _, astray in series["astray"]],
        color=OTHER,
        label=f"{name}wrong first successor",
    )
    axes.plot(
        [second for second, _ in series["right"]],
        [100 * (1 - right) for _, right in series["right"]],
        "o-",
        color=OURS,
        markersize=3,
        label=f"{name}lookups not right",
    )
    axes.set_xlabel("seconds")
    axes.set_ylabel("%")
    axes.set_ylim(bottom=0)
    axes.legend()


def crowd(pyplot: Any, chapter: Chapter) -> Any:
    figure, axes = _axes(pyplot)
    _mending(axes, chapter.series)
    axes.set_title("after the crowd has come")
    return figure


def cut(pyplot: Any, chapter: Chapter) -> Any:
    sizes = list(chapter.series)
    figure, axes = _axes(pyplot, len(sizes))
    for each, size in zip([axes] if len(sizes) == 1 else axes, sizes, strict=True):
        _mending(each, chapter.series[size])
        each.set_title(f"{int(size):,} nodes, since the cut was healed")
    return figure


def fanout(pyplot: Any, chapter: Chapter) -> Any:
    figure, (depths, repairs) = _axes(pyplot, 2)
    for size, series in chapter.series.items():
        steps, shares = zip(*series["depths"], strict=True)
        depths.plot(steps, shares, "o-", label=f"{int(size):,} nodes")
        times = series["repairs"]
        below = [100 * (place + 1) / len(times) for place in range(len(times))]
        repairs.plot(times, below, label=f"{int(size):,} nodes")
    depths.set_xlabel("steps from the owner")
    depths.xaxis.get_major_locator().set_params(integer=True)
    depths.set_ylabel("share of nodes")
    depths.set_title("depth of the tree, k = 16")
    depths.legend()
    repairs.set_xlabel("seconds until deliveries go on")
    repairs.set_ylabel("% of the consumers below")
    repairs.set_title("10 % of the relays crashed")
    repairs.legend()
    return figure


DRAWN: dict[str, Callable[[Any, Chapter], Any]] = {
    "lookups": lookups,
    "maintenance": maintenance,
    "churn": churn,
    "crash": crash,
    "crowd": crowd,
    "cut": cut,
    "fanout": fanout,
}
