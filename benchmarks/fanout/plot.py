"""The picture: what the owner of a topic sends, and how late messages come, by consumers."""

from __future__ import annotations

from pathlib import Path

from benchmarks.fanout.rows import Crowds

PANELS = (
    ("egress", "owner's egress, KiB/s"),
    ("p50", "p50, ms"),
    ("p99", "p99, ms"),
)


def draw(path: Path, crowds: Crowds) -> None:
    import matplotlib  # only here: it takes a second

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(PANELS), figsize=(13, 4.2), layout="constrained")
    counts = list(crowds)
    for axes, (metric, title) in zip(panels, PANELS, strict=True):
        for name in crowds[counts[0]]:
            axes.plot(counts, [crowds[count][name][metric] for count in counts], "o-", label=name)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        axes.set_xlabel("consumers of one topic")
        axes.set_title(title)
        axes.grid(color="#dddddd")
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
