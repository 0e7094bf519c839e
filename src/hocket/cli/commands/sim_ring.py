"""`hocket sim ring`: thousands of ring members in one process, and what the ring costs there."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click

from hocket.cli import output
from hocket.cli.command import Command

if TYPE_CHECKING:
    from hocket.sim.scale.figures import Chapter

CHAPTER_NAMES = [
    "lookups", "maintenance", "balance", "churn", "crash", "crowd", "cut", "fanout",
]  # fmt: skip
NODES_MIN = 20  # a smaller ring lives by the registry and routes nothing

_directory = click.Path(exists=True, file_okay=False, writable=True, path_type=Path)


def _say(text: str) -> None:
    click.echo(text, err=True)


@click.command(
    "ring",
    cls=Command,
    examples="""
$ hocket sim ring --nodes 1000 --only lookups
$ hocket sim ring --nodes 10000 --json
$ hocket sim ring --only lookups --only churn --plots plots
$ hocket sim ring --only picture --picture ring.svg
""",
)
@click.option(
    "--nodes", type=click.IntRange(min=NODES_MIN), default=10_000, show_default=True, metavar="N"
)
@click.option(
    "--seconds",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    metavar="S",
    help="Simulated seconds that a ring at rest runs; other chapters take multiples of it.",
)
@click.option("--seed", type=int, default=1, show_default=True, metavar="N")
@click.option(
    "--only",
    type=click.Choice([*CHAPTER_NAMES, "picture"]),
    multiple=True,
    help="Only this chapter; may be given several times.",
)
@click.option("--plots", type=_directory, metavar="DIR", help="Draw plots there, as SVG.")
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw a ring with one node's fingers and one lookup, as SVG.",
)
@click.option(
    "--write",
    type=_directory,
    metavar="DIR",
    help="Put the tables into scale.md in this directory, with data, plots and picture beside it.",
)
@output.json_option
def ring(
    nodes: int,
    seconds: int,
    seed: int,
    only: tuple[str, ...],
    plots: Path | None,
    picture: Path | None,
    write: Path | None,
    as_json: bool,
) -> None:
    """Measure the ring and the relay tree at size, by simulation.

    Members run the drivers and cores of real nodes. Time, network and chance are simulated, so
    the same seed gives the same figures on any machine. All chapters at 10,000 nodes take some
    minutes and less than 2 GB of memory.
    """
    from hocket.sim.scale import figures
    from hocket.sim.scale.chapters import CHAPTERS

    if picture is not None and not picture.absolute().parent.is_dir():
        raise click.UsageError(f"--picture {picture}: there is no directory {picture.parent}")
    if "picture" in only and picture is None and write is None:
        raise click.UsageError("--only picture needs --picture FILE")
    options = figures.Options(nodes, seconds, seed, _say)
    chapters: list[Chapter] = []
    for name in only or CHAPTER_NAMES:
        if name == "picture":
            continue
        began = perf_counter()
        chapters.append(CHAPTERS[name](options))
        _say(f"{name}: done in {perf_counter() - began:.1f} s")
        if not as_json:
            for table in chapters[-1].tables:
                click.echo(f"\n{table.name}\n{figures.text(table)}\n")
    _draw(chapters, plots, picture, write, seed)
    if as_json:
        output.print_json({"seed": seed, "parts": [chapter.to_json() for chapter in chapters]})


def _draw(
    chapters: list[Chapter], plots: Path | None, picture: Path | None, write: Path | None, seed: int
) -> None:
    from hocket.sim.scale import figures
    from hocket.sim.scale.picture import draw, scene
    from hocket.sim.scale.plots import plot

    if plots is not None:
        plot(plots, chapters)
    if write is not None:
        plot(write, figures.write(write, chapters))
        picture = picture or write / "ring_picture.svg"
    if picture is not None:
        picture.write_text(draw(scene(seed)))
