"""The results of a scale run's chapters, and how they become text, JSON and a document.

A document marks where each table goes: `<!-- table NAME -->` up to `<!-- end -->`. A run writes its
tables there, so that nobody types a number; the prose around them stays as it is. The results are
kept beside the document as JSON, by chapter, so that one chapter can be run again without the
others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hocket.errors import HocketError

Say = Callable[[str], None]
Cell = str | int | float | None

DOCUMENT = "scale.md"
DATA = "scale.json"


class NoPlaceForTable(HocketError):
    """The document does not mark where a table goes that a run has made."""


@dataclass(slots=True)
class Options:
    nodes: int = 10_000
    seconds: int = 60
    seed: int = 1
    say: Say = lambda _text: None

    def sizes(self) -> list[int]:
        """The sizes of rings to compare: powers of ten from 100 on, then `nodes`."""
        return [*(size for size in (100, 1_000, 10_000) if size < self.nodes), self.nodes]

    def run(self) -> dict[str, int]:
        """What the figures depend on; it is kept with them."""
        return {"nodes": self.nodes, "seconds": self.seconds, "seed": self.seed}


@dataclass(slots=True)
class Table:
    """Columns whose name ends in '>' hold numbers. A cell of None shows that there is no figure."""

    name: str
    columns: list[str]
    rows: list[list[Cell]]


@dataclass(slots=True)
class Chapter:
    """The results of one chapter: tables to read, and series to draw."""

    name: str
    tables: list[Table]
    series: dict[str, Any] = field(default_factory=dict)
    run: dict[str, int] = field(default_factory=dict)  # nodes, seconds, seed

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Chapter:
        tables = [Table(**table) for table in value["tables"]]
        return cls(value["name"], tables, value["series"], value["run"])


def share(fraction: float) -> str:
    """The fraction in percent; only 1.0 gives "100 %", less is never rounded up to it."""
    text = f"{fraction * 100:.2f}"
    return f"{'99.99' if text == '100.00' and fraction < 1 else text.removesuffix('.00')} %"


def cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.2f}"
    return value


def text(table: Table) -> str:
    """The table for a terminal, with aligned columns."""
    right = [name.endswith(">") for name in table.columns]
    lines = [[name.removesuffix(">") for name in table.columns]]
    lines += [[cell(value) for value in row] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            each.rjust(width) if to_right else each.ljust(width)
            for each, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def markdown(table: Table) -> str:
    heads = [name.removesuffix(">") for name in table.columns]
    rules = ["---:" if name.endswith(">") else "---" for name in table.columns]
    rows = [[cell(value) for value in row] for row in table.rows]
    return "\n".join(_row(each) for each in [heads, rules, *rows])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def fill(document: str, tables: Sequence[Table]) -> str:
    """The document with these tables where it marks them."""
    for table in tables:
        place = re.compile(
            rf"(<!-- table {re.escape(table.name)} -->\n).*?(<!-- end -->)", re.DOTALL
        )
        written = markdown(table)
        document, found = place.subn(
            lambda match, written=written: f"{match[1]}\n{written}\n\n{match[2]}",  # type: ignore[misc]
            document,
        )
        if not found:
            raise NoPlaceForTable(
                f"the document has no place for the table {table.name!r}: "
                f"write '<!-- table {table.name} -->' and '<!-- end -->' where it belongs"
            )
    return document


def write(directory: Path, chapters: Sequence[Chapter]) -> list[Chapter]:
    """Put these chapters into a directory's data and document.

    Returns all chapters that the data holds now.
    """
    data = directory / DATA
    kept = json.loads(data.read_text()) if data.exists() else []
    by_name = {each["name"]: Chapter.from_json(each) for each in kept}
    by_name.update({chapter.name: chapter for chapter in chapters})
    together = list(by_name.values())
    document = directory / DOCUMENT
    filled = fill(document.read_text(), [table for chapter in chapters for table in chapter.tables])
    data.write_text(json.dumps([chapter.to_json() for chapter in together], indent=1) + "\n")
    document.write_text(filled)
    return together
