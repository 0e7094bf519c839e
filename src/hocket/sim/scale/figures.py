"""What the parts of a scale run give back, and how it becomes text, JSON and a document.

A document holds marked places, `<!-- table NAME -->` up to `<!-- end -->`. Tables are written there
from a run, so that nobody types a number; the prose around them is left alone. What the runs gave
is kept beside it as JSON, part by part, so that one part can be run again without the others.
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
    """The document has no marked place for a table that a run has made."""


@dataclass(slots=True)
class Options:
    nodes: int = 10_000
    seconds: int = 60
    seed: int = 1
    say: Say = lambda _text: None

    def sizes(self) -> list[int]:
        """Rings to compare: powers of ten from 100 on, up to what was asked for."""
        return [*(size for size in (100, 1_000, 10_000) if size < self.nodes), self.nodes]

    def run(self) -> dict[str, int]:
        """What the figures depend on, to stand beside them."""
        return {"nodes": self.nodes, "seconds": self.seconds, "seed": self.seed}


@dataclass(slots=True)
class Table:
    """Columns whose name ends in '>' hold numbers. None: no figure."""

    name: str
    columns: list[str]
    rows: list[list[Cell]]


@dataclass(slots=True)
class Part:
    """What one part of the run gave: tables to read, and series to draw."""

    name: str
    tables: list[Table]
    series: dict[str, Any] = field(default_factory=dict)
    run: dict[str, int] = field(default_factory=dict)  # nodes, seconds, seed

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Part:
        tables = [Table(**table) for table in value["tables"]]
        return cls(value["name"], tables, value["series"], value["run"])


def share(part: float) -> str:
    """As percent, and never rounded up to 100 if it is not all."""
    text = f"{part * 100:.2f}"
    return f"{'99.99' if text == '100.00' and part < 1 else text.removesuffix('.00')} %"


def cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.2f}"
    return value


def text(table: Table) -> str:
    """For a terminal: aligned columns."""
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
    """The document with these tables at their marked places."""
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


def write(directory: Path, parts: Sequence[Part]) -> list[Part]:
    """Put these parts into the data and the tables of a directory; all parts it holds now."""
    data = directory / DATA
    kept = json.loads(data.read_text()) if data.exists() else []
    by_name = {each["name"]: Part.from_json(each) for each in kept}
    by_name.update({part.name: part for part in parts})
    together = list(by_name.values())
    document = directory / DOCUMENT
    filled = fill(document.read_text(), [table for part in parts for table in part.tables])
    data.write_text(json.dumps([part.to_json() for part in together], indent=1) + "\n")
    document.write_text(filled)
    return together
